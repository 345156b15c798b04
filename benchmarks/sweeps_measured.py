"""The tables of docs/sweeps_measured.md, recomputed from the tables of sweeps in docs/data/sweeps

Example: PYTHONPATH=. python benchmarks/sweeps_measured.py            # print them
         PYTHONPATH=. python benchmarks/sweeps_measured.py --renew    # write them into the page, and all claims
         PYTHONPATH=. python benchmarks/sweeps_measured.py --evaluated build/sweeps/evaluated --renew

The last copies tables and figures of sweeps first that ``benchmarks/sweeps.sh`` evaluated.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import claims
import pandas as pd
from claim_figures import all_figures
from claim_formats import change_percent, fine_percent, percent
from claims_of_sweeps import CARDS, FOLDER, SWEEPS, new_kernels, table
from tables import markdown

from opcost.units import milli

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/sweeps_measured.md")
FIGURES = Path("docs/sweeps")
TABLES = ("sizes", "repetitions", "kernels", "pieces", "correlations", "correlation_groups")
DRAWN = {"resnet50": "curves-log", "alexnet": "curves-log", "bert": "curves-linear"}

WORDS = {"resnet50": "pixels a side", "alexnet": "images", "bert": "tokens"}
MEASURED = ("ms", "± time", "mJ", "± energy", "W")
PREDICTED = ("predicted ms", "differs", "predicted mJ", "differs")


def tables_of(root: Path) -> dict[str, str]:
    """Return each table of the page by its name."""
    found = {}
    for card in CARDS:
        for sweep in SWEEPS:
            found[f"{card} {sweep}"] = _curve(table(root, card, sweep, "sizes"), sweep, with_prediction=card == "h200")
            found[f"{card} {sweep} pieces"] = _pieces(table(root, card, sweep, "pieces"))
    for sweep in SWEEPS:
        found[f"h200 {sweep} kernels"] = _kernels(root, "h200", sweep)
    return found


def _curve(rows: pd.DataFrame, sweep: str, *, with_prediction: bool) -> str:
    lines = []
    for row in rows.to_dict("records"):
        line = [str(row["size"])]
        for cost, column in (("time", "time_s"), ("energy", "energy_j")):
            line += [milli(row[column]), fine_percent(row[f"{cost}_spread_ratio"])]
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


def _pieces(rows: pd.DataFrame) -> str:
    lines = []
    for row in rows.to_dict("records"):
        begins_with = "" if pd.isna(row["changes"]) else re.sub(r"(\w{24,})", r"`\1`", str(row["changes"]))
        jump = "" if pd.isna(row["jump_ratio"]) else change_percent(row["jump_ratio"] - 1)
        sizes = f"{row['first_size']} to {row['last_size']}"
        lines.append([str(row["quantity"]), str(row["kind"]), sizes, percent(row["residual_ratio"]), jump, begins_with])
    header = ("curve", "piece", "sizes", "residual", "jump", "change where it begins")
    return markdown(header, lines, alignment="---")


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


def copy_evaluated(evaluated: Path, root: Path, card: str) -> None:
    """Copy tables and figures of evaluated sweeps of a card; figures are of the H200."""
    for sweep in SWEEPS:
        folder = root / FOLDER / card / sweep
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            shutil.copyfile(evaluated / sweep / f"{name}.csv", folder / f"{name}.csv")
        if card == "h200":
            for drawn in (DRAWN[sweep], "correlations"):
                name = f"{sweep}_{drawn.partition('-')[0]}.svg"
                shutil.copyfile(evaluated / sweep / f"{drawn}-screen.svg", root / FIGURES / name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluated", type=Path, metavar="FOLDER", help="copy tables and figures from here first")
    parser.add_argument("--card", choices=CARDS, default="h200", help="the card of these (usually h200)")
    parser.add_argument("--renew", action="store_true", help=f"write the tables into {PAGE}, and all claims")
    arguments = parser.parse_args()
    if arguments.evaluated is not None:
        copy_evaluated(arguments.evaluated, ROOT, arguments.card)
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
