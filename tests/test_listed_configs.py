"""A config with two lists from block 0 to the ranking: each case has counts, rows and a ``done`` of its own."""

import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign, compare_models
from simulated_machine import Load

from opcost.measuring.protocol import FULL_LOOP_S, MeasurementProtocol
from opcost.operators.tuples import OperatorTuple
from opcost.stages.check_files import check_files
from opcost.stages.count import CountReport, count_operators
from opcost.stages.filter import filter_operators
from opcost.stages.measure_operators import OperatorsReport, measure_full_models, measure_operators
from opcost.stages.show import Choice, show
from opcost.storage.configs import ModelFolders, model_tuple
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS

FULL = MeasurementProtocol(warm_up_s=2.0, loop_s=FULL_LOOP_S)
BEFORE, AFTER = (
    "# Two lists\r\nmodel_name: 'squeezenet1_1'\r\n"
    "input_size: [32, 3, 32, 32]  # batch: below\r\nbatch: [1, 2]\r\ndone:   ",
    "   # kept\r\nprecision:\r\n- torch-default # TF32 on a GPU\r\n- bf16\r\n# end",
)
CASES = [
    "squeezed_1x3x32x32_torch-default",
    "squeezed_1x3x32x32_bf16",
    "squeezed_2x3x32x32_torch-default",
    "squeezed_2x3x32x32_bf16",
]
WHITELIST = "operators: [MaxPool2d, AdaptiveAvgPool2d]\n"
PLAIN = "model_name: squeezenet1_1\ninput_size: [1, 3, 32, 32]\ndone: false # kept\n"


class Interrupt:
    """Interrupts a campaign after a number of builds."""

    def __init__(self, builds: int) -> None:
        self.builds = builds

    def __call__(self, operator: OperatorTuple) -> None:
        self.builds -= 1
        if self.builds < 0:
            raise KeyboardInterrupt


def new_campaign(folder: Path) -> SimulatedCampaign:
    campaign = SimulatedCampaign(folder, defaultdict(lambda: Load(time_s=0.001, power_w=300.0)))
    (campaign.measurements / "operator_whitelist.yml").write_text(WHITELIST)
    for name, content in {"squeezed": f"{BEFORE}false{AFTER}", "plain": PLAIN}.items():
        (campaign.measurements / name).mkdir()
        (campaign.measurements / name / "summary.yml").write_bytes(content.encode())
    return campaign


def count(campaign: SimulatedCampaign, *names: str) -> list[str]:
    """Blocks 0 and 1, on the CPU."""
    reports = count_operators(replace(campaign.request(*names), device="cpu"), RecordedProgress())
    assert all(isinstance(report, CountReport) for report in reports)
    filter_operators(campaign.request(*names))
    return [report.name for report in reports]


def measure(campaign: SimulatedCampaign, *names: str) -> dict[str, OperatorsReport]:
    request = campaign.request(*names)
    reports = measure_operators(request, lambda _: FULL, campaign.open_apparatus, RecordedProgress())
    return {report.name: report for report in reports}


def content(campaign: SimulatedCampaign, name: str) -> bytes:
    return (campaign.measurements / name / "summary.yml").read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimulatedCampaign:
    """All steps in turn; the assertions on the way are those of an interrupted campaign."""
    campaign = new_campaign(tmp_path_factory.mktemp("lists"))
    assert count(campaign) == ["plain", *CASES]
    campaign.before = Interrupt(11)
    with pytest.raises(KeyboardInterrupt):
        measure(campaign, "squeezed")
    first = [config.name for config in ModelFolders(campaign.measurements).configs(["squeezed"]) if config.done]
    assert 0 < len(first) < len(CASES)
    assert content(campaign, "squeezed") == f"{BEFORE}[{', '.join(first)}]{AFTER}".encode()
    measured = len(campaign.database.operator_measurements.rows())
    campaign.before = lambda _: None
    reports = measure(campaign, "squeezed")
    assert list(reports) == sorted(CASES)
    assert sum(report.measured for report in reports.values()) > 0
    assert sum(report.found for report in reports.values()) >= measured
    return campaign


def test_each_case_has_its_own_counts(finished: SimulatedCampaign) -> None:
    configs = ModelFolders(finished.measurements).configs(["squeezed"])
    assert [config.name for config in configs] == CASES
    for config in configs:
        assert config.folder == finished.measurements / "squeezed" / config.name
        for kind in (COUNTS, FILTERED_COUNTS):
            assert kind.path(config).is_file()
            assert kind.read(config).model == model_tuple(config)
    assert len({COUNTS.read(config).model.key for config in configs}) == len(CASES)
    assert not list((finished.measurements / "squeezed").glob("*.pkl"))


def test_a_case_is_measured_with_its_own_precision_and_batch(finished: SimulatedCampaign) -> None:
    rows = finished.database.operator_measurements.rows()
    assert {row.conditions.precision for row in rows} == {"torch-default", "bf16"}
    pools = {(row.inputs, row.conditions.precision) for row in rows if row.operator.endswith("AdaptiveAvgPool2d")}
    assert pools == {
        (f"{dtype}[{batch}, 1000, 1, 1]", precision)
        for batch in (1, 2)
        for dtype, precision in (("float32", "torch-default"), ("bfloat16", "bf16"))
    }


