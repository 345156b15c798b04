"""EnergyMeter on a simulated GPU: windows of a user's code, and what remains after exceptions."""

import asyncio
import csv
import inspect
import json
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulated_energy import SimulatedSource
from simulated_machine import ClockStep, Device, Load, SimulatedMachine

from opcost import EnergyMeter, UserError
from opcost.estimates import NORMAL_QUANTILE
from opcost.metering.window_energy import WindowResult
from opcost.meters import energy as energy_sources
from opcost.meters.energy import names_of
from opcost.power.ports import GpuError
from opcost.power.trace import Window
from opcost.running import energy_meter
from opcost.running.energy_meter import SHOWN
from opcost.units import significant


@dataclass(frozen=True)
class Bench:
    """A simulated machine that a meter meters."""

    machine: SimulatedMachine
    source: SimulatedSource

    def work(self, seconds: float) -> None:
        self.machine.run_load(self.machine.load, round(seconds / self.machine.load.time_s))

    def rest(self, seconds: float) -> None:
        self.machine.idle(seconds)

    def holds(self, result: WindowResult) -> bool:
        """Whether the true energy is within four standard errors."""
        assert result.energy is not None, result.missing_reason
        true_j = self.source.gpu().true_energy_j(Window(result.begin_s, result.begin_s + result.duration_s))
        return abs(result.energy.value - true_j) <= 4 * result.energy.standard_error


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return bench_of(SimulatedMachine(Load(power_w=400.0), Device(white_noise_w=5.0)), monkeypatch)


