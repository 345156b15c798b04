"""NVML's ring of power samples: read through a library that plays NVML, collected by a thread, and used as a meter."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from opcost.nvidia_nvml import NvmlError, NvmlGpu
from opcost.nvidia_nvml_counter import WithCounter
from opcost.nvidia_nvml_meter import LAST_SAMPLE_DEADLINE_S, NvmlMeter, PowerSampler
from opcost.power import PowerSource, PowerTrace, no_trace

PERIOD_S = 0.02
RING = 119
TICK_S = 0.1
SMI = PowerSource("nvidia-smi", rise_time_s=0.0, averaging_time_s=0.0)


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
    hole_s: tuple[float, float] = (0.0, 0.0)
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
        begin_s, end_s = self.hole_s
        later = [moment for moment in moments if moment * 1e6 >= after_us and not begin_s < moment < end_s]
        if not later:
            raise NotFoundError("Not Found")
        return self.kind, [
            SimpleNamespace(
                timeStamp=round(moment * 1e6), sampleValue=SimpleNamespace(uiVal=round(self.power_w(moment) * 1e3))
            )
            for moment in later
        ]


class Smi:
    """Plays the other meter: one that logs, or one that is not there."""

    def __init__(self, missing_reason: str | None = None) -> None:
        self._missing_reason = missing_reason

    def start(self) -> None:
        pass

    def log(self) -> PowerTrace:
        return self.stop()

    def stop(self) -> PowerTrace:
        if self._missing_reason is not None:
            return no_trace(self._missing_reason)
        one = np.array([1.0])
        return PowerTrace(SMI, one, one, one, one, one, one, log_name="smi.csv")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def sampler(nvml: FakeNvml) -> Iterator[PowerSampler]:
    gpu = NvmlGpu.open("GPU-1")
    with PowerSampler(gpu) as opened:
        yield opened
    gpu.close()
    assert nvml.is_open == 0


def test_samples_are_seconds_and_watts_and_later_than_asked(nvml: FakeNvml) -> None:
    nvml.power_w = lambda moment: 100.0 + moment % 1
    gpu, after_s = NvmlGpu.open("GPU-1"), round(time.time() / PERIOD_S) * PERIOD_S - 0.5
    samples = gpu.power_samples(after_s)
    assert len(samples) >= 24
    assert all(moment > after_s for moment, _ in samples)
    assert all(power_w == pytest.approx(100.0 + moment % 1, abs=0.001) for moment, power_w in samples)


def test_no_new_sample_is_none(nvml: FakeNvml) -> None:
    assert NvmlGpu.open("GPU-1").power_samples(time.time() + 10) == []


def test_a_gpu_that_nvml_does_not_know_is_an_error_and_leaves_nothing_open(nvml: FakeNvml) -> None:
    with pytest.raises(NvmlError, match="NVML: Not Found"):
        NvmlGpu.open("GPU-2")
    assert nvml.is_open == 0


def test_without_the_library_there_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlError, match="nvidia-ml-py is not installed"):
        NvmlGpu.open("GPU-1")


def test_samples_of_another_type_are_refused(nvml: FakeNvml) -> None:
    nvml.kind = 0
    with pytest.raises(NvmlError, match="unknown type"):
        NvmlGpu.open("GPU-1").power_samples(0.0)


def test_a_driver_without_samples_is_told_at_once(nvml: FakeNvml) -> None:
    nvml.failure = NVMLError("Not Supported")
    with pytest.raises(NvmlError, match="Not Supported"), PowerSampler(NvmlGpu.open("GPU-1")):
        pass


def test_each_sample_is_collected_once_also_beyond_the_ring(sampler: PowerSampler) -> None:
    begin_s = time.time()
    time.sleep(0.3)
    samples = sampler.between(begin_s - 2.0, time.time())
    moments = np.array([moment for moment, _ in samples])
    assert np.diff(moments) == pytest.approx(PERIOD_S, abs=1e-6)
    assert moments[-1] >= begin_s + 0.3


def test_the_meter_returns_the_samples_of_its_time_checked_by_the_other(sampler: PowerSampler, tmp_path: Path) -> None:
    meter = NvmlMeter(sampler, Smi(), tmp_path, "conv")
    begin_s = time.time()
    meter.start()
    time.sleep(0.2)
    assert len(meter.log().power_w) >= 8
    trace = meter.stop()
    assert trace.source.name == "NVML power samples"
    assert begin_s <= trace.epoch_s[0]
    assert len(trace.power_w) >= 9
    assert set(trace.power_w) == {400.0}
    assert [check.source.name for check in trace.checks] == ["nvidia-smi"]
    assert trace.log_name == "smi.csv"
    with (tmp_path / "conv-samples.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["power_w"]) for row in rows] == list(trace.power_w)


def test_the_counter_is_one_more_check_and_right_over_some_ticks(
    sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path
) -> None:
    meter = WithCounter(NvmlGpu(nvml, "GPU-1"), NvmlMeter(sampler, Smi(), tmp_path, "conv"))
    meter.start()
    assert meter.log().source.name == "NVML power samples"
    time.sleep(0.65)
    trace = meter.stop()
    assert trace.source.name == "NVML power samples"
    smi, counter = trace.checks
    assert (smi.source.name, counter.source.name) == ("nvidia-smi", "NVML energy counter")
    assert 4 <= len(counter.power_w) <= 6
    assert np.diff(counter.epoch_s) == pytest.approx(TICK_S, abs=0.03)
    assert counter.power_w.mean() == pytest.approx(400.0, rel=0.1)


def test_a_counter_that_fails_or_stands_still_is_told(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    reasons = []
    for silent_from_s, failure in ((time.time(), None), (float("inf"), NVMLError("Not Supported"))):
        nvml.silent_from_s, nvml.failure = silent_from_s, failure
        meter = WithCounter(NvmlGpu(nvml, "GPU-1"), Smi())
        meter.start()
        time.sleep(0.15)
        (counter,) = meter.stop().checks
        reasons.append(counter.missing_reason)
    assert reasons == ["NVML's energy counter stands still", "NVML: Not Supported"]
    nvml.failure = None


def test_samples_with_a_gap_are_no_measurement(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    meter = NvmlMeter(sampler, Smi(), tmp_path, "conv")
    meter.start()
    nvml.hole_s = (time.time() + 0.05, time.time() + 0.25)
    time.sleep(0.4)
    assert meter.stop().source.name == "nvidia-smi"


def test_where_samples_end_the_other_meter_counts(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    meter = NvmlMeter(sampler, Smi(), tmp_path, "conv")
    meter.start()
    nvml.silent_from_s = time.time()
    begin_s = time.monotonic()
    assert meter.stop().source.name == "nvidia-smi"
    assert time.monotonic() - begin_s < LAST_SAMPLE_DEADLINE_S + 1


def test_where_both_meters_fail_both_reasons_are_told(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    meter = NvmlMeter(sampler, Smi("nvidia-smi ended"), tmp_path, "conv")
    meter.start()
    nvml.failure = NVMLError("GPU is lost")
    assert meter.log().missing_reason == "nvidia-smi ended"
    assert meter.stop().missing_reason == "nvidia-smi ended; NVML: GPU is lost"


def test_a_failure_that_passes_is_forgotten(sampler: PowerSampler, nvml: FakeNvml, tmp_path: Path) -> None:
    meter = NvmlMeter(sampler, Smi(), tmp_path, "conv")
    meter.start()
    nvml.failure = NVMLError("busy")
    meter.log()
    nvml.failure = None
    time.sleep(0.1)
    assert meter.stop().source.name == "NVML power samples"
