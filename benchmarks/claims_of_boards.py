"""Figures of claims about differences between boards, builds and runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pandas as pd
from claim_formats import MINUS, board_of, change_percent, days, fine_percent, milliseconds, percent
from claim_tables import committed
from claims_of_rows import WHOLES, in_graphs, of_card
from claims_of_sums import SMALL_INPUTS
from repeatability import FIGURES, apart, joined, variation

from opcost.estimates import NORMAL_QUANTILE
from opcost.measuring.record import MeasurementRow
from opcost.operators.model_rows import counts_of
from opcost.operators.whitelist import EVERYTHING, Selection, select
from opcost.storage.database import Database
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements
from opcost.summing.summation import sum_operators

TWO_BOARDS = ("GPU-0d8f", "GPU-cd1b")


def two_boards(root: Path) -> dict[str, str]:
    """Return the differences of two boards: in the sums of the models that are whole on both, and in operators."""
    database = committed(root)
    wholes = [rows_of_board(database.full_model_measurements.rows(), board) for board in TWO_BOARDS]
    names = set.intersection(*({row.operator for row in rows} for rows in wholes))
    conditions = wholes[0][0].conditions
    operators = database.operator_measurements.rows()
    measured = [rows_of_board(operators, board) for board in TWO_BOARDS]
    found = [Measurements(rows) for rows in measured]
    times, energies = [], []
    for name, selection in counted_models(database):
        counts = selection.kept
        costs = [sum_operators(counts, rows, conditions, basis=EnergyBasis.NORMALISED) for rows in found]
        if counts.model.operator in names and name not in SMALL_INPUTS and not any(cost.missing for cost in costs):
            one, other = costs
            times.append(other.time_s.value / one.time_s.value - 1)
            energies.append(other.energy_j.value / one.energy_j.value - 1)
    one, other = ({row.key: row.measurement.time_s for row in rows} for rows in measured)
    apart_s = pd.Series([other[key] / one[key] - 1 for key in one.keys() & other.keys()]).abs()
    return {
        "two_boards": " and ".join(map(board_of, TWO_BOARDS)),
        "two_boards_days": days(pd.Series([row.measurement.started_at for rows in measured for row in rows])),
        "two_boards_models": str(len(times)),
        "two_boards_time_worst": fine_percent(max(map(abs, times))),
        "two_boards_time_median": fine_percent(statistics.median(map(abs, times))),
        "two_boards_energy_lowest": percent(min(energies)).replace("-", MINUS),
        "two_boards_energy_highest": percent(max(energies)).replace("-", MINUS),
        "two_boards_operators": f"{len(apart_s):,}",
        "two_boards_operator_median": percent(apart_s.median()),
        "two_boards_operator_beyond_1": str((apart_s > 0.01).sum()),
    }


def rows_of_board(rows: Iterable[MeasurementRow], board: str) -> list[MeasurementRow]:
    """Return the rows in graphs of one board; ``board`` is the beginning of its UUID."""
    uuids = ((row, row.circumstances.device_uuid or "") for row in rows if row.conditions.execution == "graph")
    return [row for row, uuid in uuids if uuid.startswith(board)]


def counted_models(database: Database) -> list[tuple[str, Selection]]:
    """Return the operators of each model, those that compute something kept, with the name of its config."""
    models = groupby(database.model_operators.rows(), key=lambda row: (row.model, row.model_key))
    return [
        (name, select(shipped.counts, [EVERYTHING]))
        for (name, _), rows in models
        for shipped in counts_of(list(rows))
        if not shipped.counts.model.is_grid
    ]


def boards(root: Path) -> dict[str, str]:
    """Return the differences of boards in the addition that is repeated throughout each campaign."""
    rows = of_card(root, "sentinel_measurements.csv")
    table = rows.groupby("device_uuid")
    time_s, energy_j = (table[column].median() for column in ("time_s", "energy_at_reference_j"))
    return {
        "boards_days": days(rows["started_at"]),
        "boards": str(len(time_s)),
        "boards_time_range": percent(time_s.max() / time_s.min() - 1),
        "boards_energy_range": percent(energy_j.max() / energy_j.min() - 1),
    }


def classes_of_boards(root: Path) -> dict[str, str]:
    """Return the two classes of boards by the energy of the drift check's addition, and how operators differ in them.

    The classes are parted where neighbouring boards differ most. Operators are of models, on boards of both classes.
    """
    of_board = of_card(root, "sentinel_measurements.csv").groupby("device_uuid")["energy_at_reference_j"].median()
    ordered = of_board.sort_values()
    first_high = int((ordered / ordered.shift()).argmax())
    classes = {"low": ordered.iloc[:first_high], "high": ordered.iloc[first_high:]}
    found = {}
    for name, energies_j in classes.items():
        found |= {
            f"{name}_class_boards": str(len(energies_j)),
            f"{name}_class_energies": f"{energies_j.min():.4f} J to {energies_j.max():.4f} J",
            f"{name}_class_range": percent(energies_j.max() / energies_j.min() - 1),
        }
    rows = in_graphs(root).dropna(subset="energy_at_reference_j")
    rows = rows[rows["flags"].isna() & rows["device_uuid"].isin(ordered.index)]
    is_high = rows["device_uuid"].isin(classes["high"].index)
    sizes = pd.read_csv(root / "database" / "model_operators.csv", usecols=["key", "memory_bytes"])
    memory_bytes = sizes.drop_duplicates("key").set_index("key")["memory_bytes"]
    medians = rows.groupby(["key", is_high])[["time_s", "energy_at_reference_j"]].median().unstack().dropna()
    energies_j, times_s = medians["energy_at_reference_j"], medians["time_s"]
    higher = energies_j[True] / energies_j[False] - 1
    moved = memory_bytes.reindex(medians.index.str.rsplit("-", n=1).str[0]).to_numpy()
    rates = moved / times_s.mean(axis="columns")
    streams, light = (rates > 4e12) & (rates < 5e12), rates < 1e12
    return found | {
        "streams": str(streams.sum()),
        "streams_higher": change_percent(higher[streams].median()),
        "light_operators": str(light.sum()),
        "light_higher": change_percent(higher[light].median()),
        "classes_time": percent((times_s[True] / times_s[False] - 1).abs().median()),
    }


def wholes_between_boards(root: Path) -> dict[str, str]:
    """Return how far the boards on which a whole model was measured are apart, from the least to the largest figure."""
    rows = in_graphs(root, WHOLES)
    of_board = rows.groupby(["key", "device_uuid"])[["time_s", "energy_at_reference_j"]].median()
    of_model = of_board.dropna().groupby("key")
    several = of_model.size() > 1
    ranges = (of_model.max() / of_model.min() - 1)[several]
    time, energy = ranges["time_s"], ranges["energy_at_reference_j"]
    return {
        "wholes_boards_models": str(len(ranges)),
        "wholes_boards_most": str(of_model.size().max()),
        "wholes_boards_days": days(rows.loc[rows["key"].isin(ranges.index), "started_at"]),
        "wholes_boards_time_median": percent(time.median()),
        "wholes_boards_time_worst": percent(time.max()),
        "wholes_boards_energy_median": percent(energy.median()),
        "wholes_boards_energy_worst": percent(energy.max()),
    }


def wholes_on_boards(root: Path) -> dict[str, str]:
    """Return the times of MobileNetV3-Large and AlexNet on several boards."""
    wholes = in_graphs(root, WHOLES)
    wholes = wholes[wholes["inputs"] == "float32[32, 3, 224, 224]"]
    large = wholes[wholes["operator"].str.endswith(".mobilenet_v3_large")]
    large_s = large.set_index(large["device_uuid"].map(board_of))["time_s"]
    others_s = large_s.drop(["0d8f", "31d1"])
    alexnet_s = wholes.loc[wholes["operator"].str.endswith(".alexnet"), "time_s"]
    return {
        "mobilenet_days": days(large["started_at"]),
        "mobilenet_boards": str(large_s.index.nunique()),
        "mobilenet_shortest": milliseconds(large_s.min(), 2),
        "mobilenet_longest": milliseconds(large_s.max(), 2),
        "mobilenet_0d8f": milliseconds(large_s["0d8f"], 3),
        "mobilenet_31d1": milliseconds(large_s["31d1"], 3),
        "mobilenet_other_boards": str(len(others_s)),
        "mobilenet_others_shortest": milliseconds(others_s.min(), 3),
        "mobilenet_others_longest": milliseconds(others_s.max(), 3),
        "alexnet_boards_range": percent(alexnet_s.max() / alexnet_s.min() - 1),
    }


def wholes_of_many_builds(root: Path) -> dict[str, str]:
    """Return the number of builds of EfficientNet-B0 that take the shorter of its two times."""
    table = pd.read_csv(root / "docs" / "data" / "whole_builds.csv")
    rows = table[table["config"].str.startswith("efficientnet_b0")]
    times_s = rows["time_s"]
    usual_s = times_s.median()
    short_s = times_s[times_s < 0.99 * usual_s]
    return {
        "builds_days": days(rows["process"]),
        "builds": str(len(times_s)),
        "short_builds": str(len(short_s)),
        "short_builds_by": percent(1 - short_s.median() / usual_s),
    }


def three_runs(root: Path) -> dict[str, str]:
    """Return the variation of three runs of the same operators, and the share of differences within their intervals."""
    paths = sorted((root / "docs" / "data" / "repeatability").glob("run*/operator_measurements.csv"))
    rows = joined([pd.read_csv(path) for path in paths])
    found = {
        "runs": str(len(paths)),
        "runs_days": days(rows["started_at"]),
        "run_operators": str(rows["key"].nunique()),
    }
    for name, figure in (("time", "time"), ("energy", "energy at the reference temperature")):
        column, error = FIGURES[figure]
        spread = variation(rows, rows[column])
        held = (abs(apart(rows, column, error)) < NORMAL_QUANTILE).mean()
        found |= {
            f"runs_{name}_median": fine_percent(spread.median()),
            f"runs_{name}_95": fine_percent(spread.quantile(0.95)),
            f"runs_{name}_held": f"{100 * held:.0f} %",
        }
    return found
