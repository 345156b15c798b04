"""Holdings of a database: the models that are complete under each set of conditions, and what the others lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from opcost.measuring.conditions import CHANNELS_LAST, Conditions
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES
from opcost.measuring.protocol import usual_protocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.cases import CAPTURED, Case, cases_of, conditions_key, of_operators, tuple_key
from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import (
    AUTOCAST,
    DTYPE,
    FLOAT32,
    MEMORY_FORMAT,
    OperatorTuple,
    storage_form,
    tensor_specs,
    value_text,
)
from opcost.operators.whitelist import EVERYTHING, select
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.running.expected_times import WHOLLY_READ_BYTES, sizes_in
from opcost.running.request import Request
from opcost.running.shipped_counts import counts_in, identity_of, with_newer_pickles
from opcost.storage.database import Database
from opcost.summing.summation import Measurements


@dataclass(frozen=True)
class PartialModel:
    """A model of which ``missing`` of ``tuples`` operator tuples lack a row, and the time to measure these in s."""

    name: str
    tuples: int
    missing: int
    expected_s: float


@dataclass(frozen=True)
class Holdings:
    """The rows under one set of conditions.

    ``tuples`` and ``wholes`` are the numbers of operator tuples and of whole models with a row. A model is ``complete``
    if each operator that computes something has a row on each kind of values that it has in the model. The ``partial``
    ones have some, those that lack the fewest first. ``missing`` is the number of tuples that any of these lacks, and
    ``expected_s`` the time to measure them, each once.
    """

    conditions: Conditions
    tuples: int
    wholes: int
    complete: tuple[str, ...]
    partial: tuple[PartialModel, ...]
    missing: int
    expected_s: float


def holdings(request: Request, execution: str | None = None, device: str | None = None) -> list[Holdings]:
    """Return what the database holds under each set of conditions, most tuples first, of GPUs first.

    The request's device is not used. ``execution`` is None for both; ``device`` is a type, or a part of a product's
    name, None for all. Raises UserError: a table is damaged; or there is no such model, device or folder.
    """
    request.database.must_exist()
    database = request.database.read_once()
    configs = request.models() if request.names else request.folders.readable()
    # Operators that compute something: the counts in the database, or newer pickles of the configs.
    counted = with_newer_pickles(counts_in(database.model_operators), configs)
    models = {
        identity: select(counts, (EVERYTHING,)).kept for identity, counts in counted.items() if not counts.model.is_grid
    }
    counts = [count for one in models.values() for count in one.counts]
    rows, tuples = _rows(database, of_operators(count.operator for count in counts))
    wholes = database.full_model_measurements.rows()
    all_conditions = dict.fromkeys(row.conditions for row in (*rows, *wholes))
    meant = [one for one in all_conditions if is_meant(device, one)]
    if device is not None and not meant:
        refuse_unknown(device, (one.device_product for one in all_conditions))
    chosen = [one for one in meant if execution in (None, one.execution)]
    sizes = {count.operator.key: Size(count.flop, count.memory_bytes) for count in counts}
    # Any conditions of a product give its expected times.
    of_product = {one.device_product: one for one in chosen}
    all_sizes = {**sizes_in(database.model_operators), **sizes}
    times = {product: ExpectedTimes(one, rows, all_sizes) for product, one in of_product.items()}
    measurements = Measurements(rows)
    # Of several configs of a model in one precision the first.
    names = {(identity_of(one), one.precision): one.name for one in reversed(configs)}
    found = []
    for one in chosen:
        of_names = {identity: names.get((identity, one.precision)) for identity in models}
        if not request.names:
            runs = (identity for identity, name in of_names.items() if name is None)
            of_names |= {identity: _usual_name(models[identity].model, identity[1], one.precision) for identity in runs}
        named = [(name, models[identity]) for identity, name in of_names.items() if name is not None]
        numbers = len(tuples.get(one.key, ())), len({tuple_key(row.key) for row in wholes if row.conditions == one})
        own = (row.circumstances for row in rows if row.conditions == one)
        protocol = usual_protocol(own, is_gpu=one.device_type != "cpu")
        expected_s = partial(times[one.device_product].item_s, conditions=one, protocol=protocol)
        found.append(_holdings(one, numbers, named, measurements, expected_s))
    found.sort(key=lambda one: (-one.tuples, -one.wholes))
    return sorted(found, key=lambda one: (one.conditions.device_type == "cpu", one.conditions.device_product))


def _rows(
    database: Database, of_models: Callable[[str], bool]
) -> tuple[Sequence[MeasurementRow], Mapping[str, Collection[str]]]:
    """Return the rows of operators (of a large table those wanted), and the keys of all tuples by conditions."""
    table = database.operator_measurements
    is_small = table.size_bytes <= WHOLLY_READ_BYTES
    tuples: dict[str, set[str]] = {}

    def is_wanted(key: str) -> bool:
        found = tuples.setdefault(conditions_key(key), set())
        is_first = not found
        found.add(tuple_key(key))
        return is_first or is_small or of_models(key)

    return table.rows(is_wanted), tuples


def _holdings(
    conditions: Conditions,
    numbers: tuple[int, int],
    models: Iterable[tuple[str, OperatorCounts]],
    measurements: Measurements,
    expected_s: Callable[[Case], float],
) -> Holdings:
    complete: list[str] = []
    begun: list[PartialModel] = []
    expected_of: dict[Case, float] = {}
    for name, counts in models:
        # A model without any row under these very conditions is not begun.
        if not measurements.has_any(counts, conditions):
            continue
        missing = (case for case in cases_of(counts.counts, CAPTURED) if measurements.find(case, conditions) is None)
        of_model = {case: expected_s(case) for case in missing}
        if of_model:
            tuples = {case.operator for case in of_model}
            begun.append(PartialModel(name, len(counts.counts), len(tuples), sum(of_model.values())))
        else:
            complete.append(name)
        expected_of |= of_model
    return Holdings(
        conditions,
        *numbers,
        complete=tuple(sorted(complete)),
        partial=tuple(sorted(begun, key=lambda one: (one.missing, one.name))),
        missing=len({case.operator for case in expected_of}),
        expected_s=sum(expected_of.values()),
    )


def _usual_name(model: OperatorTuple, composites: Sequence[str], precision: str) -> str | None:
    """Return a name like those of folders, with the sizes of all inputs, and the other properties of a model.

    Such as ``resnet50_32x3x224x224, seed 1``. It is None if the weights or the autocast are not those of the precision.
    """
    dtype, is_channels_last = storage_form(model)
    if (dtype, dict(model.parameters).get(AUTOCAST)) != (
        DTYPES.get(precision, FLOAT32),
        AUTOCAST_DTYPES.get(precision),
    ):
        return None
    specs = tensor_specs(model.arguments)
    name = "_".join([model.short_name, *("x".join(map(str, spec.shape)) for spec in specs)])
    further = (one for one in model.parameters if one[0] not in (AUTOCAST, DTYPE, MEMORY_FORMAT))
    texts = (f"{key} {value_text(value)}" for key, value in further)
    return ", ".join([name, *[CHANNELS_LAST] * is_channels_last, *texts, *composites])
