"""The database: the tables of one folder, and the raw logs of power beside them.

Only this module knows the files' names and which rows each one holds.
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
    """The tables of a folder. Neither the folder nor any file need be there: a table without a file has no rows."""

    folder: Path

    @property
    def operator_measurements(self) -> CsvTable[MeasurementRow]:
        """What calls of operator tuples cost."""
        return CsvTable(self.folder / "operator_measurements.csv", MeasurementRow)

    @property
    def full_model_measurements(self) -> CsvTable[MeasurementRow]:
        """What runs of whole models cost."""
        return CsvTable(self.folder / "full_model_measurements.csv", MeasurementRow)

    @property
    def sentinel_measurements(self) -> CsvTable[MeasurementRow]:
        """What one operator costs that is measured again and again in campaigns."""
        return CsvTable(self.folder / "sentinel_measurements.csv", MeasurementRow)

    @property
    def meter_qualifications(self) -> CsvTable[QualificationRow]:
        """What the meters of boards are worth."""
        return CsvTable(self.folder / "meter_qualifications.csv", QualificationRow)

    @property
    def calls_in_chains(self) -> CsvTable[ChainRow]:
        """What calls take longer in chains than alone."""
        return CsvTable(self.folder / "calls_in_chains.csv", ChainRow)

    @property
    def kernel_times(self) -> CsvTable[KernelTimeRow]:
        """Kernel times of models by kind of operator."""
        return CsvTable(self.folder / "kernel_times.csv", KernelTimeRow)

    @property
    def model_operators(self) -> CsvTable[ModelOperatorRow]:
        """What measured models call in one run."""
        return CsvTable(self.folder / "model_operators.csv", ModelOperatorRow)

    @property
    def failures(self) -> CsvTable[FailureRow]:
        """What could not be measured."""
        return CsvTable(self.folder / "failures.csv", FailureRow)

    @property
    def sum_vs_full(self) -> CsvTable[ComparisonRow]:
        """Sums of operators beside whole models: the newest comparison of each."""
        return CsvTable(self.folder / "sum_vs_full.csv", ComparisonRow)

    @property
    def power_logs(self) -> Path:
        """The folder of raw power logs."""
        return self.folder / "power_logs"

    @property
    def evidence(self) -> tuple[CsvTable[Any], ...]:
        """The tables to which rows are only added."""
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
        """All tables, whether there is a file or not."""
        return (*self.evidence, self.sum_vs_full)

    def unfinished_lines(self) -> list[Path]:
        """Return the files in which last lines were set aside that a crash had left unfinished."""
        return sorted(self.folder.glob(f"*.csv{TORN}"))

    def must_exist(self) -> None:
        """Refuse a folder that is not there.

        Raises:
            UserError: there is none.
        """
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: there is no such folder; name the folder of a database")
