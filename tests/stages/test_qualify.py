"""Qualification on the simulated machine: what is found is printed and kept."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from simulated_apparatus import SimulatedCampaign
from simulated_machine import Device, Load, MeterModel, SimulatedMachine

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.flags import Flag
from opcost.measuring.known_device import GOOD, UNCHECKED, KnownDevice, KnownMeters, MeterQuality, QualificationRow
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.qualification import STEADY_LOAD
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.meters import gpu_meters
from opcost.meters.log_meters import INSTANT_SOURCE
from opcost.meters.nvidia_smi import INSTANT
from opcost.meters.nvml import COUNTER, SAMPLES, SAMPLES_SOURCE
from opcost.operators.tuples import OperatorTuple
from opcost.power.trace import PowerTrace
from opcost.reporting.measurement_tables import print_qualification
from opcost.running.qualification import REFERENCE, qualified, qualify_meters
from opcost.storage.table import CsvTable

CAMPAIGN_SOURCE = replace(gpu_meters.CAMPAIGN_SOURCE, name=COUNTER)


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return SimulatedCampaign(tmp_path, {STEADY_LOAD.operator: Load(time_s=0.01, power_w=500.0)})


@pytest.fixture
def table(campaign: SimulatedCampaign) -> CsvTable[QualificationRow]:
    return campaign.database.meter_qualifications


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
        alone = replace(apparatus, meters=replace(apparatus.meters, every_tick=None))
        with pytest.raises(UserError, match="no second meter"):
            qualify_meters(alone, table)


def test_a_board_is_qualified_once_and_its_slope_goes_into_what_is_measured(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow]
) -> None:
    campaign.machine.device = Device(cold_power_ratio=0.95, warming_time_s=3.0, white_noise_w=1.0)
    for _ in range(2):
        with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
            assert apparatus.known.power_coefficient_per_kelvin is not None
            assert apparatus.known.power_coefficient_per_kelvin.value == pytest.approx(0.05 / 20, rel=0.1)
    assert len(table.rows()) == 1


@pytest.mark.parametrize(("days", "rows"), [(2, 2), (0.5, 1)])
def test_a_meter_that_came_later_asks_for_another_qualification(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow], days: float, rows: int
) -> None:
    campaign.machine.device = Device(cold_power_ratio=0.95, warming_time_s=3.0, white_noise_w=1.0)
    with qualified(campaign.open_apparatus, None, campaign.database, True):
        (row,) = table.rows()
    earlier = datetime.fromisoformat(row.qualified_at) - timedelta(days=days)
    table.path.write_text(table.text([replace(row, qualified_at=earlier.isoformat())]))
    campaign.meter_names = ("simulated", "another")
    with qualified(campaign.open_apparatus, None, campaign.database, True):
        assert len(table.rows()) == rows


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
        assert apparatus.known.power_coefficient_per_kelvin is None
    assert table.rows() == []


def test_a_meter_that_was_found_wrong_comes_last(campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture) -> None:
    machine = campaign.machine
    truth = MeterModel(update_period_s=0.1, averaging_time_s=0.1)
    right, third, wrong = (
        replace(truth, scale=scale, source=replace(truth.power_source, name=name))
        for name, scale in ((REFERENCE, 1.0), ("third", 1.0), ("broken", 0.8))
    )
    machine.meter, machine.checks = wrong, (right, third)
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        instruments = apparatus.instruments("log")
        instruments.meter.start()
        machine.idle(1.0)
        assert sources_of(instruments.log()) == sources_of(instruments.stop()) == [REFERENCE, "third", "broken"]
        assert instruments.stop().checks_stand_in
    (warning,) = [message for message in caplog.messages if "-20.0%" in message]
    assert "broken: " in warning


class LowCounter:
    """The machine's meters, of which the counter shows 2 % less."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self.start = machine.start

    def log(self) -> PowerTrace:
        return self._lowered(self._machine.log())

    def stop(self) -> PowerTrace:
        return self._lowered(self._machine.stop())

    def _lowered(self, trace: PowerTrace) -> PowerTrace:
        counter, *others = trace.checks
        return replace(trace, checks=(replace(counter, power_w=0.98 * counter.power_w), *others))


