"""Rows of the table of models' operators, so that every sum can be made without counting the model again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from opcost.columns import COUNT, MOMENT, Column, Values, between, cell_of, cell_reader, grouped, shared_fields
from opcost.operators.counts import (
    CAPTURED,
    MODEL,
    Case,
    CaseColumns,
    CountedCall,
    CountedRun,
    OperationWithoutFormula,
    OperatorCount,
    OperatorCounts,
    case_columns,
    cases_of_count,
    completed,
    tuple_key,
)
from opcost.operators.input_roles import shown_inputs
from opcost.operators.reuse import Reuse, is_reuse, parse_reuse
from opcost.operators.texts import parse_operator
from opcost.operators.training import whole_case
from opcost.operators.tuples import META, Count, OperatorTuple
from opcost.operators.values import InputData, InputStatistics, parse_input_data

MAXIMUM_CALLS = 1_000_000
"""The most calls of one operator in one run of a model. The statistics of each call are kept in memory."""

MODELS_KEPT = 512
"""The models whose counts are kept for rows that are read again: parsing them takes most of the time of a command."""


@dataclass(frozen=True, kw_only=True)
class ModelOperatorRow(CountedCall, CountedRun, CaseColumns):
    """One case in one run of a model, or of a grid, whose calls are its tuples.

    The first row of a model is the model itself as an operator tuple, with the FLOPs and bytes of the whole run. Its
    ``composites`` do not repeat ``counts.COMPOSITES``. Its ``without_formula`` has the name, the calls and the bytes of
    each operation: ``aten::linalg_inv_ex 3 5120``. ``input_data`` of a model counted on the meta device is unknown
    and given as ``normal``.
    """

    ORDER: ClassVar = (
        *("model_key", "key", "model", "operator", "parameters", "inputs", "training_mode", "input_data", "calls"),
        *("flop", "memory_bytes", "outputs", "weights", "outside", "composites", "without_formula", "torch_version"),
        *("device_type", "counted_at", "operations"),
    )
    """The fields of the table's first versions; others follow."""

    model_key: Annotated[str, Column("hash of the model's operator tuple")]
    key: Annotated[str, Column("hashes of operator tuple and input data: the beginning of a measurement's key")]
    model: Annotated[str, MODEL]
    calls: Annotated[
        int,
        Column(
            "calls on this input data in one run; 1 for the model itself",
            between(f"1 to {MAXIMUM_CALLS}", 1, MAXIMUM_CALLS),
        ),
    ]
    weights: Annotated[int | None, Column("number of the model's parameters, in its own row only", COUNT)]
    counted_at: Annotated[str, Column("time of the count", MOMENT)]
    reuse: Annotated[
        tuple[tuple[Annotated[str, Values("distances", is_reuse)], Count], ...],
        Column(
            "how far back the calls' data and code were used, such as `0,37;250;3;40;90 12` for 12 calls: since each "
            "input, and since the weights, were used, the run used so many tenths of MB of distinct memory; since the "
            "same kernels ran, so many other kinds of calls; between two uses of the results at most so many tenths of "
            "MB, and since the same kernels ran; empty if all is unknown, and in the model's own row",
            Values("distances and numbers", lambda found: all(0 < number <= MAXIMUM_CALLS for _, number in found)),
        ),
    ] = ()


@dataclass(frozen=True)
class ShippedCounts:
    """A model's counts from the database, and the time of the count (ISO 8601)."""

    counts: OperatorCounts
    counted_at: str


def rows_of(name: str, counts: OperatorCounts, counted_at: str) -> list[ModelOperatorRow]:
    """Return the rows of a model's counts before any whitelist, the model first; ``counted_at`` is UTC (ISO 8601)."""
    whole = ModelOperatorRow(
        model_key=counts.model.key,
        model=name,
        **_of_case(whole_case(counts.model)),
        **shared_fields(counts, CountedRun),
        calls=1,
        flop=counts.total_flop,
        memory_bytes=counts.total_memory_bytes,
        weights=counts.parameters,
        without_formula=tuple(cell_of((one,)) for one in counts.without_formula),
        counted_at=counted_at,
    )
    of_model = {field.name: field.default for field in fields(CountedRun) if field.default is not MISSING}
    part = replace(whole, weights=None, **of_model)
    parts = (
        replace(part, **(_of_case(case) | shared_fields(count, CountedCall)), calls=calls, reuse=reuse_of(count, case))
        for count in counts.counts
        for case, calls in cases_of_count(count, CAPTURED)
    )
    return [whole, *parts]


