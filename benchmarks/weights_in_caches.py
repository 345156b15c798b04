"""How much longer a matrix product takes whose weights other calls have evicted -> rows; print them by size

Each Linear is timed in a loop of itself, where a part of its weights stays in the cache, and in a chain of Linears with
weights of their own, each behind an elementwise operator, as in a model. No model is run. Two more kinds of calls of
transformers are timed in chains: LayerNorm, and additions of a tensor that was written several calls before.
Example: PYTHONPATH=. python benchmarks/weights_in_caches.py --output FILE
         PYTHONPATH=. python benchmarks/weights_in_caches.py --evaluate FILE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import nn

CALLS = 24
STREAM_ELEMENTS = 2**26
LOOP_S = 0.02
REPEATS = 5
LONGEST_CALL_S = 2e-3
"""Longer calls depend little on caches."""

DTYPES = ("bfloat16", "float32")
WIDTHS = (512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192)
ROWS = (64, 256, 1024, 2048, 4096, 8192)
UNEQUAL = ((768, 3072), (3072, 768), (4096, 14336), (14336, 4096), (4096, 1024))
OLDER = 5
"""The older operand of an addition was written this many calls before."""


@dataclass(frozen=True)
class Row:
    """Times of one call in s: in a loop of itself, and in a chain behind a stream less all other calls."""

    kind: str
    dtype: str
    rows: int
    inputs: int
    outputs: int
    alone_s: float
    in_chain_s: float
    with_other_weights_s: float | None


def time_of(body: Callable[[], object]) -> float:
    """Return the median time in s of one run of a function in a CUDA graph that is replayed."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    one_s = _timed(graph, 3)
    replays = max(3, round(LOOP_S / one_s))
    _timed(graph, replays)
    times = sorted(_timed(graph, replays) for _ in range(REPEATS))
    return times[REPEATS // 2]


def _timed(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e-3 * start.elapsed_time(end) / replays


def elementwise(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.leaky_relu(x, 0.9)


def linear(rows: int, inputs: int, outputs: int, dtype: torch.dtype, stream: torch.Tensor) -> tuple[float, float, float] | None:
    """Return the times of a Linear. A chain of unequal ones has their transposed between, timed with them."""
    with torch.device("cuda"):
        layers = [nn.Linear(inputs, outputs, bias=False, dtype=dtype) for _ in range(CALLS)]
        x = torch.randn(rows, inputs, dtype=dtype)
    alone_s = time_of(lambda: layers[0](x)) if False else time_of(lambda: [layers[0](x) for _ in range(10)]) / 10
    if alone_s > LONGEST_CALL_S:
        return None
    rotated_s = time_of(lambda: [layer(x) for layer in layers]) / CALLS
    held = torch.empty(rows, outputs, dtype=dtype, device="cuda")

    def before() -> torch.Tensor:
        torch.sum(stream)
        return x.clone()

    if inputs == outputs:

        def chain() -> None:
            y = before()
            for layer in layers:
                y = layer(elementwise(y))

        def base() -> None:
            y = before()
            for _ in layers:
                y = elementwise(y)
    else:
        # Elementwise calls on the outputs, then on the inputs: each product's input was just written, its output is read.
        def chain() -> None:
            y = before()
            for layer in layers:
                elementwise(layer(y))
                y = elementwise(x)

        def base() -> None:
            before()
            for _ in layers:
                elementwise(held)
                elementwise(x)

    in_chain_s = (time_of(chain) - time_of(base)) / CALLS
    return alone_s, in_chain_s, rotated_s


def layer_norm(rows: int, width: int, dtype: torch.dtype, stream: torch.Tensor) -> tuple[float, float]:
    with torch.device("cuda"):
        layers = [nn.LayerNorm(width, dtype=dtype) for _ in range(CALLS)]
        x = torch.randn(rows, width, dtype=dtype)
    alone_s = time_of(lambda: [layers[0](x) for _ in range(10)]) / 10

    def chain() -> None:
        torch.sum(stream)
        y = x.clone()
        for layer in layers:
            y = layer(elementwise(y))

    def base() -> None:
        torch.sum(stream)
        y = x.clone()
        for _ in layers:
            y = elementwise(y)

    return alone_s, (time_of(chain) - time_of(base)) / CALLS


def addition(rows: int, width: int, dtype: torch.dtype, stream: torch.Tensor, older: int) -> tuple[float, float]:
    with torch.device("cuda"):
        x, z = torch.randn(2, rows, width, dtype=dtype)
    alone_s = time_of(lambda: [x + z for _ in range(10)]) / 10

    def chain() -> None:
        torch.sum(stream)
        y = x.clone()
        for _ in range(6):
            kept = y
            for _ in range(older):
                y = elementwise(y)
            y = y + kept

    def base() -> None:
        torch.sum(stream)
        y = x.clone()
        for _ in range(6):
            for _ in range(older):
                y = elementwise(y)

    return alone_s, (time_of(chain) - time_of(base)) / 6


def measured() -> Iterator[Row]:
    stream = torch.zeros(STREAM_ELEMENTS, device="cuda")
    for name in DTYPES:
        dtype = getattr(torch, name)
        for inputs, outputs in (*((width, width) for width in WIDTHS), *UNEQUAL):
            for rows in ROWS:
                times = linear(rows, inputs, outputs, dtype, stream)
                if times is not None:
                    yield Row("linear", name, rows, inputs, outputs, *times)
        for width in (384, 768, 1024, 4096):
            for rows in ROWS:
                yield Row("layer_norm", name, rows, width, width, *layer_norm(rows, width, dtype, stream), None)
        for rows in (64, 256, 512, 1024, 2048, 3072, 4096, 6304, 8192, 16384):
            for older in (1, OLDER):
                times = addition(rows, 1024, dtype, stream, older)
                yield Row(f"addition_{older}", name, rows, 1024, 1024, *times, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--evaluate", type=Path)
    arguments = parser.parse_args()
    if arguments.output:
        torch.backends.cuda.matmul.allow_tf32 = False
        rows = []
        with torch.inference_mode():
            for row in measured():
                rows.append(asdict(row))
                print(row, flush=True)
                pd.DataFrame(rows).to_csv(arguments.output, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
