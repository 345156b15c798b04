"""The expected duration of measurements.

An attempt at a measurement takes its building, its warm-up and its loop, for a whole model once for each build. Their
lengths follow from the protocol and from the time of one iteration. Disturbed attempts are repeated, and loops to a
target precision depend on the device. Rows show both: the time from the end of the row before to the end of a row is
what the measurement took altogether (on average for whole models, whose rows are of the first, a later, or the last
build).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from opcost.measuring.conditions import EAGER, GRAPH
from opcost.measuring.loop import FIRST_CHECK_S
from opcost.measuring.protocol import FULL_LOOP_S, MINIMUM_CHUNKS, MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.recorded_loop import MINIMUM_PRECISE_CHUNKS
from opcost.measuring.retries import RETRIES
from opcost.operators.keys import tuple_key
from opcost.prediction.rates import Rates

# The constants below are fitted to the committed rows of 2026-11-21 to 2026-11-23 (H200) where no other source is
# named. ``tests/prediction/test_committed_durations.py`` recomputes them.

OPERATOR_BUILDING_S = 0.21
"""Time to build and capture an operator, and for the last rows of the log: the mean over operators of 0.1 to 100 MB."""

MODEL_BUILDING_S = 0.63
SECONDS_PER_PARAMETER = 8.4e-9
"""Time to build and capture a model: a least-squares fit. Truncated normal weights take eight times as long."""

CPU_SECONDS_PER_BYTE = 3e-9
"""Time to draw an operator's inputs and weights on a CPU (two cores, 2026-11-23)."""

CAPTURED_CALLS = 4
"""Calls of a slow model around its capture: two to warm up, one timed, and the first replay."""

PRECISE_EXTRA_S = {GRAPH: 0.2, EAGER: 6.1}
"""Mean time that a loop to a relative error of ``PRECISE_AT`` takes beyond the first check. At 5 % it is a fifth."""

PRECISE_AT = 0.01

ATTEMPTS = {"cpu": 1.7}
"""Expected attempts at a measurement without rows of the device; 1 if not listed. On a CPU other processes disturb: the
geometric mean of 1 (idle) and 3 (busy, ``RETRIES.at_once``)."""

OTHER_CARD_RATIO = 1.1
"""Duration of precise measurements on a card without rows, relative to that on the card whose rows are used: the
operators of four unmeasured models took 0.53 times as long as expected with 1.65 on an H100, and 0.81 times as long as
expected on an H200, whose rows are used (350 and 280 measurements, 2026-11-23)."""

PRIOR_ITEMS = 5
"""The weight of the more general ratio against rows of similar time, in rows."""

BREAK_S = 5.0
"""Time between two rows, beyond all attempts, that belongs to no measurement: a campaign ends, another one starts."""

DEFAULT_RATES = {"cpu": Rates(3.3e-11, 2e-10, 1e-5)}
"""Conservative rates of a device without rows. On a CPU 30 GFLOP/s for each thread, 5 GB/s, 10 us for each call: half
of what ResNet-18 reached on two cores of a server (2026-11-23)."""

OTHER_RATES = Rates(1.2e-13, 3.1e-12, 5e-6)
"""Those of a GPU: 8.1 TFLOP/s and 320 GB/s are the peaks of an NVIDIA T4 (data sheet, 2019), a slow one."""


@dataclass(frozen=True)
class Size:
    """FLOPs (None if unknown) and bytes of one iteration, and the parameters of a model (0 for an operator)."""

    flop: int | None
    memory_bytes: int
    parameters: int = 0


UNKNOWN_SIZE = Size(0, 0)


@dataclass(frozen=True)
class Item:
    """A measurement: the time of one iteration in s, its execution, its size, and whether it is a whole model."""

    time_s: float
    execution: str
    size: Size
    is_model: bool


def default_rates(device_type: str, threads: int | None) -> Rates:
    """Return conservative rates of time for a device without rows."""
    rates = DEFAULT_RATES.get(device_type, OTHER_RATES)
    return Rates(rates.per_flop / (threads or 1), rates.per_byte, rates.per_call)


def attempt_s(item: Item, protocol: MeasurementProtocol, device_type: str) -> float:
    """Return the time of one attempt at a measurement in s, for a model with all its builds."""
    running_s = run_s(item.time_s, protocol, _loop_s(item, protocol), device_type == "cpu")
    return _builds(item, protocol) * (_building_s(item, device_type) + running_s)


def _builds(item: Item, protocol: MeasurementProtocol) -> int:
    return protocol.builds if item.is_model else 1


def run_s(time_s: float, protocol: MeasurementProtocol, loop_s: float, is_synchronous: bool) -> float:
    """Return the time of the first call, the warm-up and a loop in s.

    Args:
        time_s: of one iteration.
        protocol: of the loop.
        loop_s: the length that the loop must reach.
        is_synchronous: whether a chunk has ended when its call returns. On a GPU one more chunk is always under way.
    """
    chunk_s = max(protocol.chunk_s, time_s)
    # A loop ends with a chunk, on average half a chunk late.
    whole_loop_s = max(loop_s + chunk_s / 2, MINIMUM_CHUNKS * chunk_s)
    return time_s + max(protocol.warm_up_s, time_s) + (1 if is_synchronous else 2) * chunk_s + whole_loop_s


