"""NVML's ring of power samples: read through a library that plays NVML, collected by a thread, and used as a meter."""

import csv
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nvidia_smi_stage import NvidiaSmiStage

from opcost.meters.gpu_meters import (
    CAMPAIGN_SOURCE,
    EVERY_TICK_SOURCE,
    LAST_SAMPLE_DEADLINE_S,
    PAUSE_AFTER_FAILURE_S,
    SEARCH_S,
    CounterMeter,
    CounterSampler,
    PowerSampler,
    SampleMeter,
    TickFinder,
    TimedRows,
)
from opcost.meters.gpus import gpu_facts
from opcost.meters.nvidia_smi import INSTANT, MIG_REASON
from opcost.meters.nvml import COUNTER, SAMPLES, Nvidia, NvmlGpu
from opcost.meters.opening import open_meters
from opcost.power.ports import DeviceFacts, GpuError
from opcost.power.trace import Window, mean_power

PERIOD_S = 0.02
RING = 119
TICK_S = 0.1
READ_S = 0.0035
DEADLINE_S = 10.0


class NVMLError(Exception):
    pass


class NotFoundError(NVMLError):
    pass


@dataclass
class FakeNvml:
    """Plays pynvml for one GPU whose power at any moment is declared."""

    power_w: Callable[[float], float] = lambda _: 400.0
    kind: int = 1
    failure: NVMLError | None = None
    silent_from_s: float = float("inf")
    is_open: int = 0
    calls: list[int] = field(default_factory=list)

    NVML_TOTAL_POWER_SAMPLES = 0
    NVML_VALUE_TYPE_UNSIGNED_INT = 1
    NVMLError = NVMLError
    NVMLError_NotFound = NotFoundError

    def nvmlInit(self) -> None:  # noqa: N802
        self.is_open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-1":
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        if self.failure is not None:
            raise self.failure
        return f"GPU-{index + 1}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return f"product of {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=143771 * 2**20 + 4096)

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:  # noqa: N802
        if self.failure is not None:
            raise self.failure
        return 700_000

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if self.failure is not None:
            raise self.failure
        tick = int(min(time.time(), self.silent_from_s) / TICK_S)
        return round(tick * TICK_S * self.power_w(tick * TICK_S) * 1e3)

    def nvmlDeviceGetSamples(self, handle: str, kind: int, after_us: int) -> tuple[int, list[SimpleNamespace]]:  # noqa: N802
        self.calls.append(after_us)
        if self.failure is not None:
            raise self.failure
        last = int(min(time.time(), self.silent_from_s) / PERIOD_S)
        moments = [index * PERIOD_S for index in range(last - RING + 1, last + 1)]
        later = [moment for moment in moments if moment * 1e6 >= after_us]
        if not later:
            raise NotFoundError("Not Found")
        return self.kind, [
            SimpleNamespace(
                timeStamp=round(moment * 1e6), sampleValue=SimpleNamespace(uiVal=round(self.power_w(moment) * 1e3))
            )
            for moment in later
        ]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def sampler(nvml: FakeNvml) -> Iterator[PowerSampler]:
    gpu = Nvidia().open("GPU-1")
    with PowerSampler(gpu) as opened:
        yield opened
    gpu.close()
    assert nvml.is_open == 0


def test_samples_are_seconds_and_watts_and_later_than_asked(nvml: FakeNvml) -> None:
    nvml.power_w = lambda moment: 100.0 + moment % 1
    gpu, after_s = Nvidia().open("GPU-1"), round(time.time() / PERIOD_S) * PERIOD_S - 0.5
    samples = gpu.power_samples(after_s)
    assert len(samples) >= 24
    assert all(moment > after_s for moment, _ in samples)
    assert all(power_w == pytest.approx(100.0 + moment % 1, abs=0.001) for moment, power_w in samples)


def test_what_nvml_does_not_know_is_none_or_an_error_that_leaves_nothing_open(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GpuError, match="NVML: Not Found"):
        Nvidia().open("GPU-2")
    assert nvml.is_open == 0
    gpu = Nvidia().open("GPU-1")
    assert gpu.power_samples(time.time() + 10) == []
    nvml.kind = 0
    with pytest.raises(GpuError, match="unknown type"):
        gpu.power_samples(0.0)
    nvml.failure = NVMLError("Not Supported")
    with pytest.raises(GpuError, match="Not Supported"), PowerSampler(gpu):
        pass
    with pytest.raises(GpuError, match="Not Supported"), CounterSampler(gpu):
        pass
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpuError, match="nvidia-ml-py is not installed"):
        Nvidia().open("GPU-1")


