"""Measure how time and energy depend on indices, masks, loads of experts and zeros in weights -> a CSV file

Each operator runs alone on several kinds of values. The first kind is the base, to which the others are compared; a
kind whose name ends with "again" is a second draw of the one before, and shows how well measurements repeat.
Example: PYTHONPATH=. python benchmarks/indices_masks_weights.py --output FILE
         PYTHONPATH=. python benchmarks/indices_masks_weights.py --output FILE --device cpu --smoke
         PYTHONPATH=. python benchmarks/indices_masks_weights.py --evaluate FILE --figure out.svg
"""

from __future__ import annotations

import csv
import math
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import torch
from tables import markdown
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from opcost.command.options import Parser
from opcost.errors import CannotMeasureError
from opcost.measuring.calls import Calls
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import leaves_clocks_low
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import NORMAL, InputData
from opcost.running.apparatus import Apparatus, open_apparatus
from opcost.running.devices import facts_of
from opcost.storage.database import Database
from opcost.torch_backend.operators import module_tuple
from opcost.torch_backend.workload import REFUSALS, EagerWorkload, operator_workload
from opcost.units import milli

PROTOCOL = MeasurementProtocol(warm_up_s=0.3, loop_s=0.8)
SMOKE_PROTOCOL = MeasurementProtocol(warm_up_s=0.01, loop_s=0.05)
SMOKE_DIVISOR = 32
"""Numbers of rows, tokens and images are divided by this for a trial."""

SEED, OTHER_SEED = 1, 2
WIDTH = 128
"""Columns of tables that are indexed by other functions than ``embedding``."""

BATCH, HEADS, LENGTH, HEAD_WIDTH = 8, 12, 1024, 64
"""Sizes of attention."""

EXPERTS, TOKENS, EXPERT_INPUTS, EXPERT_OUTPUTS = 8, 8192, 2048, 4096
"""Sizes of the product in groups."""

ZEROS_RATIOS = {"0": 0.0, "0 again": 0.0, "0.25": 0.25, "0.5": 0.5, "0.9": 0.9, "1.0": 1.0}
SHORT_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}

Variants: TypeAlias = Iterator[tuple[str, EagerWorkload]]
"""An operator on each kind of values, by the kind's name. Each is built when it is asked for."""

Operators: TypeAlias = Iterator[tuple[str, Variants]]


@dataclass(frozen=True)
class Row:
    """An operator on one kind of values: time and energy of a call, mean clock, and flags of the measurement."""

    role: str
    operator: str
    values: str
    gpu: str
    time_s: float
    energy_j: float | None
    energy_standard_error_j: float | None
    sm_clock_hz: float | None
    flags: str


