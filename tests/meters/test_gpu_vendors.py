"""The seam of GPUs: a vendor that is declared here, one class and its place in the registry, takes the usual paths."""

import math
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_apparatus import SimulatedCampaign
from simulated_machine import RING, Load, MeterModel

from opcost import EnergyMeter
from opcost.measuring.qualification import STEADY_LOAD
from opcost.meters import gpus
from opcost.meters.gpus import OtherProcesses
from opcost.meters.opening import open_meters
from opcost.meters.vendor import GpuVendor
from opcost.power.log_rows import PowerRow
from opcost.power.ports import DeviceFacts, GpuError, LimitRange, PowerSource
from opcost.power.trace import Window, device_state
from opcost.running.qualification import qualify_meters
from opcost.stages import info
from opcost.storage.files import UserFolders


class SimulatedVendor(GpuVendor):
    """A vendor with one GPU, which this class plays, too: 300 W, a sample each 10 ms, a counter that always moves."""

    library, name, sample_interval_s = "Simulated", "sim-1", 0.1
    sample_source = PowerSource("Simulated power samples", 0.05, 0.01, 0.01, repeats_values=False)
    power_w, others, limit = 300.0, (), 400.0

    def uuids(self) -> list[str]:
        return [self.name]

    def open(self, uuid_or_index: str) -> Any:
        if uuid_or_index not in ("0", self.name):
            raise GpuError(f"Simulated: no GPU {uuid_or_index}")
        return self

    def is_of(self, torch: Any) -> bool:
        return hasattr(torch.version, "simulated")

    def uuid_of(self, properties: Any) -> str:
        return self.name

    def facts(self, uuid_or_index: str = "0") -> DeviceFacts:
        return DeviceFacts(self.open(uuid_or_index).name, "Simulated GPU", 2**34, self.limit, "1.2")

    def no_energy_reason(self) -> str | None:
        return None

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        last = int(time.time() * 100)
        return [(i / 100, self.power_w) for i in range(max(last - 200, int(after_epoch_s * 100) + 1), last + 1)]

    def energy_j(self) -> float:
        return self.power_w * (time.time() - 1.7e9)

    def state(self) -> PowerRow:
        return PowerRow(time.time(), 300.0, None, 0.0, 1.5e9, 55.0, None, 0x4, 2**30)

    def process_ids(self) -> set[int]:
        return set(self.others)

    def limit_range_w(self) -> LimitRange:
        return LimitRange(100.0, 400.0, 400.0)

    def limit_w(self) -> float:
        return self.limit

    def set_limit_w(self, power_w: float) -> None:
        self.limit = power_w

    def limit_command(self, power_w: float) -> str:
        return f"simulated-smi {power_w:g}"

    def close(self) -> None:
        pass


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch) -> SimulatedVendor:
    vendor = SimulatedVendor()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # A GPU that is really there is not asked.
    monkeypatch.setattr(gpus, "VENDORS", (vendor,))
    return vendor


def test_windows_of_a_program_have_its_energy(vendor: SimulatedVendor) -> None:
    with EnergyMeter(above_idle=True) as meter:
        time.sleep(1.2)
    found = meter.result.devices[0]
    assert (found.device, found.meter) == ("cuda:0", "Simulated power samples, scaled by Simulated energy counter")
    assert found.energy_j == pytest.approx(300.0 * meter.result.duration_s, rel=0.01)
    assert found.above_idle_j == pytest.approx(0.0, abs=1.0)


def test_a_campaigns_meters_are_those_of_the_port_and_its_log(vendor: SimulatedVendor, tmp_path: Path) -> None:
    with ExitStack() as stack:
        meters = open_meters("cuda:0", gpus.gpu_facts("sim-1"), tmp_path, stack)
        assert (meters.names, meters.idle_power_w) == (("samples", "counter"), 300.0)
        meter = meters.meter("conv")
        meter.start()
        begin_s = time.time()
        time.sleep(0.5)
        trace = meter.stop()
        assert set(meters.read_times_s()) == {"Simulated power samples", "Simulated energy counter"}
    assert {math.isclose(power_w, 300.0) for power_w in trace.power_w} == {True}
    state = device_state(trace, Window(begin_s, time.time()))
    assert (state.temperature_c, state.sm_clock_hz, state.power_capped_ratio) == (55.0, 1.5e9, 1.0)
    assert {path.name for path in tmp_path.iterdir()} >= {"conv.csv", "conv-samples.csv"}


def test_its_meters_are_qualified_by_their_own_names(vendor: SimulatedVendor, tmp_path: Path) -> None:
    """The loads are simulated, in virtual time; the names are those of the vendor's meters."""
    campaign = SimulatedCampaign(tmp_path, {STEADY_LOAD.operator: Load(time_s=0.01, power_w=300.0)})
    truth = MeterModel()
    counter = replace(truth, source=replace(truth.power_source, name="Simulated energy counter"))
    campaign.machine.meter, campaign.machine.checks = replace(RING, source=vendor.sample_source), (counter,)
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        found = qualify_meters(apparatus, campaign.database.meter_qualifications)
    verdicts = {row.quality.meter: row.quality.verdict for row in found}
    assert verdicts == {"Simulated power samples": "good", "Simulated energy counter": "the reference"}


def test_its_processes_limit_log_and_facts_are_asked_for(vendor: SimulatedVendor, tmp_path: Path) -> None:
    others = OtherProcesses(gpus.open_gpu("sim-1"), own_id=7)
    vendor.others = (7, 8)
    assert others.disturbance() == "another process used the GPU: 8"
    limit = gpus.open_limit("sim-1")
    limit.set_limit_w(250.0)
    assert (gpus.gpu_facts("0").power_limit_w, limit.limit_command(400.0)) == (250.0, "simulated-smi 400")
    stopping = threading.Event()
    rows = gpus.log_batches("sim-1", tmp_path, 0.01, stopping)
    assert [next(rows)[0].temperature_c, next(rows)[0].temperature_c] == [55.0, 55.0]
    stopping.set()
    assert len(list(rows)) == 1
    found = info.find_info(UserFolders(tmp_path, tmp_path)).gpus
    assert found == (info.DeviceInfo("Simulated GPU", ("samples", "counter"), None, "sim-1", "1.2"),)
