"""Figures of claims about sums in other precisions, on another card, and of models of other sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
from claim_formats import board_of, days, milliseconds, percent, spread
from claim_tables import kernel_ratios
from claims_of_rows import CARD
from sum_vs_full import corrected

from opcost.measuring.conditions import TORCH_DEFAULT
from opcost.operators.cases import ALL, CAPTURED

OTHER_CARD = "NVIDIA H100 80GB HBM3"
BATCH = 32

MODELS = ("resnet50", "vit_b_16", "swin_t", "convnext_tiny", "densenet121", "efficientnet_b0")
PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "bf16_channels_last": "bf16, channels last"}
"""The models that are measured in each precision, the ends of their configs' names, and the words for them."""

TWO_MODELS = MODELS[:2]
"""The models under autocast, and those in bf16 on the other card."""

WITHIN_AIMS = ("networks_graph", "networks_gru", "networks_lstm", "networks_spectral")
"""The networks whose sums reach the aims of 3 % in time and 4 % in energy."""

WORDS = {TORCH_DEFAULT: "default", "bf16": "bf16"}


def sums_in_precisions(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes in each precision, and in all of them."""
    names = {f"{model}_32x3x224x224_{one}": (model, one) for model in MODELS for one in PRECISIONS}
    sums = complete(root).query("device_product == @CARD").set_index("name").loc[list(names)]
    sums[["model", "ending"]] = list(names.values())
    image_mj = sums.set_index(["model", "ending"])["full_energy_j"] / BATCH * 1e3
    found = {
        "precision_models": str(len(MODELS)),
        "precision_sums": str(len(sums)),
        "precision_days": days_of(root, "2f9d", "fd55", "7e56", "bfee"),
        "precision_error_time_median": percent(sums["time_standard_error_ratio"].median()),
        "precision_error_time_highest": percent(sums["time_standard_error_ratio"].max()),
        "precision_error_energy_lowest": percent(sums["energy_standard_error_ratio"].min()),
        "precision_error_energy_highest": percent(sums["energy_standard_error_ratio"].max()),
        "resnet50_fp32_image": f"{image_mj['resnet50', 'fp32']:.0f} mJ",
        "resnet50_bf16_channels_last_image": f"{image_mj['resnet50', 'bf16_channels_last']:.0f} mJ",
    }
    for one in PRECISIONS:
        rows = sums[sums["ending"] == one]
        found |= differences(rows, one, rows["model"])
    return found | differences(sums, "all_precisions", sums["model"] + " in " + sums["ending"].map(PRECISIONS))


def sums_of_two_models(root: Path) -> dict[str, str]:
    """Return the sums over wholes of two models under autocast, and in bf16 on the other card."""
    found = {}
    for key, card, ending, board in (("autocast", CARD, "amp-bf16", "2f9d"), ("h100", OTHER_CARD, "bf16", "49e4")):
        names = [f"{model}_32x3x224x224_{ending}" for model in TWO_MODELS]
        rows = complete(root)
        sums = rows[rows["device_product"] == card].set_index("name").loc[names]
        found |= {f"{key}_{quantity}": _both(ratios) for quantity, ratios in ratios_of(sums)}
        found[f"{key}_days"] = days_of(root, board)
    return found


def sums_of_other_sources(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes of models of transformers and timm on the other card."""
    rows = complete(root).query("device_product == @OTHER_CARD")
    sums = rows[rows["operator"].str.match("transformers|timm")].set_index("name")
    config = sums.index.to_series().str.replace("_(?:torch-default|bf16)$", "", regex=True)
    found = {"other_sums": str(len(sums)), "other_models": str(sums["operator"].nunique())}
    for precision, word in WORDS.items():
        of_precision = sums["precision"] == precision
        found |= differences(sums[of_precision], f"other_{word}", config[of_precision])
    return found | differences(sums, "other", config + " in " + sums["precision"].map(WORDS))


def sums_on_an_h100(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes of torchvision's models on the other card."""
    rows = complete(root).query("device_product == @OTHER_CARD and precision == @TORCH_DEFAULT")
    sums = rows[rows["operator"].str.startswith("torchvision")].set_index("name")
    found = differences(sums, "other_card", sums.index.to_series().str.rpartition("_")[0])
    return found | {
        "other_card_models": str(len(sums)),
        "other_card_days": days_of(root, "efeb", "9a9d", "64a8", "4141", "84af"),
    }


def sums_of_networks(root: Path) -> dict[str, str]:
    """Return the sums over wholes of networks of a file: of those that reach the aims together, and of each."""
    rows = complete(root).query("device_product == @CARD")
    sums = rows[rows["name"].str.startswith("networks_")].set_index("name")
    found = {"networks_days": days_of(root, "b014")}
    for quantity, of_quantity in ratios_of(sums):
        good = of_quantity[list(WITHIN_AIMS)]
        found[f"networks_{quantity}"] = f"{good.min():.3f} to {good.max():.3f}"
        found |= {f"{name}_{quantity}": f"{ratio:.3f}" for name, ratio in of_quantity.items()}
        cost, _, is_corrected = quantity.partition("_")
        if is_corrected:
            found |= {f"{name}_{cost}_off": percent(abs(ratio - 1)) for name, ratio in of_quantity.items()}
    return found | {f"{name}_whole": milliseconds(time_s, 2) for name, time_s in sums["full_time_s"].items()}


def kernels_in_precisions(root: Path) -> dict[str, str]:
    """Return the ratio of kernel time alone to kernel time in the model, by the profiler, in precisions and sources."""
    table = kernels(root)
    is_h100, is_image = table["device_product"] == OTHER_CARD, table["name"].str.contains("_32x3x224x224_")
    is_other = is_h100 & ~is_image
    (alone, same), (alone_h100, same_h100), (alone_other, same_other) = (
        kernel_ratios(table[rows]) for rows in (~is_h100 & is_image, is_h100 & is_image, is_other)
    )
    return {
        "precision_kernel_cases": str(len(alone)),
        "precision_kernel_models": str(len({name.partition("_32x3")[0] for name in alone.index})),
        "precision_kernel_days": days(table.loc[is_image, "profiled_at"]),
        **spread(alone, "precision_kernels"),
        "h100_kernels": _both(alone_h100),
        "precision_same_kernels_lowest": percent(min(same.min(), same_h100.min())),
        "other_kernel_cases": str(len(alone_other)),
        "other_kernel_days": days(table.loc[is_other, "profiled_at"]),
        **spread(alone_other, "other_kernels"),
        "other_same_kernels_lowest": percent(same_other.min()),
    }


def kernels(root: Path) -> pd.DataFrame:
    """Return the committed kernel times."""
    return pd.read_csv(root / "database" / "kernel_times.csv")


def complete(root: Path) -> pd.DataFrame:
    """Return the committed sums in graphs of all operators on captured values that lack none.

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


def differences(sums: pd.DataFrame, key: str, names: pd.Series) -> Mapping[str, str]:
    """Return how far sums are from their wholes, plain and corrected.

    Args:
        sums: rows of comparisons.
        key: the beginning of the figures' names.
        names: those of the sums, with the same index.
    """
    found = {}
    for quantity, ratios in ratios_of(sums):
        errors = (ratios - 1).abs()
        found |= {
            f"{key}_{quantity}_median": percent(errors.median()),
            f"{key}_{quantity}_worst": percent(errors.max()),
            f"{key}_{quantity}_worst_sum": f"{percent(errors.max())} ({names[errors.idxmax()]})",
        }
    return found


def ratios_of(sums: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Yield sums over wholes in time and energy, without and with all that corrects them, each with its name."""
    for quantity, column in (("time", "time_s"), ("energy", "energy_j")):
        summed, whole = sums[column], sums[f"full_{column}"]
        yield quantity, summed / whole
        yield f"{quantity}_corrected", corrected(sums, column) / whole


def days_of(root: Path, *boards: str) -> str:
    """Return the days on which the operators and wholes of boards were measured."""
    names = ("operator_measurements.csv", "full_model_measurements.csv")
    tables = [pd.read_csv(root / "database" / name, usecols=["started_at", "device_uuid"]) for name in names]
    return days(*(table.loc[table["device_uuid"].map(board_of).isin(boards), "started_at"] for table in tables))


def _both(ratios: pd.Series) -> str:
    return " and ".join(f"{ratio:.3f}" for ratio in ratios)