@dataclass(frozen=True)
class Bench:
    """A device, and the number by which sizes are divided."""

    device: str
    divisor: int = 1

    def size(self, full: int) -> int:
        return max(1, full // self.divisor)

    def generator(self, seed: int = SEED) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor of normal values."""
        return torch.randn(shape, dtype=dtype, device=self.device, generator=self.generator())

    def workload(self, call: Callable[..., object], *args: object, **kwargs: object) -> EagerWorkload:
        """Return a call with these arguments as a workload."""
        return EagerWorkload(Calls(partial(call, *args, **kwargs)), self.device)


# Indices


@dataclass(frozen=True)
class Indexing:
    """A call with a number of indices, each below a number of rows."""

    rows: int
    number: int
    call: Callable[[Tensor], object]


def uniform(indexing: Indexing, generator: torch.Generator) -> Tensor:
    """Return indices as opcost draws them."""
    return torch.randint(indexing.rows, (indexing.number,), device=generator.device, generator=generator)


def in_order(indexing: Indexing, generator: torch.Generator) -> Tensor:
    """Return the same indices in ascending order."""
    return uniform(indexing, generator).sort().values


def sequence(indexing: Indexing, generator: torch.Generator) -> Tensor:
    """Return 0, 1, 2, and so on, from 0 again after the last row."""
    return torch.arange(indexing.number, device=generator.device) % indexing.rows


def zipf(indexing: Indexing, generator: torch.Generator) -> Tensor:
    """Return indices that are as frequent as words of texts: one over the rank, ranks being anywhere in the table."""
    weights = 1.0 / torch.arange(1, indexing.rows + 1, device=generator.device)
    ranks = torch.multinomial(weights, indexing.number, replacement=True, generator=generator)
    return torch.randperm(indexing.rows, device=generator.device, generator=generator)[ranks]


def first_rows(rows: int, indexing: Indexing, generator: torch.Generator) -> Tensor:
    """Return indices of the first rows only."""
    return torch.randint(rows, (indexing.number,), device=generator.device, generator=generator)


INDEX_KINDS: Mapping[str, tuple[Callable[[Indexing, torch.Generator], Tensor], int]] = {
    "uniform": (uniform, SEED),
    "uniform again": (uniform, OTHER_SEED),
    "sorted": (in_order, SEED),
    "sequence": (sequence, SEED),
    "zipf": (zipf, SEED),
    "two rows": (partial(first_rows, 2), SEED),
    "one row": (partial(first_rows, 1), SEED),
}
"""Functions that draw indices, with their seeds."""


def embedding(rows: int, width: int, ids: int, dtype: torch.dtype, bench: Bench) -> Indexing:
    table = bench.normal(bench.size(rows), width, dtype=dtype)
    return Indexing(len(table), bench.size(ids), lambda indices: F.embedding(indices, table))


def index_select(bench: Bench) -> Indexing:
    table = bench.normal(bench.size(100_000), WIDTH)
    return Indexing(len(table), bench.size(500_000), lambda indices: torch.index_select(table, 0, indices))


def gather(bench: Bench) -> Indexing:
    table = bench.normal(bench.size(100_000), WIDTH)
    return Indexing(len(table), bench.size(500_000), lambda indices: torch.gather(table, 0, _expanded(indices)))


def index_add(bench: Bench) -> Indexing:
    target, sources = bench.normal(bench.size(100_000), WIDTH), bench.normal(bench.size(500_000), WIDTH)
    return Indexing(len(target), len(sources), lambda indices: target.index_add_(0, indices, sources))


def scatter_add(bench: Bench) -> Indexing:
    target, sources = bench.normal(bench.size(100_000), WIDTH), bench.normal(bench.size(500_000), WIDTH)
    return Indexing(len(target), len(sources), lambda indices: target.scatter_add_(0, _expanded(indices), sources))


def index_put(bench: Bench) -> Indexing:
    target, sources = bench.normal(bench.size(100_000), WIDTH), bench.normal(bench.size(50_000), WIDTH)
    return Indexing(len(target), len(sources), lambda indices: target.index_put_((indices,), sources, accumulate=True))


def cross_entropy(bench: Bench) -> Indexing:
    logits = bench.normal(bench.size(4096), bench.size(50_000))
    return Indexing(logits.shape[1], len(logits), lambda targets: F.cross_entropy(logits, targets))


def _expanded(indices: Tensor) -> Tensor:
    return indices[:, None].expand(-1, WIDTH)


INDEXINGS: Mapping[str, Callable[[Bench], Indexing]] = {
    "embedding fp32 50k x 768": partial(embedding, 50_000, 768, 65_536, torch.float32),
    "embedding bf16 128k x 4096": partial(embedding, 128_256, 4096, 16_384, torch.bfloat16),
    "index_select": index_select,
    "gather": gather,
    "index_add_": index_add,
    "scatter_add_": scatter_add,
    "index_put_ accumulate": index_put,
    "cross_entropy": cross_entropy,
}


def with_indices(bench: Bench) -> Operators:
    """Yield functions that index a tensor."""
    for name, build in INDEXINGS.items():
        yield name, on_indices(build, bench)


def on_indices(build: Callable[[Bench], Indexing], bench: Bench) -> Variants:
    """Yield a function on indices of each kind."""
    indexing = build(bench)
    for kind, (draw, seed) in INDEX_KINDS.items():
        yield kind, bench.workload(indexing.call, draw(indexing, bench.generator(seed)))


# Masks


def masks(bench: Bench) -> Iterator[tuple[str, Tensor]]:
    """Yield boolean masks of each kind, true where a key counts."""
    length = bench.size(LENGTH)
    every = torch.ones(BATCH, 1, length, length, dtype=torch.bool, device=bench.device)
    yield "all true", every
    yield "causal", every.tril()
    for kind, seed in (("coin flips", SEED), ("coin flips again", OTHER_SEED)):
        yield kind, torch.rand(every.shape, device=bench.device, generator=bench.generator(seed)) < 0.5
    padding = every.clone()
    padding[..., length // 2 :] = False
    yield "padding", padding


def additive_masks(bench: Bench, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield masks of each kind that are added to scores."""
    normal = bench.normal(BATCH, 1, bench.size(LENGTH), bench.size(LENGTH), dtype=dtype)
    zeros = torch.zeros_like(normal)
    yield "additive zeros", zeros
    yield "additive causal", zeros.masked_fill(~torch.ones_like(zeros, dtype=torch.bool).tril(), -math.inf)
    yield "additive normal", normal


def scores_of(bench: Bench) -> Tensor:
    """Return scores of attention, a matrix for each head."""
    return bench.normal(BATCH, HEADS, bench.size(LENGTH), bench.size(LENGTH))


def with_masks(bench: Bench) -> Operators:
    """Yield attention without a mask and with each type of masks, and functions of scores and masks."""
    for dtype, short in SHORT_DTYPES.items():
        yield f"attention {short}, no mask", unmasked_attention(bench, dtype)
        yield f"attention {short}, boolean mask", masked_attention(bench, dtype, masks(bench))
        yield f"attention {short}, float mask", masked_attention(bench, dtype, additive_masks(bench, dtype))
    yield "masked_fill", masked_fill(bench)
    yield "where", where(bench)
    yield "softmax of masked scores", softmax(bench)


def _heads(bench: Bench, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    shape = (BATCH, HEADS, bench.size(LENGTH), HEAD_WIDTH)
    query, key, value = bench.normal(3, *shape, dtype=dtype)
    return query, key, value


def unmasked_attention(bench: Bench, dtype: torch.dtype) -> Variants:
    heads = _heads(bench, dtype)
    for kind, is_causal in (("none", False), ("none again", False), ("is_causal=True", True)):
        yield kind, bench.workload(F.scaled_dot_product_attention, *heads, is_causal=is_causal)


def masked_attention(bench: Bench, dtype: torch.dtype, kinds: Iterator[tuple[str, Tensor]]) -> Variants:
    heads = _heads(bench, dtype)
    for kind, mask in kinds:
        yield kind, bench.workload(F.scaled_dot_product_attention, *heads, attn_mask=mask)


def masked_fill(bench: Bench) -> Variants:
    scores = scores_of(bench)
    for kind, mask in masks(bench):
        yield kind, bench.workload(torch.masked_fill, scores, mask, -1e9)


def where(bench: Bench) -> Variants:
    scores = scores_of(bench)
    other = torch.full((), -1e9, device=bench.device)
    for kind, mask in masks(bench):
        yield kind, bench.workload(torch.where, mask, scores, other)


def softmax(bench: Bench) -> Variants:
    scores = scores_of(bench)
    for kind in ("none", "none again"):
        yield kind, bench.workload(torch.softmax, scores, -1)
    for kind, mask in masks(bench):
        if kind != "all true":
            yield kind, bench.workload(torch.softmax, scores.masked_fill(~mask, -math.inf), -1)


# Loads of experts


def loads(tokens: int) -> Mapping[str, Sequence[float]]:
    """Return the tokens of each expert, by kind; they are no whole numbers."""
    ranks = [1 / rank for rank in range(1, EXPERTS + 1)]
    return {
        "equal": [tokens / EXPERTS] * EXPERTS,
        "equal again": [tokens / EXPERTS] * EXPERTS,
        "zipf": [tokens * share / sum(ranks) for share in ranks],
        "half in one": [tokens / 2, *[tokens / 2 / (EXPERTS - 1)] * (EXPERTS - 1)],
        "all in one": [tokens, *[0.0] * (EXPERTS - 1)],
    }


def with_loads(bench: Bench) -> Operators:
    """Yield the product of matrices in groups."""
    yield "grouped_mm bf16", grouped_product(bench)


def grouped_product(bench: Bench) -> Variants:
    """Yield the product on each kind of loads.

    Raises:
        CannotMeasureError: torch has no such product.
    """
    product = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if product is None:
        raise CannotMeasureError("torch has no grouped_mm")
    inputs, outputs = bench.size(EXPERT_INPUTS), bench.size(EXPERT_OUTPUTS)
    tokens = bench.normal(bench.size(TOKENS), inputs, dtype=torch.bfloat16)
    experts = bench.normal(EXPERTS, outputs, inputs, dtype=torch.bfloat16).transpose(-2, -1)
    for kind, load in loads(len(tokens)).items():
        ends = torch.tensor(load, dtype=torch.float64).cumsum(0).round()
        yield kind, bench.workload(product, tokens, experts, offs=ends.to(bench.device, torch.int32))


# Weights


def modules(bench: Bench) -> Iterator[tuple[str, OperatorTuple]]:
    """Yield modules with weights, whose inputs have the dtype of the weights."""
    images = bench.size(128)

    def module(built: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> OperatorTuple:
        inputs = torch.empty(images, *shape, dtype=dtype, device="meta")
        return module_tuple(built.to(dtype).eval(), (inputs,), {})

    for dtype, short in SHORT_DTYPES.items():
        yield f"Conv2d 3x3 {short}", module(nn.Conv2d(128, 128, 3, padding=1, bias=False), 128, 28, 28, dtype=dtype)
        yield f"Linear {short}", module(nn.Linear(768, 3072), 197, 768, dtype=dtype)
    yield "Conv2d 1x1 fp32", module(nn.Conv2d(256, 64, 1, bias=False), 256, 56, 56)
    yield "Conv2d depthwise fp32", module(nn.Conv2d(128, 128, 7, padding=3, groups=128), 128, 56, 56)


def with_weights(bench: Bench) -> Operators:
    """Yield operators with weights."""
    for name, operator in modules(bench):
        yield name, on_zeros(bench, operator)


def on_zeros(bench: Bench, operator: OperatorTuple) -> Variants:
    """Yield an operator with each share of zeros in its weights."""
    for kind, zeros_ratio in ZEROS_RATIOS.items():
        yield kind, operator_workload(operator, bench.device, InputData((NORMAL,), zeros_ratio))


ROLES: Mapping[str, Callable[[Bench], Operators]] = {
    "indices": with_indices,
    "masks": with_masks,
    "loads": with_loads,
    "weights": with_weights,
}


# Measuring


def add_rows(apparatus: Apparatus, arguments: Namespace) -> None:
    """Measure the operators of some roles, and write each row as it comes."""
    begin_s = time.monotonic()
    bench = Bench(apparatus.device, SMOKE_DIVISOR if arguments.smoke else 1)
    protocol = SMOKE_PROTOCOL if arguments.smoke else PROTOCOL
    product = facts_of(apparatus.device).product
    with arguments.output.open("w", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        table.writeheader()
        for role in arguments.roles:
            for name, variants in ROLES[role](bench):
                for kind, workload in built(name, variants):
                    if time.monotonic() - begin_s > arguments.limit_seconds:
                        print(f"time is up before {name}, {kind}", file=sys.stderr)
                        return
                    try:
                        figures = measured(apparatus, workload, protocol)
                    except CannotMeasureError as error:
                        print(f"left out: {name}, {kind}: {error}", file=sys.stderr)
                        continue
                    table.writerow(asdict(Row(role, name, kind, str(product), **figures)))
                    file.flush()
                print(name, file=sys.stderr)


def built(name: str, variants: Variants) -> Variants:
    """Yield the variants of an operator until one cannot be built, and print the reason."""
    try:
        yield from variants
    except (CannotMeasureError, *REFUSALS) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        print(f"left out: the rest of {name}: {lines[0]}", file=sys.stderr)


def measured(apparatus: Apparatus, workload: EagerWorkload, protocol: MeasurementProtocol) -> dict[str, Any]:
    """Return a row's figures.

    Raises:
        CannotMeasureError: torch refused a call.
    """
    apparatus.rest.end()
    found = measure(workload, apparatus.instruments("values"), protocol)
    if leaves_clocks_low(found):
        apparatus.rest.begin()
    return {
        "time_s": found.time_s,
        "energy_j": found.energy_j,
        "energy_standard_error_j": found.energy_standard_error_j,
        "sm_clock_hz": found.sm_clock_hz,
        "flags": " ".join(flag.value for flag in found.flags),
    }


# Evaluation


def with_base(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with time and energy over those of the operator's first kind, and the error of the latter."""
    rows = rows.copy()
    first = rows.groupby(["role", "operator"])[["time_s", "energy_j", "energy_standard_error_j"]].transform(
        lambda figures: figures.iloc[0]
    )
    rows["time_ratio"] = rows["time_s"] / first["time_s"]
    rows["energy_ratio"] = rows["energy_j"] / first["energy_j"]
    errors = rows["energy_standard_error_j"] / rows["energy_j"], first["energy_standard_error_j"] / first["energy_j"]
    rows["energy_ratio_error"] = rows["energy_ratio"] * (errors[0] ** 2 + errors[1] ** 2) ** 0.5
    return rows


def report(rows: pd.DataFrame) -> str:
    """Return a table for each role: how much more time / energy ± its standard error each kind takes than the base.

    Flagged measurements have an asterisk; their flags are listed below.
    """
    tables = []
    for role, of_role in with_base(rows).groupby("role", sort=False):
        compared = of_role[of_role.duplicated("operator")]
        kinds = list(map(str, compared["values"].unique()))
        lines = []
        for operator, table in of_role.groupby("operator", sort=False):
            first, *others = _records(table)
            cells = {one["values"]: _cell(one) for one in others}
            base = f"{first['values']}{_mark(first)}: {_milli(first['time_s'])} ms / {_milli(first['energy_j'])} mJ"
            lines.append([str(operator), base, *(cells.get(kind, "") for kind in kinds)])
        tables.append(markdown((str(role), "base", *kinds), lines))
    flagged = rows[rows["flags"].notna() & (rows["flags"] != "")]
    notes = [f"\\* {one.operator}, {one.values}: {one.flags}" for one in flagged.itertuples()]
    return "\n\n".join([*tables, *(["  \n".join(notes)] if notes else [])])


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in one.items()} for one in rows.to_dict("records")]


def _cell(one: Mapping[str, Any]) -> str:
    time_text = f"{one['time_ratio'] - 1:+.1%}"
    if pd.isna(one["energy_ratio"]):
        return f"{time_text}{_mark(one)}"
    error = "" if pd.isna(one["energy_ratio_error"]) else f" ± {one['energy_ratio_error']:.1%}"
    return f"{time_text} / {one['energy_ratio'] - 1:+.1%}{error}{_mark(one)}"


def _mark(one: Mapping[str, Any]) -> str:
    return "" if pd.isna(one["flags"]) or one["flags"] == "" else r"\*"


def _milli(value: float) -> str:
    return milli(None if pd.isna(value) else value)


def draw(rows: pd.DataFrame, target: Path) -> None:
    """Draw time and energy over those of the base: a line for each operator, a mark for each kind."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = with_base(rows)
    roles = {str(role): table for role, table in rows.groupby("role", sort=False)}
    heights = [
        0.5 + max(0.24 * table["operator"].nunique(), 0.17 * table["values"].nunique()) for table in roles.values()
    ]
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "opcost"}):
        shape: dict[str, Any] = {"figsize": (11.0, 0.6 + sum(heights)), "layout": "constrained"}
        figure, panels = plt.subplots(len(roles), 2, height_ratios=heights, squeeze=False, **shape)
        for (left, right), (role, table) in zip(panels, roles.items(), strict=True):
            _draw_ratios(left, table, "time_ratio")
            _draw_ratios(right, table, "energy_ratio")
            left.set_title(f"{role}: time / time of the base", loc="left")
            right.set_title("energy / energy of the base", loc="left")
            right.set_yticklabels([])
            names = left.get_legend_handles_labels()
            right.legend(*names, loc="upper left", bbox_to_anchor=(1.01, 1.05), frameon=False)
        figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)
        plt.close(figure)


WIDE_RATIO = 2.0
"""Axes with larger ratios than this, or smaller ones than its inverse, are logarithmic."""

MARKS = "osv^DPX<>*hp"


def _draw_ratios(axes: Any, rows: pd.DataFrame, column: str) -> None:
    operators = list(rows["operator"].unique())
    for number, (kind, table) in enumerate(rows.groupby("values", sort=False)):
        places = [operators.index(name) for name in table["operator"]]
        look = {"color": f"C{number % 10}", "marker": MARKS[number % len(MARKS)], "alpha": 0.8, "zorder": 2}
        axes.scatter(table[column], places, s=18, label=kind, **look)
    axes.axvline(1.0, color="0.6", linewidth=0.8, zorder=1)
    ratios = rows[column].dropna()
    if not ratios.empty and (ratios.max() > WIDE_RATIO or ratios.min() < 1 / WIDE_RATIO):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axes.set_yticks(range(len(operators)), operators)
    axes.set_ylim(len(operators) - 0.5, -0.5)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> int:
    parser = Parser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--output", type=Path, help="measure; the file of the rows")
    action.add_argument("--evaluate", type=Path, metavar="FILE", help="print the rows of a file as tables")
    parser.add_argument("--figure", type=Path, metavar="SVG", help="with --evaluate: also draw them (needs matplotlib)")
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=list(ROLES), help="only these (default: all)")
    parser.add_argument("--device", default="cuda", help="the device (default: cuda); a CPU has no energy here")
    parser.add_argument("--smoke", action="store_true", help="small sizes and short loops, to try the program out")
    parser.add_argument("--limit-seconds", type=float, default=math.inf, help="begin no further row after that")
    arguments = parser.parse_args()
    if arguments.evaluate:
        rows = pd.read_csv(arguments.evaluate, dtype={"flags": "string", "values": "string"})
        print(report(rows))
        if arguments.figure:
            draw(rows, arguments.figure)
        return 0
    if arguments.figure:
        parser.error("--figure needs --evaluate")
    with (
        tempfile.TemporaryDirectory() as folder,
        open_apparatus(arguments.device, Database(Path(folder))) as apparatus,
    ):
        add_rows(apparatus, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
