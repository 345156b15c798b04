"""Loops of torchvision's models with and without LayerwiseEnergy, in turn -> CSV files of blocks and of layers

Prints the overhead, and how far the rows' sum is from a second EnergyMeter around the same loop: both read the same
samples, so this checks no energy. Nothing else may run on the GPU. It takes under 40 s for a model. FILE gets a row for
each block, FILE-layers.csv one for each layer; both are appended to.
Example: PYTHONPATH=. python benchmarks/layerwise_overhead.py resnet50 vit_b_16 --train --output layers.csv
         PYTHONPATH=. python benchmarks/layerwise_overhead.py tiny --device cpu --output tiny.csv
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from opcost import EnergyMeter, LayerwiseEnergy, UserError
from opcost.columns import by_column
from opcost.estimates import Estimate, student_quantile
from opcost.metering.layers import MeteredLayerRow

TINY = "tiny"
SIZE = 224
CLASSES = 1000
WARM_UP_S = 1.5
FIRST_ITERATIONS = 10
"""Iterations at the begin of each block that are timed apart: their tuples are noted once, and more are marked."""


@dataclass(frozen=True)
class LoopBlock:
    """One block of a loop. Energies are in J, empty if unknown; those of ``rows`` are the sum over all layers."""

    model: str
    mode: str
    pair: int
    with_layers: bool
    iterations: int
    time_per_iteration_s: float
    first_iterations_s: float
    marked: int | None
    own_ratio: float | None
    rows_j: float | None
    meter_j: float | None
    meter_error_j: float | None


@dataclass(frozen=True)
class Loop:
    """A model's loop: ``step`` runs one iteration, ``wait`` waits for the device."""

    name: str
    mode: str
    model: Any
    step: Callable[[], object]
    wait: Callable[[], None]


