"""Queries to nvidia-smi: facts of a GPU, and the fields that its driver can log.

A driver that hangs also hangs nvidia-smi, so that no signal can end it. All waits have a deadline: a process that does
not end in time is killed, and abandoned if it survives that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

from opcost.meters.nvidia_smi_log import parse_columns, parse_number, parse_text

COMMAND_DEADLINE_S = 30.0
"""The longest time for an answer. Without persistence mode a driver takes several seconds to wake each GPU."""

TERMINATE_DEADLINE_S = 1.0
KILL_DEADLINE_S = 2.0
POLL_INTERVAL_S = 0.01

FACT_FIELDS = ("uuid", "name", "memory.total", "power.limit", "driver_version", "mig.mode.current")

LOG_FIELDS = (
    "timestamp",
    "power.draw.instant",
    "power.draw.average",
    "power.draw",
    "utilization.gpu",
    "clocks.sm",
    "temperature.gpu",
    "temperature.memory",
    "clocks_event_reasons.active",
    "memory.used",
    "pstate",
)
"""The fields to log. ``power.draw`` is queried besides its average because older cards report only the former."""

OLDER_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active", "clocks.sm": "clocks.current.sm"}

# The child is killed with its parent; it sets this up and then becomes nvidia-smi. A fresh interpreter is safe in a
# process with threads (torch has many), subprocess's preexec_fn is not. 1 is PR_SET_PDEATHSIG of <sys/prctl.h>.
_LAUNCHER = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
_REFUSED_FIELD = re.compile(r'Field "([^"]*)" is not a valid field')
_LONGEST_QUOTE = 200


class NvidiaSmiError(Exception):
    """nvidia-smi is missing, hangs or reports an error. The message is one line with the remedy."""


@dataclass(frozen=True)
class GpuFacts:
    """Facts of a GPU, None if unknown. The power limit may be changed by the GPU's owner.

    ``is_mig`` says whether it is divided into MIG instances, of which it reports only the total power.
    """

    uuid: str
    product: str
    memory_bytes: int | None
    power_limit_w: float | None
    driver_version: str
    is_mig: bool = False


def gpu_facts(uuid_or_index: str, deadline_s: float = COMMAND_DEADLINE_S) -> GpuFacts:
    """Return the facts of one GPU.

    An index is nvidia-smi's own (order of the PCI bus), not CUDA's.

    Raises NvidiaSmiError: nvidia-smi is missing, did not answer in time, or knows no such GPU.
    """
    fields, output = _query_known(uuid_or_index, FACT_FIELDS, deadline_s)
    lines = [line for line in output.splitlines() if line.strip()]
    for header, row in pairwise(lines):
        columns = parse_columns(header)
        cells = columns.cells(row) if columns.names == fields else None
        if cells is not None and parse_text(cells["uuid"]) is not None:
            return _facts(cells)
    raise _refusal(uuid_or_index, output)


def supported_fields(uuid_or_index: str, deadline_s: float = COMMAND_DEADLINE_S) -> tuple[str, ...]:
    """Return the fields of ``LOG_FIELDS`` that this driver knows, some by their older names.

    Raises NvidiaSmiError: nvidia-smi is missing, did not answer in time, or knows no such GPU.
    """
    fields, output = _query_known(uuid_or_index, LOG_FIELDS, deadline_s)
    if not any(line.startswith("timestamp") for line in output.splitlines()):
        raise _refusal(uuid_or_index, output)
    return fields


def start_process(arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start nvidia-smi in its own session with stdout and stderr in a file; it ends with its parent.

    Its timestamps are in UTC. On Linux its parent is the calling thread, which must live as long as the process is
    needed.

    Raises NvidiaSmiError: nvidia-smi is not on the PATH.
    """
    executable = shutil.which("nvidia-smi")
    if executable is None:
        raise NvidiaSmiError("nvidia-smi was not found: install the NVIDIA driver, or add nvidia-smi's folder to PATH")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
    )


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process: terminate it, then kill it, then abandon it."""
    if process.poll() is None:
        process.terminate()
        if not _ends_within(process, TERMINATE_DEADLINE_S):
            process.kill()
            _ends_within(process, KILL_DEADLINE_S)


def quote(output: str) -> str:
    """Return the last line of nvidia-smi's output, shortened."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_QUOTE] if lines else "nothing"


def _query_known(uuid_or_index: str, fields: tuple[str, ...], deadline_s: float) -> tuple[tuple[str, ...], str]:
    """Query fields, then without those that the driver does not know; return the fields and the output."""
    while True:
        output = _query(uuid_or_index, fields, deadline_s)
        refused = set(_REFUSED_FIELD.findall(output)) & set(fields)
        if not refused:
            return fields, output
        renamed = (OLDER_NAMES.get(field) if field in refused else field for field in fields)
        fields = tuple(field for field in renamed if field is not None)


def _query(uuid_or_index: str, fields: Sequence[str], deadline_s: float) -> str:
    arguments = ["-i", uuid_or_index, f"--query-gpu={','.join(fields)}", "--format=csv,nounits"]
    with tempfile.TemporaryFile() as output:
        process = start_process(arguments, output)
        try:
            in_time = _ends_within(process, deadline_s)
        finally:
            end_process(process)
        if not in_time:
            raise NvidiaSmiError(
                f"nvidia-smi did not answer within {deadline_s:g} s: "
                "run `nvidia-smi` in a shell; if it hangs there, too, restart the machine, because the driver hangs"
            )
        output.seek(0)
        return output.read().decode("utf-8", errors="replace")


def _ends_within(process: subprocess.Popen[bytes], deadline_s: float) -> bool:
    end_s = time.monotonic() + deadline_s
    while process.poll() is None:
        if time.monotonic() > end_s:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def _facts(cells: dict[str, str]) -> GpuFacts:
    memory_mib = parse_number(cells["memory.total"])
    return GpuFacts(
        uuid=cells["uuid"],
        product=cells["name"],
        memory_bytes=None if memory_mib is None else round(memory_mib * 2**20),
        power_limit_w=parse_number(cells["power.limit"]),
        driver_version=cells["driver_version"],
        is_mig=cells.get("mig.mode.current", "").casefold() == "enabled",
    )


def _refusal(uuid_or_index: str, output: str) -> NvidiaSmiError:
    return NvidiaSmiError(f"nvidia-smi -i {uuid_or_index} printed: {quote(output)}: `nvidia-smi -L` lists all GPUs")
