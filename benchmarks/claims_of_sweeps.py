"""Figures of claims about sweeps over input size, from the tables of ``opcost sweep --output``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from claim_formats import MINUS, change_percent, days, fine_percent, percent, signed_percent

from opcost.comparing.kernel_names import short_kernel_name
from opcost.comparing.pieces import pieces_of
from opcost.comparing.sweep_sizes import spread_ratio
from opcost.measuring.flags import CASTING_DOUBT
from opcost.units import millijoules, milliseconds, significant

FOLDER = Path("docs", "data", "sweeps")
CARDS = ("h200", "h100")
SWEEPS = ("resnet50", "alexnet", "bert")
"""The folders of the sweeps of each card: ResNet-50 over pixels, AlexNet over the batch, BERT-base over tokens."""

COSTS = {"time": "time_s", "energy": "energy_j"}
LONG_FROM_S = 1e-3
"""Sizes that take this long have aims for their spread: 0.5 % in time and 1 % in energy."""

WITHOUT_TENSOR_CORES = "ffma|simt|sgemm|gemmSN|gemv"
"""Parts of the names of kernels for products of fp32 that use no tensor cores."""


def table(root: Path, card: str, sweep: str, name: str) -> pd.DataFrame:
    """Return a table of a sweep, without its rows of repetitions that do not count."""
    rows = pd.read_csv(root / FOLDER / card / sweep / f"{name}.csv")
    if name == "repetitions":
        doubts = {flag.value for flag in CASTING_DOUBT}
        rows = rows[[pd.isna(own) or doubts.isdisjoint(own.split("|")) for own in rows["flags"]]]
    return rows


def kernels_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the kernel time by kernel and size, and the number of launches, with short names."""
    rows = rows.assign(
        short=rows["kernel"].map(short_kernel_name),
        share=rows["kernel_time_s"] / rows.groupby("size")["kernel_time_s"].transform("sum"),
    )
    return rows[["size", "kernel", "short", "calls", "share", "kernel_time_s"]]


def new_kernels(rows: pd.DataFrame) -> Iterator[tuple[int, float, str, float]]:
    """Yield sizes with the share of kernels that the size below does not launch, and the longest one with its share."""
    kernels = kernels_of(rows)
    below: set[str] | None = None
    for size, of_size in kernels.groupby("size"):
        if below is not None:
            new = of_size[~of_size["kernel"].isin(below)]
            of_name = new.groupby("short")["share"].sum()
            longest = str(of_name.idxmax()) if len(of_name) else ""
            yield int(str(size)), float(new["share"].sum()), longest, float(of_name.max()) if longest else 0.0
        below = set(of_size["kernel"])


def _sweeps() -> Iterator[tuple[str, str, str]]:
    """Yield cards and sweeps with the beginning of their figures' names."""
    for card in CARDS:
        for sweep in SWEEPS:
            yield card, sweep, f"{card}_{sweep}"


def sweeps_of_sizes(root: Path) -> dict[str, str]:
    """Return what each size of each sweep takes, and its kernels."""
    found = {}
    for card, sweep, word in _sweeps():
        rows = table(root, card, sweep, "sizes")
        for row in rows.to_dict("records"):
            name = f"{word}_{row['size']}"
            found |= {
                f"{name}_time": milliseconds(row["time_s"]),
                f"{name}_energy": millijoules(row["energy_j"]),
                f"{name}_kernels": str(row["kernels"]),
                f"{name}_kernel_time": f"{1e6 * row['kernels_time_s'] / row['kernels']:.1f} µs",
                f"{name}_per_kernel": f"{1e6 * row['time_s'] / row['kernels']:.1f} µs",
                f"{name}_busy": percent(row["kernels_time_s"] / row["time_s"]),
                f"{name}_unit_time": f"{significant(1e6 * row['time_per_unit_s'], 3)} µs",
                f"{name}_unit_energy": f"{significant(1e3 * row['energy_per_unit_j'], 3)} mJ",
                f"{name}_power": f"{row['power_w']:.0f} W",
            }
        steps = rows.set_index("size")
        for (before, below), (after, above) in zip(
            list(steps.iterrows())[:-1], list(steps.iterrows())[1:], strict=True
        ):
            for cost, column in COSTS.items():
                found[f"{word}_{before}_to_{after}_{cost}"] = change_percent(above[column] / below[column] - 1)
        if 256 in steps.index:
            found[f"{word}_growth"] = percent(steps["time_s"][256] / steps["time_s"].iloc[0] - 1)
        single = rows["iteration_p50_s"] / rows["time_s"]
        found |= {
            f"{word}_single_differs": fine_percent((single - 1).abs().max()),
            f"{word}_single_range": fine_percent((rows["iteration_p95_s"] / rows["iteration_p5_s"] - 1).median()),
        }
    return found


