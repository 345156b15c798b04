import math
from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.comparison import Remark, RemarkKind
from opcost.comparing.corrections import Piece
from opcost.comparing.model_result import USUAL_RUNS, Evidence, OperatorRuns
from opcost.comparing.operator_costs import TupleFlag
from opcost.estimates import Estimate
from opcost.measuring.conditions import CACHES
from opcost.measuring.flags import Flag
from opcost.measuring.record import ChainRow
from opcost.operators.cache_chains import SIDES, STREAM_BYTES, chains_of
from opcost.operators.counts import OperationWithoutFormula, OperatorCount, OperatorCounts, Selection
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.values import InputStatistics
from opcost.summing.summation import EnergyBasis, Measurements

CONVOLUTION, RELU, GELU = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),)) for name in ["Conv2d", "ReLU", "GELU"]
)
MODEL = model_operator("resnet18", None, (32, 64))
CALLS = OperatorCount(CONVOLUTION, 3, 300, 1), OperatorCount(RELU, 4, 10, 1)
COUNTS = OperatorCounts(MODEL, CALLS, 1000, 1000, 1, "2.11.0", "cuda")


def row_of(operator, time, energy, conditions=SIMULATED_CONDITIONS, meter="simulated", **circumstances):
    """Return a row with the figures that a test declares, as (value, standard error)."""
    time_s, time_error_s = time
    energy_j, energy_error_j = energy or (None, None)
    errors = {"time_standard_error_s": time_error_s, "energy_standard_error_j": energy_error_j}
    figures = {"time_s": time_s, "energy_j": energy_j, "meter": meter, **errors}
    return declared_row(operator, conditions, circumstances=circumstances, **figures)


CONVOLUTION_ROW = row_of(CONVOLUTION, (2.0, 0.0), (10.0, 0.0))
RELU_ROW = row_of(RELU, (1.0, 0.1), (5.0, 0.3))
FULL = row_of(MODEL, (10.0, 0.3), (25.0, 1.0))


def compare(counts, full, measurements, runs=USUAL_RUNS, chains=()):
    """Compare where the whitelist leaves out nothing."""
    selection = Selection(counts, replace(counts, counts=()))
    return Evidence(measurements, chains).result(selection, [full], runs=runs)


def compared(*rows, full=FULL):
    return compare(COUNTS, full, Measurements(rows))


def test_operators_of_the_whole_models_own_board_are_summed():
    faster = row_of(RELU, (0.5, 0.1), (5.0, 0.3), device_uuid="another board")
    assert compared(CONVOLUTION_ROW, RELU_ROW, faster).cost == compared(CONVOLUTION_ROW, RELU_ROW).cost
    whole = row_of(MODEL, (10.0, 0.3), (25.0, 1.0), device_uuid="another board")
    of_another = compared(CONVOLUTION_ROW, RELU_ROW, faster, full=whole)
    assert of_another.cost == compared(CONVOLUTION_ROW, faster).cost


def test_ratios_are_sum_over_whole_with_both_errors():
    comparison = compared(CONVOLUTION_ROW, RELU_ROW)
    assert comparison.full is FULL
    assert comparison.conditions == SIMULATED_CONDITIONS
    assert comparison.cost.time_s == Estimate(10.0, pytest.approx(0.4))
    assert comparison.time_ratio == Estimate(1.0, pytest.approx(0.05))
    assert comparison.energy_ratio == Estimate(2.0, pytest.approx((1.2**2 + 2.0**2) ** 0.5 / 25))
    assert comparison.remarks == ()


@pytest.mark.parametrize(
    ("counted", "measured", "differ"),
    [("5.24.0", "5.17.0", True), ("5.24.0", "5.24.0", False), ("5.24.0", None, False), (None, "5.17.0", False)],
)
def test_a_sum_and_a_whole_of_two_versions_of_a_library_are_remarked_on(counted, measured, differ):
    model = replace(MODEL, operator="transformers.LlamaForCausalLM")
    counts = replace(COUNTS, model=model, library=counted and f"transformers {counted}")
    whole = row_of(model, (10.0, 0.3), (25.0, 1.0), transformers_version=measured)
    # Of operators alone the version says nothing.
    found = compare(counts, whole, Measurements([CONVOLUTION_ROW, RELU_ROW]))
    figures = {"counted": f"transformers {counted}", "measured": f"transformers {measured}"}
    assert found.remarks == ((Remark(RemarkKind.OTHER_LIBRARY, figures),) if differ else ())
    assert all(remark.changes_conclusions for remark in found.remarks)


