"""The caches of a card: how far back data and code are near, and how precisely a call is timed in a state

Example: PYTHONPATH=. python benchmarks/call_states.py --data --code --precision

Needs a GPU. Each time is that beyond the same work without the call. --data: a call that reads what was written before
so many bytes of other data. --code: a call behind so many kinds of other kernels since it ran last. --precision: a call
in a state, with its error and the time that it took, by the precision that was asked for. --behind: the time of a call
as a difference, with rests of so many microseconds behind it, between events in a graph, and by the profiler, with the
times that the other kernels take more behind it. --energy: time and energy of calls in loops of themselves, of copies
with other inputs in turn, with other outputs in turn, and of both, and behind other kinds of kernels; then the power of
waiting and the energy of bytes that follow from them.
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
from torch.profiler import ProfilerActivity, profile

from opcost.errors import CannotMeasureError
from opcost.estimates import Estimate
from opcost.measuring.instruments import Instruments
from opcost.measuring.loop import run_pairs
from opcost.measuring.procedure import measure_beside
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import USUAL
from opcost.measuring.workload import Call, Calls
from opcost.meters.host import SystemClock
from opcost.meters.opening import no_meters
from opcost.operators.reuse import CallState, Place
from opcost.running.apparatus import Apparatus, numbered, open_apparatus
from opcost.running.qualification import qualified
from opcost.storage.database import Database
from opcost.torch_backend.call_states import Eviction, calls_in_state
from opcost.torch_backend.repeated_calls import Layer
from opcost.torch_backend.values import distinct_tensors
from opcost.torch_backend.workload import EagerWorkload, additions, as_graph, beside

DEVICE = "cuda"
MB = 10**6
PRECISION = 0.003
CYCLES_PER_US = 1980
NOTICED_US = 0.15
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


def images_in_fp32() -> Iterator[tuple[str, Layer]]:
    """Operators whose differences are 0.5 us to 5 us below what they take in their models (``docs/log/states.md``)."""
    for channels, side in ((72, 56), (384, 14)):
        image = torch.randn(32, channels, side, side, device=DEVICE)
        filters = torch.randn(channels, 1, 3, 3, device=DEVICE)
        yield f"depthwise 3x3 fp32 {channels}@{side}", Layer(F.conv2d, (image, filters, None, 1, 1, 1, channels), {})
        statistics = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
        yield f"batch norm fp32 {channels}@{side}", Layer(F.batch_norm, (image, *statistics), {})
        yield f"ReLU in place fp32 {channels}@{side}", Layer(F.relu, (image.clone(), True), {})


def kernel_times_us(call: Call) -> list[float]:
    """Return the times of a call's kernels in a captured graph, in us, by the profiler."""
    graph, replays = torch.cuda.CUDAGraph(), 20
    call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        call()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(replays):
            graph.replay()
        torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    kernels = sorted((one.start_ns(), one.duration_ns()) for one in events if one.device_type().name == "CUDA")
    durations = np.array([duration for _, duration in kernels]).reshape(replays, -1)
    return list(1e-3 * durations[replays // 2 :].mean(axis=0))


def between_events(before: Call, call: Call, replays: int = 30) -> Estimate:
    """Return the time in us between events around a call and a small kernel, recorded within a captured graph."""
    graph, small = torch.cuda.CUDAGraph(), torch.zeros(1, device=DEVICE)
    pairs = [[torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)] for _ in range(10)]
    call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for begin, end in pairs:
            before()
            begin.record()
            call()
            small.add_(1)
            end.record()
    means_us = []
    for _ in range(replays):
        graph.replay()
        torch.cuda.synchronize()
        means_us.append(1e3 * np.mean([begin.elapsed_time(end) for begin, end in pairs]))
    return Estimate(float(np.mean(means_us)), float(np.std(means_us) / np.sqrt(replays)))


def behind_rows(rests_us: list[int]) -> Iterator[list[object]]:
    evict = Eviction(DEVICE)
    for name, layer in (*operators(), *images_in_fp32()):
        number = len(distinct_tensors(layer.args, layer.kwargs))
        for place, is_far in ((Place.NEAR, False), (Place.NEAR, True), (Place.FAR, True)):
            state = CallState((place, *(Place.FAR,) * (number - 1)), False, is_far)
            calls, row = calls_in_state(layer, state, evict), list[object]()
            assert calls.overhead is not None
            for rest_us in rests_us:
                rest = [partial(torch.cuda._sleep, CYCLES_PER_US * rest_us)] if rest_us else []
                found_us, error_us, _ = timed(in_turn(calls.cycle, *rest), in_turn(calls.overhead, *rest))
                row.append(f"{found_us:.2f} ± {error_us:.2f}")
            between_us = between_events(calls.overhead, layer.call).less(between_events(calls.overhead, in_turn()))
            row.append(f"{between_us.value:.2f} ± {between_us.standard_error:.2f}")
            without, together = (kernel_times_us(in_turn(one, one)) for one in (calls.overhead, calls.cycle))
            # The kernels of the second round, which follow a call or not.
            half, own = len(without) // 2, len(together) // 2
            more = [with_it - alone for with_it, alone in zip(together[own : own + half], without[half:], strict=True)]
            noticed = " ".join(f"{place}:{us:+.2f}" for place, us in enumerate(more) if abs(us) > NOTICED_US)
            yield [name, state, *row, f"{sum(together[own + half :]):.2f}", f"{sum(more):+.2f}", noticed]


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
    for part in ("data", "code", "precision", "behind"):
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
            heads = ["", "", *rests, "between events", "by the profiler", "others take more", "at places"]
            show("us of a call, by rests behind it", heads, behind_rows(rests))
        if chosen.precision:
            show("us of nothing", [], control_rows())
            errors = [0.02, 0.01, 0.005, 0.002]
            show("us in state", ["", *errors], precision_rows(errors))


main()
