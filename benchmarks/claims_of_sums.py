"""Figures of claims about sums of operators and whole models."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from claim_tables import CARD, COSTS, WHOLES, fine_percent, milliseconds, of_card, percent, signed_percent
from sum_vs_full import corrected

from opcost.comparing.corrections import METHOD_ERROR_RATIOS
from opcost.estimates import NORMAL_QUANTILE
from opcost.measuring.conditions import STATE
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.operators.counts import ALL, CAPTURED
from opcost.reporting.charts import Compared
from opcost.storage.database import Database

OTHER_CARD = "NVIDIA H100 80GB HBM3"
BATCH = 32
SMALL_INPUTS = ("resnet34_32x3x56x56", "resnet18_32x3x32x32")
"""The two models whose input is smaller than published."""

MODELS = ("resnet50", "vit_b_16", "swin_t", "convnext_tiny", "densenet121", "efficientnet_b0")
PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "bf16_channels_last": "bf16, channels last"}
"""The models that are measured in each precision, the ends of their configs' names, and the words for them."""

LONG_S = 2e-3
LEAST_SHARE = 0.02
"""The share of a model's kernel time from which on a kind of operator counts."""

FROZEN = "2026-11-27"
"""The day since which wholes were measured after chains and rules of the cache correction had last changed."""