def test_the_cost_of_reads_and_what_polling_does_are_kept_and_reported(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow], capsys: pytest.CaptureFixture[str]
) -> None:
    with_real_meters(campaign)
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        timed = replace(
            apparatus.meters,
            meter=lambda _: LowCounter(campaign.machine),
            read_times_s=lambda: {SAMPLES: 0.0004, COUNTER: 0.0035},
        )
        rows = qualify_meters(replace(apparatus, meters=timed), table)
    assert [row.read_time_s for row in rows] == [0.0004, 0.0035, None]
    samples, counter, instant = rows
    assert counter.polling_deviation_ratio == pytest.approx(1 / 0.98 - 1, abs=0.005)
    assert samples.polling_deviation_ratio is instant.polling_deviation_ratio is None
    print_qualification(table.rows())
    output = capsys.readouterr().out
    assert "3.5" in output
    assert output.count("if read at every tick") == 1


def sources_of(trace: PowerTrace) -> list[str]:
    return [logged.source.name for logged in (trace, *trace.checks)]


def with_real_meters(campaign: SimulatedCampaign) -> None:
    """Have the simulated machine log what an H200 has."""
    samples = MeterModel(update_period_s=0.02, averaging_time_s=0.02, source=SAMPLES_SOURCE)
    counter = MeterModel(update_period_s=1.0, averaging_time_s=1.0, row_period_s=1.0, source=CAMPAIGN_SOURCE)
    instant = MeterModel(averaging_time_s=0.025, source=INSTANT_SOURCE)
    campaign.machine.meter, campaign.machine.checks = samples, (counter, instant)
    campaign.meter_names = ("samples", "counter", "instant")


def row_by(campaign: SimulatedCampaign, meter_name: str, protocol: MeasurementProtocol) -> Measurement:
    workload = campaign.machine.workload(Load(time_s=0.01, power_w=500.0))
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        return measure(workload, apparatus.instruments("log", meter_name), protocol)


@pytest.mark.parametrize(
    ("chosen", "meter", "check"),
    [
        ("auto", SAMPLES, COUNTER),
        ("samples", SAMPLES, COUNTER),
        ("counter", COUNTER, SAMPLES),
        ("instant", INSTANT, SAMPLES),
    ],
)
def test_a_meter_that_is_chosen_comes_first_and_the_next_best_checks_it(
    campaign: SimulatedCampaign, chosen: str, meter: str, check: str
) -> None:
    with_real_meters(campaign)
    row = row_by(campaign, chosen, MeasurementProtocol(2.0, 10.0))
    assert (row.meter, row.check_meter) == (meter, check)
    assert row.power_w == pytest.approx(500.0, rel=0.02)


def test_in_a_short_loop_the_check_is_the_next_that_has_a_mean(campaign: SimulatedCampaign) -> None:
    with_real_meters(campaign)
    row = row_by(campaign, "auto", MeasurementProtocol(2.0, 2.0))
    assert (row.meter, row.check_meter) == (SAMPLES, INSTANT)


def test_no_other_meter_stands_in_for_the_one_that_was_asked_for(campaign: SimulatedCampaign) -> None:
    with_real_meters(campaign)
    row = row_by(campaign, "counter", MeasurementProtocol(2.0, 2.0))
    assert (row.meter, row.energy_j, row.check_meter) == (COUNTER, None, SAMPLES)
    assert row.energy_missing_reason is not None
    assert "fresh readings of NVML energy counter in the window, 5 needed" in row.energy_missing_reason


