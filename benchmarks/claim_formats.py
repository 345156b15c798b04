"""How claims print figures and dates."""

from __future__ import annotations

import pandas as pd

MINUS = "\N{MINUS SIGN}"


def percent(ratio: float) -> str:
    """Return a ratio as a percentage: one decimal, none from 10 % on."""
    return f"{100 * ratio:.{0 if abs(ratio) >= 0.0995 else 1}f} %"


def percent_of(ratio: float) -> str:
    """Return a ratio near 1 as a percentage with one decimal."""
    return f"{100 * ratio:.1f} %"


def fine_percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def signed_percent(ratio: float) -> str:
    return f"{100 * ratio:+.0f} %".replace("-", MINUS)


def change_percent(ratio: float) -> str:
    """Return how much more or less it takes, with a sign: one decimal, none from 10 % on."""
    return f"{'+' if ratio >= 0 else MINUS}{percent(abs(ratio))}"


def ratio_with_error(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def milliseconds(time_s: float, decimals: int = 1) -> str:
    return f"{1e3 * time_s:.{decimals}f} ms"


def spread(ratios: pd.Series, name: str) -> dict[str, str]:
    """Return the figures of the lowest, the highest and the median of some ratios; their names begin with this one."""
    found = {"lowest": ratios.min(), "highest": ratios.max(), "median": ratios.median()}
    return {f"{name}_{figure}": f"{ratio:.3f}" for figure, ratio in found.items()}


def days(*moments: pd.Series) -> str:
    """Return the days of times in ISO 8601, such as ``2026-11-22/23``; all are of one month."""
    found = pd.concat(moments).str[:10]
    first, last = found.min(), found.max()
    return first if first == last else f"{first}/{last[-2:]}"


def board_of(device_uuid: str) -> str:
    """Return the first four digits of a device's UUID."""
    return device_uuid.removeprefix("GPU-")[:4]
