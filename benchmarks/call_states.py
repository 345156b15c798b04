"""The caches of a card: how far back data and code are near, and how precisely a call is timed in a state

Example: PYTHONPATH=. python benchmarks/call_states.py --data --code --precision

Needs a GPU. Each time is that beyond the same work without the call. --data: a call that reads what was written before
so many bytes of other data. --code: a call behind so many kinds of other kernels since it ran last. --precision: a call
in a state, with its error and the time that it took, by the precision that was asked for. --behind: the time of a call
as a difference, with rests of so many microseconds behind it, as a difference before a kernel that hides what the call
leaves to write back, and as it is measured: in a trace, with what loops of the call take more.
--written: a call behind evictions that leave written data in the cache, and behind some that leave data that were only
read. --loops: loops of calls by size, whose bytes from and to memory `ncu --clock-control none --cache-control none
--replay-mode app-range --metrics dram__bytes_read.sum,dram__bytes_write.sum` counts. --energy: time and energy of calls
in loops of themselves, of copies with other inputs in turn, with other outputs in turn, and of both, and behind other
kinds of kernels; then the power of waiting and the energy of bytes that follow from them.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)

from opcost.errors import CannotMeasureError
from opcost.estimates import Estimate
from opcost.measuring.instruments import Instruments
from opcost.measuring.procedure import measure_beside
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import USUAL
from opcost.measuring.workload import Call, Calls, Workload
from opcost.meters.host import SystemClock
from opcost.meters.opening import no_meters
from opcost.operators.reuse import CallState, Place
from opcost.running.apparatus import Apparatus, numbered, open_apparatus
from opcost.running.qualification import qualified
from opcost.storage.database import Database
from opcost.torch_backend.call_states import EVICTING_RATIO, Eviction, calls_in_state
from opcost.torch_backend.cuda_graph import untraced_gap
from opcost.torch_backend.repeated_calls import Layer
from opcost.torch_backend.values import distinct_tensors
from opcost.torch_backend.workload import EagerWorkload, additions, as_graph, beside

DEVICE = "cuda"
MB = 10**6
PRECISION = 0.003
CYCLES_PER_US = 1980
LOOP_CALLS = 40
ENERGY_PROTOCOL = MeasurementProtocol(0.3, 1.0)


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)


def images(*shape: int) -> torch.Tensor:
    return bf16(*shape).contiguous(memory_format=torch.channels_last)


def operators() -> Iterator[tuple[str, Layer]]:
    for channels, side in ((640, 14), (128, 56), (1024, 7)):
        args = images(32, channels, side, side), bf16(channels, 1, 7, 7)
        yield f"depthwise 7x7 {channels}@{side}", Layer(F.conv2d, (*args, None, 1, 3, 1, channels), {})
    yield "average pooling 640@30", Layer(F.adaptive_avg_pool2d, (images(32, 640, 30, 30), 1), {})
    yield "convolution 1056-176@30", Layer(F.conv2d, (images(32, 1056, 30, 30), bf16(176, 1056, 1, 1)), {})
    yield "add 320@14", Layer(torch.add, (images(32, 320, 14, 14), images(32, 320, 14, 14)), {})
    yield "mean 896 fp32", Layer(torch.mean, (torch.randn(4, 512, 896, device=DEVICE), -1), {})
    yield "linear 896-896", Layer(F.linear, (bf16(4, 512, 896), bf16(896, 896), bf16(896)), {})
    yield "linear 896-4864", Layer(F.linear, (bf16(4, 512, 896), bf16(4864, 896)), {})
    yield "layer norm 768", Layer(F.layer_norm, (bf16(16, 256, 768), (768,), bf16(768), bf16(768)), {})
    yield "SiLU 1056@30", Layer(F.silu, (images(32, 1056, 30, 30),), {})


def timed(cycle: Call, overhead: Call, relative_error: float = PRECISION) -> tuple[float, float, float]:
    """Return the time of a call in us, its standard error, and the time that it took to measure in s."""
    return timed_in(beside(EagerWorkload(Calls(cycle, overhead=overhead), DEVICE)), relative_error)


def timed_in(workload: Workload, relative_error: float) -> tuple[float, float, float]:
    instruments = Instruments(no_meters(DEVICE).meter(""), SystemClock())
    begin_s = time.monotonic()
    found = measure_beside(workload, instruments, relative_error)
    return 1e6 * found.time_s, 1e6 * found.time_standard_error_s, time.monotonic() - begin_s


def in_turn(*calls: Callable[[], object]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    return run


def show(title: str, heads: list[object], rows: Iterator[list[object]]) -> None:
    print(f"\n{title}", *heads, sep="\t", flush=True)
    for row in rows:
        print(*row, sep="\t", flush=True)


def products(distance_mb: int) -> list[Call]:
    """Return products of matrices that read and write other memory, 4 MB each."""
    rows, columns = 1024, 720
    matrices = [(bf16(rows, columns), bf16(columns, columns), bf16(rows, columns)) for _ in range(distance_mb // 4)]
    return [partial(torch.mm, first, second, out=out) for first, second, out in matrices]


def data_rows(sizes_mb: list[int], distances_mb: list[int], by_products: bool) -> Iterator[list[object]]:
    """A tensor is written, then other memory, then the tensor is read."""
    evict = Eviction(DEVICE)
    other = torch.zeros(max(distances_mb) * MB // 4 + 1, device=DEVICE)
    for size in sizes_mb:
        tensor, row = torch.zeros(size * MB // 4, device=DEVICE), list[object]()
        for distance in distances_mb:
            adding = [partial(other[: distance * MB // 4].add_, 1)] if distance else []
            touch = products(distance) if by_products else adding
            before = evict.data, partial(tensor.add_, 0), *touch
            row.append(f"{timed(in_turn(*before, partial(torch.sum, tensor)), in_turn(*before))[0]:.2f}")
        yield [f"read {size} MB", *row]


def code_rows(numbers: list[int]) -> Iterator[list[object]]:
    """An operator runs on other data, then other kernels, then it runs again; data are evicted in between, or not."""
    evict = Eviction(DEVICE)
    kernels = [kernel for own in evict.kernels.values() for kernel in own]
    for name, layer in operators():
        other, row = layer.relocated(), list[object]()
        for number in numbers:
            # First the others, so that the operator's code is as far in the work without the call.
            before = *kernels[number:], *kernels[:number], other.call, *kernels[:number], evict.data
            row.append(f"{timed(in_turn(*before, layer.call), in_turn(*before))[0]:.2f}")
        yield [name, *row]


def images_in_fp32() -> Iterator[tuple[str, Layer]]:
    """Operators whose differences are 0.5 us to 5 us below what they take in their models (``docs/log/states.md``)."""
    for channels, side in ((72, 56), (384, 14)):
        image = torch.randn(32, channels, side, side, device=DEVICE)
        filters = torch.randn(channels, 1, 3, 3, device=DEVICE)
        yield f"depthwise 3x3 fp32 {channels}@{side}", Layer(F.conv2d, (image, filters, None, 1, 1, 1, channels), {})
        statistics = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
        yield f"batch norm fp32 {channels}@{side}", Layer(F.batch_norm, (image, *statistics), {})
        yield f"ReLU in place fp32 {channels}@{side}", Layer(F.relu, (image.clone(), True), {})


def behind_rows(rests_us: list[int]) -> Iterator[list[object]]:
    evict = Eviction(DEVICE)
    numbers = torch.rand(int(EVICTING_RATIO * evict.cache_bytes) // 8, device=DEVICE)
    # Bound by arithmetic: what the kernels before have left to write back is hidden.
    slow = partial(torch.digamma, numbers, out=torch.empty_like(numbers))
    for name, layer in (*operators(), *images_in_fp32()):
        number = len(distinct_tensors(layer.args, layer.kwargs))
        for place, code in ((Place.NEAR, Place.NEAR), (Place.NEAR, Place.FAR), (Place.FAR, Place.FAR)):
            state = CallState((place, *(Place.FAR,) * (number - 1)), False, code)
            calls, row = calls_in_state(layer, state, evict), list[object]()
            assert calls.overhead is not None
            assert calls.alone is not None
            for rest_us in rests_us:
                rest = [partial(torch.cuda._sleep, CYCLES_PER_US * rest_us)] if rest_us else []
                found_us, error_us, _ = timed(in_turn(calls.cycle, *rest), in_turn(calls.overhead, *rest))
                row.append(f"{found_us:.2f} ± {error_us:.2f}")
            found_us, error_us, _ = timed(in_turn(slow, calls.cycle), in_turn(slow, calls.overhead))
            row.append(f"{found_us:.2f} ± {error_us:.2f}")
            found_us, error_us, _ = timed_in(beside(EagerWorkload(calls, DEVICE), is_traced=True), PRECISION)
            row.append(f"{found_us:.2f} ± {error_us:.2f}")
            gap = untraced_gap(calls.alone, torch.cuda.Stream(DEVICE))
            yield [name, state, *row, f"{1e6 * gap.time_s:.2f}", f"{1e6 * gap.idle_s:.2f}"]


class Reading(Eviction):
    """An eviction that leaves data in the cache that were only read, as the products before a product do."""

    def data(self) -> None:
        super().data()
        torch.sum(self._read)


def products_in_fp32_and_bf16() -> Iterator[tuple[str, Layer]]:
    for rows, inner, outer, dtype in (
        *((197, 768, 3072, torch.float32), (197, 3072, 768, torch.float32), (32, 4096, 4096, torch.bfloat16)),
        *((32, 9216, 4096, torch.bfloat16), (1, 4096, 14336, torch.bfloat16), (32, 4096, 14336, torch.bfloat16)),
        *((8, 2048, 2048, torch.bfloat16), (2048, 512, 2048, torch.bfloat16)),
    ):
        args = [torch.randn(shape, device=DEVICE, dtype=dtype) for shape in ((rows, inner), (outer, inner))]
        yield f"linear {inner}-{outer}, {rows} rows, {str(dtype).rpartition('.')[2]}", Layer(F.linear, tuple(args), {})


def written_rows() -> Iterator[list[object]]:
    evictions = Eviction(DEVICE), Reading(DEVICE)
    for name, layer in (*products_in_fp32_and_bf16(), *operators()):
        tensors, row = distinct_tensors(layer.args, layer.kwargs), list[object]()
        # The first input was written just before; weights and others come from memory.
        state = CallState((Place.NEAR, *(Place.FAR,) * (len(tensors) - 1)), False, Place.FAR)
        for evict in evictions:
            calls = calls_in_state(layer, state, evict)
            found_us, error_us, _ = timed_in(beside(EagerWorkload(calls, DEVICE), is_traced=True), PRECISION)
            row.append(f"{found_us:.2f} ± {error_us:.2f}")
        yield [name, f"{sum(one.nbytes for one in tensors) / MB:.1f} MB", *row]


def run_loops(sizes_mb: list[int]) -> None:
    """Run loops of calls by the size of their input, each in a range of its own for ncu."""
    for size in sizes_mb:
        side = int((size * MB / (4 * 32 * 64)) ** 0.5)
        image, filters = torch.rand(32, 64, side, side, device=DEVICE), torch.rand(64, 1, 3, 3, device=DEVICE)
        statistics = torch.zeros(64, device=DEVICE), torch.ones(64, device=DEVICE)
        loops: dict[str, Call] = {
            "ReLU": partial(F.relu, image),
            "add": partial(torch.add, image, image.clone()),
            "batch norm": partial(F.batch_norm, image, *statistics),
            "depthwise 3x3": partial(F.conv2d, image, filters, None, 1, 1, 1, 64),
            "1x1": partial(F.conv2d, image, torch.rand(64, 64, 1, 1, device=DEVICE)),
            "sum": partial(torch.sum, image),
        }
        for name, call in loops.items():
            print(f"{name}, input of {image.nbytes / MB:.1f} MB, {LOOP_CALLS} calls", flush=True)
            for is_counted in (False, True):
                if is_counted:
                    torch.cuda.profiler.start()
                for _ in range(LOOP_CALLS):
                    call()
                torch.cuda.synchronize()
            torch.cuda.profiler.stop()


def precision_rows(seconds: list[float]) -> Iterator[list[object]]:
    evict = Eviction(DEVICE)
    for name, layer in operators():
        inputs = sum(isinstance(one, torch.Tensor) for one in layer.args)
        for place in Place:
            state = CallState((place,) * inputs, False, place)
            calls, row = calls_in_state(layer, state, evict, layer.call), list[object]()
            for precise in seconds:
                try:
                    found_us, error_us, taken_s = timed_in(
                        beside(EagerWorkload(calls, DEVICE), is_traced=True), precise
                    )
                    row.append(f"{found_us:.2f} ± {error_us:.2f} in {taken_s:.2f} s")
                except CannotMeasureError as error:
                    row.append(str(error))
            yield [name, place.value, *row]


@dataclass(frozen=True)
class Change:
    """The time (s) and energy (J) that a call takes more than warm, for these bytes from and to memory."""

    time_s: Estimate
    energy_j: Estimate
    read_bytes: int = 0
    written_bytes: int = 0


def loop_cost(apparatus: Apparatus, layers: Sequence[Layer], keeps: bool = False) -> tuple[Estimate, Estimate]:
    """Return the time in s and the energy in J of the calls of layers in turn, with outputs of their own or not."""

    def cycle() -> None:
        kept = []
        for layer in layers:
            out = layer.call()
            if keeps:
                kept.append(out)

    load = as_graph(EagerWorkload(Calls(cycle), apparatus.device))
    measured = apparatus.measure_build(load, USUAL, numbered("call_states"), ENERGY_PROTOCOL)
    assert measured.energy is not None, measured.energy_missing_reason
    return measured.time, measured.energy


def shown_change(change: Change) -> list[object]:
    time_s, energy_j = change.time_s, change.energy_j
    return [
        f"{1e6 * time_s.value:.2f} us",
        f"{1e3 * energy_j.value:.3f} ± {1e3 * energy_j.standard_error:.3f} mJ",
        f"{change.read_bytes / MB:.1f} MB read",
        f"{change.written_bytes / MB:.1f} MB written",
    ]


def changes(apparatus: Apparatus) -> Iterator[tuple[str, Change]]:
    evict = Eviction(DEVICE)
    kernels = [Layer(kernel.func, kernel.args, kernel.keywords) for kernel in evict.kernels[torch.float32][:7]]
    for name, layer in operators():
        inputs = sum(tensor.nbytes for tensor in layer.inputs)
        output = layer.call().nbytes
        if inputs + output > 0.4 * evict.cache_bytes:
            continue
        copies = [layer, *(layer.relocated() for _ in range(3 * evict.cache_bytes // (inputs + output)))]
        number = len(copies)
        warm = loop_cost(apparatus, [layer] * number)
        variants = {"inputs": (copies, False), "outputs": ([layer] * number, True), "both": (copies, True)}
        for what, (layers, keeps) in variants.items():
            beyond = [one.less(other) for one, other in zip(loop_cost(apparatus, layers, keeps), warm, strict=True)]
            time_s, energy_j = (one.times(1 / number) for one in beyond)
            read, written = inputs * (what != "outputs"), output * (what != "inputs")
            yield f"{name}: other {what}", Change(time_s, energy_j, read, written)
        if "depthwise" in name:
            others = loop_cost(apparatus, kernels * 20)
            among = loop_cost(apparatus, [*kernels, layer] * 20)
            time_s, energy_j = (
                one.less(other).times(1 / 20).less(alone.times(1 / number))
                for one, other, alone in zip(among, others, warm, strict=True)
            )
            yield f"{name}: other code", Change(time_s, energy_j)


def show_energies(database: Path) -> None:
    found = []
    with qualified(open_apparatus, DEVICE, Database(database), True) as apparatus:
        assert apparatus.background is not None
        with apparatus.background.paused():
            for name, change in changes(apparatus):
                print(name, *shown_change(change), sep="\t", flush=True)
                found.append(change)
    for is_code in (False, True):
        own = [one for one in found if is_code == (one.read_bytes + one.written_bytes == 0)]
        terms = [[one.time_s.value, one.read_bytes, one.written_bytes] for one in own]
        errors = np.array([one.energy_j.standard_error for one in own])
        columns = slice(0, 1 if is_code else 3)
        weighted = np.array(terms)[:, columns] / errors[:, None]
        constants, *_ = np.linalg.lstsq(weighted, np.array([one.energy_j.value for one in own]) / errors, rcond=None)
        print("code" if is_code else "data", "W and J/B:", *(f"{one:.3g}" for one in constants), sep="\t")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for part in ("data", "code", "precision", "behind", "written", "loops"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--energy", type=Path, metavar="DATABASE", help="folder for the meters' qualification and logs")
    chosen = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, torch.cuda.get_device_properties(0).L2_cache_size, "B of L2")
    warm = additions(DEVICE)
    warm.run(200)
    warm.finish()
    with torch.inference_mode():
        if chosen.data:
            distances = [0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128]
            for by_products in (False, True):
                title = f"us to read, by MB of other data, written by {'products' if by_products else 'additions'}"
                show(title, list(distances), data_rows([2, 8, 16, 32], distances, by_products))
        if chosen.code:
            numbers = [0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24]
            show("us behind kinds of kernels", list(numbers), code_rows(numbers))
        if chosen.energy:
            show_energies(chosen.energy)
        if chosen.behind:
            rests = [0, 5, 20]
            heads = ["", "", *rests, "before a slow kernel", "in a trace", "gap", "idle"]
            show("us of a call, by rests behind it", heads, behind_rows(rests))
        if chosen.written:
            show("us of a call behind evictions", ["", "that write", "that end reading"], written_rows())
        if chosen.loops:
            run_loops([4, 8, 13, 16, 20, 26, 32, 40, 51, 64, 103])
        if chosen.precision:
            errors = [0.02, 0.01, 0.005, 0.002]
            show("us in state", ["", *errors], precision_rows(errors))


main()