def test_a_precise_loop_lasts_until_the_meter_that_was_asked_for_is_precise(campaign: SimulatedCampaign) -> None:
    with_real_meters(campaign)
    protocol = MeasurementProtocol(0.25, 30.0, relative_error=0.01)
    by_samples, by_counter = (row_by(campaign, name, protocol) for name in ("auto", "counter"))
    assert by_samples.loop_time_s < 2.0
    assert 5.0 < by_counter.loop_time_s < 30.0
    assert by_counter.energy_j == pytest.approx(5.0, rel=0.02)


def test_a_chosen_meter_that_logs_nothing_is_reported(campaign: SimulatedCampaign) -> None:
    with_real_meters(campaign)
    campaign.meter_names += ("average",)
    row = row_by(campaign, "average", MeasurementProtocol(2.0, 2.0))
    assert (row.energy_j, row.energy_missing_reason) == (None, "the meter average logged nothing")
    assert row.check_meter == SAMPLES


def test_a_meter_that_is_not_there_is_reported_with_those_that_are(campaign: SimulatedCampaign) -> None:
    with_real_meters(campaign)
    there_are = "--meter rapl: cuda:0 has no such meter; available: samples, counter, instant"
    with (
        qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus,
        pytest.raises(UserError, match=there_are),
    ):
        apparatus.conditions(Setting(meter="rapl"))


@pytest.mark.parametrize(
    ("device", "meter", "others"), [("cuda:0", "rapl", "samples, counter"), ("cpu", "counter", "rapl")]
)
def test_a_meter_that_a_device_cannot_have_is_reported_in_a_dry_run_too(
    campaign: SimulatedCampaign, device: str, meter: str, others: str
) -> None:
    campaign.device = device
    there_are = f"--meter {meter}: {device} has no such meter; available: {others}"
    with (
        qualified(campaign.open_apparatus, None, campaign.database, False) as apparatus,
        pytest.raises(UserError, match=there_are),
    ):
        apparatus.conditions(Setting(meter=meter))


def test_noise_of_every_tick_is_not_that_of_a_tick_in_a_second(campaign: SimulatedCampaign) -> None:
    found = MeterQuality(COUNTER, 0.1, 0.15, None, None, 0.03, 0.05, 0.0, 0.0, GOOD)
    with_real_meters(campaign)
    trace = known_log(campaign.machine, {COUNTER: found, SAMPLES: replace(found, meter=SAMPLES, update_period_s=0.02)})
    noises = {logged.source.name: logged.source.noise_ratio for logged in (trace, *trace.checks)}
    assert noises == {SAMPLES: 0.03, COUNTER: 0.0, INSTANT: 0.0}


def known_log(machine: SimulatedMachine, found: Mapping[str, MeterQuality]) -> PowerTrace:
    """Return what an idle machine's meters log in a second, of which something is known."""
    instruments = machine.instruments(KnownDevice(meters=KnownMeters(found)))
    instruments.meter.start()
    machine.idle(1.0)
    return instruments.stop()


def quality_of(meter: str, verdict: str, averaging_time_s: float | None = None) -> MeterQuality:
    return MeterQuality(meter, 0.02, 0.05, None, averaging_time_s, 0.0, 0.01, 0.0, 0.0, verdict)


def test_a_meter_that_said_nothing_when_it_was_qualified_comes_after_those_that_are_right(
    campaign: SimulatedCampaign,
) -> None:
    models = [MeterModel(source=source) for source in (SAMPLES_SOURCE, INSTANT_SOURCE, CAMPAIGN_SOURCE)]
    machine = SimulatedMachine(meter=models[0], checks=tuple(models[1:]))
    found = {INSTANT: quality_of(INSTANT, GOOD), SAMPLES: quality_of(SAMPLES, "+25.0% off under a steady load")}
    trace = known_log(machine, found)
    order = [logged.source.name for logged in (trace, *trace.checks)]
    assert order == [INSTANT, COUNTER, SAMPLES]
    assert [logged.source.is_wrong for logged in (trace, *trace.checks)] == [False, False, True]


