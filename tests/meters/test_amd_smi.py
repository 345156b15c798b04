"""An AMD card by a library that plays ``amdsmi``: facts, state, limit, places, and counters that cannot be trusted."""

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_amdsmi import COUNTERS, POWER_W, AmdSmiException, Card, FakeAmdSmi

from opcost import EnergyMeter
from opcost.meters import gpus
from opcost.meters.amd_smi import AmdSmi
from opcost.meters.opening import open_meters
from opcost.power.log_rows import is_power_capped, is_thermal_slowdown
from opcost.power.ports import DeviceFacts, GpuError, LimitRange, NoRightError
from opcost.power.trace import Window, device_state, mean_power

TRUSTED = "sound"
MI300X = Card("uuid-a", "0000:0c:00.0")
MI200 = Card("uuid-b", "0000:22:00.0", is_mi300=False)

Play = Callable[..., FakeAmdSmi]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Have a machine with some AMD cards and no NVIDIA driver."""

    def play(*cards: Card) -> FakeAmdSmi:
        library = FakeAmdSmi(list(cards))
        monkeypatch.setitem(sys.modules, "amdsmi", library)
        monkeypatch.setitem(sys.modules, "pynvml", None)
        monkeypatch.setenv("PATH", "/none")
        monkeypatch.setattr(gpus, "VENDORS", (gpus.VENDORS[0], AmdSmi()))
        for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            monkeypatch.delenv(variable, raising=False)
        return library

    return play


@pytest.mark.parametrize(
    ("card", "product"), [(MI300X, "AMD Instinct MI300X"), (MI200, "AMD INSTINCT MI250X (MCM) OAM AC MBA")]
)
def test_facts_and_state_of_two_generations(play: Play, card: Card, product: str) -> None:
    library = play(MI300X, MI200)
    assert gpus.gpu_facts(card.uuid) == DeviceFacts(card.uuid, product, 196592 * 2**20, 750.0, "6.12.12")
    gpu = gpus.open_gpu(card.uuid)
    ((epoch_s, power_w),) = gpu.power_samples(0.0)
    assert (power_w, epoch_s) == (POWER_W, pytest.approx(time.time(), abs=1.0))
    first = gpu.state()
    card.residency += 7
    state = gpu.state()
    assert (state.utilisation_ratio, state.temperature_c, state.memory_temperature_c) == (1.0, 61, 45)
    assert state.sm_clock_hz == (2.05e9 if card.is_mi300 else 1.7e9)
    assert (state.power_instant_w, state.power_average_w) == ((600, None) if card.is_mi300 else (None, 600))
    assert (is_power_capped(state.event_reasons), is_thermal_slowdown(state.event_reasons)) == (True, False)
    # Accumulated times say nothing by themselves.
    assert (first.event_reasons is None) == card.is_mi300
    assert library.begun == 1


def test_what_a_card_does_not_report_is_unknown(play: Play) -> None:
    unsupported = AmdSmiException(2)
    card = Card(
        "uuid-a",
        "0000:0c:00.0",
        answers={
            "amdsmi_get_gpu_metrics_info": unsupported,
            "amdsmi_get_gpu_vram_usage": unsupported,
            "amdsmi_get_power_info": {"current_socket_power": "N/A", "average_socket_power": 65535},
            "amdsmi_get_gpu_process_list": ["a handle, as in older versions"],
        },
    )
    play(card)
    gpu = gpus.open_gpu("0")
    state = gpu.state()
    assert {name for name, value in vars(state).items() if value is not None} == {"epoch_s"}
    for question in (gpu.facts, gpu.process_ids, lambda: gpu.power_samples(0.0)):
        with pytest.raises(GpuError, match="AMD SMI: "):
            question()


def test_the_limit_is_set_in_watts_by_who_may(play: Play) -> None:
    card = Card("uuid-a", "0000:0c:00.0")
    play(card)
    limit = gpus.open_limit("uuid-a")
    assert (limit.limit_w(), limit.limit_range_w()) == (750.0, LimitRange(0.0, 750.0, 750.0))
    limit.set_limit_w(500.0)
    assert (limit.limit_w(), limit.limit_command(750.0)) == (500.0, "amd-smi set --gpu uuid-a --power-cap 750")
    card.answers["amdsmi_set_power_cap"] = AmdSmiException(10)
    with pytest.raises(NoRightError, match="AMD SMI: "):
        limit.set_limit_w(400.0)
    card.answers["amdsmi_get_gpu_compute_partition"] = "CPX"
    with pytest.raises(GpuError, match="share one power limit"):
        gpus.open_limit("uuid-a")


def test_gpus_are_numbered_as_hip_does_and_found_from_torch_by_their_place(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(Card("uuid-a", "0000:0c:00.0", hip_id=1), Card("uuid-b", "0001:22:00.0", hip_id=0))
    assert gpus.visible_gpus({}) == {"cuda:0": "uuid-b", "cuda:1": "uuid-a"}
    assert gpus.visible_gpus({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}) == {"cuda:0": "uuid-a"}
    assert gpus.visible_gpus({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}) == {"cuda:0": "uuid-a"}
    place = SimpleNamespace(pci_domain_id=1, pci_bus_id=0x22, pci_device_id=0)
    cuda = SimpleNamespace(get_device_properties=lambda _: place, device_count=lambda: 1)
    torch = SimpleNamespace(version=SimpleNamespace(hip="7.0"), cuda=cuda)
    assert gpus.gpus_in_torch(torch) == {"cuda:0": "uuid-b"}
    del place.pci_bus_id
    with pytest.raises(GpuError, match="where a GPU is on the PCI bus"):
        gpus.uuid_in_torch(torch, 0)


@pytest.mark.parametrize("has_driver", [False, True])
def test_without_the_library_a_card_is_missed_only_where_its_driver_is(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_driver: bool
) -> None:
    play()
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setattr("opcost.meters.amd_smi.DRIVER", tmp_path if has_driver else tmp_path / "none")
    with pytest.raises(GpuError, match="amdsmi is not installed" if has_driver else "nvidia-ml-py is not installed"):
        gpus.open_gpu("0")


def cards_by_fault(is_mi300: bool = True) -> list[Card]:
    return [Card(fault, f"0000:{bus:02x}:00.0", fault, is_mi300=is_mi300) for bus, fault in enumerate(COUNTERS)]


def test_the_counter_of_a_measurement_is_right_or_has_no_power(play: Play, tmp_path: Path) -> None:
    play(*cards_by_fault())
    with ExitStack() as stack:
        opened = {fault: open_meters("cuda:0", gpus.gpu_facts(fault), tmp_path / fault, stack) for fault in COUNTERS}
        assert opened[TRUSTED].names == ("samples", "counter")
        meters = {fault: found.every_tick("conv") for fault, found in opened.items() if found.every_tick is not None}
        # The threads look for ticks once a second before.
        time.sleep(1.2)
        begin_s = time.time()
        for meter in meters.values():
            meter.start()
        time.sleep(2.5)
        traces = {fault: meter.stop() for fault, meter in meters.items()}
    window = Window(begin_s, time.time())
    for fault, trace in traces.items():
        by_name = {logged.source.name: logged for logged in (trace, *trace.checks)}
        counter = by_name.get("AMD SMI energy counter")
        if fault == TRUSTED:
            mean = mean_power(counter, begin_s, window)
            assert mean.estimate_w is not None
            assert mean.estimate_w.value == pytest.approx(POWER_W, rel=0.02)
        elif fault != "in another unit":
            assert counter is None or counter.missing_reason is not None, fault
        state = device_state(by_name["AMD SMI state"], window)
        assert (state.temperature_c, state.power_capped_ratio, state.busy_ratio) == (61.0, 0.0, 1.0)
        assert all(map(math.isnan, by_name["AMD SMI state"].power_w))
        assert (tmp_path / fault / "conv.csv").read_text().count("\n") > 10


def test_no_window_has_a_false_energy(play: Play) -> None:
    play(*cards_by_fault())
    with EnergyMeter() as meter:
        time.sleep(1.0)
        with meter.window("part") as part:
            time.sleep(2.5)
        time.sleep(0.5)
    true_j = POWER_W * part.duration_s
    by_fault = dict(zip(COUNTERS, part.result.devices, strict=True))
    assert by_fault[TRUSTED].meter == "AMD SMI power samples, scaled by AMD SMI energy counter"
    for fault, found in by_fault.items():
        if fault == "in another unit":
            assert (found.energy_j, "which one is right is unknown" in str(found.missing_reason)) == (None, True)
        else:
            assert found.energy_j == pytest.approx(true_j, rel=0.03), fault
            assert fault == TRUSTED or found.meter == "AMD SMI power samples"


def test_a_part_of_a_card_has_no_energy_but_a_reason(play: Play) -> None:
    play(Card("uuid-a", "0000:0c:00.0", answers={"amdsmi_get_gpu_compute_partition": "CPX"}))
    with EnergyMeter() as meter:
        time.sleep(0.01)
    (found,) = meter.result.devices
    assert (found.energy_j, "partitioned (CPX)" in str(found.missing_reason)) == (None, True)
