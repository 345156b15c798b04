"""A device's apparatus, its parts played: what is kept at work when, and what is asked of whom."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from simulated_apparatus import SimulatedCampaign
from simulated_machine import Device, Load, simulated_row

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.flags import Flag, Flags
from opcost.measuring.instruments import ProcessWatch
from opcost.measuring.protocol import MeasurementProtocol, protocol_for
from opcost.measuring.record import is_flagged, leaves_clocks_low, may_be_throttled
from opcost.measuring.setting import Setting
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec, model_operator
from opcost.operators.values import ZEROS, InputData
from opcost.running.apparatus import SLOWED_FOR_S, Rest, Workloads, open_apparatus
from opcost.running.devices import choose_device
from opcost.storage.database import Database
from opcost.torch_backend import passes
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel
from tests.small_model import SmallModel

MEANWHILE = "another process came meanwhile"
RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
HEAVY = replace(RELU, inputs=(TensorSpec((3,), "float32"),))
TOO_MUCH = Load(time_s=0.001, power_w=800.0)


def test_a_device_rests_after_a_load_that_its_clocks_went_down_under(tmp_path: Path) -> None:
    """The next workload's build is a part of the rest."""
    campaign = SimulatedCampaign(tmp_path, {RELU: Load(time_s=0.001, power_w=300.0), HEAVY: TOO_MUCH})
    built_in_s = 0.15
    campaign.before = lambda _: campaign.machine.idle(built_in_s)
    pauses_s: list[float] = []
    with campaign.open_apparatus(None, campaign.database, True) as opened:
        apparatus = replace(opened, rest=Rest(opened.clock, pauses_s.append))
        for operator in (RELU, HEAVY, RELU, RELU):
            apparatus.measure(Case(operator), Setting("fp32"), MeasurementProtocol(0.5, 1.0), "log")
    assert pauses_s == [pytest.approx(SLOWED_FOR_S - built_in_s)]


def test_a_device_rests_after_a_loop_that_was_cut_where_clocks_went_down(tmp_path: Path) -> None:
    """The loop is at full clocks; the device is not when it ends."""
    campaign = SimulatedCampaign(tmp_path, {RELU: Load(time_s=0.001, power_w=300.0), HEAVY: TOO_MUCH})
    campaign.machine.device = Device(white_noise_w=25.0, capping_delay_s=0.9)
    precise = MeasurementProtocol(0.15, 30.0, relative_error=0.008)
    pauses_s: list[float] = []
    with campaign.open_apparatus(None, campaign.database, True) as opened:
        apparatus = replace(opened, rest=Rest(opened.clock, pauses_s.append))
        ((_, cut),) = apparatus.measure(Case(HEAVY), Setting("fp32"), precise, "log")
        apparatus.measure(Case(RELU), Setting("fp32"), precise, "log")
    assert (cut.flags, pauses_s) == ((Flag.AT_POWER_LIMIT,), [pytest.approx(SLOWED_FOR_S)])


def test_a_back_end_that_cannot_run_a_call_is_named_and_no_other_runs_it() -> None:
    tensor = TensorSpec((2, 4, 8, 16), "float32")
    case = Case(OperatorTuple("torch.nn.functional.scaled_dot_product_attention", inputs=(tensor,) * 3, mode=None))
    ran = []
    for backend in ("flash", "math"):
        with Workloads("cpu")(case, Setting(attention=backend)) as workload:
            workload.run(1)
            ran.append(backend)
    # A CPU has no such kernel.
    with (
        pytest.raises(CannotMeasureError) as raised,
        Workloads("cpu")(case, Setting(attention="efficient")) as workload,
    ):
        workload.run(1)
    assert "Attention may run in efficient alone" in str(raised.value)
    assert ran == ["flash", "math"]


