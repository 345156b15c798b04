"""What calls take longer in cold caches: a chain of small operators beside each of them in a loop."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from simulated_apparatus import SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Device, Load, simulated_row

from opcost.cold_calls import ColdCallsRow, cold_calls_row, cold_calls_under
from opcost.errors import CannotMeasureError
from opcost.measurement import MeasurementRow
from opcost.operators import OperatorTuple
from opcost.stage_cold_calls import cold_calls_in, find_cold_calls, find_cold_calls_if_unknown, subjects
from opcost.statistics import Estimate
from opcost.torch_small_operators import INPUT, SMALL_OPERATORS
from opcost.torch_workload import operator_call

GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
ALONE = Load(time_s=5e-6, power_w=400.0)
LONGER_S = 0.4e-6
LONGER_W = 300.0


def row_of(time_s: float, energy_j: float | None, at_reference_j: float | None = None) -> MeasurementRow:
    row = simulated_row(OperatorTuple("torch.nn.ReLU"), conditions=GRAPHS)
    measurement = replace(
        row.measurement,
        time_s=time_s,
        time_standard_error_s=0.3,
        energy_j=energy_j,
        energy_standard_error_j=None if energy_j is None else 0.4,
        energy_at_reference_j=at_reference_j,
    )
    return replace(row, measurement=measurement)


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


def cold_row(time_s: float, energy_j: float | None = None, **conditions: object) -> ColdCallsRow:
    found = cold_calls_row([row_of(1.0, 1.0)], row_of(2.0, 2.0))
    error_j = None if energy_j is None else 0.1
    changed = replace(GRAPHS, **conditions)  # type: ignore[arg-type]
    return replace(found, time_s=time_s, energy_j=energy_j, energy_standard_error_j=error_j, conditions=changed)


@pytest.mark.parametrize(
    "others", [{"device_product": "another"}, {"torch_version": "1.0"}, {"driver_version": "1"}, {"execution": "eager"}]
)
def test_what_was_found_holds_for_cards_of_the_kind_with_their_software(others: dict[str, str]) -> None:
    assert cold_calls_under([cold_row(1.0, **others)], GRAPHS) is None
    for same in ({"precision": "fp32"}, {"cache": "cold"}, {"sdpa_math": False}):
        found = cold_calls_under([cold_row(1.0, **others), cold_row(2.0)], replace(GRAPHS, **same))  # type: ignore[arg-type]
        assert found is not None
        assert (found.time_s.value, found.energy_j) == (2.0, None)


def test_cards_of_a_kind_have_a_mean() -> None:
    found = cold_calls_under([cold_row(1.0, 5.0), cold_row(2.0), cold_row(3.0, 7.0)], GRAPHS)
    assert found is not None
    assert found.time_s.value == 2.0
    assert found.energy_j == Estimate(6.0, pytest.approx(0.1 / 2**0.5))


# The stage


def campaign_in(folder: Path) -> SimulatedCampaign:
    loads = {subject.operator: ALONE for subject in subjects()}
    time_s = len(loads) * (ALONE.time_s + LONGER_S)
    energy_j = len(loads) * (ALONE.energy_j + LONGER_W * LONGER_S)
    chain = Load(time_s=time_s, power_w=energy_j / time_s)
    campaign = SimulatedCampaign(folder, {**loads, SMALL_OPERATORS: chain}, conditions=GRAPHS)
    campaign.machine.device = Device(white_noise_w=1.0, warming_time_s=0.1)
    return campaign


def test_the_declared_difference_is_found_and_kept(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        found = find_cold_calls(bench, campaign.database)
    assert found is not None
    assert found.calls == len(campaign.loads) - 1
    assert abs(found.time_s - LONGER_S) < 3 * found.time_standard_error_s
    assert found.energy_j is not None
    assert found.energy_standard_error_j is not None
    assert abs(found.energy_j - LONGER_W * LONGER_S) < 3 * found.energy_standard_error_j
    assert cold_calls_in(campaign.database).rows() == [found]


def test_it_is_found_out_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    campaign = campaign_in(tmp_path)
    for _ in range(2):
        with campaign.open_apparatus(None, campaign.database, True) as bench:
            find_cold_calls_if_unknown(bench, campaign.database)
    assert len(cold_calls_in(campaign.database).rows()) == 1
    (first, second) = [record.message for record in caplog.records if record.name.endswith("cold_calls")]
    assert first == "what calls take longer in cold caches is found out first: 20 s, once"
    assert re.fullmatch(r"a call takes 0\.000[34]\d+ ms longer there, and 0\.1\d+ mJ", second)


@pytest.mark.parametrize(("device", "execution"), [("cuda:0", "eager"), ("cpu", "eager"), ("cpu", "graph")])
def test_it_is_not_found_out_where_nothing_runs_in_graphs(tmp_path: Path, device: str, execution: str) -> None:
    campaign = replace(campaign_in(tmp_path), device=device, conditions=replace(GRAPHS, execution=execution))
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        find_cold_calls_if_unknown(bench, campaign.database)
        assert find_cold_calls(bench, campaign.database) is None
    assert campaign.built == []
    assert cold_calls_in(campaign.database).rows() == []


def test_where_an_operator_fails_nothing_is_kept_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(operator: OperatorTuple) -> None:
        if operator == SMALL_OPERATORS:
            raise CannotMeasureError("out of memory")

    campaign = campaign_in(tmp_path)
    campaign.before = fail
    with caplog.at_level(logging.WARNING), campaign.open_apparatus(None, campaign.database, True) as bench:
        find_cold_calls_if_unknown(bench, campaign.database)
    assert "what calls take longer in cold caches is not known: out of memory" in caplog.text
    assert cold_calls_in(campaign.database).rows() == []


# The operators


def test_small_operators_run_and_each_is_one_of_the_chain() -> None:
    function, args, kwargs = operator_call(SMALL_OPERATORS, "cpu")
    with torch.inference_mode():
        output = function(*args, **kwargs)
    assert isinstance(output, torch.Tensor)
    assert output.shape == (INPUT.shape[0], 1000)
    small = list(subjects())
    assert len(small) == len(set(small)) == 17
    assert [subject.operator.operator for subject in small if "torch.nn." not in subject.operator.operator] == [
        "torch.add"
    ]
