"""What a call takes longer in a chain of others, over alone in a loop, by the size of its tensors -> a CSV file

Each operator of a chain works on the output of the one before, so that it finds its input in the cache as far as it
fits there, and other kernels run in between. A chain runs as it is, or behind a sum of other data that leaves neither
its weights nor its code in the caches; then also several times in a row, with other weights each time, as models repeat
few kinds of layers. Alone each runs in a loop on the values that it has in the chain. Nothing else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/calls_in_chains.py --output calls_in_chains.csv
         PYTHONPATH=. python benchmarks/calls_in_chains.py --evaluate calls_in_chains.csv
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pandas as pd
import torch
from growing_csv import append, growing_parser, known, parsed
from short_kernels import energy_j, in_graphs, looked_at
from tables import markdown
from torch import nn

from opcost.apparatus import Apparatus, open_apparatus
from opcost.conditions import WARM
from opcost.errors import CannotMeasureError
from opcost.stage_qualifying import qualified
from opcost.torch_cache import Layer, device_memory, repeated
from opcost.torch_workload import EagerWorkload

DEVICE = "cuda"
BATCH, CHANNELS, MANY_CHANNELS = 16, 64, 512
SIDES = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 160)
"""Of the images: tensors of 0.26 MB to 105 MB."""

PRODUCT_SIDES = (8, 16, 32, 64, 112)
LARGE_PRODUCT_SIDES = (7, 14)

REPEATS = 6
"""Models of torchvision call a kernel of one kind some six to ten times."""

VARIANTS = ((False, 1), (True, 1), (True, REPEATS))
"""Behind a stream or not, and how often in a row."""

STREAM_ELEMENTS = 2**26
"""Of fp32 values that are read before a chain: 268 MB, beyond any GPU's cache."""


@dataclass(frozen=True)
class Chain:
    """Modules one after the other, on images of one size."""

    name: str
    modules: Callable[[], list[nn.Module]]
    channels: int
    sides: Sequence[int]


def elementwise() -> list[nn.Module]:
    """Return modules without weights."""
    kinds = (nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU, nn.Sigmoid, nn.Tanh, nn.ELU, nn.Softplus)
    return [kind() for kind in kinds]


def normalised() -> list[nn.Module]:
    """Return batch norms, each behind something without weights."""
    pairs = ((kind(), nn.BatchNorm2d(CHANNELS)) for kind in (nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU))
    return [module for pair in pairs for module in pair]


def products() -> list[nn.Module]:
    """Return convolutions of several kinds, each behind something without weights."""
    convolutions = (
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
        nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False),
        nn.Conv2d(CHANNELS, CHANNELS, 5, padding=2),
    )
    others = (nn.ReLU(), nn.SiLU(), nn.Hardswish(), nn.GELU())
    return [module for pair in zip(others, convolutions, strict=True) for module in pair]


def large_products() -> list[nn.Module]:
    """Return convolutions with weights of 1 MB to 9.4 MB, each behind something without weights."""
    convolutions = (
        nn.Conv2d(MANY_CHANNELS, MANY_CHANNELS, 3, padding=1, bias=False),
        nn.Conv2d(MANY_CHANNELS, MANY_CHANNELS, 1, bias=False),
    )
    return [module for pair in zip((nn.ReLU(), nn.SiLU()), convolutions, strict=True) for module in pair]


CHAINS = (
    Chain("elementwise", elementwise, CHANNELS, SIDES),
    Chain("norms", normalised, CHANNELS, SIDES),
    Chain("products", products, CHANNELS, PRODUCT_SIDES),
    Chain("large products", large_products, MANY_CHANNELS, LARGE_PRODUCT_SIDES),
)


Costs: TypeAlias = tuple[float, float]
"""In s and J."""


def costs(apparatus: Apparatus, function: Callable[..., object], *inputs: torch.Tensor) -> Costs:
    """Return what a call takes in a graph."""
    calls = repeated(Layer(function, inputs, {}), WARM, partial(device_memory, DEVICE))
    measured = looked_at(apparatus, in_graphs(apparatus, EagerWorkload(calls, DEVICE)))
    return measured.time_s, energy_j(measured)


