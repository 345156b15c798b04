"""Kernels of calls in their states beside the same kernels in their model

Example: PYTHONPATH=. python benchmarks/states_by_kernels.py docs/data/states/second mpnetmodel_bf16

Needs a GPU, and models that were counted on it (opcost count, opcost filter). A model's graph runs in a trace. Each of
its kernels belongs to the call that has the kernel of this number in an eager run. A model's line has its time by the
clock, the sum in state of the calls that have a state, the time of all others' kernels in the model, then the time of
kernels and of the gaps before them, both in the model and in states, of a run in us. Lines of operators have those of
one call in the mean.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import GRAPH
from opcost.measuring.setting import Setting
from opcost.operators.counts import CAPTURED, Case, cases_of_count
from opcost.operators.tuples import OperatorTuple
from opcost.running.apparatus import Workloads
from opcost.stages.verify import profiled_model
from opcost.storage.configs import ModelConfig, load_config, model_tuple
from opcost.storage.model_counts import FILTERED_COUNTS
from opcost.summing.in_state import H200, far_launches_ratio
from opcost.torch_backend.cuda_graph import kernel_spans, traced_behind, untraced_gap
from opcost.torch_backend.probes import profiled
from opcost.torch_backend.switches import switched
from opcost.torch_backend.workload import GraphWorkload, TracedWorkload

DEVICE = "cuda"
REPLAYS, ROUNDS = 10, 8
SHOWN = 15


@dataclass(frozen=True)
class Found:
    """The time of a call's kernels, and of the gaps before them, in us."""

    busy_us: float
    gaps_us: float


def in_model(config: ModelConfig, setting: Setting) -> tuple[Mapping[OperatorTuple, list[Found]], float]:
    """Return the calls of each operator in a trace of the model's graph, and the time of the model in s."""
    with Workloads(DEVICE)(Case(model_tuple(config)), setting) as load:
        assert isinstance(load, GraphWorkload), load.notes
        captured = load.single()
        captured.replay(1)
        spans = kernel_spans(captured, REPLAYS)
        whole = traced_behind(spans, 1)
        # The first kernel has none before it.
        gap = untraced_gap(load._eager.calls, captured.stream)
    ends = np.maximum.accumulate(spans[..., 1], axis=1)
    begins = np.maximum(spans[:, 1:, 0], ends[:, :-1])
    busy = np.median(np.maximum(ends[:, 1:] - begins, 0), axis=0)
    gaps = np.median(np.maximum(spans[:, 1:, 0] - ends[:, :-1], 0), axis=0)
    first_s = 1e-9 * float(np.median(spans[:, 0, 1] - spans[:, 0, 0]) + np.median(gaps))
    time_s = float(np.median(whole.time_s)) + first_s + gap.time_s
    with switched(config.precision, config.attention):
        operators, kernels = profiled_model(config, DEVICE, setting.code)
    assert len(kernels) == spans.shape[1], "an eager run has other kernels"
    of_calls: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kernel, one, gap_ns in zip(kernels[1:], busy, gaps, strict=True):
        if kernel.mark is not None:
            of_calls[kernel.mark].append((one, gap_ns))
    found: dict[OperatorTuple, list[Found]] = defaultdict(list)
    for mark, own in of_calls.items():
        found[operators[int(mark)]].append(Found(*(float(sum(each)) * 1e-3 for each in zip(*own, strict=True))))
    return found, time_s


def in_state(case: Case, setting: Setting, far: float) -> tuple[Found, float]:
    """Return the kernels of a case in its state, and its time in s, of launches of which a share is far."""
    with Workloads(DEVICE)(case, setting) as load:
        assert isinstance(load, TracedWorkload)
        load.run(ROUNDS)
        load.finish()
        traced = traced_behind(kernel_spans(load._both, REPLAYS), load._others)
        assert load.ended_s is not None
        time_s = load.ended_s / ROUNDS / load.iterations_per_round - (1 - far) * (load.far_launches_s or 0.0)
    idle_s = float(np.median(traced.idle_s))
    return Found(1e6 * (float(np.median(traced.time_s)) - idle_s), 1e6 * idle_s), time_s


def show(config: ModelConfig, setting: Setting) -> None:
    model, whole_s = in_model(config, setting)
    torch.cuda.empty_cache()
    filtered = FILTERED_COUNTS.read(config)
    far, sum_s, lines = far_launches_ratio(filtered, H200.near), 0.0, list[tuple[float, str]]()
    others_us = sum(call.busy_us for calls in model.values() for call in calls)
    totals = np.zeros(4)
    for count in filtered.counts:
        own = model.get(count.operator, [])
        cases = [one for one in cases_of_count(count, CAPTURED, H200.near) if one[0].state]
        try:
            states = [(number, *in_state(case, setting, far)) for case, number in cases] if own else []
        except CannotMeasureError as error:
            print("", f"{count.operator}: {error}", sep="\t", flush=True)
            continue
        if not states:
            continue
        calls = sum(number for number, *_ in states)
        sum_s += sum(number * time_s for number, _, time_s in states)
        sides = [(1, one) for one in own], [(number, one) for number, one, _ in states]
        means = [sum(number * np.array([one.busy_us, one.gaps_us]) for number, one in side) for side in sides]
        figures = np.stack([means[0] / len(own), means[1] / calls], axis=1).ravel()
        totals += calls * figures
        others_us -= sum(one.busy_us for one in own)
        texts = (f"{one:.2f}" for one in figures)
        places = ", ".join(case.state for case, _ in cases)
        line = "\t".join([str(calls), *texts, places, str(count.operator)])
        lines.append((abs(calls * (figures[1] - figures[0])), line))
    times = whole_s * 1e6, sum_s * 1e6, others_us, *totals
    print(config.name, *(f"{one:.1f}" for one in times), sep="\t")
    for _, line in sorted(lines, reverse=True)[:SHOWN]:
        print("", line, sep="\t", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME", help="folders in it")
    chosen = parser.parse_args()
    kernels = "kernels in the model", "in states", "gaps in the model", "in states"
    print("model", "whole", "sum in state", "other kernels", *kernels, sep="\t")
    print("", "calls", *kernels, "states", "operator", sep="\t")
    # The first profile of a process has kernels under other marks.
    profiled(lambda mark: None)
    for name in chosen.names:
        folder = chosen.measurements / name
        for config in load_config(folder / "summary.yml", folder):
            setting = Setting(config.precision, GRAPH, code=config.code, attention=config.attention)
            show(config, setting)


main()
