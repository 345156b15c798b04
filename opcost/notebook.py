"""``%load_ext opcost``: the magic ``%%energy`` meters a cell. Only IPython imports this, and hands its shell in."""

from __future__ import annotations

from typing import Any

from opcost.metering.window_energy import WindowResult
from opcost.running.energy_meter import EnergyMeter


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%energy`` with an ``IPython.core.interactiveshell.InteractiveShell``."""

    def energy(line: str, cell: str) -> WindowResult:
        """Run the cell, and return its time and energy: ``%%energy [DEVICE ...]``.

        Devices are those of ``opcost.EnergyMeter``, such as ``cuda:0 cpu``; all that have a meter if none is named. The
        result is shown as a table, and is the output of the cell. An error of the cell is raised.
        """
        with EnergyMeter(line.split() or None) as meter:
            ran = shell.run_cell(cell)
        ran.raise_error()
        return meter.result

    shell.register_magic_function(energy, "cell")
