"""The sums of all committed rows, to the last digit: they need no counting, and no change of the code moves them.

``pytest --renew-golden`` rewrites the golden file. Estimates of what is not measured are left out of it: they rest
on a least-squares fit, whose last digit depends on numpy's build. Corrections for the power limit have nine digits:
they rest on powers, whose last digits depend on the processor.
"""

import re
import runpy
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from committed_tables import committed

from opcost.comparing.corrections import missing_sides
from opcost.comparing.model_result import OperatorRuns
from opcost.measuring.conditions import measurement_key
from opcost.measuring.flags import Flag
from opcost.measuring.protocol import MeasurementProtocol
from opcost.operators.counts import Case
from opcost.operators.texts import parse_operator
from opcost.operators.values import parse_input_data
from opcost.running.plan import KnownRows, Reason
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]
COMMITTED = committed()
SCRIPT = ROOT / "compare_sum_vs_full.py"
GOLDEN = ROOT / "tests" / "golden" / "sums.csv"
EXACT = (
    "name key input_data counted time_s time_standard_error_s energy_j energy_standard_error_j full_time_s "
    "full_time_standard_error_s full_energy_j full_energy_standard_error_j reference_temperature_c time_ratio "
    "time_standard_error_ratio energy_ratio energy_standard_error_ratio function_time_s function_energy_j "
    "correction_time_s correction_time_standard_error_s correction_energy_j correction_energy_standard_error_j "
    "power_limit_time_s power_limit_energy_j "
    "eager_device_time_s eager_launch_time_s eager_energy_j kernel_error_ratio absolute_kernel_error_ratio "
    "flop_ratio memory_bytes_ratio summed_operators missing_operators"
).split()
ROUNDED = ("power_limit_time_s", "power_limit_energy_j")


def test_sums_of_all_committed_rows_are_the_same_to_the_last_digit(tmp_path, pytestconfig):
    lines = [",".join(EXACT), *(line for whitelist in ('["*"]', None) for line in sums(tmp_path, whitelist))]
    if pytestconfig.getoption("--renew-golden"):
        GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == GOLDEN.read_text(encoding="utf-8").splitlines()


def sums(folder, whitelist):
    """Yield a line for each sum: of everything, of leaf modules, and on normal values; or by the usual whitelist."""
    measurements = measurements_in(folder)
    if whitelist is not None:
        (measurements / "operator_whitelist.yml").write_text(f"operators: {whitelist}\n")
    runs = [OperatorRuns(), OperatorRuns(counted="leaf"), OperatorRuns(input_data="normal")]
    for run in runs if whitelist else runs[:1]:
        yield from lines_of(measurements, COMMITTED, run)


def measurements_in(folder):
    """Return a copy of the models' folders, without what was counted here."""
    ignore = shutil.ignore_patterns("*.pkl")
    return shutil.copytree(ROOT / "measurements", folder / "measurements", dirs_exist_ok=True, ignore=ignore)


def lines_of(measurements, database, run):
    request = Request((), ModelFolders(measurements), database)
    for report in find_comparisons(request, run):
        for row in report.comparisons:
            yield ",".join(cell(row, name) for name in EXACT)


def cell(row, name):
    value = getattr(row, name)
    if value is None:
        return ""
    return f"{value:.9g}" if name in ROUNDED else str(value)


@pytest.fixture(scope="module")
def blanked(tmp_path_factory):
    """The committed database without any text that is for people only."""
    database = Database(tmp_path_factory.mktemp("blanked"))
    for table, copy in zip(COMMITTED.tables, database.tables, strict=True):
        if table.path.exists():
            copy.path.write_text(copy.text([without_texts(row) for row in table.rows()]), encoding="utf-8")
    return database


def without_texts(row):
    texts = {name: "" for name in ("notes", "remarks") if hasattr(row, name)}
    if hasattr(row, "measurement"):
        texts["measurement"] = replace(row.measurement, notes="")
    return replace(row, **texts)


def test_without_notes_and_remarks_sums_are_the_same(tmp_path, blanked):
    assert any(row.measurement.notes for row in COMMITTED.operator_measurements.rows())
    measurements = measurements_in(tmp_path)
    (measurements / "operator_whitelist.yml").write_text('operators: ["*"]\n')
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()[1:]
    lines = list(lines_of(measurements, blanked, OperatorRuns()))
    assert lines == golden[: len(lines)]
    assert len(lines) > 50


@pytest.mark.parametrize(("options", "expected"), [([], 0), (["--device", "cpu"], 1)])
def test_without_notes_and_remarks_the_script_says_the_same(tmp_path, blanked, monkeypatch, capsys, options, expected):
    printed = []
    for database in (COMMITTED, blanked):
        folders = ["--measurements", str(measurements_in(tmp_path)), "--database", str(database.folder)]
        arguments = ["resnet34_32x3x56x56", "vgg1[19]_32*", *options, *folders, "--json", "--dry-run"]
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
        status = runpy.run_path(str(SCRIPT))["main"]()
        output = capsys.readouterr().out.replace(str(database.folder), "DATABASE")
        printed.append((status, re.sub(r'"compared_at": "[^"]*"', "", output)))
    assert printed[0] == printed[1]
    assert printed[0][0] == expected


def test_without_notes_and_remarks_the_same_is_to_be_measured(blanked):
    reasons = Counter()
    for name in ("operator_measurements", "full_model_measurements"):
        ours, theirs = (some_flagged(getattr(database, name).rows()) for database in (COMMITTED, blanked))
        for protocol in (MeasurementProtocol(0.1, 1.0, relative_error=0.01), MeasurementProtocol(0.1, 30.0)):
            known, known_blanked = (KnownRows(protocol, True, rows) for rows in (ours, theirs))
            for row in ours:
                assert known_blanked.reason(row.key) == known.reason(row.key)
                reasons[known.reason(row.key)] += 1
    assert {None, Reason.FLAGGED, Reason.SHORTER} <= reasons.keys()
    chains = [database.calls_in_chains.rows() for database in (COMMITTED, blanked)]
    assert missing_sides(chains[0]) == missing_sides(chains[1])


def some_flagged(rows):
    """Return one row of each key, every third with a flag that asks for another: no committed row has one."""
    rows = list({row.key: row for row in rows}.values())
    flagged = [replace(row, measurement=replace(row.measurement, flags=(Flag.UNEVEN,))) for row in rows[::3]]
    return [*flagged, *rows[1::3], *rows[2::3]]


# The keys of all committed rows follow from their other columns: no change of the code may make them worthless


FOLDERS = [ROOT / "database", *sorted(path.parent for path in ROOT.glob("docs/data/**/operator_measurements.csv"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_the_keys_of_committed_rows_follow_from_their_other_columns(folder: Path) -> None:
    tables = Database(folder).operator_measurements, Database(folder).full_model_measurements
    rows = [row for table in tables for row in table.rows()]
    assert rows
    for row in rows:
        operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
        case = Case(operator, parse_input_data(row.input_data), row.phase, row.state or "")
        assert row.key == measurement_key(case, row.conditions)
