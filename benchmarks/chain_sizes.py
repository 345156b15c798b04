"""How much the corrected sums of the committed rows change with fewer sizes of chains

A run may end after any size, in the order of ``SIDES``; the rows of larger and smaller ones are interpolated.
Example: PYTHONPATH=. python benchmarks/chain_sizes.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tables import markdown

from opcost.comparing.cache_chain_rows import ChainRow, of_the_same_card
from opcost.comparing.cache_chains import SIDES, chains_of
from opcost.comparing.cache_corrections import Corrections, curves_through
from opcost.comparing.comparison import Comparison
from opcost.estimates import Estimate, FloatArray
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons
from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]
FEWEST = 3
"""Both ends of each kind."""


def corrected(database: Database) -> list[Comparison]:
    """Return the comparisons of all models that have a cache correction."""
    models = find_comparisons(Request((), ROOT / "measurements", database, dry_run=True))
    return [one for model in models for one in model.comparisons if one.gap.correction is not None]


def corrected_ratios(comparisons: Iterable[Comparison], rows: Sequence[ChainRow], sides: Sequence[int]) -> FloatArray:
    """Return corrections by chains on images of these sides over sums, in time and energy, shape (n, 2)."""
    chains = [chain for side in sides for chain in chains_of(side)]
    ratios, of_card = [], {}
    for one in comparisons:
        card = one.conditions.device_product
        if card not in of_card:
            of_card[card] = Corrections(curves_through(of_the_same_card(rows, one.conditions), chains))
        excess = of_card[card].of(one.cost.summed)
        ratios.append([_ratio(excess.time_s, one.cost.time_s), _ratio(excess.energy_j, one.cost.energy_j)])
    return np.array(ratios)


def _ratio(part: Estimate | None, whole: Estimate | None) -> float:
    return np.nan if part is None or whole is None else part.value / whole.value


def lines_of(rows: Sequence[ChainRow], comparisons: Sequence[Comparison]) -> Iterator[list[str]]:
    """Yield the cells of a line without chains, and of one for each number of sides."""
    by_all = corrected_ratios(comparisons, rows, SIDES)
    yield ["none", "0", *_cells(by_all)]
    for number in range(FEWEST, 1 + len(SIDES)):
        sides = SIDES[:number]
        parts = {part for side in sides for chain in chains_of(side) for part in chain.parts}
        yield [f"... {sides[-1]}", str(len(parts)), *_cells(corrected_ratios(comparisons, rows, sides) - by_all)]


def _cells(changes: FloatArray) -> list[str]:
    return [f"{value:.2%}" for part in changes.T for value in (np.sqrt(np.nanmean(part**2)), np.nanmax(np.abs(part)))]


HEADER = ("sides until", "measurements", "time, rms", "at most", "energy, rms", "at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, default=ROOT / "database", help="has rows of chains of one card")
    database = Database(parser.parse_args().database)
    print(markdown(HEADER, lines_of(database.calls_in_chains.rows(), corrected(database))))


if __name__ == "__main__":
    main()
