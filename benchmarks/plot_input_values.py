"""Draw what input_values.py measured: energy over share of zeros and over spread, relative to normal values

Example: python benchmarks/plot_input_values.py docs/input_values.csv docs/input_values.svg
"""

from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas


def main(source: str, target: str) -> int:
    rows = pandas.read_csv(source)
    is_plain = ~rows.is_nonnegative
    is_normal = is_plain & (rows.zeros_ratio == 0) & (rows.spread == 1)
    normal = rows[is_normal].set_index("operator").energy_j
    rows["energy_ratio"] = rows.energy_j / rows.operator.map(normal)
    figure, (zeros, spread) = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for style, name in enumerate(normal.index):
        of_one = rows[is_plain & (rows.operator == name)]
        line = {"label": name, "linestyle": ("-", "--")[style // 10], "marker": ".", "color": f"C{style % 10}"}
        by_zeros = of_one[of_one.spread == 1].sort_values("zeros_ratio")
        zeros.plot(by_zeros.zeros_ratio, by_zeros.energy_ratio, **line)
        by_spread = of_one[of_one.zeros_ratio == 0].sort_values("spread")
        spread.plot(by_spread.spread, by_spread.energy_ratio, **line)
    zeros.set(xlabel="share of zeros in the inputs", ylabel="energy / energy on normal inputs", ylim=(0.6, 1.3))
    spread.set(xlabel="spread of the inputs (softmax at 64: 1.83)", xscale="log")
    spread.set_xscale("log", base=2)
    for axes in (zeros, spread):
        axes.grid(alpha=0.3)
    figure.legend(*zeros.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(target, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
