"""Figures of claims about the wholes that sums are compared with: held out by date, protocols, boards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from claim_formats import MINUS, board_of, change_percent, days, milliseconds, percent
from claim_tables import committed
from claims_of_boards import counted_models
from claims_of_rows import WHOLES, in_graphs
from claims_of_sums import complete_sums, model_name
from sum_vs_full import corrected

from opcost.comparing.compare import Evidence, compare, summed
from opcost.comparing.comparison import USUAL_RUNS
from opcost.comparing.power_limit import THROTTLED_SHARE
from opcost.measuring.record import MeasurementRow
from opcost.measuring.throttling import HARDLY_THROTTLED_RATIO
from opcost.operators.keys import tuple_key
from opcost.operators.whitelist import Selection
from opcost.summing.index import Measurements, best_of_each_board
from opcost.summing.summation import ModelCost

FROZEN = "2026-11-27"
"""The day since which wholes were measured after chains and rules of the cache correction had last changed."""

SHORT_S = 4.5e-3
"""The time below which wholes gain from the cache correction (``docs/log/sums.md``, fifty models)."""

OWN_BOARD_RATIO = 0.95
ONE_BOARD_RATIO = 0.99
COSTS = {"time": "time_s", "energy": "energy_j"}


@dataclass(frozen=True)
class Beside:
    """A whole of a model, the sum beside it, and what corrects the sum."""

    model: str
    selection: Selection
    whole: MeasurementRow
    cost: ModelCost
    corrections: dict[str, float]

    @property
    def board_ratio(self) -> float:
        """The share of the summed time that was measured on the whole's board."""
        return self.cost.board_ratio(self.whole.circumstances.device_uuid)

    @property
    def throttled(self) -> dict[str, float]:
        """The times of summed rows that were throttled, by their keys."""
        parts = self.cost.parts
        known = [part for part in parts if (part.row.measurement.power_capped_ratio or 0) >= HARDLY_THROTTLED_RATIO]
        return {part.row.key: part.time_s for part in known}

    def off(self, cost: ModelCost | None = None) -> tuple[float, float]:
        """Return the errors in time and energy of the corrected sum, or of another sum with its corrections."""
        cost = cost or self.cost
        energy_j = cost.basis.energy_of(self.whole)
        if cost.time_s is None or cost.energy_j is None or energy_j is None:
            raise ValueError(f"{self.model}: the sum or the whole has no energy")
        return (
            (cost.time_s.value + self.corrections["time"]) / self.whole.measurement.time_s - 1,
            (cost.energy_j.value + self.corrections["energy"]) / energy_j.value - 1,
        )


def held_out(root: Path) -> dict[str, str]:
    """Return the errors of corrected sums whose wholes are later than the method, and the mean errors of all."""
    sums = published_sums(root)
    wholes = wholes_of(root, sums)
    is_at_limit = sums["power_limit_time_s"].fillna(0) > 0
    is_later, is_short = wholes["started_at"] >= FROZEN, sums["full_time_s"] < SHORT_S
    found = {
        "models_at_the_limit": " and ".join(sorted(map(model_name, sums.index[is_at_limit]))),
        "held_out_wholes": str(is_later.sum()),
        "held_out_wholes_days": days(wholes["started_at"][is_later]),
        "held_out_shortest": milliseconds(sums["full_time_s"][is_later].min()),
        "short_wholes": str(is_short.sum()),
        "short_held_out_wholes": str((is_short & is_later).sum()),
    }
    for cost, column in COSTS.items():
        off = corrected(sums, column) / sums[f"full_{column}"] - 1
        later = off[is_later].abs()
        mean, error = 100 * off.mean(), 100 * off.std() / np.sqrt(len(off))
        found |= {
            f"held_out_wholes_{cost}_median": percent(later.median()),
            f"held_out_wholes_{cost}_95": percent(later.quantile(0.95)),
            f"held_out_wholes_{cost}_worst_only": percent(later.max()),
            f"held_out_wholes_{cost}_worst": f"{percent(later.max())} ({model_name(str(later.idxmax()))})",
            f"{cost}_bias": f"{mean:+.1f} ± {error:.1f} %".replace("-", MINUS),
        }
    return found


def protocols(root: Path) -> dict[str, str]:
    """Return how the wholes were measured: the number of brief warm-ups, the lengths of their loops, their builds."""
    wholes = wholes_of(root, published_sums(root))
    brief = wholes[wholes["warm_up_s"] < 1]
    return {
        "brief_wholes": str(len(brief)),
        "brief_warm_up": f"{brief['warm_up_s'].max():.1f} s",
        "brief_loop_shortest": f"{brief['loop_time_s'].min():.1f} s",
        "brief_loop_longest": f"{brief['loop_time_s'].max():.0f} s",
        "brief_below_1_s": str((brief["loop_time_s"] < 1).sum()),
        "brief_builds": f"{brief['builds'].min():.0f}",
        "long_wholes": str(len(wholes) - len(brief)),
    }


