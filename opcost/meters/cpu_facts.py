"""Facts about the host's processor."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")


def cpu_product(cpu_info: Path = CPU_INFO) -> str:
    """Return the processor's product name as reported by the kernel, else its architecture."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in names if name), platform.processor() or platform.machine())


def host_memory_bytes() -> int:
    """Return the size of the host's memory in bytes, rounded to GiB because the kernel reserves a varying part."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30) * 2**30