def test_the_state_is_in_si_units_and_none_where_nvml_lacks_it(nvml: FakeNvml) -> None:
    gpu = NvmlGpu(nvml, "GPU-1")
    names = ("sm_clock_hz", "temperature_c", "event_reasons", "utilisation_ratio")
    assert [getattr(gpu.state(), name) for name in names] == [None] * 4
    nvml.NVML_CLOCK_SM, nvml.NVML_TEMPERATURE_GPU = 1, 0
    nvml.nvmlDeviceGetClockInfo = lambda _, kind: 1980 if kind == nvml.NVML_CLOCK_SM else 0
    nvml.nvmlDeviceGetTemperature = lambda *_: 61
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda _: 0x4
    nvml.nvmlDeviceGetUtilizationRates = lambda _: SimpleNamespace(gpu=50)
    assert [getattr(gpu.state(), name) for name in names] == [1.98e9, 61, 4, 0.5]


def test_all_gpus_are_listed_and_nvml_is_left(nvml: FakeNvml) -> None:
    assert Nvidia().uuids() == ["GPU-1"]
    nvml.failure = NVMLError("GPU is lost")
    with pytest.raises(GpuError, match="GPU is lost"):
        Nvidia().uuids()
    assert nvml.is_open == 0


def test_each_sample_is_collected_once_also_beyond_the_ring(sampler: PowerSampler) -> None:
    begin_s = time.time()
    time.sleep(0.3)
    samples = sampler.between(begin_s - 2.0, time.time())
    moments = np.array([moment for moment, _ in samples])
    assert np.diff(moments) == pytest.approx(PERIOD_S, abs=1e-6)
    assert moments[-1] >= begin_s + 0.3


