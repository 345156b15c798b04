"""Pairs of blocks of work, with loggers and without: their relative difference, and a verdict on it"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opcost.estimates import Estimate, student_quantile

TIME_TARGET, CPU_TARGET = 0.001, 0.02


@dataclass(frozen=True)
class Block:
    """Time per iteration, and the shares of a core that other threads of this process and nvidia-smi took."""

    time_s: float
    threads_ratio: float
    smi_ratio: float


def paired(on: list[Block], off: list[Block]) -> Estimate:
    """Return the relative difference in time with the loggers, with half of its 95 % interval as its error."""
    differences = np.array([one.time_s / other.time_s - 1 for one, other in zip(on, off, strict=True)])
    half_width = student_quantile(len(on) - 1) * differences.std(ddof=1) / np.sqrt(len(on))
    return Estimate(float(differences.mean()), float(half_width))


def verdict(difference: Estimate, cpu_ratio: float) -> str:
    """Return whether the targets are met: ``open`` where the interval of the difference says neither."""
    if cpu_ratio > CPU_TARGET or difference.value - difference.standard_error > TIME_TARGET:
        return "no"
    return "yes" if difference.value + difference.standard_error <= TIME_TARGET else "open"
