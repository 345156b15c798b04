"""The database: the tables of one folder, and the folder of raw power logs.

Only this module knows the names of the files and the types of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opcost.comparing.cache_chains import ChainRow
from opcost.comparing.kernel_times import KernelTimeRow
from opcost.comparing.row import ComparisonRow
from opcost.errors import UserError
from opcost.measuring.meter_quality import QualificationRow
from opcost.measuring.record import FailureRow, MeasurementRow
from opcost.operators.model_rows import ModelOperatorRow
from opcost.storage.table import TORN, CsvTable


@dataclass(frozen=True)
class Database:
    """The tables of a folder. Folder and files need not exist: a table without a file has no rows."""

    folder: Path

    @property
    def operator_measurements(self) -> CsvTable[MeasurementRow]:
        """Measurements of operators."""
        return CsvTable(self.folder / "operator_measurements.csv", MeasurementRow)

    @property
    def full_model_measurements(self) -> CsvTable[MeasurementRow]:
        """Measurements of whole models."""
        return CsvTable(self.folder / "full_model_measurements.csv", MeasurementRow)

    @property
    def sentinel_measurements(self) -> CsvTable[MeasurementRow]:
        """Measurements of the drift check, the addition that campaigns repeat."""
        return CsvTable(self.folder / "sentinel_measurements.csv", MeasurementRow)

    @property
    def meter_qualifications(self) -> CsvTable[QualificationRow]:
        """Qualifications of boards' meters."""
        return CsvTable(self.folder / "meter_qualifications.csv", QualificationRow)

    @property
    def calls_in_chains(self) -> CsvTable[ChainRow]:
        """Measurements of chains, from which cache corrections are derived."""
        return CsvTable(self.folder / "calls_in_chains.csv", ChainRow)

    @property
    def kernel_times(self) -> CsvTable[KernelTimeRow]:
        """Kernel times of models, by kind of operator."""
        return CsvTable(self.folder / "kernel_times.csv", KernelTimeRow)

    @property
    def model_operators(self) -> CsvTable[ModelOperatorRow]:
        """Operator tuples of measured models."""
        return CsvTable(self.folder / "model_operators.csv", ModelOperatorRow)

    @property
    def failures(self) -> CsvTable[FailureRow]:
        """Operators and models that could not be measured."""
        return CsvTable(self.folder / "failures.csv", FailureRow)

    @property
    def sum_vs_full(self) -> CsvTable[ComparisonRow]:
        """The newest comparison of each model's sum with the whole model."""
        return CsvTable(self.folder / "sum_vs_full.csv", ComparisonRow)

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
        )

    @property
    def tables(self) -> tuple[CsvTable[Any], ...]:
        """All tables, including those without a file."""
        return (*self.evidence, self.sum_vs_full)

    def unfinished_lines(self) -> list[Path]:
        """Return the files that hold unfinished last lines of tables, left by a crash."""
        return sorted(self.folder.glob(f"*.csv{TORN}"))

    def must_exist(self) -> None:
        """Check that the folder exists.

        Raises:
            UserError: it does not.
        """
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such folder; name the folder of a database")