def test_every_case_is_done_after_the_campaign_went_on_and_nothing_else_changed(finished: SimulatedCampaign) -> None:
    text = content(finished, "squeezed").decode()
    order = text.removeprefix(f"{BEFORE}[").removesuffix(f"]{AFTER}").split(", ")
    assert text == f"{BEFORE}[{', '.join(order)}]{AFTER}"
    assert sorted(order) == sorted(CASES)
    # A run without names has nothing to do here.
    assert {config.name for config in finished.request().open_configs()} <= {"plain"}


def test_a_config_without_lists_is_done_with_true_and_has_its_counts_in_its_folder(finished: SimulatedCampaign) -> None:
    measure(finished, "plain")
    assert content(finished, "plain") == PLAIN.replace("false", "true").encode()
    files = {path.name for path in (finished.measurements / "plain").iterdir()}
    assert files == {"summary.yml", "operators.pkl", "operators_filtered.pkl"}


def test_a_value_that_is_added_to_a_list_is_measured_alone(tmp_path: Path) -> None:
    campaign = new_campaign(tmp_path)
    path = campaign.measurements / "squeezed" / "summary.yml"
    done = f"[{', '.join(CASES)}]"
    path.write_bytes(f"{BEFORE}{done}{AFTER}".replace("[1, 2]", "[1, 2, 3]").encode())
    assert [config.name for config in campaign.request().open_configs()] == [
        "plain",
        "squeezed_3x3x32x32_torch-default",
        "squeezed_3x3x32x32_bf16",
    ]


def test_everything_after_the_measurement_uses_the_names_of_cases(finished: SimulatedCampaign) -> None:
    rows = finished.database.model_operators.rows()
    assert {row.model for row in rows} >= set(CASES)
    request = finished.request("squeezed")
    wholes = measure_full_models(request, lambda _: FULL, finished.open_apparatus, RecordedProgress())
    assert [report.name for report in wholes] == sorted(CASES)
    reports = compare_models(request)
    assert [report.name for report in reports] == sorted(CASES)
    assert all(len(report.comparisons) == 1 and report.reason is None for report in reports)
    assert {row.name for row in finished.database.sum_vs_full.rows()} == set(CASES)
    precisions = {report.name: report.comparisons[0].conditions.precision for report in reports}
    assert precisions == {name: name.rpartition("_")[2] for name in CASES}
    for names, expected in {
        ("squeezed",): CASES,
        ("*_bf16",): [CASES[1], CASES[3]],
        ("squeezed_1*", CASES[3]): [*CASES[:2], CASES[3]],
    }.items():
        shown = show(finished.request(*names), Choice(execution="eager"))
        assert {model.row.name for model in shown.models} == set(expected)
        assert shown.without_cost == ()


@pytest.mark.parametrize(
    ("name", "named"),
    [("squeezed", CASES), (CASES[2], CASES[2:3]), ("squeezed*", []), ("{folder}/squeezed/" + CASES[0], CASES[:1])],
)
def test_a_case_is_named_by_its_name_or_by_that_of_its_folder(tmp_path: Path, name: str, named: list[str]) -> None:
    """A named case must have counts; one that a glob matches is left out without them."""
    campaign = new_campaign(tmp_path)
    request = campaign.request(name.format(folder=campaign.measurements))
    assert [config.name for config in campaign.request().configs() if request.is_named(config)] == named


def test_counts_ship_under_the_names_of_cases(finished: SimulatedCampaign, tmp_path: Path) -> None:
    """The comparison works without the pickles."""
    campaign = new_campaign(tmp_path)
    shutil.copytree(finished.database.folder, campaign.database.folder)
    request = campaign.request("squeezed_2x3x32x32_bf16")
    measure_full_models(request, lambda _: FULL, campaign.open_apparatus, RecordedProgress())
    (report,) = compare_models(request)
    assert (report.name, report.comparisons[0].missing_operators) == ("squeezed_2x3x32x32_bf16", 0)


# opcost check


def test_check_reads_the_counts_of_each_case(tmp_path: Path) -> None:
    campaign = new_campaign(tmp_path)
    count(campaign, "squeezed")
    campaign.database.folder.mkdir()
    report = check_files(ModelFolders(campaign.measurements), campaign.database)
    assert (report.files, report.problems) == (2 + 2 * len(CASES), ())
    damaged = campaign.measurements / "squeezed" / CASES[2] / "operators.pkl"
    damaged.write_bytes(b"damaged")
    other = campaign.measurements / CASES[0]
    other.mkdir()
    (other / "summary.yml").write_text(PLAIN)
    collision, *more = check_files(ModelFolders(campaign.measurements), campaign.database).problems
    assert collision.startswith(f"{campaign.measurements}/squeezed/summary.yml:4: batch: {other}/summary.yml")
    assert more == []
    (other / "summary.yml").unlink()
    other.rmdir()
    (problem,) = check_files(ModelFolders(campaign.measurements), campaign.database).problems
    assert problem.startswith(f"{damaged}: ")


def test_a_collision_ends_a_command_with_status_2_and_one_line(tmp_path: Path) -> None:
    campaign = new_campaign(tmp_path)
    (campaign.measurements / "plain").rename(campaign.measurements / CASES[3])
    command = [sys.executable, "-m", "opcost", "filter", "squeezed", "--measurements", str(campaign.measurements)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert f"{campaign.measurements}/squeezed/summary.yml:4: batch: " in line
    assert f"{campaign.measurements}/{CASES[3]}/summary.yml" in line
    assert line.endswith("; rename a folder")
