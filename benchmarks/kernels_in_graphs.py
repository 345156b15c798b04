"""Each kernel of a model in one CUDA graph, and the same operator's alone in a graph of its own -> a CSV file

The profiler tells how long kernels run, and how long the GPU waits between them. What a sum lacks is then found in the
kernels or in the gaps, call by call. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/kernels_in_graphs.py --output kernels_in_graphs.csv resnet50_32x3x224x224
         PYTHONPATH=. python benchmarks/kernels_in_graphs.py --evaluate kernels_in_graphs.csv
"""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
import torch
from growing_csv import append, growing_parser, known, parsed
from tables import markdown
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from opcost.errors import CannotMeasureError
from opcost.operators.cases import CAPTURED, Case, cases_of
from opcost.operators.tuples import OperatorTuple
from opcost.running.request import COUNTS, model_tuple
from opcost.sources.models import resolve
from opcost.stages.kernels import profiled_calls
from opcost.storage.configs import ModelConfig, load_configs
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.workload import operator_workload

DEVICE = "cuda"
WARM_UP_S = 0.05
REPLAYS = 7
GRAPH_CALLS = 40
"""Of an operator alone; of those the first and last quarter are left out."""

SMALL_S = 30e-6


@dataclass(frozen=True)
class Launch:
    """One kernel in a replay of a graph: how long it ran, and how long after the end of the one before it began."""

    name: str
    time_s: float
    gap_s: float


def replayed(run: Callable[[], object]) -> list[Launch]:
    """Return the kernels of a graph of some calls: of each the median over some replays."""
    graph = captured(run)
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < WARM_UP_S:
        graph.replay()
        torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(REPLAYS):
            graph.replay()
        torch.cuda.synchronize()
    events = sorted(
        (event.start_ns(), event.duration_ns(), event.name())
        for event in profiler.profiler.kineto_results.events()
        if event.device_type() == DeviceType.CUDA and not event.name().startswith("Memset (Unknown)")
    )
    if not events or len(events) % REPLAYS:
        raise CannotMeasureError(f"{len(events)} kernels in {REPLAYS} replays")
    number = len(events) // REPLAYS
    launches = []
    for position in range(number):
        own = range(position, len(events), number)
        gaps = [events[at][0] - events[at - 1][0] - events[at - 1][1] for at in own if at]
        names = {events[at][2] for at in own}
        if len(names) > 1:
            raise CannotMeasureError(f"kernels change from replay to replay: {sorted(names)}")
        launches.append(Launch(names.pop(), 1e-9 * median(events[at][1] for at in own), 1e-9 * median(gaps)))
    return launches


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Return some calls in a graph."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with INFERENCE.context(), torch.cuda.stream(stream):
        run()
        with torch.cuda.graph(graph, stream=stream):
            run()
    return graph


def calls_in_order(config: ModelConfig) -> list[tuple[OperatorTuple | None, int, str]]:
    """Return the kernels of one run of a model in order: the operator of each, the number of its call, the name."""
    model, inputs = resolve(model_tuple(config)).with_inputs(DEVICE)
    INFERENCE.run_once(model, inputs)
    operators, kernels = profiled_calls(model, inputs, config.composites)
    calls = [-1 if kernel.mark is None else int(kernel.mark) for kernel in kernels]
    return [
        (None if call < 0 else operators[call], call, kernel.name) for call, kernel in zip(calls, kernels, strict=True)
    ]


def in_model(config: ModelConfig) -> list[tuple[OperatorTuple, int, list[Launch]]]:
    """Return what each call of a model launches in a graph of the whole; kernels of no call are left out."""
    ordered = calls_in_order(config)
    model, inputs = resolve(model_tuple(config)).with_inputs(DEVICE)
    launches = replayed(lambda: model(*inputs))
    matcher = difflib.SequenceMatcher(None, [name for _, _, name in ordered], [one.name for one in launches], False)
    found: dict[int, tuple[OperatorTuple, list[Launch]]] = {}
    pairs = [
        (ordered[first + offset], launches[second + offset])
        for first, second, size in matcher.get_matching_blocks()
        for offset in range(size)
    ]
    for (operator, call, _), launch in pairs:
        if operator is not None:
            found.setdefault(call, (operator, []))[1].append(launch)
    print(f"{config.name}: {len(pairs)} of {len(launches)} kernels in calls", file=sys.stderr)
    return [(operator, call, own) for call, (operator, own) in sorted(found.items())]


