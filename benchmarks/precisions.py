"""Print the energy per image of each model in each precision, and what each kind of operator saves against fp32

Example: python benchmarks/precisions.py docs/data/precisions
         python benchmarks/precisions.py docs/data/precisions --figure docs/log/precisions.svg
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from opcost.comparing.comparison import USUAL_RUNS
from opcost.errors import UserError
from opcost.measuring.asked_conditions import ChosenConditions
from opcost.reporting.compared_models import COLOURS, HATCHES
from opcost.running.request import Request
from opcost.stages.against_data import chosen_by, read_against_data
from opcost.stages.compare_against import AgainstReport, compare_against
from opcost.storage.database import Database
from opcost.summing.energy import common_basis
from opcost.units import milli, percent

FP32 = ChosenConditions("fp32")
PRECISIONS: Mapping[ChosenConditions, str] = {
    FP32: "fp32",
    ChosenConditions("tf32"): "tf32",
    ChosenConditions("amp-bf16"): "amp-bf16",
    ChosenConditions("bf16"): "bf16",
    ChosenConditions("bf16", "channels_last"): "bf16 channels_last",
}
"""The columns of tables, in the order of figures."""


def request_of(folder: Path, board: str) -> Request:
    """Return a request for all models of a board's rows; the folder has their configs, too."""
    return Request((), folder / "measurements", Database(folder / board).read_once())


def boards_of(folder: Path) -> list[str]:
    """Return the names of the folders of rows, each of one board."""
    return sorted(path.parent.name for path in folder.glob("*/operator_measurements.csv"))


def energies(folder: Path) -> pd.DataFrame:
    """Return the energy per image in J: a row for each measured whole, with model, board, card and precision."""
    rows = []
    for board in boards_of(folder):
        request = request_of(folder, board)
        configs = request.folders.readable()
        data = read_against_data(request, configs, USUAL_RUNS)
        for config in configs:
            for conditions in data.conditions_of(config):
                for row in data.wholes_of(config, conditions):
                    energy_j = common_basis([row]).energy_of(row)
                    if energy_j is not None:
                        name, batch = PRECISIONS[chosen_by(config)], config.input_size[0]
                        card = conditions.device_product
                        rows.append((config.model_name, board, card, name, energy_j.value / batch))
    return pd.DataFrame(rows, columns=["model", "board", "card", "precision", "energy_j"])


def reports_of(folder: Path) -> Iterator[AgainstReport]:
    """Yield each model in each precision against fp32; boards without fp32 have none."""
    for board in boards_of(folder):
        try:
            yield from compare_against(request_of(folder, board), [str(FP32)])
        except UserError as error:
            print(f"{board}: left out ({error})", file=sys.stderr)


def kinds_saved(reports: Iterable[AgainstReport]) -> pd.DataFrame:
    """Return the energy per image in J that each kind of operator saves, and as a share of its energy in fp32.

    Of a model on several boards, the first whose operators are all measured under both conditions counts.
    """
    rows: dict[tuple[str, str], list[tuple[str, str, str, float, float | None]]] = {}
    for report in reports:
        model, precision = report.name.partition("_32x3")[0], PRECISIONS[report.chosen]
        found = [
            (model, precision, kind.operator, saved_j, kind.costs.saved_energy_ratio)
            for kind in report.kinds
            if (saved_j := kind.costs.saved_energy_per_sample_j) is not None
        ]
        if all(one.standing != "not measured" for one in report.kinds):
            rows.setdefault((model, precision), found)
    columns = ["model", "precision", "kind", "saved_j", "saved_ratio"]
    return pd.DataFrame([row for found in rows.values() for row in found], columns=columns)


def energy_table(found: pd.DataFrame) -> str:
    """Return a Markdown table: a line for each model and board, a column for each precision."""
    shown = [name for name in PRECISIONS.values() if name in set(found["precision"])]
    lines = [_line("mJ per image", "board", *shown), "|---|---" + "|--:" * len(shown) + "|"]
    for (model, board), of_board in found.groupby(["model", "board"]):
        known = dict(zip(of_board["precision"], of_board["energy_j"], strict=True))
        lines.append(_line(model, board, *(milli(known.get(name)) for name in shown)))
    return "\n".join(lines)


def kinds_table(found: pd.DataFrame) -> str:
    """Return a Markdown table: a line for each kind of operator of a model, with the saved energy in each precision."""
    shown = [name for name in PRECISIONS.values() if name in set(found["precision"])]
    lines = [_line("mJ per image saved", "kind", *shown), "|---|---" + "|--:" * len(shown) + "|"]
    for model, of_model in found.groupby("model"):
        largest = of_model.groupby("kind")["saved_j"].agg(lambda saved: saved.abs().max()).sort_values(ascending=False)
        for kind in largest.index:
            rows = of_model[of_model["kind"] == kind].set_index("precision")
            cells = (_saved(rows.loc[[name]]) if name in rows.index else "" for name in shown)
            lines.append(_line(str(model), str(kind), *cells))
    return "\n".join(lines)


def _saved(rows: pd.DataFrame) -> str:
    """Return the saved energy of a kind, and its share of the energy in fp32 if that is not 0."""
    ratio = rows["saved_ratio"].iloc[0]
    share = "" if len(rows) > 1 or pd.isna(ratio) else f" ({percent(ratio)})"
    return f"{milli(rows['saved_j'].sum(), 3)}{share}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def draw(found: pd.DataFrame, target: Path) -> None:
    """Draw the energy per image in each precision, of each model on one board: the first with the most precisions."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    boards = found.groupby(["model", "board"]).size().sort_values(ascending=False, kind="stable")
    drawn = found.merge(boards.reset_index().drop_duplicates("model")[["model", "board"]])
    energies_mj = 1e3 * drawn.set_index(["model", "precision"])["energy_j"].unstack()
    models = energies_mj.max(axis=1).sort_values(ascending=False).index
    shown = [name for name in PRECISIONS.values() if name in energies_mj]
    card = ", ".join(sorted(set(drawn["card"])))
    width = 0.85 / len(shown)
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "opcost"}):
        figure, axes = plt.subplots(figsize=(8.0, 3.4), layout="constrained")
        axes.margins(x=0.01)
        for number, name in enumerate(shown):
            middles = [index + (number - (len(shown) - 1) / 2) * width for index in range(len(models))]
            look = {"color": COLOURS[number], "hatch": HATCHES[number], "edgecolor": "white"}
            bars = axes.bar(middles, energies_mj.loc[models, name], width, label=name, **look)
            axes.bar_label(bars, [milli(value / 1e3, 3) if value > 0 else "" for value in bars.datavalues], fontsize=6)
        axes.set_ylabel(f"energy per image (mJ), {card}, batch 32")
        axes.set_xticks(range(len(models)), models)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else {"Software": None})
        plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="configs in measurements/, and a folder of rows for each board")
    parser.add_argument("--figure", type=Path, help="also draw the energies to this file (needs matplotlib)")
    arguments = parser.parse_args()
    found = energies(arguments.folder)
    print(energy_table(found))
    print()
    print(kinds_table(kinds_saved(reports_of(arguments.folder))))
    if arguments.figure is not None:
        draw(found, arguments.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