def bench_of(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> Bench:
    machine.idle(3.0)
    bench = Bench(machine, SimulatedSource(machine))

    def reopened(_: object) -> list[SimulatedSource]:
        bench.source.is_closed = False
        return [bench.source]

    monkeypatch.setattr(energy_meter, "open_sources", reopened)
    monkeypatch.setattr(energy_meter, "SystemClock", lambda: machine)
    # perf_counter is the machine's, too, for repetitions.
    monkeypatch.setattr(energy_meter, "time", SimpleNamespace(perf_counter=lambda: machine.read().monotonic_s))
    return bench


def test_three_lines_meter_a_loop(bench: Bench) -> None:
    with EnergyMeter() as meter:
        bench.work(1.0)
    assert meter.result.duration_s == pytest.approx(1.0, rel=0.01)
    assert meter.result.energy_j == pytest.approx(400.0, rel=0.02)
    assert bench.holds(meter.result)
    assert bench.source.is_closed


def test_nested_windows_are_each_right(bench: Bench) -> None:
    with EnergyMeter() as meter:
        with meter.window("outer") as outer:
            bench.rest(0.5)
            with meter.window("inner") as inner:
                bench.work(0.4)
            bench.rest(0.3)
        bench.work(0.2)
    assert [result.label for result in meter.results] == ["inner", "outer", ""]
    assert outer.duration_s == pytest.approx(1.2, rel=0.01)
    assert inner.energy_j == pytest.approx(160.0, rel=0.1)
    assert all(map(bench.holds, meter.results))


def test_a_look_within_the_loop_waits_for_the_meters_only_once(bench: Bench) -> None:
    meter = EnergyMeter()
    meter.start("part")
    bench.work(0.5)
    part = meter.stop()
    before_s = bench.machine.read().monotonic_s
    assert (part.energy_j, part.result.label) == (pytest.approx(200.0, rel=0.1), "part")
    first_s = bench.machine.read().monotonic_s
    assert part.result is part.result
    assert (first_s - before_s, bench.machine.read().monotonic_s) == (pytest.approx(0.3), first_s)
    meter.close()


def test_a_decorator_meters_each_call(bench: Bench) -> None:
    meter = EnergyMeter()

    @meter
    def train(seconds: float) -> str:
        """Train."""
        bench.work(seconds)
        return "trained"

    assert (train(0.5), train(1.0), train.__doc__) == ("trained", "trained", "Train.")
    assert [round(result.duration_s, 1) for result in meter.results] == [0.5, 1.0]
    assert meter.results[0].label.endswith("train")
    meter.close()


def test_coroutines_and_generators_are_metered_as_they_run(bench: Bench) -> None:
    meter = EnergyMeter()

    @meter
    async def load(seconds: float) -> float:
        await asyncio.sleep(0)
        bench.work(seconds)
        return seconds

    @meter
    def steps(seconds: float) -> Generator[float, float, str]:
        bench.work((yield seconds))
        return "trained"

    @meter
    async def batches(seconds: float) -> AsyncGenerator[float, float]:
        try:
            bench.work((yield seconds))
        except ZeroDivisionError:
            bench.work(0.4)
        yield 0.0

    class Served:
        async def __call__(self) -> None:
            bench.work(0.7)

    def trained(seconds: float) -> Generator[float, float, None]:
        assert (yield from steps(seconds=seconds)) == "trained"

    async def all_batches() -> None:
        given = batches(0.1)
        assert await given.__anext__() == 0.1
        assert await given.asend(0.3) == 0.0
        assert [item async for item in given] == []
        thrown = batches(seconds=0.1)
        await thrown.__anext__()
        assert await thrown.athrow(ZeroDivisionError()) == 0.0
        await thrown.aclose()

    assert asyncio.run(load(seconds=0.5)) == 0.5
    running = trained(0.1)
    assert next(running) == 0.1
    with pytest.raises(StopIteration):
        running.send(0.6)
    asyncio.run(all_batches())
    asyncio.run(meter(Served())())
    assert inspect.iscoroutinefunction(load)
    found = [(result.label.rpartition(".")[2], round(result.duration_s, 1)) for result in meter.results]
    assert found == [("load", 0.5), ("steps", 0.6), ("batches", 0.3), ("batches", 0.4), ("Served", 0.7)]
    assert all(map(bench.holds, meter.results))
    assert {result.exception for result in meter.results} == {None}
    meter.close()


def test_a_generator_that_is_left_ends_its_window(bench: Bench) -> None:
    meter = EnergyMeter()

    @meter
    def steps() -> Generator[int, None, None]:
        for number in range(9):
            bench.work(0.2)
            yield number

    for number in steps():
        if number == 2:
            break
    assert (round(meter.result.duration_s, 1), meter.result.exception) == (0.6, None)
    forgotten = steps()
    next(forgotten)
    meter.close()
    forgotten.close()
    assert len(meter.results) == 2


def test_threads_end_their_own_windows_only(bench: Bench) -> None:
    meter = EnergyMeter()
    meter.start("main")
    refusals = []

    def other() -> None:
        meter.start("other")
        meter.start("inner")
        assert [meter.stop().label for _ in range(2)] == ["inner", "other"]
        try:
            meter.stop()
        except UserError as error:
            refusals.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    bench.work(0.5)
    assert meter.stop().label == "main"
    (refusal,) = refusals
    assert "stop() without start(); other threads have open windows" in refusal
    with meter.window("alone"), pytest.raises(UserError, match="stop"):
        meter.stop()
    meter.close()


def test_many_threads_have_each_window_once() -> None:
    meter = EnergyMeter()
    meter._sources = [energy_sources.NoEnergy("no meter")]

    def work(number: int) -> None:
        for place in range(50):
            with meter.window(f"{number} {place}"):
                meter.start(f"started {number} {place}")
                assert meter.stop().label == f"started {number} {place}"

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(meter.results) == len({result.label for result in meter.results}) == 800
    meter.close()


def test_a_context_within_itself_is_a_window_of_its_own(bench: Bench) -> None:
    meter = EnergyMeter()
    with meter:
        bench.work(0.3)
        with meter:
            bench.work(0.5)
        assert not bench.source.is_closed
        bench.work(0.2)
    assert bench.source.is_closed
    assert [round(result.duration_s, 1) for result in (*meter.results, meter.result)] == [0.5, 1.0, 1.0]
    assert all(map(bench.holds, meter.results))


def test_a_meter_shows_its_result_and_what_has_none_is_a_mistake(bench: Bench) -> None:
    meter = EnergyMeter()
    assert (str(meter), repr(meter)) == ("no window has ended", "<EnergyMeter no window has ended>")
    with pytest.raises(UserError, match="stop"):
        meter.stop()
    with pytest.raises(UserError, match="no window has ended"):
        _ = meter.result
    with meter:
        assert "not ended" in repr(meter.start("part"))
        with meter.window("open") as window, pytest.raises(UserError, match="has not ended"):
            _ = window.result
        bench.work(1.0)
    assert str(meter) == str(meter.result)
    assert " J ± " in repr(meter)
    assert repr(meter.result) == f"<WindowResult {meter.result}>"


def test_a_notebook_shows_windows_as_a_table_and_a_frame_has_them_all(bench: Bench) -> None:
    meter = EnergyMeter()
    assert meter._repr_html_() == "<p>no window has ended</p>"
    with meter.window("<b>first</b>") as window:
        assert window._repr_html_() == "<p>&lt;b&gt;first&lt;/b&gt;: not ended</p>"
        bench.work(1.0)
    with meter.window("short"):
        bench.work(0.001)
    energy = f'<td data-label="J" class="number">{significant(window.energy_j or 0.0)}'
    for html in (window._repr_html_(), window.result._repr_html_(), meter._repr_html_()):
        assert '<th scope="row">&lt;b&gt;first&lt;/b&gt;</th>' in html
        assert energy in html
    # An unknown energy has its reason.
    assert '<td data-label="J" class="number">-' in meter._repr_html_()
    assert "is shorter than" in meter._repr_html_()
    for _ in range(SHOWN):
        with meter.window("more"):
            bench.work(0.001)
    assert meter._repr_html_().count('<th scope="row">') == SHOWN
    assert f"The last {SHOWN} of {SHOWN + 2} windows" in meter._repr_html_()
    frame = meter.to_frame()
    assert (len(frame), frame["energy_j"][0]) == (SHOWN + 2, window.energy_j)
    meter.close()


def test_marks_part_a_run(bench: Bench) -> None:
    with EnergyMeter() as meter:
        for epoch in range(3):
            meter.mark(f"epoch {epoch}")
            bench.work(0.5)
    assert [result.label for result in meter.results] == ["epoch 0", "epoch 1", "epoch 2", ""]
    parts_j = sum(result.energy_j or 0.0 for result in meter.results[:3])
    assert meter.result.energy_j == pytest.approx(parts_j, rel=0.05)


def test_energy_above_idle_is_given_on_request(bench: Bench) -> None:
    with EnergyMeter(above_idle=True) as meter:
        bench.work(1.0)
    (device,) = meter.result.devices
    assert device.energy_j is not None
    assert device.above_idle_j == pytest.approx(device.energy_j - 80.0 * meter.result.duration_s)
    bench.source.idle_power_w = None
    with EnergyMeter(above_idle=True) as meter:
        bench.work(1.0)
    assert meter.result.devices[0].above_idle_j is None


def test_short_code_is_repeated_until_it_is_known_or_for_the_longest_time(bench: Bench) -> None:
    meter = EnergyMeter()
    result = meter.measure(lambda: bench.work(0.004), relative_error=0.02)
    assert result.energy is not None
    assert NORMAL_QUANTILE * result.energy.standard_error <= 0.02 * result.energy.value
    assert result.energy_per_repeat_j == pytest.approx(1.6, rel=0.03)
    assert result.time_per_repeat_s == pytest.approx(0.004, rel=0.01)
    result = meter.measure(lambda: bench.work(0.004), relative_error=1e-9, longest_s=1.0)
    assert 1.0 <= result.duration_s < 1.1
    meter.close()


def test_a_window_that_is_too_short_says_so_and_has_no_figure(bench: Bench) -> None:
    with EnergyMeter() as meter, meter.window("kernel") as kernel:
        bench.work(0.01)
    assert kernel.energy_j is None
    assert kernel.result.missing_reason == "the window of 10 ms is shorter than samples resolves, 40 ms"
    assert "kernel: " in str(kernel)


def test_an_exception_leaves_its_windows_in_the_output(bench: Bench, tmp_path: Path) -> None:
    output = tmp_path / "windows.csv"

    def train() -> None:
        with EnergyMeter(output=output) as meter:
            meter.mark("epoch 1")
            with meter.window("forward"):
                bench.work(0.5)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["label"], row["exception"]) for row in rows] == [
        ("forward", "ZeroDivisionError"),
        ("epoch 1", "ZeroDivisionError"),
        ("", "ZeroDivisionError"),
    ]
    assert all(float(row["energy_j"]) > 0 for row in rows)
    assert bench.source.is_closed


