"""Advice on the whitelist: its coverage of each model, and the operators that a target coverage needs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from opcost.comparing.coverage import Addition, Costs, costs_of, over_all, share_of, smallest_whitelist, to_add, total
from opcost.comparing.model_result import Evidence, ModelResult
from opcost.errors import UserError
from opcost.estimates import FloatArray, value_of
from opcost.invocation import command
from opcost.measuring.conditions import WARM, Conditions
from opcost.measuring.record import MeasurementRow, ran_as_requested
from opcost.measuring.setting import are_chosen, is_meant, refuse_unknown
from opcost.operators.counts import OperatorCounts, Selection, names_kept, of_operators, tuple_key
from opcost.prediction.rates import MINIMUM_KNOWN, CostModel, fitted, known_costs, quartiles
from opcost.running.request import Request
from opcost.running.shipped_counts import counted_or_shipped, shipped_counts
from opcost.storage.configs import ModelConfig, replace_whitelist
from opcost.storage.model_counts import COUNTS
from opcost.summing.summation import Measurements, best_of_each_board, sum_operators
from opcost.units import some_of

TIE_WEIGHT = 0.5
"""Weight of the mean sum, which is at most 1: of equally small choices, the one with the largest sum."""


@dataclass(frozen=True)
class ModelAdvice:
    """A whitelist's coverage of one model, or the mean of all (``name`` is None), and the operators to add.

    Ratios are shares of the costs of all operators, or of the measured whole, None if unknown. ``measured_ratio`` of
    the time is measured (``doubtful_ratio`` by flagged rows), and the rest is estimated from FLOPs and bytes.
    ``additions`` are those that reach the target, for all models those that are not in the whitelist.
    """

    name: str | None
    time_ratio: float
    energy_ratio: float | None
    measured_ratio: float
    doubtful_ratio: float
    whole_time_ratio: float | None
    whole_energy_ratio: float | None
    is_reached: bool
    additions: tuple[Addition, ...]


@dataclass(frozen=True)
class Advice:
    """A whitelist's coverage of some models, the conditions of the costs, and the smallest sufficient whitelist.

    ``estimated_ratios`` are the quartiles of estimated over measured time of the measured operators. ``no_longer`` are
    the present whitelist's operators that are not in the smallest one.
    """

    target_ratio: float
    conditions: Conditions
    estimated_ratios: tuple[float, float, float]
    models: tuple[ModelAdvice, ...]
    all_models: ModelAdvice
    smallest: tuple[str, ...]
    no_longer: tuple[str, ...]


def advise(request: Request, target_ratio: float, write: bool) -> Advice:
    """Return the whitelist's coverage of each chosen model that is counted.

    Costs hold under the conditions in which most operators of these models are measured. Models of another precision
    are left out with a warning. Costs of other operators are estimated from all counted models, named or not.
    ``target_ratio`` is a share of each model's time and energy. With ``write``, the smallest whitelist that reaches it
    replaces the present one. Raises UserError: nothing is counted, or too little is measured.
    """
    models = counted_or_shipped(request, request.models())
    whitelist = names_kept(request.whitelist(), (count for _, counts in models for count in counts.counts))
    known = _known(request, models)
    # Operators of another precision have other costs.
    own = [model for model in models if are_chosen(known.conditions, model[0])] or models
    others = [config.name for config, _ in models if all(config is not one for one, _ in own)]
    if others:
        text = "left out, because costs are those of precision: %s: %s; name them to see theirs"
        logging.getLogger(__name__).warning(text, known.conditions.precision, some_of(others))
    results = {}
    for config, counts in own:
        # Of all operators: also those that compute nothing, if they are measured.
        selection = Selection(counts, replace(counts, counts=()))
        wholes = [whole for whole in known.wholes if tuple_key(whole.key) == counts.model.key]
        one = known.evidence.result(selection, wholes, known.conditions)
        if not wholes:
            one = replace(one, cost=sum_operators(counts, known.evidence.measurements, known.conditions))
        results[config.name] = replace(one, name=config.name)
    costs = _known_costs_of(results.values(), known.predictor)
    advised = [_advice(results[name], costs[name], whitelist, target_ratio) for name in costs]
    smallest = smallest_whitelist(list(costs.values()), target_ratio, smallest_cover)
    if write:
        _refuse_guesses(costs, known.conditions)
        path = request.folders.own_copy(request.folders.whitelist)
        replace_whitelist(path, smallest)
        logging.getLogger(__name__).warning("%s: replaced; run %s", path, command("filter"))
    energies = [one.energy_ratio for one in advised if one.energy_ratio is not None]
    on_average = ModelAdvice(
        name=None,
        time_ratio=sum(one.time_ratio for one in advised) / len(advised),
        energy_ratio=sum(energies) / len(energies) if energies else None,
        measured_ratio=sum(one.measured_ratio for one in advised) / len(advised),
        doubtful_ratio=sum(one.doubtful_ratio for one in advised) / len(advised),
        whole_time_ratio=None,
        whole_energy_ratio=None,
        is_reached=all(one.is_reached for one in advised),
        additions=tuple(over_all(list(costs.values()), whitelist)),
    )
    return Advice(
        target_ratio=target_ratio,
        conditions=known.conditions,
        estimated_ratios=known.estimated_ratios,
        models=tuple(advised),
        all_models=on_average,
        smallest=smallest,
        no_longer=tuple(name for name in whitelist if name not in smallest),
    )


@dataclass(frozen=True)
class _Known:
    """The rows of operators and of whole models under some conditions, and the predictor of other operators."""

    conditions: Conditions
    evidence: Evidence
    wholes: tuple[MeasurementRow, ...]
    predictor: CostModel
    estimated_ratios: tuple[float, float, float]


def _known(request: Request, models: Sequence[tuple[ModelConfig, OperatorCounts]]) -> _Known:
    table, device = request.database.operator_measurements, request.device
    all_rows = table.rows()
    if device is not None and request.is_product:
        refuse_unknown(device, (row.conditions.device_product for row in all_rows))
    rows = [row for row in all_rows if is_meant(device, row.conditions)]
    if not rows:
        where = "" if device is None else f" on {device}"
        raise UserError(
            f"{table.path}: no operator is measured{where}; run block 2 for one model, or name another folder with "
            "--database"
        )
    precisions = {config.precision for config, _ in models}
    rows = [row for row in rows if row.conditions.cache == WARM]
    fitting = [row for row in rows if row.conditions.precision in precisions] or rows
    own = {count.operator.key for _, counts in models for count in counts.counts}
    # The conditions of most of the models' operators, or of most rows if none of them is measured.
    common = [row.conditions for row in fitting if tuple_key(row.key) in own] or [row.conditions for row in fitting]
    ((conditions, _),) = Counter(common).most_common(1)
    measurements = Measurements(rows)
    everything = _all_counted(request) if request.names else [counts for _, counts in models]
    known = known_costs((count for counts in everything for count in counts.counts), measurements, conditions)
    if len(known) < MINIMUM_KNOWN:
        raise UserError(
            f"{table.path}: {len(known)} operators of the counted models are measured "
            f"on {conditions.device_product} ({conditions.execution}), too few to estimate the others; measure more "
            "with block 2, or count a measured model with block 0"
        )
    predictor = fitted(known)
    rows_of_wholes = request.database.full_model_measurements.rows(of_operators(counts.model for _, counts in models))
    under = (row for row in best_of_each_board(rows_of_wholes) if row.conditions.key == conditions.key)
    wholes = tuple(filter(ran_as_requested, under))
    return _Known(conditions, Evidence(measurements), wholes, predictor, quartiles(predictor, known))


def _all_counted(request: Request) -> list[OperatorCounts]:
    """Return the counts of all counted models, named or not, without those that have mistakes."""
    read, _ = request.folders.read(request.folders.names())
    configs = [config for config in read if config.grid is None]
    shipped, found = shipped_counts(request.database, configs), []
    for config in configs:
        with suppress(UserError):
            found.append(shipped.get(config.name) or COUNTS.read(config))
    return found


def _known_costs_of(results: Iterable[ModelResult], predictor: CostModel) -> dict[str, Costs]:
    """Return the costs of each model. Those without a known one are left out. Raises UserError: all are."""
    costs, others = {}, []
    for one in results:
        of_model = costs_of(one.cost, predictor)
        if of_model is None:
            others.append(f"{one.name} ({one.cost.flop_missing_reason})")
        else:
            costs[one.name] = of_model
    reason = "operators without a row have unknown FLOPs, so their costs cannot be estimated; measure them with block 2"
    if not costs:
        raise UserError(f"{', '.join(others)}: {reason}")
    if others:
        logging.getLogger(__name__).warning("left out: %s: %s", some_of(others), reason)
    return costs


def _refuse_guesses(costs: Mapping[str, Costs], conditions: Conditions) -> None:
    """Refuse to choose a whitelist by estimates alone, warn of models without measured operators."""
    guessed = [name for name, found in costs.items() if not total(found.values()).measured_ratio]
    if len(guessed) == len(costs):
        raise UserError(
            f"--write-whitelist: no operator of {', '.join(guessed)} is measured on {conditions.device_product} "
            f"({conditions.execution}); measure some with block 2, name other models, or another --device"
        )
    if guessed:
        text = "%d of %d models have no measured operator, their costs are estimated: %s"
        logging.getLogger(__name__).warning(text, len(guessed), len(costs), ", ".join(guessed))


def _advice(result: ModelResult, costs: Costs, whitelist: tuple[str, ...], target_ratio: float) -> ModelAdvice:
    share, of_all, whole = share_of(costs, whitelist), total(costs.values()), result.whole
    kept = [one for operator, one in costs.items() if operator in whitelist]
    whole_j = value_of(result.full_energy_j)
    has_energy = share.energy_ratio is not None and whole_j is not None
    return ModelAdvice(
        name=result.name,
        time_ratio=share.time_ratio,
        energy_ratio=share.energy_ratio,
        measured_ratio=of_all.measured_ratio,
        doubtful_ratio=of_all.doubtful_ratio,
        whole_time_ratio=None if whole is None else sum(one.time_s for one in kept) / whole.measurement.time_s,
        whole_energy_ratio=sum(one.energy_j or 0.0 for one in kept) / (whole_j or 1.0) if has_energy else None,
        is_reached=share.reaches(target_ratio),
        additions=tuple(to_add(costs, whitelist, target_ratio)),
    )


def smallest_cover(shares: FloatArray, target_ratio: float) -> tuple[int, ...]:
    """Return the fewest columns, at least one, whose sum reaches a target in each row.

    Of several choices, it is the one with the largest mean sum. ``shares`` has the share of each row that each column
    has, shape (rows, columns), none below 0, the sum of each row about 1. The target is above 0 and below 1. Raises
    ValueError: all columns together do not reach it.
    """
    columns = shares.shape[1]
    solution = milp(
        c=1 - TIE_WEIGHT * shares.mean(axis=0),
        constraints=[LinearConstraint(shares, lb=target_ratio), LinearConstraint(np.ones((1, columns)), lb=1.0)],
        bounds=Bounds(0, 1),
        integrality=np.ones(columns),
        options={"mip_rel_gap": 0.0},
    )
    if not solution.success:
        raise ValueError(f"no columns reach {target_ratio:g}: {solution.message}")
    return tuple(int(index) for index in np.flatnonzero(np.round(solution.x)))
