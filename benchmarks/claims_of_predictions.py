"""Figures of claims about predicted costs: operators are held out from the committed rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from claim_tables import committed, usual_conditions

from opcost.comparing.model_result import ModelResult
from opcost.measuring.conditions import EAGER, GRAPH
from opcost.operators.counts import OperatorCount, memory_bytes_of
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, KnownCost, known_costs, rates_of
from opcost.running.request import Request
from opcost.stages.ranking_data import RankingData, read_ranking_data
from opcost.storage.configs import ModelFolders
from opcost.summing.summation import EnergyBasis

QUANTILE = 0.95


def held_out_kinds(root: Path) -> dict[str, str]:
    """Return the error of a predicted kind of operators that has no row, as a share of its predicted cost."""
    graph, eager = (
        _held_out(*_data(root, execution), basis)
        for execution, basis in ((GRAPH, EnergyBasis.NORMALISED), (EAGER, EnergyBasis.MEASURED))
    )
    return graph | {f"eager_{name}": figure for name, figure in eager.items()}


def _held_out(data: RankingData, figures: Sequence[ModelResult], basis: EnergyBasis) -> dict[str, str]:
    counts = data.operator_counts.values()
    known = known_costs(counts, data.evidence.measurements, figures[0].conditions, basis)
    kinds = sorted({one.count.operator.short_name for one in known})
    errors = np.array([error for kind in kinds for error in _errors(kind, known, figures)])
    time, energy = np.quantile(np.abs(errors), QUANTILE, axis=0, method="higher")
    return {"held_out_kinds": str(len(kinds)), "held_out_time_95": f"{time:.2f}", "held_out_energy_95": f"{energy:.2f}"}


def _errors(kind: str, known: Sequence[KnownCost], figures: Sequence[ModelResult]) -> Iterator[tuple[float, float]]:
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


def _data(root: Path, execution: str) -> tuple[RankingData, list[ModelResult]]:
    """Return the committed rows, and the models of which all operators are measured, under the usual conditions."""
    request = Request((), ModelFolders(root / "measurements"), committed(root))
    data = read_ranking_data(request, request.configs(), ())
    conditions = usual_conditions(row for row in data.operator_rows if row.conditions.execution == execution)
    return data, [figure for figure in data.results(conditions) if figure.is_complete]
