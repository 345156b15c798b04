"""Plans for a device that is not here, from the rows of its product."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import warm_python
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Load, simulated_row
from warm_python import SHIPPED_ROWS

from opcost.errors import UserError
from opcost.measuring.conditions import EAGER, GRAPH, Conditions, measurement_key
from opcost.measuring.protocol import protocol_for
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.running.planned_bench import PARSED, bench_opener, open_planned_bench
from opcost.running.shipped_counts import ship_counts
from opcost.stages.measure_operators import OperatorsReport, measure_full_models, measure_operators

RELU, GELU = (OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),)) for name in ("ReLU", "GELU"))
H200 = replace(SIMULATED_CONDITIONS, device_type="cuda", device_product="NVIDIA H200", execution=GRAPH)
OLD = replace(H200, torch_version="2.10.0")


def row(operator: OperatorTuple = RELU, conditions: Conditions = H200, ended_at: str = "") -> MeasurementRow:
    first = simulated_row(operator)
    measurement = replace(first.measurement, ended_at=ended_at or first.measurement.ended_at)
    key = measurement_key(Case(operator), conditions)
    return replace(first, key=key, conditions=conditions, measurement=measurement)


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    return SimulatedCampaign(tmp_path, {RELU: Load(), GELU: Load()})


def plan(campaign: SimulatedCampaign, device: str = "NVIDIA H200", same_board: bool = False) -> list[OperatorsReport]:
    request = replace(campaign.request(dry_run=True, device=device), same_board=same_board)
    return measure_operators(request, protocol_for, bench_opener(request), RecordedProgress())


def test_a_plan_for_a_product_counts_its_rows(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1, GELU: 1})
    campaign.database.operator_measurements.append(row())
    (report,) = plan(campaign)
    assert (report.found, report.remaining, report.planned) == (1, 1, {"missing": 1})
    assert (report.device, report.device_product) == ("NVIDIA H200", "NVIDIA H200")
    assert 30 < report.expected_s < 40
    assert list(report.besides_parts_s) == ["start", "qualification", "drift_checks"]
    assert report.besides_s == sum(report.besides_parts_s.values())
    assert report.assumed is not None
    assert report.assumed.torch_version == H200.torch_version


def test_a_cpu_has_no_drift_checks_and_no_qualification(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1, GELU: 1})
    cpu = replace(SIMULATED_CONDITIONS, device_type="cpu", device_product="AMD EPYC")
    campaign.database.operator_measurements.append(row(conditions=cpu))
    (report,) = plan(campaign, "epyc")
    assert report.besides_parts_s == {"start": 5.0}


def test_a_plan_needs_no_pickles_where_counts_are_shipped_and_one_for_a_board_has_all_items(
    campaign: SimulatedCampaign,
) -> None:
    config = campaign.add_model("a", {RELU: 1, GELU: 1})
    campaign.database.operator_measurements.append(row())
    assert plan(campaign, same_board=True)[0].planned == {"missing": 1, "on another board": 1}
    ship_counts(campaign.database, [config])
    for pickle in config.path.parent.glob("*.pkl"):
        pickle.unlink()
    (report,) = plan(campaign)
    assert (report.found, report.remaining) == (1, 1)


def test_a_plan_for_whole_models_of_a_product(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1})
    campaign.database.full_model_measurements.append(row(model_operator("resnet18", None, (2, 3, 8, 8))))
    request = campaign.request(dry_run=True, device="nvidia h200")
    (report,) = measure_full_models(request, protocol_for, bench_opener(request), RecordedProgress())
    assert (report.expected_s, report.planned) == (0.0, {})
    assert report.time_s is not None


def test_conditions_are_those_with_the_most_rows_then_the_newest(campaign: SimulatedCampaign) -> None:
    table = campaign.database.operator_measurements
    for one in (row(conditions=OLD), row(GELU, OLD), row(ended_at="2036-01-01T00:00:00+00:00")):
        table.append(one)
    with open_planned_bench("NVIDIA H200", campaign.database, False) as bench:
        assert bench.conditions(USUAL) == OLD
        table.append(row(GELU, ended_at="2036-01-01T00:00:01+00:00"))
    with open_planned_bench("NVIDIA H200", campaign.database, False) as bench:
        assert bench.conditions(USUAL) == H200
        assert bench.conditions(Setting(execution=EAGER)) == replace(H200, execution=EAGER)


def test_a_plan_parses_few_rows_of_a_large_table(campaign: SimulatedCampaign) -> None:
    table = campaign.database.operator_measurements
    table.append(row())
    header, line = table.path.read_text(encoding="utf-8").splitlines()
    # It would be refused if it was parsed.
    damaged = line.replace("NVIDIA H200", "NVIDIA H300")
    table.path.write_text("\n".join([header, *[line] * PARSED, *[damaged] * 3, ""]), encoding="utf-8")
    table.append(row(conditions=OLD))
    with open_planned_bench("h200", campaign.database, False) as bench:
        assert bench.numbers == {H200.key: PARSED + 3, OLD.key: 1}
        assert len(bench.rows) == PARSED + 1
        assert bench.conditions(USUAL) == H200


def test_a_part_of_a_products_name_is_enough(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1})
    campaign.database.operator_measurements.append(row())
    (report,) = plan(campaign, "h200")
    assert (report.device, report.found) == ("NVIDIA H200", 1)
    other = replace(H200, device_product="NVIDIA H200 NVL")
    campaign.database.operator_measurements.append(row(conditions=other))
    assert plan(campaign, "NVIDIA H200")[0].device == "NVIDIA H200"
    with pytest.raises(UserError, match=r"a part of several names \(NVIDIA H200, NVIDIA H200 NVL\); name one of them"):
        plan(campaign, "h200")


def test_another_product_stands_in_for_one_without_rows(
    campaign: SimulatedCampaign, caplog: pytest.LogCaptureFixture
) -> None:
    campaign.add_model("a", {RELU: 1, GELU: 1})
    campaign.database.operator_measurements.append(row())
    campaign.database.operator_measurements.append(simulated_row(RELU))
    (report,) = plan(campaign, "A100")
    assert (report.device, report.device_product, report.found) == ("A100", "A100", 0)
    assert report.planned == {"missing": 2}
    # Versions of another product's rows do not matter.
    assert report.assumed is None
    (line,) = caplog.messages
    assert line == "no rows of A100: times are expected from rows of NVIDIA H200, and everything is to be measured"


def test_without_rows_there_is_no_plan_for_a_product_and_it_cannot_measure(campaign: SimulatedCampaign) -> None:
    campaign.add_model("a", {RELU: 1})
    with pytest.raises(UserError, match="^--device A100: no row of it, nor of another device") as caught:
        plan(campaign, "A100")
    assert len(caught.value.lines) == 1
    with pytest.raises(UserError, match="--device NVIDIA H200: not a device; use cpu, cuda, or cuda:N"):
        bench_opener(campaign.request(device="NVIDIA H200"))


@pytest.mark.second_tier
@pytest.mark.parametrize("command", ["measure", "measure-models"])
def test_a_plan_for_a_product_does_not_import_torch(command: str) -> None:
    program = (
        "import sys; from opcost.__main__ import main\n"
        "sys.modules['torch'] = sys.modules['torchvision'] = None\n"
        f"sys.argv = ['opcost', {command!r}, 'resnet50_32x3x224x224', '--dry-run', '--device', 'NVIDIA H200']\n"
        "sys.exit(main())"
    )
    done = warm_python.run([sys.executable, "-c", program], libraries=(*warm_python.WITHOUT_TORCH, SHIPPED_ROWS))
    assert (done.returncode, done.stderr) == (0, "")
    assert "total time needed: " in done.stdout
