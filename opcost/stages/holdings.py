"""Holdings of a database: complete models under all conditions, what others lack, and the export of all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from opcost.columns import grouped
from opcost.comparing.data_set import DATA_SET_TITLE, data_columns, data_tables, models_table
from opcost.errors import UserError, shortened
from opcost.measuring.conditions import CHANNELS_LAST, Conditions
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES
from opcost.measuring.protocol import MeasurementProtocol, usual_protocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.counts import (
    CAPTURED,
    EVERYTHING,
    Case,
    OperatorCounts,
    cases_of,
    conditions_key,
    of_operators,
    select,
    tuple_key,
)
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
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.running.expected_times import WHOLLY_READ_BYTES, sizes_in
from opcost.running.request import Request
from opcost.running.shipped_counts import Identity, counts_in, identity_of, with_newer_pickles
from opcost.storage.configs import ModelConfig
from opcost.storage.data_files import DataFolder
from opcost.storage.database import Database
from opcost.summing.in_state import limits_of
from opcost.summing.summation import Measurements
from opcost.units import some_of


@dataclass(frozen=True)
class PartialModel:
    """A model of which ``missing`` of ``tuples`` operator tuples lack a row, and the time to measure these in s."""

    name: str
    tuples: int
    missing: int
    expected_s: float


@dataclass(frozen=True)
class HeldTier:
    """A tier of the configs under one set of conditions: the shares of its calls that have a row, and of their time.

    ``uncounted`` of ``models`` are in no share, because they have no counts. The time of calls without a row is
    expected. ``missing`` and ``expected_s`` are as in ``Holdings``.
    """

    tier: int
    models: int
    uncounted: int
    calls_ratio: float | None
    time_ratio: float | None
    missing: int
    expected_s: float


@dataclass(frozen=True)
class Holdings:
    """The tuples and wholes that have a row under one set of conditions.

    A model is ``complete`` if each operator that computes something has a row on each kind of its values. ``missing``
    is the number of tuples that any of the ``partial`` ones lacks, ``expected_s`` the time to measure each once.
    ``tiers`` are those of configs in this precision.
    """

    conditions: Conditions
    tuples: int
    wholes: int
    complete: tuple[str, ...]
    partial: tuple[PartialModel, ...]
    missing: int
    expected_s: float
    tiers: tuple[HeldTier, ...] = ()


def holdings(request: Request, execution: str | None = None, device: str | None = None) -> list[Holdings]:
    """Return what the database holds under each set of conditions, most tuples first, of GPUs first.

    ``execution`` and ``device``, a type or a part of a product's name, are None for all. Raises UserError: a table is
    damaged; or there is no such model, device or folder.
    """
    request.database.must_exist()
    database = request.database.read_once()
    configs = request.models() if request.names else request.folders.readable(with_grids=True)
    # Operators that compute something: the counts in the database, or newer pickles of the configs.
    counted = with_newer_pickles(counts_in(database.model_operators), configs)
    selected = {identity: select(counts, (EVERYTHING,)).kept for identity, counts in counted.items()}
    models = {identity: counts for identity, counts in selected.items() if not counts.model.is_grid}
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
        held = _Held(one, measurements, protocol, times[one.device_product])
        of_tiers = grouped((each for each in configs if each.tier and each.precision == one.precision), _tier)
        tiers = [held.tier(tier, of_tiers[tier], selected) for tier in sorted(of_tiers)]
        found.append(held.holdings(numbers, named, tiers))
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


def _tier(config: ModelConfig) -> int:
    return config.tier or 0


@dataclass(frozen=True)
class _Held:
    """The rows under one set of conditions, and the times of those that lack."""

    conditions: Conditions
    measurements: Measurements
    protocol: MeasurementProtocol
    times: ExpectedTimes

    def _cases(self, counts: OperatorCounts) -> Counter[Case]:
        """Return the cases of a model that have a row or are to have one, with their calls."""
        cases = cases_of(counts.counts, CAPTURED, limits := limits_of(self.conditions))
        return Counter({case: calls for case, calls in cases.items() if case.state or limits is None})

    def _missing(self, cases: Iterable[Case]) -> dict[Case, float]:
        """Return the cases without a row, and the time to measure each in s."""
        missing = (case for case in cases if self.measurements.find(case, self.conditions) is None)
        return {case: self.times.item_s(case, self.conditions, self.protocol) for case in missing}

    def tier(self, tier: int, configs: Sequence[ModelConfig], counted: Mapping[Identity, OperatorCounts]) -> HeldTier:
        identities = dict.fromkeys(map(identity_of, configs))
        calls: Counter[Case] = Counter()
        for identity in identities & counted.keys():
            calls += self._cases(counted[identity])
        missing = self._missing(calls)
        times_s = {case: number * self.times.iteration_s(case, self.conditions) for case, number in calls.items()}
        without_rows = sum(calls[case] for case in missing), sum(times_s[case] for case in missing)
        return HeldTier(
            tier,
            models=len(identities),
            uncounted=len(identities - counted.keys()),
            calls_ratio=1 - without_rows[0] / calls.total() if calls else None,
            time_ratio=1 - without_rows[1] / sum(times_s.values()) if calls else None,
            missing=len({case.operator for case in missing}),
            expected_s=sum(missing.values()),
        )

    def holdings(
        self, numbers: tuple[int, int], models: Iterable[tuple[str, OperatorCounts]], tiers: Iterable[HeldTier]
    ) -> Holdings:
        complete: list[str] = []
        begun: list[PartialModel] = []
        expected_of: dict[Case, float] = {}
        for name, counts in models:
            # A model without any row under these very conditions is not begun.
            if not self.measurements.has_any(counts, self.conditions):
                continue
            of_model = self._missing(self._cases(counts))
            if of_model:
                tuples = {case.operator for case in of_model}
                begun.append(PartialModel(name, len(counts.counts), len(tuples), sum(of_model.values())))
            else:
                complete.append(name)
            expected_of |= of_model
        return Holdings(
            self.conditions,
            *numbers,
            complete=tuple(sorted(complete)),
            partial=tuple(sorted(begun, key=lambda one: (one.missing, one.name))),
            missing=len({case.operator for case in expected_of}),
            expected_s=sum(expected_of.values()),
            tiers=tuple(tiers),
        )


def _usual_name(model: OperatorTuple, composites: Sequence[str], precision: str) -> str | None:
    """Return a name such as ``resnet50_32x3x224x224, seed 1``; None for weights of another precision."""
    dtype, is_channels_last = storage_form(model)
    wanted = DTYPES.get(precision, FLOAT32), AUTOCAST_DTYPES.get(precision)
    if (dtype, dict(model.parameters).get(AUTOCAST)) != wanted:
        return None
    specs = tensor_specs(model.arguments)
    name = "_".join([model.short_name, *("x".join(map(str, spec.shape)) for spec in specs)])
    further = (one for one in model.parameters if one[0] not in (AUTOCAST, DTYPE, MEMORY_FORMAT))
    texts = (f"{key} {value_text(value)}" for key, value in further)
    return ", ".join([name, *[CHANNELS_LAST] * is_channels_last, *texts, *composites])


# The export of a data set: a table of measurements for each kind of operator


@dataclass(frozen=True)
class ExportReport:
    """The numbers of tables, rows and wholes of an export, and of rows without FLOPs: no count has their operators."""

    tables: int
    rows: int
    wholes: int
    uncounted: int


def export(
    request: Request,
    kinds: Sequence[str],
    target: DataFolder,
    card: Callable[[Sequence[MeasurementRow], Sequence[MeasurementRow]], str],
) -> ExportReport:
    """Write the measurements of operators and of whole models as a data set.

    ``kinds`` are names of operators as in whitelists, or qualified ones, or globs; all operators and models if there is
    none. ``card`` makes the page of both. Raises UserError: a table is damaged; there is no such kind, device or row;
    or the folder holds other files.
    """
    target.check()
    request.database.must_exist()
    table = request.database.operator_measurements
    all_rows, device = table.rows(), request.device
    if not all_rows:
        raise UserError(f"{table.path}: no measurements of operators; measure some, or name another --database")
    rows = [row for row in all_rows if is_meant(device, row.conditions)]
    if device is not None and not rows:
        refuse_unknown(device, (row.conditions.device_product for row in all_rows))
    if kinds:
        wanted = _operators(kinds, {row.operator for row in rows})
        rows = [row for row in rows if row.operator in wanted]
    every_whole = () if kinds else request.database.full_model_measurements.rows()
    wholes = [row for row in every_whole if is_meant(device, row.conditions)]
    # The counts in the table and in newer pickles; those that know the operations come last, and so are kept.
    models = with_newer_pickles(counts_in(request.database.model_operators), request.folders.sound_configs())
    all_counts = (count for one in models.values() for count in one.counts)
    counts = {count.operator.key: count for count in sorted(all_counts, key=lambda count: bool(count.operations))}
    of_models = {one.model.key: one for one in models.values()}
    with _understood(table.path):
        tables = data_tables(rows, counts)
    if wholes:
        with _understood(request.database.full_model_measurements.path):
            tables.append(models_table(wholes, of_models))
    target.write(tables, data_columns(), DATA_SET_TITLE, card(rows, wholes))
    uncounted = sum(tuple_key(row.key) not in counts for row in rows)
    return ExportReport(len(tables) - bool(wholes), len(rows), len(wholes), uncounted)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Convert the error of a row that is not understood to a user's."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{path}: {shortened(str(error))}; delete the line, or restore the file") from error


def _operators(kinds: Sequence[str], operators: Collection[str]) -> set[str]:
    """Return the operators of these kinds, by qualified names or without the module. Raises UserError: one has none."""
    short = {operator: operator.rpartition(".")[2] for operator in sorted(operators)}
    found: set[str] = set()
    for kind in kinds:
        of_kind = {one for one, name in short.items() if fnmatchcase(one, kind) or fnmatchcase(name, kind)}
        if not of_kind:
            names = sorted(set(short.values()))
            known = some_of(get_close_matches(kind, names, n=1) or names)
            raise UserError(f"--kind {kind}: no row of it; there are rows of {known}")
        found |= of_kind
    return found