def _loop_s(item: Item, protocol: MeasurementProtocol) -> float:
    if protocol.relative_error is None:
        return protocol.loop_s
    expected_s = FIRST_CHECK_S + PRECISE_EXTRA_S[item.execution] * PRECISE_AT / protocol.relative_error
    return min(max(expected_s, MINIMUM_PRECISE_CHUNKS * item.time_s), protocol.loop_s)


def _building_s(item: Item, device_type: str) -> float:
    if not item.is_model:
        return OPERATOR_BUILDING_S + (CPU_SECONDS_PER_BYTE * item.size.memory_bytes if device_type == "cpu" else 0.0)
    captured_s = CAPTURED_CALLS * item.time_s if item.execution == GRAPH else 0.0
    return MODEL_BUILDING_S + SECONDS_PER_PARAMETER * item.size.parameters + captured_s


@dataclass
class _Tally:
    """Actual and calculated durations of rows."""

    actual_s: float = 0.0
    calculated_s: float = 0.0
    rows: int = 0

    def add(self, actual_s: float, calculated_s: float) -> None:
        self.actual_s += actual_s
        self.calculated_s += calculated_s
        self.rows += 1

    def ratio(self, prior_ratio: float) -> float:
        """Return actual over calculated durations, as if ``PRIOR_ITEMS`` mean rows had a ratio known before."""
        if not self.rows:
            return prior_ratio
        prior_s = PRIOR_ITEMS * self.calculated_s / self.rows
        return (self.actual_s + prior_ratio * prior_s) / (self.calculated_s + prior_s)


@dataclass
class _Ratios:
    """Ratios of actual to calculated durations under one protocol, by the time of one iteration."""

    together: _Tally = field(default_factory=_Tally)
    by_time: dict[int, _Tally] = field(default_factory=dict)

    def add(self, time_s: float, actual_s: float, calculated_s: float) -> None:
        self.together.add(actual_s, calculated_s)
        self.by_time.setdefault(_bin(time_s), _Tally()).add(actual_s, calculated_s)

    def ratio(self, time_s: float, prior_ratio: float) -> float:
        return self.by_time.get(_bin(time_s), _Tally()).ratio(self.together.ratio(prior_ratio))


def _bin(time_s: float) -> int:
    return math.floor(2 * math.log10(max(time_s, 1e-9)))


class Durations:
    """Expected durations of operators or of whole models on a device.

    Args:
        device_type: ``cuda`` or ``cpu``.
        rows: measurements of the same kind, operators or models, by the same or a similar device.
        sizes: sizes of their operators, by key.
        are_models: whether they are whole models.
        is_other_card: whether the rows are of another product.
    """

    def __init__(
        self,
        device_type: str,
        rows: Iterable[MeasurementRow] = (),
        sizes: Mapping[str, Size] | None = None,
        are_models: bool = False,
        is_other_card: bool = False,
    ) -> None:
        self._device_type = device_type
        self._is_other_card = is_other_card
        self._ratios: dict[tuple[str, bool], _Ratios] = {}
        for actual_s, item, protocol in measured_durations(rows, sizes or {}, are_models):
            calculated_s = attempt_s(item, protocol, device_type)
            ratios = self._ratios.setdefault((item.execution, protocol.relative_error is not None), _Ratios())
            ratios.add(item.time_s, actual_s, calculated_s)

    def item_s(self, item: Item, protocol: MeasurementProtocol) -> float:
        """Return the expected duration of a measurement with its retries in s."""
        is_precise = protocol.relative_error is not None
        ratios = self._ratios.get((item.execution, is_precise), _Ratios())
        ratio = ratios.ratio(item.time_s, ATTEMPTS.get(self._device_type, 1.0))
        other = OTHER_CARD_RATIO if is_precise and self._is_other_card else 1.0
        return other * ratio * attempt_s(item, protocol, self._device_type)


def measured_durations(
    rows: Iterable[MeasurementRow], sizes: Mapping[str, Size], are_models: bool
) -> Iterator[tuple[float, Item, MeasurementProtocol]]:
    """Yield the duration in s of each measurement whose row follows another one, with its item and protocol."""
    ended: dict[tuple[object, ...], float] = {}
    for row in sorted(rows, key=lambda row: row.measurement.ended_at):
        board = (row.circumstances.device_uuid, row.circumstances.host_cpu, row.conditions.device_product)
        end_s = datetime.fromisoformat(row.measurement.ended_at).timestamp()
        before_s, ended[board] = ended.get(board, -math.inf), end_s
        asked, builds = row.circumstances, row.measurement.builds or 1
        protocol = MeasurementProtocol(
            asked.warm_up_s, asked.loop_s or FULL_LOOP_S, asked.relative_error, builds=builds
        )
        size = sizes.get(tuple_key(row.key), UNKNOWN_SIZE)
        item = Item(row.measurement.time_s, row.conditions.execution, size, are_models)
        attempts = _builds(item, protocol) + RETRIES.at_once - 1
        if 0 < end_s - before_s <= BREAK_S + attempts * (protocol.warm_up_s + row.measurement.loop_time_s):
            yield end_s - before_s, item, protocol
