"""The expected duration of measurements.

An attempt at a measurement takes its building, its warm-up and its loop, for a whole model once for each build. Their
lengths follow from the protocol and from the time of one iteration. Disturbed attempts are repeated, and loops to a
target precision depend on the device. Rows show both: the time from the end of the row before to the end of a row is
what the measurement took altogether (on average for whole models, whose rows are of the first, a later, or the last
build).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from opcost.measuring.conditions import EAGER, GRAPH, Conditions, measurement_key
from opcost.measuring.loop import FIRST_CHECK_S, MINIMUM_PRECISE_CHUNKS
from opcost.measuring.protocol import FULL_LOOP_S, MINIMUM_CHUNKS, RETRIES, MeasurementProtocol
from opcost.measuring.record import MeasurementRow, is_flagged
from opcost.operators.counts import Case, tuple_key
from opcost.prediction.rates import MINIMUM_KNOWN, Rates, rates_of

# The constants below are fitted to the committed rows of 2026-11-21 to 2026-11-23 (H200) where no other source is
# named. ``tests/prediction/test_durations.py`` recomputes them.

OPERATOR_BUILDING_S = 0.21
"""Time to build and capture an operator, and for the last rows of the log: the mean over operators of 0.1 to 100 MB."""

IN_STATE_S = OPERATOR_BUILDING_S + 0.3
"""Time to measure a call in its state: an expectation, before any was measured on a card."""

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

BREAK_S = 5.0
"""Time between two rows, beyond all attempts, that belongs to no measurement: a campaign ends, another one starts."""

DEFAULT_RATES = {"cpu": Rates(3.3e-11, 2e-10, 1e-5)}
"""Conservative rates of a device without rows. On a CPU 30 GFLOP/s for each thread, 5 GB/s, 10 us for each call: half
of what ResNet-18 reached on two cores of a server (2026-11-23)."""

OTHER_RATES = Rates(1.2e-13, 3.1e-12, 5e-6)
"""Those of a GPU: 8.1 TFLOP/s and 320 GB/s are the peaks of an NVIDIA T4 (data sheet, 2019), a slow one."""


SHORTEST_S = 1e-8
"""The shortest expected time of an iteration."""


@dataclass(frozen=True)
class Size:
    """FLOPs (None if unknown) and bytes of one iteration, and the parameters of a model (0 for an operator)."""

    flop: int | None
    memory_bytes: int
    parameters: int = 0


UNKNOWN_SIZE = Size(0, 0)


def default_rates(device_type: str, threads: int | None) -> Rates:
    """Return conservative rates of time for a device without rows."""
    rates = DEFAULT_RATES.get(device_type, OTHER_RATES)
    return Rates(rates.per_flop / (threads or 1), rates.per_byte, rates.per_call)


def run_s(time_s: float, execution: str, protocol: MeasurementProtocol, device_type: str) -> float:
    """Return the time of the first call, the warm-up and a loop in s, for iterations of ``time_s``."""
    loop_s = protocol.loop_s
    if protocol.relative_error is not None:
        precise_s = FIRST_CHECK_S + PRECISE_EXTRA_S[execution] * PRECISE_AT / protocol.relative_error
        loop_s = min(max(precise_s, MINIMUM_PRECISE_CHUNKS * time_s), loop_s)
    chunk_s = max(protocol.chunk_s, time_s)
    # A loop ends with a chunk, on average half a chunk late.
    whole_loop_s = max(loop_s + chunk_s / 2, MINIMUM_CHUNKS * chunk_s)
    # A chunk on a CPU has ended when its call returns. On a GPU one more is always under way.
    under_way = 0 if device_type == "cpu" else 1
    return time_s + max(protocol.warm_up_s, time_s) + under_way * chunk_s + whole_loop_s


class ExpectedTimes:
    """The expected times of measurements of operators, or of whole models, on a device.

    Args:
        conditions: any of the device.
        rows: the rows of the table that the measurements are added to, of any device.
        sizes: the sizes of operators and models, by the keys of their tuples.
        are_models: whether the measurements are of whole models.
        operator_rows: rows of operators, for whole models if too few have rows.
    """

    def __init__(
        self,
        conditions: Conditions,
        rows: Sequence[MeasurementRow],
        sizes: Mapping[str, Size],
        are_models: bool = False,
        operator_rows: Sequence[MeasurementRow] = (),
    ) -> None:
        self._device_type = conditions.device_type
        self._default = default_rates(conditions.device_type, conditions.cpu_threads)
        self._sizes = sizes
        self._are_models = are_models
        # A disturbed measurement can be off by any factor, and rows in state have another kind of loop.
        rows = _similar([row for row in rows if not (is_flagged(row.measurement) or row.state)], conditions)
        self._rates = self._fitted(rows) or self._fitted(_similar(operator_rows, conditions))
        self._times_s: dict[str, list[float]] = {}
        for row in rows:
            # By case under the same conditions, and by operator in the same execution.
            for key in (row.key, f"{tuple_key(row.key)} {row.conditions.execution}"):
                self._times_s.setdefault(key, []).append(row.measurement.time_s)
        # Actual and calculated durations, by execution and whether the loop has a target precision.
        sums_s: dict[tuple[str, bool], tuple[float, float]] = {}
        for actual_s, row, protocol in measured_durations(rows, are_models):
            kind = row.conditions.execution, protocol.relative_error is not None
            calculated_s = self.attempt_s(row.measurement.time_s, self._size(row), kind[0], protocol)
            before = sums_s.get(kind, (0.0, 0.0))
            sums_s[kind] = before[0] + actual_s, before[1] + calculated_s
        self._ratios = {kind: actual_s / calculated_s for kind, (actual_s, calculated_s) in sums_s.items()}

    def item_s(self, case: Case, conditions: Conditions, protocol: MeasurementProtocol) -> float:
        """Return the expected time of a measurement with its retries in s."""
        if case.state:
            return IN_STATE_S
        size = self._sizes.get(case.operator.key, UNKNOWN_SIZE)
        return self.unmeasured_s(size, conditions.execution, protocol, self.iteration_s(case, conditions))

    def iteration_s(self, case: Case, conditions: Conditions) -> float:
        """Return the mean time of a call's rows in s, else what is expected of its size."""
        key, execution = measurement_key(case, conditions), conditions.execution
        known_s = self._times_s.get(key) or self._times_s.get(f"{tuple_key(key)} {execution}")
        size = self._sizes.get(case.operator.key, UNKNOWN_SIZE)
        return fmean(known_s) if known_s else self._expected_s(size, execution)

    def _expected_s(self, size: Size, execution: str) -> float:
        """Return the expected time of an iteration; unknown FLOPs are left out, since little depends on it."""
        rates = self._rates.get(execution) or next(iter(self._rates.values()), self._default)
        return max(rates.cost(size.flop or 0, size.memory_bytes), SHORTEST_S)

    def unmeasured_s(
        self, size: Size, execution: str, protocol: MeasurementProtocol, time_s: float | None = None
    ) -> float:
        """Return the expected time of a measurement with its retries in s; of an iteration, unless it is known, too."""
        if time_s is None:
            time_s = self._expected_s(size, execution)
        default = ATTEMPTS.get(self._device_type, 1.0)
        ratio = self._ratios.get((execution, protocol.relative_error is not None), default)
        return ratio * self.attempt_s(time_s, size, execution, protocol)

    def attempt_s(self, time_s: float, size: Size, execution: str, protocol: MeasurementProtocol) -> float:
        """Return the time in s of an undisturbed measurement, for a model with all its builds."""
        running_s = run_s(time_s, execution, protocol, self._device_type)
        if not self._are_models:
            drawing_s = CPU_SECONDS_PER_BYTE * size.memory_bytes if self._device_type == "cpu" else 0.0
            return OPERATOR_BUILDING_S + drawing_s + running_s
        captured_s = CAPTURED_CALLS * time_s if execution == GRAPH else 0.0
        return protocol.builds * (MODEL_BUILDING_S + SECONDS_PER_PARAMETER * size.parameters + captured_s + running_s)

    def _size(self, row: MeasurementRow) -> Size:
        return self._sizes.get(tuple_key(row.key), UNKNOWN_SIZE)

    def _fitted(self, rows: Iterable[MeasurementRow]) -> Mapping[str, Rates]:
        known: dict[str, list[tuple[tuple[int, int], float]]] = {}
        for row in rows:
            size = self._size(row)
            if size != UNKNOWN_SIZE and size.flop is not None:
                cost = (size.flop, size.memory_bytes), row.measurement.time_s
                known.setdefault(row.conditions.execution, []).append(cost)
        return {execution: rates_of(costs) for execution, costs in known.items() if len(costs) >= MINIMUM_KNOWN}


