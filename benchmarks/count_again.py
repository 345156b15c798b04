"""Count the operator tuples of tables of models' operators again, by the present rules

Each tuple is rebuilt and runs once on shapes, which needs neither its model nor the library of the model. Its bytes are
renewed if it does the same work as in its model: the same outputs, FLOPs and operations, and the table has the bytes of
all of its tensors in full, by which former versions counted. The model's own bytes change by the same. All other cells
stay as they are. Tuples that differ otherwise are named: a GPU has kernels of its own, and autocast casts inputs.
With --reuse, calls get reuse distances from counts of the same models, perhaps on shapes (opcost count --meta). Which
of a tuple's calls have which input data is unknown then: 204 of 10,735 tuples have such calls, in several states.
Example: PYTHONPATH=. python benchmarks/count_again.py database
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from opcost.errors import CannotMeasureError
from opcost.operators.counts import OperatorCount
from opcost.operators.model_rows import ModelOperatorRow
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import META, OperatorTuple, value_text
from opcost.storage.counts_file import read_counts
from opcost.storage.database import Database
from opcost.storage.files import replace_file
from opcost.torch_backend.alone import replay
from opcost.torch_backend.cost_counter import OperationCost, is_free, operations_of, tensor_bytes, tensors_of, total
from opcost.torch_backend.formulas import ASKED_FOR_FORM, READ, WRITTEN
from opcost.torch_backend.workload import REFUSED, one_line

TOUCHED = READ.keys() | WRITTEN.keys() | ASKED_FOR_FORM.keys()
"""Operations of which not all tensors count in full."""

ON_GPU = "cuda"


class InFull(TorchDispatchMode):
    """While active, adds up the bytes of all inputs and outputs of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.memory_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not is_free(func):
            inputs = {id(tensor): tensor for tensor in tensors_of((args, kwargs))}
            self.memory_bytes += sum(map(tensor_bytes, [*inputs.values(), *tensors_of(result)]))
        return result


@dataclass(frozen=True)
class Alone:
    """A tuple that ran alone on shapes: its outputs and cost, and the bytes of all of its tensors in full."""

    outputs: str
    cost: OperationCost
    operations: tuple[tuple[str, int], ...]
    in_full_bytes: int


@lru_cache(None)
def alone(operator: OperatorTuple) -> Alone | str:
    """Return the work of a tuple alone, or the reason why it does not run."""
    in_full = InFull()
    try:
        outputs, costs = replay(operator, META, lambda: in_full)
    except CannotMeasureError as error:
        return str(error)
    except REFUSED as error:
        return one_line(error)
    return Alone(value_text(outputs), total(costs), operations_of(costs), in_full.memory_bytes)


@dataclass
class Recount:
    """The changes of a table: tuples with their bytes before and after, and why rows that differ are kept."""

    adds_operations: bool
    changed: dict[OperatorTuple, tuple[int, int]] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)

    def of(self, rows: list[ModelOperatorRow]) -> Iterator[ModelOperatorRow]:
        """Yield the rows of a table, those of models with the changes of all of their operators."""
        parts = [row if row.weights is not None else self._part(row) for row in rows]
        more: Counter[tuple[str, str, str]] = Counter()
        for old, new in zip(rows, parts, strict=True):
            more[_run(new)] += new.calls * (new.memory_bytes - old.memory_bytes)
        for row in parts:
            for name in TOUCHED.intersection(row.outside):
                self.kept[f"{name} is in no tuple of {row.model}"] += 1
            yield row if row.weights is None else replace(row, memory_bytes=row.memory_bytes + more[_run(row)])

    def _part(self, row: ModelOperatorRow) -> ModelOperatorRow:
        """Return the row of an operator by the present rules."""
        operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
        found = alone(operator)
        reason = found if isinstance(found, str) else _difference(row, found)
        if reason is not None or isinstance(found, str):
            self.kept[f"{row.operator}: {reason}"] += 1
            return row
        if row.memory_bytes != found.cost.memory_bytes:
            self.changed[operator] = row.memory_bytes, found.cost.memory_bytes
        is_named = self.adds_operations and not row.operations and row.device_type != ON_GPU
        operations = found.operations if is_named else row.operations
        return replace(row, memory_bytes=found.cost.memory_bytes, operations=operations)


def with_reuse(rows: list[ModelOperatorRow], measurements: Path) -> Iterator[ModelOperatorRow]:
    """Yield rows with the reuse distances of pickled counts, where these have as many calls of the tuple."""
    counts: dict[tuple[str, str], OperatorCount] = {}
    for path in measurements.rglob("operators.pkl"):
        for count in read_counts(path, "opcost count").counts:
            counts[path.parent.name, count.operator.key] = count
    calls, given = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows:
        calls[_tuple(row)] += row.calls
    for row in rows:
        name, found = _tuple(row), counts.get(_tuple(row))
        if row.weights is not None or found is None or calls[name] != len(found.reuse):
            yield row
            continue
        texts = Counter(one.text for one in found.reuse[given[name] : given[name] + row.calls])
        given[name] += row.calls
        yield replace(row, reuse=tuple(sorted(texts.items())), weight_bytes=found.weight_bytes)


def _tuple(row: ModelOperatorRow) -> tuple[str, str]:
    return row.model, parse_operator(row.operator, row.parameters, row.inputs, row.training_mode).key


def _run(row: ModelOperatorRow) -> tuple[str, str, str]:
    return row.model, row.model_key, row.counted_at


def _difference(row: ModelOperatorRow, found: Alone) -> str | None:
    """Return in what a tuple alone differs from its row other than by the rules for bytes; None if in nothing."""
    if value_text(row.outputs) != found.outputs:
        return "other outputs"
    if row.flop != found.cost.flop:
        return "other FLOPs"
    if row.memory_bytes == found.cost.memory_bytes:
        return None
    if row.operations not in ((), found.operations):
        return "other operations"
    is_touched = any(name in TOUCHED for name, _ in found.operations)
    return None if is_touched and row.memory_bytes == found.in_full_bytes else "other bytes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path, nargs="+", help="folder whose model_operators.csv is renewed")
    parser.add_argument("--operations", action="store_true", help="add them where they are unknown, if not of a GPU")
    parser.add_argument("--reuse", type=Path, help="folder of measurements with counts that have reuse distances")
    arguments = parser.parse_args()
    for folder in arguments.database:
        table, recount = Database(folder).model_operators, Recount(arguments.operations)
        old = table.rows()
        new = list(recount.of(old))
        if arguments.reuse:
            new = list(with_reuse(new, arguments.reuse))
        if new != old:
            replace_file(table.path, table.text(new).encode())
        changes = sum(one != other for one, other in zip(old, new, strict=True))
        print(f"{table.path}: {changes} of {len(old)} rows changed")
        for operator, (before, after) in recount.changed.items():
            print(f"  {operator}: {before} -> {after} bytes")
        for reason, rows in recount.kept.most_common():
            print(f"  {rows} rows kept: {reason}")


if __name__ == "__main__":
    main()
