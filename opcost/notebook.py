"""``%load_ext opcost``: the magic ``%%energy`` meters a cell. Only IPython imports this, and hands its shell in."""

from __future__ import annotations

from typing import Any

from opcost.metering.window_energy import WindowResult
from opcost.running.energy_meter import EnergyMeter


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%energy`` with an ``IPython.core.interactiveshell.InteractiveShell``."""

    def energy(line: str, cell: str) -> WindowResult:
        """Run a cell, and return its time and energy, which are shown instead of its last value.

        ``%%energy [DEVICE ...]``: devices as in ``opcost.EnergyMeter``, such as ``cuda:0 cpu``; all that have a meter
        if none is named. Names that the cell assigns stay. An error of the cell ends it as usual.
        """
        source = shell.transform_cell(cell)
        # Where tracebacks find the lines of the cell.
        file = shell.compile.cache(source, shell.execution_count, raw_code=cell)
        code = shell.compile(shell.transform_ast(shell.compile.ast_parse(source)), file, "exec")
        with EnergyMeter(line.split() or None) as meter:
            exec(code, shell.user_ns)
        return meter.result

    shell.register_magic_function(energy, "cell")
