"""Draw the rows of input_values.py: energy over share of zeros, spread and mean, relative to normal values

Example: python benchmarks/plot_input_values.py docs/data/input_values.csv docs/log/input_values.svg
"""

from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas


def main(source: str, target: str) -> int:
    rows = pandas.read_csv(source)
    is_normal = (rows.zeros_ratio == 0) & (rows["mean"] == 0) & (rows.spread == 1)
    normal = rows[is_normal].set_index("operator").energy_j
    rows["energy_ratio"] = rows.energy_j / rows.operator.map(normal)
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
    for style, name in enumerate(normal.index):
        line = {"label": name, "linestyle": ("-", "--")[style // 10], "marker": ".", "color": f"C{style % 10}"}
        for axes, column in zip(panels, ("zeros_ratio", "spread", "mean"), strict=True):
            others = (rows.zeros_ratio == 0) | (column == "zeros_ratio"), (rows["mean"] == 0) | (column == "mean")
            is_shown = others[0] & others[1] & ((rows.spread == 1) | (column == "spread"))
            shown = rows[is_shown & (rows.operator == name)].sort_values(column)
            axes.plot(shown[column], shown.energy_ratio, **line)
    zeros, spread, mean = panels
    zeros.set(xlabel="share of zeros in the inputs", ylabel="energy / energy on normal inputs", ylim=(0.6, 1.55))
    spread.set(xlabel="spread of the inputs (softmax at 64: 1.87)")
    spread.set_xscale("log", base=2)
    mean.set(xlabel="mean of the inputs, their spread being 1")
    mean.set_xscale("symlog", base=2, linthresh=1)
    mean.set_xlim(left=-0.2)
    for axes in panels:
        axes.grid(alpha=0.3)
    figure.legend(*zeros.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(target, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
