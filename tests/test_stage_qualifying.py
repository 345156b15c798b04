"""Qualification on the simulated machine: what is found is printed and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import SimulatedCampaign
from simulated_machine import Device, Load, MeterModel

from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError, UserError
from opcost.operators import OperatorTuple
from opcost.reports import print_qualification
from opcost.stage_qualifying import REFERENCE, STEADY_LOAD, QualificationRow, qualified, qualify_meters


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return SimulatedCampaign(tmp_path, {STEADY_LOAD.operator: Load(time_s=0.01, power_w=500.0)})


@pytest.fixture
def table(tmp_path: Path) -> CsvTable[QualificationRow]:
    return CsvTable(tmp_path / "database" / "meter_qualifications.csv", QualificationRow)


def test_each_meter_gets_a_row_for_its_board_and_driver(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow], capsys: pytest.CaptureFixture[str]
) -> None:
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        rows = qualify_meters(apparatus, table)
    (row,) = rows
    assert (row.device_uuid, row.driver_version, row.quality.meter) == ("simulated-0", "1.0", "simulated")
    assert row.quality.is_right_when_steady
    assert table.rows() == rows
    print_qualification(rows)
    output = capsys.readouterr().out
    assert "Meters of simulated machine (simulated-0)" in output
    assert "100.0 ms" in output
    assert "not checked" in output


def test_a_device_with_one_meter_cannot_be_qualified(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow]
) -> None:
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        object.__setattr__(apparatus, "all_meters", None)
        with pytest.raises(UserError, match="no second meter"):
            qualify_meters(apparatus, table)


def test_a_board_is_qualified_once_and_its_slope_goes_into_what_is_measured(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow]
) -> None:
    campaign.machine.device = Device(cold_power_ratio=0.95, warming_time_s=3.0, white_noise_w=1.0)
    for _ in range(2):
        with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
            assert apparatus.power_per_kelvin is not None
            assert apparatus.power_per_kelvin.value == pytest.approx(0.05 / 20, rel=0.1)
    assert len(table.rows()) == 1


def test_another_driver_asks_for_another_qualification(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow]
) -> None:
    for driver in ("1.0", "2.0"):
        campaign.conditions = replace(campaign.conditions, driver_version=driver)
        with qualified(campaign.open_apparatus, None, campaign.database, True):
            pass
    assert [row.driver_version for row in table.rows()] == ["1.0", "2.0"]


def test_a_look_at_conditions_qualifies_nothing(campaign: SimulatedCampaign, table: CsvTable[QualificationRow]) -> None:
    with qualified(campaign.open_apparatus, None, campaign.database, False) as apparatus:
        assert apparatus.power_per_kelvin is None
    assert table.rows() == []


def test_a_meter_that_was_found_wrong_comes_last(campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture) -> None:
    machine = campaign.machine
    truth = MeterModel(update_period_s=0.1, averaging_time_s=0.1)
    right, wrong = (
        replace(truth, scale=scale, source=replace(truth.power_source, name=name))
        for name, scale in ((REFERENCE, 1.0), ("broken", 0.8))
    )
    machine.meter, machine.checks = wrong, (right,)
    campaign.meters = {"broken": lambda _: machine, REFERENCE: lambda _: machine, "unknown": lambda _: machine}
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        assert list(apparatus.meters) == [REFERENCE, "unknown", "broken"]
    assert "broken: -20.0% off under a steady load; another meter is used where there is one" in caplog.text


@pytest.mark.parametrize("error", [CannotMeasureError("out of memory"), UserError("no power")], ids=repr)
def test_a_board_that_cannot_be_qualified_is_measured_all_the_same(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(_: OperatorTuple) -> None:
        raise error

    campaign.before = fail
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        assert apparatus.power_per_kelvin is None
    assert f"not qualified, so energies are not referred to one temperature: {error}" in caplog.text


def test_a_board_whose_temperature_did_not_move_is_tried_again(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow], caplog: pytest.LogCaptureFixture
) -> None:
    for busy_temperature_c in (34.5, 54.0):
        campaign.machine.device = Device(busy_temperature_c=busy_temperature_c, warming_time_s=3.0)
        with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
            assert (apparatus.power_per_kelvin is None) == (busy_temperature_c == 34.5)
    assert "its temperature hardly moved" in caplog.text
    assert len(table.rows()) == 2


def test_what_was_found_of_a_meter_goes_into_its_traces(campaign: SimulatedCampaign) -> None:
    campaign.machine.device = Device(white_noise_w=1.0, correlated_noise_w=10.0, correlation_time_s=0.5)
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        meter = apparatus.meter("log")
        meter.start()
        campaign.machine.idle(3.0)
        assert meter.log().source == meter.stop().source
        source = meter.stop().source
    assert source.correlation_time_s == pytest.approx(0.4, abs=0.25)
    assert source.noise_ratio == pytest.approx(10.0 / 500.0, rel=0.5)
    assert source.rise_time_s >= campaign.machine.meter.power_source.rise_time_s
