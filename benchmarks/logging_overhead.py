"""Overhead of logging: blocks of two seconds with loggers and without, in turn -> a table in Markdown

A small operator runs in a CUDA graph and in a Python loop. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/logging_overhead.py --blocks 12
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from paired_blocks import CPU_TARGET, TIME_TARGET, Block, paired, verdict
from process_times import cpu_s, process_stats
from tables import markdown

from opcost.measuring.ports import Workload
from opcost.meters.nvidia_smi import NvidiaSmiLogger
from opcost.meters.nvml import NvmlGpu
from opcost.meters.nvml_meters import CounterSampler, PowerSampler

SETTLING_S = 0.3
BLOCK_S = 2.0
CHUNK_S = 0.02
SHAPE = (32, 512, 7, 7)


@contextmanager
def loggers(gpu: str, folder: Path) -> Iterator[int | None]:
    """Log as a campaign does; yield nvidia-smi's process id."""
    with ExitStack() as stack:
        logger = stack.enter_context(NvidiaSmiLogger(gpu, folder))
        nvml = NvmlGpu.open(gpu)
        stack.callback(nvml.close)
        stack.enter_context(PowerSampler(nvml))
        stack.enter_context(CounterSampler(nvml))
        yield logger.process_id


def run_for(workload: Workload, rounds: int, seconds: float) -> tuple[float, int]:
    """Run for some seconds in chunks of as many rounds; return how long it took, and how many iterations."""
    workload.finish()
    begin_s, done = time.perf_counter(), 0
    while time.perf_counter() - begin_s < seconds:
        workload.run(rounds)
        done += rounds
    workload.finish()
    return time.perf_counter() - begin_s, done * workload.iterations_per_round


def block(workload: Workload, rounds: int, smi: int | None = None) -> Block:
    """Settle, then time a while of it."""
    run_for(workload, rounds, SETTLING_S)
    smi_s = -cpu_s(smi, process_stats())
    threads_s = time.thread_time() - time.process_time()
    duration_s, iterations = run_for(workload, rounds, BLOCK_S)
    threads_s += time.process_time() - time.thread_time()
    smi_s += cpu_s(smi, process_stats())
    return Block(duration_s / iterations, threads_s / duration_s, smi_s / duration_s)


def compare(workload: Workload, pairs: int, gpu: str, folder: Path) -> tuple[list[Block], list[Block]]:
    """Return blocks with and without the loggers; the order turns round from pair to pair, so that drift cancels."""
    run_for(workload, 10, SETTLING_S)
    duration_s, iterations = run_for(workload, 10, SETTLING_S)
    rounds = max(1, round(CHUNK_S / duration_s * iterations / workload.iterations_per_round))
    on: list[Block] = []
    off: list[Block] = []
    for number in range(2 * pairs):
        with loggers(gpu, folder) as smi:
            if number % 4 in (1, 2):
                on.append(block(workload, rounds, smi))
        # The loggers' start lets the GPU idle before either kind of block.
        if number % 4 in (0, 3):
            off.append(block(workload, rounds))
    return on, off


def cells(name: str, on: list[Block], off: list[Block]) -> list[str]:
    """Return a row of the table."""
    difference = paired(on, off)
    threads = np.mean([one.threads_ratio for one in on]) - np.mean([one.threads_ratio for one in off])
    smi = np.mean([one.smi_ratio for one in on])
    times_us = [1e6 * float(np.mean([one.time_s for one in blocks])) for blocks in (off, on)]
    shown = f"{difference.value:+.3%} ± {difference.standard_error:.3%}"
    return [
        name,
        *(f"{time_us:.4f} us" for time_us in times_us),
        shown,
        f"{threads:.2%}",
        f"{smi:.2%}",
        verdict(difference, threads + smi),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="pairs of blocks, two or more")
    pairs = parser.parse_args().blocks
    if pairs < 2:
        parser.error("--blocks: an interval wants two pairs or more")
    import torch

    from opcost.torch_backend.operators import module_tuple
    from opcost.torch_backend.workload import as_graph, operator_workload

    relu = module_tuple(torch.nn.ReLU().eval(), (torch.empty(SHAPE, device="meta"),), {})
    eager = operator_workload(relu, "cuda:0")
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, workload in {"graph": as_graph(eager), "loop in Python": eager}.items():
            rows.append(cells(name, *compare(workload, pairs, gpu, Path(folder))))
    print(markdown(("execution", "time without", "with", "difference", "threads", "nvidia-smi", "met"), rows))
    print(
        f"\n{pairs} pairs; targets: {TIME_TARGET:.1%} of the time, {CPU_TARGET:.0%} of a core (threads and nvidia-smi)."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
