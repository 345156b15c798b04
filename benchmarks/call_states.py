"""The caches of a card: how far back data and code are near, and how precisely a call is timed in a state

Example: PYTHONPATH=. python benchmarks/call_states.py --data --code --precision

Needs a GPU. Each time is that beyond the same work without the call. --data: a call that reads what was written before
so many bytes of other data. --code: a call behind so many kinds of other kernels since it ran last. --precision: a call
in a state, with its error and the time that it took, by the precision that was asked for.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)

from opcost.errors import CannotMeasureError
from opcost.measuring.instruments import Instruments
from opcost.measuring.loop import run_pairs
from opcost.measuring.procedure import measure_beside
from opcost.measuring.workload import Call, Calls
from opcost.meters.host import SystemClock
from opcost.meters.opening import no_meters
from opcost.operators.reuse import CallState, Place
from opcost.torch_backend.call_states import Eviction, calls_in_state
from opcost.torch_backend.repeated_calls import Layer
from opcost.torch_backend.workload import EagerWorkload, additions, beside

DEVICE = "cuda"
MB = 10**6
PRECISION = 0.003


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
    instruments = Instruments(no_meters(DEVICE).meter(""), SystemClock())
    begin_s = time.monotonic()
    found = measure_beside(beside(EagerWorkload(Calls(cycle, overhead=overhead), DEVICE)), instruments, relative_error)
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


def control_rows() -> Iterator[list[object]]:
    """The same work on both sides takes no time more."""
    evict = Eviction(DEVICE)
    for is_far in (False, True):
        calls = calls_in_state(
            next(operators())[1], CallState((Place.FAR, Place.FAR if is_far else Place.NEAR), False, is_far), evict
        )
        assert calls.overhead is not None
        pair = beside(EagerWorkload(Calls(calls.overhead, overhead=calls.overhead), DEVICE))
        instruments = Instruments(no_meters(DEVICE).meter(""), SystemClock())
        found = run_pairs(pair, instruments, PRECISION, 1.0).time_s
        yield [f"{1e6 * found.value:.4f} ± {1e6 * found.standard_error:.4f}"]


def precision_rows(seconds: list[float]) -> Iterator[list[object]]:
    evict = Eviction(DEVICE)
    for name, layer in operators():
        inputs = sum(isinstance(one, torch.Tensor) for one in layer.args)
        for place in Place:
            state = CallState((place,) * inputs, False, place is Place.FAR)
            calls, row = calls_in_state(layer, state, evict), list[object]()
            assert calls.overhead is not None
            for precise in seconds:
                try:
                    found_us, error_us, taken_s = timed(calls.cycle, calls.overhead, precise)
                    row.append(f"{found_us:.2f} ± {error_us:.2f} in {taken_s:.2f} s")
                except CannotMeasureError as error:
                    row.append(str(error))
            yield [name, place.value, *row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for part in ("data", "code", "precision"):
        parser.add_argument(f"--{part}", action="store_true")
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
        if chosen.precision:
            show("us of nothing", [], control_rows())
            errors = [0.02, 0.01, 0.005, 0.002]
            show("us in state", ["", *errors], precision_rows(errors))


main()