def test_the_meter_returns_and_keeps_the_samples_of_its_time(sampler: PowerSampler, tmp_path: Path) -> None:
    meter = SampleMeter(sampler, tmp_path, "conv")
    begin_s = time.time()
    meter.start()
    time.sleep(0.2)
    assert len(meter.log().power_w) >= 8
    trace = meter.stop()
    assert trace.source.name == "NVML power samples"
    assert begin_s <= trace.epoch_s[0]
    assert len(trace.power_w) >= 9
    assert set(trace.power_w) == {400.0}
    with (tmp_path / "conv-samples.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["power_w"]) for row in rows] == list(trace.power_w)


def test_samples_that_end_are_reported_in_time(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "conv-samples.csv").write_text("epoch_s,power_w\n")  # of a measurement before
    meter = SampleMeter(sampler, tmp_path, "conv")
    meter.start()
    nvml.silent_from_s = time.time()
    begin_s = time.monotonic()
    assert "kept no power sample" in str(meter.stop().missing_reason)
    assert time.monotonic() - begin_s < LAST_SAMPLE_DEADLINE_S + 1
    assert not (tmp_path / "conv-samples.csv").exists()


def test_a_failure_that_passes_is_forgotten(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    meter = SampleMeter(sampler, tmp_path, "conv")
    meter.start()
    nvml.failure = NVMLError("busy")
    assert meter.log().missing_reason == "NVML: busy"
    nvml.failure = None
    time.sleep(0.1)
    assert meter.stop().missing_reason is None


class TickingCounter:
    """A counter that ticks in virtual time, in which reading it takes as long as on an H200.

    It shows what it had at some share of each read. The phase jumps by ``jump_s`` at ``jumps_at_s``; the thread wakes
    up ``late_s`` too late.
    """

    def __init__(self, phase_s: float = 0.0, at_ratio: float = 0.5, power_w: float = 400.0) -> None:
        self.now_s = 5.0
        self.phase_s = phase_s
        self.at_ratio = at_ratio
        self.power_w = power_w
        self.late_s = 0.0
        self.jumps_at_s, self.jump_s = math.inf, 0.0
        self.reads = 0
        self.stopped = False
        self.finder = TickFinder(self.read_j, lambda: self.now_s, self.wait)

    def read_j(self) -> float:
        self.reads += 1
        seen_s = self.now_s + self.at_ratio * READ_S
        self.now_s += READ_S
        return self.power_w * self.tick_before_s(seen_s)

    def tick_before_s(self, moment_s: float) -> float:
        phase_s = self.phase_s + (self.jump_s if moment_s >= self.jumps_at_s else 0.0)
        return math.floor((moment_s - phase_s) / TICK_S) * TICK_S + phase_s

    def wait(self, duration_s: float) -> bool:
        self.now_s += duration_s + self.late_s
        return self.stopped

    def ticks(self, number: int, interval_s: float) -> np.ndarray:
        found = [self.finder.next_tick(interval_s) for _ in range(number)]
        return np.array([tick for tick in found if tick is not None])


PHASES = [(phase_s, at_ratio) for phase_s in (0.0, 0.0123, 0.05, 0.0987) for at_ratio in (0.0, 0.5, 1.0)]


@pytest.mark.parametrize(("phase_s", "at_ratio"), PHASES)
def test_a_tick_in_a_second_takes_three_reads_and_is_right_to_one(phase_s: float, at_ratio: float) -> None:
    counter = TickingCounter(phase_s, at_ratio)
    ticks = counter.ticks(20, 1.0)
    # The energy says which tick was found.
    errors_s = ticks[:, 0] - ticks[:, 1] / counter.power_w
    assert np.ptp(errors_s) <= READ_S
    assert np.abs(errors_s).max() <= 1.5 * READ_S
    assert np.diff(ticks[:, 1] / counter.power_w) == pytest.approx(1.0)
    search_reads = TICK_S / READ_S + 2
    assert counter.reads <= search_reads + 19 * 4
    mean_w = (ticks[-1, 1] - ticks[0, 1]) / (ticks[-1, 0] - ticks[0, 0])
    assert mean_w == pytest.approx(counter.power_w, rel=0.0035 / 19 * 2)


@pytest.mark.parametrize("jump_s", [0.01, 0.03, 0.06, 0.09])
def test_a_phase_that_is_lost_is_learnt_again(jump_s: float) -> None:
    counter = TickingCounter(0.02)
    counter.jumps_at_s, counter.jump_s = 9.5, jump_s
    ticks = counter.ticks(20, 1.0)
    late = ticks[ticks[:, 0] > 11.0]
    assert len(ticks) == 20
    assert len(late) >= 10
    assert np.abs(late[:, 0] - late[:, 1] / counter.power_w).max() <= READ_S
    reads = counter.reads
    counter.ticks(10, 1.0)
    assert counter.reads - reads <= 40


def test_every_tick_is_found_and_a_thread_that_is_late_takes_a_later_one() -> None:
    counter = TickingCounter(0.02)
    ticks = counter.ticks(50, TICK_S)
    assert np.diff(ticks[:, 1] / counter.power_w) == pytest.approx(TICK_S)
    counter.late_s = 0.03
    ticks = counter.ticks(10, 1.0)
    assert np.abs(ticks[:, 0] - ticks[:, 1] / counter.power_w).max() <= READ_S
    assert np.diff(ticks[:, 0]) == pytest.approx(1.1, abs=0.11)
    counter.late_s = 0.0
    counter.now_s += 7.0
    counter.reads = 0
    (tick,) = counter.ticks(1, 1.0)
    assert tick[0] == pytest.approx(tick[1] / counter.power_w, abs=READ_S)
    assert counter.reads <= 4


def test_a_counter_that_stands_still_is_given_up_after_two_periods_and_an_ended_wait_reads_no_more() -> None:
    counter = TickingCounter(power_w=0.0)
    assert counter.finder.next_tick(1.0) is None
    assert counter.now_s - 5.0 == pytest.approx(SEARCH_S, abs=3 * READ_S)
    counter = TickingCounter()
    counter.ticks(1, 1.0)
    counter.stopped, counter.reads = True, 0
    assert counter.finder.next_tick(1.0) is None
    assert counter.reads == 0


@pytest.fixture
def counter(nvml: FakeNvml) -> Iterator[CounterSampler]:
    with CounterSampler(NvmlGpu(nvml, "GPU-1")) as opened:
        yield opened


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.01)


def test_a_tick_is_dated_by_when_it_was_and_not_by_when_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    first_epoch_s = 1_790_000_000.0
    ticking = TickingCounter()
    clock = SimpleNamespace(monotonic=lambda: ticking.now_s, time=lambda: first_epoch_s + ticking.now_s)
    monkeypatch.setattr("opcost.meters.gpu_meters.time", clock)

    def energy_j() -> float:
        energy_j = ticking.read_j()
        ticking.now_s += 5 * READ_S
        return energy_j

    with CounterSampler(SimpleNamespace(energy_j=energy_j, library="NVML")) as sampler:  # type: ignore[arg-type]
        wait_until(lambda: sampler.ticks.newest_s > 0)
    tick_s = first_epoch_s + ticking.tick_before_s(ticking.now_s)
    assert sampler.ticks.newest_s == pytest.approx(tick_s, abs=4 * READ_S)


def test_a_measurement_has_the_power_from_tick_to_tick(counter: CounterSampler, tmp_path: Path) -> None:
    meter = CounterMeter(counter, tmp_path, "conv", EVERY_TICK_SOURCE)
    begin_s = time.time()
    meter.start()
    wait_until(lambda: len(meter.log().power_w) >= 3)
    trace = meter.stop()
    assert trace.source == replace(EVERY_TICK_SOURCE, name=COUNTER)
    assert trace.epoch_s[0] > begin_s
    with (tmp_path / "conv-counter.csv").open() as file:
        rows = [(float(row["epoch_s"]), float(row["energy_j"])) for row in csv.DictReader(file)]
    assert len(rows) == len(trace.power_w) + 1
    mean_w = (rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0])
    assert mean_w > 0
    assert counter.interval_s == CAMPAIGN_SOURCE.update_period_s


