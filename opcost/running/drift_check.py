"""The sentinel: one operator that is measured again and again in a campaign, to see what changes meanwhile."""

from __future__ import annotations

import logging
from dataclasses import replace

from opcost.errors import CannotMeasureError
from opcost.estimates import value_of
from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.running.bench import Bench, measured_row
from opcost.storage.table import CsvTable
from opcost.summing.energy import common_basis
from opcost.units import percent

EVERY = 100
"""Measurements between two looks: at half a second each, one in a minute."""

LOOP_S = 0.8
"""Of the sentinel where loops are to be precise: these are too short for nvidia-smi, which has a new value every 0.1 s,
to check the meter that energies come from."""


class Sentinel:
    """Measures a bench's sentinel, if it has one, first, last and after every ``EVERY`` measurements, into a table.

    Where two meters disagree on it, all that is measured until they agree again is in doubt.
    """

    def __init__(self, bench: Bench, protocol: MeasurementProtocol, table: CsvTable[MeasurementRow]) -> None:
        self._bench = bench
        self._case = bench.sentinel
        is_short = protocol.relative_error is not None
        self._protocol = replace(protocol, loop_s=LOOP_S, relative_error=None) if is_short else protocol
        # Asked for now: where a bench's process ends with its first operator, it answers no more.
        self._circumstances = bench.circumstances(self._protocol)
        self._table = table
        self._rows: list[MeasurementRow] = []
        self._last_setting = USUAL
        self._measured_since = 0

    def look_if_due(self, setting: Setting) -> None:
        """Measure it, if that was not done yet or if so many others were measured since."""
        if not self._rows or self._measured_since >= EVERY:
            self._look(setting)

    def look_last(self) -> None:
        """Measure it as before, if others were measured since."""
        if self._rows and self._measured_since:
            self._look(self._last_setting)

    def doubted(self, row: MeasurementRow) -> MeasurementRow:
        """Count a measurement that came after the last look; return it.

        It is marked if meters disagreed then, unless it has a check of its own.
        """
        self._measured_since += 1
        meters_disagree = self._rows and Flag.METERS_DISAGREE in self._rows[-1].measurement.flags
        if not meters_disagree or row.measurement.check_power_w is not None:
            return row
        flags = flags_of([*row.measurement.flags, Flag.METERS_DISAGREED_BEFORE])
        return replace(row, measurement=replace(row.measurement, flags=flags))

    def tell_drift(self) -> None:
        """Say by how much its figures have drifted."""
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

    def _look(self, setting: Setting) -> None:
        if self._case is None:
            return
        try:
            row = measured_row(self._bench, self._case, setting, self._protocol, self._circumstances)
        except CannotMeasureError as error:
            logging.getLogger(__name__).warning("no drift check: %s", error)
            self._case = None
            return
        if Flag.METERS_DISAGREE in row.measurement.flags:
            before = f", as may be the {self._measured_since} rows before" if self._measured_since else ""
            text = "drift check: meters disagree (%.1f W and %.1f W); rows from here on are flagged%s: try %s"
            figures = (row.measurement.power_w, row.measurement.check_power_w)
            logging.getLogger(__name__).warning(text, *figures, before, "power_logger.py --qualify")
        self._table.append(row)
        self._rows.append(row)
        self._last_setting = setting
        self._measured_since = 0