def _similar(rows: Sequence[MeasurementRow], conditions: Conditions) -> list[MeasurementRow]:
    """Return the rows of the same product, else of its type of device; of other CPUs none: they differ too much."""
    same = [row for row in rows if row.conditions.device_product == conditions.device_product]
    if same or conditions.device_type == "cpu":
        return same
    return [row for row in rows if row.conditions.device_type == conditions.device_type]


def measured_durations(
    rows: Iterable[MeasurementRow], are_models: bool
) -> Iterator[tuple[float, MeasurementRow, MeasurementProtocol]]:
    """Yield the duration in s of each measurement whose row follows another one, with its row and protocol."""
    ended: dict[tuple[object, ...], float] = {}
    for row in sorted(rows, key=lambda row: row.measurement.ended_at):
        board = (row.circumstances.device_uuid, row.circumstances.host_cpu, row.conditions.device_product)
        end_s = datetime.fromisoformat(row.measurement.ended_at).timestamp()
        before_s, ended[board] = ended.get(board, -math.inf), end_s
        asked, builds = row.circumstances, row.measurement.builds or 1
        loop_s = asked.loop_s or FULL_LOOP_S
        protocol = MeasurementProtocol(asked.warm_up_s, loop_s, asked.relative_error, builds=builds)
        attempts = (builds if are_models else 1) + RETRIES.at_once - 1
        if 0 < end_s - before_s <= BREAK_S + attempts * (protocol.warm_up_s + row.measurement.loop_time_s):
            yield end_s - before_s, row, protocol
