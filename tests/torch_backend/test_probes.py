"""Single iterations and memory on a CPU."""

import mmap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from opcost.measuring.protocol import (
    FEWEST_ITERATIONS,
    FEWEST_LONG_ITERATIONS,
    LONGEST_ITERATIONS_S,
    MOST_ITERATIONS,
    iterations_after,
)
from opcost.measuring.sweep_record import IterationTimes, MemoryUse
from opcost.measuring.workload import Calls
from opcost.torch_backend.probes import MemoryWatch, single_iteration_times_s
from opcost.torch_backend.workload import EagerWorkload


def test_each_iteration_has_a_time_unless_a_round_has_several() -> None:
    called = []
    times_s = single_iteration_times_s(EagerWorkload(Calls(lambda: called.append(1)), "cpu"), "cpu", 25)
    assert len(times_s) == len(called) == 25
    assert min(times_s) > 0
    assert single_iteration_times_s(EagerWorkload(Calls(lambda: None, period=2), "cpu"), "cpu", 25) == []


def test_short_iterations_are_many_and_quantiles_are_those_of_the_times() -> None:
    assert iterations_after(1.0, 1e-6) == MOST_ITERATIONS
    assert iterations_after(1.0, 0.1) == FEWEST_ITERATIONS
    assert iterations_after(1.0, 100.0) == FEWEST_LONG_ITERATIONS
    assert iterations_after(1.0, 1.0) == LONGEST_ITERATIONS_S / 1.0
    found = IterationTimes.of([float(one) for one in range(1, 102)])
    assert (found.iterations_timed, found.iteration_p5_s, found.iteration_p50_s) == (101, 6.0, 51.0)
    assert found.iteration_p95_s == 96.0
    assert IterationTimes.of([]).iteration_p50_s is None


def fill_new_pages(size_bytes: int) -> None:
    """Use new memory of the system, and give it back. An allocator may have memory left from earlier tests."""
    with mmap.mmap(-1, size_bytes) as pages:
        for place in range(0, size_bytes, mmap.PAGESIZE):
            pages[place] = 1


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no /proc of Linux")
def test_the_peak_of_a_process_is_that_since_the_begin() -> None:
    watch = MemoryWatch("cpu")
    fill_new_pages(2**26)
    watch.begin()
    before = watch.use
    fill_new_pages(2**27)
    after = watch.use
    assert before.memory_peak_bytes is not None
    assert after.memory_peak_bytes is not None
    assert after.memory_peak_bytes - before.memory_peak_bytes > 0.9 * 2**27


def test_a_process_without_a_status_has_a_reason(tmp_path: Path) -> None:
    watch = MemoryWatch("cpu", tmp_path / "missing")
    watch.begin()
    assert watch.use.memory_peak_bytes is None
    assert watch.use.memory_missing_reason


def test_memory_of_a_gpu_is_what_was_added_since_the_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"memory_allocated": 1000, "max_memory_allocated": 5000}
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: now["memory_allocated"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: now["max_memory_allocated"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: now.update(max_memory_allocated=1000))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=50))
    watch = MemoryWatch("cuda:0")
    watch.begin()
    assert watch.use == MemoryUse(0, 0, None, 50)
    now.update(memory_allocated=1300, max_memory_allocated=1700)
    assert watch.use == MemoryUse(300, 700, None, 50)
    # A former model's memory may be released meanwhile.
    now.update(memory_allocated=400)
    assert watch.use == MemoryUse(0, 700, None, 50)
