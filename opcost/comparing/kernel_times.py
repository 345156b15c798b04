"""Kernel times from a profiler, of each kind of operator in its model and of the same calls alone.

A sum can be right because errors of different kinds cancel. Kernel times in the model show the error of each kind. They
do not include gaps between kernels, so they are compared with kernel times of the operators alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from opcost.columns import COUNT, FROM_0, MOMENT, Column, Columns
from opcost.estimates import total_if_known
from opcost.measuring.conditions import EAGER, WARM, Conditions
from opcost.operators.cases import MODEL


@dataclass(frozen=True)
class KernelTimeRow(Columns):
    """One kind of operator in one run of a model; times are the kernel times of all calls."""

    key: Annotated[str, Column("hashes of the model and the conditions")]
    name: Annotated[str, MODEL]
    operator: Annotated[str, Column("kind of operator, such as `torch.nn.Conv2d`")]
    calls: Annotated[int, Column("calls in one run", COUNT)]
    in_model_time_s: Annotated[float, Column("kernel time in the model", FROM_0)]
    alone_time_s: Annotated[
        float | None, Column("kernel time of the same calls alone; empty if one cannot run alone", FROM_0)
    ]
    same_kernels_time_s: Annotated[
        float, Column("part of `in_model_time_s` in calls that launch the same kernels when alone", FROM_0)
    ]
    profiled_at: Annotated[str, Column("time of profiling", MOMENT)]
    conditions: Conditions


@dataclass(frozen=True)
class KernelErrors:
    """Kernel times alone minus those in the model, as shares of all kernel time in the model.

    ``by_kind`` holds the signed share of each kind, the largest magnitude first. ``ratio`` is the sum of signed shares,
    in which errors cancel, ``absolute_ratio`` the sum of magnitudes.
    """

    by_kind: tuple[tuple[str, float], ...]

    @property
    def ratio(self) -> float:
        return math.fsum(error for _, error in self.by_kind)

    @property
    def absolute_ratio(self) -> float:
        return math.fsum(abs(error) for _, error in self.by_kind)


def kernel_key(model_key: str, conditions: Conditions) -> str:
    """Return the key of a model's rows. It does not depend on execution and cache, because kernel times do not."""
    return f"{model_key}-{replace(conditions, execution=EAGER, cache=WARM).key}"


def kernel_errors(rows: Iterable[KernelTimeRow], model_key: str, conditions: Conditions) -> KernelErrors | None:
    """Return the errors of a model's kinds by the newest rows; None if it was not profiled or one kind has no time."""
    key = kernel_key(model_key, conditions)
    newest = {row.operator: row for row in rows if row.key == key}
    whole_s = math.fsum(row.in_model_time_s for row in newest.values())
    if total_if_known(row.alone_time_s for row in newest.values()) is None or not whole_s:
        return None
    errors = [(row.operator, ((row.alone_time_s or 0.0) - row.in_model_time_s) / whole_s) for row in newest.values()]
    return KernelErrors(tuple(sorted(errors, key=lambda error: -abs(error[1]))))
