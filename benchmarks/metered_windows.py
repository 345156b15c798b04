"""Windows of EnergyMeter, Zeus and CodeCarbon under on-off loads, against the energy counter at its ticks -> a CSV file

Each window begins and ends at a tick of NVML's energy counter, at a random phase of the load. Zeus and CodeCarbon are
metered if they are installed. Nothing else may run on the GPU. It takes under 4 minutes.
Example: PYTHONPATH=. python benchmarks/metered_windows.py --output windows.csv
         PYTHONPATH=. python benchmarks/metered_windows.py --evaluate windows.csv
"""

from __future__ import annotations

import argparse
import csv
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tables import markdown

from opcost.compat import JOULES_PER_KWH
from opcost.estimates import NORMAL_QUANTILE
from opcost.meters.energy import TICK_ERROR_S
from opcost.meters.nvml import NvmlGpu
from opcost.meters.nvml_meters import TickFinder

SHORT_S, SHORT_WINDOWS = 0.2, 50
LONG_S, LONG_WINDOWS = (1.0, 2.0, 5.0, 10.0), 3
OTHERS_LONG_WINDOWS = 1
ON_OFF_S = ((0.13, 0.11), (0.31, 0.19), (0.05, 0.07), (0.6, 0.4))
"""Loads in turn; none of their periods is a multiple of the samples' 20 ms and of the ticks' 0.1 s."""

WIDTH = 4096


@dataclass(frozen=True)
class Window:
    """One window: energies in J, None if unknown; times of the calls that begin and end it in s."""

    tool: str
    length_s: float
    on_s: float
    off_s: float
    counted_j: float
    metered_j: float | None
    standard_error_j: float | None
    missing_reason: str
    begin_call_s: float
    end_call_s: float


class Tool(Protocol):
    """A meter of windows under test."""

    name: str

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def energy(self) -> tuple[float | None, float | None, str]:
        """Return energy and standard error of the last window in J, and why it is unknown."""

    def close(self) -> None: ...


class Opcost:
    name = "opcost"

    def __init__(self) -> None:
        from opcost import EnergyMeter

        self._meter = EnergyMeter(["cuda:0"], synchronise=False)
        # The first window opens the meters, which takes longer than a short window.
        self._meter.start()
        self._window: Any = self._meter.stop()

    def begin(self) -> None:
        self._meter.start()

    def end(self) -> None:
        self._window = self._meter.stop()

    def energy(self) -> tuple[float | None, float | None, str]:
        (device,) = self._window.result.devices
        return device.energy_j, device.energy_standard_error_j, device.missing_reason or ""

    def close(self) -> None:
        self._meter.close()


class Zeus:
    name = "Zeus"

    def __init__(self) -> None:
        from zeus.monitor import ZeusMonitor

        self._monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], approx_instant_energy=True)
        self._energy_j = math.nan

    def begin(self) -> None:
        self._monitor.begin_window("window", sync_execution=False)

    def end(self) -> None:
        self._energy_j = float(self._monitor.end_window("window", sync_execution=False).gpu_energy[0])

    def energy(self) -> tuple[float | None, float | None, str]:
        return self._energy_j, None, ""

    def close(self) -> None: ...


class CodeCarbon:
    name = "CodeCarbon"

    def __init__(self) -> None:
        from codecarbon import OfflineEmissionsTracker

        logging.getLogger("codecarbon").setLevel(logging.ERROR)
        self._tracker = OfflineEmissionsTracker(
            country_iso_code="USA", save_to_file=False, log_level="error", gpu_ids=[0], tracking_mode="machine"
        )
        self._number = 0
        self._energy_j = math.nan

    def begin(self) -> None:
        self._number += 1
        self._tracker.start_task(f"window {self._number}")

    def end(self) -> None:
        data = self._tracker.stop_task(f"window {self._number}")
        self._energy_j = float(data.gpu_energy) * JOULES_PER_KWH

    def energy(self) -> tuple[float | None, float | None, str]:
        return self._energy_j, None, ""

    def close(self) -> None:
        self._tracker.stop()


def tools() -> Iterator[Callable[[], Tool]]:
    """Yield those that are installed."""
    from importlib.util import find_spec

    yield Opcost
    if find_spec("zeus"):
        yield Zeus
    if find_spec("codecarbon"):
        yield CodeCarbon