def test_a_slow_meter_that_was_asked_for_gives_energy_at_the_power_limit_as_well() -> None:
    ring = MeterModel(update_period_s=0.02, averaging_time_s=0.02, source=SAMPLES_SOURCE)
    slow = MeterModel(update_period_s=0.1, averaging_time_s=0.025, source=INSTANT_SOURCE)
    machine = SimulatedMachine(
        Load(time_s=0.002, power_w=735.0), Device(white_noise_w=5.0, capping_delay_s=0.55), ring, checks=(slow,)
    )
    protocol = MeasurementProtocol(0.25, 30.0, relative_error=0.01)
    known = KnownDevice(power_limit_w=700.0, meters=KnownMeters(chosen="instant"))
    result = measure(machine, machine.instruments(known), protocol)
    assert result.meter == INSTANT
    assert result.energy_j is not None


def test_an_average_that_calls_itself_instant_counts_as_one() -> None:
    """On some drivers a field holds the average that another one is named after."""
    average = MeterModel(update_period_s=0.1, averaging_time_s=1.0, source=INSTANT_SOURCE)
    machine = SimulatedMachine(Load(time_s=0.01), meter=average)
    errors_j = []
    for averaging_time_s in (None, 1.0):
        known = KnownDevice(meters=KnownMeters({INSTANT: quality_of(INSTANT, GOOD, averaging_time_s)}))
        measurement = measure(machine, machine.instruments(known), MeasurementProtocol(2.0, 5.0))
        errors_j.append(measurement.energy_standard_error_j or 0.0)
    assert errors_j[1] > 2 * errors_j[0] > 0


def test_a_check_that_is_known_to_be_wrong_makes_no_row_doubtful(campaign: SimulatedCampaign) -> None:
    wrong = MeterModel(update_period_s=0.1, scale=1.25, source=INSTANT_SOURCE)
    ring = MeterModel(update_period_s=0.02, averaging_time_s=0.02, source=SAMPLES_SOURCE)
    protocol = MeasurementProtocol(0.5, 2.0)
    for verdict, is_flagged in ((GOOD, True), ("+25.0% off under a steady load", False)):
        machine = SimulatedMachine(Load(time_s=0.01), meter=ring, checks=(wrong,))
        found = {SAMPLES: quality_of(SAMPLES, GOOD), INSTANT: quality_of(INSTANT, verdict)}
        result = measure(machine, machine.instruments(KnownDevice(meters=KnownMeters(found))), protocol)
        assert result.check_meter == INSTANT
        assert (Flag.METERS_DISAGREE in result.flags) == is_flagged


