"""Holdings of a database: the models that are complete under each set of conditions, and what the others lack."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost.measuring.conditions import AUTOCAST_DTYPES, CHANNELS_LAST, DTYPES, Conditions
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
from opcost.running.shipped_counts import Identity, counts_in, identity_of, with_newer_pickles
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database
from opcost.summing.index import Measurements


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


@dataclass(frozen=True)
class _Held:
    """The rows of a database, the counts of models by their identities, and the names of configs.

    ``rows`` of a large table are those of counted operators, and one under each set of conditions; ``tuples`` has the
    keys of all operators by that of the conditions. If ``are_chosen``, only the models of these configs are wanted,
    each in its config's precision.
    """

    rows: Sequence[MeasurementRow]
    tuples: Mapping[str, Collection[str]]
    wholes: Sequence[MeasurementRow]
    measurements: Measurements
    models: Mapping[Identity, OperatorCounts]
    names: Mapping[tuple[Identity, str], str]
    are_chosen: bool

    def name_of(self, identity: Identity, precision: str) -> str | None:
        """Return a model's name in a precision, that of its config or one that its tuple gives; None if not wanted."""
        name = self.names.get((identity, precision))
        if name is not None or self.are_chosen:
            return name
        model = self.models[identity].model
        return ", ".join([_usual_name(model), *identity[1]]) if _runs_in(model, precision) else None

    def sizes(self, database: Database) -> Mapping[str, Size]:
        """Return the sizes of operators by the keys of their tuples."""
        counts = (count for one in self.models.values() for count in one.counts)
        own = {count.operator.key: Size(count.flop, count.memory_bytes) for count in counts}
        return sizes_in(database.model_operators) | own


def holdings(request: Request, execution: str | None = None, device: str | None = None) -> list[Holdings]:
    """Return what the database holds under each set of conditions, most tuples first, of GPUs first.

    Args:
        request: which models, all if none is named, and the folders; its device is not used.
        execution: one of ``EXECUTIONS``, None for both.
        device: a type, or a part of a product's name, None for all.

    Raises:
        UserError: a table is damaged; or there is no such model, device or folder.
    """
    request.database.must_exist()
    database = request.database.read_once()
    held = _held(database, request)
    all_conditions = dict.fromkeys(row.conditions for row in (*held.rows, *held.wholes))
    meant = [one for one in all_conditions if is_meant(device, one)]
    if device is not None and not meant:
        refuse_unknown(device, (one.device_product for one in all_conditions))
    chosen = [one for one in meant if execution in (None, one.execution)]
    # Any conditions of a product give its expected times.
    of_product = {one.device_product: one for one in chosen}
    sizes = held.sizes(database)
    times = {product: ExpectedTimes(one, held.rows, sizes) for product, one in of_product.items()}
    found = [_holdings(held, one, times[one.device_product]) for one in chosen]
    return sorted(found, key=lambda one: (*_product(one.conditions), -one.tuples, -one.wholes))


def _product(conditions: Conditions) -> tuple[bool, str]:
    return conditions.device_type == "cpu", conditions.device_product


def _held(database: Database, request: Request) -> _Held:
    are_chosen = bool(request.names)
    configs = request.models() if are_chosen else request.folders.readable()
    table, wholes = database.operator_measurements, database.full_model_measurements.rows()
    models = _models(database, configs)
    of_models = of_operators(count.operator for counts in models.values() for count in counts.counts)
    is_small = table.size_bytes <= WHOLLY_READ_BYTES
    tuples: dict[str, set[str]] = {}

    def is_wanted(key: str) -> bool:
        found = tuples.setdefault(conditions_key(key), set())
        is_first = not found
        found.add(tuple_key(key))
        return is_first or is_small or of_models(key)

    rows = table.rows(is_wanted)
    # Of several configs of a model in one precision the first.
    names = {(identity_of(one), one.precision): one.name for one in reversed(configs)}
    return _Held(rows, tuples, wholes, Measurements(rows), models, names, are_chosen)


def _models(database: Database, configs: Sequence[ModelConfig]) -> dict[Identity, OperatorCounts]:
    """Return the counts of operators that compute something: those in the database, or newer pickles of the configs."""
    found = with_newer_pickles(counts_in(database.model_operators), configs)
    models = {identity: counts for identity, counts in found.items() if not counts.model.is_grid}
    return {identity: select(counts, (EVERYTHING,)).kept for identity, counts in models.items()}


def _holdings(held: _Held, conditions: Conditions, times: ExpectedTimes) -> Holdings:
    rows = [row for row in held.rows if row.conditions == conditions]
    wholes = {tuple_key(row.key) for row in held.wholes if row.conditions == conditions}
    protocol = usual_protocol((row.circumstances for row in rows), is_gpu=conditions.device_type != "cpu")
    complete: list[str] = []
    partial: list[PartialModel] = []
    expected_of: dict[Case, float] = {}
    for identity, counts in held.models.items():
        name = held.name_of(identity, conditions.precision)
        # A model without any row under these very conditions is not begun.
        if name is None or not held.measurements.has_any(counts, conditions):
            continue
        cases = cases_of(counts.counts, CAPTURED)
        missing = [case for case in cases if held.measurements.find(case, conditions) is None]
        expected_s = {case: times.item_s(case, conditions, protocol) for case in missing}
        if missing:
            partial.append(PartialModel(name, len(counts.counts), _tuples(missing), sum(expected_s.values())))
        else:
            complete.append(name)
        expected_of |= expected_s
    return Holdings(
        conditions=conditions,
        tuples=len(held.tuples.get(conditions.key, ())),
        wholes=len(wholes),
        complete=tuple(sorted(complete)),
        partial=tuple(sorted(partial, key=lambda one: (one.missing, one.name))),
        missing=_tuples(expected_of),
        expected_s=sum(expected_of.values()),
    )


def _tuples(cases: Iterable[Case]) -> int:
    return len({case.operator for case in cases})


def _runs_in(model: OperatorTuple, precision: str) -> bool:
    """Return whether the dtype of a model's weights and its autocast are those of a precision."""
    dtype, _ = storage_form(model)
    wanted = DTYPES.get(precision, FLOAT32), AUTOCAST_DTYPES.get(precision)
    return (dtype, dict(model.parameters).get(AUTOCAST)) == wanted


def _usual_name(model: OperatorTuple) -> str:
    """Return a name like those of folders, with the sizes of all inputs, and the other properties of a model.

    Such as ``resnet50_32x3x224x224, seed 1``.
    """
    specs = tensor_specs([*model.inputs, *(value for _, value in model.keyword_inputs)])
    name = "_".join([model.short_name, *("x".join(map(str, spec.shape)) for spec in specs)])
    layout = [CHANNELS_LAST] * storage_form(model)[1]
    further = (one for one in model.parameters if one[0] not in (AUTOCAST, DTYPE, MEMORY_FORMAT))
    return ", ".join([name, *layout, *(f"{key} {value_text(value)}" for key, value in further)])
