"""Models under two conditions from a database: declared truth, committed rows as pandas finds them, and mistakes."""

import json
import re
import sys
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pandas
import pytest
from committed_tables import committed, of_boards
from simulated_apparatus import RecordedProgress, SimulatedCampaign, change_by_hand, write_both
from simulated_machine import Load

from opcost.__main__ import main
from opcost.comparing.comparison import RemarkKind
from opcost.comparing.conditions_side_by_side import SideBySide
from opcost.errors import UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import ChosenConditions, Limit
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator, stored_as
from opcost.running.request import Request
from opcost.running.shipped_counts import ship_counts
from opcost.stages.compare import compare_against, excesses
from opcost.stages.measure_operators import measure_full_models, measure_operators
from opcost.storage.configs import ModelFolders, model_tuple
from opcost.storage.model_counts import COUNTS

ROOT = Path(__file__).parents[2]
IN_PRECISIONS = ("*_fp32", "*_tf32", "*_bf16", "*_bf16_channels_last", "*_amp-bf16")
SHORT = MeasurementProtocol(warm_up_s=1.0, loop_s=2.0)


# Declared truth


def operator(name: str, dtype: str) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((4,), dtype),))


LOADS = {
    operator("Linear", "bfloat16"): Load(time_s=0.001, power_w=400.0),
    operator("Linear", "float32"): Load(time_s=0.004, power_w=500.0),
    operator("LayerNorm", "bfloat16"): Load(time_s=0.002, power_w=300.0),
    operator("LayerNorm", "float32"): Load(time_s=0.002, power_w=200.0),
    OperatorTuple("torch.Tensor.to", inputs=(TensorSpec((4,), "float32"),), mode=None): Load(0.001, 100.0),
}
BF16 = {one: 2 for one in LOADS if "float32" not in str(one)} | {one: 1 for one in LOADS if one.is_function}
FP32 = {one: 2 for one in LOADS if "float32" in str(one) and not one.is_function}
MODEL = model_operator("resnet18", None, (2, 3, 8, 8))
WHOLES = {
    MODEL: Load(time_s=0.012, power_w=400.0),
    stored_as(MODEL, "bfloat16", False): Load(time_s=0.007, power_w=300.0),
}


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    campaign = SimulatedCampaign(tmp_path, {**LOADS, **WHOLES})
    campaign.add_model("a_bf16", BF16, precision="bf16")
    campaign.add_model("a_fp32", FP32, precision="fp32")
    return campaign


def measure(campaign: SimulatedCampaign, *names: str) -> None:
    request = replace(campaign.request(*names), allow_code=True)
    measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    measure_full_models(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())


def against(campaign: SimulatedCampaign, text: str, *names: str) -> list[SideBySide]:
    return compare_against(campaign.request(*names), [text])


