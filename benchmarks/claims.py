"""Recompute the claims that a test checks from the committed rows -> the sentences of each page with their figures

Example: PYTHONPATH=. python benchmarks/claims.py              # the sentences of tests/claimed_prose.md, filled
         PYTHONPATH=. python benchmarks/claims.py --figures    # each figure by its name
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import claims_of_predictions as predictions
import claims_of_rows as rows
import claims_of_sums as sums
from tables import markdown

ROOT = Path(__file__).resolve().parent.parent
PROSE = Path("tests/claimed_prose.md")

FIGURES_OF: Sequence[Callable[[Path], Mapping[str, str]]] = (
    sums.sums_against_wholes,
    sums.covered,
    sums.held_out,
    sums.sums_in_states,
    sums.short_kernels,
    sums.other_runs,
    sums.kinds_of_operators,
    sums.sums_in_precisions,
    sums.sums_of_other_sources,
    sums.sums_of_networks,
    predictions.held_out_kinds,
    rows.boards,
    rows.speed,
    rows.meters,
    rows.values,
    rows.sweeps,
    rows.learned_costs,
)


def all_figures(root: Path) -> dict[str, str]:
    """Return every figure by its name, as it is printed."""
    return {name: figure for figures in FIGURES_OF for name, figure in figures(root).items()}


def sentences(root: Path) -> list[tuple[str, str]]:
    """Return pages and their sentences, with the names of figures in braces."""
    pages = (root / PROSE).read_text(encoding="utf-8").split("\n## ")[1:]
    return [(page, text) for page, *texts in map(str.splitlines, pages) for text in texts if text]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", action="store_true", help="print each figure by its name")
    arguments = parser.parse_args()
    figures = all_figures(ROOT)
    if arguments.figures:
        print(markdown(("figure", "value"), figures.items()))
    else:
        print("\n".join(f"{page}: {text.format_map(figures)}" for page, text in sentences(ROOT)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
