"""The tables of docs/sweeps_measured.md, recomputed from the database's tables of sweeps

Example: PYTHONPATH=. python benchmarks/sweeps_measured.py            # print them
         PYTHONPATH=. python benchmarks/sweeps_measured.py --renew    # write them into the page, and all claims
         PYTHONPATH=. python benchmarks/sweeps_measured.py --evaluated build/sweeps/evaluated --renew

The last first copies the drawn curves of sweeps of an H200 that ``benchmarks/sweeps.sh`` evaluated. Their rows come
into the database by ``opcost merge database OUT`` and ``opcost sweep … --no-measure --database database``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import claims
import pandas as pd
from claim_figures import all_figures
from claim_formats import change_percent, fine_percent, percent
from claims_of_sweeps import BOARDS, CARDS, COSTS, SWEEPS, breaks, new_kernels, sweeps_fitted, table
from tables import markdown

from opcost.comparing.sweep_changes import BreakLine
from opcost.units import milli

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/sweeps_measured.md")
FIGURES = Path("docs/sweeps")
DRAWN = {"resnet50": "curves-log", "alexnet": "curves-log", "bert": "curves-linear"}

WORDS = {"resnet50": "pixels a side", "alexnet": "images", "bert": "tokens"}
MEASURED = ("ms", "± time", "range", "mJ", "± energy", "range", "W")
MOST_PIECES = 9
PREDICTED = ("predicted ms", "differs", "predicted mJ", "differs")


def tables_of(root: Path) -> dict[str, str]:
    """Return each table of the page by its name."""
    found = {}
    for card in CARDS:
        for sweep in SWEEPS:
            found[f"{card} {sweep}"] = _curve(table(root, card, sweep, "sizes"), sweep, with_prediction=card == "h200")
            found[f"{card} {sweep} pieces"] = _pieces(breaks(root, card, sweep))
    fitted = sweeps_fitted(root)
    for sweep in SWEEPS:
        found[f"h200 {sweep} kernels"] = _kernels(root, "h200", sweep)
        found[f"h200 {sweep} boards"] = _fits(fitted, sweep)
    return found


def _curve(rows: pd.DataFrame, sweep: str, *, with_prediction: bool) -> str:
    lines = []
    for row in rows.to_dict("records"):
        line = [str(row["size"])]
        for cost, column in (("time", "time_s"), ("energy", "energy_j")):
            line += [milli(row[column]), fine_percent(row[f"{cost}_spread_ratio"]), percent(row[f"{cost}_range_ratio"])]
        line.append(f"{row['power_w']:.0f}")
        if with_prediction:
            line += [text for column in ("time_s", "energy_j") for text in _prediction(row, column)]
        lines.append(line)
    return markdown((WORDS[sweep], *MEASURED, *(PREDICTED if with_prediction else ())), lines, alignment="--:")


def _prediction(row: dict[object, float], column: str) -> tuple[str, str]:
    predicted = row[f"predicted_{column}"]
    if pd.isna(predicted):
        return "", ""
    return milli(predicted), change_percent(predicted / row[column] - 1)


def _pieces(pieces: Sequence[BreakLine]) -> str:
    lines = []
    for piece in pieces:
        begins_with = re.sub(r"(\w{24,})", r"`\1`", piece.changes)
        jump = "" if piece.jump_ratio is None else change_percent(piece.jump_ratio - 1)
        sizes = f"{piece.first_size} to {piece.last_size}"
        lines.append([piece.quantity, piece.kind, sizes, percent(piece.residual_ratio), jump, begins_with])
    header = ("curve", "piece", "sizes", "residual", "jump", "change where it begins")
    return markdown(header, lines, alignment="---")


def _fits(fitted: Mapping[str, str], sweep: str) -> str:
    """Return the linear pieces of a sweep on both boards of the H200, each with its constant and its slope."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    runs = ("h200", "first_h200")
    for run, cost, number in product(runs, COSTS, range(1, MOST_PIECES + 1)):
        name = f"{run}_{sweep}_{cost}_piece_{number}"
        if fitted.get(f"{name}_kind") == "linear":
            of_both = lines.setdefault((cost, fitted[f"{name}_sizes"]), dict.fromkeys(runs, ""))
            constant, slope, residual = (fitted[f"{name}_{one}"] for one in ("constant", "slope", "residual"))
            of_both[run] = f"{constant} + {slope} ({residual})"
    header = ("curve", WORDS[sweep], *(f"board {BOARDS[run][sweep]}" for run in runs))
    places = sorted(lines, key=lambda place: (list(COSTS).index(place[0]), int(place[1].split()[0])))
    return markdown(header, [(*place, *lines[place].values()) for place in places], alignment="---")


def _kernels(root: Path, card: str, sweep: str) -> str:
    new = {
        size: (share, name, longest) for size, share, name, longest in new_kernels(table(root, card, sweep, "kernels"))
    }
    return markdown(
        (WORDS[sweep], "kernels", "µs of one", "µs of the iteration for each", "new", "longest new one"),
        _kernel_lines(table(root, card, sweep, "sizes"), new),
    )


def _kernel_lines(rows: pd.DataFrame, new: dict[int, tuple[float, str, float]]) -> Iterator[list[str]]:
    for row in rows.to_dict("records"):
        share, name, longest = new.get(row["size"], (0.0, "", 0.0))
        yield [
            str(row["size"]),
            str(row["kernels"]),
            f"{1e6 * row['kernels_time_s'] / row['kernels']:.1f}",
            f"{1e6 * row['time_s'] / row['kernels']:.1f}",
            percent(share) if row["size"] in new else "",
            f"`{name}` ({percent(longest)})" if name else "",
        ]


def renewed(page: str, root: Path) -> str:
    """Return the page with each table in the place of the one between its marks."""
    for name, text in tables_of(root).items():
        page, found = re.subn(
            rf"(<!-- sweep: {name} -->\n).*?(<!-- end -->)",
            rf"\1\n{text}\n\n\2",
            page,
            flags=re.DOTALL,
        )
        if found != 1:
            raise ValueError(f"the page has {found} places for the table {name!r}")
    return page


def copy_drawn(evaluated: Path, root: Path) -> None:
    """Copy the drawn curves and correlations of evaluated sweeps."""
    for sweep in SWEEPS:
        for drawn in (DRAWN[sweep], "correlations"):
            name = f"{sweep}_{drawn.partition('-')[0]}.svg"
            shutil.copyfile(evaluated / sweep / f"{drawn}-screen.svg", root / FIGURES / name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluated", type=Path, metavar="FOLDER", help="copy drawn curves from here first")
    parser.add_argument("--renew", action="store_true", help=f"write the tables into {PAGE}, and all claims")
    arguments = parser.parse_args()
    if arguments.evaluated is not None:
        copy_drawn(arguments.evaluated, ROOT)
    if arguments.renew:
        page = ROOT / PAGE
        page.write_text(renewed(page.read_text(encoding="utf-8"), ROOT), encoding="utf-8")
        accuracy = ROOT / claims.PAGE
        accuracy.write_text(claims.renewed(accuracy.read_text(encoding="utf-8"), all_figures(ROOT)), encoding="utf-8")
    else:
        for name, text in tables_of(ROOT).items():
            print(f"{name}\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