def sweeps_spread(root: Path) -> dict[str, str]:
    """Return the spreads of the repetitions of sizes of 1 ms or more, over all builds, within and between builds."""
    found = {}
    totals = {card: [0, 0] for card in CARDS}
    for card, sweep, word in _sweeps():
        sizes = table(root, card, sweep, "sizes")
        repetitions = table(root, card, sweep, "repetitions")
        flagged = int(sizes["flagged_repetitions"].sum())
        totals[card][0] += len(repetitions) + flagged
        totals[card][1] += flagged
        found |= {
            f"{word}_sizes": str(len(sizes)),
            f"{word}_repetitions": str(len(repetitions) + flagged),
            f"{word}_flagged": str(flagged),
            f"{word}_builds": str(repetitions.groupby("size")["block"].nunique().max()),
            f"{word}_days": days(repetitions["started_at"]),
        }
        long = sizes[sizes["time_s"] >= LONG_FROM_S].set_index("size")
        builds = repetitions[repetitions["size"].isin(long.index)].groupby(["size", "block"])
        for cost, column in (("time", "time_s"), ("energy", "energy_at_reference_j")):
            spreads = long[f"{cost}_spread_ratio"]
            within = builds[column].agg(lambda values: spread_ratio(list(values)))
            between = builds[column].median().groupby("size").agg(lambda medians: medians.max() / medians.min() - 1)
            found |= {
                f"{word}_{cost}_spread": fine_percent(spreads.max()),
                f"{word}_{cost}_spread_size": str(spreads.idxmax()),
                f"{word}_{cost}_within": fine_percent(within.max()),
                f"{word}_{cost}_between": fine_percent(between.max()),
            }
    for card, (repeated, flagged) in totals.items():
        found |= {f"{card}_sweeps_repetitions": str(repeated), f"{card}_sweeps_flagged": str(flagged)}
    return found


def sweeps_predicted(root: Path) -> dict[str, str]:
    """Return how far the predicted curves are from the measured ones, in the median and at worst."""
    found = {}
    for sweep in SWEEPS:
        rows = table(root, "h200", sweep, "sizes").set_index("size")
        for cost, column in COSTS.items():
            unit = column.rpartition("_")[2]
            known = rows[rows[f"predicted_{column}"].notna()]
            differs = known[f"predicted_{column}"] / known[column] - 1
            within = known[column].between(
                known[f"predicted_{cost}_lower_{unit}"], known[f"predicted_{cost}_upper_{unit}"]
            )
            worst = differs.abs().idxmax()
            name = f"predicted_{sweep}_{cost}"
            found |= {
                f"{name}_median": percent(differs.abs().median()),
                f"{name}_worst": f"{signed_percent(differs[worst])} (at {worst})",
                f"{name}_within": f"{within.sum()} of {len(known)}",
            }
        whole = (rows["measured_operators_ratio"] > 0).sum()
        found[f"predicted_{sweep}_measured"] = str(whole)
    return found


