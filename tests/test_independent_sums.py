"""The headline from the tables and the words of docs/database.md and docs/method.md alone.

No code of opcost takes part: whoever reads these pages comes to the committed figures.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
DATABASE = ROOT / "database"
PAGE = (ROOT / "docs" / "database.md").read_text("utf-8")
DOUBTFUL = set(re.findall(r"`([\w-]+)`", PAGE.split("cast doubt on a row:")[1].partition(". ")[0]))
USED = (
    "key operator time_s energy_j energy_at_reference_j flags builds loop_time_s device_uuid executed_as execution "
    "cache device_product precision power_capped_ratio"
).split()
CARD = "NVIDIA H200"
SMALL_INPUTS = ("resnet34_32x3x56x56", "resnet18_32x3x32x32")
LIMIT_W, EXPONENT, LARGEST_RATIO = 700.0, 0.36, 1.45
THROTTLED, THROTTLED_SHARE = 0.02, 0.02


def rows_of(table: str) -> pd.DataFrame:
    """Return the rows of a table of measurements, with the parts of their keys."""
    rows = pd.read_csv(DATABASE / table, usecols=USED)
    parts = rows["key"].str.split("-", expand=True)
    return rows.assign(
        case=parts[0] + "-" + parts[1],
        under=parts[2],
        has_energy=rows["energy_j"].notna(),
        is_sound=[DOUBTFUL.isdisjoint(str(flags).split("|")) for flags in rows["flags"]],
        as_asked=rows["executed_as"] == rows["execution"],
        builds=rows["builds"].fillna(1),
    )


def preferred(rows: pd.DataFrame, board: str) -> pd.DataFrame:
    """Return one row of each case: with energy, sound, as asked, of the board, most builds, longest loop, newest."""
    order = ["has_energy", "is_sound", "as_asked", "is_own", "builds", "loop_time_s"]
    ranked = rows.assign(is_own=rows["device_uuid"] == board).sort_values(order, kind="stable")
    return ranked.drop_duplicates("case", keep="last").set_index("case")


@dataclass(frozen=True)
class Sum:
    """A sum beside a whole. ``parts`` are the calls with their rows; energies are at 50 °C if all are known so."""

    parts: pd.DataFrame
    whole: pd.Series

    @property
    def energy(self) -> str:
        normalised = [*self.parts["energy_at_reference_j"], self.whole["energy_at_reference_j"]]
        return "energy_at_reference_j" if np.isfinite(normalised).all() else "energy_j"

    def total(self, column: str) -> float:
        return float((self.parts["calls"] * self.parts[column]).sum())

    @property
    def rank(self) -> tuple[bool, bool, float]:
        others = self.parts[self.parts["device_uuid"] != self.whole["device_uuid"]]
        share = 1 - (others["calls"] * others["time_s"]).sum() / self.total("time_s")
        return self.whole["has_energy"], self.whole["is_sound"], share


class Tables:
    """The committed tables, and the sum of each comparison in graphs; None if a tuple has no row on its input data."""

    def __init__(self) -> None:
        counts = pd.read_csv(DATABASE / "model_operators.csv")
        counts = counts[counts["counted_at"] == counts.groupby("model_key")["counted_at"].transform("max")]
        moves = (counts["memory_bytes"] > 0) & (counts["key"].str[:16] != counts["model_key"])
        self.calls = {key: of_model.set_index("key") for key, of_model in counts[moves].groupby("model_key")}
        self.wholes, self.operators = rows_of("full_model_measurements.csv"), rows_of("operator_measurements.csv")
        self._under = dict(iter(self.operators.groupby("under")))
        usual = "execution == 'graph' and counted == 'all' and input_data == 'captured' and missing_operators == 0"
        self.committed = pd.read_csv(DATABASE / "sum_vs_full.csv").query(usual).reset_index(drop=True)
        self.sums = [self._sum(key) for key in self.committed["key"]]

    def _sum(self, key: str) -> Sum | None:
        model, _, under = key.split("-")
        calls, rows = self.calls[model], self._under[under]
        rows, found = rows[rows["case"].isin(calls.index)], []
        if len(calls.index.difference(rows["case"])):
            return None
        of_model = self.wholes[self.wholes["key"] == key]
        # Of equals the board whose first row comes last.
        for board in reversed(of_model["device_uuid"].unique()):
            whole = preferred(of_model[of_model["device_uuid"] == board], board).iloc[0]
            named = ["operator", "parameters", "inputs", "outputs", "flop", "memory_bytes", "calls"]
            columns = ["time_s", "energy_j", "energy_at_reference_j", "device_uuid", "power_capped_ratio"]
            found.append(Sum(calls[named].join(preferred(rows, board)[columns]), whole))
        return max(found, key=lambda one: one.rank)

    @property
    def headline(self) -> pd.DataFrame:
        """The comparisons of torchvision's models at their published size on the card, in torch's default precision."""
        known = self.committed.query("device_product == @CARD and precision == 'torch-default'")
        return known[known["operator"].str.startswith("torchvision.") & ~known["name"].isin(SMALL_INPUTS)]


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables()


def test_plain_sums_are_the_committed_ones(tables: Tables) -> None:
    compared = [(row, one) for row, one in zip(tables.committed.itertuples(), tables.sums, strict=True) if one]
    assert len(compared) >= 150
    assert set(tables.headline.index) <= {row.Index for row, _ in compared}
    for row, one in compared:
        expected = row.time_s, row.full_time_s, row.energy_j, row.full_energy_j
        found = one.total("time_s"), one.whole["time_s"], one.total(one.energy), one.whole[one.energy]
        assert found == pytest.approx(expected, rel=1e-12), row.name


def with_limit(one: Sum, added: tuple[float, float]) -> tuple[float, float]:
    """Return a sum's time and energy with a cache correction of so much and the power limit's part."""
    calls, parts = one.parts["calls"], one.parts
    times_s, energies_j = (calls * parts[column] for column in ("time_s", one.energy))

    def at(ratio: float) -> tuple[float, float]:
        longer = np.where(parts["flop"] > 0, ratio**EXPONENT, 1.0)
        return (times_s * longer).sum() + added[0], ((energies_j * longer).sum() + added[1]) / ratio

    is_throttled = times_s[parts["power_capped_ratio"] >= THROTTLED].sum() > THROTTLED_SHARE * times_s.sum()
    time_s, energy_j = at(1.0)
    if is_throttled or energy_j <= LIMIT_W * time_s:
        return time_s, energy_j
    low, high = 1.0, LARGEST_RATIO
    while high - low > 1e-6:
        middle = (low + high) / 2
        time_s, energy_j = at(middle)
        low, high = (low, middle) if energy_j <= LIMIT_W * time_s else (middle, high)
    return time_s, LIMIT_W * time_s


def test_parts_of_the_power_limit_are_the_committed_ones(tables: Tables) -> None:
    """Cache corrections are taken as they are committed."""
    rows = tables.headline
    wholes = rows[["full_time_s", "full_energy_j"]].to_numpy()
    parts = [rows[[f"{part}time_s", f"{part}energy_j"]].fillna(0) for part in ("", "correction_", "power_limit_")]
    added = parts[1].to_numpy()
    mine = np.array([with_limit(tables.sums[index], own) for index, own in zip(rows.index, added, strict=True)])
    theirs = sum(part.to_numpy() for part in parts)
    assert np.abs((mine - theirs) / wholes).max() < 1e-4