def test_sum_and_whole_are_compared_at_one_temperature():
    def referred(row, energy_j):
        known = replace(row.measurement, energy_at_reference_j=energy_j, energy_at_reference_standard_error_j=0.0)
        return replace(row, measurement=known)

    parts = [referred(CONVOLUTION_ROW, 11.0), referred(RELU_ROW, 6.0)]
    comparison = compared(*parts, full=referred(FULL, 28.5))
    assert comparison.cost.basis is EnergyBasis.NORMALISED
    assert comparison.energy_ratio.value == pytest.approx(57.0 / 28.5)
    assert comparison.full_energy_j.value == 28.5
    reasons = []
    for others in (compared(*parts), compared(parts[0], RELU_ROW, full=referred(FULL, 28.5))):
        assert others.cost.basis is EnergyBasis.MEASURED
        assert others.full_energy_j.value == 25.0
        reasons.append(others.remarks[0])
    assert reasons == [
        Remark(RemarkKind.WHOLE_NOT_NORMALISED, {"reference_c": 50.0}),
        Remark(RemarkKind.ROWS_NOT_NORMALISED, {"reference_c": 50.0, "rows": 1}),
    ]


@pytest.mark.parametrize(
    ("celsius", "whole_c", "slope_error_ratio"),
    [
        ((48.0, 48.0), 48.0, 0.0),
        # 30 of 50 J are the convolution's. The board's slope counts by the mean, operators' by how far each is.
        ((48.0, 48.0), 58.0, math.hypot(0.001 * 10, 0.0015 * math.hypot(6, 4))),
        ((40.0, 65.0), 50.0, 0.0015 * math.hypot(6, 6)),
        ((48.0, 48.0), None, 0.0),
    ],
)
def test_what_is_not_known_of_slopes_is_in_the_error_of_a_ratio(celsius, whole_c, slope_error_ratio):
    def at(row, temperature_c):
        energy_j = row.measurement.energy_j
        known = replace(row.measurement, energy_at_reference_j=energy_j, temperature_c=temperature_c)
        return replace(row, measurement=known)

    parts = [at(row, degrees) for row, degrees in zip((CONVOLUTION_ROW, RELU_ROW), celsius, strict=True)]
    found = compared(*parts, full=at(FULL, whole_c)).energy_ratio
    plain = compared(CONVOLUTION_ROW, RELU_ROW).energy_ratio
    assert found.standard_error == pytest.approx(math.hypot(plain.standard_error, 2.0 * slope_error_ratio))


def test_without_any_operator_there_is_no_ratio():
    comparison = compared()
    assert comparison.time_ratio is None
    assert comparison.energy_ratio is None
    assert comparison.cost.missing == COUNTS.counts
    assert comparison.remarks == ()


@pytest.mark.parametrize(("energy", "whole_energy"), [((5.0, 0.3), None), (None, (25.0, 1.0))])
def test_without_energy_of_the_whole_or_of_an_operator_there_is_no_ratio_of_energies(energy, whole_energy):
    relu = row_of(RELU, (1.0, 0.1), energy)
    comparison = compared(CONVOLUTION_ROW, relu, full=row_of(MODEL, (10.0, 0.3), whole_energy))
    assert comparison.energy_ratio is None
    assert comparison.time_ratio == Estimate(1.0, pytest.approx(0.05))


def having(row, **changes):
    return replace(row, measurement=replace(row.measurement, **changes))


FP32 = replace(SIMULATED_CONDITIONS, precision="fp32", cudnn_tf32=False)
OLD = replace(SIMULATED_CONDITIONS, torch_version="2.6.0")
BOTH = (CONVOLUTION_ROW, RELU_ROW)
OF_RELU = {"time_ratio": pytest.approx(0.4), "operator": "torch.nn.ReLU"}
IN_FP32 = {"operators": 2, "differences": ("precision: fp32 / torch-default", "cudnn_tf32: False / True")}
IN_A_GRAPH = {"name": "executed_as", "of_sum": "graph", "of_whole": "eager", "time_ratio": pytest.approx(0.4)}


