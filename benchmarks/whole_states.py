"""Why whole models have two states: builds in fresh processes, after several preparations -> a CSV file

Each process builds the first model, the second, and the first again, and keeps them. Each build runs in a short loop at
once, and again after all others; then its kernels are profiled. Processes differ in what precedes their first build:

plain       nothing
buffer      a buffer of random size: other addresses
expandable  torch's allocator maps small segments (expandable_segments) instead of allocating large ones: another layout
full        a buffer that leaves 12 GB of the memory free
late        5 s of additions: a device that is warm, and a process that is not young

With --events each process builds one model, and runs it again after each of these events, in another order each time:
nothing, 1 s of idling, filling another buffer, eager additions, additions in another graph, a profile of the model.

Rows are kept at once; the kernels of each build lie beside them in FILE.kernels.csv. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/whole_states.py --output states.csv --limit-seconds 100 \\
             efficientnet_b0_32x3x224x224 mobilenet_v3_large_32x3x224x224
         PYTHONPATH=. python benchmarks/whole_states.py --evaluate states.csv
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np
import torch
from growing_csv import append, growing_parser
from states_of_builds import BETWEEN_EVENTS, kernels_beside, report_of
from torch.profiler import ProfilerActivity, profile

from opcost.boards import short_uuid
from opcost.measuring.calls import Calls
from opcost.measuring.conditions import is_gpu
from opcost.measuring.instruments import Instruments
from opcost.measuring.loop import run_loop
from opcost.measuring.observers import Observer
from opcost.measuring.protocol import MeasurementProtocol
from opcost.meters.clock import SystemClock
from opcost.meters.opening import NoMeter
from opcost.operators.tuples import OperatorTuple
from opcost.running.request import model_tuple
from opcost.sources.models import resolve
from opcost.storage.model_folders import load_configs
from opcost.torch_backend.background_load import ELEMENTS, additions
from opcost.torch_backend.workload import EagerWorkload, GraphWorkload, as_graph

PREPARATIONS = ("plain", "buffer", "expandable", "full", "late")
EVENTS = ("profile", "graph", "eager", "buffer", "idle", "nothing")
LOOK = MeasurementProtocol(warm_up_s=0.2, loop_s=0.5)
"""States are 2.6 % apart; a loop of 0.5 s shows a time to 0.1 %."""

FREE_BYTES = 12 * 2**30
LARGEST_BYTES = 8 * 2**30
LATE_S = 5.0
IDLE_S = 1.0
FILLED_BYTES = 2**30
PROFILED_REPLAYS = 20
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"


class Gauge(Observer):
    """Reads clocks and temperature of a GPU at work, at most every 0.1 s; nothing without NVML."""

    def __init__(self, uuid: str) -> None:
        self.last: dict[str, float | None] = dict.fromkeys(("sm_clock_hz", "memory_clock_hz", "temperature_c"))
        self._read_s = 0.0
        try:
            import pynvml

            pynvml.nvmlInit()
            self._gpu, self._nvml = pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml
        except Exception:
            self._nvml = None

    def during(self) -> None:
        if self._nvml is None or time.monotonic() - self._read_s < 0.1:
            return
        nvml, self._read_s = self._nvml, time.monotonic()
        self.last = {
            "sm_clock_hz": 1e6 * nvml.nvmlDeviceGetClockInfo(self._gpu, nvml.NVML_CLOCK_SM),
            "memory_clock_hz": 1e6 * nvml.nvmlDeviceGetClockInfo(self._gpu, nvml.NVML_CLOCK_MEM),
            "temperature_c": nvml.nvmlDeviceGetTemperature(self._gpu, nvml.NVML_TEMPERATURE_GPU),
        }


class Builder:
    """Builds and runs models in this process, on one device."""

    def __init__(self, device: str, preparation: str, seed: int) -> None:
        self.device, self.is_gpu = device, is_gpu(device)
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}" if self.is_gpu else "cpu"
        self.process = {
            "board": short_uuid(uuid),
            "device": torch.cuda.get_device_name(device) if self.is_gpu else "cpu",
            "preparation": preparation,
            "process": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        }
        self._gauge = Gauge(uuid)
        self._begin_s = time.monotonic()
        self._kept = self._prepare(preparation, random.Random(seed))

    def _prepare(self, preparation: str, sizes: random.Random) -> list[object]:
        """Do what precedes the first build; return the buffers to keep."""
        size_bytes = 0
        if preparation == "buffer":
            size_bytes = sizes.randrange(LARGEST_BYTES)
        elif preparation == "full":
            free, _ = torch.cuda.mem_get_info(self.device)
            size_bytes = max(free - FREE_BYTES, 0)
        elif preparation == "late":
            load, end_s = additions(self.device), time.monotonic() + LATE_S
            while time.monotonic() < end_s:
                load.run(1)
            load.finish()
        return [torch.empty(size_bytes, dtype=torch.uint8, device=self.device)] if size_bytes else []

    def build(self, operator: OperatorTuple) -> tuple[EagerWorkload | GraphWorkload, dict[str, object]]:
        """Return the workload of a model, and where it lies in memory."""
        ready = resolve(operator).with_inputs(self.device)
        eager = EagerWorkload(Calls(ready.run), self.device)
        workload = as_graph(eager) if self.is_gpu else eager
        segments = torch.cuda.memory_snapshot() if self.is_gpu else []
        newest = max((tuple(one["segment_pool_id"]) for one in segments), default=None)
        own = [one for one in segments if tuple(one["segment_pool_id"]) == newest]
        return workload, {
            "weights_address": hex(next(ready.model.parameters()).data_ptr()),
            "input_address": hex(ready.inputs[0].data_ptr()),
            "graph_segments": "|".join(f"{one['address']:#x}+{one['total_size']:#x}" for one in own),
            "reserved_bytes": sum(one["total_size"] for one in segments),
            "is_expandable": any(one.get("is_expandable", False) for one in segments),
            "iterations_per_replay": workload.iterations_per_round,
            "executed_as": workload.execution,
        }

    def look(self, workload: EagerWorkload | GraphWorkload) -> dict[str, object]:
        """Return the time of a workload in a short loop, chunk by chunk."""
        instruments = Instruments(NoMeter("only times are wanted"), SystemClock(), observers=(self._gauge,))
        since_s = time.monotonic() - self._begin_s
        loop = run_loop(workload, instruments, LOOK)
        return {
            "begins_after_s": round(since_s, 3),
            "time_s": loop.time_s.value,
            "time_standard_error_s": loop.time_s.standard_error,
            "chunk_times_s": "|".join(f"{one:.6g}" for one in loop.times_s),
            **self._gauge.last,
        }

    def kernels(self, workload: EagerWorkload | GraphWorkload) -> Iterator[dict[str, object]]:
        """Yield the kernels of one iteration of a workload on a GPU."""
        if self.is_gpu:
            workload.run(1)
            workload.finish()
            iterations = PROFILED_REPLAYS * workload.iterations_per_round
            yield from medians(traced(partial(workload.run, PROFILED_REPLAYS)), iterations)

    def happen(self, event: str) -> None:
        """Let an event happen on the device; what it allocates is kept."""
        if event == "idle":
            time.sleep(IDLE_S)
        elif event == "buffer":
            self._kept.append(torch.full((FILLED_BYTES,), 1, dtype=torch.uint8, device=self.device))
        elif event == "eager":
            one = torch.ones(ELEMENTS, device=self.device)
            self._kept += [one + one for _ in range(100)][:1]
        elif event == "graph":
            load = additions(self.device)
            load.run(10)
            load.finish()
            self._kept.append(load)


def process_rows(
    models: Sequence[tuple[str, OperatorTuple]], builder: Builder, keep_kernel: Callable[[Mapping[str, object]], None]
) -> Iterator[dict[str, object]]:
    """Yield a row for each loop of each build in this process; hand over the kernels of each build at the end."""
    built = []
    for number, (config, operator) in enumerate(models):
        workload, memory = builder.build(operator)
        name = {"config": config, **builder.process, "build": number}
        built.append((name, workload, memory))
        yield {**name, "look": 0, "event": "", **builder.look(workload), **memory}
    for name, workload, memory in built:
        yield {**name, "look": 1, "event": "others", **builder.look(workload), **memory}
    for name, workload, _ in built:
        for row in builder.kernels(workload):
            keep_kernel({**name, "look": 1, **row})


def event_rows(
    model: tuple[str, OperatorTuple],
    builder: Builder,
    keep_kernel: Callable[[Mapping[str, object]], None],
    events: Sequence[str],
) -> Iterator[dict[str, object]]:
    """Yield a row for a loop of one build, and for another one after each event; hand over its kernels if profiled."""
    workload, memory = builder.build(model[1])
    name = {"config": model[0], **builder.process, "build": 0}
    yield {**name, "look": 0, "event": "", **builder.look(workload), **memory}
    for number, event in enumerate(events):
        if event == "profile":
            for row in builder.kernels(workload):
                keep_kernel({**name, "look": number, **row})
        else:
            builder.happen(event)
        yield {**name, "look": number + 1, "event": event, **builder.look(workload), **memory}


def medians(kernels: list[dict], iterations: int) -> Iterator[dict[str, object]]:
    """Yield each kernel of an iteration with its grid, its time, and the gap after it: medians over iterations."""
    # The profiler may report a first kernel twice, and reports one that is not of the workload.
    kernels = kernels[len(kernels) % iterations :]
    begins_s, times_s = (1e-6 * np.array([one[key] for one in kernels]) for key in ("ts", "dur"))
    gaps_s = np.append(begins_s[1:] - (begins_s + times_s)[:-1], np.nan).reshape(iterations, -1)
    times_s = times_s.reshape(iterations, -1)
    for index, kernel in enumerate(kernels[: times_s.shape[1]]):
        sizes = (*kernel["args"].get("grid", ()), *kernel["args"].get("block", ()))
        yield {
            "kernel": index,
            "name": kernel["name"][:100],
            "name_hash": hashlib.sha256(kernel["name"].encode()).hexdigest()[:8],
            "grid_and_block": "x".join(map(str, sizes)),
            "kernel_time_s": float(np.median(times_s[:, index])),
            "gap_s": float(np.nanmedian(gaps_s[:, index])),
        }


def traced(run: Callable[[], object]) -> list[dict]:
    """Return the kernels, copies and fills of a run and of one before it, in order of their begin."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    wanted = {"kernel", "gpu_memcpy", "gpu_memset"}
    return sorted((one for one in events if one.get("cat") in wanted), key=lambda one: one["ts"])


