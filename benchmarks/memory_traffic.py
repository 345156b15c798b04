"""The bytes that models move from and to memory by the states of their calls, beside those that hardware counts

Example: PYTHONPATH=. ncu --clock-control none --cache-control none --replay-mode app-range --csv --page raw \
    --metrics dram__bytes_read.sum,dram__bytes_write.sum python benchmarks/memory_traffic.py resnet50_32x3x224x224

Needs a GPU and ncu, whose table has a row for each model, in this order. Models need counts in the database.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch

from opcost.measuring.conditions import STATE
from opcost.measuring.setting import Setting
from opcost.operators.counts import CAPTURED, Case, OperatorCount, cases_of_count
from opcost.running.apparatus import Workloads
from opcost.running.shipped_counts import shipped_counts
from opcost.storage.configs import load_config, model_tuple
from opcost.storage.database import Database
from opcost.summing.in_state import H200

DEVICE = "cuda"
PASSES = 10


def bytes_by_states(counts: Iterable[OperatorCount]) -> tuple[float, float]:
    """Return the bytes that a run's calls read from memory and write to it, without those for themselves."""
    read = written = 0.0
    for count in counts:
        looped = H200.near.missed_ratio(count.touched_bytes)
        for case, calls in cases_of_count(count, CAPTURED, H200.near):
            is_known = case.read_bytes is not None
            read += calls * (case.read_bytes if is_known else looped * count.input_bytes)
            written += calls * count.written_bytes * (case.written_ratio if is_known else looped)
    return read, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME", help="folders in measurements")
    parser.add_argument("--database", type=Path, default=Path("database"))
    chosen = parser.parse_args()
    folders = [Path("measurements") / name for name in chosen.names]
    configs = [config for folder in folders for config in load_config(folder / "summary.yml", folder)]
    counts = shipped_counts(Database(chosen.database), configs)
    print("model", "passes", "MB read", "MB written", "MB in all", sep="\t")
    for config in configs:
        computing = [count for count in counts[config.name].counts if count.computes]
        read, written = bytes_by_states(computing)
        in_all = sum(count.memory_bytes * count.occurrences for count in computing)
        setting = Setting(precision=config.precision, cache=STATE)
        with Workloads(DEVICE)(Case(model_tuple(config)), setting) as load:
            rounds = max(PASSES // load.iterations_per_round, 1)
            load.run(rounds)
            load.finish()
            torch.cuda.profiler.start()
            load.run(rounds)
            load.finish()
            torch.cuda.profiler.stop()
        megabytes = (f"{number / 1e6:.1f}" for number in (read, written, in_all))
        print(config.name, rounds * load.iterations_per_round, *megabytes, sep="\t", flush=True)


main()