@contextmanager
def load(on_s: float, off_s: float) -> Iterator[None]:
    """Keep the GPU at work and at rest in turn, in a thread that begins at a random phase."""
    import torch

    ended = threading.Event()
    left, right = (torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    result = torch.empty_like(left)

    def run() -> None:
        while not ended.is_set():
            end_s = time.perf_counter() + on_s
            while time.perf_counter() < end_s:
                torch.mm(left, right, out=result)
                torch.mm(right, left, out=result)
                torch.cuda.synchronize()
            ended.wait(off_s)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def windows_of(tool: Tool, gpu: NvmlGpu, random: np.random.Generator, long_windows: int) -> Iterator[Window]:
    """Yield all windows of a tool."""
    plan = [SHORT_S] * SHORT_WINDOWS + [length_s for length_s in LONG_S for _ in range(long_windows)]
    for turn, (on_s, off_s) in enumerate(ON_OFF_S):
        with load(on_s, off_s):
            time.sleep(1.5)
            for length_s in plan[turn :: len(ON_OFF_S)]:
                time.sleep(float(random.uniform(0, on_s + off_s)))
                yield _window(tool, gpu, length_s, (on_s, off_s))


def _window(tool: Tool, gpu: NvmlGpu, length_s: float, on_off_s: tuple[float, float]) -> Window:
    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    finder = TickFinder(gpu.energy_j, time.monotonic, wait)
    first = finder.next_tick(0.0)
    begin_s = time.perf_counter()
    tool.begin()
    began_s = time.perf_counter()
    last = finder.next_tick(length_s)
    end_s = time.perf_counter()
    tool.end()
    ended_s = time.perf_counter()
    if first is None or last is None:
        raise SystemExit("the energy counter of this GPU stands still")
    metered_j, error_j, reason = tool.energy()
    counted_j = last[1] - first[1]
    return Window(
        tool.name, length_s, *on_off_s, counted_j, metered_j, error_j, reason, began_s - begin_s, ended_s - end_s
    )


def measure(path: Path, seed: int) -> None:
    """Meter all windows with all tools, and write each as it ends."""
    import torch

    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    random = np.random.default_rng(seed)
    gpu = NvmlGpu.open(uuid)
    with path.open("x", encoding="utf-8", newline="", buffering=1) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Window)])
        for make in tools():
            tool = make()
            before = os.times()
            for window in windows_of(tool, gpu, random, LONG_WINDOWS if make is Opcost else OTHERS_LONG_WINDOWS):
                writer.writerow(astuple(window))
                print(f"{window.tool} {window.length_s:g} s: {window.metered_j} J, counted {window.counted_j:.1f} J")
            after = os.times()
            print(
                f"{tool.name}: {after.user + after.system - before.user - before.system:.1f} s of the CPU with the load"
            )
            tool.close()
    gpu.close()


def read(path: Path) -> list[Window]:
    """Return the windows in a file."""
    texts = {"tool", "missing_reason"}
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Window(**{name: cell if name in texts else float(cell) if cell else None for name, cell in row.items()})
            for row in csv.DictReader(file)
        ]


def evaluate(windows: Sequence[Window]) -> str:
    """Return a table: for each tool and length, how far sums and single windows are off, and what the calls cost."""
    head = [
        "tool",
        "window, s",
        "windows",
        "unknown",
        "sum, %",
        "one window (rms), %",
        "in 95 % intervals",
        "calls, ms",
    ]
    lines = []
    for tool in dict.fromkeys(window.tool for window in windows):
        for name, lengths_s in ((f"{SHORT_S:g}", (SHORT_S,)), ("1 to 10", LONG_S)):
            own = [window for window in windows if window.tool == tool and window.length_s in lengths_s]
            lines.append([tool, name, *_figures(own)])
    return markdown(head, lines)


def _figures(windows: Sequence[Window]) -> list[str]:
    known = [window for window in windows if window.metered_j is not None]
    calls_ms = 1e3 * float(np.median([window.begin_call_s + window.end_call_s for window in windows] or [math.nan]))
    counts = [str(len(windows)), str(len(windows) - len(known))]
    if not known:
        return [*counts, "-", "-", "-", f"{calls_ms:.1f}"]
    metered_j = np.array([window.metered_j for window in known], dtype=np.float64)
    counted_j = np.array([window.counted_j for window in known])
    off = metered_j / counted_j - 1
    within = "-"
    if all(window.standard_error_j is not None for window in known):
        errors_j = np.array([window.standard_error_j for window in known], dtype=np.float64)
        # The ends of a window are calls after ticks, whose times are known to one read.
        ends_j = math.sqrt(2) * TICK_ERROR_S * counted_j / np.array([window.length_s for window in known])
        within = f"{np.mean(np.abs(metered_j - counted_j) <= NORMAL_QUANTILE * np.hypot(errors_j, ends_j)):.0%}"
    total = metered_j.sum() / counted_j.sum() - 1
    return [*counts, f"{total:+.2%}", f"{np.sqrt(np.mean(off**2)):.1%}", within, f"{calls_ms:.1f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, metavar="FILE", help="a new file")
    parser.add_argument("--evaluate", type=Path, metavar="FILE", help="only print the table of a file")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if (arguments.output is None) == (arguments.evaluate is None):
        parser.error("name --output or --evaluate")
    if arguments.output is not None:
        measure(arguments.output, arguments.seed)
    print(evaluate(read(arguments.output or arguments.evaluate)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
