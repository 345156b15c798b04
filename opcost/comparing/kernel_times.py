"""Kernel times from a profiler: of each kind of operator in its model, and of the same calls alone.

A sum can be right by cancellation: one kind too long, another too short. Kernels in the model are the only measure of
each kind there; they are without the gaps between kernels, so they are held against kernels of the operators alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from opcost.columns import COUNT, FROM_0, MOMENT, Column, Columns
from opcost.estimates import total_if_known
from opcost.measuring.conditions import EAGER, WARM, Conditions


@dataclass(frozen=True)
class KernelTimeRow(Columns):
    """One kind of operator in one run of a model; times are those of the kernels of all calls."""

    key: Annotated[str, Column("the model and the conditions as two hashes")]
    name: Annotated[str, Column("the model's folder in measurements/")]
    operator: Annotated[str, Column("the kind of operator, such as `torch.nn.Conv2d`")]
    calls: Annotated[int, Column("calls in one run", COUNT)]
    in_model_time_s: Annotated[float, Column("in the model", FROM_0)]
    alone_time_s: Annotated[float | None, Column("of the same calls alone; empty where one does not run alone", FROM_0)]
    same_kernels_time_s: Annotated[
        float, Column("part of that in the model in calls that launch the same kernels alone", FROM_0)
    ]
    profiled_at: Annotated[str, Column("when it was profiled", MOMENT)]
    conditions: Conditions


@dataclass(frozen=True)
class KernelErrors:
    """By how much kernels take longer alone than in their model, as shares of all kernel time in the model.

    ``by_kind`` holds the signed share of each kind, the largest magnitude first; ``absolute_ratio`` is the sum of
    magnitudes, ``ratio`` that of signed shares, in which errors cancel.
    """

    by_kind: tuple[tuple[str, float], ...]

    @property
    def ratio(self) -> float:
        """The sum of what all kinds take longer or shorter."""
        return math.fsum(error for _, error in self.by_kind)

    @property
    def absolute_ratio(self) -> float:
        """The sum of the magnitudes."""
        return math.fsum(abs(error) for _, error in self.by_kind)


def kernel_key(model_key: str, conditions: Conditions) -> str:
    """Return the key of a model's rows: kernels take the same time however they are launched."""
    return f"{model_key}-{replace(conditions, execution=EAGER, cache=WARM).key}"


def kernel_errors(rows: Iterable[KernelTimeRow], model_key: str, conditions: Conditions) -> KernelErrors | None:
    """Return the errors of a model's kinds by the newest rows; None where it was not profiled, or not all ran alone."""
    key = kernel_key(model_key, conditions)
    newest = {row.operator: row for row in rows if row.key == key}
    whole_s = math.fsum(row.in_model_time_s for row in newest.values())
    if total_if_known(row.alone_time_s for row in newest.values()) is None or not whole_s:
        return None
    errors = [(row.operator, ((row.alone_time_s or 0.0) - row.in_model_time_s) / whole_s) for row in newest.values()]
    return KernelErrors(tuple(sorted(errors, key=lambda error: -abs(error[1]))))
