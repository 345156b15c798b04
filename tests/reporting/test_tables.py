"""Output for people and programs: tables with units, and JSON in SI units."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.comparing.comparison import Remark, RemarkKind
from opcost.measuring.record import ComparisonRow
from opcost.reporting.charts import Compared
from opcost.reporting.comparison_tables import all_in_words, footnotes, print_comparisons
from opcost.reporting.count_tables import print_rebuilds
from opcost.reporting.measurement_tables import print_full_models, print_operator_measurements
from opcost.reporting.output import print_json
from opcost.reporting.tables import (
    Column,
    Form,
    Table,
    print_commands,
    print_configs,
    print_files,
    print_line,
    print_note,
    print_priced,
    print_table,
    printed_as,
)
from opcost.stages.compare import ComparingReport
from opcost.stages.make_configs import ConfigReport
from opcost.stages.measure_operators import FullModelReport, OperatorsReport
from opcost.stages.verify import RebuildReport
from opcost.units import UNKNOWN, percent

H200 = ("cuda:1", "NVIDIA H200")
MEASURED = OperatorsReport(
    *("resnet50", 40, 48, 10, 37, 1, 1, 33.0, 20.0, {}, 5.0, False),
    *(("RuntimeError: out of [memory]",), 2, ("no meter",)),
    {"missing": 36, "flagged": 2},
    *H200,
)
WHOLE = FullModelReport("resnet50", 0.012345, 5.4321, 440.0, True, False, 0.0, 6.0, {}, 9.0, None, {}, *H200)
MISSING = replace(WHOLE, time_s=None, energy_j=None, power_w=None, newly_measured=False, expected_s=33.0)
UNKNOWN_COSTS = """
    full_energy_j full_energy_standard_error_j reference_temperature_c energy_ratio energy_standard_error_ratio
    function_energy_j correction_energy_j correction_energy_standard_error_j power_limit_time_s
    power_limit_time_standard_error_s power_limit_energy_j power_limit_energy_standard_error_j dropped_energy_j
    unmeasured_energy_j unexplained_energy_j eager_device_time_s eager_launch_time_s eager_energy_j kernel_error_ratio
    absolute_kernel_error_ratio flop_missing_reason
"""
COMPARED = ComparisonRow(
    key="k",
    operator="torchvision.models.resnet50",
    name="resnet50",
    input_data="captured",
    counted="all",
    conditions=SIMULATED_CONDITIONS,
    time_s=0.0125,
    time_standard_error_s=1e-5,
    energy_j=5.5,
    energy_standard_error_j=0.01,
    full_time_s=0.012,
    full_time_standard_error_s=1e-5,
    time_ratio=1.042,
    time_standard_error_ratio=0.0012,
    function_time_s=0.0005,
    correction_time_s=0.00012,
    correction_time_standard_error_s=0.000024,
    dropped_time_s=0.0006,
    unmeasured_time_s=0.0,
    unexplained_time_s=-0.0011,
    energy_missing_reason="no meter",
    flop_ratio=0.98,
    memory_bytes_ratio=0.75,
    summed_operators=48,
    missing_operators=2,
    missing="torch.nn.SiLU() on (float32[2]) eval | torch.nn.GELU() on (float32[2]) eval",
    remarks="the sum is of leaf modules only, as hooks on modules see them",
    compared_at="2026-11-01T00:00:00+00:00",
    **dict.fromkeys(UNKNOWN_COSTS.split()),
)

REMARK = Remark(RemarkKind.LEAF_MODULES)


def row_of(output: str, first_cell: str) -> list[str]:
    """The cells of the table's row that begins so."""
    (line,) = [line for line in output.splitlines() if re.match(rf" *{re.escape(first_cell.strip())}  ", line)]
    return re.split(r"  +", line.strip())


def test_rebuilt_tuples_are_shown_with_those_that_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    print_rebuilds([RebuildReport("a", 10, 8, ("nms: other",), ("relu: why",)), RebuildReport("b", 5, 5, (), ())])
    output = capsys.readouterr().out
    assert row_of(output, "a ") == ["a", "10", "8", "1", "1"]
    assert row_of(output, "total") == ["total", "15", "13", "1", "1"]
    assert "\na: value-dependent: nms: other\na: failed: relu: why\n" in output


