"""Figures of claims about sweeps over input size, from the database's tables of sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from claim_formats import MINUS, board_of, change_percent, days, fine_percent, percent, signed_percent
from claim_tables import committed

from opcost.comparing.pieces import pieces_of
from opcost.comparing.sweep_changes import BreakLine, curves_of, lines_of, short_kernel_name
from opcost.comparing.sweep_sizes import SweepSizeRow, spread_ratio
from opcost.measuring.flags import CASTING_DOUBT
from opcost.measuring.sweep_record import SweepRepetitionRow
from opcost.reporting.correlations import same_information, spearman
from opcost.units import millijoules, milliseconds, significant

SWEEPS = {"resnet50": "resnet50 1x3xNxN", "alexnet": "alexnet Nx3x224x224", "bert": "transformers:BertModel 1xN"}
"""The models as tables name them: ResNet-50 over pixels, AlexNet over the batch, BERT-base over tokens."""

CARDS = ("h200", "h100")
BOARDS: Mapping[str, Mapping[str, str]] = {
    "h200": {"resnet50": "acdc", "alexnet": "7d48", "bert": "7d48"},
    "h100": {"resnet50": "f31b", "alexnet": "f31b", "bert": "f31b"},
    "first_h200": {"resnet50": "bcd8", "alexnet": "25a0", "bert": "25a0"},
    "first_h100": {"resnet50": "db20", "bert": "db20"},
}
"""The boards of each run's sweeps. The first runs missed their aims for spreads, and were run again on other boards."""

COSTS = {"time": "time_s", "energy": "energy_j"}
LONG_FROM_S = 1e-3
"""Sizes that take this long have aims for their spread: 0.5 % in time and 1 % in energy."""

WITHOUT_TENSOR_CORES = "ffma|simt|sgemm|gemmSN|gemv"
"""Parts of the names of kernels for products of fp32 that use no tensor cores."""


def table(root: Path, run: str, sweep: str, name: str) -> pd.DataFrame:
    """Return the rows of a table that are of a sweep, without repetitions that do not count.

    Kernels were profiled in the second runs only: those of the first ones are the same, launch by launch.
    """
    rows = _read(root, name)
    rows = rows[(rows["model"] == SWEEPS[sweep]) & (rows["device_uuid"].map(board_of) == BOARDS[run][sweep])]
    if name == "repetitions":
        doubts = {flag.value for flag in CASTING_DOUBT}
        rows = rows[[pd.isna(own) or doubts.isdisjoint(own.split("|")) for own in rows["flags"]]]
    return rows