@pytest.mark.parametrize("error", [CannotMeasureError("out of memory"), UserError("no power")], ids=repr)
def test_a_board_that_cannot_be_qualified_is_measured_all_the_same(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(_: OperatorTuple) -> None:
        raise error

    campaign.before = fail
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        assert apparatus.known.power_coefficient_per_kelvin is None
    assert any(message.endswith(f": {error}") for message in caplog.messages)


def test_a_board_whose_temperature_did_not_move_is_tried_again_another_day(
    campaign: SimulatedCampaign,
    table: CsvTable[QualificationRow],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rows_after_a_campaign(busy_temperature_c: float) -> int:
        campaign.machine.device = Device(busy_temperature_c=busy_temperature_c, warming_time_s=3.0)
        with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
            assert (apparatus.known.power_coefficient_per_kelvin is None) == (busy_temperature_c == 34.5)
        return len(table.rows())

    assert rows_after_a_campaign(34.5) == 1
    assert caplog.messages
    assert rows_after_a_campaign(34.5) == 1
    monkeypatch.setattr("opcost.running.qualification.RETRIED_AFTER", timedelta(0))
    assert rows_after_a_campaign(54.0) == 2


@pytest.mark.parametrize("product", ["NVIDIA H200", "another card"])
def test_a_slope_of_which_little_is_known_is_drawn_to_that_of_such_cards(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow], product: str
) -> None:
    campaign.conditions = replace(campaign.conditions, device_product=product)
    campaign.machine.device = Device(
        idle_temperature_c=50.0, busy_temperature_c=53.5, warming_time_s=3.0, cold_power_ratio=1.0
    )
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        slope = apparatus.known.power_coefficient_per_kelvin
    (row,) = table.rows()
    assert row.power_per_kelvin_ratio == pytest.approx(0.0, abs=0.001)
    assert slope is not None
    if product == "NVIDIA H200":
        assert 0.001 < slope.value < 0.003
        assert slope.standard_error < 0.001
    else:
        assert slope.value == row.power_per_kelvin_ratio


def test_a_slope_that_was_found_stays_when_a_later_qualification_finds_none(
    campaign: SimulatedCampaign, table: CsvTable[QualificationRow]
) -> None:
    for busy_temperature_c in (54.0, 34.5):
        campaign.machine.device = Device(
            busy_temperature_c=busy_temperature_c, warming_time_s=3.0, cold_power_ratio=0.95
        )
        with campaign.open_apparatus(None, campaign.database, True) as apparatus:
            qualify_meters(apparatus, table)
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        assert apparatus.known.power_coefficient_per_kelvin is not None
    assert [row.power_per_kelvin_ratio is None for row in table.rows()] == [False, True]


def test_what_was_found_of_a_meter_goes_into_its_traces(campaign: SimulatedCampaign) -> None:
    campaign.machine.device = Device(white_noise_w=1.0, correlated_noise_w=10.0, correlation_time_s=0.5)
    with qualified(campaign.open_apparatus, None, campaign.database, True) as apparatus:
        instruments = apparatus.instruments("log")
        instruments.meter.start()
        campaign.machine.idle(3.0)
        assert instruments.log().source == instruments.stop().source
        source = instruments.stop().source
    assert source.correlation_time_s == pytest.approx(0.4, abs=0.25)
    assert source.noise_ratio == pytest.approx(10.0 / 500.0, rel=0.5)
    assert source.rise_time_s >= campaign.machine.meter.power_source.rise_time_s


def test_of_two_meters_that_differ_none_is_trusted_and_rows_say_so(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a card whose energy counter counts in another unit, and that has no third meter."""
    truth = MeterModel(update_period_s=0.1, averaging_time_s=0.1)
    samples, counter = (
        replace(truth, scale=scale, source=replace(truth.power_source, name=name))
        for name, scale in (("AMD SMI power samples", 1.0), ("AMD SMI energy counter", 0.5))
    )
    campaign.machine.meter, campaign.machine.checks = samples, (counter,)
    campaign.meter_names = ("samples", "counter")
    row = row_by(campaign, "auto", MeasurementProtocol(2.0, 10.0))
    assert campaign.database.meter_qualifications.rows() == []
    assert any("no third meter shows which one is right" in message for message in caplog.messages)
    assert Flag.METERS_DISAGREE in row.flags


def test_a_counter_that_stands_still_gives_no_energy_and_is_no_reference(campaign: SimulatedCampaign) -> None:
    still = MeterModel(missing_reason="AMD SMI's energy counter stands still")
    samples = MeterModel(update_period_s=0.1, averaging_time_s=0.1)
    samples = replace(samples, source=replace(samples.power_source, name="AMD SMI power samples"))
    campaign.machine.meter, campaign.machine.checks = still, (samples,)
    campaign.meter_names = ("samples", "counter")
    row = row_by(campaign, "auto", MeasurementProtocol(2.0, 10.0))
    (found,) = campaign.database.meter_qualifications.rows()
    assert (found.quality.meter, found.quality.verdict) == ("AMD SMI power samples", UNCHECKED)
    assert (row.meter, row.power_w) == ("AMD SMI power samples", pytest.approx(500.0, rel=0.02))
