"""Cache corrections, from chains of operators: operators in chains behind a stream, beside each of them in a loop."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import cast

import pytest
import torch
from simulated_apparatus import RecordedProgress, SimulatedCampaign, compare_models, write_both
from simulated_machine import SIMULATED_CONDITIONS, Device, Load, simulated_row

from opcost.comparing import corrections
from opcost.comparing.comparison import RemarkKind
from opcost.comparing.corrections import (
    Corrections,
    Curve,
    chain_row,
    corrections_under,
    excess_of_call,
    kind_of,
    moved_bytes,
    refusal,
    refused_row,
)
from opcost.errors import CannotMeasureError, UserError
from opcost.estimates import Estimate
from opcost.measuring.conditions import Conditions
from opcost.measuring.flags import Flag, Flags
from opcost.measuring.protocol import FULL_LOOP_S, RETRIES, MeasurementProtocol
from opcost.measuring.record import ChainRow, ComparisonRow, Excess, MeasuredCases, MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators import cache_chains
from opcost.operators.cache_chains import (
    ADDITION,
    BLOCKS,
    BRANCH,
    COARSE_SIDES,
    DEPTHWISE,
    DESIGN,
    ELEMENTWISE,
    FILTER,
    KINDS,
    LAYER_NORM,
    LINEAR,
    MATRIX,
    NORM,
    SHORTER_STREAMS,
    SIDES,
    SMALL_SIDES,
    STREAM_BYTES,
    WIDE_LINEAR,
    Chain,
    chains_of,
    layer_chains,
    streams_of,
)
from opcost.operators.counts import Case, OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.running.bench import Bench
from opcost.running.engine import LocalExecutor
from opcost.stages.cache_chains import (
    Before,
    ChainJob,
    ChainTimes,
    chain_times,
    measure_chains,
    measure_missing_chains,
)
from opcost.stages.compare import find_comparisons
from opcost.stages.measure_operators import OperatorsReport, measure_full_models, measure_operators
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS
from opcost.torch_backend.cache_chains import ChainBehindAStream
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.workload import operator_call

NOTHING_BEFORE = Before()
SHORT = MeasurementProtocol(0.5, 1.0)
GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
CHAIN = Chain(ELEMENTWISE, 8)
ALONE = Load(time_s=5e-6, power_w=400.0)
BEFORE = Load(time_s=70e-6, power_w=500.0)
LONGER_S = {ELEMENTWISE: 0.2e-6, NORM: 0.4e-6, DEPTHWISE: 0.5e-6, MATRIX: 0.7e-6, FILTER: 1.4e-6}
LAYER_LONGER_S = {LAYER_NORM: 0.3e-6, ADDITION: 1.1e-6, LINEAR: 0.6e-6, WIDE_LINEAR: 1.3e-6}
LONGER_W = 300.0
DTYPES = ("float32", "bfloat16")
RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
MODEL_S = 10e-6


@cache
def row_of(
    time_s: float, energy_j: float | None, at_reference_j: float | None = None, flags: Flags = ()
) -> MeasurementRow:
    row = simulated_row(CHAIN.behind_a_stream, conditions=GRAPHS)
    measurement = replace(
        row.measurement,
        time_s=time_s,
        time_standard_error_s=0.3,
        energy_j=energy_j,
        energy_standard_error_j=None if energy_j is None else 0.4,
        energy_at_reference_j=at_reference_j,
        temperature_c=50.0,
        executed_as="graph",
        flags=flags,
    )
    return replace(row, measurement=measurement)


def test_a_call_takes_longer_by_what_neither_it_alone_nor_what_runs_before_explains() -> None:
    found = excess_of_call(row_of(52.0, 520.0), row_of(10.0, 100.0), [row_of(1.0, 10.0), row_of(2.0, 20.0)])
    # Six blocks of 3 s and 30 J, twelve calls; what was measured once stands for six, and so does its error.
    error = math.sqrt(2 + 2 * BLOCKS**2) / (2 * BLOCKS)
    assert found.time_s == Estimate(2.0, pytest.approx(0.3 * error))
    assert found.energy_j == Estimate(20.0, pytest.approx(0.4 * error))
    # An operator that is in a block twice was measured once.
    found = excess_of_call(row_of(40.0, 400.0), row_of(10.0, 100.0), 2 * [row_of(1.0, 10.0)])
    assert found.time_s == Estimate(1.5, pytest.approx(0.3 * math.sqrt(2 + (2 * BLOCKS) ** 2) / (2 * BLOCKS)))


def test_energies_are_at_the_reference_temperature_where_all_are_known_there() -> None:
    stream, alone = row_of(1.0, 10.0, 11.0), [row_of(1.0, 10.0, 11.0)]
    referred = excess_of_call(row_of(9.0, 80.0, 90.0), stream, alone).energy_j
    mixed = excess_of_call(row_of(9.0, 80.0, 90.0), row_of(1.0, 10.0), alone).energy_j
    unknown = excess_of_call(row_of(9.0, None), stream, alone)
    assert referred is not None
    assert mixed is not None
    assert referred.value == pytest.approx((90.0 - 7 * 11.0) / 6)
    assert mixed.value == pytest.approx((80.0 - 7 * 10.0) / 6)
    assert (unknown.time_s.value, unknown.energy_j) == (pytest.approx(2.0 / 6), None)


def at(row: MeasurementRow, temperature_c: float | None) -> MeasurementRow:
    return replace(row, measurement=replace(row.measurement, temperature_c=temperature_c))


def test_how_far_temperatures_differ_is_in_the_error_of_the_energy() -> None:
    stream, alone, whole = row_of(1.0, 10.0, 11.0), row_of(1.0, 10.0, 11.0), row_of(9.0, 80.0, 90.0)
    energies_j = [excess_of_call(at(whole, celsius), stream, [alone]).energy_j for celsius in (50.0, 60.0, None)]
    alike, unlike, unknown = (energy_j.standard_error for energy_j in energies_j if energy_j is not None)
    assert alike == unknown
    assert unlike > alike


def test_a_row_says_what_it_is_of_or_why_nothing_is_known() -> None:
    whole = row_of(1.0, 1.0)
    row = chain_row(Chain(NORM, 8), whole, excess_of_call(whole, whole, [whole]))
    once = chain_row(Chain(NORM, 8, 1), whole, excess_of_call(whole, whole, [whole], 1))
    assert once.time_s == pytest.approx(-1.0)
    refused = refused_row(Chain(NORM, 8), "uneven: so", GRAPHS, "2026-11-22T00:00:00+00:00")
    assert (row.kind, row.calls, row.design, row.excess) == (NORM, 24, DESIGN, excess_of_call(whole, whole, [whole]))
    assert (once.calls, once.design) == (4, "chains 3, 1 in a row")
    # In and out: 16 images of 64 channels, 8 pixels a side, 4 bytes each.
    assert row.memory_bytes == refused.memory_bytes == 2 * 16 * 64 * 8 * 8 * 4
    assert (refused.time_s, refused.energy_j, refused.excess, refused.notes) == (None, None, None, "uneven: so")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (row_of(2.0, 3.0), ""),
        (row_of(2.0, 3.0, flags=(Flag.IMPRECISE,)), ""),
        (row_of(2.0, 3.0, flags=(Flag.DUTY_CYCLE,)), ""),
        (replace(row_of(2.0, 3.0), measurement=simulated_row(RELU).measurement), "did not run in a CUDA graph"),
        (row_of(2.0, 3.0, flags=(Flag.UNEVEN,)), "uneven"),
        (row_of(2.0, 3.0, flags=(Flag.POWER_CAPPED,)), "throttled"),
    ],
)
def test_what_cannot_be_right_is_refused(row: MeasurementRow, reason: str) -> None:
    assert reason in refusal(row)
    assert bool(refusal(row)) == bool(reason)


# Corrections


def known_row(chain: Chain, time_s: float | None, energy_j: float | None, design: str) -> ChainRow:
    if time_s is None:
        return refused_row(chain, "uneven", GRAPHS, "2026-11-22T00:00:00+00:00")
    joules = None if energy_j is None else Estimate(energy_j, 0.1)
    return replace(chain_row(chain, row_of(1.0, 1.0), Excess(Estimate(time_s, 0.2), joules)), design=design)


def of_all_sizes(
    time_s: float | None,
    energy_j: float | None = None,
    design: str | None = None,
    dtype: str = "float32",
    **conditions: object,
) -> list[ChainRow]:
    changed = replace(GRAPHS, **conditions)  # type: ignore[arg-type]
    chains = (chain for side in SIDES for chain in chains_of(side, dtype=dtype))
    rows = (known_row(chain, time_s, energy_j, design or chain.design) for chain in chains)
    return [replace(row, conditions=changed) for row in rows]


def corrections_of(rows: list[ChainRow], conditions: Conditions = GRAPHS) -> Corrections:
    found = corrections_under(rows, conditions)
    assert found is not None
    return found


def counted(name: str, memory_bytes: int, occurrences: int = 1, flop: int = 0) -> OperatorCount:
    return OperatorCount(OperatorTuple(name, (), ()), occurrences, flop, memory_bytes)


def convolution(name: str = "Conv2d", **parameters: object) -> OperatorCount:
    operator = OperatorTuple(f"torch.nn.{name}", tuple(parameters.items()))  # type: ignore[arg-type]
    return OperatorCount(operator, 1, 5, 10)


def of_function(*shapes: tuple[int, ...]) -> OperatorCount:
    inputs = tuple(TensorSpec(shape, "float32", identity=place) for place, shape in enumerate(shapes))
    return OperatorCount(OperatorTuple("torch.nn.functional.conv2d", (), inputs, mode=None), 1, 5, 10)


def added(*shapes: tuple[int, ...], name: str = "torch.add") -> OperatorCount:
    return replace(of_function(*shapes), operator=replace(of_function(*shapes).operator, operator=name), flop=0)


@pytest.mark.parametrize(
    ("count", "kind"),
    [
        (counted("torch.nn.Linear", 10, flop=5), MATRIX),
        (counted("torch.matmul", 10, flop=5), MATRIX),
        (counted("torch.nn.functional.scaled_dot_product_attention", 10, flop=5), ELEMENTWISE),
        (convolution(in_channels=64, out_channels=8, kernel_size=1), MATRIX),
        (convolution(in_channels=64, out_channels=8, kernel_size=1, groups=2), FILTER),
        (convolution(in_channels=64, out_channels=64, kernel_size=3, groups=64), DEPTHWISE),
        (convolution(in_channels=1, out_channels=64, kernel_size=3), FILTER),
        (counted("torch.nn.Conv2d", 10, flop=5), FILTER),
        (convolution("ConvTranspose2d", in_channels=64, out_channels=64, kernel_size=3, groups=64), FILTER),
        (counted("torchvision.ops.deform_conv2d", 10, flop=5), FILTER),
        (of_function((2, 64, 8, 8), (64, 1, 3, 3)), DEPTHWISE),
        (of_function((2, 64, 8, 8), (8, 64, 1, 1)), MATRIX),
        (of_function((2, 64, 8, 8), (8, 32, 1, 1)), FILTER),
        (of_function((2, 64, 8, 8), (8, 64, 3, 3)), FILTER),
        (of_function((2, 64, 8, 8)), FILTER),
        (counted("torch.nn.LayerNorm", 10), LAYER_NORM),
        (counted("torch.nn.functional.layer_norm", 10), LAYER_NORM),
        (counted("torch.nn.BatchNorm2d", 10), NORM),
        (counted("torchvision.models.convnext.LayerNorm2d", 10), LAYER_NORM),
        (counted("torch.nn.functional.normalize", 10), ELEMENTWISE),
        (counted("torch.add", 10), ELEMENTWISE),
        (added((8, 8), (8, 8)), ADDITION),
        (added((8, 8), (8, 8), name="torch.Tensor.add_"), ADDITION),
        (added((8, 8), (8,)), ELEMENTWISE),
        (added((8, 8), (8, 8), name="torch.mul"), ELEMENTWISE),
    ],
)
def test_each_operator_is_of_one_kind(count: OperatorCount, kind: str) -> None:
    assert kind_of(count) == kind


@pytest.mark.parametrize(
    ("precision", "dtypes", "expected"),
    [
        ("bf16", DTYPES, ("bfloat16", 2.0)),
        ("amp-bf16", DTYPES, ("bfloat16", 2.0)),
        ("fp16", DTYPES, ("bfloat16", 2.0)),
        ("tf32", DTYPES, ("float32", 1.0)),
        ("bf16", ("float32",), ("float32", 1.0)),
        ("fp32", ("bfloat16",), None),
    ],
)
def test_sums_in_16_bits_are_corrected_by_chains_of_16_bits(
    precision: str, dtypes: tuple[str, ...], expected: tuple[str, float] | None
) -> None:
    times_s = {"float32": 1.0, "bfloat16": 2.0}
    rows = [row for dtype in dtypes for row in of_all_sizes(times_s[dtype], dtype=dtype)]
    found = corrections_under(rows, replace(GRAPHS, precision=precision))
    assert (found and (found.dtype, found.of([counted("torch.add", 10)]).time_s.value)) == expected


@pytest.mark.parametrize(
    "field", ["device_product", "torch_version", "driver_version", "cuda_version", "cudnn_version"]
)
def test_what_was_found_holds_for_cards_of_the_kind_with_their_software(field: str) -> None:
    others = of_all_sizes(1.0, **{field: "another"})
    assert corrections_under(others, GRAPHS) is None
    for same in ({"precision": "fp32"}, {"sdpa_math": False}):
        found = corrections_under([*others, *of_all_sizes(2.0)], replace(GRAPHS, **same))  # type: ignore[arg-type]
        assert found is not None
        assert found.of([counted("torch.add", 10)]) == Excess(Estimate(2.0, 0.2), None)


@pytest.mark.parametrize(("kind", "side"), [(kind, side) for kind in KINDS for side in (8, 48, 112)])
def test_nothing_is_corrected_where_a_coarse_size_is_not_known_of_a_kind(kind: str, side: int) -> None:
    left_out = (kind, Chain(kind, side).memory_bytes)
    rows = [row for row in of_all_sizes(1.0) if (row.kind, row.memory_bytes) != left_out]
    assert corrections_under(rows, GRAPHS) is None


@pytest.mark.parametrize(
    ("missing", "points"), [((8,), 0), ((160,), 0), ((16, 24, 32, 48), 0), (SIDES, 0), ((16, 24, 32), 9)]
)
def test_a_curve_needs_its_ends_and_three_quarters_of_its_points(missing: tuple[int, ...], points: int) -> None:
    """Points that were refused often are left out of it."""
    refused = {Chain(NORM, side).memory_bytes for side in missing}
    rows = [row for row in of_all_sizes(1.0) if row.kind != NORM or row.memory_bytes not in refused]
    settled = [row for row in of_all_sizes(None) if row.kind == NORM and row.memory_bytes in refused]
    found = corrections_under([*rows, *RETRIES.runs * settled], GRAPHS)
    assert (len(found.curves[NORM].points) if found else 0) == points


def test_coarse_sizes_suffice_until_the_others_are_measured() -> None:
    known = {Chain(NORM, side).memory_bytes for side in COARSE_SIDES}
    found = corrections_of([row for row in of_all_sizes(1.0) if row.memory_bytes in known])
    assert [len(curve.points) for curve in found.curves.values()] == [7, 7, 6, 6, 6]
    # One that was tried and refused leaves a hole in the curve, as before.
    assert {size for size, _ in found.curves[NORM].points} == known


def test_what_was_refused_too_often_is_left_out_of_its_curve() -> None:
    rows = of_all_sizes(1.0)
    place = next(place for place, row in enumerate(rows) if row.memory_bytes == Chain(NORM, 48).memory_bytes)
    refused = replace(rows[place], time_s=None, time_standard_error_s=None)
    others = [*rows[:place], *rows[place + 1 :]]
    assert corrections_under([*others, *(RETRIES.runs - 1) * [refused]], GRAPHS) is None
    found = corrections_of([*others, *RETRIES.runs * [refused]])
    assert len(found.curves[refused.kind].points) == len(SIDES) - 1


@pytest.mark.parametrize("other", [Chain(NORM, 8, 1).design, "six blocks, 2"])
def test_other_chains_correct_nothing(other: str) -> None:
    others = of_all_sizes(7.0, design=other)
    assert corrections_under(others, GRAPHS) is None
    found = corrections_of([*others, *of_all_sizes(1.0)])
    assert found.of([counted("torch.add", 10)]).time_s.value == 1.0


@pytest.mark.parametrize("other", [{"cache": "cold"}, {"cache": "chained"}, {"execution": "eager"}])
def test_only_graphs_of_warm_operators_are_corrected(other: dict[str, str]) -> None:
    rows = [*of_all_sizes(1.0), *of_all_sizes(1.0, **other)]
    assert corrections_under(rows, replace(GRAPHS, **other)) is None  # type: ignore[arg-type]


def test_what_was_found_several_times_has_a_mean() -> None:
    found = corrections_of([*of_all_sizes(1.0, 5.0), *of_all_sizes(3.0, 7.0)])
    excess = found.of([counted("torch.add", 10)])
    # They differ by more than their errors of 0.2 s and 0.1 J say.
    assert excess.time_s == Estimate(pytest.approx(2.0), pytest.approx(1.0))
    assert excess.energy_j == Estimate(pytest.approx(6.0), pytest.approx(1.0))
    found = corrections_of([*of_all_sizes(1.0, 5.0), *of_all_sizes(3.0)])
    assert found.of([counted("torch.add", 1)]).energy_j is None


def behind_shorter_streams(*times_s: float) -> list[ChainRow]:
    """Return rows of chains behind each shorter stream, the shortest first."""
    return [
        known_row(chain, time_s, 10 * time_s, chain.design)
        for stream, time_s in zip(SHORTER_STREAMS, times_s, strict=True)
        for side in SMALL_SIDES
        for chain in chains_of(side, BLOCKS, stream)
    ]


@pytest.mark.parametrize(
    ("moved_bytes", "time_s"),
    [
        (1, 1.0),
        (4 * 2**21, 1.0),
        (4 * 2**22, 1.5),
        (4 * 2**23, 2.0),
        (4 * 2**25, 4.0),
        (STREAM_BYTES, 8.0),
        (10**12, 8.0),
    ],
)
def test_a_model_that_moves_less_than_the_stream_is_corrected_by_chains_behind_shorter_ones(
    moved_bytes: int, time_s: float
) -> None:
    found = corrections_of([*of_all_sizes(8.0, 80.0), *behind_shorter_streams(1.0, 2.0, 4.0)])
    in_model = found.in_model(moved_bytes)
    assert in_model is not None
    excess = in_model.of([counted("torch.add", 10)])
    assert excess.time_s.value == pytest.approx(time_s)
    assert excess.energy_j.value == pytest.approx(10 * time_s)  # type: ignore[union-attr]
    # Large tensors evict from caches themselves what a shorter stream leaves, and share the error of their chain.
    large = in_model.of([counted("torch.add", 10**9)])
    assert large.time_s == Estimate(8.0, 0.2)


@pytest.mark.parametrize("missing", [0, 5, -1])
def test_a_small_model_is_not_corrected_unless_all_shorter_streams_are_known(missing: int) -> None:
    rows = behind_shorter_streams(1.0, 2.0, 4.0)
    del rows[missing]
    found = corrections_of([*of_all_sizes(8.0), *rows])
    assert found.in_model(STREAM_BYTES) is None
    assert found.in_model(STREAM_BYTES + 1) is found


def test_shorter_streams_do_not_change_the_corrections_of_larger_models() -> None:
    both = corrections_of([*of_all_sizes(8.0), *behind_shorter_streams(1.0, 2.0, 4.0)])
    assert both.curves == corrections_of(of_all_sizes(8.0)).curves


def on_tokens(times_s: dict[str, float], dtype: str = "bfloat16") -> list[ChainRow]:
    """Return rows of the chains on tokens of some kinds."""
    return [known_row(one, times_s[one.kind], None, one.design) for one in layer_chains(dtype) if one.kind in times_s]


IN_16_BITS = of_all_sizes(1.0, dtype="bfloat16")
BF16 = replace(GRAPHS, precision="bf16")
TOKENS_OF_16_BITS = (TensorSpec((64, 512), "bfloat16"),)


def linear(inputs: int, outputs: int, dtype: str = "bfloat16") -> OperatorCount:
    """Return a Linear as block 0 counts it, on inputs of 16 bits, as under autocast even if its weights have more."""
    parameters = (("in_features", inputs), ("out_features", outputs), ("dtype", dtype))
    operator = OperatorTuple("torch.nn.Linear", parameters[: 3 if dtype == "bfloat16" else 2], TOKENS_OF_16_BITS)
    return OperatorCount(operator, 1, 5, 10, outputs=TensorSpec((64, outputs), "bfloat16"))


def test_products_are_looked_up_without_their_weights() -> None:
    image, weights = TensorSpec((2, 4), "float32"), TensorSpec((1000,), "float32", identity=1)
    output = TensorSpec((3,), "bfloat16")
    operator = OperatorTuple("torch.nn.functional.linear", (), (image, weights), mode=None)
    product = OperatorCount(operator, 1, 50, 9999, outputs=output)
    assert moved_bytes(product) == 2 * 4 * 4 + 3 * 2
    added = replace(operator, operator="torch.addmm", inputs=(weights, image, replace(weights, identity=2)))
    assert moved_bytes(replace(product, operator=added)) == 2 * 4 * 4 + 3 * 2
    # Both factors of a product of activations are moved.
    both = replace(operator, operator="torch.matmul")
    assert moved_bytes(replace(product, operator=both)) == 2 * 4 * 4 + 1000 * 4 + 3 * 2
    assert moved_bytes(replace(product, flop=0)) == 9999
    assert moved_bytes(counted("torch.nn.Conv2d", 77, flop=5)) == 77


@pytest.mark.parametrize(
    ("count", "time_s"),
    [
        (linear(8, 8), 1.0),
        (linear(64, 64), 1.0),
        (linear(1024, 1024), 3.0),
        (linear(512, 2048), 3.0),
        # In the middle of the logarithms.
        (linear(256, 256), 2.0),
        (linear(3072, 3072), 9.0),
        (linear(50_000, 4096), 9.0),
        # Weights in float32 have twice the bytes.
        (linear(1024, 1024, "float32"), 3.0 + 6.0 * math.log(2) / math.log(9)),
        (counted("torch.matmul", 10, flop=5), 1.0),
        (convolution(in_channels=1024, out_channels=1024, kernel_size=1), 1.0),
    ],
)
def test_a_product_is_corrected_by_chains_of_matrices_of_its_size(count: OperatorCount, time_s: float) -> None:
    found = corrections_of([*IN_16_BITS, *on_tokens({LINEAR: 3.0, WIDE_LINEAR: 9.0})], BF16)
    assert found.of([count]).time_s.value == pytest.approx(time_s)


@pytest.mark.parametrize(
    ("name", "places", "time_s"),
    [("torch.nn.functional.linear", (0, 1), 3.0), ("torch.addmm", (2, 0, 1), 3.0), ("torch.bmm", (0, 1), 1.0)],
)
def test_the_matrix_of_a_function_is_one_of_its_inputs(name: str, places: tuple[int, ...], time_s: float) -> None:
    tensors = [
        TensorSpec(shape, "bfloat16", identity=place) for place, shape in enumerate(((8, 9), (1024, 1024), (9,)))
    ]
    operator = OperatorTuple(name, (), tuple(tensors[place] for place in places), mode=None)
    count = OperatorCount(operator, 1, 50, 9999, outputs=TensorSpec((3,), "float32"))
    found = corrections_of([*IN_16_BITS, *on_tokens({LINEAR: 3.0, WIDE_LINEAR: 9.0})], BF16)
    assert found.of([count]).time_s.value == pytest.approx(time_s)


def test_operators_on_tokens_have_the_correction_of_images_until_theirs_is_known() -> None:
    counts = [added((8, 8), (8, 8)), counted("torch.nn.LayerNorm", 10), linear(1024, 1024)]
    times_s = dict(zip((ADDITION, LAYER_NORM, LINEAR), (5.0, 6.0, 7.0), strict=True))
    half = [row for row in on_tokens(times_s) if row.memory_bytes != layer_chains("bfloat16")[0].memory_bytes]
    # Without its smallest size a curve is none: here that of norms and of products.
    for rows, expected in (([], [1, 1, 1]), (half, [5, 1, 1]), (on_tokens(times_s), [5, 6, 7])):
        found = corrections_of([*IN_16_BITS, *rows], BF16)
        assert [found.of([count]).time_s.value for count in counts] == expected


@pytest.mark.parametrize(
    ("moved_bytes", "time_s"), [(1, 1.0), (4 * 2**25, 4.0), (4 * int(2**25.5), 5.0), (STREAM_BYTES, 6.0)]
)
def test_in_small_models_calls_on_tokens_have_their_stand_ins_correction_behind_shorter_streams(
    moved_bytes: int, time_s: float
) -> None:
    tokens = on_tokens({LAYER_NORM: 6.0, ADDITION: 6.0}, "float32")
    found = corrections_under([*of_all_sizes(8.0), *behind_shorter_streams(1.0, 2.0, 4.0), *tokens], GRAPHS)
    in_model = None if found is None else found.in_model(moved_bytes)
    assert in_model is not None
    for count in (counted("torch.nn.LayerNorm", 10), added((8, 8), (8, 8))):
        assert in_model.of([count]).time_s.value == pytest.approx(time_s, rel=1e-6)
    # Large tensors evict from caches themselves what a shorter stream leaves.
    assert in_model.of([counted("torch.nn.LayerNorm", 10**9)]).time_s.value == 6.0


@pytest.mark.parametrize(
    ("known", "missing"),
    [((), (LAYER_NORM, ADDITION, LINEAR, WIDE_LINEAR)), ((LAYER_NORM, LINEAR), (ADDITION, WIDE_LINEAR))],
)
def test_kinds_that_a_stand_in_corrects_are_named(known: tuple[str, ...], missing: tuple[str, ...]) -> None:
    counts = [added((8, 8), (8, 8)), counted("torch.nn.LayerNorm", 10), linear(1024, 1024)]
    found = corrections_of([*IN_16_BITS, *on_tokens(dict.fromkeys(known, 2.0))], BF16)
    assert found.missing_kinds(counts) == missing
    assert found.missing_kinds([counted("torch.nn.ReLU", 10), replace(counts[0], memory_bytes=0)]) == ()
    # Products without a matrix of weights, and 1 x 1 convolutions, need no chains of large ones.
    products = [counted("torch.bmm", 10, flop=5), convolution(in_channels=64, out_channels=8, kernel_size=1)]
    assert found.missing_kinds(products) == ()
    # In fp32 no chain of large matrices is missing.
    assert corrections_of(of_all_sizes(1.0)).missing_kinds(counts) == (LAYER_NORM, ADDITION)


def excess_of(time_s: float, energy_j: float | None = None) -> Excess:
    return Excess(Estimate(time_s, 0.1), None if energy_j is None else Estimate(energy_j, 0.0))


CURVE = Curve(((100, excess_of(1.0, 10.0)), (10_000, excess_of(-3.0, 30.0))))
CORRECTIONS = Corrections(dict.fromkeys(KINDS, CURVE))


@pytest.mark.parametrize(
    ("memory_bytes", "time_s"), [(1, 1.0), (100, 1.0), (1000, -1.0), (10_000, -3.0), (10**9, -3.0)]
)
def test_between_sizes_it_is_linear_in_the_logarithm_and_beyond_them_as_at_the_last(
    memory_bytes: int, time_s: float
) -> None:
    assert CORRECTIONS.of([counted("torch.add", memory_bytes)]).time_s.value == pytest.approx(time_s)


def test_calls_that_rest_on_the_same_chains_share_their_errors() -> None:
    calls = [counted("torch.add", 1000, 4), counted("torch.mul", 1000, 2), counted("torch.nn.LayerNorm", 50, 3)]
    excess = CORRECTIONS.of(calls)
    assert excess.time_s.value == pytest.approx(6 * -1.0 + 3 * 1.0)
    # Six calls rest on two points by halves, three of another kind on one.
    assert excess.time_s.standard_error == pytest.approx(0.1 * math.sqrt(3**2 + 3**2 + 3**2))
    assert excess.energy_j.value == pytest.approx(6 * 20.0 + 3 * 10.0)  # type: ignore[union-attr]


def test_a_product_that_was_measured_with_weights_from_memory_needs_no_kind() -> None:
    count = replace(linear(1024, 1024, "float32"), occurrences=3)
    of_weights = replace(CORRECTIONS, of_weights={count.operator: excess_of(7.0, 70.0)})
    excess = of_weights.of([count, counted("torch.add", 100, 2)])
    # Both have the code of the smallest elementwise operator; its point is shared.
    assert excess.time_s.value == pytest.approx(3 * (7.0 + 1.0) + 2 * 1.0)
    assert excess.time_s.standard_error == pytest.approx(0.1 * math.sqrt(3**2 + 5**2))
    assert excess.energy_j.value == pytest.approx(3 * (70.0 + 10.0) + 2 * 10.0)  # type: ignore[union-attr]
    in_16_bits = replace(CORRECTIONS, dtype="bfloat16")
    assert in_16_bits.missing_kinds([count]) == (LINEAR, WIDE_LINEAR)
    assert replace(in_16_bits, of_weights=of_weights.of_weights).missing_kinds([count]) == ()


def test_what_computes_nothing_takes_no_longer() -> None:
    assert CORRECTIONS.of([counted("torch.nn.Dropout", 0, 5)]).time_s.value == 0.0
    assert CORRECTIONS.of([]).time_s == Estimate(0.0, 0.0)


# The stage


class Graphs:
    """A bench whose rows say that they ran in a CUDA graph."""

    def __init__(self, bench: Bench, flags: Flags = ()) -> None:
        self._bench = bench
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        return getattr(self._bench, name)

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        ((_, measured),) = self._bench.measure(case, setting, protocol, log_name)
        return ((case, replace(measured, executed_as="graph", flags=self._flags)),)


def load_of(chain: Chain) -> Load:
    """Return a chain whose elementwise calls take longer by so much, and those of its kind by so much."""
    longer_s = chain.calls * sum(LONGER_S[kind] for kind in {ELEMENTWISE, chain.kind})
    alone = chain.blocks * len(chain.operators)
    return _load(alone, longer_s)


def layer_loads(chain: Chain) -> dict[OperatorTuple, Load]:
    """Return the loads of a chain on tokens, whose base takes as long as 24 calls alone, and of its parts."""
    longer_s = chain.calls * LAYER_LONGER_S[chain.kind]
    return {
        chain.subtracted: _load(chain.calls, 0.0),
        **dict.fromkeys(chain.own, ALONE),
        chain.behind_a_stream: _load(2 * chain.calls, longer_s),
    }


def _load(alone: int, longer_s: float) -> Load:
    time_s = BEFORE.time_s + alone * ALONE.time_s + longer_s
    energy_j = BEFORE.energy_j + alone * ALONE.energy_j + LONGER_W * longer_s
    return Load(time_s=time_s, power_w=energy_j / time_s)


def campaign_in(folder: Path, blocks: int = BLOCKS) -> SimulatedCampaign:
    loads = {RELU: ALONE}
    behind = [(side, stream) for side in SIDES for stream in streams_of(side)]
    for (side, stream), dtype in itertools.product(behind, DTYPES):
        for chain in chains_of(side, blocks, stream, dtype):
            parts = {**dict.fromkeys(chain.operators, ALONE), chain.before: BEFORE}
            loads |= {**parts, chain.behind_a_stream: load_of(chain)}
    for dtype in DTYPES:
        for chain in layer_chains(dtype, blocks):
            loads |= layer_loads(chain)
    campaign = SimulatedCampaign(folder, loads, conditions=GRAPHS)
    campaign.machine.device = Device(white_noise_w=1.0, warming_time_s=0.1)
    return campaign


def found_in(
    campaign: SimulatedCampaign, flags: Flags = (), blocks: int = BLOCKS, progress: RecordedProgress | None = None
) -> list[ChainRow]:
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        graphs = cast("Bench", Graphs(bench, flags))
        job = ChainJob(graphs, chains_of(8, blocks), campaign.database.calls_in_chains)
        return measure_chains(LocalExecutor(graphs), {"": job}, progress or RecordedProgress())


@pytest.fixture
def one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    use_sides(monkeypatch, 8)
    monkeypatch.setattr("opcost.stages.cache_chains.FIRST_LOOK_RATIO", 0.0)


def use_sides(monkeypatch: pytest.MonkeyPatch, *sides: int) -> None:
    """Measure chains on images of these sides only, behind the full stream, and none on tokens."""
    all_missing = corrections.missing_chains

    def missing_on_images(rows: Sequence[ChainRow], dtype: str = "float32") -> list[Chain]:
        return [chain for chain in all_missing(rows, dtype) if chain.kind in KINDS]

    for module in ("opcost.comparing.corrections", "opcost.stages.cache_chains"):
        monkeypatch.setattr(f"{module}.missing_chains", missing_on_images)
    monkeypatch.setattr(corrections, "SIDES", sides)
    monkeypatch.setattr(cache_chains, "SHORTER_STREAMS", ())


def measure_missing(
    campaign: SimulatedCampaign, flags: Flags = (), before: Before = NOTHING_BEFORE
) -> RecordedProgress:
    progress = RecordedProgress()
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        measure_missing_chains(cast("Bench", Graphs(bench, flags)), campaign.database, progress, before={"": before})
    return progress


def built_for(side: int, blocks: int = BLOCKS) -> list[OperatorTuple]:
    """Return what is measured for images of one side, each once."""
    return list(dict.fromkeys(part for chain in chains_of(side, blocks) for part in chain.parts))


@pytest.mark.parametrize("blocks", [BLOCKS, 2])
def test_declared_differences_are_found_kind_by_kind_and_kept(tmp_path: Path, blocks: int) -> None:
    campaign = campaign_in(tmp_path, blocks)
    found = found_in(campaign, blocks=blocks)
    assert {(row.calls, row.design) for row in found} == {(4 * blocks, f"chains 3, {blocks} in a row")}
    assert [row.kind for row in found] == list(KINDS)
    for row in found:
        assert abs(row.time_s - LONGER_S[row.kind]) < 3 * row.time_standard_error_s
        assert row.time_standard_error_s < 0.1e-6 * BLOCKS / blocks
        assert row.energy_j is not None
        assert row.energy_standard_error_j is not None
        assert abs(row.energy_j - LONGER_W * LONGER_S[row.kind]) < 3 * row.energy_standard_error_j
    assert campaign.database.calls_in_chains.rows() == found
    assert campaign.built == built_for(8, blocks)


@pytest.mark.parametrize("flag", [Flag.UNEVEN, Flag.OTHER_PROCESS, None])
def test_what_is_refused_or_fails_is_kept_as_such_and_costs_no_more(tmp_path: Path, flag: Flag | None) -> None:
    tried = []

    def fail(operator: OperatorTuple) -> None:
        tried.append(operator)
        if flag is None:
            raise CannotMeasureError("silent for 120 s")

    campaign, progress = campaign_in(tmp_path), RecordedProgress()
    campaign.before = fail
    found = found_in(campaign, (flag,) if flag else (), progress=progress)
    reason = f"torch.nn.LeakyReLU: {flag.meaning if flag else 'silent for 120 s'}"
    assert [(row.time_s, row.notes) for row in found] == len(KINDS) * [(None, reason)]
    assert {row.design for row in found} == {DESIGN}
    assert campaign.database.calls_in_chains.rows() == found
    # No other part of these chains is measured.
    assert progress.results == ["0.005000 ms  2.000 mJ" if flag else "failed: silent for 120 s"]
    assert tried == built_for(8)[:1]


def test_what_is_refused_is_tried_three_times(tmp_path: Path, one_size: None) -> None:
    campaign = campaign_in(tmp_path)
    for tries in (1, 2, 3, 3):
        measure_missing(campaign, (Flag.UNEVEN,))
        assert campaign.built == tries * built_for(8)[:1]


def test_each_size_is_found_out_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = campaign_in(tmp_path)
    for sides, measured, text in (((8,), 16, "about 10 s"), ((8, 16, 24), 24, "about 15 s"), ((8, 16, 24), 0, "")):
        use_sides(monkeypatch, *sides)
        progress = measure_missing(campaign, before=Before(measurement_s=10 / 16))
        assert (progress.items, progress.ended) == (([measured], 1) if measured else ([], 0))
        assert text in caplog.text
    found = [(row.kind, row.memory_bytes) for row in campaign.database.calls_in_chains.rows()]
    assert found == [(chain.kind, chain.memory_bytes) for side in (8, 16, 24) for chain in chains_of(side)]
    assert caplog.text.count("measuring cache corrections (once per card)") == 2


def test_a_run_ends_within_its_budget_and_the_next_one_goes_on(
    tmp_path: Path, one_size: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.stages.cache_chains.BUDGET_S", 1e-9)
    campaign = campaign_in(tmp_path)
    kinds = []
    for _ in KINDS:
        measure_missing(campaign)
        kinds.append([row.kind for row in campaign.database.calls_in_chains.rows()])
    assert kinds == [list(KINDS[:number]) for number in range(1, 1 + len(KINDS))]
    assert "cache corrections: 1 of 5 are measured; the next run measures the others" in caplog.text


def test_a_run_that_measures_nothing_else_goes_on_with_what_is_missing(tmp_path: Path, one_size: None) -> None:
    def fail(operator: OperatorTuple) -> None:
        if operator == Chain(NORM, 8).behind_a_stream:
            raise CannotMeasureError("out of memory")

    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    campaign.before = fail
    measure_model(campaign)
    # The cases of the others were measured; only norms are tried again.
    table = campaign.database.calls_in_chains
    assert [(row.kind, row.time_s is None) for row in table.rows()] == [(kind, kind == NORM) for kind in KINDS]
    assert "out of memory" in table.rows()[1].notes
    campaign.before = lambda operator: None
    measure_model(campaign)
    assert campaign.built.count(RELU) == 1
    assert {row.kind for row in table.rows() if row.time_s is not None} == set(KINDS)


@pytest.mark.parametrize(
    ("device", "setting"),
    [
        ("cuda:0", Setting(execution="eager")),
        ("cuda:0", Setting(cache="cold")),
        ("cpu", Setting(execution="eager")),
        ("cpu", Setting()),
    ],
)
def test_it_is_not_found_out_where_it_does_not_hold(tmp_path: Path, device: str, setting: Setting) -> None:
    campaign = replace(campaign_in(tmp_path), device=device)
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        measure_missing_chains(bench, campaign.database, RecordedProgress(), setting)
    assert campaign.built == []


def measure_model(campaign: SimulatedCampaign, dry_run: bool = False) -> list[OperatorsReport]:
    @contextmanager
    def open_graphs(device: str | None, database: Database, with_meter: bool) -> Iterator[Bench]:
        with campaign.open_apparatus(device, database, with_meter) as bench:
            yield cast("Bench", Graphs(bench))

    return measure_operators(campaign.request(dry_run=dry_run), lambda _: SHORT, open_graphs, RecordedProgress())


@pytest.mark.parametrize("is_first_look", [False, True])
def test_block_2_measures_them_after_its_operators_but_a_first_look_at_a_card_leaves_them_to_the_next_run(
    tmp_path: Path,
    one_size: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_first_look: bool,
) -> None:
    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    if is_first_look:
        monkeypatch.setattr("opcost.stages.cache_chains.FIRST_LOOK_RATIO", 0.5)
        (plan,) = measure_model(campaign, dry_run=True)
        assert ("cache_corrections" in plan.besides_parts_s, plan.later_s) == (False, pytest.approx(16, rel=0.5))
        measure_model(campaign)
        assert campaign.built == [RELU]
        assert "not measured yet: the same command again measures them in about " in caplog.text
    (plan,) = measure_model(campaign, dry_run=True)
    assert plan.besides_parts_s["cache_corrections"] == pytest.approx(16, rel=0.6)
    assert plan.later_s == 0.0
    for _ in range(2):
        measure_model(campaign)
        assert campaign.built == [RELU, *built_for(8)]


def compared(campaign: SimulatedCampaign) -> ComparisonRow:
    ((row,),) = (report.comparisons for report in compare_models(campaign.request()))
    return row


def test_more_than_the_budget_is_left_to_the_next_run(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        times = [
            chain_times(cast("Bench", Graphs(bench)), campaign.database, before=Before(expected_s, one_s))
            for expected_s, one_s in ((0.0, 0.5), (60.0, 2.0), (30.0, 2.0))
        ]
    quick, slow, first_look = times
    assert quick == ChainTimes(108.0, 0.0, 108.0)
    assert slow == ChainTimes(200.0, 232.0, 432.0)
    assert first_look == ChainTimes(0.0, 432.0, 432.0)


def test_a_campaign_is_not_lost_by_what_it_finds_out_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, one_size: None
) -> None:
    def fail(operator: OperatorTuple) -> None:
        if operator == Chain(ELEMENTWISE, 8).before:
            raise UserError("three processes ended")

    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    campaign.before = fail
    (report,) = measure_model(campaign)
    assert report.measured == 1
    assert ": three processes ended" in caplog.text


def test_the_comparison_corrects_by_what_the_database_knows(tmp_path: Path, one_size: None) -> None:
    campaign, config = measured_with_whole(tmp_path)
    counts = COUNTS.read(config)
    table = campaign.database.calls_in_chains
    assert reported_of_caches(campaign) == [RemarkKind.UNCORRECTED_UNKNOWN]
    table.append_missing(of_all_sizes(2e-6, 3e-4))
    assert reported_of_caches(campaign) == []
    row = compared(campaign)
    assert (row.correction_time_s, row.correction_energy_j) == (pytest.approx(6e-6), pytest.approx(9e-4))
    errors = (row.correction_time_standard_error_s, row.correction_energy_standard_error_j)
    assert errors == (pytest.approx(0.6), pytest.approx(0.3))
    # Models that move less than the stream have corrections of their own.
    write_both(config, replace(counts, total_memory_bytes=STREAM_BYTES // 2))
    assert reported_of_caches(campaign) == [RemarkKind.UNCORRECTED_SMALL]
    row = compared(campaign)
    assert (row.correction_time_s, row.correction_energy_j) == (None, None)
    table.append_missing(behind_shorter_streams(0.5e-6, 0.7e-6, 1e-6))
    assert reported_of_caches(campaign) == []
    row = compared(campaign)
    assert row.correction_time_s == pytest.approx(3e-6)


def measured_with_whole(
    folder: Path, precision: str = "torch-default", operator: OperatorTuple = RELU, from_memory: Load = ALONE
) -> tuple[SimulatedCampaign, ModelConfig]:
    """Return a campaign with the rows of a model that moves more than the stream, without those of chains."""
    campaign = campaign_in(folder)
    campaign.loads_from_memory = {operator: from_memory}
    campaign.loads = {**campaign.loads, operator: ALONE}
    config = campaign.add_model("a", {operator: 3}, precision=precision)
    counts = COUNTS.read(config)
    write_both(config, replace(counts, total_memory_bytes=STREAM_BYTES + 1))
    campaign.loads = {**campaign.loads, counts.model: Load(time_s=MODEL_S, power_w=400.0)}
    measure_model(campaign)
    measure_full_models(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    campaign.database.calls_in_chains.path.unlink()
    return campaign, config


# Weights from memory


def test_a_sum_of_calls_without_chains_of_their_kind_says_so(tmp_path: Path, one_size: None) -> None:
    campaign, config = measured_with_whole(tmp_path, operator=added((4, 4), (4, 4)).operator)
    counts = COUNTS.read(config)
    without_products = tuple(replace(count, flop=0) for count in counts.counts)
    write_both(config, replace(counts, counts=without_products, total_flop=0))
    kind, table = RemarkKind.CORRECTED_BY_OTHER_KINDS, campaign.database.calls_in_chains
    for rows, expected in (
        (of_all_sizes(1e-6, 1e-4), {"kinds": "addition"}),
        (on_tokens({ADDITION: 2e-6}, "float32"), None),
    ):
        table.append_missing(rows)
        (model,) = find_comparisons(campaign.request())
        remarks = {remark.kind: remark.figures for one in model.results for remark in one.remarks}
        assert remarks.get(kind) == expected


MEGABYTE = linear(512, 512, "float32").operator
FROM_MEMORY = Load(time_s=6e-6, power_w=500.0)


def campaign_with_a_product(folder: Path) -> SimulatedCampaign:
    campaign = campaign_in(folder)
    campaign.loads = {**campaign.loads, MEGABYTE: ALONE}
    return campaign


def large(campaign: SimulatedCampaign, name: str, operators: Mapping[OperatorTuple, int]) -> ModelConfig:
    """Add a model that moves more than the stream."""
    config = campaign.add_model(name, operators)
    write_both(config, replace(COUNTS.read(config), total_memory_bytes=STREAM_BYTES + 1))
    return config


@pytest.mark.parametrize(
    ("device", "setting", "is_measured"),
    [
        ("cuda:0", USUAL, True),
        ("cuda:0", Setting(execution="eager"), False),
        ("cuda:0", Setting(cache="chained"), False),
        ("cpu", USUAL, False),
    ],
)
def test_products_with_a_matrix_are_measured_with_weights_from_memory_after_all_others(
    tmp_path: Path, one_size: None, device: str, setting: Setting, is_measured: bool
) -> None:
    campaign = campaign_with_a_product(tmp_path)
    campaign.device = device
    campaign.loads = {**campaign.loads, linear(8, 8).operator: ALONE}
    large(campaign, "a", {MEGABYTE: 2, linear(8, 8).operator: 1})
    large(campaign, "b", {MEGABYTE: 1, RELU: 1})
    request = replace(campaign.request(), setting=setting)
    reports = measure_operators(request, lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    assert [(report.wanted, report.measured) for report in reports] == [(2, 2), (2, 1)]
    built = [MEGABYTE, linear(8, 8).operator, RELU, *([MEGABYTE] if is_measured else [])]
    assert campaign.built[: len(built)] == built
    caches = [one.cache for one in campaign.settings[: len(built)]]
    assert caches == [*(3 * [setting.cache]), *(["cold"] if is_measured else [])]
    assert campaign.built.count(MEGABYTE) == 1 + is_measured


def test_a_model_that_may_keep_its_weights_in_caches_is_measured_once(tmp_path: Path, one_size: None) -> None:
    campaign = campaign_with_a_product(tmp_path)
    campaign.add_model("a", {MEGABYTE: 1})
    measure_model(campaign)
    assert campaign.built.count(MEGABYTE) == 1


def of_memory(campaign: SimulatedCampaign) -> list[tuple[str | None, str]]:
    """Return the boards and the cache modes of the rows of the product."""
    rows = campaign.database.operator_measurements.rows()
    products = [row for row in rows if row.operator == MEGABYTE.operator]
    return [(row.circumstances.device_uuid, row.conditions.cache) for row in products]


def test_a_model_is_done_after_its_products_from_memory(tmp_path: Path, one_size: None) -> None:
    campaign = campaign_with_a_product(tmp_path)
    first, second = large(campaign, "a", {MEGABYTE: 1}), large(campaign, "b", {RELU: 1})
    full = MeasurementProtocol(0.5, FULL_LOOP_S)

    def stop(_: OperatorTuple) -> None:
        if campaign.settings[-1].cache == "cold":
            raise KeyboardInterrupt

    campaign.before = stop
    with pytest.raises(KeyboardInterrupt):
        measure_operators(campaign.request(), lambda _: full, campaign.open_apparatus, RecordedProgress())
    assert ["done: true" in config.path.read_text() for config in (first, second)] == [False, True]
    campaign.before = lambda _: None
    measure_operators(campaign.request(), lambda _: full, campaign.open_apparatus, RecordedProgress())
    assert "done: true" in first.path.read_text()
    assert [cache for _, cache in of_memory(campaign)] == ["warm", "cold"]


def test_a_product_is_corrected_by_its_own_difference_and_for_its_code(tmp_path: Path, one_size: None) -> None:
    campaign, config = measured_with_whole(tmp_path, operator=MEGABYTE, from_memory=FROM_MEMORY)
    campaign.database.calls_in_chains.append_missing(of_all_sizes(2e-7, 1e-5))
    row = compared(campaign)
    longer_s, more_j = FROM_MEMORY.time_s - ALONE.time_s, FROM_MEMORY.energy_j - ALONE.energy_j
    assert row.correction_time_s == pytest.approx(3 * (longer_s + 2e-7), rel=0.02)
    assert row.correction_energy_j == pytest.approx(3 * (more_j + 1e-5), rel=0.05)
    # A smaller model may keep its weights in caches.
    write_both(config, replace(COUNTS.read(config), total_memory_bytes=STREAM_BYTES // 2))
    campaign.database.calls_in_chains.append_missing(behind_shorter_streams(1e-7, 1e-7, 1e-7))
    row = compared(campaign)
    assert row.correction_time_s == pytest.approx(3 * 1.5e-7, rel=0.5)


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16", "amp-bf16"])
def test_a_correction_by_another_dtype_says_so(precision: str, tmp_path: Path, one_size: None) -> None:
    campaign, _ = measured_with_whole(tmp_path, precision)
    other = [RemarkKind.CORRECTED_BY_OTHER_DTYPE]
    campaign.database.calls_in_chains.append_missing(of_all_sizes(1e-6, 1e-4))
    assert reported_of_caches(campaign) == ([] if precision == "tf32" else other)
    campaign.database.calls_in_chains.append_missing(of_all_sizes(2e-6, 3e-4, dtype="bfloat16"))
    assert reported_of_caches(campaign) == (other if precision == "fp16" else [])


def reported_of_caches(campaign: SimulatedCampaign) -> list[RemarkKind]:
    (model,) = find_comparisons(campaign.request())
    kinds = (RemarkKind.UNCORRECTED_SMALL, RemarkKind.UNCORRECTED_UNKNOWN, RemarkKind.CORRECTED_BY_OTHER_DTYPE)
    return [remark.kind for one in model.results for remark in one.remarks if remark.kind in kinds]


# The operators


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_chains_are_what_block_0_would_count(kind: str, dtype: str) -> None:
    chain = Chain(kind, 8, dtype=dtype)
    function, args, kwargs = operator_call(chain.behind_a_stream, "cpu")
    assert isinstance(function, ChainBehindAStream)
    with torch.inference_mode():
        output = function(*args, **kwargs)
    assert isinstance(output, torch.Tensor)
    assert output.shape == args[1].shape  # type: ignore[attr-defined]
    found = {count.operator: count for count in capture(ReadyModel(function, args), chain.behind_a_stream).counts}
    modules = {operator: count.occurrences for operator, count in found.items() if not operator.is_function}
    assert modules == {operator: BLOCKS * n for operator, n in Counter(chain.operators).items()}
    kinds = {kind_of(found[operator]) for operator in chain.operators}
    assert kinds == {ELEMENTWISE, kind}
    elementwise = found[Chain(ELEMENTWISE, 8, dtype=dtype).operators[0]]
    assert elementwise.memory_bytes == chain.memory_bytes


@pytest.mark.parametrize(("side", "dtype"), [(8, "float32"), (24, "float32"), (8, "bfloat16")])
@pytest.mark.parametrize("kind", [*KINDS, LAYER_NORM, ADDITION, LINEAR, BRANCH])
def test_values_stay_of_a_size_along_a_chain(kind: str, side: int, dtype: str) -> None:
    torch.manual_seed(0)
    function, args, _ = operator_call(Chain(kind, side, stream_elements=1, dtype=dtype).behind_a_stream, "cpu")
    assert isinstance(function, ChainBehindAStream)
    value = args[1]
    assert isinstance(value, torch.Tensor)
    with torch.inference_mode():
        for module in function.chain:
            value = module(value)
            assert 0.15 < value.std() < 4
    # bfloat16 has 256 values between a power of two and the next.
    assert value.unique().numel() > (0.4 * value.numel() if dtype == "float32" else 256)


def test_the_stream_is_read_before_a_copy_is_made_and_no_kernel_runs_twice_in_a_row() -> None:
    function, args, _ = operator_call(Chain(ELEMENTWISE, 8).before, "cpu")
    with torch.inference_mode():
        output = function(*args)
    assert torch.equal(output, args[1])  # type: ignore[arg-type]
    counts = capture(ReadyModel(function, args), Chain(ELEMENTWISE, 8).before).counts  # type: ignore[arg-type]
    assert counts[0].memory_bytes >= STREAM_BYTES
    for chain in chains_of(8):
        assert all(one != other for one, other in itertools.pairwise((*chain.operators, *chain.operators)))
