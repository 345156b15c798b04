"""Figures of claims beside those of sums: one of boards, speed, meters, values, sweeps and learned costs each."""

from pathlib import Path

import pandas as pd
from claim_tables import CARD, COSTS, WHOLES, fine_percent, of_card, percent

from opcost.measuring.precisions import TORCH_DEFAULT

CAMPAIGN_BOARD = "GPU-cd1b"
PAUSE_S = 60.0
"""A longer time between two operators is another step: once in the campaign cache chains were measured."""

LONG_FROM_S = 1.0
SWEEP, SWEPT_BOARD = "transformers:BertModel 1xN", "GPU-7d48"
"""The sweep of the claim, and the board of its second run."""

LEARNED = Path("docs", "data", "prediction")


def boards(root: Path) -> dict[str, str]:
    """Return the classes of boards by the energy of the drift check's addition, and the differences of wholes.

    The classes are parted where neighbouring boards differ most.
    """
    table = of_card(root, "drift_checks.csv").groupby("device_uuid")
    energy_j, time_s = table["energy_at_reference_j"].median().sort_values(), table["time_s"].median()
    first_high = int((energy_j / energy_j.shift()).argmax())
    wholes = of_card(root, WHOLES).query("execution == 'graph'")
    of_board = wholes.groupby(["key", "device_uuid"])[["time_s", "energy_at_reference_j"]].median()
    of_model = of_board.dropna().groupby("key")
    ranges = (of_model.max() / of_model.min() - 1)[of_model.size() > 1]["energy_at_reference_j"]
    return {
        "boards": str(len(energy_j)),
        "boards_time_range": percent(time_s.max() / time_s.min() - 1),
        "boards_energy_range": percent(energy_j.max() / energy_j.min() - 1),
        "low_class_boards": str(first_high),
        "high_class_boards": str(len(energy_j) - first_high),
        "wholes_boards_models": str(len(ranges)),
        "wholes_boards_energy_median": percent(ranges.median()),
        "wholes_boards_energy_worst": percent(ranges.max()),
    }


def speed(root: Path) -> dict[str, str]:
    """Return the time from one operator's start to the next one's in the largest campaign, and how good loops are."""
    table = pd.read_csv(root / "database" / "operator_measurements.csv", low_memory=False)
    is_campaign = (table["execution"] == "graph") & table["device_uuid"].str.startswith(CAMPAIGN_BOARD, na=False)
    started = pd.to_datetime(table.loc[is_campaign, "started_at"]).sort_values()
    steps_s = started.diff().dt.total_seconds()
    steps_s = steps_s[steps_s < PAUSE_S]
    pairs = pd.read_csv(root / "docs" / "data" / "fast_vs_reference.csv")
    found = {
        "campaign_operators": f"{is_campaign.sum():,}",
        "operator_seconds_rounded": f"{steps_s.median():.1f} s",
        "operator_seconds_median": f"{steps_s.median():.2f} s",
        "fast_operators": str(len(pairs)),
    }
    for cost, limit in (("time", 0.003), ("energy", 0.01)):
        unit = COSTS[cost][-1]
        off = (pairs[COSTS[cost]] / pairs[f"{cost}_reference_{unit}"] - 1).dropna().abs()
        found[f"fast_{cost}_within"] = f"{100 * (off <= limit).mean():.0f} %"
    return found


def meters(root: Path) -> dict[str, str]:
    """Return how far NVML's power samples, sums of windows of EnergyMeter and blocks of LayerwiseEnergy are off."""
    table = of_card(root, "meter_qualifications.csv").query("meter == 'NVML power samples'")
    sums = []
    for path in sorted((root / "docs" / "data").glob("metered_windows*.csv")):
        windows = pd.read_csv(path).query("tool == 'opcost' and length_s >= @LONG_FROM_S").dropna(subset="metered_j")
        sums.append(abs(windows["metered_j"].sum() / windows["counted_j"].sum() - 1))
    blocks = pd.read_csv(root / "docs" / "data" / "layers" / "blocks.csv").query(
        "model == 'vit_b_16' and iterations < 1000"
    )
    pairs = blocks.pivot_table("time_per_iteration_s", ["mode", "board", "iterations", "pair"], "with_layers")
    longer = (pairs[True] / pairs[False] - 1).groupby(["mode", "board"]).mean()
    return {
        "qualified_boards": str(table["device_uuid"].nunique()),
        "samples_steady_worst": fine_percent(table["steady_deviation_ratio"].abs().max()),
        "samples_pulsed_worst": percent(table["pulsed_deviation_ratio"].abs().max()),
        "windows_boards": str(len(sums)),
        "windows_sums_worst": fine_percent(max(sums)),
        "layers_longer_least": percent(longer.min()),
        "layers_longer_most": percent(longer.max()),
    }


def values(root: Path) -> dict[str, str]:
    """Return the energy that zeros in an operator's inputs save, relative to Gaussian inputs."""
    table = pd.read_csv(root / "docs" / "data" / "input_values.csv")
    usual = table.query("`mean` == 0 and spread == 1").pivot(index="operator", columns="zeros_ratio", values="energy_j")
    saved = 1 - usual[1.0] / usual[0.0]
    return {
        "value_operators": str(len(usual)),
        "convolution_zeros_saves": percent(saved["Conv2d 3x3"]),
        "zeros_save_least": percent(saved.min()),
        "zeros_save_most": percent(saved.max()),
    }


def sweeps(root: Path) -> dict[str, str]:
    """Return the spread of BERT-base's repetitions over its tokens, and how far predicted costs are off."""
    rows = pd.read_csv(root / "database" / "sweep_sizes.csv")
    rows = rows[(rows["model"] == SWEEP) & rows["device_uuid"].str.startswith(SWEPT_BOARD)]
    found = {"swept_sizes": str(len(rows))}
    for cost, column in COSTS.items():
        off = (rows[f"predicted_{column}"] / rows[column] - 1).abs()
        found |= {
            f"swept_{cost}_spread": fine_percent(rows[f"{cost}_spread_ratio"].max()),
            f"swept_{cost}_predicted": percent(off.median()),
        }
    return found


def learned_costs(root: Path) -> dict[str, str]:
    """Return the errors in tuples, and in models of families, that the learned predictor has not seen."""
    learned = f"method == 'learned' and conditions == '{CARD}, {TORCH_DEFAULT}'"
    tuples = pd.read_csv(root / LEARNED / "unseen_tuples.csv").query(f"{learned} and kind == 'all'").squeeze()
    families = pd.read_csv(root / LEARNED / "unseen_families.csv").query(learned)
    found = {"unseen_tuples": f"{tuples['samples']:,}", "unseen_models": str(len(families))}
    for cost in COSTS:
        off = (families[f"{cost}_ratio"] - 1).abs()
        found |= {
            f"tuple_{cost}_median": percent(tuples[f"{cost}_median"]),
            f"tuple_{cost}_within": percent(tuples[f"{cost}_within_10"]),
            f"family_{cost}_median": percent(off.median()),
            f"family_{cost}_within": percent((off <= 0.15).mean()),
            f"family_{cost}_worst": percent(off.max()),
        }
    return found
