"""The headline from the tables and the words of docs/database.md and docs/method.md alone.

No code of opcost takes part: whoever reads these pages comes to the committed figures.
"""

import re
from dataclasses import dataclass
from itertools import product
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
STREAM_BYTES = 268e6
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


def shapes_in(cell: object) -> list[tuple[int, ...]]:
    """Return the shapes of the float32 tensors in a cell, in order."""
    return [tuple(map(int, sizes.split(", "))) for sizes in re.findall(r"float32\[([\d, ]+)\]", str(cell))]


def kind_and_bytes(call: pd.Series) -> tuple[str, float]:
    """Return the kind of chains that corrects a call, and the bytes at which its curve is read (steps 4 and 7)."""
    name, inputs = call["operator"].rpartition(".")[2].lower().strip("_"), shapes_in(call["inputs"])
    if not call["flop"]:
        is_addition = name == "add" and len(inputs) == 2 and inputs[0] == inputs[1]
        is_norm = "norm" in name and name not in ("norm", "normalize")
        is_on_tokens = name in ("layernorm", "layernorm2d", "rmsnorm")
        kind = "addition" if is_addition else "layer norm" if is_on_tokens else "norm" if is_norm else "elementwise"
        return kind, call["memory_bytes"]
    data = inputs[:1] if call["operator"] == "torch.nn.functional.linear" else inputs
    moved = sum(4 * np.prod(shape) for shape in [*data, *shapes_in(call["outputs"])])
    if "conv" not in name:
        return "matrix", moved
    sizes = dict(re.findall(r"(in_channels|groups|kernel_size)=(\d+|\([\d, ]+\))", call["parameters"]))
    channels, groups = int(sizes["in_channels"]), int(sizes.get("groups", 1))
    if channels == groups > 1:
        return "depthwise", moved
    return ("matrix" if groups == 1 and set(re.findall(r"\d+", sizes["kernel_size"])) == {"1"} else "filter"), moved


def curves() -> dict[str, pd.DataFrame]:
    """Return the correction of a call by kind over bytes: the mean of boards, weighted by their errors (step 4)."""
    rows = pd.read_csv(DATABASE / "calls_in_chains.csv").dropna(subset="time_s")
    rows = rows[(rows["device_product"] == CARD) & (rows["design"] == "chains 3, 6 in a row")]
    found: dict[str, dict[str, pd.Series]] = {}
    for kind, quantity in product(rows["kind"].unique(), ("time_s", "energy_j")):
        of_kind = rows[rows["kind"] == kind]
        weights = of_kind[quantity.replace("_", "_standard_error_")] ** -2.0
        sizes = of_kind["memory_bytes"]
        means = (of_kind[quantity] * weights).groupby(sizes).sum() / weights.groupby(sizes).sum()
        found.setdefault(kind, {})[quantity] = means.sort_index()
    return {kind: pd.DataFrame(of_kind) for kind, of_kind in found.items()}


def linears(tables: Tables) -> pd.DataFrame:
    """Return pairs of rows of Linears in the cache and from memory, of one board, at full clocks (step 8)."""
    rows = tables.operators.query("device_product == @CARD and precision == 'torch-default' and execution == 'graph'")
    rows = rows[rows["is_sound"] & rows["as_asked"]]
    rows = rows[rows["operator"].isin(["torch.nn.Linear", "torch.nn.functional.linear"])]
    rows = rows[rows["power_capped_ratio"].fillna(0) < THROTTLED]
    warm, cold = (rows[rows["cache"] == cache] for cache in ("warm", "cold"))
    pairs = warm.merge(cold, on=["case", "device_uuid"], suffixes=("", "_cold"))
    costs = {"time_s": "time_s", "energy_j": "energy_at_reference_j"}
    added = {name: pairs[f"{column}_cold"] - pairs[column] for name, column in costs.items()}
    return pairs[["case", "device_uuid", "loop_time_s_cold"]].assign(**added, tuple_key=pairs["case"].str[:16])


def corrected(one: Sum, known: dict[str, pd.DataFrame], pairs: pd.DataFrame) -> tuple[float, float]:
    """Return a sum's time and energy with the cache correction and the power limit's part."""
    calls, parts = one.parts["calls"], one.parts
    assert (calls * parts["memory_bytes"]).sum() > STREAM_BYTES
    pairs = pairs.assign(calls=pairs["case"].map(calls), is_own=pairs["device_uuid"] == one.whole["device_uuid"])
    pairs = pairs.sort_values(["calls", "is_own", "loop_time_s_cold"], na_position="first", kind="stable")
    from_memory = pairs.drop_duplicates("tuple_key", keep="last").set_index("tuple_key")[["time_s", "energy_j"]]
    added = np.zeros(2)
    for key, call in parts.iterrows():
        if key[:16] in from_memory.index:
            of_call = from_memory.loc[key[:16]].to_numpy() + known["elementwise"].iloc[0].to_numpy()
        else:
            kind, moved = kind_and_bytes(call)
            sizes = np.log(known[kind].index.to_numpy(dtype=float))
            of_call = [np.interp(np.log(moved), sizes, known[kind][name]) for name in ("time_s", "energy_j")]
        added += call["calls"] * np.array(of_call)
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


def test_corrected_sums_are_the_committed_ones(tables: Tables) -> None:
    rows, known, pairs = tables.headline, curves(), linears(tables)
    wholes = rows[["full_time_s", "full_energy_j"]].to_numpy()
    mine = np.array([corrected(tables.sums[index], known, pairs) for index in rows.index]) / wholes
    parts = [rows[[f"{part}time_s", f"{part}energy_j"]].fillna(0) for part in ("", "correction_", "power_limit_")]
    theirs = sum(part.to_numpy() for part in parts) / wholes
    assert np.abs(mine - theirs).max() < 0.001
    for statistic in (np.median, np.max):
        assert statistic(np.abs(mine - 1), axis=0) == pytest.approx(statistic(np.abs(theirs - 1), axis=0), abs=2e-4)
