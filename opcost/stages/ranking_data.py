"""The data of a ranking of models: their counts and wholes, and the rows and FLOPs of all measured operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import opcost
from opcost.columns import form_of, grouped
from opcost.comparing.model_result import Evidence, ModelResult
from opcost.comparing.ranking import Differences, SumErrors, sum_errors
from opcost.comparing.roofline import Roofline, roofline_of_rows
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions
from opcost.measuring.protocol import protocol_options
from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.measuring.setting import are_chosen, is_meant
from opcost.operators.counts import (
    EVERYTHING,
    CountsByPhase,
    OperatorCounts,
    Selection,
    of_operators,
    of_phase,
    select,
    tuple_key,
)
from opcost.operators.training import PARTS
from opcost.operators.tuples import short_hash
from opcost.prediction.learned_costs import from_bytes, to_bytes
from opcost.running.request import Request, leave_out
from opcost.running.shipped_counts import (
    TableCounts,
    counts_in,
    counts_of_operators,
    identity_of,
    in_table,
    without_newer_pickle,
)
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.files import keep, kept
from opcost.storage.model_counts import COUNTS
from opcost.summing.summation import NOTHING_SUMMED, Measurements, best_of_each_board, common_basis


@dataclass(frozen=True)
class BoardDifferences:
    """The number of boards, and the largest of their costs of a model over the smallest, minus 1, in time and energy.

    The differences are None if no model is measured on two boards.
    """

    boards: int
    time: Differences | None
    energy: Differences | None


def board_differences(wholes: Iterable[Sequence[MeasurementRow]]) -> BoardDifferences:
    """Return how far boards differ in models, each with its rows of all boards. Flagged rows are left out."""
    groups = [[row for row in rows if not is_doubtful(row)] for rows in wholes]
    times = [[row.measurement.time_s for row in rows] for rows in groups]
    energies = [map(common_basis(rows).energy_of, rows) for rows in groups]
    known = [[energy_j.value for energy_j in own if energy_j is not None] for own in energies]
    found: list[Differences | None] = []
    for costs in (times, known):
        ratios = [max(of_model) / min(of_model) - 1 for of_model in costs if len(of_model) > 1]
        found.append(Differences(len(ratios), median(ratios), max(ratios)) if ratios else None)
    return BoardDifferences(len({row.circumstances.device_uuid for rows in groups for row in rows}), *found)


def named_as(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a result that its config gives."""
    return {"name": config.name, "input_size": config.shape, "units": config.units}


@dataclass(frozen=True)
class CountedModel:
    """A config with the counts of its operators that compute something, None if it is not counted, and its wholes.

    ``parts`` are the rows of the parts of a training step, as ``wholes`` are of the whole.
    """

    config: ModelConfig
    counts: OperatorCounts | None
    wholes: tuple[MeasurementRow, ...]
    parts: tuple[MeasurementRow, ...] = ()


@dataclass(frozen=True)
class Standing:
    """How much is measured under one set of conditions, whichever models are chosen.

    ``newest`` is the end of the newest measurement, ``wholes`` the number of models with a measured whole, and
    ``measured_ratio`` the sum of the measured shares of all models' bytes.
    """

    newest: str
    wholes: int = 0
    measured_ratio: float = 0.0


@dataclass(frozen=True)
class Summary:
    """The findings of all rows and models of a mode under one set of conditions; the chosen models change none.

    ``protocol_options`` are those of a command that measures as most rows were.
    """

    roofline: Roofline | None
    errors: SumErrors
    errors_corrected: SumErrors
    boards: BoardDifferences
    protocol_options: tuple[str, ...]