def add_process(output: Path, names: Sequence[str], preparation: str, seed: int) -> None:
    """Build models in this process, and add their rows to a file. It begins with a line on standard input."""
    operators = {config.name: model_tuple(config) for config in load_configs(Path("measurements"), sorted(set(names)))}
    sys.stdin.readline()
    models = [(name, operators[name]) for name in names]
    builder, keep_kernel = Builder("cuda", preparation, seed), partial(append, kernels_beside(output))
    if preparation == BETWEEN_EVENTS:
        first = seed % len(EVENTS)
        rows = event_rows(models[0], builder, keep_kernel, (*EVENTS[first:], *EVENTS[:first]))
    else:
        rows = process_rows(models, builder, keep_kernel)
    for row in rows:
        append(output, row)
        shown = (row["config"], f"build {row['build']}", f"look {row['look']} {row['event']}".strip())
        print(preparation, *shown, f"{1e3 * row['time_s']:.4f} ms", flush=True)


def started(
    output: Path, names: Sequence[str], number: int, seed: int, preparations: Sequence[str] = PREPARATIONS
) -> subprocess.Popen[str]:
    """Start the process of a number: preparations take turns, then the models' order."""
    preparation = preparations[number % len(preparations)]
    first = number // len(preparations) % len(names)
    order = [*names[first:], *names[:first], names[first]]
    own = ["--in-this-process", preparation, "--output", str(output), "--seed", str(seed + number)]
    setting = {ALLOCATOR: "expandable_segments:True"} if preparation == "expandable" else {}
    environment = {name: text for name, text in os.environ.items() if name != ALLOCATOR} | setting
    command = [sys.executable, str(Path(__file__)), *own, *order]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True)


