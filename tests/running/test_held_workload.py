"""A model that is built once and measured several times, on real devices."""

import gc
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import EAGER, GRAPH
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Workload
from opcost.operators.counts import Case
from opcost.operators.tuples import model_operator
from opcost.running import apparatus as apparatus_module
from opcost.running.apparatus import HeldWorkload, open_apparatus
from opcost.storage.database import Database
from opcost.torch_backend.workload import BackgroundLoad

SMALL = Case(model_operator("resnet18", None, (2, 3, 32, 32)))
LARGER = Case(model_operator("resnet18", None, (64, 3, 224, 224)))
SHORT = MeasurementProtocol(warm_up_s=0.1, loop_s=0.3)


def held_on(device: str, folder: Path) -> Iterator[HeldWorkload]:
    with open_apparatus(device, Database(folder), True) as apparatus:
        held = HeldWorkload(apparatus)
        yield held
        held.release()
    gc.collect()


@pytest.fixture
def on_cpu(tmp_path: Path) -> Iterator[HeldWorkload]:
    yield from held_on("cpu", tmp_path)


@pytest.fixture
def on_gpu(tmp_path: Path) -> Iterator[HeldWorkload]:
    yield from held_on("cuda", tmp_path)


def test_repetitions_of_a_build_have_single_iterations_and_memory(on_cpu: HeldWorkload) -> None:
    on_cpu.hold(SMALL, Setting())
    first, second = (on_cpu.repeat(SHORT, f"log-{number}") for number in range(2))
    assert len(first.times_s) >= 20
    assert first.memory == second.memory
    assert first.memory.memory_used_bytes
    assert on_cpu.kernels(SMALL, Setting()) == ()
    with pytest.raises(RuntimeError, match="no workload is held"):
        on_cpu.repeat(SHORT, "log")


class Rounds:
    """A background load that counts its rounds."""

    def __init__(self) -> None:
        self.number = 0

    def run(self, rounds: int) -> int:
        time.sleep(0.001)
        self.number += rounds
        return rounds

    def finish(self) -> None:
        pass


@pytest.fixture
def background(on_cpu: HeldWorkload) -> Iterator[Rounds]:
    """Return the rounds of a background load beside the model that is held."""
    rounds = Rounds()
    load = BackgroundLoad(lambda: rounds)  # type: ignore[arg-type, return-value]
    on_cpu.apparatus = replace(on_cpu.apparatus, observers=(load, *on_cpu.apparatus.observers), background=load)
    on_cpu.hold(SMALL, Setting())
    yield rounds
    load.close()


def rounds_in_a_while(rounds: Rounds) -> int:
    before = rounds.number
    time.sleep(0.05)
    return rounds.number - before


@pytest.mark.parametrize("fails", [False, True])
def test_the_background_load_pauses_while_single_iterations_are_timed(
    on_cpu: HeldWorkload, background: Rounds, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    found: list[int] = []

    def timed(workload: Workload, device: str, number: int) -> list[float]:
        found.append(rounds_in_a_while(background))
        if fails:
            raise CannotMeasureError("an iteration failed")
        return [1.0]

    monkeypatch.setattr(apparatus_module, "single_iteration_times_s", timed)
    with pytest.raises(CannotMeasureError) if fails else nullcontext():
        on_cpu.repeat(SHORT, "log")
    assert found == [0]
    assert rounds_in_a_while(background) > 0


@pytest.mark.gpu
@pytest.mark.parametrize(("execution", "case"), [(GRAPH, SMALL), (GRAPH, LARGER), (EAGER, LARGER)])
def test_single_iterations_on_a_gpu_take_as_long_as_those_of_the_loop(
    on_gpu: HeldWorkload, execution: str, case: Case
) -> None:
    # A small model in eager execution is launched as fast as the host's other work lets it.
    on_gpu.hold(case, Setting(execution=execution))
    found = on_gpu.repeat(SHORT, f"{execution}-log")
    assert found.measurement.executed_as == execution
    median_s = sorted(found.times_s)[len(found.times_s) // 2]
    assert median_s == pytest.approx(found.measurement.time_s, rel=0.25)


@pytest.mark.gpu
def test_the_memory_of_a_build_is_its_own(on_gpu: HeldWorkload) -> None:
    peaks = []
    # Tests before may have left tensors.
    gc.collect()
    for case in (SMALL, LARGER, SMALL):
        on_gpu.hold(case, Setting())
        memory = on_gpu.repeat(SHORT, "log").memory
        assert memory.memory_peak_bytes is not None
        assert memory.cache_bytes
        peaks.append(memory.memory_peak_bytes)
    assert peaks[1] > 5 * peaks[0]
    assert peaks[2] == pytest.approx(peaks[0], rel=0.2)


@pytest.mark.gpu
def test_kernels_are_those_of_the_model_alone(on_gpu: HeldWorkload) -> None:
    on_gpu.hold(LARGER, Setting())
    measured = on_gpu.repeat(SHORT, "log").measurement
    kernels = on_gpu.kernels(LARGER, Setting())
    # 20 convolutions, normalisations, activations, and more.
    assert 50 < sum(kernel.calls for kernel in kernels) < 400
    assert sum(kernel.time_s for kernel in kernels) == pytest.approx(measured.time_s, rel=0.2)
