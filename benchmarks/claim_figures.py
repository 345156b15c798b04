"""The figures of docs/accuracy.md, recomputed from the committed rows."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd
from repeatability import FIGURES, apart, joined, variation

from opcost.comparing.row import ComparisonRow
from opcost.estimates import NORMAL_QUANTILE
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_rows import counts_of
from opcost.operators.whitelist import EVERYTHING, select
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons, keep_comparisons
from opcost.storage.database import Database
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements
from opcost.summing.summation import sum_operators

SMALL_INPUTS = ("resnet34_32x3x56x56", "resnet18_32x3x32x32")
"""The two models whose input is smaller than published."""

LONG_S = 2e-3
TWO_BOARDS = ("GPU-0d8f", "GPU-cd1b")
SLOPE_ERROR = 0.001
"""Standard error per kelvin above which a board's temperature coefficient of power is not known well."""

PAUSE_S = 60.0
"""A longer time between two operators is another step: once in the campaign cache chains were measured."""

MINUS = "\N{MINUS SIGN}"
RESNET50 = "resnet50_32x3x224x224"
COUNTING_PAGES = {"cpu": "docs/accuracy/counting_cpu.md", "h200": "docs/accuracy/counting_h200.md"}


def percent(ratio: float) -> str:
    """Return a ratio as a percentage: one decimal, none from 10 % on."""
    return f"{100 * ratio:.{0 if abs(ratio) >= 0.0995 else 1}f} %"


def fine_percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.0f} %".replace("-", MINUS)