def test_json_lines_are_appended_run_after_run(bench: Bench, tmp_path: Path) -> None:
    output = tmp_path / "windows.jsonl"
    for seconds in (0.5, 0.02):
        with EnergyMeter(output=output):
            bench.work(seconds)
    known, unknown = map(json.loads, output.read_text().splitlines())
    assert (known["device"], known["energy_missing_reason"]) == ("cuda:0", None)
    assert unknown["energy_j"] is None
    assert "shorter than" in unknown["energy_missing_reason"]


def test_a_forked_process_leaves_meters_and_output_to_its_parent(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "windows.jsonl"
    meter = EnergyMeter(output=output)
    meter.start()
    with monkeypatch.context() as child:
        child.setattr(energy_meter.os, "getpid", lambda: -1)
        meter.close()
    assert (output.exists(), bench.source.is_closed) == (False, False)
    bench.work(0.5)
    meter.close()
    assert len(output.read_text().splitlines()) == 1


def test_an_output_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name in ("windows.txt", "missing/windows.csv", "other.csv"):
        with pytest.raises(UserError, match=name):
            EnergyMeter(output=tmp_path / name)


def test_a_clock_that_was_set_leaves_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimulatedMachine(Load(power_w=400.0), clock_step=ClockStep(after_s=3.5, step_s=-2.0))
    bench = bench_of(machine, monkeypatch)
    with EnergyMeter() as meter:
        bench.work(1.0)
    assert meter.result.duration_s == pytest.approx(1.0, rel=0.01)
    assert (meter.result.energy_j, meter.result.missing_reason) == (None, "the clock was set during the window")


def test_readings_that_no_window_needs_are_dropped(bench: Bench) -> None:
    meter = EnergyMeter()
    for _ in range(5):
        with meter.window("step"):
            bench.work(30.0)
    first_s = meter.results[0].begin_s
    assert bench.source.needed_from_s > first_s + 30
    assert all(map(bench.holds, meter.results))
    with meter.window("run"):
        began_s = bench.machine.read().epoch_s
        for _ in range(3):
            with meter.window("step"):
                bench.work(50.0)
        assert bench.source.needed_from_s <= began_s
    meter.close()


def torch_double(calls: list[int], fails: bool = False) -> SimpleNamespace:
    """Play a torch that uses GPU 0 of two."""

    def wait(index: int) -> None:
        calls.append(index)
        if fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    cuda = SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 0, memory_reserved=lambda _: 0, synchronize=wait
    )
    return SimpleNamespace(cuda=cuda)


