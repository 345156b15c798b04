"""Tables of the database, rankings and comparisons as pandas data frames, for notebooks.

Columns are those of the files (``opcost columns``), in SI units. A figure that is unknown is NaN or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.columns import by_column, columns_of
from opcost.comparing.ranking import ENERGY
from opcost.reporting.show_lines import csv_columns, csv_lines
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons, reports_of
from opcost.stages.show import Choice
from opcost.stages.show import show as find_rankings
from opcost.storage.database import Database
from opcost.storage.files import user_folders
from opcost.storage.rows import SEPARATOR
from opcost.storage.table import CsvTable

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Frames:
    """The tables of a database as data frames; each is read when it is asked for, and each time again."""

    database: Database

    @property
    def operators(self) -> DataFrame:
        """Measurements of operators, one row each: ``operator_measurements.csv``."""
        return _frame_of(self.database.operator_measurements)

    @property
    def models(self) -> DataFrame:
        """Measurements of whole models: ``full_model_measurements.csv``."""
        return _frame_of(self.database.full_model_measurements)

    @property
    def counts(self) -> DataFrame:
        """Operator tuples of models and grids with their calls, FLOPs and bytes: ``model_operators.csv``."""
        return _frame_of(self.database.model_operators)

    @property
    def comparisons(self) -> DataFrame:
        """Sums and whole models as they were last compared: ``sum_vs_full.csv``. ``opcost.compare`` compares again."""
        table = self.database.sum_vs_full
        newest = {row.identity: row for row in table.rows()}
        return _frame(map(_plain_by_column, newest.values()), [field.name for field in columns_of(table.row_type)])

    @property
    def cache_corrections(self) -> DataFrame:
        """Measurements of chains, from which cache corrections are derived: ``calls_in_chains.csv``."""
        return _frame_of(self.database.calls_in_chains)

    @property
    def qualifications(self) -> DataFrame:
        """Qualifications of boards' meters: ``meter_qualifications.csv``."""
        return _frame_of(self.database.meter_qualifications)

    @property
    def drift_checks(self) -> DataFrame:
        """Measurements of the drift check: ``drift_checks.csv``."""
        return _frame_of(self.database.drift_checks)

    @property
    def failures(self) -> DataFrame:
        """Operators and models that could not be measured: ``failures.csv``."""
        return _frame_of(self.database.failures)


def load(database: str | Path | None = None) -> Frames:
    """Return the tables of a database as data frames.

    Args:
        database: the folder of tables; None for the shipped tables and those of the user's home, as in the commands.

    Raises:
        UserError: there is no such folder. A table that is damaged raises one when it is read.
    """
    found = _request((), None, database).database
    found.must_exist()
    return Frames(found)


def show(  # noqa: PLR0913 (a call in a notebook names its options)
    *names: str,
    sort: str = ENERGY,
    device: str | None = None,
    execution: str | None = None,
    operators: bool = False,
    precision: str | None = None,
    memory_format: str | None = None,
    batch: int | None = None,
    database: str | Path | None = None,
) -> DataFrame:
    """Return the models by the energy of a sample, one row each, or with ``operators`` a row for each operator.

    Args:
        names: models, folders of models, or globs; all that are measured if there is none.
        sort: ``energy``, ``time``, ``power``, ``saving`` or ``name``.
        device: ``cpu``, ``cuda`` or a part of a device's name, several with commas; None for all.
        execution: ``graph`` or ``eager``; None for graph on a GPU and eager on a CPU.
        operators: whether to return the operators of the models, the largest of each model first.
        precision: such as ``bf16``; None for that of the named models' configs.
        memory_format: ``channels_last`` or ``contiguous``; None as for ``precision``.
        batch: samples of a run; None as for ``precision``.
        database: see ``load``.

    Raises:
        UserError: a name matches no model, nothing is measured, or a table is damaged.
    """
    report = find_rankings(
        _request(names, None, database), Choice(sort, device, execution, operators, precision, memory_format, batch)
    )
    return _frame(csv_lines(report, sort), csv_columns(report))


def compare(*names: str, device: str | None = None, database: str | Path | None = None) -> DataFrame:
    """Return the comparison of each model's sum of operators with the whole model; nothing is written.

    Args:
        names: see ``show``.
        device: ``cpu`` or ``cuda``; None for both.
        database: see ``load``.

    Raises:
        UserError: a name matches no model, or a table is damaged.
    """
    request = _request(names, device, database)
    reports = reports_of(request, find_comparisons(request))
    return _frame(_plain_by_column(row) for report in reports for row in report.comparisons)


def _request(names: tuple[str, ...], device: str | None, database: str | Path | None) -> Request:
    folders = user_folders(database=None if database is None else Path(database))
    return Request(
        names,
        folders.measurements,
        Database.of(folders),
        device,
        dry_run=True,
        shipped_measurements=folders.shipped_measurements,
    )


def _frame_of(table: CsvTable[Any]) -> DataFrame:
    names = [field.name for field in columns_of(table.row_type)]
    return _frame((_plain_by_column(row) for row in table.rows()), names)


def _plain_by_column(row: Any) -> Mapping[str, object]:
    return {name: _plain(value) for name, value in by_column(row).items()}


def _plain(value: object) -> object:
    """Return a value as a cell holds it: the members of a set as one text."""
    return SEPARATOR.join(member.value for member in value) if isinstance(value, tuple) else value


def _frame(lines: Iterable[Mapping[str, object]], names: list[str] | None = None) -> DataFrame:
    import pandas

    frame: DataFrame = pandas.DataFrame(list(lines), columns=names)
    return frame