def ratio_with_error(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def sums_against_wholes(root: Path) -> dict[str, str]:
    """Return how far sums are from wholes: of all models at their published size, and of those of 2 ms and more."""
    table = complete_sums(root)
    published = table[table["is_published_size"]]
    found = {"models": str(published["name"].nunique())}
    for column, text in (("time", "time_s"), ("energy", "energy_j")):
        for counted, name in (("all", column), ("leaf", f"modules_{column}")):
            rows = published[published["counted"] == counted].set_index("name")
            long = rows["full_time_s"] >= LONG_S
            found["models_2ms"] = str(long.sum())
            totals = {name: rows[text]}
            if counted == "all":
                totals[f"{name}_corrected"] = rows[text] + rows[f"correction_{text}"]
            for key, total in totals.items():
                errors = (total / rows[f"full_{text}"] - 1).abs()
                found |= {
                    f"{key}_median": percent(errors.median()),
                    f"{key}_worst": percent(errors.max()),
                    f"{key}_worst_model": model_name(errors.idxmax()),
                    f"{key}_median_2ms": percent(errors[long].median()),
                    f"{key}_worst_2ms": percent(errors[long].max()),
                }
    return found


def complete_sums(root: Path) -> pd.DataFrame:
    """Return the committed sums that lack no operator: in graphs, on values as in the model."""
    table = pd.read_csv(root / "database" / "sum_vs_full.csv")
    chosen = (table["execution"] == "graph") & (table["input_data"] == "captured") & (table["missing_operators"] == 0)
    return table[chosen].assign(is_published_size=lambda rows: ~rows["name"].isin(SMALL_INPUTS))


def model_name(config: str) -> str:
    return config.rpartition("_")[0]


def short_kernels(root: Path) -> dict[str, str]:
    """Return the sums that the cache correction changes most, and those of small inputs."""
    rows = complete_sums(root).query("counted == 'all'").set_index("name")
    plain = rows["time_s"] / rows["full_time_s"]
    corrected = (rows["time_s"] + rows["correction_time_s"]) / rows["full_time_s"]
    corrected_energy = (rows["energy_j"] + rows["correction_energy_j"]) / rows["full_energy_j"]
    shufflenet, (small, smallest) = "shufflenet_v2_x0_5_32x3x224x224", SMALL_INPUTS
    return {
        "shufflenet_ratio": f"{plain[shufflenet]:.3f}",
        "shufflenet_corrected_ratio": f"{corrected[shufflenet]:.3f}",
        "resnet34_small_ratio": f"{plain[small]:.3f}",
        "resnet34_small_corrected_ratio": f"{corrected[small]:.3f}",
        "resnet34_small_energy_corrected_ratio": f"{corrected_energy[small]:.3f}",
        "resnet18_small_ratio": f"{plain[smallest]:.3f}",
    }


def other_runs(root: Path) -> dict[str, str]:
    """Return how far sums of eager loops are from eager wholes, and sums of Gaussian inputs from wholes in graphs."""
    table = pd.read_csv(root / "database" / "sum_vs_full.csv").query("counted == 'all' and missing_operators == 0")
    eager = table.query("execution == 'eager' and input_data == 'captured'")
    normal = table.query("execution == 'graph' and input_data == 'normal'")
    errors = {unit: eager[unit] / eager[f"full_{unit}"] - 1 for unit in ("time_s", "energy_j")}
    off_normal = {unit: (normal[unit] / normal[f"full_{unit}"] - 1).abs() for unit in ("time_s", "energy_j")}
    return {
        "eager_models": str(len(eager)),
        "eager_time_lowest": signed_percent(errors["time_s"].min()),
        "eager_time_highest": signed_percent(errors["time_s"].max()),
        "eager_energy_lowest": signed_percent(errors["energy_j"].min()),
        "eager_energy_highest": signed_percent(errors["energy_j"].max()),
        "normal_models": str(len(normal)),
        "normal_time_median": percent(off_normal["time_s"].median()),
        "normal_time_worst": percent(off_normal["time_s"].max()),
        "normal_energy_median": percent(off_normal["energy_j"].median()),
        "normal_energy_worst": percent(off_normal["energy_j"].max()),
    }


def kernels_alone(root: Path) -> dict[str, str]:
    """Return what kernels take alone over what they take in their model, by the profiler."""
    table = pd.read_csv(root / "database" / "kernel_times.csv").groupby("name").sum(numeric_only=True)
    alone = table["alone_time_s"] / table["in_model_time_s"]
    same = table["same_kernels_time_s"] / table["in_model_time_s"]
    return {
        "kernel_models": str(len(table)),
        "kernels_alone_lowest": f"{alone.min():.3f}",
        "kernels_alone_highest": f"{alone.max():.3f}",
        "kernels_alone_median": f"{alone.median():.3f}",
        "same_kernels_lowest": percent(same.min()),
    }


def two_boards(root: Path) -> dict[str, str]:
    """Return how far two boards agree: on the sums of the models that are whole on both, and on their operators."""
    database = Database(root / "database")
    wholes = [rows_of_board(database.full_model_measurements.rows(), board) for board in TWO_BOARDS]
    names = set.intersection(*({row.operator for row in rows} for rows in wholes))
    conditions = wholes[0][0].conditions
    operators = database.operator_measurements.rows()
    measured = [rows_of_board(operators, board) for board in TWO_BOARDS]
    found = [Measurements(rows) for rows in measured]
    times, energies = [], []
    for name, counts in counted_models(database):
        costs = [sum_operators(counts, rows, conditions, basis=EnergyBasis.NORMALISED) for rows in found]
        if counts.model.operator in names and name not in SMALL_INPUTS and not any(cost.missing for cost in costs):
            one, other = costs
            times.append(other.time_s.value / one.time_s.value - 1)
            energies.append(other.energy_j.value / one.energy_j.value - 1)
    one, other = ({row.key: row.measurement.time_s for row in rows} for rows in measured)
    apart_s = pd.Series([other[key] / one[key] - 1 for key in one.keys() & other.keys()]).abs()
    return {
        "two_boards_models": str(len(times)),
        "two_boards_time_worst": fine_percent(max(map(abs, times))),
        "two_boards_time_median": fine_percent(statistics.median(map(abs, times))),
        "two_boards_energy_lowest": percent(min(energies)).replace("-", MINUS),
        "two_boards_energy_highest": percent(max(energies)).replace("-", MINUS),
        "two_boards_operators": f"{len(apart_s):,}",
        "two_boards_operator_median": percent(apart_s.median()),
        "two_boards_operator_beyond_1": str((apart_s > 0.01).sum()),
    }


def rows_of_board(rows: Iterable[MeasurementRow], board: str) -> list[MeasurementRow]:
    """Return the rows in graphs of one board, named by how its UUID begins."""
    uuids = ((row, row.circumstances.device_uuid or "") for row in rows if row.conditions.execution == "graph")
    return [row for row, uuid in uuids if uuid.startswith(board)]


def counted_models(database: Database) -> list[tuple[str, OperatorCounts]]:
    """Return what of each model computes something, by its config's name."""
    models = groupby(database.model_operators.rows(), key=lambda row: (row.model, row.model_key))
    return [
        (name, select(shipped.counts, [EVERYTHING]).kept)
        for (name, _), rows in models
        for shipped in counts_of(list(rows))
    ]


def boards(root: Path) -> dict[str, str]:
    """Return how far boards differ in the addition that is repeated throughout each campaign, and in whole models."""
    table = pd.read_csv(root / "database" / "sentinel_measurements.csv").groupby("device_uuid")
    time_s, energy_j = (table[column].median() for column in ("time_s", "energy_at_reference_j"))
    wholes = pd.read_csv(root / "database" / "full_model_measurements.csv").query("execution == 'graph'")
    large_s = wholes[wholes["operator"].str.endswith("mobilenet_v3_large")].groupby("device_uuid")["time_s"].last()
    return {
        "boards": str(len(time_s)),
        "boards_time_range": percent(time_s.max() / time_s.min() - 1),
        "boards_energy_range": percent(energy_j.max() / energy_j.min() - 1),
        "mobilenet_boards": str(len(large_s)),
        "mobilenet_shortest": f"{1e3 * large_s.min():.2f} ms",
        "mobilenet_longest": f"{1e3 * large_s.max():.2f} ms",
    }


def wholes_of_many_builds(root: Path) -> dict[str, str]:
    """Return how many builds of EfficientNet-B0 take the shorter of its two times."""
    table = pd.read_csv(root / "docs" / "data" / "whole_builds.csv")
    times_s = table[table["config"].str.startswith("efficientnet_b0")]["time_s"]
    usual_s = times_s.median()
    short_s = times_s[times_s < 0.99 * usual_s]
    return {
        "builds": str(len(times_s)),
        "short_builds": str(len(short_s)),
        "short_builds_by": percent(1 - short_s.median() / usual_s),
    }


def campaign_speed(root: Path) -> dict[str, str]:
    """Return the time from one operator's start to the next one's in the largest campaign of one board."""
    table = pd.read_csv(root / "database" / "operator_measurements.csv", low_memory=False)
    board = TWO_BOARDS[1]
    is_campaign = (table["execution"] == "graph") & table["device_uuid"].str.startswith(board, na=False)
    started = pd.to_datetime(table.loc[is_campaign, "started_at"]).sort_values()
    steps_s = started.diff().dt.total_seconds()
    steps_s = steps_s[steps_s < PAUSE_S]
    return {
        "campaign_operators": f"{is_campaign.sum():,}",
        "campaign_minutes": f"{steps_s.sum() / 60:.0f} minutes",
        "operator_seconds_median": f"{steps_s.median():.2f} s",
        "operator_seconds_mean": f"{steps_s.mean():.2f} s",
    }


def resnet50(root: Path) -> dict[str, str]:
    """Return how long one run of ResNet-50's operators took, and its sum over the whole."""
    database = Database(root / "docs" / "data" / "resnet50")
    table, sentinel = (pd.read_csv(database.folder / f"{name}_measurements.csv") for name in ("operator", "sentinel"))
    begun, ended = (pd.to_datetime(pd.concat([table, sentinel])[name]) for name in ("started_at", "ended_at"))
    row = comparison_of(RESNET50, root / "measurements", database)
    return {
        "resnet50_measurements": str(len(table)),
        "resnet50_span": f"{(ended.max() - begun.min()).total_seconds():.0f} s",
        "resnet50_time": ratio_with_error(row.time_ratio, row.time_standard_error_ratio),
        "resnet50_energy": ratio_with_error(row.energy_ratio, row.energy_standard_error_ratio),
        "resnet50_time_corrected": f"{(row.time_s + row.correction_time_s) / row.full_time_s:.3f}",
        "resnet50_energy_corrected": f"{(row.energy_j + row.correction_energy_j) / row.full_energy_j:.3f}",
    }


def comparison_of(config: str, measurements: Path, database: Database) -> ComparisonRow:
    """Return the comparison of one model under the one set of conditions that a database has of it."""
    request = Request((config,), measurements, database, dry_run=True)
    ((row,),) = (report.comparisons for report in keep_comparisons(request, find_comparisons(request)))
    return row


def three_runs(root: Path) -> dict[str, str]:
    """Return how far three runs of the same operators agree, and how often their intervals hold the difference."""
    paths = sorted((root / "docs" / "data" / "repeatability").glob("run*/operator_measurements.csv"))
    rows = joined([pd.read_csv(path) for path in paths])
    found = {"runs": str(len(paths)), "run_operators": str(rows["key"].nunique())}
    for name, figure in (("time", "time"), ("energy", "energy at the reference temperature")):
        column, error = FIGURES[figure]
        spread = variation(rows, rows[column])
        held = (abs(apart(rows, column, error)) < NORMAL_QUANTILE).mean()
        found |= {
            f"runs_{name}_median": fine_percent(spread.median()),
            f"runs_{name}_95": fine_percent(spread.quantile(0.95)),
            f"runs_{name}_held": f"{100 * held:.0f} %",
        }
    return found


def fast_against_long(root: Path) -> dict[str, str]:
    """Return how far loops that end at 1 % agree with loops of 10 s."""
    table = pd.read_csv(root / "docs" / "data" / "fast_vs_reference.csv")

    def off(quantity: str, one: str, other: str = "_reference") -> pd.Series:
        name, unit = quantity.split("_")
        return (table[f"{name}{one}_{unit}"] / table[f"{name}{other}_{unit}"] - 1).dropna().abs()

    def within(errors: pd.Series, limit: float) -> str:
        return f"{100 * (errors <= limit).mean():.0f} %"

    meters = (table["check_power_ratio_reference"] - 1).dropna().abs()
    return {
        "fast_operators": str(len(table)),
        "fast_seconds_median": f"{table['wall_s'].median():.2f} s",
        "fast_time_median": fine_percent(off("time_s", "").median()),
        "fast_time_within": within(off("time_s", ""), 0.003),
        "fast_energy_median": fine_percent(off("energy_j", "").median()),
        "fast_energy_within": within(off("energy_j", ""), 0.01),
        "fast_time_within_same_build": within(off("time_s", "_same_build"), 0.003),
        "fast_energy_within_same_build": within(off("energy_j", "_same_build"), 0.01),
        "long_operators": str(len(off("time_s", "_reference", "_long_reference"))),
        "long_time_worst": fine_percent(off("time_s", "_reference", "_long_reference").max()),
        "long_energy_worst": fine_percent(off("energy_j", "_reference", "_long_reference").max()),
        "meters_apart_median": fine_percent(meters.median()),
        "meters_apart_operators": str(len(meters)),
    }


def meters(root: Path) -> dict[str, str]:
    """Return how far NVML's power samples are from its energy counter, and how power follows the temperature."""
    table = pd.read_csv(root / "database" / "meter_qualifications.csv")
    samples = table[table["meter"] == "NVML power samples"]
    known = table[table["power_per_kelvin_standard_error_ratio"] <= SLOPE_ERROR]
    slopes = known.groupby("device_uuid")["power_per_kelvin_ratio"].last()
    steady, pulsed = (samples[f"{load}_deviation_ratio"].abs().max() for load in ("steady", "pulsed"))
    return {
        "qualified_boards": str(samples["device_uuid"].nunique()),
        "samples_steady_worst": fine_percent(steady),
        "samples_pulsed_worst": percent(pulsed),
        "slope_boards": str(len(slopes)),
        "slope_lowest": fine_percent(slopes.min()),
        "slope_highest": fine_percent(slopes.max()),
    }


def values_of_inputs(root: Path) -> dict[str, str]:
    """Return what zeros in an operator's inputs save of its energy on Gaussian inputs."""
    table = pd.read_csv(root / "docs" / "data" / "input_values.csv")
    usual = table.query("`mean` == 0 and spread == 1").pivot(index="operator", columns="zeros_ratio", values="energy_j")
    saved = 1 - usual.div(usual[0.0], axis="index")
    return {
        "value_operators": str(len(usual)),
        "convolution_zeros_saves": percent(saved.loc["Conv2d 3x3", 1.0]),
        "zeros_save_least": percent(saved[1.0].min()),
        "zeros_save_most": percent(saved[1.0].max()),
        "convolution_half_zeros_saves": percent(saved.loc["Conv2d 3x3", 0.5]),
        "silu_half_zeros_costs": percent(-saved.loc["SiLU", 0.5]),
    }


def counting(root: Path) -> dict[str, str]:
    """Return what the pages on counting say in their summary, the same on both devices."""
    found = []
    for page in COUNTING_PAGES.values():
        text = (root / page).read_text(encoding="utf-8")
        models, flop, memory = first_match(r"- models: (\d+)\n.*least ([\d.]+) % of FLOPs, ([\d.]+) % of bytes", text)
        off, _ = first_match(r"deviate by more than 0.5 % from the published figure: (\d+) of (\d+)", text)
        found.append(
            {
                "counted_models": models,
                "counted_flops": f"{float(flop):g} %",
                "counted_bytes": f"{float(memory):g} %",
                "published_multiply_adds": str(int(models) - int(off)),
            }
        )
    first, *others = found
    if any(other != first for other in others):
        raise ValueError(f"the pages differ: {found}")
    return first


def first_match(pattern: str, text: str) -> Sequence[str]:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"nothing in the page matches {pattern!r}")
    return match.groups()


FIGURES_OF: Sequence[Callable[[Path], Mapping[str, str]]] = (
    sums_against_wholes,
    short_kernels,
    other_runs,
    kernels_alone,
    two_boards,
    boards,
    wholes_of_many_builds,
    campaign_speed,
    resnet50,
    three_runs,
    fast_against_long,
    meters,
    values_of_inputs,
    counting,
)


def all_figures(root: Path) -> dict[str, str]:
    """Return every figure by its name, as it is printed."""
    return {name: text for figures in FIGURES_OF for name, text in figures(root).items()}
