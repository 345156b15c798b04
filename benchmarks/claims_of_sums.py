"""Figures of claims about sums of operators and whole models."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from claim_formats import (
    days,
    fine_percent,
    milliseconds,
    percent,
    percent_of,
    ratio_with_error,
    signed_percent,
    spread,
)
from claim_tables import committed, kernel_ratios
from claims_of_rows import CARD, of_card
from sum_vs_full import corrected

from opcost.comparing.gap import METHOD_ERROR_RATIOS
from opcost.comparing.row import ComparisonRow
from opcost.estimates import NORMAL_QUANTILE
from opcost.operators.cases import ALL, CAPTURED
from opcost.operators.keys import conditions_key
from opcost.reporting.compared_models import compared_model
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons, keep_comparisons
from opcost.storage.database import Database

SMALL_INPUTS = ("resnet34_32x3x56x56", "resnet18_32x3x32x32")
"""The two models whose input is smaller than published."""

SUMS = "sum_vs_full.csv"

LONG_S = 2e-3
LEAST_SHARE = 0.02
"""The share of a model's kernel time from which on a kind of operator counts."""

EFFICIENTNET = "efficientnet_b0_32x3x224x224"
RESNET50 = "resnet50_32x3x224x224"


def sums_against_wholes(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes: of models at their published size, and of those of 2 ms and more."""
    table = complete_sums(root)
    published = table[table["is_published_size"]]
    errors = published[published["counted"] == "all"]
    found = {
        "all_models": str(table["name"].nunique()),
        "models": str(published["name"].nunique()),
        "ratio_error_time_median": percent(errors["time_standard_error_ratio"].median()),
        "ratio_error_energy_lowest": percent(errors["energy_standard_error_ratio"].min()),
        "ratio_error_energy_highest": percent(errors["energy_standard_error_ratio"].max()),
    }
    for column, text in (("time", "time_s"), ("energy", "energy_j")):
        for counted, name in (("all", column), ("leaf", f"modules_{column}")):
            rows = published[published["counted"] == counted].set_index("name")
            long = rows["full_time_s"] >= LONG_S
            found["models_2ms"] = str(long.sum())
            totals = {name: rows[text]}
            if counted == "all":
                totals[f"{name}_corrected"] = corrected(rows, text)
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


def covered(root: Path) -> dict[str, str]:
    """Return for how many models the 95 % interval of the corrected ratio holds 1, without and with the method's error.

    Without it, errors are taken from the columns of the table, with it as they are shown. The excess is what
    deviations have beyond the former, as a root mean square.
    """
    table = complete_sums(root).query("counted == 'all' and is_published_size").set_index("name")
    shown = {
        row.name: compared_model(row.name, row, ())
        for row in Database(root / "database").sum_vs_full.rows()
        if is_usual(row) and row.name in table.index
    }
    found = {}
    for quantity, unit in (("time", "s"), ("energy", "j")):
        whole, parts = table[f"full_{quantity}_{unit}"], ("correction", "power_limit")
        variances = [(table[f"{part}_{quantity}_standard_error_{unit}"] / whole).fillna(0.0) ** 2 for part in parts]
        error = (table[f"{quantity}_standard_error_ratio"] ** 2 + sum(variances)) ** 0.5
        off = corrected(table, f"{quantity}_{unit}") / whole - 1
        ratios = [ratio for one in shown.values() if (ratio := one.corrected_ratio(quantity)) is not None]
        shares = {
            f"covered_{quantity}_by_rows": (off.abs() <= NORMAL_QUANTILE * error).mean(),
            f"covered_{quantity}": sum(abs(one.value - 1) <= NORMAL_QUANTILE * one.standard_error for one in ratios)
            / len(table),
        }
        found |= {name: f"{100 * share:.0f} %" for name, share in shares.items()}
        found[f"method_error_{quantity}"] = f"{100 * METHOD_ERROR_RATIOS[quantity]:.1f} %"
        found[f"method_error_{quantity}_found"] = fine_percent(((off**2 - error**2).mean()) ** 0.5)
    return found


def complete_sums(root: Path) -> pd.DataFrame:
    """Return the card's committed sums of torchvision's models that lack no operator: in graphs, on captured values."""
    table = of_card(root, SUMS)
    is_usual = (table["execution"] == "graph") & (table["input_data"] == "captured")
    chosen = is_usual & table["operator"].str.startswith("torchvision.") & (table["missing_operators"] == 0)
    return table[chosen].assign(is_published_size=lambda rows: ~rows["name"].isin(SMALL_INPUTS))


def model_name(config: str) -> str:
    return config.rpartition("_")[0]


def short_kernels(root: Path) -> dict[str, str]:
    """Return the sum over the whole of the model that is worst uncorrected, and of the two with small inputs."""
    rows = complete_sums(root).query("counted == 'all'").set_index("name")
    plain = rows["time_s"] / rows["full_time_s"]
    corrected_time = corrected(rows, "time_s") / rows["full_time_s"]
    corrected_energy = corrected(rows, "energy_j") / rows["full_energy_j"]
    off, (small, smallest) = (plain - 1).abs(), SMALL_INPUTS
    worst = off[rows["is_published_size"]].idxmax()
    energy = rows["energy_j"] / rows["full_energy_j"]
    return {
        "worst_whole": milliseconds(rows.loc[worst, "full_time_s"]),
        "worst_ratio": f"{plain[worst]:.3f}",
        "worst_corrected_ratio": f"{corrected_time[worst]:.3f}",
        "worst_days": days_of_sums(root, rows.loc[[worst]]),
        "resnet34_small_whole": milliseconds(rows.loc[small, "full_time_s"]),
        "resnet18_small_whole": milliseconds(rows.loc[smallest, "full_time_s"]),
        "resnet34_small_ratio": f"{plain[small]:.3f}",
        "resnet34_small_corrected_ratio": f"{corrected_time[small]:.3f}",
        "resnet34_small_energy_corrected_ratio": f"{corrected_energy[small]:.3f}",
        "resnet18_small_ratio": f"{plain[smallest]:.3f}",
        "resnet18_small_corrected_ratio": f"{corrected_time[smallest]:.3f}",
        "resnet18_small_energy_corrected_ratio": f"{corrected_energy[smallest]:.3f}",
        "small_inputs_days": days_of_sums(root, rows.loc[[small, smallest]]),
        "small_kernels_time": percent(1 - plain.min()),
        "small_kernels_energy": percent(1 - energy.min()),
    }


def other_runs(root: Path) -> dict[str, str]:
    """Return the differences of eager sums and eager wholes, and of sums on Gaussian inputs and wholes in graphs."""
    table = of_card(root, SUMS).query("counted == 'all' and missing_operators == 0")
    eager = table.query("execution == 'eager' and input_data == 'captured'")
    normal = table.query("execution == 'graph' and input_data == 'normal'")
    errors = {unit: eager[unit] / eager[f"full_{unit}"] - 1 for unit in ("time_s", "energy_j")}
    off_normal = {unit: (normal[unit] / normal[f"full_{unit}"] - 1).abs() for unit in ("time_s", "energy_j")}
    return {
        "eager_models": str(len(eager)),
        "eager_days": days_of_sums(root, eager.set_index("name")),
        "eager_time_worst": signed_percent(errors["time_s"].abs().max()).lstrip("+"),
        "eager_time_lowest": signed_percent(errors["time_s"].min()),
        "eager_time_highest": signed_percent(errors["time_s"].max()),
        "eager_energy_lowest": signed_percent(errors["energy_j"].min()),
        "eager_energy_highest": signed_percent(errors["energy_j"].max()),
        "normal_models": str(len(normal)),
        "normal_days": days_of_sums(root, normal.set_index("name")),
        "normal_time_median": percent(off_normal["time_s"].median()),
        "normal_time_worst": percent(off_normal["time_s"].max()),
        "normal_energy_median": percent(off_normal["energy_j"].median()),
        "normal_energy_worst": percent(off_normal["energy_j"].max()),
    }


def _kernels_of_libraries(root: Path) -> pd.DataFrame:
    """Return the kernel times on the card of the claims, without the networks of a file."""
    rows = of_card(root, "kernel_times.csv")
    return rows[~rows["name"].str.startswith("networks_")]


def kernels_alone(root: Path) -> dict[str, str]:
    """Return the ratio of kernel time alone to kernel time in the model, by the profiler."""
    rows = _kernels_of_libraries(root)
    alone, same = kernel_ratios(rows)
    return {
        "kernel_models": str(len(alone)),
        "kernel_days": days(rows["profiled_at"]),
        **spread(alone, "kernels_alone"),
        "same_kernels_lowest": percent(same.min()),
    }


def kinds_of_operators(root: Path) -> dict[str, str]:
    """Return how far the kernel time of a kind of operator alone is from that in its model, uncorrected."""
    everything = pd.read_csv(root / "database" / "kernel_times.csv")
    found = {}
    for key, rows in (
        ("kinds", _kernels_of_libraries(root)),
        ("bf16_kinds", everything[everything["precision"] == "bf16"]),
    ):
        share = rows["in_model_time_s"] / rows.groupby(["name", "device_product"])["in_model_time_s"].transform("sum")
        large = rows[share > LEAST_SHARE]
        off = (large["alone_time_s"] / large["in_model_time_s"] - 1).abs()
        found |= {
            f"{key}_days": days(rows["profiled_at"]),
            f"{key}": str(len(off)),
            f"{key}_models": str(len(large[["name", "device_product"]].drop_duplicates())),
            f"{key}_median": percent(off.median()),
            f"{key}_90": percent(off.quantile(0.9)),
            f"{key}_worst": percent(off.max()),
            f"{key}_worst_kind": f"{large['operator'][off.idxmax()]} of {model_name(large['name'][off.idxmax()])}",
        }
    return found


def resnet50(root: Path) -> dict[str, str]:
    """Return the duration of one run of ResNet-50's operators, and their sum over the whole."""
    database = Database(root / "docs" / "data" / "resnet50")
    table, sentinel = (pd.read_csv(database.folder / f"{name}_measurements.csv") for name in ("operator", "sentinel"))
    begun, ended = (pd.to_datetime(pd.concat([table, sentinel])[name]) for name in ("started_at", "ended_at"))
    row = comparison_of(RESNET50, root / "measurements", database)
    return {
        "resnet50_measurements": str(len(table)),
        "resnet50_days": days(table["started_at"]),
        "resnet50_span": f"{(ended.max() - begun.min()).total_seconds():.0f} s",
        "resnet50_time": ratio_with_error(row.time_ratio, row.time_standard_error_ratio),
        "resnet50_energy": ratio_with_error(row.energy_ratio, row.energy_standard_error_ratio),
        "resnet50_time_corrected": f"{_corrected_ratio(row, 'time'):.3f}",
        "resnet50_energy_corrected": f"{_corrected_ratio(row, 'energy'):.3f}",
    }


def _corrected_ratio(row: ComparisonRow, quantity: str) -> float:
    ratio = compared_model(row.name, row, ()).corrected_ratio(quantity)
    if ratio is None:
        raise ValueError(f"{row.name}: the corrected sum of {quantity} is unknown")
    return ratio.value


def under_the_whitelist(root: Path) -> dict[str, str]:
    """Return the README's example, EfficientNet-B0, and ResNet-50's sum, both under the shipped whitelist."""
    measurements, database = root / "measurements", committed(root)
    row, resnet = (comparison_of(config, measurements, database) for config in (EFFICIENTNET, RESNET50))
    return {
        "efficientnet_time": milliseconds(row.full_time_s, 3),
        "efficientnet_energy": f"{1e3 * row.full_energy_j:.0f} mJ",
        "efficientnet_time_corrected": percent_of(_corrected_ratio(row, "time")),
        "efficientnet_energy_corrected": percent_of(_corrected_ratio(row, "energy")),
        "efficientnet_dropped": percent(row.dropped_time_s / row.full_time_s),
        "resnet50_sum_time": milliseconds(resnet.time_s, 3),
        "resnet50_sum_energy": f"{resnet.energy_j:.3f} J",
    }


def comparison_of(config: str, measurements: Path, database: Database) -> ComparisonRow:
    """Return the comparison of one model as CUDA graphs, on captured values, under the config's whitelist."""
    request = Request((config,), measurements, database, dry_run=True)
    reports = keep_comparisons(request, find_comparisons(request))
    (row,) = (row for report in reports for row in report.comparisons if is_usual(row))
    return row


def is_usual(row: ComparisonRow) -> bool:
    kind = row.conditions.device_product, row.conditions.execution, row.input_data, row.counted
    return kind == (CARD, "graph", CAPTURED, ALL)


def days_of_sums(root: Path, sums: pd.DataFrame) -> str:
    """Return the days on which the wholes and the operators of sums were measured; ``sums`` is indexed by config."""
    wholes = pd.read_csv(root / "database" / "full_model_measurements.csv")
    calls = pd.read_csv(root / "database" / "model_operators.csv")
    operators = pd.read_csv(root / "database" / "operator_measurements.csv", low_memory=False)
    keys = operators["key"].str.split("-", expand=True)
    operators = operators.assign(operator_key=keys[0], case=keys[0] + "-" + keys[1], conditions=keys[2])
    started = []
    for config, total in sums.iterrows():
        (whole,) = wholes[(wholes["key"] == total["key"]) & (wholes["time_s"] == total["full_time_s"])].itertuples()
        cases = calls.loc[calls["model"] == config, "key"]
        is_normal = total["input_data"] == "normal"
        named = operators["operator_key"].isin(cases.str.split("-").str[0]) & (operators["input_data"] == "normal")
        usable = named if is_normal else operators["case"].isin(cases)
        found = operators[usable & (operators["conditions"] == conditions_key(total["key"]))]
        rank = {
            "has_energy": found["energy_j"].notna(),
            "unflagged": found["flags"].isna(),
            "same_board": found["device_uuid"] == whole.device_uuid,
        }
        best = (
            found.assign(**rank).sort_values([*rank, "loop_time_s"], kind="stable").drop_duplicates("case", keep="last")
        )
        started += [pd.Series([whole.started_at]), best["started_at"]]
    return days(*started)
