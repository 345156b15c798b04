"""The database: the tables of one folder, and the folder of raw power logs.

Only this module knows the names of the files and the types of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

from opcost.errors import UserError
from opcost.measuring.known_device import QualificationRow
from opcost.measuring.record import ChainRow, ComparisonRow, FailureRow, KernelTimeRow, MeasurementRow
from opcost.measuring.sweep_record import SweepFailureRow, SweepKernelRow, SweepRepetitionRow, SweepSizeRow
from opcost.metering.cap_rows import PowerCapRow
from opcost.operators.model_rows import ModelOperatorRow
from opcost.storage.files import UserFolders
from opcost.storage.table import TORN, CsvTable, ReadTable, Row

FORMER_NAMES = {"drift_checks": "sentinel_measurements"}
"""Names up to 0.2, by table. A database that has such a file goes on with it, so that older versions read it, too."""


class Table(Generic[Row]):
    """The declaration of a table: its name is that of the file. One that ``is_derived`` can be written again."""

    def __init__(self, row_type: type[Row], is_derived: bool = False) -> None:
        self.row_type = row_type
        self.is_derived = is_derived

    def __set_name__(self, owner: type[Database], name: str) -> None:
        self.name = name

    def __get__(self, database: Database, owner: type[Database]) -> CsvTable[Row]:
        return database.table(self.name, self.row_type)


@dataclass(frozen=True)
class Database:
    """The tables of a folder, and of a shipped one that is only read; a table without a file has no rows."""

    folder: Path
    shipped: Path | None = None
    _read: dict[str, CsvTable[Any]] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(folders: UserFolders) -> Database:
        return Database(folders.database, folders.shipped_database)

    operator_measurements = Table(MeasurementRow)  # measurements of operators
    full_model_measurements = Table(MeasurementRow)  # measurements of whole models
    drift_checks = Table(MeasurementRow)  # measurements of the drift check, the addition that campaigns repeat
    meter_qualifications = Table(QualificationRow)  # qualifications of boards' meters
    calls_in_chains = Table(ChainRow)  # measurements of chains, from which cache corrections are derived
    kernel_times = Table(KernelTimeRow)  # kernel times of models, by kind of operator
    model_operators = Table(ModelOperatorRow)  # operator tuples of measured models
    failures = Table(FailureRow)  # operators and models that could not be measured
    sweep_repetitions = Table(SweepRepetitionRow)  # repetitions of sweeps over input sizes
    sweep_failures = Table(SweepFailureRow)  # sizes of sweeps that could not be measured
    sweep_kernels = Table(SweepKernelRow)  # kernels of each size of sweeps
    sweep_sizes = Table(SweepSizeRow, is_derived=True)  # the newest medians and predictions of each size of sweeps
    power_caps = Table(PowerCapRow)  # measurements of models and commands under power caps
    sum_vs_full = Table(ComparisonRow, is_derived=True)  # the newest comparison of each sum with the whole model

    @property
    def power_logs(self) -> Path:
        return self.folder / "power_logs"

    @property
    def evidence(self) -> tuple[CsvTable[Any], ...]:
        declared = (one for one in vars(Database).values() if isinstance(one, Table))
        return tuple(self.table(one.name, one.row_type) for one in declared if not one.is_derived)

    @property
    def tables(self) -> tuple[CsvTable[Any], ...]:
        return (*self.evidence, self.sum_vs_full, self.sweep_sizes)

    @property
    def of_models(self) -> tuple[CsvTable[Any], ...]:
        """The tables whose rows are of whole models, or of models and operators, by the key of either."""
        return (self.full_model_measurements, self.failures, self.model_operators, self.sum_vs_full)

    @property
    def parts(self) -> tuple[Database, ...]:
        return (Database(self.folder), *(() if self.shipped is None else (Database(self.shipped),)))

    def read_once(self) -> Database:
        """Return the same tables for a command that only reads: each line is parsed at most once."""
        return self if self._read is not None else replace(self, _read={})

    def unfinished_lines(self) -> list[Path]:
        return sorted(self.folder.glob(f"*.csv{TORN}"))

    def table(self, name: str, row_type: type[Row]) -> CsvTable[Row]:
        if self._read is not None and name in self._read:
            return self._read[name]
        shipped = None if self.shipped is None else _file(self.shipped, name)
        if self._read is None:
            return CsvTable(_file(self.folder, name), row_type, shipped)
        return self._read.setdefault(name, ReadTable(_file(self.folder, name), row_type, shipped))

    def must_exist(self) -> None:
        if self.shipped is None and not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such folder; name the folder of a database")


def _file(folder: Path, name: str) -> Path:
    path, former = folder / f"{name}.csv", folder / f"{FORMER_NAMES.get(name, name)}.csv"
    return former if former.is_file() and not path.exists() else path