def reuse_of(count: OperatorCount, case: Case) -> tuple[tuple[str, int], ...]:
    """Return the texts of the reuse distances of a case's calls, each with its number of calls; none if unknown."""
    if not count.reuse:
        return ()
    data = count.data_of_calls or (case.input_data,) * count.occurrences
    texts = Counter(one.text for one, of_call in zip(count.reuse, data, strict=True) if of_call == case.input_data)
    return tuple(sorted(texts.items()))


def counts_of(rows: Iterable[ModelOperatorRow]) -> tuple[ShippedCounts, ...]:
    """Return the counts that a model's rows describe, one for each set of composites that it was counted with.

    The rows may be of several configs and counts: those with input statistics win over those of shapes only, and later
    ones over earlier ones. Each call's statistics are those of its kind of values, so that ``cases_of`` returns the
    same kinds. Raises ``ValueError`` if a row describes no operator tuple, or that of the model itself is missing.
    """
    return _counts_of(tuple(rows))


@lru_cache(MODELS_KEPT)
def _counts_of(rows: tuple[ModelOperatorRow, ...]) -> tuple[ShippedCounts, ...]:
    # Two runs that ended at the same time may both have added the same rows. A row of an older table, which lacks
    # columns, is the same as the row that has them. So is one whose bytes were counted by other rules: the first one
    # counts.
    once: dict[tuple[object, ...], ModelOperatorRow] = {}
    costs = [field.name for field in fields(CountedCall)]
    for row in rows:
        content = tuple((vars(row) | dict.fromkeys(costs)).values())
        once[content] = completed(once[content], row) if content in once else row
    of_run = grouped(once.values(), lambda row: (row.counted_at, row.model))
    best: dict[tuple[str, ...], ShippedCounts] = {}
    for (counted_at, _), of_one in sorted(of_run.items(), key=lambda item: (item[1][0].device_type != META, item[0])):
        counts = _counts_of_run(of_one)
        best[counts.composites] = ShippedCounts(counts, counted_at)
    return tuple(best.values())


def _counts_of_run(rows: Sequence[ModelOperatorRow]) -> OperatorCounts:
    whole, *parts = rows
    model = _operator(whole)
    if model.key != whole.model_key or whole.weights is None or any(part.weights is not None for part in parts):
        raise ValueError(f"{whole.model!r}: the row of the model itself is missing, or is there twice")
    if whole.flop is None:
        raise ValueError(f"{whole.model!r}: the row of the model itself has no FLOPs")
    read_gaps = cell_reader(tuple[OperationWithoutFormula, ...])
    return OperatorCounts(
        model=model,
        counts=tuple(_counts(parts)),
        total_flop=whole.flop,
        total_memory_bytes=whole.memory_bytes,
        parameters=whole.weights,
        without_formula=read_gaps(cell_of(whole.without_formula)) if whole.without_formula else (),
        **shared_fields(whole, CountedRun),
    )


def _of_case(case: Case) -> dict[str, Any]:
    return {"key": case.key, **case_columns(case)}


def _operator(row: ModelOperatorRow) -> OperatorTuple:
    operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
    if operator.key != tuple_key(row.key):
        raise ValueError(f"{row.operator!r}: its key is that of another operator tuple")
    return operator


def _counts(rows: Iterable[ModelOperatorRow]) -> Iterator[OperatorCount]:
    """Yield the count of each operator tuple in each phase. Its rows differ in input data and calls only."""
    for kinds in grouped(rows, lambda row: (tuple_key(row.key), row.phase)).values():
        first, operator = kinds[0], _operator(kinds[0])
        if (first.flop is None) != bool(first.without_formula):
            raise ValueError(f"{first.operator!r}: its FLOPs do not match its operations without a formula")
        data: list[InputData] = []
        statistics: list[tuple[InputStatistics, ...]] = []
        reuse: list[Reuse] = []
        for row in kinds:
            numbers = sum(number for _, number in row.reuse)
            if numbers not in (0, row.calls):
                raise ValueError(f"{row.operator!r}: its reuse distances do not match its calls")
            reuse += [parse_reuse(text) for text, number in row.reuse for _ in range(number)]
            one = parse_input_data(row.input_data)
            data += [one] * row.calls
            if first.device_type != META:
                inputs = range(len(shown_inputs(operator)))
                statistics += [tuple(one.kind(index).statistics() for index in inputs)] * row.calls
        yield OperatorCount(
            operator=operator,
            occurrences=sum(row.calls for row in kinds),
            **shared_fields(first, CountedCall),
            statistics=tuple(statistics),
            weight_zeros=tuple(one.weight_zeros_ratio for one in data)
            if any(one.weight_zeros_ratio for one in data)
            else (),
            patterns=tuple(tuple(pattern.value for pattern in one.patterns) for one in data)
            if any(one.patterns for one in data)
            else (),
            reuse=tuple(reuse) if len(reuse) == len(data) else (),
        )