def test_calls_run_and_are_counted_in_their_phase() -> None:
    modes: list[bool] = []

    def noting(model: SmallModel, x: torch.Tensor) -> torch.Tensor:
        modes.append(torch.is_inference_mode_enabled())
        return x + 1

    with passes.in_phase(Phase.FORWARD):
        counts = capture(run_first(ReadyModel(SmallModel(noting), (torch.ones(2),))), OperatorTuple("model"))
    assert {count.phase for count in counts.counts} == {Phase.FORWARD}
    assert modes
    assert not any(modes)


def test_an_operator_is_measured_at_full_clocks_and_a_model_as_it_runs(tmp_path: Path) -> None:
    """Only where a loop is to be precise: a long one shows what becomes of a load that lasts."""
    model = model_operator("resnet18", None, (2, 3, 8, 8))
    campaign = SimulatedCampaign(tmp_path, {HEAVY: TOO_MUCH, model: TOO_MUCH})
    campaign.machine.device = Device(white_noise_w=2.0, capping_delay_s=0.55)
    precise = MeasurementProtocol(0.15, 30.0, relative_error=0.01)
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        alone, whole, long = (
            apparatus.measure(Case(operator), Setting("fp32"), protocol, "log")[0][1]
            for operator, protocol in ((HEAVY, precise), (model, precise), (HEAVY, MeasurementProtocol(2.0, 3.0)))
        )
    assert alone.time_s == pytest.approx(TOO_MUCH.time_s, rel=0.003)
    assert alone.power_w == pytest.approx(TOO_MUCH.power_w, rel=0.01)
    assert may_be_throttled(whole)
    assert may_be_throttled(long)
    assert long.time_s == pytest.approx(TOO_MUCH.time_s * 8 / 7, rel=0.003)


def test_a_whole_at_the_power_limit_is_measured_when_its_clocks_have_settled(tmp_path: Path) -> None:
    """A short loop would end before it is throttled."""
    model = model_operator("resnet18", None, (2, 8, 8))
    campaign = SimulatedCampaign(tmp_path, {model: TOO_MUCH})
    campaign.machine.device = Device(white_noise_w=2.0, capping_delay_s=0.8)
    precise = MeasurementProtocol(0.1, 30.0, relative_error=0.01)
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        ((_, whole),) = apparatus.measure(Case(model), Setting("fp32"), precise, "log")
    assert whole.time_s == pytest.approx(TOO_MUCH.time_s * 8 / 7, rel=0.003)
    assert whole.power_w == pytest.approx(700.0, rel=0.01)
    assert whole.loop_time_s == pytest.approx(2.7, rel=0.1)
    assert len(campaign.built) == precise.builds


def test_an_operator_that_needed_pauses_begins_with_them_on_other_data(tmp_path: Path) -> None:
    zeros = Case(HEAVY, InputData((ZEROS,)))
    campaign = SimulatedCampaign(tmp_path, {HEAVY: TOO_MUCH}, {zeros: TOO_MUCH})
    campaign.machine.device = Device(white_noise_w=2.0, capping_delay_s=0.2)
    precise = MeasurementProtocol(0.15, 30.0, relative_error=0.01)
    builds = []
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        for case in (Case(HEAVY), zeros):
            before = len(campaign.built)
            ((_, measurement),) = apparatus.measure(case, Setting("fp32"), precise, "log")
            assert (measurement.duty_cycle, measurement.flags) == (0.75, (Flag.DUTY_CYCLE,))
            builds.append(len(campaign.built) - before)
    assert builds == [2, 1]


def test_an_operator_that_needed_pauses_begins_without_them_in_another_setting(tmp_path: Path) -> None:
    """Its power differs between precisions."""
    campaign = SimulatedCampaign(tmp_path, {HEAVY: TOO_MUCH})
    campaign.machine.device = Device(white_noise_w=2.0, capping_delay_s=0.2)
    precise = MeasurementProtocol(0.15, 30.0, relative_error=0.01)
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        for name in ("tf32", "fp32"):
            apparatus.measure(Case(HEAVY), Setting(name), precise, "log")
    assert [setting.precision for setting in campaign.settings] == ["tf32"] * 2 + ["fp32"] * 2


