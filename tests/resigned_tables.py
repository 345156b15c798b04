"""Tables changed by someone who knows the checksum: what is accepted is planned, compared, printed and reported.

No figure that is read may end in a traceback, or be shown as nan or infinite.
"""

import csv
import io
import math
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random

from simulated_machine import Load
from simulated_sweep import SimulatedSweep

from opcost.columns import shared_fields
from opcost.comparing.corrections import missing_sides, of_the_same_card
from opcost.comparing.model_result import kernel_key
from opcost.errors import UserError
from opcost.measuring.protocol import protocol_for
from opcost.measuring.record import FailureRow, KernelTimeRow, MeasurementRow
from opcost.operators.counts import CaseColumns, tuple_key
from opcost.running.plan import KnownRows
from opcost.running.request import Request
from opcost.stages.sweep import keep_sizes
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.units import printable

ROOT = Path(__file__).resolve().parent.parent
MODEL = "resnet50_32x3x224x224"

NO_FIGURE = re.compile(r"(?<![a-z])(nan|inf|infinity)(?![a-z])", re.IGNORECASE)

NUMBERS = (
    *("nan", "inf", "-inf", "0", "-0.0", "-1", "1", "1e308", "-1e308", "5e-324", "1e-15", "1e15", "-1e15", "1e-300"),
    *("", "9" * 25, "9" * 5000, "1_0", "0x10", " 1 ", "1e", "\u0661", "9223372036854775807"),
)
TEXTS = (
    *("", "None", "True", "False", "nan", "a | b", "x" * 5000, "=1+1", "\t", "captured: 0.5 zeros", "graph", "eager"),
    *("uneven", "uneven|imprecise", "no-flag", "cuda", "cpu", "NVIDIA H200", "../../etc/passwd", "<b>&", "é\U0001f525"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-12:00", "2999-12-31T23:59:59+00:00", "2026-11-22", "yesterday"),
    *("1970-01-01T00:00:00+00:00", "2026-11-22T08:00:00", "2026-11-22T08:00:00.123456+05:30"),
    *("\x1b[31mred", "a\u202eb", "a\rb", "\x9b2J", "\t=1+1", "\uff1d1+1", "$\\frac$", "[/b]", "; touch x #"),
)


def changed_cell(cell: str, cells: Sequence[str], random: Random) -> str:
    """Return what someone may have written into a cell instead."""
    try:
        number = float(cell)
    except ValueError:
        return random.choice([*TEXTS, *cells])
    kind = random.randrange(4)
    if kind == 0 or not math.isfinite(number):
        return random.choice(NUMBERS)
    if kind == 1:
        return random.choice(cells)
    factor = random.choice([-1, 0, 0.5, 2, 1e3, 1e-3, 1e9, 1e-9, 10.0 ** random.randint(-16, 16)])
    return str(int(min(number * factor, 1e99))) if cell.isdigit() else repr(number * factor)


def resigned(content: bytes, random: Random) -> bytes:
    """Return a table with other values in some cells, and right checksums, or none, behind them."""
    header, *rows = csv.reader(io.StringIO(content.decode()))
    columns = len(header) - 1
    # One mistake in one row, in a few rows, or the same column in all.
    chosen = rows if random.randrange(4) == 0 else random.choices(rows, k=random.choice([1, 1, 2, 5]))
    place = random.randrange(columns)
    for row in chosen:
        row[place] = changed_cell(row[place], row[:columns], random)
        row[columns] = random.choice(["", f"{zlib.crc32(line_of(row[:columns]).encode()):08x}"])
        if random.randrange(4) == 0:
            place = random.randrange(columns)
    return "".join(map(line_of, [header, *rows])).encode()


def line_of(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


@cache
def genuine() -> tuple[tuple[str, bytes], ...]:
    """Return the tables of a database in which one model is compared, each with its file's name."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder))
        for path in (ROOT / "docs" / "data" / "resnet50").glob("*.csv"):
            shutil.copy(path, folder)
        shipped = Database(ROOT / "database").model_operators
        database.model_operators.append_missing(row for row in shipped.rows() if row.model == MODEL)
        (whole,) = database.full_model_measurements.rows()
        database.kernel_times.append_missing(kernel_rows(whole))
        database.failures.append(failure_of(whole))
        apart = Path(folder) / "sweep"
        apart.mkdir()
        sweep = SimulatedSweep(apart, {32: Load(0.001, 300.0), 64: Load(0.004, 300.0)}, {128: "out of memory"})
        keep_sizes(sweep.database, sweep.result(sweep.measure(repetitions=2)))
        for path in sweep.database.folder.glob("sweep_*.csv"):
            shutil.copy(path, folder)
        return tuple((path.name, path.read_bytes()) for path in sorted(Path(folder).glob("*.csv")))


def kernel_rows(whole: MeasurementRow) -> Iterator[KernelTimeRow]:
    key, at = kernel_key(tuple_key(whole.key), whole.conditions), whole.measurement.ended_at
    for operator, in_model_s, alone_s in (("Conv2d", 3e-3, 3.1e-3), ("ReLU", 1e-3, 0.9e-3)):
        yield KernelTimeRow(key, MODEL, operator, 50, in_model_s, alone_s, in_model_s, at, whole.conditions)


def failure_of(whole: MeasurementRow) -> FailureRow:
    return FailureRow(
        **shared_fields(whole, CaseColumns),
        key=whole.key,
        reason="out of memory",
        failed_at=whole.measurement.ended_at,
        conditions=whole.conditions,
        circumstances=whole.circumstances,
    )


@contextmanager
def project_with(table: Path) -> Iterator[Request]:
    """Yield what is asked of a project in which one table is another; its mistakes name the table by its own path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "measurements" / MODEL
        model.mkdir(parents=True)
        shutil.copy(ROOT / "measurements" / MODEL / "summary.yml", model)
        shutil.copy(ROOT / "measurements" / "operator_whitelist.yml", model.parent)
        database = Database(folder / "database")
        database.folder.mkdir()
        for file, content in genuine():
            (database.folder / file).write_bytes(content)
        shutil.copy(table, database.folder)
        try:
            yield Request((MODEL,), ModelFolders(model.parent), database)
        except UserError as error:
            here = str(database.folder / table.name)
            raise UserError(*(line.replace(here, str(table)) for line in error.lines)) from error


def use(path: Path) -> None:
    """Do with a table what the pipeline does, in a project in which all else is as it should be.

    Raises:
        UserError: what is wrong with it.
        AssertionError: a figure is shown that is none.
    """
    from opcost.reporting.comparison_tables import print_comparisons
    from opcost.reporting.report import write_report
    from opcost.stages.check_files import check_files
    from opcost.stages.compare import find_comparisons, keep_comparisons

    with project_with(path) as request, redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
        if problems := check_files(request.folders, request.database).problems:
            raise UserError(*problems)
        plan(request.database)
        reports = find_comparisons(request)
        keep_comparisons(request, reports)
        print_comparisons(reports, dry_run=False)
        page = request.database.folder / "report.html"
        write_report(page, request, reports)
        shown = printed.getvalue() + page.read_text() + request.database.sum_vs_full.path.read_text()
    assert printable(shown, kept="\n\xa0") == shown, "characters that change a terminal"
    # A text that someone wrote is shown as it is.
    written = [cell for row in csv.reader(io.StringIO(path.read_text())) for cell in row if NO_FIGURE.search(cell)]
    found = None if written else NO_FIGURE.search(shown)
    assert found is None, shown[max(0, found.start() - 200) : found.end() + 50]


def plan(database: Database) -> None:
    """Look at rows as block 2 does."""
    protocol = protocol_for(True, relative_error=0.01)
    rows = database.operator_measurements.rows()
    known = KnownRows(protocol, True, rows)
    for row in rows:
        known.reason(row.key)
        missing_sides(of_the_same_card(database.calls_in_chains.rows(), row.conditions))
        break
    database.failures.rows()