def alone(case: Case) -> tuple[float, float, float]:
    """Return kernel time, gaps and kernels of one call in a graph of calls of this operator alone."""
    calls = operator_workload(case.operator, DEVICE, case.input_data).calls

    def run() -> None:
        for _ in range(-(-GRAPH_CALLS // calls.period)):
            calls.cycle()

    launches = replayed(run)
    number = -(-GRAPH_CALLS // calls.period) * calls.period
    inner = launches[len(launches) // 4 : -(len(launches) // 4)]
    scale = len(launches) / number / len(inner)
    return scale * sum(one.time_s for one in inner), scale * sum(one.gap_s for one in inner), len(launches) / number


def add_rows(path: Path, config: ModelConfig) -> None:
    """Profile a model and its operators, and add a row for each call."""
    counts = {count.operator: count for count in COUNTS.read(config).counts}
    known_alone: dict[OperatorTuple, tuple[float | None, float | None, float | None]] = {}
    for operator, call, launches in in_model(config):
        count = counts.get(operator)
        if count is None:
            continue
        if operator not in known_alone:
            case = max(cases_of([count], CAPTURED).items(), key=lambda item: item[1])[0]
            try:
                known_alone[operator] = alone(case)
            except (CannotMeasureError, RuntimeError) as error:
                print(f"left out: {operator}: {str(error).splitlines()[0]}", file=sys.stderr)
                known_alone[operator] = None, None, None
        alone_s, alone_gap_s, alone_kernels = known_alone[operator]
        append(
            path,
            {
                "config": config.name,
                "call": call,
                "operator": str(operator),
                "short_name": operator.short_name,
                "kernels": len(launches),
                "in_model_time_s": sum(one.time_s for one in launches),
                "in_model_gap_s": sum(one.gap_s for one in launches),
                "alone_kernels": alone_kernels,
                "alone_time_s": alone_s,
                "alone_gap_s": alone_gap_s,
                "flop": count.flop,
                "memory_bytes": count.memory_bytes,
                "kernel": launches[-1].name,
            },
        )


def report(table: pd.DataFrame) -> str:
    """Return where what a sum lacks is, model by model and kind by kind, in Markdown."""
    table = table[(table["kernels"] == table["alone_kernels"]) & table["alone_time_s"].notna()]
    table = table.assign(
        kernel_excess_s=table["in_model_time_s"] - table["alone_time_s"],
        gap_excess_s=table["in_model_gap_s"] - table["alone_gap_s"],
        is_small=table["alone_time_s"] < SMALL_S * table["kernels"],
    )
    lines = []
    for config, rows in table.groupby("config"):
        whole_s = (rows["in_model_time_s"] + rows["in_model_gap_s"]).sum()
        for is_small, own in rows.groupby("is_small"):
            lines.append(
                [
                    f"{config}, {'up to' if is_small else 'beyond'} {1e6 * SMALL_S:.0f} us",
                    str(len(own)),
                    *_cells(own, whole_s),
                ]
            )
    kinds = [
        [str(kind), str(len(rows)), *_cells(rows, (rows["in_model_time_s"] + rows["in_model_gap_s"]).sum())]
        for kind, rows in table[table["is_small"]].groupby("short_name")
    ]
    header = ("calls", "kernels take longer in the model", "gaps", "kernels, share", "gaps, share")
    return "\n\n".join((markdown(("model", *header), lines), markdown(("kind, short ones", *header), kinds)))


def _cells(rows: pd.DataFrame, whole_s: float) -> list[str]:
    excesses = [rows["kernel_excess_s"], rows["gap_excess_s"]]
    return [
        *(f"{1e6 * excess.mean():+.2f} us" for excess in excesses),
        *(f"{excess.sum() / whole_s:+.1%}" for excess in excesses),
    ]


def main() -> int:
    parser = growing_parser(__doc__, "tell where the time is")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    begin_s, done = time.monotonic(), known(arguments.output, "config")
    for config in load_configs(Path("measurements"), arguments.names):
        if config.name not in done and time.monotonic() - begin_s < arguments.limit_seconds:
            add_rows(arguments.output, config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
