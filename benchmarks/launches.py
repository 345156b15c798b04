"""The gaps before launches in graphs that fit into the cache, and in those that do not

Example: PYTHONPATH=. python benchmarks/launches.py docs/data/states/second vit_b_16 repghostnet_058

Needs a GPU. Loops of 1 to 64 successive calls of a model, each with tensors of its own. Their time is expected from
their kernels and gaps in a trace and what loops of each call alone take beyond those; also without their own gaps.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from opcost.measuring.workload import Calls
from opcost.operators.tuples import OperatorTuple
from opcost.sources.models import resolve
from opcost.stages.verify import profiled_calls
from opcost.storage.configs import ModelConfig, load_config, model_tuple
from opcost.torch_backend.cuda_graph import (
    CapturedCalls,
    capture_again,
    device_time_s,
    kernel_spans,
    time_in_graph_s,
    traced_behind,
    untraced_gap,
)
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.probes import profiled
from opcost.torch_backend.repeated_calls import Layer
from opcost.torch_backend.switches import autocast, switched
from opcost.torch_backend.workload import operator_call

DEVICE = "cuda"
LENGTHS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
PLACES = (0.25, 0.5)
"""Where in a model the loops begin."""

LOOP_S, REPLAYS, REPETITIONS = 1.5e-3, 10, 9


def operators_of(config: ModelConfig) -> list[OperatorTuple]:
    """Return the operators of a model's calls that launch kernels, in their order."""
    context = partial(autocast, config.precision, DEVICE)
    ready = resolve(model_tuple(config), config.code).with_inputs(DEVICE, context)
    with context(), running_calls():
        ready.run()
    with context():
        operators, kernels = profiled_calls(ready, config.composites)
    marks = {kernel.mark for kernel in kernels}
    return [one for number, one in enumerate(operators) if str(number) in marks]


def in_turn(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()


def loop_of(cycle: Callable[[], object], stream: torch.cuda.Stream) -> tuple[float, float, float, int]:
    """Return the time of a cycle in s, that and its idle part in a trace, and its number of kernels."""
    cycle()
    number = min(max(round(LOOP_S / time_in_graph_s(cycle, 1, DEVICE)), 1), 200)
    one, two = (capture_again(cycle, calls, stream) for calls in (number, 2 * number))

    def replays_s(captured: CapturedCalls) -> float:
        captured.replay(1)
        more, single = (device_time_s(partial(captured.replay, times), stream) for times in (1 + REPLAYS, 1))
        return (more - single) / REPLAYS

    time_s = statistics.median(replays_s(two) - replays_s(one) for _ in range(REPETITIONS)) / number
    spans = kernel_spans(two, REPLAYS)
    traced = traced_behind(spans.reshape(REPLAYS, -1, 2), spans.shape[1])
    traced_s, idle_s = (float(np.median(each)) / (2 * number - 1) for each in (traced.time_s, traced.idle_s))
    return time_s, traced_s, idle_s, spans.shape[1]


def rows(config: ModelConfig) -> Iterator[list[object]]:
    operators = operators_of(config)
    stream = torch.cuda.Stream(DEVICE)
    stream.wait_stream(torch.cuda.current_stream(DEVICE))
    for place in PLACES:
        first = int(place * len(operators))
        own = operators[first : first + LENGTHS[-1]]
        with torch.cuda.stream(stream), running_calls(), autocast(config.precision, DEVICE, keeps_casts=False):
            calls = [Layer(*operator_call(operator, DEVICE)).call for operator in own]
            in_turn(calls)
            gaps = [untraced_gap(Calls(call), stream) for call in calls]
            for length in LENGTHS:
                if length > len(calls):
                    break
                time_s, traced_s, idle_s, kernels = loop_of(partial(in_turn, calls[:length]), stream)
                beyond_s, alone_s = (sum(getattr(gap, name) for gap in gaps[:length]) for name in ("time_s", "idle_s"))
                expected_s = traced_s + beyond_s, traced_s - idle_s + alone_s + beyond_s
                errors = [f"{each / time_s - 1:+.2%}" for each in expected_s]
                yield [first, length, kernels, f"{1e6 * time_s:.1f}", f"{1e6 * idle_s / kernels:.2f}", *errors]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME", help="folders in it")
    chosen = parser.parse_args()
    heads = "first call", "calls", "kernels", "us", "us idle a kernel", "expected", "with gaps of loops"
    print("model", *heads, sep="\t")
    # The first profile of a process has kernels under other marks.
    profiled(lambda mark: None)
    for name in chosen.names:
        folder = chosen.measurements / name
        for config in load_config(folder / "summary.yml", folder):
            with switched(config.precision, config.attention):
                for row in rows(config):
                    print(config.name, *row, sep="\t", flush=True)


main()
