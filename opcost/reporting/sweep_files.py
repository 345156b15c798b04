"""The files of a sweep: its tables as CSV, and a folder tree for scripts that read one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.columns import by_column, columns_of
from opcost.comparing.sweep_changes import BreakLine, lines_of
from opcost.comparing.sweep_sizes import SweepSizeRow
from opcost.measuring.sweep_record import SweepKernelRow, SweepRepetitionRow
from opcost.reporting.correlations import same_information, spearman
from opcost.storage.files import replace_file

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.sweep_results import SweepResult


def write_tables(result: SweepResult, folder: Path) -> list[Path]:
    """Write sizes, repetitions, kernels, pieces and correlations as CSV files without checksums; return the files."""
    matrix = spearman(result.repetitions or result.sizes)
    contents = {
        "sizes": _rows_text(SweepSizeRow, result.sizes),
        "repetitions": _rows_text(SweepRepetitionRow, result.repetitions),
        "kernels": _rows_text(SweepKernelRow, result.kernels),
        "pieces": _table_text(
            [field.name for field in fields(BreakLine)],
            [asdict(line) for line in lines_of(result.curves)],
        ),
        "correlations": matrix.to_csv(lineterminator="\n", index_label="column"),
        "correlation_groups": _table_text(
            ["group", "column"],
            [
                {"group": number, "column": name}
                for number, names in enumerate(same_information(matrix), start=1)
                for name in names
            ],
        ),
    }
    return [_written(folder / f"{name}.csv", text) for name, text in contents.items()]


def export_tree(result: SweepResult, power_logs: Path, folder: Path) -> list[Path]:
    """Write ``input_<size>/run_<k>/`` with ``power_metrics.json`` and ``latency.csv``; return the folders of sizes.

    ``latency.csv`` has the time of each iteration that was timed one by one. It is left out if its log is not here, as
    after a clone, since logs are not in git.

    Args:
        result: of a sweep.
        power_logs: the folder with the times of iterations.
        folder: of the tree.
    """
    for row in result.repetitions:
        run = folder / f"input_{row.place.size}" / f"run_{row.repetition}"
        _written(run / "power_metrics.json", f"{json.dumps(_metrics(row), indent=2)}\n")
        log = None if row.iterations_log is None else power_logs / row.iterations_log
        if log is not None and log.is_file():
            replace_file(run / "latency.csv", log.read_bytes())
    return [folder / f"input_{size}" for size in dict.fromkeys(row.place.size for row in result.repetitions)]


def _metrics(row: SweepRepetitionRow) -> dict[str, object]:
    """Return all that is known of a repetition; figures are in SI units, unknown ones null."""
    known = by_column(row)
    known["flags"] = [flag.value for flag in row.measurement.flags]
    return known


def _rows_text(kind: Any, rows: Iterable[Any]) -> str:
    cells = [by_column(row) | ({"flags": "|".join(_flags(row))} if hasattr(row, "measurement") else {}) for row in rows]
    return _table_text([field.name for field in columns_of(kind)], cells)


def _flags(row: SweepRepetitionRow) -> list[str]:
    return [flag.value for flag in row.measurement.flags]


def _table_text(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _written(path: Path, text: str) -> Path:
    replace_file(path, text.encode())
    return path
