"""Figures of claims about single loops: their duration and agreement, meters, input values and counting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from claim_formats import days, fine_percent, percent, signed_percent
from claims_of_rows import of_card

CAMPAIGN_BOARD = "GPU-cd1b"
SLOPE_ERROR = 0.001
"""Standard error per kelvin above which a board's temperature coefficient of power is not known well."""

PAUSE_S = 60.0
"""A longer time between two operators is another step: once in the campaign cache chains were measured."""

COUNTING_PAGES = {"cpu": "docs/accuracy/counting_cpu.md", "h200": "docs/accuracy/counting_h200.md"}


def campaign_speed(root: Path) -> dict[str, str]:
    """Return the time from one operator's start to the next one's in the largest campaign of one board."""
    table = pd.read_csv(root / "database" / "operator_measurements.csv", low_memory=False)
    is_campaign = (table["execution"] == "graph") & table["device_uuid"].str.startswith(CAMPAIGN_BOARD, na=False)
    started = pd.to_datetime(table.loc[is_campaign, "started_at"]).sort_values()
    steps_s = started.diff().dt.total_seconds()
    steps_s = steps_s[steps_s < PAUSE_S]
    return {
        "campaign_days": days(table.loc[is_campaign, "started_at"]),
        "campaign_operators": f"{is_campaign.sum():,}",
        "campaign_minutes": f"{steps_s.sum() / 60:.0f} minutes",
        "operator_seconds_rounded": f"{steps_s.median():.1f} s",
        "operator_seconds_median": f"{steps_s.median():.2f} s",
        "operator_seconds_mean": f"{steps_s.mean():.2f} s",
    }


def fast_against_long(root: Path) -> dict[str, str]:
    """Return the differences of loops that end at 1 %, of 10 s and of 30 s."""
    table = pd.read_csv(root / "docs" / "data" / "fast_vs_reference.csv")

    def off(quantity: str, one: str, other: str = "_reference") -> pd.Series:
        name, unit = quantity.split("_")
        return (table[f"{name}{one}_{unit}"] / table[f"{name}{other}_{unit}"] - 1).dropna().abs()

    def within(errors: pd.Series, limit: float) -> str:
        return f"{100 * (errors <= limit).mean():.0f} %"

    meters = (table["check_power_ratio_reference"] - 1).dropna().abs()
    return {
        "fast_operators": str(len(table)),
        "fast_boards": str(table["device_uuid"].nunique()),
        "fast_kinds": str(table["operator"].str.split(r"\(| on ", regex=True).str[0].nunique()),
        "fast_shortest": f"{1e6 * table['time_s'].min():.0f} µs",
        "fast_longest": f"{1e3 * table['time_s'].max():.1f} ms",
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
    """Return the deviations of NVML's power samples from its energy counter, and the temperature coefficients."""
    table = of_card(root, "meter_qualifications.csv")
    samples = table[table["meter"] == "NVML power samples"]
    known = table[table["power_per_kelvin_standard_error_ratio"] <= SLOPE_ERROR]
    slopes = known.groupby("device_uuid")["power_per_kelvin_ratio"].last()
    steady, pulsed = (samples[f"{load}_deviation_ratio"].abs().max() for load in ("steady", "pulsed"))
    return {
        "qualified_days": days(samples["qualified_at"]),
        "slope_days": days(known["qualified_at"]),
        "qualified_boards": str(samples["device_uuid"].nunique()),
        "samples_steady_worst": fine_percent(steady),
        "samples_pulsed_worst": percent(pulsed),
        "slope_boards": str(len(slopes)),
        "slope_lowest": fine_percent(slopes.min()),
        "slope_highest": fine_percent(slopes.max()),
    }


def values_of_inputs(root: Path) -> dict[str, str]:
    """Return the energy that zeros in an operator's inputs save, relative to Gaussian inputs."""
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


def patterns_of_inputs(root: Path) -> dict[str, str]:
    """Return what patterns of indices and masks, and zeros in weights, change relative to the first kind of values."""
    table = pd.read_csv(root / "docs" / "data" / "indices_masks_weights.csv").set_index(["operator", "values"])
    figures = table[["time_s", "energy_j"]]
    ratios = figures / figures.groupby("operator").transform("first")
    time, energy = ratios["time_s"], ratios["energy_j"]
    is_mask = ratios.index.get_level_values("operator").str.endswith("boolean mask")
    half = ratios[(table["role"] == "weights") & (ratios.index.get_level_values("values") == "0.5")]
    return {
        "zipf_embedding_time": signed_percent(time["embedding fp32 50k x 768", "zipf"] - 1),
        "zipf_scatter_time": signed_percent(time["scatter_add_", "zipf"] - 1),
        "zipf_put_times": f"{time['index_put_ accumulate', 'zipf']:.0f} times",
        "masks_attention_time": percent((time[is_mask] - 1).abs().max()),
        "masks_attention_energy": percent((energy[is_mask] - 1).abs().max()),
        "half_zero_weights": percent((half - 1).abs().max().max()),
    }


def counting(root: Path) -> dict[str, str]:
    """Return the summary of the pages on counting; it is the same on both devices."""
    found = []
    for page in COUNTING_PAGES.values():
        text = (root / page).read_text(encoding="utf-8")
        models, flop, memory = first_match(r"- models: (\d+)\n.*least ([\d.]+) % of FLOPs, ([\d.]+) % of bytes", text)
        (made,) = first_match(r"Made on (\S+) by", text)
        off, _ = first_match(r"deviate by more than 0.5 % from the published figure: (\d+) of (\d+)", text)
        found.append(
            {
                "counted_days": made,
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