def test_a_measurement_without_ticks_ends_at_once_and_has_no_mean(counter: CounterSampler, tmp_path: Path) -> None:
    (tmp_path / "relu-counter.csv").write_text("epoch_s,energy_j\n")  # of a measurement before
    meter = CounterMeter(counter, tmp_path, "relu")
    meter.start()
    trace = meter.stop()
    assert trace.missing_reason is None
    reason = mean_power(trace, 0.0, Window(0.0, time.time())).missing_reason
    assert reason == "0 fresh readings of NVML energy counter in the window, 5 needed"
    assert not (tmp_path / "relu-counter.csv").exists()


class Ticks(CounterSampler):
    """Plays a sampler that has these ticks."""

    def __init__(self, ticks: list[tuple[float, float]]) -> None:
        self.name, self.ticks = COUNTER, TimedRows()
        self.ticks.extend(ticks)


def test_an_interval_with_a_lost_tick_has_no_power(tmp_path: Path) -> None:
    sampler = Ticks([(0.0, 0.0), (1.0, 400.0), (3.0, 1200.0), (4.1, 1640.0)])
    trace = CounterMeter(sampler, tmp_path, "conv").log()
    assert trace.power_w == pytest.approx([400.0, math.nan, 400.0], nan_ok=True)
    assert list(trace.epoch_s) == [1.0, 3.0, 4.1]


def test_a_counter_that_is_refused_is_reported_and_tried_again(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PAUSE_AFTER_FAILURE_S > 1
    monkeypatch.setattr("opcost.meters.gpu_meters.PAUSE_AFTER_FAILURE_S", 0.01)
    with CounterSampler(NvmlGpu(nvml, "GPU-1")) as sampler:
        sampler.interval_s = TICK_S
        nvml.failure = NVMLError("GPU is lost")
        meter = CounterMeter(sampler, tmp_path, "conv", EVERY_TICK_SOURCE)
        wait_until(lambda: meter.log().missing_reason == "NVML: GPU is lost")
        nvml.failure = None
        wait_until(lambda: len(meter.log().power_w) > 0)


FACTS = DeviceFacts("GPU-1", "NVIDIA Fake GPU", 16 * 10**9, 700.0, "580.65.06")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvidiaSmiStage]:
    stage = NvidiaSmiStage(tmp_path / "stage", monkeypatch)
    yield stage
    assert stage.living() == []


