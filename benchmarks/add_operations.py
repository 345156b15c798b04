"""Adds the ATen operations of each operator tuple to tables of models' operators that lack them

Each tuple is rebuilt and run once on shapes. One that cannot be rebuilt, or that has other FLOPs or bytes than in the
table, stays without operations: it may have run others. All other cells stay as they are.
Example: PYTHONPATH=. python benchmarks/add_operations.py database
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from opcost.errors import CannotMeasureError
from opcost.operators.keys import tuple_key
from opcost.operators.model_rows import ModelOperatorRow, operations_text
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import META
from opcost.storage.database import Database
from opcost.storage.files import replace_file
from opcost.torch_backend.differences import replay
from opcost.torch_backend.flops import operations_of, total
from opcost.torch_backend.workload import REFUSED


def with_operations(rows: Iterable[ModelOperatorRow]) -> Iterator[ModelOperatorRow]:
    """Yield the rows of a table, those of operators with their operations."""
    known: dict[str, str | None] = {}
    for row in rows:
        if row.operations is not None or row.weights is not None:
            yield row
            continue
        key = tuple_key(row.key)
        if key not in known:
            known[key] = operations_alone(row)
        yield replace(row, operations=known[key])


def operations_alone(row: ModelOperatorRow) -> str | None:
    """Return the operations of a row's operator, run alone; None if its FLOPs or bytes are not those of the row."""
    operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
    try:
        _, costs = replay(operator, META)
    except (CannotMeasureError, *REFUSED):
        return None
    cost = total(costs)
    is_same = (cost.flop, cost.memory_bytes) == (row.flop, row.memory_bytes)
    return operations_text(operations_of(costs)) if is_same else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path, nargs="+", help="folder whose model_operators.csv is renewed")
    for folder in parser.parse_args().database:
        table = Database(folder).model_operators
        rows = list(with_operations(table.rows()))
        replace_file(table.path, table.text(rows).encode())
        without = {row.operator for row in rows if row.operations is None and row.weights is None}
        print(f"{table.path}: {len(rows)} rows; without operations: {', '.join(sorted(without)) or 'none'}")


if __name__ == "__main__":
    main()