@pytest.mark.parametrize(("device", "is_gpu"), [("cuda:0", True), ("cpu", False)])
def test_what_runs_on_a_gpu_differ_by_is_known(tmp_path: Path, device: str, is_gpu: bool) -> None:
    """It was measured on GPUs only."""
    campaign = SimulatedCampaign(tmp_path, {}, device=device)
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        assert (apparatus.known.repeatability.time_ratio > 0) == is_gpu


def test_who_else_uses_the_device_is_noted(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {RELU: Load(time_s=0.001)})
    with campaign.open_apparatus(None, campaign.database, True) as opened:
        for reported, notes, tries in (([MEANWHILE, ""], "", 2), ([MEANWHILE] * 3, MEANWHILE, 3)):
            campaign.built.clear()
            # An event before a measurement is no disturbance of it.
            remarks = [remark for later in reported for remark in ("another process came before", later)]
            names: list[str] = []
            meters = replace(opened.meters, meter=lambda name, names=names: names.append(name) or campaign.machine)
            watch = ProcessWatch(lambda remarks=remarks: remarks.pop(0))
            apparatus = replace(opened, meters=meters, observers=(watch,))
            ((_, measured),) = apparatus.measure(Case(RELU), Setting("fp32"), MeasurementProtocol(0.5, 1.0), "log")
            assert (measured.notes, is_flagged(measured), remarks) == (notes, bool(notes), [])
            assert len(campaign.built) == tries
            # Each try has a log of its own.
            assert names == ["log", "log-2", "log-3"][:tries]


@pytest.mark.parametrize(
    ("flags", "is_low"),
    [
        ((Flag.POWER_CAPPED,), True),
        ((Flag.CLOCKS_STILL_LOW,), True),
        ((Flag.AT_POWER_LIMIT,), True),
        ((Flag.ABOVE_POWER_LIMIT, Flag.AT_POWER_LIMIT), False),
        ((Flag.POWER_CAPPED, Flag.ABOVE_POWER_LIMIT), True),
        ((), False),
    ],
)
def test_clocks_are_low_after_what_was_throttled_and_after_what_met_them_so(flags: Flags, is_low: bool) -> None:
    measured = simulated_row(RELU).measurement
    assert leaves_clocks_low(replace(measured, flags=flags)) == is_low


def test_precise_loops_warm_up_shortly_only_where_a_device_is_kept_at_work() -> None:
    assert [protocol_for(is_gpu, relative_error=0.01).warm_up_s for is_gpu in (True, False)] == [0.1, 0.5]
    assert [protocol_for(is_gpu).warm_up_s for is_gpu in (True, False)] == [2.0, 0.5]


def test_circumstances_have_the_length_of_loops_or_their_precision(tmp_path: Path) -> None:
    with open_apparatus("cpu", Database(tmp_path), False) as apparatus:
        for protocol, expected in (
            (MeasurementProtocol(0.5, 1.0), (0.5, 1.0, None)),
            (MeasurementProtocol(0.1, 30.0, relative_error=0.01), (0.1, None, 0.01)),
        ):
            found = apparatus.circumstances(protocol)
            assert (found.warm_up_s, found.loop_s, found.relative_error) == expected


@pytest.mark.parametrize(
    ("name", "gpus", "expected"),
    [
        (None, 0, "cpu"),
        (None, 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 2, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
        ("cuda:2", 2, "torch sees 2 GPUs"),
        ("cuda", 0, "torch sees no GPU"),
    ],
)
def test_a_device_is_that_of_its_name_if_torch_sees_it(
    name: str | None, gpus: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    if expected.startswith("torch"):
        with pytest.raises(UserError, match=f"--device {name}: {expected}; "):
            choose_device(name)
    else:
        assert choose_device(name) == expected
