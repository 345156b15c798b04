"""Time calls of transformers in loops of themselves and in chains, where other calls evict their weights -> rows

A Linear is also timed in turn with others of its size, on one input. Attention and reductions have no weights: a loop
finds their inputs in the cache. No model is run, nothing is measured but time.
Example: PYTHONPATH=. python benchmarks/weights_in_caches.py --output FILE
         PYTHONPATH=. python benchmarks/weights_in_caches.py --output FILE --kinds attentions reductions
         PYTHONPATH=. python benchmarks/weights_in_caches.py --evaluate docs/data/weights_in_caches.csv
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch
from tables import markdown
from torch import nn

from opcost.command.options import Parser

CALLS = 24
STREAM_ELEMENTS = 2**26
"""Elements in fp32 that are read before each chain, more than any cache holds."""

LOOP_S = 0.02
REPEATS = 5
LONGEST_CALL_S = 2e-3
"""The time of a loop in s, of which the median of so many counts. Longer calls depend little on caches."""

DTYPES = ("bfloat16", "float32")
WIDTHS = (512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192)
UNEQUAL = ((768, 3072), (3072, 768), (4096, 14336), (14336, 4096), (4096, 1024))
TOKENS = (64, 256, 1024, 2048, 4096, 8192)
"""Sizes of matrices (inputs, outputs), and numbers of tokens."""

NORM_WIDTHS = (384, 768, 1024, 4096)
ADDED_TOKENS = (64, 256, 512, 1024, 2048, 3072, 4096, 6304, 8192, 16384)
ADDED_WIDTH = 1024
DISTANCES = (1, 5)
ADDITIONS = 6
"""An addition's older operand was written so many elementwise calls before."""

Body = Callable[[], object]
Layers = Sequence[Callable[[torch.Tensor], torch.Tensor]]

HEAD_WIDTH, HEADS, LENGTH = 64, 12, 128
"""Attention has so many heads of so many elements, on sequences of so many tokens."""

REDUCED_WIDTHS = (512, 1024, 4096)
REDUCED_TOKENS = (*TOKENS, 16384, 32768)


@dataclass(frozen=True)
class Row:
    """The times of one call in s: in a loop of itself; in a chain less its other calls; in turn with other weights."""

    kind: str
    dtype: str
    tokens: int
    inputs: int
    outputs: int
    alone_s: float
    in_chain_s: float
    in_turn_s: float | None = None


