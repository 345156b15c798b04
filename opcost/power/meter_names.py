"""Names of meters: the source's name in rows, a short name on the command line.

This module imports the standard library only, because ``--help`` lists the short names.
"""

from __future__ import annotations

SAMPLES = "NVML power samples"
COUNTER = "NVML energy counter"
INSTANT = "nvidia-smi power.draw.instant"
AVERAGE = "nvidia-smi power.draw"
RAPL = "rapl package"
RAPL_WITH_MEMORY = "rapl package+dram"

AUTO = "auto"
"""On the command line: the best meter that passed its qualification."""

_SHORT_NAMES = {
    SAMPLES: "samples",
    COUNTER: "counter",
    INSTANT: "instant",
    AVERAGE: "average",
    RAPL: "rapl",
    RAPL_WITH_MEMORY: "rapl",
}

CPU_METERS = (_SHORT_NAMES[RAPL],)
GPU_METERS = tuple(name for name in _SHORT_NAMES.values() if name not in CPU_METERS)
"""Short names of the meters of each kind of device."""

METER_CHOICES = (AUTO, *dict.fromkeys(_SHORT_NAMES.values()))


def short_name(source_name: str) -> str:
    """Return the name of a meter on the command line; a source without a short name keeps its own."""
    return _SHORT_NAMES.get(source_name, source_name)
