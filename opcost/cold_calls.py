"""What a call takes longer where neither its code nor its weights are in the device's caches.

In a loop of itself an operator finds both there, in a model that moves more than the caches hold it does not. How much
that is, is measured on the card with small operators of many kinds in a chain, beside the same operators each in a
loop: no model takes part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.conditions import GRAPH, WARM, Conditions
from opcost.measurement import (
    IN_A_DUTY_CYCLE,
    MeasurementRow,
    energy_of,
    is_doubtful,
    is_held_back,
    slope_error_j,
    time_of,
)
from opcost.operators import OperatorTuple, TensorSpec
from opcost.statistics import Estimate, estimate_of, standard_error_of, sum_of_independent, value_of

STREAM_ELEMENTS = 2**24
"""Of each of two fp32 tensors that are added before the chain."""

STREAM_BYTES = 3 * 4 * STREAM_ELEMENTS
"""With their sum: beyond any GPU's cache (H200: 50 MB). What moves less may find its code and weights there."""

CHAIN = OperatorTuple("opcost.torch_small_operators.SmallOperators", inputs=(TensorSpec((8, 64, 14, 14), "float32"),))
"""All of them as one operator."""

IMPOSSIBLE_ERRORS = 2.0
"""By so many standard errors below 0 nothing takes longer: something is wrong."""


@dataclass(frozen=True)
class ColdCallsRow:
    """Operators each in a loop, and all of them in a chain in which each finds nothing but its input in the caches.

    ``time_s`` and ``energy_j`` are what a call takes longer in the chain, errors one standard error; energies are at
    the reference temperature where all are known there, None where one is not known at all. ``calls`` are those of the
    chain, ``chain`` names it; ``notes`` are those of its measurement.
    """

    chain: str
    calls: int
    time_s: float
    time_standard_error_s: float
    energy_j: float | None
    energy_standard_error_j: float | None
    alone_time_s: float
    in_chain_time_s: float
    alone_energy_j: float | None
    in_chain_energy_j: float | None
    measured_at: str
    device_uuid: str | None
    notes: str
    conditions: Conditions


def cold_calls_row(alone: Sequence[MeasurementRow], chain: MeasurementRow) -> ColdCallsRow:
    """Return what calls take longer in a chain than in loops of their own.

    Args:
        alone: the rows of its operators, one for each call.
        chain: that of all of them together.
    """
    rows = [*alone, chain]
    at_reference = all(energy_of(row, at_reference=True) for row in rows)
    alone_s = sum_of_independent(map(time_of, alone))
    energies_j = [energy for row in alone if (energy := energy_of(row, at_reference)) is not None]
    alone_j = sum_of_independent(energies_j) if len(energies_j) == len(alone) else None
    chain_j = energy_of(chain, at_reference)
    if chain_j is not None:
        chain_j = chain_j.with_error(slope_error_j([(1, row) for row in alone], chain))
    longer_s = time_of(chain).less(alone_s).times(1 / len(alone))
    longer_j = None if alone_j is None or chain_j is None else chain_j.less(alone_j).times(1 / len(alone))
    return ColdCallsRow(
        chain=chain.key.partition("-")[0],
        calls=len(alone),
        time_s=longer_s.value,
        time_standard_error_s=longer_s.standard_error,
        energy_j=value_of(longer_j),
        energy_standard_error_j=standard_error_of(longer_j),
        alone_time_s=alone_s.value,
        in_chain_time_s=chain.measurement.time_s,
        alone_energy_j=value_of(alone_j),
        in_chain_energy_j=value_of(chain_j),
        measured_at=chain.measurement.ended_at,
        device_uuid=chain.circumstances.device_uuid,
        notes=chain.measurement.notes,
        conditions=chain.conditions,
    )


def refusal(rows: Iterable[MeasurementRow], found: ColdCallsRow) -> str:
    """Return why a result is not to be kept; empty if nothing is wrong with it."""
    for row in rows:
        measured = row.measurement
        if measured.executed_as != GRAPH:
            return f"{row.operator} did not run in a CUDA graph: {measured.notes}"
        if is_doubtful(measured) or is_held_back(measured) or IN_A_DUTY_CYCLE in measured.notes:
            return f"{row.operator}: {measured.notes}"
    if found.time_s < -IMPOSSIBLE_ERRORS * found.time_standard_error_s:
        return f"the chain takes {-found.time_s:.3g} s less for each call"
    return ""


@dataclass(frozen=True)
class ColdCalls:
    """What a call takes longer, in s and J; the energy is None where it is not known."""

    time_s: Estimate
    energy_j: Estimate | None


def can_be_cold(conditions: Conditions) -> bool:
    """Return whether operators take longer in a model for cold caches: in graphs, if they were in the cache alone.

    Eager runs wait for the host so often that caches hardly count.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def cold_calls_under(rows: Iterable[ColdCallsRow], conditions: Conditions) -> ColdCalls | None:
    """Return the mean of what was found on cards of a kind with its software; None for nothing.

    Precision does not count: what is not in a cache takes as long in any.
    """
    if not can_be_cold(conditions):
        return None
    chain, kind = CHAIN.key, _kind(conditions)
    found = [row for row in rows if row.chain == chain and _kind(row.conditions) == kind]
    if not found:
        return None
    times_s = [Estimate(row.time_s, row.time_standard_error_s) for row in found]
    energies_j = [estimate_of(row.energy_j, row.energy_standard_error_j) for row in found]
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    return ColdCalls(_mean(times_s), _mean(known_j) if known_j else None)


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    return sum_of_independent(estimates).times(1 / len(estimates))


def _kind(conditions: Conditions) -> tuple[object, ...]:
    return (
        conditions.device_product,
        conditions.driver_version,
        conditions.torch_version,
        conditions.cuda_version,
        conditions.mode,
        conditions.execution,
    )


def _module(name: str, shape: tuple[int, ...], **parameters: object) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", tuple(parameters.items()), (TensorSpec(shape, "float32"),))  # type: ignore[arg-type]


_WIDE, _HALF, _SMALL = (8, 64, 14, 14), (8, 128, 14, 14), (8, 128, 7, 7)
_STREAM = (TensorSpec((STREAM_ELEMENTS,), "float32"), TensorSpec((STREAM_ELEMENTS,), "float32", identity=1))

CALLS = (
    OperatorTuple("torch.add", inputs=_STREAM, mode=None),
    _module("Conv2d", _WIDE, in_channels=64, out_channels=64, kernel_size=3, padding=1, bias=False),
    _module("BatchNorm2d", _WIDE, num_features=64),
    _module("ReLU", _WIDE),
    _module("Conv2d", _WIDE, in_channels=64, out_channels=128, kernel_size=1, bias=False),
    _module("BatchNorm2d", _HALF, num_features=128),
    _module("SiLU", _HALF),
    _module("Conv2d", _HALF, in_channels=128, out_channels=128, kernel_size=3, padding=1, groups=128, bias=False),
    _module("Hardswish", _HALF),
    _module("MaxPool2d", _HALF, kernel_size=2, stride=2),
    _module("Conv2d", _SMALL, in_channels=128, out_channels=256, kernel_size=1),
    _module("GELU", (8, 256, 7, 7)),
    _module("AdaptiveAvgPool2d", (8, 256, 7, 7), output_size=1),
    _module("Linear", (8, 256), in_features=256, out_features=512),
    _module("LayerNorm", (8, 512), normalized_shape=(512,)),
    _module("Sigmoid", (8, 512)),
    _module("Linear", (8, 512), in_features=512, out_features=1000),
)
"""The operators of the chain, one for each call, as block 0 would count them."""
