"""Files of the layers of a metered loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opcost.errors import UserError
from opcost.metering.layer_rows import MeteredLayerRow
from opcost.storage.files import replace_file
from opcost.storage.table import CsvTable


def write_layers(path: Path, rows: Sequence[MeteredLayerRow]) -> None:
    """Write rows to a CSV file in the place of what was there.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        replace_file(path, CsvTable(path, MeteredLayerRow).text(rows).encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from error