def sums_against_wholes(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes: of models at their published size, and of those of 2 ms and more."""
    every = sums_of_torchvision(root)
    published = every[~every["name"].isin(SMALL_INPUTS)]
    found = {"all_models": str(every["name"].nunique()), "models": str(published["name"].nunique())}
    for cost, column in COSTS.items():
        for counted, name in ((ALL, cost), ("leaf", f"modules_{cost}")):
            rows = published[published["counted"] == counted].set_index("name")
            is_long = rows["full_time_s"] >= LONG_S
            found["models_2ms"] = str(is_long.sum())
            totals = {name: rows[column]}
            if counted == ALL:
                totals[f"{name}_corrected"] = corrected(rows, column)
            for key, total in totals.items():
                off = (total / rows[f"full_{column}"] - 1).abs()
                found |= {
                    f"{key}_median": percent(off.median()),
                    f"{key}_worst": percent(off.max()),
                    f"{key}_worst_model": model_name(off.idxmax()),
                    f"{key}_median_2ms": percent(off[is_long].median()),
                    f"{key}_worst_2ms": percent(off[is_long].max()),
                }
    return found


def covered(root: Path) -> dict[str, str]:
    """Return the method's error, and for how many models the 95 % interval of the corrected ratio holds 1."""
    table = published_sums(root)
    rows = [row for row in Database(root / "database").sum_vs_full.rows() if row.name in table.index]
    usual = [row for row in rows if (row.conditions.device_product, row.conditions.execution) == (CARD, "graph")]
    shown = [Compared(row.name, row) for row in usual if (row.input_data, row.counted) == (CAPTURED, ALL)]
    found = {}
    for cost, column in COSTS.items():
        parts = [table[f"{part}_{cost}_standard_error_{column[-1]}"] for part in ("correction", "power_limit")]
        variances = [(part / table[f"full_{column}"]).fillna(0.0) ** 2 for part in parts]
        of_rows = table[f"{cost}_standard_error_ratio"] ** 2 + sum(variances)
        off = corrected(table, column) / table[f"full_{column}"] - 1
        ratios = [ratio for one in shown if (ratio := one.corrected_ratio(cost)) is not None]
        holding = sum(abs(one.value - 1) <= NORMAL_QUANTILE * one.standard_error for one in ratios)
        found |= {
            f"method_error_{cost}": f"{100 * METHOD_ERROR_RATIOS[cost]:.1f} %",
            f"method_error_{cost}_found": fine_percent(((off**2 - of_rows).mean()) ** 0.5),
            f"covered_{cost}": f"{100 * holding / len(table):.0f} %",
        }
    return found


def held_out(root: Path) -> dict[str, str]:
    """Return the errors of corrected sums whose wholes are later than the method."""
    sums, wholes = published_sums(root), of_card(root, WHOLES).set_index(["key", "time_s"])
    started = wholes.loc[list(zip(sums["key"], sums["full_time_s"], strict=True)), "started_at"]
    later = sums[started.to_numpy() >= FROZEN]
    found = {"held_out_wholes": str(len(later)), "held_out_shortest": milliseconds(later["full_time_s"].min())}
    for cost, column in COSTS.items():
        off = (corrected(later, column) / later[f"full_{column}"] - 1).abs()
        found |= {
            f"held_out_wholes_{cost}_median": percent(off.median()),
            f"held_out_wholes_{cost}_95": percent(off.quantile(0.95)),
            f"held_out_wholes_{cost}_worst": percent(off.max()),
            f"held_out_wholes_{cost}_worst_model": model_name(str(off.idxmax())),
        }
    return found


def sums_in_states(root: Path) -> dict[str, str]:
    """Return the errors of the held-back models whose operators were measured in the states of their calls."""
    folder = root / "docs/data/states"
    names = {path.name for path in (folder / "measurements").iterdir()}
    table = pd.read_csv(folder / "database/sum_vs_full.csv")
    is_meant = table["name"].isin(names) & (table["device_product"] == CARD) & (table["cache"] == STATE)
    rows = table[is_meant & table["time_s"].notna()].set_index("name")
    found = {"states_models": str(len(rows))}
    for cost, column in COSTS.items():
        off, error = corrected(rows, column) / rows[f"full_{column}"] - 1, rows[f"{cost}_standard_error_ratio"]
        half_width = NORMAL_QUANTILE * (error**2 + METHOD_ERROR_RATIOS[cost] ** 2) ** 0.5
        found |= {
            f"states_{cost}_median": percent(off.abs().median()),
            f"states_{cost}_90": percent(off.abs().quantile(0.9)),
            f"states_{cost}_worst": percent(off.abs().max()),
            f"states_{cost}_worst_model": str(off.abs().idxmax()),
            f"states_{cost}_error": percent(((off**2 - error**2).mean()) ** 0.5),
            f"states_{cost}_covered": str((off.abs() <= half_width).sum()),
            f"states_{cost}_width": percent(half_width.mean()),
        }
    return found


def short_kernels(root: Path) -> dict[str, str]:
    """Return the sum over the whole of the model that is worst uncorrected, and of the two with small inputs."""
    rows = sums_of_torchvision(root).query("counted == 'all'").set_index("name")
    plain = rows["time_s"] / rows["full_time_s"]
    corrected_time, corrected_energy = (corrected(rows, one) / rows[f"full_{one}"] for one in COSTS.values())
    worst = (plain.drop(list(SMALL_INPUTS)) - 1).abs().idxmax()
    found = {
        "worst_whole": milliseconds(rows.loc[worst, "full_time_s"]),
        "worst_ratio": f"{plain[worst]:.3f}",
        "worst_corrected_ratio": f"{corrected_time[worst]:.3f}",
    }
    for name in SMALL_INPUTS:
        key = name.partition("_")[0]
        found |= {
            f"{key}_small_whole": milliseconds(rows.loc[name, "full_time_s"]),
            f"{key}_small_ratio": f"{plain[name]:.3f}",
            f"{key}_small_corrected_ratio": f"{corrected_time[name]:.3f}",
            f"{key}_small_energy_corrected_ratio": f"{corrected_energy[name]:.3f}",
        }
    return found


def other_runs(root: Path) -> dict[str, str]:
    """Return the differences of eager sums and eager wholes, and of sums on Gaussian inputs and wholes in graphs."""
    table = of_card(root, "sum_vs_full.csv").query("counted == 'all' and missing_operators == 0")
    eager = table.query("execution == 'eager' and input_data == 'captured'")
    normal = table.query("execution == 'graph' and input_data == 'normal'")
    found = {"eager_models": str(len(eager)), "normal_models": str(len(normal))}
    for cost, column in COSTS.items():
        off = eager[column] / eager[f"full_{column}"] - 1
        off_normal = (normal[column] / normal[f"full_{column}"] - 1).abs()
        found |= {
            f"eager_{cost}_worst": signed_percent(off.abs().max()).lstrip("+"),
            f"eager_{cost}_lowest": signed_percent(off.min()),
            f"eager_{cost}_highest": signed_percent(off.max()),
            f"normal_{cost}_median": percent(off_normal.median()),
            f"normal_{cost}_worst": percent(off_normal.max()),
        }
    return found


def kinds_of_operators(root: Path) -> dict[str, str]:
    """Return how far the kernel time of a kind of operator alone is from that in its model, uncorrected."""
    everything, default = pd.read_csv(root / "database" / "kernel_times.csv"), of_card(root, "kernel_times.csv")
    found = {}
    for key, rows in (
        ("kinds", default[~default["name"].str.startswith("networks_")]),
        ("bf16_kinds", everything[everything["precision"] == "bf16"]),
    ):
        share = rows["in_model_time_s"] / rows.groupby(["name", "device_product"])["in_model_time_s"].transform("sum")
        large = rows[share > LEAST_SHARE]
        off = (large["alone_time_s"] / large["in_model_time_s"] - 1).abs()
        found |= {
            key: str(len(off)),
            f"{key}_median": percent(off.median()),
            f"{key}_90": percent(off.quantile(0.9)),
            f"{key}_worst": percent(off.max()),
        }
    return found


def sums_in_precisions(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes in each precision, and in all of them."""
    names = {f"{model}_32x3x224x224_{one}": one for model in MODELS for one in PRECISIONS}
    sums = complete(root).query("device_product == @CARD").set_index("name").loc[list(names)]
    image_mj = sums["full_energy_j"] / BATCH * 1e3
    found = {
        "precision_models": str(len(MODELS)),
        "precision_sums": str(len(sums)),
        "resnet50_fp32_image": f"{image_mj['resnet50_32x3x224x224_fp32']:.0f} mJ",
        "resnet50_bf16_channels_last_image": f"{image_mj['resnet50_32x3x224x224_bf16_channels_last']:.0f} mJ",
    }
    for one in PRECISIONS:
        found |= differences(sums[[names[name] == one for name in sums.index]], one)
    return found | differences(sums, "all_precisions")


def sums_of_other_sources(root: Path) -> dict[str, str]:
    """Return the differences on the other card: of torchvision's models, and of those of transformers and timm."""
    rows = complete(root).query("device_product == @OTHER_CARD").set_index("name")
    is_default = rows["precision"] == TORCH_DEFAULT
    torchvision = rows[is_default & rows["operator"].str.startswith("torchvision")]
    others = rows[rows["operator"].str.match("transformers|timm")]
    return {
        "other_card_models": str(len(torchvision)),
        **differences(torchvision, "other_card"),
        "other_models": str(others["operator"].nunique()),
        "other_sums": str(len(others)),
        **differences(others[others["precision"] == TORCH_DEFAULT], "other_default"),
        **differences(others[others["precision"] == "bf16"], "other_bf16"),
        **differences(others, "other"),
    }


def sums_of_networks(root: Path) -> dict[str, str]:
    """Return how far the corrected sum of Mamba blocks is off."""
    of_quantity = dict(errors_of(complete(root).query("name == 'networks_mamba'")))
    return {f"networks_mamba_{cost}_off": percent(of_quantity[f"{cost}_corrected"].item()) for cost in COSTS}


def sums_of_torchvision(root: Path) -> pd.DataFrame:
    """Return the card's committed sums of torchvision's models that lack no operator: in graphs, on captured values."""
    table = of_card(root, "sum_vs_full.csv")
    is_usual = (table["execution"] == "graph") & (table["input_data"] == CAPTURED)
    return table[is_usual & table["operator"].str.startswith("torchvision.") & (table["missing_operators"] == 0)]


def published_sums(root: Path) -> pd.DataFrame:
    """Return the committed sums of all operators of the models at their published size, by config."""
    return sums_of_torchvision(root).query("counted == 'all' and name not in @SMALL_INPUTS").set_index("name")


def complete(root: Path) -> pd.DataFrame:
    """Return the committed sums in graphs of all operators on captured values that lack none, of every card.

    Raises:
        ValueError: one of them has no cache correction.
    """
    table = pd.read_csv(root / "database" / "sum_vs_full.csv")
    chosen = (table["counted"] == ALL) & (table["input_data"] == CAPTURED) & (table["missing_operators"] == 0)
    rows = table[chosen & (table["execution"] == "graph")]
    uncorrected = rows.loc[rows["correction_energy_j"].isna(), "name"]
    if len(uncorrected):
        raise ValueError(f"{', '.join(uncorrected)}: the sum has no cache correction")
    return rows


def differences(sums: pd.DataFrame, key: str) -> dict[str, str]:
    """Return how far sums are from their wholes, plain and corrected; the figures' names begin with ``key``."""
    figures = {"median": pd.Series.median, "worst": pd.Series.max}
    return {
        f"{key}_{quantity}_{word}": percent(figure(off))
        for quantity, off in errors_of(sums)
        for word, figure in figures.items()
    }


def errors_of(sums: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Yield the errors of sums in time and energy, without and with all that corrects them, each with its name."""
    for cost, column in COSTS.items():
        yield cost, (sums[column] / sums[f"full_{column}"] - 1).abs()
        yield f"{cost}_corrected", (corrected(sums, column) / sums[f"full_{column}"] - 1).abs()


def model_name(config: str) -> str:
    return config.rpartition("_")[0]