@cache
def _read(root: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(root / "database" / f"sweep_{name}.csv")


def breaks(root: Path, run: str, sweep: str) -> list[BreakLine]:
    """Return the pieces of a sweep's curves with the changes at which they begin."""
    database = committed(root)
    sizes = [row for row in database.sweep_sizes.rows() if _is_of(row, run, sweep)]
    return lines_of(curves_of(sorted(sizes, key=lambda row: row.place.size), database.sweep_kernels.rows()))


def _is_of(row: SweepSizeRow | SweepRepetitionRow, run: str, sweep: str) -> bool:
    uuid = row.device_uuid if isinstance(row, SweepSizeRow) else row.circumstances.device_uuid
    return (row.place.model, board_of(uuid or "")) == (SWEEPS[sweep], BOARDS[run][sweep])


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


def _sweeps(*runs: str) -> Iterator[tuple[str, str, str]]:
    """Yield runs and sweeps, by default all, with the beginning of their figures' names."""
    for run in runs or BOARDS:
        for sweep in BOARDS[run]:
            yield run, sweep, f"{run}_{sweep}"


def sweeps_of_sizes(root: Path) -> dict[str, str]:
    """Return what each size of each sweep takes, and its kernels."""
    found = {}
    for run, sweep, word in _sweeps():
        rows = table(root, run, sweep, "sizes")
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
            for cost in COSTS:
                found[f"{name}_{cost}_spread"] = fine_percent(row[f"{cost}_spread_ratio"])
                found[f"{name}_{cost}_range"] = percent(row[f"{cost}_range_ratio"])
        steps = rows.set_index("size")
        for (before, below), (after, above) in zip(
            list(steps.iterrows())[:-1], list(steps.iterrows())[1:], strict=True
        ):
            for cost, column in COSTS.items():
                found[f"{word}_{before}_to_{after}_{cost}"] = change_percent(above[column] / below[column] - 1)
        if 256 in steps.index:
            found[f"{word}_growth"] = percent(steps["time_s"][256] / steps["time_s"].iloc[0] - 1)
    return found


def single_iterations(root: Path) -> dict[str, str]:
    """Return how far single iterations are from the loop, and from each other; the first runs have none."""
    found = {}
    for run, sweep, word in _sweeps(*CARDS):
        rows = table(root, run, sweep, "sizes")
        single = rows["iteration_p50_s"] / rows["time_s"]
        found |= {
            f"{word}_single_differs": fine_percent((single - 1).abs().max()),
            f"{word}_single_range": fine_percent((rows["iteration_p95_s"] / rows["iteration_p5_s"] - 1).median()),
        }
    return found


def sweeps_against_first_runs(root: Path) -> dict[str, str]:
    """Return how far the second boards are from the first ones, size by size."""
    found = {}
    for run, sweep, word in _sweeps(*(run for run in BOARDS if run.startswith("first_"))):
        second, first = (
            table(root, one, sweep, "sizes").set_index("size") for one in (run.removeprefix("first_"), run)
        )
        for cost, column in COSTS.items():
            off = second[column] / first[column] - 1
            found |= {
                f"{word}_{cost}_apart_median": percent(off.abs().median()),
                f"{word}_{cost}_apart_worst": f"{percent(off.abs().max())} (at {off.abs().idxmax()})",
                f"{word}_{cost}_later": change_percent(off.median()),
            }
    return found


def sweeps_spread(root: Path) -> dict[str, str]:
    """Return the spreads of the repetitions of sizes of 1 ms or more, over all builds, within and between builds."""
    found = {}
    totals = {run: [0, 0] for run in BOARDS}
    for run, sweep, word in _sweeps():
        sizes = table(root, run, sweep, "sizes")
        repetitions = table(root, run, sweep, "repetitions")
        flagged = int(sizes["flagged_repetitions"].sum())
        totals[run][0] += len(repetitions) + flagged
        totals[run][1] += flagged
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
            spreads, ranges = (long[f"{cost}_{name}_ratio"] for name in ("spread", "range"))
            within = builds[column].agg(lambda values: spread_ratio(list(values)))
            between = builds[column].median().groupby("size").agg(lambda medians: medians.max() / medians.min() - 1)
            found |= {
                f"{word}_{cost}_spread": fine_percent(spreads.max()),
                f"{word}_{cost}_spread_size": str(spreads.idxmax()),
                f"{word}_{cost}_range": percent(ranges.max()),
                f"{word}_{cost}_within": fine_percent(within.max()),
                f"{word}_{cost}_between": fine_percent(between.max()) if repetitions["block"].nunique() > 1 else "",
            }
    for run, (repeated, flagged) in totals.items():
        found |= {f"{run}_sweeps_repetitions": str(repeated), f"{run}_sweeps_flagged": str(flagged)}
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
    for run, sweep, word in _sweeps():
        rows = table(root, run, sweep, "sizes").sort_values("size")
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
    for run, sweep, word in _sweeps(*CARDS):
        rows = table(root, run, sweep, "kernels")
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
    found, group_of = {}, []
    for sweep in SWEEPS:
        matrix = spearman([row for row in committed(root).sweep_repetitions.rows() if _is_of(row, "h200", sweep)])
        groups = same_information(matrix)
        group_of.append({column: number for number, group in enumerate(groups) for column in group})
        found |= {
            f"{sweep}_columns": str(len(matrix)),
            f"{sweep}_columns_grouped": str(len(group_of[-1])),
            f"{sweep}_column_groups": str(len(groups)),
        }
        for column in ("energy_j", "power_w", "temperature_c", "memory_used_bytes", "repetition"):
            found[f"{sweep}_time_with_{column}"] = f"{matrix.loc[column, 'time_s']:.3f}".replace("-", MINUS)
    alike: dict[tuple[int, ...], list[str]] = {}
    for column in group_of[0]:
        if all(column in of_sweep for of_sweep in group_of):
            alike.setdefault(tuple(of_sweep[column] for of_sweep in group_of), []).append(f"`{column}`")
    return found | {"sweep_columns_alike": "; ".join(", ".join(names) for names in alike.values() if len(names) > 1)}