@pytest.mark.parametrize(
    ("rows", "whole", "remarks"),
    [
        (
            [row_of(one, (1.0, 0.1), None, of) for one, of in ((CONVOLUTION, FP32), (RELU, FP32), (RELU, OLD))],
            {},
            [
                (RemarkKind.OTHER_CONDITIONS, IN_FP32),
                (RemarkKind.OTHER_CONDITIONS, {"operators": 1, "differences": ("torch_version: 2.6.0 / 2.11.0",)}),
            ],
        ),
        # Of operators that are summed, or of no operator of the model.
        ([*BOTH, row_of(RELU, (1.0, 0.1), None, FP32), row_of(GELU, (1.0, 0.1), None)], {}, []),
        ([CONVOLUTION_ROW, having(RELU_ROW, executed_as="graph")], {}, [(RemarkKind.OTHER_CIRCUMSTANCE, IN_A_GRAPH)]),
        (BOTH, {"waits": 48}, [(RemarkKind.WAITS, {"waits": 48})]),
        (
            [CONVOLUTION_ROW, having(RELU_ROW, flags=(Flag.IMPRECISE,))],
            {},
            [(RemarkKind.NOT_PRECISE, {"time_ratio": pytest.approx(0.4)})],
        ),
        (
            [CONVOLUTION_ROW, having(RELU_ROW, flags=(Flag.UNEVEN, Flag.MODIFIES_INPUT))],
            {"flags": (Flag.METERS_DISAGREE,)},
            [
                (RemarkKind.FLAGGED_WHOLE, {"flags": ("meters-disagree",)}),
                (RemarkKind.FLAGGED_OPERATORS, {**OF_RELU, "flags": ("uneven",)}),
            ],
        ),
        *(
            (
                [CONVOLUTION_ROW, having(RELU_ROW, flags=(Flag.IMPRECISE, flag))],
                {},
                [
                    (RemarkKind.OTHER_WORK, {**OF_RELU, "flags": (flag.value,)}),
                    (RemarkKind.NOT_PRECISE, {"time_ratio": pytest.approx(0.4)}),
                ],
            )
            for flag in (Flag.NOT_AS_COUNTED, Flag.VALUE_DEPENDENT)
        ),
        (
            BOTH,
            {"builds": 3, "builds_time_range_ratio": 0.026},
            [(RemarkKind.BUILDS_DIFFER, {"builds": 3, "range_ratio": 0.026})],
        ),
        (BOTH, {"builds": 3, "builds_time_range_ratio": 0.004}, []),
        *(
            (
                [CONVOLUTION_ROW, having(RELU_ROW, power_capped_ratio=ours)],
                {"power_capped_ratio": theirs},
                [(RemarkKind.THROTTLED, {"time_ratio": pytest.approx(0.4 * ours), "whole_time_ratio": theirs})],
            )
            for ours, theirs in ((0.5, 0.0), (0.0, 0.5), (0.5, None))
        ),
    ],
)
def test_what_a_reader_must_know_is_remarked_on_with_its_share_of_the_summed_time(rows, whole, remarks):
    found = compared(*rows, full=having(FULL, **whole)).remarks
    assert found == tuple(Remark(kind, figures) for kind, figures in remarks)


def test_circumstances_that_differ_are_reported_with_their_share_of_the_summed_time():
    short = row_of(CONVOLUTION, (2.0, 0.1), (1.0, 0.1), loop_s=3.0, host_cpu="another")
    relu = row_of(RELU, (1.0, 0.1), (1.0, 0.1), host_cpu="another", meter="nvidia-smi power.draw")
    remarks = compared(short, relu).remarks
    assert {remark.kind for remark in remarks} == {RemarkKind.OTHER_CIRCUMSTANCE}
    assert sorted(tuple(remark.figures.values()) for remark in remarks) == [
        ("host_cpu", "another", "simulated", pytest.approx(1.0)),
        ("meter", "nvidia-smi power.draw", "simulated", pytest.approx(0.4)),
        ("protocol", "a loop of 3 s", "a loop of 30 s", pytest.approx(0.6)),
    ]


IN_GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")


def not_captured(row):
    """Return a whole that ran eagerly although a graph was requested."""
    return replace(row, conditions=IN_GRAPHS)