@pytest.mark.parametrize(("dry_run", "word"), [(True, "would be written"), (False, "written")])
def test_configs_that_were_made_are_shown(dry_run: bool, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_configs([ConfigReport("a", "m/a/summary.yml", True), ConfigReport("b", "m/b/summary.yml", False)], dry_run)
    *files, total = capsys.readouterr().out.splitlines()
    assert files == [f"{word}: m/a/summary.yml", *(["exists: m/b/summary.yml"] if dry_run else [])]
    assert total.startswith("1 configs written, 1 existed already")
    assert ("dry run" in total) == dry_run


@pytest.mark.parametrize(
    ("report", "cells"),
    [
        (WHOLE, ["12.35 ms", "5432 mJ", "440.0 W", "now"]),
        (replace(WHOLE, newly_measured=False), ["12.35 ms", "5432 mJ", "440.0 W", "earlier"]),
        (MISSING, ["-", "-", "-", "not yet"]),
        (replace(MISSING, failed=True, reason="no memory"), ["-", "-", "-", "failed"]),
        (replace(WHOLE, energy_j=None, power_w=None, reason="no meter"), ["12.35 ms", "-", "-", "now"]),
    ],
)
def test_whole_models_show_what_is_known_and_never_zero_for_the_rest(
    report: FullModelReport, cells: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # The other model has all values, so that no column is left out.
    print_full_models([report, replace(WHOLE, name="vgg16")], dry_run=False)
    output = capsys.readouterr().out
    assert row_of(output, "resnet50 ")[1:5] == cells
    assert report.reason is None or f"resnet50: {report.reason}\n" in output


def comparing(*rows: ComparisonRow, remarks: tuple[Remark, ...] = ()) -> ComparingReport:
    return ComparingReport("resnet50", rows, None, remarks=(remarks,) * len(rows))


WHOLE_SUM = replace(COMPARED, missing_operators=0, missing="", energy_missing_reason=None)


def test_a_plan_has_no_figures_of_models_without_rows_and_names_the_device_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_full_models([MISSING], dry_run=True)
    plan = capsys.readouterr().out
    assert "Without a known value" not in plan
    assert plan.count("NVIDIA H200") == 1
    print_full_models([MISSING, WHOLE], dry_run=True)
    assert "12.35 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("doubts", "doubtful", "said"),
    [
        ({}, 0, "1 failed, 36 were not reached; repeat the command"),
        (
            {"uneven": 2, "other-process": 35},
            36,
            "1 failed, 36 are flagged (2 uneven, 35 other-process) and may be off by any factor; "
            "end other programs that use the device, and repeat the command",
        ),
        (
            {"meters-disagree": 1},
            1,
            "1 failed, 1 are flagged (1 meters-disagree) and may be off by any factor, 35 were not reached; "
            "repeat the command",
        ),
    ],
)
def test_disturbed_measurements_are_said_once_with_the_remedy(
    doubts: dict[str, int], doubtful: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_operator_measurements([replace(MEASURED, remaining=37, doubts=doubts, doubtful=doubtful)], dry_run=False)
    assert f"resnet50: 37 remain: {said}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("share", "execution", "text"),
    [
        (-2.22, "eager", "Unexplained by any known effect, so probably disturbed; measure again"),
        (0.4, "graph", "Unexplained by any known effect, so probably disturbed; measure again"),
        (
            0.4,
            "eager",
            "Unexplained: an eager run also takes Python's time between operators, which is in no sum; or it ",
        ),
    ],
)
def test_a_rest_that_no_effect_explains_is_marked(
    share: float, execution: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = replace(WHOLE_SUM.conditions, execution=execution)
    found = replace(WHOLE_SUM, unexplained_time_s=0.012 * share, conditions=conditions)
    print_comparisons([comparing(found)], dry_run=False)
    output = capsys.readouterr().out
    assert output.count(" (!)") == 3
    assert f"{percent(share)} (!)" in output
    assert f"[1] {text}" in output
    assert f": {100 * share:.1f} % of" in output


@pytest.mark.parametrize(
    ("remark", "is_marked"),
    [
        (Remark(RemarkKind.FLAGGED_WHOLE, {"flags": ("uneven",)}), True),
        (Remark(RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.5, "operator": "a", "flags": ("uneven",)}), True),
        (Remark(RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.01, "operator": "a", "flags": ("uneven",)}), False),
        (REMARK, False),
    ],
)
def test_a_ratio_of_flagged_measurements_is_marked_as_no_result(
    remark: Remark, is_marked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_comparisons([comparing(WHOLE_SUM, remarks=(remark,))], dry_run=False)
    output = capsys.readouterr().out
    marked = ("1.042 (!)" in output, "(!) No result yet" in output, "-9.2 % (!)" in output)
    assert marked == (is_marked, is_marked, is_marked)
    assert "- (!)" not in output


IMPRECISE = Remark(RemarkKind.NOT_PRECISE, {"time_ratio": 0.1})


def on_other_values(time_ratio: float) -> Remark:
    return Remark(RemarkKind.OTHER_VALUES, {"time_ratio": time_ratio})


def noted(*remarks_of_each: tuple[Remark, ...]) -> list[Compared]:
    return [Compared(f"model {number}", WHOLE_SUM, remarks=remarks) for number, remarks in enumerate(remarks_of_each)]


def test_a_remark_on_several_comparisons_is_one_footnote_with_their_figures() -> None:
    compared = noted((on_other_values(0.5), REMARK), (REMARK,), (on_other_values(0.2), REMARK))
    (values, leaves), marks = footnotes(compared)
    assert values.endswith("other values than the model's: model 0 50.0 %; model 2 20.0 %")
    assert leaves == "[2] The sum is of leaf modules only (all)"
    assert marks == ["[1,2]", "[2]", "[1,2]"]


def test_of_many_comparisons_a_few_are_named_and_one_is_not() -> None:
    (line,), _ = footnotes(noted(*[(on_other_values(0.5),)] * 9))
    assert line.count("50.0 %") == 6
    assert line.endswith("; 3 more")
    assert footnotes(noted((on_other_values(0.5),)))[0][0].endswith("than the model's: 50.0 %")
    # A remark that changes no conclusion has no footnote.
    assert footnotes(noted((IMPRECISE,))) == ([], [""])


def test_all_remarks_of_one_comparison_in_words() -> None:
    assert all_in_words(COMPARED, [REMARK, IMPRECISE]) == [
        "missing: torch.nn.SiLU() on (float32[2]) eval",
        "missing: torch.nn.GELU() on (float32[2]) eval",
        str(REMARK),
        str(IMPRECISE),
        "no energy: no meter",
    ]


def test_json_is_a_list_of_objects_in_si_units_with_remarks_as_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Remark(RemarkKind.THROTTLED, {"time_ratio": 0.2, "whole_time_ratio": None})
    compared_with = ComparingReport("resnet50", (COMPARED,), None, remarks=((shown,),))
    print_json([MEASURED, WHOLE, compared_with])
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == ["resnet50"] * 3
    (comparison,) = found[-1]["comparisons"]
    assert (comparison["time_s"], comparison["energy_ratio"]) == (0.0125, None)
    assert found[-1]["remarks"] == [[{"kind": "throttled", "figures": shown.figures}]]
    print_json([])
    assert json.loads(capsys.readouterr().out) == []


# The form of a command's tables

ENERGIES: Table[float | None] = (
    Column("of|what", lambda one: f"a|{one}", "left"),
    Column("mJ/token", lambda one: UNKNOWN if one is None else f"{1e3 * one:g}", energy_j=lambda one: one),
    Column("nothing", lambda one: UNKNOWN),
)


def test_in_markdown_a_table_has_all_known_columns_and_lines_are_paragraphs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with printed_as(Form(markdown=True)):
        assert print_table("Title", ENERGIES, [3.6, None]) == {"nothing"}
        print_line("One.", "", "Two.")
        print_commands([("opcost show", "shows")])
    assert capsys.readouterr().out.splitlines() == [
        *(
            "**Title**",
            "",
            r"| of\|what | mJ/token |",
            "| --- | --: |",
            r"| a\|3.6 | 3600 |",
            r"| a\|None | - |",
            "",
        ),
        *("One.", "", "Two.", "", "```", "opcost show   # shows", "```", ""),
    ]
    print_line("One.", "Two.")
    assert capsys.readouterr().out == "One.\nTwo.\n", "afterwards all is as before"


def test_without_notes_results_and_warnings_of_figures_stay(capsys: pytest.CaptureFixture[str]) -> None:
    with printed_as(Form(quiet=True)):
        print_table("Title", ENERGIES, [3.6])
        print_line("a result")
        print_note("a note", "a warning", warnings=["a warning"])
        print_commands([("opcost show", "shows")])
        print_files("rows in", [Path("x")])
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "Title"
    assert out.splitlines()[-2:] == ["a result", "a warning"]
    assert "Without a known value" not in out
    assert err == ""
    print_note("a note", "a warning", warnings=["a warning"])
    assert capsys.readouterr().out == "a note\na warning\n"


def test_an_energy_has_its_carbon_and_price_of_a_million_with_the_assumption_in_the_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with printed_as(Form(carbon_intensity=400, price=0.25)):
        # A million times 3.6 J are a kWh.
        print_table("Title", ENERGIES, [3.6, None])
        print_priced(7.2, "sample")
        print_priced(None, "sample")
    out = capsys.readouterr().out
    assumption = "at 400 g CO2e per kWh and a price of 0.25 per kWh, for the device's energy alone"
    assert out.startswith(f"Title; {assumption}\n")
    assert re.search(r"mJ/token +g CO2e/million tokens +price/million tokens\n", out)
    assert re.search(r"a\|3.6 +3600 +400.0 +0.2500\n", out)
    assert re.search(r"a\|None +- +- +-\n", out)
    assert f"A million samples: CO2e 800.0 g and price 0.5000, {assumption}.\n" in out
    assert f"A million samples: CO2e - g and price -, {assumption}.\n" in out
    print_priced(7.2, "sample")
    assert capsys.readouterr().out == "", "there are no rates unless they are asked for"