@pytest.mark.parametrize("uuid_or_index", ["GPU-1", "0"])
def test_facts_of_a_gpu_come_from_nvml_in_whole_mib_and_else_from_nvidia_smi(
    stage: NvidiaSmiStage, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, uuid_or_index: str
) -> None:
    expected = DeviceFacts("GPU-1", "product of GPU-1", 143771 * 2**20, 700.0, "580.1")
    assert gpu_facts(uuid_or_index) == expected
    assert (stage.pids(), nvml.is_open) == ([], 0)
    nvml.failure = NVMLError("Not Supported")
    by_nvidia_smi = gpu_facts("0")
    assert (by_nvidia_smi.product, nvml.is_open) == ("NVIDIA Fake GPU", 0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_facts("0") == by_nvidia_smi


def test_all_meters_of_a_gpu_log_together(stage: NvidiaSmiStage, nvml: FakeNvml, tmp_path: Path) -> None:
    with ExitStack() as stack:
        meters = open_meters("cuda:0", FACTS, tmp_path, stack)
        assert meters.names == ("samples", "counter", "instant", "average")
        meter = meters.meter("conv")
        meter.start()
        wait_until(lambda: len(meter.log().checks) == 3)
        logged, trace = meter.log(), meter.stop()
    names = ["NVML power samples", "NVML energy counter", "nvidia-smi power.draw.instant", "nvidia-smi power.draw"]
    assert [one.source.name for one in (logged, *logged.checks)] == names
    assert [one.source.name for one in (trace, *trace.checks)] == names
    assert trace.log_name == "conv.csv"
    assert trace.checks[0].source == replace(CAMPAIGN_SOURCE, name=COUNTER)
    assert nvml.is_open == 0


@pytest.mark.parametrize(("swing_w", "expected_w"), [(0.0, 80.0), (30.0, None)])
def test_the_power_before_anything_ran_is_reported_if_it_was_steady(
    nvml: FakeNvml, swing_w: float, expected_w: float | None
) -> None:
    nvml.power_w = lambda moment_s: 80.0 + swing_w * (int(moment_s / PERIOD_S) % 2)
    with PowerSampler(Nvidia().open("GPU-1")) as sampler:
        assert sampler.power_before_w == expected_w


def test_for_a_qualification_the_counter_is_read_at_every_tick(
    stage: NvidiaSmiStage, nvml: FakeNvml, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        meters = open_meters("cuda:0", FACTS, tmp_path, stack)
        assert meters.every_tick is not None
        meter = meters.every_tick("qualification")
        meter.start()
        # The thread may wait for the next tick of a campaign, a second away, before it looks for every one.
        time.sleep(2.2)
        counter = meter.stop().checks[0]
        assert counter.source == replace(EVERY_TICK_SOURCE, name=COUNTER)
        # Ten ticks in a second, where campaigns see one.
        assert np.count_nonzero(~np.isnan(counter.power_w)) >= 4
        read_times_s = meters.read_times_s()
        nvml.failure = NVMLError("GPU is lost")
        assert meters.read_times_s() == {}
    assert read_times_s.keys() == {"NVML power samples", "NVML energy counter"}
    assert all(read_time_s > 0 for read_time_s in read_times_s.values())


def test_a_second_measurement_holds_nothing_of_the_first(stage: NvidiaSmiStage, nvml: FakeNvml, tmp_path: Path) -> None:
    """An operator behind an eviction is measured after the eviction alone, by the same meter."""
    with ExitStack() as stack:
        meter = open_meters("cuda:0", FACTS, tmp_path, stack).meter("conv")
        meter.start()
        # Two ticks of the counter, which is read once in a second.
        time.sleep(2.3)
        assert len(meter.log().epoch_s) > 5
        meter.stop()
        begin_s = time.time()
        meter.start()
        time.sleep(0.3)
        trace = meter.log()
        assert {logged.source.name for logged in (trace, *trace.checks)} >= {SAMPLES, COUNTER, INSTANT}
        for logged in (trace, *trace.checks):
            if logged.source.name in (SAMPLES, COUNTER):
                assert not np.any(logged.epoch_s < begin_s)
            # nvidia-smi's log is read from a few rows before on: rows of the first measurement would come twice.
            assert np.all(np.diff(logged.epoch_s) >= 0)
        meter.stop()


def test_where_samples_fail_the_next_meter_comes_first(stage: NvidiaSmiStage, nvml: FakeNvml, tmp_path: Path) -> None:
    with ExitStack() as stack:
        meter = open_meters("cuda:0", FACTS, tmp_path, stack).meter("conv")
        meter.start()
        nvml.kind = 0
        trace = meter.stop()
    assert trace.source.name == "NVML energy counter"
    assert trace.checks[-1].source.name == "NVML power samples"
    assert "unknown type" in str(trace.checks[-1].missing_reason)


@pytest.mark.parametrize(
    ("fault", "names"), [("", ("instant", "average")), ("missing_instant", ("average",)), ("not_supported", ())]
)
def test_without_nvml_there_is_what_nvidia_smi_shows(
    stage: NvidiaSmiStage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, names: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    stage.act(fault)
    with ExitStack() as stack:
        assert open_meters("cuda:0", FACTS, tmp_path, stack).names == names


def test_a_gpu_that_is_divided_has_no_meter(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    with ExitStack() as stack:
        meters = open_meters("cuda:0", replace(FACTS, no_energy_reason=MIG_REASON), tmp_path, stack)
    assert (meters.names, meters.every_tick) == ((), None)
    assert meters.meter("conv").stop().missing_reason == MIG_REASON
    assert stage.pids() == []