def test_an_eager_whole_is_compared_with_eager_operators():
    graphs = [row_of(operator, (0.5, 0.0), (1.0, 0.0), IN_GRAPHS) for operator in (CONVOLUTION, RELU)]
    comparison = compared(*graphs, CONVOLUTION_ROW, RELU_ROW, full=not_captured(FULL))
    assert comparison.cost == compared(CONVOLUTION_ROW, RELU_ROW).cost
    assert comparison.conditions == SIMULATED_CONDITIONS
    assert Remark(RemarkKind.EAGER_WHOLE) in comparison.remarks


def test_a_sum_of_graphs_is_not_compared_with_an_eager_whole():
    graphs = [row_of(operator, (0.5, 0.0), (1.0, 0.0), IN_GRAPHS) for operator in (CONVOLUTION, RELU)]
    comparison = compared(*graphs, full=not_captured(FULL))
    assert comparison.time_ratio is comparison.energy_ratio is comparison.gap.unexplained.time_s is None
    differences = {"operators": 2, "differences": ("execution: graph / eager",)}
    assert comparison.remarks == (Remark(RemarkKind.OTHER_CONDITIONS, differences), Remark(RemarkKind.EAGER_WHOLE))


SEEN = tuple((InputStatistics(ratio, 0.0, 1.0),) for ratio in (0.0, 0.5, 0.5, 1.0))
LOOKED_AT = replace(COUNTS, counts=(COUNTS.counts[0], replace(COUNTS.counts[1], statistics=SEEN)))


def test_operators_measured_on_other_values_are_reported_with_their_share_of_the_summed_time():
    comparison = compare(LOOKED_AT, FULL, Measurements([CONVOLUTION_ROW, RELU_ROW]))
    assert comparison.remarks == (Remark(RemarkKind.OTHER_VALUES, {"time_ratio": pytest.approx(0.3)}),)
    normal = compare(LOOKED_AT, FULL, Measurements([CONVOLUTION_ROW, RELU_ROW]), OperatorRuns("normal"))
    assert normal.remarks == (Remark(RemarkKind.NAMED_VALUES, {"input_data": "normal"}),)


def test_values_that_are_unknown_are_reported():
    on_meta = replace(COUNTS, device_type="meta")
    comparison = compare(on_meta, FULL, Measurements([CONVOLUTION_ROW, RELU_ROW]))
    assert comparison.remarks == (Remark(RemarkKind.SHAPES_ONLY),)


def test_rows_on_other_values_that_are_not_summed_are_reported():
    comparison = compare(LOOKED_AT, FULL, Measurements([RELU_ROW]), OperatorRuns("zeros"))
    assert comparison.remarks == (Remark(RemarkKind.ON_OTHER_VALUES_ONLY, {"operators": 1}),)


@pytest.mark.parametrize("cache", CACHES)
def test_rows_of_the_cache_that_is_asked_for_are_summed_beside_a_warm_whole(cache):
    rows = [
        row_of(operator, (time_s, 0.0), (5.0, 0.1), replace(SIMULATED_CONDITIONS, cache=mode))
        for mode, factor in (("state", 1.5), ("warm", 1.0))
        for operator, time_s in ((CONVOLUTION, 2.0 * factor), (RELU, 1.0 * factor))
    ]
    comparison = compare(COUNTS, FULL, Measurements(rows), OperatorRuns(cache=cache))
    assert comparison.time_ratio.value == 1.0
    assert comparison.conditions == replace(SIMULATED_CONDITIONS, cache=cache)
    remarks = {
        "warm": (),
        "state": (Remark(RemarkKind.NOT_IN_STATE, {"time_ratio": 1.0}),),
    }
    assert tuple(one for one in comparison.remarks if one.kind is RemarkKind.NOT_IN_STATE) == remarks[cache]


def test_what_is_left_out_has_rows_and_energies_like_those_of_the_sum():
    """Of the whole's own board, and normalised where the sum is; a row that cannot be makes its energy unknown."""

    def normalised(row, energy_j):
        return replace(row, measurement=replace(row.measurement, energy_at_reference_j=energy_j))

    def dropped(*rows):
        parts = [normalised(CONVOLUTION_ROW, 11.0), normalised(RELU_ROW, 6.0)]
        left_out = replace(COUNTS, counts=(OperatorCount(GELU, 2, 10, 1),))
        evidence = Evidence(Measurements([*parts, *rows]))
        return evidence.result(Selection(COUNTS, left_out), [normalised(FULL, 90.0)]).gap

    ours = normalised(row_of(GELU, (1.5, 0.1), (7.0, 0.1)), 8.0)
    theirs = normalised(row_of(GELU, (0.5, 0.1), (3.0, 0.1), device_uuid="another board"), 4.0)
    for rows in ((ours, theirs), (theirs, ours)):
        assert dropped(*rows).dropped == Piece(3.0, 16.0)
    assert dropped(ours).unexplained.energy_j == pytest.approx(90.0 - 57.0 - 16.0)
    assert dropped(row_of(GELU, (1.5, 0.1), (7.0, 0.1))).dropped == Piece(3.0, None)


