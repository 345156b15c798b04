"""Tables of a data set as Parquet, by pyarrow, which is an extra."""

from __future__ import annotations

import io

from opcost.comparing.data_set import DataTable, Kind
from opcost.storage.rows import cell_text


def parquet_of(table: DataTable) -> bytes:
    """Return a table as Parquet, with the types of its columns."""
    import pyarrow
    from pyarrow import parquet

    types = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    schema = pyarrow.schema([(column.name, types[column.kind]) for column in table.columns])
    columns = [
        pyarrow.array([_value(row[place], column.kind) for row in table.rows], types[column.kind])
        for place, column in enumerate(table.columns)
    ]
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), file)
    return file.getvalue()


def _value(value: object, kind: Kind) -> object:
    """Return a value of a column's type: numbers in a column of texts, and sets of flags, as in CSV."""
    if kind is str and value is not None and not isinstance(value, str):
        return cell_text(value)
    return float(value) if kind is float and isinstance(value, int) else value
