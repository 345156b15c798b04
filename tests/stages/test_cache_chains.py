"""Cache corrections, from chains of operators: operators in chains behind a stream, beside each of them in a loop."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress, SimulatedCampaign, compare_models, write_both
from simulated_machine import SIMULATED_CONDITIONS, Load

from opcost.comparing.comparison import RemarkKind
from opcost.comparing.corrections import (
    Corrections,
    Curve,
    corrections_under,
    kind_of,
    moved_bytes,
)
from opcost.estimates import Estimate
from opcost.measuring.conditions import Conditions
from opcost.measuring.protocol import RETRIES, MeasurementProtocol
from opcost.measuring.record import ChainRow, ComparisonRow, Excess
from opcost.operators.cache_chains import (
    ADDITION,
    BLOCKS,
    COARSE_SIDES,
    DEPTHWISE,
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
)
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.stages.compare import find_comparisons
from opcost.stages.measure_operators import measure_full_models, measure_operators
from opcost.storage.configs import ModelConfig
from opcost.storage.model_counts import COUNTS

SHORT = MeasurementProtocol(0.5, 1.0)
GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
ALONE = Load(time_s=5e-6, power_w=400.0)
DTYPES = ("float32", "bfloat16")
RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
MODEL_S = 10e-6


def known_row(chain: Chain, time_s: float | None, energy_j: float | None, design: str) -> ChainRow:
    return ChainRow(
        kind=chain.kind,
        memory_bytes=chain.memory_bytes,
        calls=24,
        time_s=time_s,
        time_standard_error_s=None if time_s is None else 0.2,
        energy_j=energy_j,
        energy_standard_error_j=None if energy_j is None else 0.1,
        measured_at="2026-11-22T00:00:00+00:00",
        notes="uneven" if time_s is None else "",
        design=design,
        conditions=GRAPHS,
        device_uuid=None if time_s is None else "GPU-1",
    )


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


# The comparison


def compared(campaign: SimulatedCampaign) -> ComparisonRow:
    ((row,),) = (report.comparisons for report in compare_models(campaign.request()))
    return row


def test_the_comparison_corrects_by_what_the_database_knows(tmp_path: Path) -> None:
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
    assert reported_of_caches(campaign) == [RemarkKind.UNCORRECTED_UNKNOWN]
    row = compared(campaign)
    assert (row.correction_time_s, row.correction_energy_j) == (None, None)
    table.append_missing(behind_shorter_streams(0.5e-6, 0.7e-6, 1e-6))
    assert reported_of_caches(campaign) == []
    row = compared(campaign)
    assert row.correction_time_s == pytest.approx(3e-6)


def measured_with_whole(
    folder: Path, precision: str = "torch-default", operator: OperatorTuple = RELU
) -> tuple[SimulatedCampaign, ModelConfig]:
    """Return a campaign with the rows of a model that moves more than the stream, and of its whole."""
    campaign = SimulatedCampaign(folder, {operator: ALONE}, conditions=GRAPHS)
    config = campaign.add_model("a", {operator: 3}, precision=precision)
    counts = COUNTS.read(config)
    write_both(config, replace(counts, total_memory_bytes=STREAM_BYTES + 1))
    campaign.loads = {**campaign.loads, counts.model: Load(time_s=MODEL_S, power_w=400.0)}
    measure_operators(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    measure_full_models(campaign.request(), lambda _: SHORT, campaign.open_apparatus, RecordedProgress())
    return campaign, config


def test_a_sum_of_calls_without_chains_of_their_kind_says_so(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16", "amp-bf16"])
def test_a_correction_by_another_dtype_says_so(precision: str, tmp_path: Path) -> None:
    campaign, _ = measured_with_whole(tmp_path, precision)
    other = [RemarkKind.CORRECTED_BY_OTHER_DTYPE]
    campaign.database.calls_in_chains.append_missing(of_all_sizes(1e-6, 1e-4))
    assert reported_of_caches(campaign) == ([] if precision == "tf32" else other)
    campaign.database.calls_in_chains.append_missing(of_all_sizes(2e-6, 3e-4, dtype="bfloat16"))
    assert reported_of_caches(campaign) == (other if precision == "fp16" else [])


def reported_of_caches(campaign: SimulatedCampaign) -> list[RemarkKind]:
    (model,) = find_comparisons(campaign.request())
    kinds = (RemarkKind.UNCORRECTED_UNKNOWN, RemarkKind.CORRECTED_BY_OTHER_DTYPE)
    return [remark.kind for one in model.results for remark in one.remarks if remark.kind in kinds]
