"""What a call takes longer in a chain of others, over alone in a loop, by the size of its tensors -> a CSV file

Each operator of a chain works on the output of the one before, so that it finds its input in the cache as far as it
fits there, and other kernels run in between. Alone it runs on one set of buffers (warm) and in a stack of operators
like itself (chained). Chains run as they are, or behind an addition that fills the cache with other data. Nothing else
may run on the GPU.
Example: PYTHONPATH=. python benchmarks/calls_in_chains.py --output calls_in_chains.csv
         PYTHONPATH=. python benchmarks/calls_in_chains.py --evaluate calls_in_chains.csv
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeAlias

import pandas as pd
import torch
from growing_csv import append, growing_parser, known
from short_kernels import energy_j, looked_at
from tables import markdown
from torch import nn

from opcost.apparatus import Apparatus, open_apparatus
from opcost.cold_calls import STREAM_ELEMENTS
from opcost.conditions import CHAINED, WARM
from opcost.errors import CannotMeasureError
from opcost.stage_qualifying import qualified
from opcost.torch_cache import Layer, device_memory, repeated
from opcost.torch_workload import EagerWorkload, as_graph

DEVICE = "cuda"
BATCH, CHANNELS = 16, 64
SIDES = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 160)
"""Of the images: tensors of 0.26 MB to 105 MB."""

PRODUCT_SIDES = (8, 16, 32, 64, 112)


@dataclass(frozen=True)
class Chain:
    """Modules one after the other, on images of one size."""

    name: str
    modules: Callable[[], list[nn.Module]]
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


CHAINS = (
    Chain("elementwise", elementwise, SIDES),
    Chain("norms", normalised, SIDES),
    Chain("products", products, PRODUCT_SIDES),
)


Costs: TypeAlias = tuple[float, float]
"""Of one call, in s and J."""


def costs(apparatus: Apparatus, function: Callable[..., object], *inputs: torch.Tensor, cache: str = WARM) -> Costs:
    """Return what a call takes in a graph."""
    calls = repeated(Layer(function, inputs, {}), cache, partial(device_memory, DEVICE))
    measured = looked_at(apparatus, as_graph(EagerWorkload(calls, DEVICE)))
    return measured.time_s, energy_j(measured)


class Alone:
    """What modules take alone, each measured once."""

    def __init__(self, apparatus: Apparatus) -> None:
        self._apparatus = apparatus
        self._known: dict[tuple[str, int, str], Costs] = {}

    def sum_of(self, modules: Iterable[nn.Module], values: torch.Tensor, cache: str) -> Costs:
        """Return what these take together on such values."""
        each = []
        for module in modules:
            key = str(module), values.numel(), cache
            if key not in self._known:
                self._known[key] = costs(self._apparatus, module, values, cache=cache)
            each.append(self._known[key])
        return sum(time_s for time_s, _ in each), sum(joules for _, joules in each)


class BehindAStream(nn.Module):
    """A chain, and before it an addition of other data."""

    def __init__(self, chain: nn.Module) -> None:
        super().__init__()
        self.augend, self.addend = stream()
        self.chain = chain

    def forward(self, values: torch.Tensor) -> object:
        """Add, then run the chain."""
        torch.add(self.augend, self.addend)
        return self.chain(values)


def stream() -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is added."""
    return torch.randn(STREAM_ELEMENTS, device=DEVICE), torch.randn(STREAM_ELEMENTS, device=DEVICE)


def rows(apparatus: Apparatus, alone: Alone, chain: Chain, side: int) -> Iterator[dict[str, object]]:
    """Measure a chain on images of one size, with and without the addition before it."""
    modules = nn.Sequential(*chain.modules()).to(DEVICE).eval()
    values = torch.randn(BATCH, CHANNELS, side, side, device=DEVICE)
    warm, chained = (alone.sum_of(modules, values, cache) for cache in (WARM, CHAINED))
    added = costs(apparatus, torch.add, *stream())
    for is_behind in (False, True):
        in_chain_s, in_chain_j = costs(apparatus, BehindAStream(modules) if is_behind else modules, values)
        yield {
            "chain": name_of(chain, side),
            "kind": chain.name,
            "tensor_bytes": values.numel() * values.element_size(),
            "behind_a_stream": is_behind,
            "calls": len(modules),
            "alone_s": warm[0],
            "chained_s": chained[0],
            "in_chain_s": in_chain_s - is_behind * added[0],
            "alone_j": warm[1],
            "chained_j": chained[1],
            "in_chain_j": in_chain_j - is_behind * added[1],
        }


def name_of(chain: Chain, side: int) -> str:
    """Return how the file names a chain on images of one size."""
    return f"{chain.name} {side}"


def add_rows(path: Path, apparatus: Apparatus, limit_s: float) -> None:
    """Measure the chains that a file lacks, until a time is up."""
    begin_s, done = time.monotonic(), known(path, "chain")
    alone = Alone(apparatus)
    wanted = [(chain, side) for chain in CHAINS for side in chain.sides if name_of(chain, side) not in done]
    for chain, side in wanted:
        if time.monotonic() - begin_s > limit_s:
            break
        try:
            with torch.inference_mode():
                for row in list(rows(apparatus, alone, chain, side)):
                    append(path, row)
        except CannotMeasureError as error:
            print(f"left out: {name_of(chain, side)}: {error}", file=sys.stderr)


def report(table: pd.DataFrame) -> str:
    """Return what a call takes longer in a chain than alone and warm, and alone and chained, in Markdown."""
    return "\n\n".join(f"over {alone}\n\n{_excesses(table, alone)}" for alone in ("alone", "chained"))


def _excesses(table: pd.DataFrame, alone: str) -> str:
    """Return what a call takes longer in a chain, by kind and size."""
    table = table.assign(
        excess_us=1e6 * (table["in_chain_s"] - table[f"{alone}_s"]) / table["calls"],
        excess_uj=1e6 * (table["in_chain_j"] - table[f"{alone}_j"]) / table["calls"],
    )
    kinds = sorted(table["kind"].unique())
    header = ["tensor", *(f"{kind}, {where}" for kind, where in product(kinds, ("as it is", "behind a stream")))]
    lines = []
    for size, of_size in table.groupby("tensor_bytes"):
        cells = [f"{size / 1e6:.1f} MB"]
        for kind, is_behind in product(kinds, (False, True)):
            found = of_size[(of_size["kind"] == kind) & (of_size["behind_a_stream"] == is_behind)]
            cells.append("" if found.empty else _cell(found.iloc[-1]))
        lines.append(cells)
    return markdown(header, lines)


def _cell(row: pd.Series) -> str:
    return f"{row['excess_us']:+.2f} us, {row['excess_uj']:+.0f} uJ"


def main() -> int:
    parser = growing_parser(__doc__, "tell what calls take longer")
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(pd.read_csv(arguments.evaluate)))
        return 0
    with qualified(open_apparatus, "cuda", arguments.database, True) as apparatus:
        add_rows(arguments.output, apparatus, arguments.limit_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
