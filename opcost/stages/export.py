"""The export of a data set: a table of measurements for each kind of operator in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from opcost.comparing.data_set import data_columns, data_tables
from opcost.errors import UserError, shortened
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.cases import tuple_key
from opcost.running.request import Request
from opcost.running.shipped_counts import counts_in, with_newer_pickles
from opcost.storage.data_files import DataFolder
from opcost.units import some_of


@dataclass(frozen=True)
class ExportReport:
    """The numbers of tables and rows of an export, and of rows without FLOPs, because no count has their operators."""

    tables: int
    rows: int
    uncounted: int


def export(request: Request, kinds: Sequence[str], target: DataFolder, page: str) -> ExportReport:
    """Write the measurements of operators as a data set.

    ``kinds`` are names of operators as in whitelists, or qualified ones, or globs; all if there is none. ``page``
    explains the columns of a data set. Raises UserError: a table is damaged; there is no such kind, device or row; or
    the folder holds other files.
    """
    target.check()
    request.database.must_exist()
    table = request.database.operator_measurements
    all_rows, device = table.rows(), request.device
    if not all_rows:
        raise UserError(f"{table.path}: no measurements of operators; measure some, or name another --database")
    rows = [row for row in all_rows if is_meant(device, row.conditions)]
    if device is not None and not rows:
        refuse_unknown(device, (row.conditions.device_product for row in all_rows))
    if kinds:
        wanted = _operators(kinds, {row.operator for row in rows})
        rows = [row for row in rows if row.operator in wanted]
    # The counts in the table and in newer pickles; those that know the operations come last, and so are kept.
    models = with_newer_pickles(counts_in(request.database.model_operators), request.folders.sound_configs())
    all_counts = (count for one in models.values() for count in one.counts)
    counts = {count.operator.key: count for count in sorted(all_counts, key=lambda count: bool(count.operations))}
    try:
        tables = data_tables(rows, counts)
    except ValueError as error:
        raise UserError(f"{table.path}: {shortened(str(error))}; delete the line, or restore the file") from error
    target.write(tables, data_columns(), page)
    return ExportReport(len(tables), len(rows), sum(tuple_key(row.key) not in counts for row in rows))


def _operators(kinds: Sequence[str], operators: Collection[str]) -> set[str]:
    """Return the operators of these kinds, by qualified names or without the module. Raises UserError: one has none."""
    short = {operator: operator.rpartition(".")[2] for operator in sorted(operators)}
    found: set[str] = set()
    for kind in kinds:
        of_kind = {one for one, name in short.items() if fnmatchcase(one, kind) or fnmatchcase(name, kind)}
        if not of_kind:
            names = sorted(set(short.values()))
            known = some_of(get_close_matches(kind, names, n=1) or names)
            raise UserError(f"--kind {kind}: no row of it; there are rows of {known}")
        found |= of_kind
    return found
