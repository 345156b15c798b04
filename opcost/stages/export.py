"""The export of a data set: a table of measurements for each kind of operator in the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from opcost.comparing.data_set import data_columns, data_tables
from opcost.errors import UserError, shortened
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.cases import tuple_key
from opcost.operators.counts import OperatorCount
from opcost.running.request import Request
from opcost.running.shipped_counts import counts_in, with_newer_pickles
from opcost.storage.data_files import DataFolder
from opcost.storage.table import CsvTable
from opcost.units import some_of


@dataclass(frozen=True)
class ExportReport:
    """The numbers of tables and rows of an export.

    ``uncounted`` rows have no FLOPs and bytes, because their operators are in no count.
    """

    tables: int
    rows: int
    uncounted: int


def export(request: Request, kinds: Sequence[str], target: DataFolder, page: str) -> ExportReport:
    """Write the measurements of operators as a data set.

    Args:
        request: the folders, and the device whose rows are meant, None for all.
        kinds: names of operators as in whitelists, or qualified ones, or globs; all if there is none.
        target: where.
        page: the columns of a data set as a page.

    Raises:
        UserError: a table is damaged; there is no such kind, device or row; or the folder holds other files.
    """
    target.check()
    request.database.must_exist()
    table = request.database.operator_measurements
    rows = _of_kinds(_of_device(table, request.device), kinds)
    counts = _counts(request)
    try:
        tables = data_tables(rows, counts)
    except ValueError as error:
        raise UserError(f"{table.path}: {shortened(str(error))}; delete the line, or restore the file") from error
    target.write(tables, data_columns(), page)
    return ExportReport(len(tables), len(rows), sum(tuple_key(row.key) not in counts for row in rows))


def _of_device(table: CsvTable[MeasurementRow], device: str | None) -> list[MeasurementRow]:
    rows = table.rows()
    if not rows:
        raise UserError(f"{table.path}: no measurements of operators; measure some, or name another --database")
    meant = [row for row in rows if is_meant(device, row.conditions)]
    if device is not None and not meant:
        refuse_unknown(device, (row.conditions.device_product for row in rows))
    return meant


def _of_kinds(rows: Sequence[MeasurementRow], kinds: Sequence[str]) -> Sequence[MeasurementRow]:
    if not kinds:
        return rows
    operators = sorted({row.operator for row in rows})
    chosen = {kind: {operator for operator in operators if _is_of(kind, operator)} for kind in kinds}
    for kind, found in chosen.items():
        if not found:
            raise UserError(f"--kind {kind}: no row of it; {_known(kind, operators)}")
    wanted = set().union(*chosen.values())
    return [row for row in rows if row.operator in wanted]


def _is_of(kind: str, operator: str) -> bool:
    return any(fnmatchcase(name, kind) for name in (operator, _short(operator)))


def _short(operator: str) -> str:
    return operator.rpartition(".")[2]


def _known(kind: str, operators: Iterable[str]) -> str:
    names = sorted(set(map(_short, operators)))
    return f"there are rows of {some_of(get_close_matches(kind, names, n=1) or names)}"


def _counts(request: Request) -> Mapping[str, OperatorCount]:
    """Return the counts of operators in the table and in newer pickles, by the key; those that know more come first."""
    models = with_newer_pickles(counts_in(request.database.model_operators), request.folders.sound_configs())
    counts = [count for one in models.values() for count in one.counts]
    return {count.operator.key: count for count in sorted(counts, key=lambda count: bool(count.operations))}
