"""The gaps before launches in graphs that fit into the cache, and in those that do not

Example: PYTHONPATH=. python benchmarks/launches.py docs/data/states/second vit_b_16 repghostnet_058

Needs a GPU. Loops of 1 to 64 successive calls of a model, each with tensors of its own. Their time is expected from
their kernels and gaps in a trace and what loops of each call alone take beyond those; also without their own gaps.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from opcost.measuring.workload import Calls
from opcost.operators.tuples import OperatorTuple
from opcost.stages.verify import profiled_model
from opcost.storage.configs import ModelConfig, load_config
from opcost.torch_backend.cuda_graph import capture_again, kernel_spans, time_in_graph_s, untraced_gap
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.probes import profiled
from opcost.torch_backend.repeated_calls import Layer
from opcost.torch_backend.switches import autocast, switched
from opcost.torch_backend.workload import operator_call

DEVICE = "cuda"
LENGTHS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
PLACES = (0.25, 0.5)
"""Where in a model the loops begin."""

CYCLES = 10


def operators_of(config: ModelConfig) -> list[OperatorTuple]:
    """Return the operators of a model's calls that launch kernels, in their order."""
    operators, kernels = profiled_model(config, DEVICE, config.code)
    marks = {kernel.mark for kernel in kernels}
    return [one for number, one in enumerate(operators) if str(number) in marks]


def in_turn(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()


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
                cycle = partial(in_turn, calls[:length])
                gap, time_s = untraced_gap(Calls(cycle), stream), time_in_graph_s(cycle, CYCLES, DEVICE) / CYCLES
                kernels = kernel_spans(capture_again(cycle, 1, stream), 1).shape[1]
                beyond_s, idle_s = (sum(getattr(one, name) for one in gaps[:length]) for name in ("time_s", "idle_s"))
                # With all else as in the trace of the loop.
                errors_s = beyond_s - gap.time_s, beyond_s + idle_s - gap.time_s - gap.idle_s
                errors = [f"{each / time_s:+.2%}" for each in errors_s]
                yield [first, length, kernels, f"{1e6 * time_s:.1f}", f"{1e6 * gap.idle_s / kernels:.2f}", *errors]


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