def test_declared_costs_under_two_conditions_are_found(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (report,) = against(campaign, "precision=fp32", "a_bf16")
    assert (report.name, report.labels, report.batch_size) == ("a_bf16", ("bf16", "fp32"), 2)
    assert report.whole is not None
    assert report.whole.energy_j == pytest.approx(2.1, rel=0.01)
    assert report.whole.saved_energy_j == pytest.approx(4.8 - 2.1, rel=0.02)
    assert report.whole.saved_energy_per_sample_j == pytest.approx((4.8 - 2.1) / 2, rel=0.02)
    assert report.whole.saved_time_ratio == pytest.approx(5 / 12, rel=1e-4)
    kinds = [(kind.operator, kind.standing, kind.costs.calls, kind.costs.other_calls) for kind in report.kinds]
    assert kinds == [("LayerNorm", "both", 2, 2), ("to", "only these", 1, 0), ("Linear", "both", 2, 2)]
    saved_j = [kind.costs.saved_energy_j for kind in report.kinds]
    assert saved_j == pytest.approx([-0.4, -0.1, 2 * (2.0 - 0.4)], rel=0.05)
    assert [kind.costs.costs_more for kind in report.kinds] == [True, True, False]
    assert report.sum is not None
    assert report.sum.saved_energy_j == pytest.approx(sum(filter(None, saved_j)))
    assert report.remarks == ()
    assert not campaign.database.sum_vs_full.path.exists(), "nothing is written"


def test_the_other_direction_has_the_opposite_sign(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (one,), (other,) = against(campaign, "precision=fp32", "a_bf16"), against(campaign, "precision=bf16", "a_fp32")
    assert one.whole is not None
    assert other.whole is not None
    assert other.whole.saved_energy_j == pytest.approx(-(one.whole.saved_energy_j or 0))
    standings = [(kind.operator, kind.standing) for kind in other.kinds]
    assert standings == [("Linear", "both"), ("LayerNorm", "both"), ("to", "only the others")]


def test_without_names_every_model_is_compared_that_is_measured_under_both(campaign: SimulatedCampaign) -> None:
    campaign.add_model("b_fp16", {}, precision="fp16")
    measure(campaign, "a_bf16", "a_fp32")
    for names in ((), ("*",)):
        assert [report.name for report in against(campaign, "precision=fp32", *names)] == ["a_bf16"]


def test_the_folder_of_several_cases_means_those_that_are_measured_under_both(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    ship_counts(campaign.database, ModelFolders(campaign.measurements).configs([]))
    path = campaign.measurements / "c" / "summary.yml"
    path.parent.mkdir()
    path.write_text("model_name: resnet18\ninput_size: [2, 3, 8, 8]\nprecision: [bf16, fp32]\n")
    assert [report.name for report in against(campaign, "precision=fp32", "c")] == ["c_bf16"]
    with pytest.raises(UserError, match=r"c_fp32: has precision=fp32,.* itself"):
        against(campaign, "precision=fp32", "c_fp32")


def test_counts_of_the_database_do_without_pickles_and_without_a_folder_of_the_other_conditions(
    campaign: SimulatedCampaign,
) -> None:
    measure(campaign)
    pickled = against(campaign, "precision=fp32", "a_bf16")
    configs = ModelFolders(campaign.measurements).configs([])
    ship_counts(campaign.database, configs)
    for config in configs:
        COUNTS.path(config).unlink()
    (campaign.measurements / "a_fp32" / "summary.yml").unlink()
    (campaign.measurements / "a_fp32").rename(campaign.measurements / ".hidden")
    assert against(campaign, "precision=fp32", "a_bf16") == pickled


def test_two_boards_are_remarked_if_no_board_has_both_sides(campaign: SimulatedCampaign) -> None:
    measure(campaign, "a_bf16")
    for table in tables_of(campaign):
        change_by_hand(table, "simulated-0", "another board")
    measure(campaign, "a_fp32")
    (report,) = against(campaign, "precision=fp32", "a_bf16")
    assert (report.device_uuid, report.other_device_uuid) == ("another board", "simulated-0")
    kinds = [remark.kind for remark in report.remarks]
    assert kinds == [RemarkKind.WHOLES_OF_TWO_BOARDS, RemarkKind.OPERATORS_OF_TWO_BOARDS]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_rows_of_one_board_are_preferred_to_newer_ones_of_another(campaign: SimulatedCampaign, precision: str) -> None:
    measure(campaign)
    before = against(campaign, "precision=fp32", "a_bf16")
    for table in tables_of(campaign):
        header, *lines = table.read_text().splitlines()
        newer = [line.replace("simulated-0", "another board") for line in lines if f",{precision}," in line]
        # A line with an empty checksum is read like a right one.
        newer = [line.rpartition(",")[0] + "," for line in newer]
        assert newer
        for order in ([*lines, *newer], [*newer, *lines]):
            table.write_text("\n".join([header, *order, ""]))
            assert against(campaign, "precision=fp32", "a_bf16") == before


def tables_of(campaign: SimulatedCampaign) -> tuple[Path, Path]:
    return campaign.database.operator_measurements.path, campaign.database.full_model_measurements.path


def test_rows_of_other_software_are_not_compared(campaign: SimulatedCampaign) -> None:
    measure(campaign, "a_bf16")
    campaign.conditions = replace(campaign.conditions, torch_version="2.12.0")
    measure(campaign, "a_fp32")
    with pytest.raises(UserError, match=r"^a_bf16: .*torch_version: 2\.11\.0 / 2\.12\.0"):
        against(campaign, "precision=fp32", "a_bf16")
    measure(campaign, "a_bf16")
    (report,) = against(campaign, "precision=fp32", "a_bf16")
    assert report.conditions.torch_version == report.other_conditions.torch_version == "2.12.0"


def test_operators_without_wholes_are_compared(campaign: SimulatedCampaign) -> None:
    measure_operators(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    (report,) = against(campaign, "precision=fp32", "a_bf16")
    assert report.whole is None
    assert [remark.kind for remark in report.remarks] == [RemarkKind.WHOLE_NOT_MEASURED] * 2
    assert report.sum is not None


# Other rows


def test_a_model_is_compared_with_itself_in_another_database(campaign: SimulatedCampaign, tmp_path: Path) -> None:
    measure(campaign)
    campaign.database.folder.rename(tmp_path / "old")
    slower = {one: replace(load, time_s=1.1 * load.time_s) for one, load in campaign.loads.items()}
    changed = SimulatedCampaign(tmp_path, slower)
    measure(changed)
    (report,) = against(changed, f"database={tmp_path / 'old'}", "a_fp32")
    assert report.labels == ("database", "old")
    assert report.whole is not None
    assert report.whole.saved_time_ratio == pytest.approx(-0.1, rel=1e-3)
    assert report.whole.costs_more_time
    assert {one.standing for one in report.operators} == {"both"}
    assert len(against(changed, f"database={tmp_path / 'old'}")) == 2
    with pytest.raises(UserError, match="none: no such folder"):
        against(changed, f"database={tmp_path / 'none'}", "a_fp32")


def test_a_model_is_compared_with_itself_in_another_version_of_torch(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    campaign.conditions = replace(campaign.conditions, torch_version="2.12.0")
    measure(campaign)
    (report,) = against(campaign, "torch=2.11", "a_fp32")
    assert report.labels == ("torch 2.12.0", "torch 2.11.0")
    (report,) = against(campaign, "torch=2.12.0,precision=fp32", "a_bf16")
    assert report.labels == ("torch 2.11.0 bf16", "torch 2.12.0 fp32")
    with pytest.raises(UserError, match=r"a_fp32: not measured with .* by rows of torch=2\.1;"):
        against(campaign, "torch=2.1", "a_fp32")


def test_rows_of_two_databases_under_two_versions_need_both_keys_and_the_message_has_the_other(
    campaign: SimulatedCampaign, tmp_path: Path
) -> None:
    measure(campaign)
    campaign.database.folder.rename(tmp_path / "old")
    campaign.conditions = replace(campaign.conditions, torch_version="2.12.0")
    measure(campaign)
    asked = f"database={tmp_path / 'old'}"
    with pytest.raises(UserError, match=r"torch_version: 2\.12\.0 / 2\.11\.0\); add torch=2\.11\.0 to --against$"):
        against(campaign, asked, "a_fp32")
    (report,) = against(campaign, f"{asked},torch=2.11.0", "a_fp32")
    assert report.labels == ("torch 2.12.0 database", "torch 2.11.0 old")


def test_a_model_is_compared_with_its_rows_before_a_date(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    for table in tables_of(campaign):
        header, *lines = table.read_text().splitlines()
        older = [line.replace("2026-", "2020-").rpartition(",")[0] + "," for line in lines]
        assert older != lines
        table.write_text("\n".join([header, *older, *lines, ""]))
    (report,) = against(campaign, "before=2021-01-01", "a_fp32")
    assert report.labels == ("from 2021-01-01", "before 2021-01-01")
    assert report.whole is not None
    assert (report.whole.saved_time_s, report.whole.costs_more_time) == (0.0, False)
    with pytest.raises(UserError, match="a_fp32: not measured with .* by rows of before=2019-01-01"):
        against(campaign, "before=2019-01-01", "a_fp32")


def test_a_model_of_a_users_code_is_compared_with_the_same_function_by_other_code(
    campaign: SimulatedCampaign, tmp_path: Path
) -> None:
    code = tmp_path / "measurements" / "own" / "net.py"
    config = code.with_name("summary.yml")
    code.parent.mkdir()
    config.write_text("model_name: net.py:build\ndone: false\n")
    loads = dict(campaign.loads)

    def measured(text: str, time_s: float) -> SimulatedCampaign:
        code.write_text(text)
        (own,) = ModelFolders(campaign.measurements).configs(["own"])
        linear = operator("Linear", "float32")
        counts = OperatorCounts(model_tuple(own), (OperatorCount(linear, 2, 9, 9),), 18, 18, 7, "2.11.0", "cuda")
        write_both(own, counts)
        again = SimulatedCampaign(tmp_path, {**loads, model_tuple(own): Load(time_s, 400.0)})
        measure(again, "own")
        ship_counts(again.database, [own])
        return again

    measured("def build(): 1", 0.010).database.folder.rename(tmp_path / "old")
    now = measured("def build(): 2", 0.011)
    (report,) = against(now, f"database={tmp_path / 'old'}", "own")
    assert report.whole is not None
    assert report.whole.saved_time_ratio == pytest.approx(-0.1, rel=1e-3)
    assert [(one.operator, one.standing) for one in report.kinds] == [("Linear", "both")]


# Limits


@pytest.mark.parametrize(
    ("limits", "status", "named"),
    [
        (["time > 2 %"], 1, ["time 10.0 ± "]),
        (["energy>5%", "time > 9.5 %"], 1, ["energy 10.", "time 10.0"]),
        (["energy > 15 %", "time > 11 %"], 0, []),
    ],
)
def test_the_status_is_1_if_a_model_costs_more_than_a_limit_allows(
    campaign: SimulatedCampaign,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    limits: list[str],
    status: int,
    named: list[str],
) -> None:
    measure(campaign, "a_fp32")
    campaign.database.folder.rename(tmp_path / "old")
    slower = {one: replace(load, time_s=1.1 * load.time_s) for one, load in campaign.loads.items()}
    measure(SimulatedCampaign(tmp_path, slower), "a_fp32")
    arguments = ["compare", "a_fp32", "--against", f"database={tmp_path / 'old'}", "--json"]
    arguments += [word for one in limits for word in ("--fail-if", one)]
    folders = ["--measurements", str(campaign.measurements), "--database", str(campaign.database.folder)]
    monkeypatch.setattr(sys, "argv", ["opcost", *arguments, *folders])
    assert main() == status
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["labels"] == ["database", "old"]
    assert len(err.splitlines()) == len(named)
    assert all(line.startswith("error: a_fp32: " + one) for line, one in zip(err.splitlines(), named, strict=True))


def test_a_difference_within_its_interval_is_no_excess(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (report,) = against(campaign, "precision=fp32", "a_bf16")
    assert report.whole is not None
    limit = Limit("energy", 0.01)

    def found(more: float, error: float) -> int:
        figures = {"saved_energy_ratio": -more, "saved_energy_standard_error_ratio": error}
        return len(excesses([replace(report, whole=replace(report.whole, **figures))], [limit]))

    assert [found(0.02, 0.001), found(0.02, 0.02), found(0.009, 0.001), found(-0.5, 0.001)] == [1, 0, 0, 0]


def test_an_unknown_cost_fits_no_limit(campaign: SimulatedCampaign) -> None:
    measure(campaign)
    (report,) = against(campaign, "precision=fp32", "a_bf16")
    unknown = replace(report, whole=None, sum=None)
    with pytest.raises(UserError, match=r"^--fail-if 'energy > 5 %': a_bf16: its energy is unknown"):
        excesses([unknown], [Limit.of("energy > 5 %")])


@pytest.mark.parametrize("text", ["energy > 5", "energy < 5 %", "energy >= 5 %", "power > 5 %", "energy > -5 %", ""])
def test_other_texts_are_no_limits(text: str) -> None:
    with pytest.raises(ValueError, match="is no limit; write 'energy > 5 %'"):
        Limit.of(text)


# Mistakes


@pytest.mark.parametrize(
    ("text", "names", "line"),
    [
        ("precision=fp16", ("a_bf16",), "a_bf16: not measured with precision=fp16,memory_format=contiguous"),
        ("memory_format=channels_last", ("a_bf16",), "a_bf16: not measured with precision=bf16,memory_format=chan"),
        ("precision=bf16", ("a_bf16",), "a_bf16: has precision=bf16,memory_format=contiguous itself"),
        ("precision=fp16", ("a_*",), "--against precision=fp16: no model is measured"),
        ("precision=fp16", (), "--against precision=fp16: no model is measured"),
        ("precison=fp32", ("a_bf16",), "--against 'precison=fp32': 'precison' is no condition; use precision"),
        ("before=1.2.2026", ("a_bf16",), "--against 'before=1.2.2026': '1.2.2026' is no date; write before=2026-11-20"),
        ("torch=", ("a_bf16",), "--against 'torch=': torch has no name; write torch=2.10"),
        ("precision=fp23", ("a_bf16",), "--against 'precision=fp23': precision has no value 'fp23'"),
    ],
)
def test_a_mistake_is_one_line_with_the_conditions_that_the_database_has(
    campaign: SimulatedCampaign, text: str, names: tuple[str, ...], line: str
) -> None:
    campaign.database.folder.mkdir()
    with pytest.raises(UserError, match=r"the database has no row of such a model$"):
        against(campaign, "precision=fp32", "a_bf16")
    measure(campaign)
    with pytest.raises(UserError) as caught:
        against(campaign, text, *names)
    (said,) = caught.value.lines
    assert said.startswith(line)
    assert said.endswith("; the database has memory_format=contiguous with precision=fp32, bf16")


def test_the_command_exits_with_2_after_a_mistake_and_with_0_otherwise(
    campaign: SimulatedCampaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(campaign)
    folders = ["--measurements", str(campaign.measurements), "--database", str(campaign.database.folder)]

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["opcost", "compare", *arguments, *folders])
        return main()

    assert run("a_bf16", "--against", "precision=fp32", "--against", "memory_format=contiguous", "--json") == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["whole"]["saved_energy_j"] == pytest.approx(2.7, rel=0.02)
    assert report["other_chosen"] == {
        "precision": "fp32",
        "memory_format": "contiguous",
        "attention": "torch-default",
    }
    assert report["kinds"][0]["costs"]["costs_more_energy"] is True
    for more in (["--figures", "x"], ["--report", "x.html"]):
        with pytest.raises(UserError, match="--against excludes --figures and --report"):
            run("a_bf16", "--against", "precision=fp32", *more)
    assert not campaign.database.sum_vs_full.path.exists()


# Committed rows


def compared(board: str, text: str, *names: str) -> list[SideBySide]:
    return compare_against(
        Request(names or IN_PRECISIONS, ModelFolders(ROOT / "measurements"), of_boards(board)), [text]
    )


@cache
def table(board: str, name: str) -> pandas.DataFrame:
    rows = pandas.read_csv(ROOT / "database" / f"{name}.csv", low_memory=False)
    return rows[rows["device_uuid"].str.startswith(f"GPU-{board}")] if "device_uuid" in rows else rows


def sum_by_pandas(board: str, model: str, precision: str) -> dict[str, float]:
    """Return time and energy of all measured calls of a model on a board in a precision, by their kind."""
    # In fp32 and TF32 it has the calls of torch's default precision.
    model = re.sub("_(fp32|tf32)$", "", model)
    counted = table(board, "model_operators").query("model == @model and flop + memory_bytes > 0 and weights.isna()")
    rows = table(board, "operator_measurements").query("precision == @precision and cache == 'warm'").copy()
    rows["key"] = rows["key"].str.rpartition("-")[0]
    joined = counted.merge(rows, on="key", suffixes=("", "_row"))
    kinds = joined["operator"].str.rpartition(".")[2]
    costs = joined[["time_s", "energy_at_reference_j"]].mul(joined["calls"], axis=0)
    return {
        f"{kind} {column}": value
        for column, of_kind in costs.groupby(kinds).sum().items()
        for kind, value in of_kind.items()
    }


def kinds_of(report: SideBySide, prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for kind in report.kinds:
        for field, column in (("time_s", "time_s"), ("energy_j", "energy_at_reference_j")):
            name, cost = f"{kind.operator} {column}", getattr(kind.costs, f"{prefix}{field}")
            if cost:
                found[name] = found.get(name, 0.0) + cost
    return found


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("model", "chosen"),
    [
        *product(("vit_b_16", "swin_t", "convnext_tiny"), ("tf32", "bf16", "bf16_channels_last")),
        ("vit_b_16", "amp-bf16"),
    ],
)
def test_kinds_sum_to_calls_times_rows_as_pandas_finds_them(model: str, chosen: str) -> None:
    board = {"swin_t": "fd55", "convnext_tiny": "7e56"}.get(model, "2f9d")
    name = f"{model}_32x3x224x224_{chosen}"
    (report,) = compared(board, "precision=fp32,memory_format=contiguous", name)
    ours = sum_by_pandas(board, name, chosen.partition("_channels")[0])
    theirs = sum_by_pandas(board, f"{model}_32x3x224x224_fp32", "fp32")
    assert kinds_of(report) == pytest.approx(ours)
    assert kinds_of(report, "other_") == pytest.approx(theirs)
    assert report.sum is not None
    assert report.sum.energy_j == pytest.approx(sum(v for k, v in ours.items() if k.endswith("_j")))
    assert report.sum.saved_energy_j == pytest.approx(
        sum(v for k, v in theirs.items() if k.endswith("_j")) - report.sum.energy_j
    )


def test_the_whole_of_committed_rows_is_that_of_its_file() -> None:
    (report,) = compared("2f9d", "precision=fp32", "resnet50_bf16")
    wholes = table("2f9d", "full_model_measurements").query("operator.str.endswith('resnet50')")
    energies = wholes.set_index(["precision", "inputs"])["energy_at_reference_j"]
    ours, theirs = energies["bf16", "bfloat16[32, 3, 224, 224]"], energies["fp32", "float32[32, 3, 224, 224]"]
    assert report.whole is not None
    assert report.whole.saved_energy_j == pytest.approx(theirs - ours)
    assert report.whole.saved_energy_ratio == pytest.approx(1 - ours / theirs)
    assert report.whole.saved_energy_per_sample_j == pytest.approx((theirs - ours) / 32)


def test_the_same_model_on_another_device_is_compared_operator_by_operator() -> None:
    (report,) = compare_against(
        Request(("resnet50_bf16",), ModelFolders(ROOT / "measurements"), committed()), ["device=H100"]
    )
    wholes = pandas.read_csv(ROOT / "database" / "full_model_measurements.csv")
    wholes = wholes[wholes["operator"].str.endswith("resnet50") & (wholes["inputs"] == "bfloat16[32, 3, 224, 224]")]
    (theirs_s,) = wholes.loc[wholes["device_product"] == "NVIDIA H100 80GB HBM3", "time_s"]
    ours = wholes.set_index("device_uuid").loc[report.device_uuid]
    assert report.labels == ("H200", "H100 80GB HBM3")
    assert report.whole is not None
    assert report.whole.saved_time_s == pytest.approx(theirs_s - ours["time_s"].min(), rel=0.02)
    assert {one.standing for one in report.operators} == {"both"}
    assert report.sum is not None
    assert report.sum.saved_time_s == pytest.approx(sum(one.costs.saved_time_s or 0.0 for one in report.operators))
    (reverse,) = compare_against(
        Request(("resnet50_bf16",), ModelFolders(ROOT / "measurements"), committed(), device="H100"), ["device=H200"]
    )
    assert reverse.whole is not None
    assert reverse.whole.saved_time_s == pytest.approx(-report.whole.saved_time_s, rel=0.02)


def test_devices_and_precisions_can_both_differ() -> None:
    request = Request(("vit_b_16_bf16",), ModelFolders(ROOT / "measurements"), committed())
    with pytest.raises(
        UserError, match="not measured with precision=fp32,memory_format=contiguous by rows of device=H100"
    ):
        compare_against(request, ["device=H100,precision=fp32"])
    with pytest.raises(UserError, match="--device A100: no row of it"):
        compare_against(request, ["device=A100"])
    with pytest.raises(UserError, match="not measured with precision=bf16.* beside rows of device=H200"):
        compare_against(replace(request, device="H200"), ["device=H200"])


def test_of_two_memory_formats_equal_tuples_have_the_same_row() -> None:
    (report,) = compared("2f9d", "memory_format=contiguous", "vit_b_16_bf16_channels_last")
    assert report.chosen == ChosenConditions("bf16", "channels_last")
    saved = {
        kind.operator: (kind.costs.saved_energy_j, kind.costs.saved_energy_standard_error_j) for kind in report.kinds
    }
    assert saved["Linear"] == (0.0, 0.0)
    assert saved["Conv2d"] > (0.01, 0.0)