def test_operators_of_unknown_flop_are_remarked_on():
    relu = OperatorCount(RELU, 4, None, 1, without_formula=("mine::relu",))
    operation = OperationWithoutFormula("mine::relu", 4, 4)
    counts = replace(COUNTS, counts=(COUNTS.counts[0], relu), without_formula=(operation,))
    found = compare(counts, FULL, Measurements([CONVOLUTION_ROW, RELU_ROW]))
    (remark,) = [one for one in found.remarks if one.kind is RemarkKind.UNKNOWN_FLOP]
    assert remark.figures == {"reason": "no formula for the FLOPs of mine::relu", "time_ratio": 0.4}
    assert remark.changes_conclusions
    assert (found.cost.flop_ratio, found.cost.flop_missing_reason) == (None, remark.figures["reason"])
    assert RemarkKind.UNKNOWN_FLOP not in {one.kind for one in compared(CONVOLUTION_ROW, RELU_ROW).remarks}


def test_what_is_in_no_tuple_is_remarked_on_with_its_share():
    counts = replace(COUNTS, total_memory_bytes=4 * COUNTS.memory_bytes, outside=("mm", "relu"))
    found = compare(counts, FULL, Measurements([CONVOLUTION_ROW, RELU_ROW]))
    (remark,) = [one for one in found.remarks if one.kind is RemarkKind.IN_NO_TUPLE]
    assert remark.figures == {"missing_ratio": 0.75, "operations": ("mm", "relu")}
    assert remark.changes_conclusions
    assert RemarkKind.IN_NO_TUPLE not in {one.kind for one in compared(CONVOLUTION_ROW, RELU_ROW).remarks}


MUCH = replace(COUNTS, total_memory_bytes=STREAM_BYTES + 1)


def in_graphs(row):
    measurement = replace(row.measurement, executed_as="graph")
    return replace(row, conditions=replace(row.conditions, execution="graph"), measurement=measurement)


def gap_knowing(counts, chains=(), cache="warm"):
    """Compare a model in CUDA graphs, of whose device something is known of calls in chains."""
    rows = [
        row_of(operator, figures, energy, replace(SIMULATED_CONDITIONS, execution="graph", cache=cache))
        for operator, figures, energy in ((CONVOLUTION, (2.0, 0.0), (10.0, 0.0)), (RELU, (1.0, 0.1), (5.0, 0.3)))
    ]
    full = in_graphs(FULL)
    return compare(counts, full, Measurements(rows), OperatorRuns(cache=cache), chains).gap


def chain_rows_of(time_s, energy_j):
    """Return what is known of a card on which all calls take longer by as much."""
    known = {"time_s": time_s, "time_standard_error_s": 0.003, "energy_j": energy_j, "energy_standard_error_j": 0.01}
    whole = in_graphs(FULL)
    circumstances = {
        "measured_at": "2026-11-22T08:00:00+00:00",
        "device_uuid": "GPU-1",
        "notes": "",
        "conditions": whole.conditions,
        "calls": 24,
    }
    return [
        ChainRow(kind=one.kind, memory_bytes=one.memory_bytes, design=one.design, **known, **circumstances)
        for side in SIDES
        for one in chains_of(side)
    ]