def sweeps_fitted(root: Path) -> dict[str, str]:
    """Return the pieces of the curves: their sizes, residuals and coefficients, and one line through all sizes."""
    found = {}
    for card, sweep, word in _sweeps():
        rows = table(root, card, sweep, "sizes")
        for cost, column in COSTS.items():
            x, y = rows["size"].to_numpy(dtype=float), rows[column].to_numpy(dtype=float)
            for number, piece in enumerate(pieces_of(list(x), list(y)), 1):
                unit, digits = ("ms", 3) if cost == "time" else ("mJ", 3)
                name = f"{word}_{cost}_piece_{number}"
                found |= {
                    f"{name}_sizes": f"{x[piece.first]:.0f} to {x[piece.last]:.0f}",
                    f"{name}_kind": piece.kind.value,
                    f"{name}_residual": percent(piece.residual_ratio),
                    f"{name}_constant": f"{significant(1e3 * piece.coefficients[0], digits)} {unit}",
                    f"{name}_constant_share": percent(piece.coefficients[0] / y[piece.last]),
                }
                if piece.kind.degree:
                    found[f"{name}_slope"] = f"{significant(1e3 * piece.coefficients[1], digits)} {unit}"
            weights = np.column_stack([np.ones_like(x), x]) / y[:, None]
            line, *_ = np.linalg.lstsq(weights, np.ones_like(x), rcond=None)
            found[f"{word}_{cost}_line_residual"] = percent(float(np.sqrt(np.mean((weights @ line - 1) ** 2))))
    return found


def sweeps_kernels(root: Path) -> dict[str, str]:
    """Return the kernels that are new at each size, and the shares of products without tensor cores."""
    found = {}
    for card, sweep, word in _sweeps():
        rows = table(root, card, sweep, "kernels")
        for size, share, longest, of_longest in new_kernels(rows):
            name = f"{word}_{size}_new"
            found |= {
                name: percent(share),
                f"{name}_kernel": f"`{longest}`",
                f"{name}_kernel_share": percent(of_longest),
            }
        kernels = kernels_of(rows)
        attention = kernels[kernels["short"].str.contains("fmha")].groupby("size")["share"].sum()
        products = kernels[kernels["short"].str.contains(WITHOUT_TENSOR_CORES)].groupby("size")["share"].sum()
        found |= {
            f"{word}_products_least": percent(products.min()),
            f"{word}_products_most": percent(products.max()),
        }
        if len(attention):
            found |= {f"{word}_attention_{size}": percent(share) for size, share in attention.items()}
    return found


def same_kernels(root: Path) -> dict[str, str]:
    """Return which share of the kernel time on the H100 is in kernels that the H200 launches at the same size."""
    found = {}
    for sweep in SWEEPS:
        of_h200 = table(root, "h200", sweep, "kernels")
        here = kernels_of(table(root, "h100", sweep, "kernels"))
        known = set(zip(of_h200["size"], of_h200["kernel"], strict=True))
        same = [place in known for place in zip(here["size"], here["kernel"], strict=True)]
        found[f"h100_{sweep}_same_kernels"] = percent(here[same].groupby("size")["share"].sum().min())
        times, others = (table(root, card, sweep, "sizes").set_index("size") for card in CARDS)
        for cost, column in COSTS.items():
            ratios = others[column] / times[column]
            found |= {
                f"h100_{sweep}_{cost}_least": f"{ratios.min():.2f}",
                f"h100_{sweep}_{cost}_most": f"{ratios.max():.2f}",
            }
    return found


def sweep_columns(root: Path) -> dict[str, str]:
    """Return the columns that order repetitions alike in all three sweeps of the H200, and correlations of the time."""
    groups = [table(root, "h200", sweep, "correlation_groups") for sweep in SWEEPS]
    of_column = pd.concat([one.set_index("column")["group"] for one in groups], axis=1).dropna()
    alike = _alike(of_column)
    found = {"sweep_columns_alike": "; ".join(", ".join(f"`{name}`" for name in one) for one in alike)}
    for sweep in SWEEPS:
        correlations = table(root, "h200", sweep, "correlations").set_index("column")["time_s"]
        grouped = table(root, "h200", sweep, "correlation_groups")
        found |= {
            f"{sweep}_columns": str(len(correlations)),
            f"{sweep}_columns_grouped": str(len(grouped)),
            f"{sweep}_column_groups": str(grouped["group"].nunique()),
        }
        for column in ("energy_j", "power_w", "temperature_c", "memory_used_bytes", "repetition"):
            found[f"{sweep}_time_with_{column}"] = f"{correlations[column]:.3f}".replace("-", MINUS)
    return found


def _alike(of_column: pd.DataFrame) -> list[tuple[str, ...]]:
    places: dict[tuple[int, ...], list[str]] = {}
    for column, numbers in zip(of_column.index, of_column.to_numpy(dtype=int), strict=True):
        places.setdefault(tuple(numbers), []).append(str(column))
    return [tuple(names) for names in places.values() if len(names) > 1]