def add_processes(start: Callable[[int], subprocess.Popen[str]], limit_s: float) -> None:
    """Run process after process until a time is up; the next one loads its libraries meanwhile, and waits."""
    end_s, longest_s, number = time.monotonic() + limit_s, 0.0, 0
    waiting = start(number)
    try:
        while time.monotonic() + longest_s < end_s:
            number, running, begin_s = number + 1, waiting, time.monotonic()
            waiting = start(number)
            running.communicate("begin\n")
            # The first one waits for its libraries, too.
            longest_s = time.monotonic() - begin_s if number < 3 else max(longest_s, time.monotonic() - begin_s)
    finally:
        waiting.kill()
        waiting.wait()


def main() -> int:
    evaluate = "print the states of builds, and what they depend on"
    parser = growing_parser(__doc__, evaluate, qualifies=False)
    own = "only one process, which is this, after a preparation and a line on standard input"
    parser.add_argument("--in-this-process", choices=(*PREPARATIONS, BETWEEN_EVENTS), help=own)
    parser.add_argument("--events", action="store_true", help="run one build again after events, in each process")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the first model, the second, ...")
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report_of(arguments.evaluate))
    elif not arguments.names:
        parser.error("--output: name the models to build")
    elif arguments.in_this_process:
        add_process(arguments.output, arguments.names, arguments.in_this_process, arguments.seed)
    else:
        preparations = (BETWEEN_EVENTS,) if arguments.events else PREPARATIONS
        output, names, seed = arguments.output, arguments.names, arguments.seed
        add_processes(lambda number: started(output, names, number, seed, preparations), arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