def graph_s(body: Body, loop_s: float = LOOP_S, repeats: int = REPEATS) -> float:
    """Return the median time in s of a CUDA graph of some calls, from loops of some length."""
    with torch.cuda.stream(torch.cuda.Stream()):
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    replays = max(3, round(loop_s / _replayed_s(graph, 3)))
    _replayed_s(graph, replays)
    return sorted(_replayed_s(graph, replays) for _ in range(repeats))[repeats // 2]


def _replayed_s(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e-3 * begin.elapsed_time(end) / replays


def elementwise(tokens: torch.Tensor) -> torch.Tensor:
    """Return changed tokens whose spread is the same."""
    return nn.functional.leaky_relu(tokens, 0.9)


def attention(tokens: torch.Tensor) -> torch.Tensor:
    """Return attention over queries, keys and values that are parts of each token, shape (n, 3 * heads * width)."""
    parts = tokens.view(-1, LENGTH, 3, HEADS, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
    return nn.functional.scaled_dot_product_attention(*parts)


def reduction(tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean of each token."""
    return tokens.mean(dim=-1, keepdim=True)


def alone_s(layer: Callable[[torch.Tensor], torch.Tensor], tokens: torch.Tensor) -> float:
    """Return the time of a call in a loop of itself."""
    return graph_s(lambda: [layer(tokens) for _ in range(10)]) / 10


def in_chain_s(layers: Layers, tokens: torch.Tensor, stream: torch.Tensor) -> float:
    """Return the time of a call in a chain behind a stream. Each call is behind an elementwise one."""

    def run(with_layers: bool) -> None:
        torch.sum(stream)
        values = tokens.clone()
        for layer in layers:
            values = elementwise(values)
            values = layer(values) if with_layers else values

    return (graph_s(lambda: run(True)) - graph_s(lambda: run(False))) / len(layers)


def in_unequal_chain_s(layers: Layers, tokens: torch.Tensor, outputs: torch.Tensor, stream: torch.Tensor) -> float:
    """Return the same for layers whose outputs have another size: each output is read, each input was just written."""

    def run(with_layers: bool) -> None:
        torch.sum(stream)
        values = tokens.clone()
        for layer in layers:
            elementwise(layer(values) if with_layers else outputs)
            values = elementwise(tokens)

    return (graph_s(lambda: run(True)) - graph_s(lambda: run(False))) / len(layers)


def addition_in_chain_s(tokens: torch.Tensor, distance: int, stream: torch.Tensor) -> float:
    """Return the time of an addition to a tensor that was written some calls before."""

    def run(with_additions: bool) -> None:
        torch.sum(stream)
        values = tokens.clone()
        for _ in range(ADDITIONS):
            kept = values
            for _ in range(distance):
                values = elementwise(values)
            values = values + kept if with_additions else values

    return (graph_s(lambda: run(True)) - graph_s(lambda: run(False))) / ADDITIONS


def linears(dtype: torch.dtype, stream: torch.Tensor) -> Iterator[Row]:
    """Yield the times of matrices of each size."""
    for inputs, outputs in (*((width, width) for width in WIDTHS), *UNEQUAL):
        layers = [nn.Linear(inputs, outputs, bias=False, dtype=dtype, device="cuda") for _ in range(CALLS)]
        for number in TOKENS:
            tokens = torch.randn(number, inputs, dtype=dtype, device="cuda")
            alone = alone_s(layers[0], tokens)
            if alone > LONGEST_CALL_S:
                continue
            in_turn = graph_s(lambda layers=layers, tokens=tokens: [layer(tokens) for layer in layers]) / CALLS
            if inputs == outputs:
                in_chain = in_chain_s(layers, tokens, stream)
            else:
                in_chain = in_unequal_chain_s(layers, tokens, torch.empty_like(layers[0](tokens)), stream)
            yield Row("linear", _name(dtype), number, inputs, outputs, alone, in_chain, in_turn)


def layer_norms(dtype: torch.dtype, stream: torch.Tensor) -> Iterator[Row]:
    """Yield the times of norms over a token."""
    for width in NORM_WIDTHS:
        layers = [nn.LayerNorm(width, dtype=dtype, device="cuda") for _ in range(CALLS)]
        for number in TOKENS:
            tokens = torch.randn(number, width, dtype=dtype, device="cuda")
            times = alone_s(layers[0], tokens), in_chain_s(layers, tokens, stream)
            yield Row("layer_norm", _name(dtype), number, width, width, *times)


def additions(dtype: torch.dtype, stream: torch.Tensor) -> Iterator[Row]:
    """Yield the times of additions."""
    for number in ADDED_TOKENS:
        tokens, others = torch.randn(2, number, ADDED_WIDTH, dtype=dtype, device="cuda")
        alone = graph_s(lambda tokens=tokens, others=others: [tokens + others for _ in range(10)]) / 10
        for distance in DISTANCES:
            in_chain = addition_in_chain_s(tokens, distance, stream)
            yield Row(f"addition_{distance}", _name(dtype), number, ADDED_WIDTH, ADDED_WIDTH, alone, in_chain)


def attentions(dtype: torch.dtype, stream: torch.Tensor) -> Iterator[Row]:
    """Yield the times of attention on several numbers of sequences."""
    yield from _without_weights("attention", attention, 3 * HEADS * HEAD_WIDTH, dtype, stream)


def reductions(dtype: torch.dtype, stream: torch.Tensor) -> Iterator[Row]:
    """Yield the times of means over a token."""
    for width in REDUCED_WIDTHS:
        yield from _without_weights("reduction", reduction, width, dtype, stream)


def _without_weights(
    kind: str, call: Callable[[torch.Tensor], torch.Tensor], width: int, dtype: torch.dtype, stream: torch.Tensor
) -> Iterator[Row]:
    for number in REDUCED_TOKENS:
        tokens = torch.randn(max(number, LENGTH), width, dtype=dtype, device="cuda")
        outputs = torch.empty_like(call(tokens))
        times = alone_s(call, tokens), in_unequal_chain_s(CALLS * [call], tokens, outputs, stream)
        yield Row(kind, _name(dtype), len(tokens), width, outputs.numel() // len(tokens), *times)


KINDS = {one.__name__: one for one in (linears, layer_norms, additions, attentions, reductions)}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def measured(kinds: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of some kinds."""
    stream = torch.zeros(STREAM_ELEMENTS, device="cuda")
    with torch.inference_mode():
        for dtype in (getattr(torch, name) for name in DTYPES):
            for kind in kinds:
                yield from KINDS[kind](dtype, stream)


def report(rows: pd.DataFrame) -> str:
    """Return how much longer a call takes in a chain, in turn and alone, in µs, by size and number of tokens."""
    tables = []
    for (kind, dtype), table in rows.groupby(["kind", "dtype"], sort=False):
        tokens = sorted(table["tokens"].unique())
        lines = []
        for (inputs, outputs), sizes in table.groupby(["inputs", "outputs"], sort=False):
            cells = dict(zip(sizes["tokens"], sizes.itertuples(), strict=True))
            lines.append([f"{inputs}→{outputs}", *(_cell(cells.get(number)) for number in tokens)])
        tables.append(markdown((f"{kind}, {dtype}", *map(str, tokens)), lines))
    return "\n\n".join(tables)


def _cell(row: object) -> str:
    if row is None:
        return ""
    chain, turn = (1e6 * (time_s - row.alone_s) for time_s in (row.in_chain_s, row.in_turn_s))  # type: ignore[attr-defined]
    in_turn = "" if pd.isna(turn) else f" ({turn:+.1f})"
    return f"{chain:+.1f}{in_turn} of {1e6 * row.alone_s:.1f}"  # type: ignore[attr-defined]


def main() -> int:
    parser = Parser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--output", type=Path, help="measure; the file of the rows")
    action.add_argument("--evaluate", type=Path, help="print the rows of a file")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only these (default: all)")
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(pd.read_csv(arguments.evaluate)))
        return 0
    rows = []
    for row in measured(arguments.kinds):
        rows.append(asdict(row))
        pd.DataFrame(rows).to_csv(arguments.output, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
