"""Figures of claims about predicted costs: operators are held out from the committed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from claim_formats import days, percent
from claim_tables import committed, usual_conditions

from opcost.comparing.completed import Completion
from opcost.comparing.ranking import ModelFigures, sum_errors_by_correction
from opcost.comparing.ranking_row import RankingSource
from opcost.measuring.conditions import EAGER, GRAPH
from opcost.operators.counts import OperatorCount, memory_bytes_of
from opcost.prediction.port import KnownCost, known_costs
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, rates_of
from opcost.running.request import Request
from opcost.stages.ranking_data import RankingData, read_ranking_data
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements

QUANTILE = 0.95


def held_out_kinds(root: Path) -> dict[str, str]:
    """Return the error of a predicted kind of operators that has no row, as a share of its predicted cost."""
    graph, eager = (
        _held_out(*_data(root, execution), basis)
        for execution, basis in ((GRAPH, EnergyBasis.NORMALISED), (EAGER, EnergyBasis.MEASURED))
    )
    return graph | {f"eager_{name}": figure for name, figure in eager.items()}


def _held_out(data: RankingData, figures: Sequence[ModelFigures], basis: EnergyBasis) -> dict[str, str]:
    counts = data.operator_counts.values()
    known = known_costs(counts, data.measurements, figures[0].conditions, basis)
    kinds = sorted({one.count.operator.short_name for one in known})
    errors = np.array([error for kind in kinds for error in _errors(kind, known, figures)])
    time, energy = np.quantile(np.abs(errors), QUANTILE, axis=0, method="higher")
    return {
        "held_out_models": str(len(figures)),
        "held_out_cases": str(len(errors)),
        "held_out_kinds": str(len(kinds)),
        "held_out_time_95": f"{time:.2f}",
        "held_out_energy_95": f"{energy:.2f}",
        "held_out_days": days(pd.Series([row.measurement.started_at for row in _used(figures)])),
    }


def _errors(kind: str, known: Sequence[KnownCost], figures: Sequence[ModelFigures]) -> Iterator[tuple[float, float]]:
    """Yield actual over predicted time and energy, minus 1, of a kind in each model that is mostly of other kinds."""
    others = [one for one in known if one.count.operator.short_name != kind]
    sizes = [(one.count.flop, one.count.memory_bytes) for one in others]
    time = rates_of(list(zip(sizes, [one.time_s for one in others], strict=True)))
    with_energy = [(size, one.energy_j) for size, one in zip(sizes, others, strict=True) if one.energy_j is not None]
    energy = rates_of(with_energy)
    for figure in figures:
        cost = figure.cost
        own = [count for count in cost.summed if count.operator.short_name == kind]
        if own and _largest_share(own, cost.summed) <= 1 - MOSTLY_KNOWN_RATIO:
            parts = [part for part in cost.parts if part.case.operator.short_name == kind]
            predicted = [
                sum(count.occurrences * rates.cost(count.flop, count.memory_bytes) for count in own)
                for rates in (time, energy)
            ]
            actual = (sum(part.time_s for part in parts), sum(part.energy_j for part in parts))
            yield actual[0] / predicted[0] - 1, actual[1] / predicted[1] - 1


def _largest_share(part: Sequence[OperatorCount], whole: Sequence[OperatorCount]) -> float:
    flops = [sum(count.occurrences * count.flop for count in counts) for counts in (part, whole)]
    return max(memory_bytes_of(part) / memory_bytes_of(whole), flops[0] / max(1, flops[1]))


def whitelisted_sums(root: Path) -> dict[str, str]:
    """Return how far sums are off whose operators outside of the shipped whitelist are predicted, not measured."""
    data, figures = _data(root, GRAPH)
    whitelist = Request((), root / "measurements", committed(root)).whitelist()
    kept = [row for row in data.operator_rows if row.operator.rpartition(".")[2] in whitelist]
    filtered = replace(data, operator_rows=kept, measurements=Measurements(kept))
    completion = Completion(data.all_counts, filtered.measurements)
    errors = sum_errors_by_correction(figures)
    off, within, shares = [], 0, []
    for partial in filtered.figures(figures[0].conditions):
        if partial.whole is None or partial.cost is None or partial.is_complete:
            continue
        found = RankingSource(
            completion.completed(replace(partial, whole=None)), errors[partial.correction is not None], None
        )
        if found.model.time_s is None or found.model.energy_j is None:
            continue
        if found.expected_time_error_ratio is None or found.expected_energy_error_ratio is None:
            # A sum above the power limit is no cost of a run.
            continue
        whole_j = partial.cost.basis.energy_of(partial.whole).value
        time = found.model.time_s.value / partial.whole.measurement.time_s - 1
        energy = found.model.energy_j.value / whole_j - 1
        off.append((abs(time), abs(energy)))
        shares.append(found.predicted_time_s / found.model.time_s.value)
        expected = found.expected_time_error_ratio, found.expected_energy_error_ratio
        # It is unknown for a sum that draws more than the power limit.
        within += None not in expected and abs(time) <= expected[0] and abs(energy) <= expected[1]
    median, worst = np.median(off, axis=0), np.max(off, axis=0)
    return {
        "predicted_models": str(len(off)),
        "predicted_within": str(within),
        "predicted_share_most": percent(max(shares)),
        "predicted_time_median": percent(median[0]),
        "predicted_time_worst": percent(worst[0]),
        "predicted_energy_median": percent(median[1]),
        "predicted_energy_worst": percent(worst[1]),
    }


def _data(root: Path, execution: str) -> tuple[RankingData, list[ModelFigures]]:
    """Return the committed rows, and the models of which all operators are measured, under the usual conditions."""
    request = Request((), root / "measurements", committed(root))
    data = read_ranking_data(request, request.configs(), ())
    conditions = usual_conditions(row for row in data.operator_rows if row.conditions.execution == execution)
    return data, [figure for figure in data.figures(conditions) if figure.is_complete]


def _used(figures: Sequence[ModelFigures]) -> Iterator:
    return (part.row for figure in figures for part in figure.cost.parts)