def sums_on_boards(root: Path) -> dict[str, str]:
    """Return the shares of sums on their wholes' boards, their throttled rows, and the error beside every whole."""
    beside = sums_beside_wholes(root)
    shipped = shipped_sums(root)
    shares = pd.Series({one.model: one.board_ratio for one in shipped})
    throttled = pd.Series({one.model: sum(one.throttled.values()) / _time_s(one.cost) for one in shipped})
    own = [
        (one.model, board_of(one.whole.circumstances.device_uuid or ""), one.whole.measurement.started_at, *one.off())
        for one in beside
        if one.board_ratio >= OWN_BOARD_RATIO
    ]
    every = pd.DataFrame(own, columns=["model", "board", "day", *COSTS])
    time, energy = every["time"], every["energy"]
    worst = time.abs().idxmax()
    return {
        "sums_on_one_board": str((shares >= ONE_BOARD_RATIO).sum()),
        "least_on_one_board": f"{model_name(str(shares.idxmin()))} has {percent(shares.min())}",
        "throttled_rows": str(len({key for one in shipped for key in one.throttled})),
        "throttled_models": ", ".join(sorted(map(model_name, throttled[throttled > THROTTLED_SHARE].index))),
        "throttled_most": f"{percent(throttled.max())} of {model_name(str(throttled.idxmax()))}",
        "every_whole": str(len(every)),
        "every_whole_models": str(every["model"].nunique()),
        "every_whole_time_median": percent(time.abs().median()),
        "every_whole_time_worst": change_percent(time[worst]),
        "every_whole_time_worst_model": model_name(every["model"][worst]),
        "every_whole_time_worst_board": every["board"][worst],
        "every_whole_days": days(every["day"]),
        "every_whole_energy_median": percent(energy.abs().median()),
        "every_whole_energy_worst": percent(energy.abs().max()),
    }


def sums_of_other_boards(root: Path) -> dict[str, str]:
    """Return the errors of sums without any operator of the whole's board, beside those of the shipped sums."""
    shipped = shipped_sums(root)
    product = shipped[0].whole.conditions.device_product
    rows = [row for row in committed(root).operator_measurements.rows() if row.conditions.device_product == product]
    found = []
    for board in {one.whole.circumstances.device_uuid for one in shipped}:
        others = Evidence(Measurements(row for row in rows if row.circumstances.device_uuid != board))
        for one in shipped:
            if one.whole.circumstances.device_uuid == board:
                cost = summed(one.selection, one.whole, others, USUAL_RUNS)
                if not cost.missing and not any(part.is_on_other_values for part in cost.parts):
                    found.append(tuple(map(abs, (*one.off(cost), *one.off()))))
    table = pd.DataFrame(found, columns=["time", "energy", "own_time", "own_energy"])
    figures = (("median", table.median()), ("worst", table.max()))
    errors = {f"other_boards_{name}_{word}": percent(values[name]) for word, values in figures for name in table}
    return {"other_boards_models": str(len(table)), **errors}


def shipped_sums(root: Path) -> list[Beside]:
    """Return the sums that are compared in the committed table."""
    times_s = published_sums(root)["full_time_s"]
    return [one for one in sums_beside_wholes(root) if one.whole.measurement.time_s == times_s[one.model]]


@cache
def sums_beside_wholes(root: Path) -> tuple[Beside, ...]:
    """Return wholes of models at their published size with sums mostly of their boards, and the shipped ones."""
    database = committed(root)
    evidence = Evidence(Measurements(database.operator_measurements.rows()), database.calls_in_chains.rows())
    selections = {one.kept.model.key: (name, one) for name, one in counted_models(database)}
    shipped_s, found = published_sums(root).set_index("key")["full_time_s"], []
    for whole in best_of_each_board(database.full_model_measurements.rows()):
        if whole.key not in shipped_s:
            continue
        name, selection = selections[tuple_key(whole.key)]
        cost = summed(selection, whole, evidence, USUAL_RUNS)
        is_of_board = cost.board_ratio(whole.circumstances.device_uuid) >= OWN_BOARD_RATIO
        if not cost.missing and (is_of_board or whole.measurement.time_s == shipped_s[whole.key]):
            gap = compare(selection, whole, evidence, cost=cost).gap
            parts = [part for part in (gap.correction, gap.power_limit) if part is not None]
            corrections = {
                "time": sum(part.time_s.value for part in parts),
                "energy": sum(part.energy_j.value for part in parts if part.energy_j is not None),
            }
            found.append(Beside(name, selection, whole, cost, corrections))
    return tuple(found)


def published_sums(root: Path) -> pd.DataFrame:
    """Return the committed sums of all operators of the models at their published size, by config."""
    return complete_sums(root).query("counted == 'all' and is_published_size").set_index("name")


def wholes_of(root: Path, sums: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the wholes that sums are compared with, by config."""
    wholes = in_graphs(root, WHOLES).set_index(["key", "time_s"])
    found = wholes.loc[list(zip(sums["key"], sums["full_time_s"], strict=True))]
    return found.set_index(sums.index)


def _time_s(cost: ModelCost) -> float:
    return sum(part.time_s for part in cost.parts)
