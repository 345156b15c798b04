"""The drift check: one operator that a campaign measures repeatedly, to detect drift of the device."""

from __future__ import annotations

import logging
from dataclasses import replace

from opcost.errors import CannotMeasureError
from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.conditions import GRAPH
from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.prediction.durations import OPERATOR_BUILDING_S, run_s
from opcost.running.bench import Bench, measured_row
from opcost.storage.table import CsvTable
from opcost.summing.energy import common_basis
from opcost.units import percent

SIDE = 8192
STEADY_LOAD = Case(
    OperatorTuple(
        "torch.add",
        inputs=(TensorSpec((SIDE, SIDE), "float32"), TensorSpec((SIDE, SIDE), "float32", identity=1)),
        mode=None,
    )
)
"""Adds 256 MB to 256 MB: bound by memory, so that it stays below the power limit (H200: 657 of 700 W)."""

EVERY = 100
"""Measurements between two checks: at half a second each, one check a minute."""

LOOP_S = 0.8
"""Loop of a check if other loops end at a relative error. Those are too short for nvidia-smi, which has a new value
every 0.1 s, to check the meter that energies come from."""


class DriftCheck:
    """Measures a bench's ``drift_case``, if it has one, first, last and after every ``EVERY`` measurements.

    If two meters disagree on it, all rows are flagged until they agree again.
    """

    def __init__(self, bench: Bench, protocol: MeasurementProtocol, table: CsvTable[MeasurementRow]) -> None:
        self._bench = bench
        self._case = bench.drift_case
        is_short = protocol.relative_error is not None
        self._protocol = replace(protocol, loop_s=LOOP_S, relative_error=None) if is_short else protocol
        # Now, since a bench whose process ends with its first operator answers no more.
        self._circumstances = bench.circumstances(self._protocol)
        self._table = table
        self._rows: list[MeasurementRow] = []
        self._last_setting = USUAL
        self._measured_since = 0

    def turn_off(self) -> None:
        self._case = None

    def measure_if_due(self, setting: Setting) -> None:
        """Measure the case first of all, and then after every ``EVERY`` other measurements."""
        if not self._rows or self._measured_since >= EVERY:
            self._measure(setting)

    def measure_last(self) -> None:
        """Measure the case a last time, if others were measured since."""
        if self._rows and self._measured_since:
            self._measure(self._last_setting)

    def expected_s(self, items: int) -> float:
        """Return the time of all checks among a number of items in s."""
        if self._case is None or not items:
            return 0.0
        checks = 2 + (items - 1) // EVERY
        return checks * (OPERATOR_BUILDING_S + run_s(0.0, GRAPH, self._protocol, "cuda"))

    def checked(self, row: MeasurementRow) -> MeasurementRow:
        """Count a measurement; return it, flagged if meters disagreed at the last check.

        A row with a check of its own gets no flag.
        """
        self._measured_since += 1
        meters_disagree = self._rows and Flag.METERS_DISAGREE in self._rows[-1].measurement.flags
        if not meters_disagree or row.measurement.check_power_w is not None:
            return row
        flags = flags_of([*row.measurement.flags, Flag.METERS_DISAGREED_BEFORE])
        return replace(row, measurement=replace(row.measurement, flags=flags))

    def report_drift(self) -> None:
        """Log by how much time and energy have drifted."""
        basis = common_basis(self._rows)
        energies_j = [value_of(basis.energy_of(row)) for row in self._rows]
        texts = [
            f"{name} drifted by {percent(max(values) / min(values) - 1, digits=2)}"
            for name, values in (
                ("time", [row.measurement.time_s for row in self._rows]),
                ("energy", [energy_j for energy_j in energies_j if energy_j]),
            )
            if len(values) > 1
        ]
        if texts:
            text = "drift check, %d measurements: %s"
            logging.getLogger(__name__).warning(text, len(self._rows), ", ".join(texts))

    def _measure(self, setting: Setting) -> None:
        if self._case is None:
            return
        self._table.prepare()
        try:
            row = measured_row(self._bench, self._case, setting, self._protocol, self._circumstances)
        except CannotMeasureError as error:
            logging.getLogger(__name__).warning("no drift check: %s", error)
            self._case = None
            return
        if Flag.METERS_DISAGREE in row.measurement.flags:
            before = f" The {self._measured_since} rows before may be wrong, too." if self._measured_since else ""
            text = "drift check: meters disagree (%.1f W and %.1f W). Rows from now on are flagged.%s Run %s."
            figures = (row.measurement.power_w, row.measurement.check_power_w)
            logging.getLogger(__name__).warning(text, *figures, before, command("qualify"))
        self._table.append(row)
        self._rows.append(row)
        self._last_setting = setting
        self._measured_since = 0
