"""The rows and counts of models under all conditions that configs can choose, from a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opcost.comparing.compare import counted_only
from opcost.comparing.comparison import OperatorRuns
from opcost.measuring.asked_conditions import ALL_CHOICES, ChosenConditions
from opcost.measuring.conditions import WARM, Conditions
from opcost.measuring.named_device import is_meant, refuse_unknown
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import of_operators
from opcost.operators.counts import OperatorCounts
from opcost.operators.keys import conditions_key, tuple_key
from opcost.operators.whitelist import EVERYTHING, select
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO
from opcost.running.request import Request, model_tuple
from opcost.running.shipped_counts import Identity, counts_in, identity_of, with_newer_pickles
from opcost.storage.configs import ModelConfig
from opcost.summing.index import Measurements, best_of_each_board


def chosen_by(config: ModelConfig) -> ChosenConditions:
    """Return the conditions that a config chooses."""
    return ChosenConditions(config.precision, config.memory_format)


def under(config: ModelConfig, chosen: ChosenConditions) -> ModelConfig:
    """Return a config with other conditions, which need not have a folder."""
    return replace(config, precision=chosen.precision, memory_format=chosen.memory_format)


@dataclass(frozen=True)
class AgainstData:
    """The rows and counts of models under all conditions, and the choice of rows to sum.

    ``counts`` are by a config's identity, ``wholes`` by the model's key, ``boards`` (those of operators' rows) by the
    key of their conditions. ``conditions`` are those of operators' rows. ``device`` is the one whose rows are these,
    ``other_device`` the one whose rows they are compared with; None: the same, or any.
    """

    counts: Mapping[Identity, OperatorCounts]
    wholes: Mapping[str, Sequence[MeasurementRow]]
    measurements: Measurements
    conditions: Sequence[Conditions]
    boards: Mapping[str, Sequence[str | None]]
    runs: OperatorRuns
    device: str | None
    other_device: str | None = None

    def is_of(self, conditions: Conditions, is_other: bool) -> bool:
        """Return whether rows under these conditions belong to a side."""
        if self.other_device is None:
            return is_meant(self.device, conditions)
        if is_other or self.device is None:
            return is_meant(self.other_device, conditions) == is_other
        return is_meant(self.device, conditions)

    def counts_of(self, config: ModelConfig) -> OperatorCounts | None:
        """Return the operators of a model that compute something, None if it is not counted."""
        return self.counts.get(identity_of(config))

    def wholes_of(self, config: ModelConfig, conditions: Conditions) -> list[MeasurementRow]:
        return [row for row in self.wholes.get(model_tuple(config).key, ()) if row.conditions == conditions]

    def conditions_of(self, config: ModelConfig, is_other: bool = False) -> list[Conditions]:
        """Return the sets of conditions of a side under which a model, or most of its operators, is measured."""
        of_wholes = [row.conditions for row in self.wholes.get(model_tuple(config).key, ())]
        counts = self.counts_of(config)
        of_sums = [] if counts is None else [replace(one, cache=WARM) for one in self._mostly_measured(counts)]
        meant = (one for one in (*of_wholes, *of_sums) if self.is_of(one, is_other))
        return list(dict.fromkeys(one for one in meant if one.precision == config.precision))

    def _mostly_measured(self, counts: OperatorCounts) -> list[Conditions]:
        of_cache = (one for one in self.conditions if one.cache == self.runs.cache)
        return [one for one in of_cache if self.measurements.measured_ratio(counts, one) >= MOSTLY_KNOWN_RATIO]

    def measured(self, configs: Iterable[ModelConfig]) -> str:
        """Return in words which choices of conditions any of these models is measured under."""
        found = {one for config in configs for one in ALL_CHOICES if self.conditions_of(under(config, one))}
        precisions: dict[str, list[str]] = {}
        for one in ALL_CHOICES:
            if one in found:
                precisions.setdefault(one.memory_format, []).append(one.precision)
        texts = [f"memory_format={name} with precision={', '.join(own)}" for name, own in precisions.items()]
        return f"the database has {' and '.join(texts) or 'no row of such a model'}"


def read_against_data(
    request: Request, configs: Sequence[ModelConfig], runs: OperatorRuns, other_device: str | None = None
) -> AgainstData:
    """Return all that is known of these models under any conditions, and on another device if one is named.

    Raises:
        UserError: a table is damaged, or no row is of the device that is asked for.
    """
    database = request.database
    variants = [under(config, chosen) for config in configs for chosen in ALL_CHOICES]
    models = {model_tuple(variant) for variant in variants}
    measured = database.full_model_measurements.rows(of_operators(models))
    counts = _counts(request, variants, runs)
    operators = {count.operator for one in counts.values() for count in one.counts}
    rows = database.operator_measurements.rows(of_operators(operators))
    products = [row.conditions.device_product for row in (*measured, *rows)]
    if request.device is not None and request.is_product:
        refuse_unknown(request.device, products)
    if other_device is not None:
        refuse_unknown(other_device, products)
    wholes: dict[str, list[MeasurementRow]] = {}
    for row in best_of_each_board(measured):
        wholes.setdefault(tuple_key(row.key), []).append(row)
    conditions: dict[str, Conditions] = {}
    boards: dict[str, dict[str | None, None]] = {}
    for row in rows:
        key = conditions_key(row.key)
        conditions[key] = row.conditions
        boards.setdefault(key, {})[row.circumstances.device_uuid] = None
    return AgainstData(
        counts=counts,
        wholes=wholes,
        measurements=Measurements(rows),
        conditions=list(conditions.values()),
        boards={key: list(found) for key, found in boards.items()},
        runs=runs,
        device=request.device,
        other_device=other_device,
    )


def _counts(request: Request, variants: Iterable[ModelConfig], runs: OperatorRuns) -> dict[Identity, OperatorCounts]:
    """Return the counts of these models by their identity: those of block 0 in any folder, or shipped ones."""
    wanted = {identity_of(variant) for variant in variants}
    table = counts_in(request.database.model_operators, {key for key, _ in wanted}.__contains__)
    found = with_newer_pickles(table, (one for one in request.folders.readable() if identity_of(one) in wanted))
    kept = ((identity, select(counts, (EVERYTHING,))) for identity, counts in found.items() if identity in wanted)
    return {identity: counted_only(selection, runs).kept for identity, selection in kept}