def test_the_gpu_is_awaited_at_both_ends_unless_that_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", torch_double(calls))
    for synchronise, number in ((True, 2), (False, 0)):
        calls.clear()
        with EnergyMeter(synchronise=synchronise):
            bench.work(0.5)
        assert calls == [0] * number
    energy_sources.synchronise(["cuda:0", "cuda:1", "cpu"])
    assert calls == [0], "a GPU that torch does not use was awaited"


def test_a_gpu_in_error_does_not_hide_the_exception(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fault() -> None:
        with EnergyMeter(output=tmp_path / "windows.csv"):
            bench.work(0.5)
            monkeypatch.setitem(sys.modules, "torch", torch_double([], fails=True))
            raise ZeroDivisionError

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ZeroDivisionError):
        fault()
    assert len((tmp_path / "windows.csv").read_text().splitlines()) == 2


@pytest.fixture
def no_meter(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def no_gpus(_: object) -> dict[str, str]:
        raise GpuError("NVML: not found")

    monkeypatch.setattr(energy_sources, "visible_gpus", no_gpus)
    monkeypatch.setattr(energy_sources, "open_rapl", lambda: ([], "no RAPL energy counter"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return lambda: None


@pytest.mark.usefixtures("no_meter")
def test_without_a_meter_one_line_says_why_and_times_are_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), EnergyMeter() as meter:
        sum(range(1000))
    assert [record.getMessage() for record in caplog.records] == [
        "no energy is metered: NVML: not found; no RAPL energy counter"
    ]
    assert meter.result.duration_s > 0
    assert (meter.result.energy_j, meter.result.missing_reason) == (None, "NVML: not found; no RAPL energy counter")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([0, "cuda:0", "1"], ("cuda:0", "cuda:1")),
        ("cuda:1", ("cuda:1",)),
        (2, ("cuda:2",)),
        (("cuda", "cpu"), ("cuda:0", "cpu")),
    ],
)
def test_devices_are_names_or_numbers(given: str | int | Sequence[str | int], names: tuple[str, ...]) -> None:
    assert names_of(given) == names


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ([], "devices names none"),
        *((given, "no device '.*'; use cuda:0, cpu or dram, or leave") for given in ("", "gpu0", -1, ["cuda:x"], 1.5)),
        *((given, "devices is the function or class .*; write @EnergyMeter()") for given in (sum, names_of, Path)),
    ],
)
def test_what_no_device_can_be_is_refused_at_construction(given: Any, line: str) -> None:
    with pytest.raises(UserError, match=line):
        EnergyMeter(given)


@pytest.mark.usefixtures("no_meter")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((given, "cuda:0: NVML: not found") for given in ([0], "cuda:0", "cuda")),
        ("cpu", "cpu: no RAPL energy counter"),
    ],
)
def test_a_device_that_is_not_there_is_a_mistake(given: str | list[int], words: str) -> None:
    with pytest.raises(UserError, match=f"no device {words}; devices with a meter: none; leave devices out to get"):
        EnergyMeter(given).start()