def loop_of(name: str, device: str, batch: int, is_training: bool) -> Loop:
    """Return a model's loop on random inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name == TINY:
        layers = [nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
        model: Any = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, CLASSES))
    else:
        import torchvision

        model = torchvision.models.get_model(name, weights=None)
    model = model.to(device).train(is_training)
    inputs = torch.randn(batch, 3, SIZE, SIZE, device=device)
    targets = torch.randint(CLASSES, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    def infer() -> None:
        with torch.inference_mode():
            model(inputs)

    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    return Loop(name, "training" if is_training else "inference", model, train if is_training else infer, wait)


def run_for(loop: Loop, seconds: float) -> float:
    """Run a loop for some time, and return the time of an iteration; the first one, which sets up, does not count."""
    loop.step()
    loop.wait()
    begin_s, number = time.perf_counter(), 0
    while time.perf_counter() - begin_s < seconds:
        loop.step()
        loop.wait()
        number += 1
    return (time.perf_counter() - begin_s) / number


def timed(loop: Loop, iterations: int) -> float:
    """Return the time of some iterations that are launched ahead."""
    begin_s = time.perf_counter()
    for _ in range(iterations):
        loop.step()
    loop.wait()
    return time.perf_counter() - begin_s


def block(loop: Loop, iterations: int, pair: int) -> LoopBlock:
    """Run a block as it is."""
    first_s = timed(loop, FIRST_ITERATIONS)
    time_s = timed(loop, iterations)
    unknown = (None,) * 5
    return LoopBlock(loop.name, loop.mode, pair, False, iterations, time_s / iterations, first_s, *unknown)


def block_with_layers(
    loop: Loop, meter: EnergyMeter, iterations: int, pair: int, database: Path | None
) -> tuple[LoopBlock, list[MeteredLayerRow]]:
    """Run a block with ``LayerwiseEnergy``, and return its layers."""
    with LayerwiseEnergy(loop.model, database) as layers, meter.window() as window:
        plain = block(loop, iterations, pair)
    result, known = layers.result, window.result.energy
    energies_j = [row.energy_j for row in result.rows if row.energy_j is not None]
    found = replace(
        plain,
        with_layers=True,
        marked=result.marked,
        own_ratio=result.own_s / result.window.duration_s,
        rows_j=math.fsum(energies_j) * result.iterations if energies_j else None,
        meter_j=None if known is None else known.value,
        meter_error_j=None if known is None else known.standard_error,
    )
    return found, list(result.rows)


def measure(
    loop: Loop, meter: EnergyMeter, pairs: int, seconds: float, database: Path | None
) -> Iterator[tuple[LoopBlock, list[MeteredLayerRow]]]:
    """Yield blocks of both kinds; the order turns round from pair to pair, so that drift cancels."""
    iteration_s = run_for(loop, WARM_UP_S)
    iterations = max(3, round(seconds / iteration_s))
    print(f"{loop.name}, {loop.mode}: {1e3 * iteration_s:.2f} ms an iteration, {iterations} in a block", flush=True)
    for pair in range(pairs):
        for with_layers in (True, False) if pair % 2 else (False, True):
            # The meters' start and end let the GPU idle before either kind of block.
            timed(loop, max(3, iterations // 10))
            if with_layers:
                yield block_with_layers(loop, meter, iterations, pair, database)
            else:
                yield block(loop, iterations, pair), []


def paired(on: Sequence[float], off: Sequence[float]) -> Estimate:
    """Return the relative difference of paired times, with half of its 95 % interval as its error."""
    differences = np.array(on) / np.array(off) - 1
    half_width = student_quantile(len(on) - 1) * differences.std(ddof=1) / np.sqrt(len(on))
    return Estimate(float(differences.mean()), float(half_width))


def summary(blocks: Sequence[LoopBlock]) -> str:
    """Return the overhead with half of its 95 % interval, and the difference from the second meter."""
    on, off = ([one for one in blocks if one.with_layers is is_on] for is_on in (True, False))
    lines = [f"  {1e3 * np.mean([one.time_per_iteration_s for one in off]):.3f} ms an iteration without layers"]
    if len(on) > 1:
        overhead = paired(*([one.time_per_iteration_s for one in half] for half in (on, off)))
        lines.append(f"  overhead {overhead.value:+.2%} ± {overhead.standard_error:.2%} ({len(on)} pairs)")
    first_s = np.mean([one.first_iterations_s for one in on]) - np.mean([one.first_iterations_s for one in off])
    own = np.mean([one.own_ratio for one in on if one.own_ratio is not None])
    marked = np.mean([one.marked for one in on if one.marked is not None])
    lines.append(f"  once, in the first {FIRST_ITERATIONS} iterations: {1e3 * first_s:+.1f} ms")
    lines.append(f"  {marked:.1f} iterations marked in a block; own time on the host {own:.2%}")
    known = [(one.rows_j, one.meter_j) for one in on if one.rows_j is not None and one.meter_j is not None]
    if not known:
        return "\n".join([*lines, "  energy unknown: there is no meter"])
    differences = np.array([rows_j / meter_j - 1 for rows_j, meter_j in known])
    total = math.fsum(rows_j for rows_j, _ in known) / math.fsum(meter_j for _, meter_j in known) - 1
    lines.append(f"  rows' sum against the meter: {total:+.2%}; largest of a block {np.abs(differences).max():.2%}")
    return "\n".join(lines)


def append(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Append rows to a file, with a header if it is new."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(head)
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())


def measure_model(loop: Loop, meter: EnergyMeter, arguments: argparse.Namespace) -> None:
    """Measure a loop, write each block as it ends, and print the summary."""
    blocks, layers = [], []
    head = [field.name for field in fields(LoopBlock)]
    for found, rows in measure(loop, meter, arguments.pairs, arguments.seconds, arguments.database):
        append(arguments.output, head, [astuple(found)])
        blocks.append(found)
        layers = rows or layers
        kind = "with" if found.with_layers else "without"
        print(f"  [{len(blocks)}/{2 * arguments.pairs}] {kind}: {1e3 * found.time_per_iteration_s:.3f} ms", flush=True)
    cells = [by_column(row) for row in layers]
    path = arguments.output.with_name(f"{arguments.output.stem}-layers.csv")
    rows_of_layers = [(loop.name, loop.mode, *row.values()) for row in cells]
    append(path, ["model", "mode", *cells[0]], rows_of_layers)
    print(summary(blocks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"a name of torchvision, or {TINY}")
    parser.add_argument("--train", action="store_true", help="training instead of inference")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=8, help="pairs of blocks")
    parser.add_argument("--seconds", type=float, default=1.3, help="length of a block")
    parser.add_argument("--database", type=Path, help="folder of tables with known powers; default: the shipped one")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs: 1 or more")
    import torch

    on_gpu = arguments.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        parser.error("--device: torch sees no GPU; use --device cpu")
    if on_gpu:
        # The meter numbers GPUs as CUDA does once it is in use.
        torch.zeros(1, device=arguments.device)
    begin_s = time.perf_counter()
    with ExitStack() as stack:
        meter = EnergyMeter([arguments.device] if on_gpu else None)
        stack.callback(meter.close)
        for name in arguments.models:
            try:
                measure_model(loop_of(name, arguments.device, arguments.batch, arguments.train), meter, arguments)
            except UserError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 2
            print(f"  after {time.perf_counter() - begin_s:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
