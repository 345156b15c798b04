"""Units: the operators of a model and its whole, model by model, on one board and with one start."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign, change_by_hand
from simulated_machine import Load

from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.reporting.measurement_tables import announced
from opcost.running.engine import Event, LocalExecutor, Supply, Worker
from opcost.running.request import Request
from opcost.stages.measure_operators import Protocols, UnitReport, measure_full_models, measure_operators, measure_units
from opcost.storage.configs import model_tuple
from opcost.storage.model_counts import FILTERED_COUNTS

SHORT = MeasurementProtocol(0.5, 1.0)
RELU, GELU, DRIFT = (
    OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),)) for name in ("ReLU", "GELU", "Tanh")
)


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    """Return a campaign with two models that share an operator."""
    load = Load(time_s=0.001, power_w=200.0)
    campaign = SimulatedCampaign(tmp_path, {RELU: load, GELU: load})
    for name, operators, batch in (("a", {RELU: 1}, 2), ("b", {RELU: 2, GELU: 1}, 4)):
        config = campaign.add_model(name, operators, batch)
        campaign.loads = {**campaign.loads, model_tuple(config): replace(load, time_s=0.003)}
    return campaign


def run(
    campaign: SimulatedCampaign, request: Request, plans: list[Sequence[UnitReport]] | None = None
) -> list[UnitReport]:
    announce = ([] if plans is None else plans).append
    protocols = Protocols(lambda _: SHORT, lambda _: SHORT)
    return measure_units(request, protocols, campaign.open_apparatus, RecordedProgress(), announce)


def test_each_whole_follows_its_operators_with_one_start(campaign: SimulatedCampaign) -> None:
    plans: list[Sequence[UnitReport]] = []
    units = run(campaign, campaign.request(), plans)
    # A whole has several builds.
    assert [one.short_name for one, _ in groupby(campaign.built)] == ["ReLU", "resnet18", "GELU", "resnet18"]
    assert campaign.with_meter == [True]
    found = [(unit.name, unit.operators.measured, unit.whole.newly_measured) for unit in units]
    assert found == [("a", 1, True), ("b", 1, True)]
    (plan,) = plans
    planned = [(unit.name, unit.operators.remaining, unit.whole.newly_measured) for unit in plan]
    assert planned == [("a", 1, False), ("b", 2, False)]
    assert announced(plan) == "about 1 min 9 s: a 9 s, b 9 s, besides them 52 s"


def test_the_parts_of_the_time_are_those_of_the_run(campaign: SimulatedCampaign) -> None:
    units = run(campaign, campaign.request())
    parts = [part for unit in units for part in (unit.operators, unit.whole)]
    assert len({(part.besides_s, tuple(part.besides_parts_s.items())) for part in parts}) == 1
    assert sum(parts[0].besides_parts_s.values()) == pytest.approx(parts[0].besides_s)
    plan = run(campaign, replace(campaign.request(), dry_run=True))
    assert (plan[0].expected_s, plan[0].operators.besides_s) == (0.0, 0.0)
    assert announced(plan) == "nothing is missing on this board"


class TwoWorkers(LocalExecutor):
    """The second worker waits."""

    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        first, self.workers = self.workers, self.workers[:1]
        yield from super().execute(supply)
        self.workers = first


def test_several_workers_measure_all_models_in_one_run_whose_parts_count_once(campaign: SimulatedCampaign) -> None:
    slept_s: list[float] = []

    def sleep(operator: OperatorTuple) -> None:
        if operator == DRIFT:
            begin_s = time.monotonic()
            time.sleep(0.02)
            slept_s.append(time.monotonic() - begin_s)

    @contextmanager
    def opened(*arguments: Any) -> Iterator[LocalExecutor]:
        with campaign.open_apparatus(*arguments) as bench:
            executor = TwoWorkers(bench)
            executor.workers = (*executor.workers, Worker("second", "", None))
            yield executor

    campaign.loads = {**campaign.loads, DRIFT: Load(time_s=0.001, power_w=200.0)}
    campaign.drift_case, campaign.before = Case(DRIFT), sleep
    protocols = Protocols(lambda _: SHORT, lambda _: SHORT)
    units = measure_units(campaign.request(), protocols, opened, RecordedProgress(), lambda _: None)
    assert [(unit.operators.measured, unit.whole.newly_measured) for unit in units] == [(1, True), (1, True)]
    # Both workers are checked side by side.
    assert 0 < units[0].whole.besides_parts_s["drift_checks"] < sum(slept_s)


def test_a_dry_run_counts_the_start_once_and_measures_nothing(campaign: SimulatedCampaign) -> None:
    request = campaign.request(dry_run=True)
    together = run(campaign, request)[0].operators.besides_parts_s
    (operators, *_) = measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    (whole, *_) = measure_full_models(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    assert together["start"] == operators.besides_parts_s["start"] == whole.besides_parts_s["start"]
    assert campaign.built == []


def test_rows_of_another_board_do_not_count(campaign: SimulatedCampaign) -> None:
    run(campaign, campaign.request("a"))
    for table in (campaign.database.operator_measurements, campaign.database.full_model_measurements):
        change_by_hand(table.path, "simulated-0", "another board")
    (unit,) = run(campaign, campaign.request("a"))
    assert (unit.operators.measured, unit.whole.newly_measured) == (1, True)


def test_a_stopped_run_goes_on(campaign: SimulatedCampaign) -> None:
    def stop(operator: OperatorTuple) -> None:
        if operator == GELU:
            raise KeyboardInterrupt

    campaign.before = stop
    with pytest.raises(KeyboardInterrupt):
        run(campaign, campaign.request())
    campaign.before = lambda _: None
    first, second = run(campaign, campaign.request())
    assert (first.operators.found, first.whole.newly_measured) == (1, False)
    assert (second.operators.measured, second.whole.newly_measured) == (1, True)


def test_without_a_name_models_that_are_not_filtered_are_left_out(campaign: SimulatedCampaign) -> None:
    FILTERED_COUNTS.path(campaign.request().configs()[1]).unlink()
    assert [report.name for report in run(campaign, campaign.request())] == ["a"]
    with pytest.raises(UserError, match=r"b/operators_filtered\.pkl: no such file"):
        run(campaign, campaign.request("b"))
    for path in campaign.measurements.glob("*/summary.yml"):
        path.write_text(path.read_text().replace("done: false", "done: true"))
    assert run(campaign, campaign.request()) == []
