"""What calls take longer in cold caches: a chain of small operators beside each of them in a loop."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Device, Load, simulated_row

from opcost.bench import Bench
from opcost.cold_calls import CALLS, CHAIN, STREAM_BYTES, ColdCallsRow, cold_calls_row, cold_calls_under, refusal
from opcost.errors import CannotMeasureError
from opcost.measurement import Measurement, MeasurementRow
from opcost.operators import OperatorTuple, TensorSpec
from opcost.pickle_files import read_counts, write_counts
from opcost.ports import MeasurementProtocol
from opcost.request import FILTERED_COUNTS
from opcost.stage_cold_calls import cold_calls_in, find_cold_calls, find_cold_calls_if_unknown
from opcost.stage_comparing import compare_models
from opcost.stage_full_models import measure_full_models
from opcost.stage_measuring import measure_operators
from opcost.statistics import Estimate
from opcost.subjects import Subject
from opcost.torch_capture import capture
from opcost.torch_small_operators import SmallOperators
from opcost.torch_workload import operator_call

GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
ALONE = Load(time_s=5e-6, power_w=400.0)
LONGER_S = 0.4e-6
LONGER_W = 300.0
RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
MODEL_S = 10e-6


def row_of(
    time_s: float, energy_j: float | None, at_reference_j: float | None = None, notes: str = ""
) -> MeasurementRow:
    row = simulated_row(CHAIN, conditions=GRAPHS)
    measurement = replace(
        row.measurement,
        time_s=time_s,
        time_standard_error_s=0.3,
        energy_j=energy_j,
        energy_standard_error_j=None if energy_j is None else 0.4,
        energy_at_reference_j=at_reference_j,
        temperature_c=50.0,
        executed_as="graph",
        notes=notes,
    )
    return replace(row, measurement=measurement)


def at(row: MeasurementRow, temperature_c: float | None) -> MeasurementRow:
    return replace(row, measurement=replace(row.measurement, temperature_c=temperature_c))


def test_a_call_takes_longer_by_its_part_of_the_difference() -> None:
    found = cold_calls_row([row_of(1.0, 10.0), row_of(2.0, 20.0)], row_of(5.0, 34.0))
    error = (3 * 0.3**2) ** 0.5 / 2
    assert (found.calls, found.time_s, found.time_standard_error_s) == (2, 1.0, pytest.approx(error))
    assert (found.energy_j, found.energy_standard_error_j) == (2.0, pytest.approx((3 * 0.4**2) ** 0.5 / 2))
    assert (found.alone_time_s, found.in_chain_time_s, found.alone_energy_j, found.in_chain_energy_j) == (3, 5, 30, 34)


def test_energies_are_at_the_reference_temperature_where_all_are_known_there() -> None:
    referred = cold_calls_row([row_of(1.0, 10.0, 11.0)], row_of(2.0, 20.0, 24.0))
    mixed = cold_calls_row([row_of(1.0, 10.0)], row_of(2.0, 20.0, 24.0))
    unknown = cold_calls_row([row_of(1.0, 10.0, 11.0)], row_of(2.0, None))
    assert [row.energy_j for row in (referred, mixed, unknown)] == [13.0, 10.0, None]
    assert unknown.time_s == 1.0


def test_how_far_temperatures_differ_is_in_the_error_of_the_energy() -> None:
    alone, chain = row_of(1.0, 10.0, 11.0), row_of(2.0, 20.0, 24.0)
    alike, unlike, unknown = (
        cold_calls_row([alone], at(chain, celsius)).energy_standard_error_j for celsius in (50.0, 60.0, None)
    )
    assert alike == unknown == pytest.approx((2 * 0.4**2) ** 0.5)
    assert unlike == pytest.approx((2 * 0.4**2 + (0.001**2 + 0.0015**2) * (10 * 11.0) ** 2) ** 0.5)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (row_of(2.0, 3.0), ""),
        (row_of(2.0, 3.0, notes="not within 0.50% after 8 s"), ""),
        (replace(row_of(2.0, 3.0), measurement=simulated_row(CHAIN).measurement), "did not run in a CUDA graph"),
        (row_of(2.0, 3.0, notes="uneven: so"), "uneven"),
        (row_of(2.0, 3.0, notes="clocks held down by the power limit for 30% of the loop"), "clocks held down"),
        (row_of(2.0, 3.0, notes="below the power limit in a duty cycle of at most 75 %"), "duty cycle"),
    ],
)
def test_what_cannot_be_right_is_refused(row: MeasurementRow, reason: str) -> None:
    good = row_of(1.0, 1.0)
    assert reason in refusal([good, row], cold_calls_row([good], good))
    assert bool(refusal([row, good], cold_calls_row([good], good))) == bool(reason)


def test_a_chain_that_is_much_faster_than_its_operators_is_refused() -> None:
    rows = row_of(2.0, 1.0), row_of(1.0, 1.0)
    assert "less for each call" in refusal(rows, cold_calls_row(rows[:1], rows[1]))
    assert refusal(rows, cold_calls_row(rows[:1], row_of(1.9, 1.0))) == ""


def cold_row(time_s: float, energy_j: float | None = None, **conditions: object) -> ColdCallsRow:
    found = cold_calls_row([row_of(1.0, 1.0)], row_of(2.0, 2.0))
    error_j = None if energy_j is None else 0.1
    changed = replace(GRAPHS, **conditions)  # type: ignore[arg-type]
    return replace(found, time_s=time_s, energy_j=energy_j, energy_standard_error_j=error_j, conditions=changed)


@pytest.mark.parametrize("field", ["device_product", "torch_version", "driver_version", "cuda_version", "mode"])
def test_what_was_found_holds_for_cards_of_the_kind_with_their_software(field: str) -> None:
    other = cold_row(1.0, **{field: "another"})
    assert cold_calls_under([other], GRAPHS) is None
    assert cold_calls_under([replace(cold_row(1.0), chain="another")], GRAPHS) is None
    for same in ({"precision": "fp32"}, {"sdpa_math": False}):
        found = cold_calls_under([other, cold_row(2.0)], replace(GRAPHS, **same))  # type: ignore[arg-type]
        assert found is not None
        assert (found.time_s.value, found.energy_j) == (2.0, None)


@pytest.mark.parametrize("other", [{"cache": "cold"}, {"cache": "chained"}, {"execution": "eager"}])
def test_only_graphs_of_warm_operators_are_corrected(other: dict[str, str]) -> None:
    assert cold_calls_under([cold_row(1.0), cold_row(1.0, **other)], replace(GRAPHS, **other)) is None  # type: ignore[arg-type]


def test_cards_of_a_kind_have_a_mean() -> None:
    found = cold_calls_under([cold_row(1.0, 5.0), cold_row(2.0), cold_row(3.0, 7.0)], GRAPHS)
    assert found is not None
    assert found.time_s.value == 2.0
    assert found.energy_j == Estimate(6.0, pytest.approx(0.1 / 2**0.5))


# The stage


class Graphs:
    """A bench whose rows say that they ran in a CUDA graph."""

    def __init__(self, bench: Bench, notes: str = "") -> None:
        self._bench = bench
        self._notes = notes

    def __getattr__(self, name: str) -> object:
        return getattr(self._bench, name)

    def measure(self, subject: Subject, precision: str, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        return replace(
            self._bench.measure(subject, precision, protocol, log_name), executed_as="graph", notes=self._notes
        )


def campaign_in(folder: Path) -> SimulatedCampaign:
    time_s = len(CALLS) * (ALONE.time_s + LONGER_S)
    energy_j = len(CALLS) * (ALONE.energy_j + LONGER_W * LONGER_S)
    loads = {**dict.fromkeys((*CALLS, RELU), ALONE), CHAIN: Load(time_s=time_s, power_w=energy_j / time_s)}
    campaign = SimulatedCampaign(folder, loads, conditions=GRAPHS)
    campaign.machine.device = Device(white_noise_w=1.0, warming_time_s=0.1)
    return campaign


def found_in(campaign: SimulatedCampaign, notes: str = "") -> ColdCallsRow | None:
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        return find_cold_calls(Graphs(bench, notes), campaign.database)  # type: ignore[arg-type]


def test_the_declared_difference_is_found_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    campaign = campaign_in(tmp_path)
    found = found_in(campaign)
    assert found is not None
    assert found.calls == len(CALLS) == 17
    assert abs(found.time_s - LONGER_S) < 3 * found.time_standard_error_s
    assert found.time_standard_error_s < 0.2 * LONGER_S
    assert found.energy_j is not None
    assert found.energy_standard_error_j is not None
    assert abs(found.energy_j - LONGER_W * LONGER_S) < 3 * found.energy_standard_error_j
    assert cold_calls_in(campaign.database).rows() == [found]
    assert "a call takes 0.000" in caplog.text


@pytest.mark.parametrize("notes", ["uneven: so", "another process came"])
def test_what_is_refused_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture, notes: str) -> None:
    campaign = campaign_in(tmp_path)
    assert found_in(campaign, notes) is None
    assert cold_calls_in(campaign.database).rows() == []
    assert f"is not known: torch.add: {notes}; the next run tries again" in caplog.text


def test_it_is_found_out_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    campaign = campaign_in(tmp_path)
    for _ in range(2):
        with campaign.open_apparatus(None, campaign.database, True) as bench:
            find_cold_calls_if_unknown(Graphs(bench), campaign.database)  # type: ignore[arg-type]
    assert len(cold_calls_in(campaign.database).rows()) == 1
    assert caplog.text.count("is found out last: once") == 1


@pytest.mark.parametrize(
    ("device", "conditions"),
    [
        ("cuda:0", {"execution": "eager"}),
        ("cuda:0", {"cache": "cold"}),
        ("cpu", {"execution": "eager"}),
        ("cpu", {}),
    ],
)
def test_it_is_not_found_out_where_it_does_not_hold(tmp_path: Path, device: str, conditions: dict[str, str]) -> None:
    campaign = replace(campaign_in(tmp_path), device=device, conditions=replace(GRAPHS, **conditions))  # type: ignore[arg-type]
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        find_cold_calls_if_unknown(bench, campaign.database)
    assert campaign.built == []


def measure_model(campaign: SimulatedCampaign, dry_run: bool = False) -> None:
    protocol = MeasurementProtocol(0.5, 1.0)
    measure_operators(
        campaign.request(dry_run=dry_run), lambda _: protocol, campaign.open_apparatus, RecordedProgress()
    )


def test_block_2_finds_it_out_after_it_has_measured_something(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    measure_model(campaign, dry_run=True)
    assert campaign.built == []
    measure_model(campaign)
    assert campaign.built == [RELU, *CALLS, CHAIN]
    measure_model(campaign)
    assert campaign.built == [RELU, *CALLS, CHAIN]


def test_where_an_operator_fails_nothing_is_kept_and_the_run_is_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(operator: OperatorTuple) -> None:
        if operator == CHAIN:
            raise CannotMeasureError("it ended the measuring process: ended by SIGKILL")

    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    campaign.before = fail
    with caplog.at_level(logging.WARNING):
        measure_model(campaign)
    assert "what calls take longer in cold caches is not known: it ended the measuring process" in caplog.text
    assert cold_calls_in(campaign.database).rows() == []


def test_the_comparison_corrects_by_what_the_database_knows(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    config = campaign.add_model("a", {RELU: 1})
    counts = read_counts(FILTERED_COUNTS.path(config), "")
    write_counts(FILTERED_COUNTS.path(config), replace(counts, total_memory_bytes=STREAM_BYTES + 1))
    campaign.loads = {**campaign.loads, counts.model: Load(time_s=MODEL_S, power_w=400.0)}
    measure_model(campaign)
    protocol = MeasurementProtocol(0.5, 1.0)
    measure_full_models(campaign.request(), lambda _: protocol, campaign.open_apparatus, RecordedProgress())
    cold_calls_in(campaign.database).append(cold_row(2e-6, 3e-4))
    ((row,),) = (report.comparisons for report in compare_models(campaign.request()))
    assert (row.cold_time_s, row.cold_energy_j) == (2e-6, 3e-4)
    assert (row.cold_time_standard_error_s, row.cold_energy_standard_error_j) == (pytest.approx(0.3 * 2**0.5), 0.1)


# The operators


def test_the_chain_is_what_block_0_would_count() -> None:
    function, args, kwargs = operator_call(CHAIN, "cpu")
    assert isinstance(function, SmallOperators)
    with torch.inference_mode():
        output = function(*args, **kwargs)
    assert isinstance(output, torch.Tensor)
    assert output.shape == (8, 1000)
    counted = [count for count in capture(function, args, CHAIN).counts if count.computes]
    assert tuple(count.operator for count in counted) == CALLS
    assert {count.occurrences for count in counted} == {1}
    assert counted[0].memory_bytes == STREAM_BYTES > 20 * sum(count.memory_bytes for count in counted[1:]) / 2