@dataclass(frozen=True)
class RankingData:
    """All models, and the rows of their operators and of cache chains.

    ``operator_counts`` has the FLOPs and bytes of each operator in the database, whether or not its model has a config.
    ``newest`` has each set of conditions with the time of its newest row. ``idle_powers_w`` are those of boards by the
    newest qualification that has one. ``overview`` is that of all models, if these are some of them.
    """

    models: tuple[CountedModel, ...]
    operator_rows: Sequence[MeasurementRow]
    operator_counts: CountsByPhase
    evidence: Evidence
    newest: Mapping[Conditions, str]
    idle_powers_w: Mapping[str, float] = field(default_factory=dict)
    overview: Overview | None = field(default=None, repr=False, compare=False)
    _results: dict[tuple[str, str], ModelResult | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def standings(self) -> Mapping[Conditions, Standing]:
        """How much is measured under all conditions, of all models if there is an overview."""
        own = {one: Standing(newest) for one, newest in self.newest.items()}
        return own if self.overview is None else {**own, **self.overview.standings}

    def standing(self, conditions: Conditions) -> Standing:
        models = self._fitting(conditions)
        counts = (model.counts for model in models if model.counts is not None)
        return Standing(
            self.newest[conditions],
            sum(any(row.conditions == conditions for row in model.wholes) for model in models),
            math.fsum(self.evidence.measurements.measured_ratio(one, conditions) for one in counts),
        )

    def summary(self, conditions: Conditions) -> Summary:
        if self.overview is not None:
            return self.overview.summary(conditions)
        rows = [row for row in self.operator_rows if row.conditions == conditions]
        wholes = ([row for row in one.wholes if row.conditions == conditions] for one in self._fitting(conditions))
        errors = sum_errors(self.results(conditions))
        return Summary(
            roofline_of_rows(rows, self.operator_counts),
            errors[False],
            errors[True],
            board_differences(wholes),
            protocol_options(row.circumstances for row in rows),
        )

    def _fitting(self, conditions: Conditions) -> list[CountedModel]:
        # A model in fp32 or TF32 is the same tuple.
        return [model for model in self.models if are_chosen(conditions, model.config)]

    def results(self, conditions: Conditions, names: Collection[str] | None = None) -> list[ModelResult]:
        """Return the results of the models that are measured under some conditions, None for all; each is made once."""
        found = []
        for name, model in ((one.config.name, one) for one in self.models):
            if names is None or name in names:
                place = name, conditions.key
                if place not in self._results:
                    self._results[place] = self._result(model, conditions)
                found.append(self._results[place])
        return [one for one in found if one is not None]

    def _result(self, model: CountedModel, conditions: Conditions) -> ModelResult | None:
        # A sum that consists of rows under other conditions only is none under these.
        if not are_chosen(conditions, model.config) or not self.is_measured(model, conditions):
            return None
        selection = None if model.counts is None else select(model.counts, (EVERYTHING,))
        wholes = [row for row in model.wholes if row.conditions == conditions]
        one = self.evidence.result(selection, wholes, conditions)
        cost = one.cost if one.cost.parts else NOTHING_SUMMED
        if one.whole is None and not cost.parts:
            return None
        phases = () if model.config.training is None else self._phases(model, selection, one)
        return replace(one, cost=cost, phases=phases, **named_as(model.config))

    def _phases(self, model: CountedModel, selection: Selection | None, step: ModelResult) -> tuple[ModelResult, ...]:
        # Those under the conditions of the whole, on its board.
        place = None if step.whole is None else (step.whole.conditions, step.whole.circumstances.device_uuid)
        parts = [row for row in model.parts if (row.conditions, row.circumstances.device_uuid) == place]
        return tuple(
            self.evidence.result(
                None if selection is None else of_phase(selection, phase),
                [row for row in parts if row.phase is phase],
                step.conditions,
            )
            for phase in PARTS
        )

    def is_measured(self, model: CountedModel, conditions: Conditions) -> bool:
        """Return whether the whole of a model or any of its operators has a row under these conditions."""
        is_summed = model.counts is not None and self.evidence.measurements.has_any(model.counts, conditions)
        return is_summed or any(row.conditions == conditions for row in model.wholes)

    def has_cost(self, model: CountedModel, device: str | None) -> bool:
        """Return whether the whole of a model, or all that its operators move, is measured; on any device if None."""

        def is_own(one: Conditions) -> bool:
            return are_chosen(one, model.config) and is_meant(device, one)

        counts, ratio = model.counts, self.evidence.measurements.measured_ratio
        is_summed = counts is not None and any(ratio(counts, one) == 1 for one in filter(is_own, self.newest))
        return is_summed or any(is_own(row.conditions) for row in model.wholes)


def ranking_data(
    request: Request,
    every: Sequence[ModelConfig],
    own: Sequence[ModelConfig],
    names: Collection[str],
    cache: Path | None,
) -> RankingData:
    """Return the data of ``own`` models, of ``every`` one without any, with an overview of every one.

    The models are of one mode; ``names`` are those that the user chose. ``cache`` is that of the overview. Raises
    UserError, see ``read_ranking_data``.
    """
    overview = Overview(request, every, cache)
    if own:
        data = read_ranking_data(request, own, names, in_table(request.database, own))
    elif any(COUNTS.path(config).exists() for config in every):
        data = read_ranking_data(request, every, names)
    else:
        data = overview.everything
    return replace(data, overview=overview)


_Known: TypeAlias = tuple[Mapping[Conditions, Standing], dict[Conditions, Summary]]


class Overview:
    """Findings of all rows and models of a mode, by the counts in the table; the chosen models change none.

    ``cache`` is the folder that keeps them until tables, configs or code change; None for none. New ones take all rows.
    Its members raise UserError, see ``read_ranking_data``.
    """

    def __init__(self, request: Request, models: Sequence[ModelConfig], cache: Path | None) -> None:
        self._request, self._models, self._cache = request, models, cache

    @cached_property
    def everything(self) -> RankingData:
        return read_ranking_data(self._request, self._models, ())

    @property
    def standings(self) -> Mapping[Conditions, Standing]:
        return self._known[0]

    def summary(self, conditions: Conditions) -> Summary:
        summaries = self._known[1]
        if conditions not in summaries:
            summaries[conditions] = self.everything.summary(conditions)
            self._keep(self._known)
        return summaries[conditions]

    @cached_property
    def _known(self) -> _Known:
        content = None if self._cache is None else kept(self._names[0], self._cache)
        if content is not None:
            with suppress(LookupError, TypeError, ValueError):
                found: _Known = form_of(_Known).read(from_bytes(content))
                return found
        every = self.everything
        found = {one: every.standing(one) for one in every.newest}, {}
        self._keep(found)
        return found

    def _keep(self, known: _Known) -> None:
        if self._cache is not None:
            keep(self._names[0], to_bytes(form_of(_Known).write(known)), self._cache, self._names[1])

    @cached_property
    def _names(self) -> tuple[str, str]:
        """The name of a file for what rests on the present tables, configs and code, and a pattern of former names."""
        database = self._request.database
        tables = (
            database.operator_measurements,
            database.full_model_measurements,
            database.model_operators,
            database.calls_in_chains,
        )
        code = sorted(Path(opcost.__file__).parent.rglob("*.py"))
        files = ((str(path), path.stat()) for path in (*code, *(path for one in tables for path in one.files)))
        present = [(path, one.st_size, one.st_mtime_ns) for path, one in files], self._models
        place = short_hash(repr([str(database.folder), sorted({config.mode for config in self._models})]))
        return f"summary-{place}-{short_hash(repr(present))}.npz", f"summary-{place}-*"


def read_ranking_data(
    request: Request,
    configs: Sequence[ModelConfig],
    names: Collection[str],
    shipped: TableCounts | None = None,
    under: Collection[Conditions] | None = None,
) -> RankingData:
    """Return all that is known of these models; ``names`` are those that the user chose.

    ``shipped`` are the counts of models in the table whose operators' rows are read, None for all. ``under`` are the
    conditions of the rows that are read, None for all. Raises UserError: a table is damaged, or the counts of a named
    model are wrong. Others with wrong counts are left out with a warning.
    """
    shipped = counts_in(request.database.model_operators) if shipped is None else shipped
    read, mistakes = _counts(shipped, configs, names)
    counts = {name: select(one, (EVERYTHING,)).kept for name, one in read.items()}
    wrong = {config.name for config, _ in mistakes}
    leave_out(request, mistakes, is_error=wrong == {config.name for config in configs})
    # Grids are no models. Their counts are among those of operators.
    configs = [config for config in configs if config.name not in wrong and config.grid is None]
    operator_counts = counts_of_operators(shipped)
    database = request.database
    of_models = _restricted(of_operators(map(model_tuple, configs)), under)
    models_measured = database.full_model_measurements.rows(of_models)
    best = best_of_each_board(models_measured, with_parts=True)
    wholes, parts = (
        grouped((row for row in best if row.phase.is_part is is_part), lambda row: tuple_key(row.key))
        for is_part in (False, True)
    )
    operators = {count.operator for one in counts.values() for count in one.counts}
    operators.update(count.operator for count in operator_counts.values())
    operator_rows = database.operator_measurements.rows(_restricted(of_operators(operators), under))
    conditions: dict[str, Conditions] = {}
    newest: dict[str, str] = {}
    for row in (*models_measured, *operator_rows):
        key = row.conditions.key
        conditions[key], newest[key] = row.conditions, max(newest.get(key, ""), row.measurement.ended_at)
    return RankingData(
        models=tuple(
            CountedModel(config, counts.get(config.name), *(tuple(one.get(key, ())) for one in (wholes, parts)))
            for config, key in ((config, model_tuple(config).key) for config in configs)
        ),
        operator_rows=operator_rows,
        operator_counts=operator_counts,
        evidence=Evidence(Measurements(operator_rows), database.calls_in_chains.rows()),
        newest={conditions[key]: ended_at for key, ended_at in newest.items()},
        idle_powers_w={
            row.device_uuid: row.idle_power_w
            for row in sorted(database.meter_qualifications.rows(), key=lambda row: row.qualified_at)
            if row.device_uuid is not None and row.idle_power_w is not None
        },
    )


def _restricted(wanted: Callable[[str], bool], under: Collection[Conditions] | None) -> Callable[[str], bool]:
    if under is None:
        return wanted
    suffixes = tuple(f"-{one.key}" for one in under)
    return lambda key: key.endswith(suffixes) and wanted(key)


def _counts(
    shipped: TableCounts, configs: Sequence[ModelConfig], names: Collection[str]
) -> tuple[Mapping[str, OperatorCounts], list[tuple[ModelConfig, UserError]]]:
    """Return the counts in the table, and in newer pickles of these names; and wrong pickles."""
    found = {config.name: one.counts for config in configs if (one := shipped.get(identity_of(config))) is not None}
    mistakes: list[tuple[ModelConfig, UserError]] = []
    chosen = [config for config in configs if config.name in names]
    current = without_newer_pickle(shipped, chosen)
    for config in chosen:
        if config.name not in current and COUNTS.path(config).exists():
            try:
                found[config.name] = COUNTS.read(config)
            except UserError as error:
                mistakes.append((config, error))
    return found, mistakes
