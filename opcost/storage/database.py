"""The database: the tables of one folder, and the folder of raw power logs.

Only this module knows the names of the files and the types of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opcost.comparing.cache_chain_rows import ChainRow
from opcost.comparing.kernel_times import KernelTimeRow
from opcost.comparing.row import ComparisonRow
from opcost.comparing.sweep_sizes import SweepSizeRow
from opcost.errors import UserError
from opcost.measuring.meter_quality import QualificationRow
from opcost.measuring.record import FailureRow, MeasurementRow
from opcost.measuring.sweep_record import SweepFailureRow, SweepKernelRow, SweepRepetitionRow
from opcost.metering.cap_rows import PowerCapRow
from opcost.operators.model_rows import ModelOperatorRow
from opcost.storage.table import TORN, CsvTable, ReadTable, Row
from opcost.storage.user_folders import UserFolders


@dataclass(frozen=True)
class Database:
    """The tables of a folder, and of a shipped one that is only read.

    Folder and files need not exist: a table without a file has no rows.
    """

    folder: Path
    shipped: Path | None = None

    @staticmethod
    def of(folders: UserFolders) -> Database:
        """Return the database of a command."""
        return Database(folders.database, folders.shipped_database)

    @property
    def operator_measurements(self) -> CsvTable[MeasurementRow]:
        """Measurements of operators."""
        return self._table("operator_measurements", MeasurementRow)

    @property
    def full_model_measurements(self) -> CsvTable[MeasurementRow]:
        """Measurements of whole models."""
        return self._table("full_model_measurements", MeasurementRow)

    @property
    def sentinel_measurements(self) -> CsvTable[MeasurementRow]:
        """Measurements of the drift check, the addition that campaigns repeat."""
        return self._table("sentinel_measurements", MeasurementRow)

    @property
    def meter_qualifications(self) -> CsvTable[QualificationRow]:
        """Qualifications of boards' meters."""
        return self._table("meter_qualifications", QualificationRow)

    @property
    def calls_in_chains(self) -> CsvTable[ChainRow]:
        """Measurements of chains, from which cache corrections are derived."""
        return self._table("calls_in_chains", ChainRow)

    @property
    def kernel_times(self) -> CsvTable[KernelTimeRow]:
        """Kernel times of models, by kind of operator."""
        return self._table("kernel_times", KernelTimeRow)

    @property
    def model_operators(self) -> CsvTable[ModelOperatorRow]:
        """Operator tuples of measured models."""
        return self._table("model_operators", ModelOperatorRow)

    @property
    def failures(self) -> CsvTable[FailureRow]:
        """Operators and models that could not be measured."""
        return self._table("failures", FailureRow)

    @property
    def sweep_repetitions(self) -> CsvTable[SweepRepetitionRow]:
        """Repetitions of sweeps over input sizes."""
        return self._table("sweep_repetitions", SweepRepetitionRow)

    @property
    def sweep_failures(self) -> CsvTable[SweepFailureRow]:
        """Sizes of sweeps that could not be measured."""
        return self._table("sweep_failures", SweepFailureRow)

    @property
    def sweep_kernels(self) -> CsvTable[SweepKernelRow]:
        """Kernels of each size of sweeps."""
        return self._table("sweep_kernels", SweepKernelRow)

    @property
    def sweep_sizes(self) -> CsvTable[SweepSizeRow]:
        """The newest medians and predictions of each size of sweeps."""
        return self._table("sweep_sizes", SweepSizeRow)

    @property
    def power_caps(self) -> CsvTable[PowerCapRow]:
        """Measurements of models and commands under power caps."""
        return self._table("power_caps", PowerCapRow)

    @property
    def sum_vs_full(self) -> CsvTable[ComparisonRow]:
        """The newest comparison of each model's sum with the whole model."""
        return self._table("sum_vs_full", ComparisonRow)

    @property
    def power_logs(self) -> Path:
        """The folder of raw power logs."""
        return self.folder / "power_logs"

    @property
    def evidence(self) -> tuple[CsvTable[Any], ...]:
        """The tables that are only appended to."""
        return (
            self.operator_measurements,
            self.full_model_measurements,
            self.sentinel_measurements,
            self.meter_qualifications,
            self.calls_in_chains,
            self.kernel_times,
            self.model_operators,
            self.failures,
            self.sweep_repetitions,
            self.sweep_failures,
            self.sweep_kernels,
            self.power_caps,
        )

    @property
    def tables(self) -> tuple[CsvTable[Any], ...]:
        """All tables, including those without a file."""
        return (*self.evidence, self.sum_vs_full, self.sweep_sizes)

    @property
    def parts(self) -> tuple[Database, ...]:
        """The folder's own tables, and the shipped ones if there are any, each as a database."""
        return (Database(self.folder), *(() if self.shipped is None else (Database(self.shipped),)))

    def read_once(self) -> ReadDatabase:
        """Return the same tables, of which each line is parsed at most once."""
        return ReadDatabase(self.folder, self.shipped)

    def unfinished_lines(self) -> list[Path]:
        """Return the files that hold unfinished last lines of tables, left by a crash."""
        return sorted(self.folder.glob(f"*.csv{TORN}"))

    def _table(self, name: str, row_type: type[Row]) -> CsvTable[Row]:
        shipped = None if self.shipped is None else self.shipped / f"{name}.csv"
        return CsvTable(self.folder / f"{name}.csv", row_type, shipped)

    def must_exist(self) -> None:
        """Check that the folder exists, or that there is a shipped one.

        Raises:
            UserError: it does not.
        """
        if self.shipped is None and not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such folder; name the folder of a database")


@dataclass(frozen=True)
class ReadDatabase(Database):
    """A database for commands that only read: each line of a table is parsed at most once."""

    _read: dict[str, CsvTable[Any]] = field(default_factory=dict, compare=False, repr=False)

    def read_once(self) -> ReadDatabase:
        """Return this database."""
        return self

    def _table(self, name: str, row_type: type[Row]) -> CsvTable[Row]:
        if name not in self._read:
            shipped = None if self.shipped is None else self.shipped / f"{name}.csv"
            self._read[name] = ReadTable(self.folder / f"{name}.csv", row_type, shipped)
        return self._read[name]