def test_the_cache_correction_is_a_part_of_its_own():
    chains = chain_rows_of(0.02, 0.1)
    without, gap = gap_knowing(MUCH), gap_knowing(MUCH, chains)
    of_time = gap_knowing(MUCH, [replace(row, energy_j=None) for row in chains])
    assert without.correction is None
    assert gap.correction.time_s.value == pytest.approx(7 * 0.02)
    assert 7 * 0.003 / math.sqrt(2) < gap.correction.time_s.standard_error <= 7 * 0.003
    assert gap.correction.energy_j.value == pytest.approx(7 * 0.1)
    assert without.unexplained.time_s - gap.unexplained.time_s == pytest.approx(7 * 0.02)
    assert without.unexplained.energy_j - gap.unexplained.energy_j == pytest.approx(7 * 0.1)
    # An unknown correction of the energy is a part of what is unexplained.
    assert of_time.correction.energy_j is None
    assert of_time.unexplained == replace(gap.unexplained, energy_j=without.unexplained.energy_j)
    known = [gap.modules, gap.functions, gap.dropped, gap.unmeasured, gap.unexplained]
    assert sum(piece.time_s for piece in known) + gap.correction.time_s.value == pytest.approx(10.0)
    # An operator that moves little finds its code in the caches.
    assert gap_knowing(COUNTS, chains).correction is None


def test_of_a_whole_at_lower_clocks_than_its_operators_it_is_reported_how_much_longer_it_can_be():
    def at(row, clock_hz, ratio=0.0):
        return replace(row, measurement=replace(row.measurement, sm_clock_hz=clock_hz, power_capped_ratio=ratio))

    def said(full_hz, convolution_hz=2e9, ratio=0.5):
        parts = at(CONVOLUTION_ROW, convolution_hz), at(RELU_ROW, 1.5e9)
        return compared(*parts, full=at(FULL, full_hz, ratio)).remarks

    # 6 s at 2 GHz and 4 s at 1.5 GHz.
    throttled = Remark(RemarkKind.THROTTLED, {"time_ratio": 0.0, "whole_time_ratio": 0.5})
    assert said(1.71e9) == (throttled, Remark(RemarkKind.LOWER_CLOCKS, {"longer_ratio": pytest.approx(0.05)}))
    assert said(1.9e9) == (throttled,)
    assert said(None) == said(1.7e9, convolution_hz=None) == (throttled,)
    assert said(1.7e9, ratio=0.0) == ()


def test_rates_of_a_small_part_of_a_model_say_nothing_about_the_rest():
    others = [OperatorTuple("torch.nn.GELU", inputs=(TensorSpec((side,), "float32"),)) for side in range(1, 6)]
    known = [row_of(operator, (1.0 + side, 0.1), (1.0, 0.1)) for side, operator in enumerate(others[:4])]
    small = tuple(OperatorCount(operator, 1, 10, 100) for operator in others)
    for large_bytes, is_reported in ((100, True), (10_000, False)):
        relu = OperatorCount(RELU, 1, 1, large_bytes)
        counts = replace(COUNTS, counts=(*small, relu), total_memory_bytes=500 + large_bytes)
        gap = compare(counts, FULL, Measurements(known)).gap
        assert (gap.unmeasured.time_s is not None) == is_reported


# The words of remarks, and which of them are shown unasked


@pytest.mark.parametrize(
    ("kind", "figures", "is_shown"),
    [
        (RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.02}, True),
        (RemarkKind.FLAGGED_OPERATORS, {"time_ratio": 0.002}, False),
        (RemarkKind.OTHER_WORK, {"time_ratio": 0.02}, True),
        (RemarkKind.OTHER_WORK, {"time_ratio": 0.002}, False),
        (RemarkKind.OTHER_CIRCUMSTANCE, {"name": "protocol", "time_ratio": 1.0}, False),
        (RemarkKind.OTHER_CIRCUMSTANCE, {"name": "device_uuid", "time_ratio": 0.5}, True),
        (RemarkKind.OTHER_CIRCUMSTANCE, {"name": "device_uuid", "time_ratio": 0.01}, False),
        (RemarkKind.LOWER_CLOCKS, {"longer_ratio": None}, True),
        (RemarkKind.LEAF_MODULES, {}, True),
        (RemarkKind.NOT_PRECISE, {"time_ratio": 1.0}, False),
    ],
)
def test_a_remark_is_shown_if_it_changes_what_a_reader_concludes(
    kind: RemarkKind, figures: dict[str, float | str | None], is_shown: bool
) -> None:
    assert Remark(kind, figures).changes_conclusions is is_shown


def test_no_text_names_a_block() -> None:
    """Users of ``opcost profile`` and ``opcost show`` see them, and know no blocks."""
    texts = [*(f"{one.text} {one.figure} {one.more}" for one in RemarkKind), *(flag.meaning for flag in TupleFlag)]
    assert [text for text in texts if "block" in text] == []