def alone(apparatus: Apparatus, modules: Iterable[nn.Module], values: torch.Tensor) -> Costs:
    """Return what modules take together, each in a loop of its own on the output of the one before."""
    each = []
    for module in modules:
        each.append(costs(apparatus, module, values))
        values = module(values)
    return sum(time_s for time_s, _ in each), sum(joules for _, joules in each)


def stream_then_copy(stream: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Read a stream, and return a copy of values, just written as by an operator before."""
    torch.sum(stream)
    return values.clone()


class BehindAStream(nn.Module):
    """A chain on a copy of its values, made behind a stream."""

    def __init__(self, chain: nn.Module) -> None:
        super().__init__()
        self.chain = chain

    def forward(self, stream: torch.Tensor, values: torch.Tensor) -> object:
        """Read, copy, then run the chain."""
        return self.chain(stream_then_copy(stream, values))


def rows(apparatus: Apparatus, chain: Chain, side: int) -> Iterator[dict[str, object]]:
    """Measure a chain on images of one size."""
    blocks = [nn.Sequential(*chain.modules()).to(DEVICE).eval() for _ in range(REPEATS)]
    values = torch.randn(BATCH, chain.channels, side, side, device=DEVICE)
    stream = torch.randn(STREAM_ELEMENTS, device=DEVICE)
    alone_s, alone_j = alone(apparatus, blocks[0], values)
    before_s, before_j = costs(apparatus, stream_then_copy, stream, values)
    for is_behind, repeats in VARIANTS:
        several = nn.Sequential(*blocks[:repeats])
        inputs = (stream, values) if is_behind else (values,)
        time_s, joules = costs(apparatus, BehindAStream(several) if is_behind else several, *inputs)
        yield {
            "chain": name_of(chain, side),
            "kind": chain.name,
            "tensor_bytes": values.numel() * values.element_size(),
            "behind_a_stream": is_behind,
            "repeats": repeats,
            "calls": len(blocks[0]) * repeats,
            "alone_s": alone_s * repeats,
            "in_chain_s": time_s - is_behind * before_s,
            "alone_j": alone_j * repeats,
            "in_chain_j": joules - is_behind * before_j,
        }


def name_of(chain: Chain, side: int) -> str:
    """Return how the file names a chain on images of one size."""
    return f"{chain.name} {side}"


def add_rows(path: Path, apparatus: Apparatus, limit_s: float) -> None:
    """Measure the chains that a file lacks, until a time is up."""
    begin_s, done = time.monotonic(), known(path, "chain")
    wanted = [(chain, side) for chain in CHAINS for side in chain.sides if name_of(chain, side) not in done]
    for chain, side in wanted:
        if time.monotonic() - begin_s > limit_s:
            break
        try:
            with torch.inference_mode():
                for row in list(rows(apparatus, chain, side)):
                    append(path, row)
        except CannotMeasureError as error:
            print(f"left out: {name_of(chain, side)}: {error}", file=sys.stderr)


def report(table: pd.DataFrame) -> str:
    """Return what a call takes longer in a chain than alone, by kind and size, in Markdown."""
    table = table.assign(
        excess_us=1e6 * (table["in_chain_s"] - table["alone_s"]) / table["calls"],
        excess_uj=1e6 * (table["in_chain_j"] - table["alone_j"]) / table["calls"],
    )
    header = ("kind", "tensor", "as it is", *(f"behind a stream, {repeats} in a row" for _, repeats in VARIANTS[1:]))
    lines = []
    for (kind, size), own in table.groupby(["kind", "tensor_bytes"]):
        cells = [str(kind), f"{float(str(size)) / 1e6:.1f} MB"]
        for is_behind, repeats in VARIANTS:
            found = own[(own["behind_a_stream"] == is_behind) & (own["repeats"] == repeats)]
            cells.append("" if found.empty else _cell(found.iloc[-1]))
        lines.append(cells)
    return markdown(header, lines)


def _cell(row: pd.Series) -> str:
    return f"{row['excess_us']:+.2f} us, {row['excess_uj']:+.0f} uJ"


def main() -> int:
    parser = growing_parser(__doc__, "tell what calls take longer")
    arguments = parsed(parser, report)
    if arguments is None:
        return 0
    with qualified(open_apparatus, "cuda", arguments.database, True) as apparatus:
        add_rows(arguments.output, apparatus, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
