"""Figures of the report: magnitudes, shares and units, compared with figures that a test declares."""

import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import Any, cast

import pytest
from simulated_machine import simulated_row
from test_tables import COMPARED

from opcost.comparing.comparison import NOTICEABLE_RATIO, Remark, RemarkKind
from opcost.comparing.operator_costs import TupleCost, TupleFlag, Use
from opcost.estimates import Estimate
from opcost.invocation import command
from opcost.measuring.known_device import GOOD, REFERENCE, MeterQuality, QualificationRow
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import ALL, Case, OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.reporting import report, report_sections
from opcost.reporting.charts import Compared
from opcost.reporting.report_sections import next_steps
from opcost.stages.wanted_model import Proposals

WHOLE_S = 0.1
RELU = OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((4,), "float32"),))


def text_of(html: str) -> str:
    return unescape(html).replace("\u00a0", " ")


def compared(name: str, ratio: float, correction_ratio: float | None = None, dropped_ratio: float = 0.0) -> Compared:
    """A complete sum that is so much of its whole, and the cache correction, as shares of the whole."""
    correction = {"correction_time_s": None, "correction_time_standard_error_s": None}
    if correction_ratio is not None:
        correction = {"correction_time_s": correction_ratio * WHOLE_S, "correction_time_standard_error_s": 0.0}
    row = replace(
        COMPARED,
        name=name,
        time_s=ratio * WHOLE_S,
        full_time_s=WHOLE_S,
        time_ratio=ratio,
        missing_operators=0,
        dropped_time_s=dropped_ratio * WHOLE_S,
        unexplained_time_s=(1 - ratio - (correction_ratio or 0.0) - dropped_ratio) * WHOLE_S,
        **correction,  # type: ignore[arg-type]
    )
    return Compared(name, row)


def summary(*found: Compared) -> str:
    return text_of(report_sections.summary(found, [], []))


def verdicts(*found: Compared) -> str:
    return text_of(report_sections.verdicts(found))


def in_execution(one: Compared, execution: str) -> Compared:
    """The same comparison on a GPU in another execution."""
    conditions = replace(one.row.conditions, device_type="cuda", device_product="A GPU", execution=execution)
    return replace(one, row=replace(one.row, conditions=conditions))


def test_a_model_in_two_executions_counts_once() -> None:
    graph, eager = (in_execution(compared("a", 1.0), execution) for execution in ("graph", "eager"))
    only_eager = in_execution(compared("b", 1.0), "eager")
    for found in ([graph, eager, only_eager], [eager, graph, only_eager]):
        counted = report_sections.counted_once(found)
        assert [found[index] for index in sorted(counted)] == [graph, only_eager]
    # A quarter of the time of each of two models, of which one has an eager run besides.
    flagged = TupleCost(Case(RELU), simulated_row(RELU), OperatorCount(RELU, 1, 0, 0))
    flagged.row = replace(flagged.row, measurement=replace(flagged.row.measurement, time_s=WHOLE_S / 4))
    flagged.uses, flagged.flags = [Use(0, 1), Use(1, 1), Use(2, 1)], {TupleFlag.FLAGGED}
    assert "25.0 %" in text_of(report_sections.flags([graph, eager, only_eager], [flagged]))


# How far sums are from wholes


def test_errors_of_sums_and_of_corrected_sums_are_magnitudes() -> None:
    found = [compared("a", 0.97), compared("b", 1.01), compared("c", 1.02)]
    assert "In the median, sums of operators differ from the whole model by 2.0 % in time on" in summary(*found)
    assert "(corrected)" not in summary(*found)
    assert "2.0 %, at worst 3.0 % (3 models)" in verdicts(*found)
    found = [compared("a", 0.95, 0.02), compared("b", 1.0, 0.005), compared("c", 1.03, -0.02)]
    assert re.search(r"by 1.0 % in time on [^.]* \(corrected\)\.", summary(*found))
    text = verdicts(*found)
    assert text.index("1.0 %, at worst 3.0 % (3 models)") < text.index("3.0 %, at worst 5.0 % (3 models)")
    # A correction of some is none of all.
    some = found[0], compared("d", 0.9)
    assert "at worst 3.0 % (1 model)" in verdicts(*some)
    assert "by 7.5 % in time on" in summary(*some)
    assert "(corrected)" not in summary(*some)
    # Dropped operators are no error of all operators.
    assert "1.0 %, at worst 1.0 % (1 model)" in verdicts(compared("a", 0.9, 0.01, dropped_ratio=0.08))


def test_what_is_no_result_yet_is_in_no_headline_but_its_number_is() -> None:
    sound = [compared("a", 0.97), compared("b", 1.01)]
    flagged = replace(compared("c", 1.2), remarks=(Remark(RemarkKind.FLAGGED_WHOLE, {"flags": ("uneven",)}),))
    found = (*sound, flagged, compared("d", 20.514, dropped_ratio=0.5))
    assert "differ from the whole model by 2.0 % in time" in summary(*found)
    text = verdicts(*found)
    assert "2.0 %, at worst 3.0 % (2 models)" in text
    assert "2 sums (1 flagged, 1 unexplained)" in text
    assert "50.0 %" not in text
    assert "No complete sum can be compared" in summary(flagged)
    assert verdicts() == ""


def test_each_device_has_a_headline_of_its_own() -> None:
    gpu = in_execution(compared("a", 0.97), "graph")
    found = gpu, compared("a", 1.1), compared("b", 1.2)
    text, product = summary(*found), COMPARED.conditions.device_product
    assert f"by 3.0 % in time on A GPU, 15.0 % in time on {product}." in text
    table = verdicts(*found)
    assert table.index("A GPU") < table.index("at worst 3.0 % (1 model)")
    assert table.index(product) < table.index("at worst 20.0 % (2 models)")


# What is to be known of measurements


def test_a_flag_s_share_of_the_time_counts_every_call() -> None:
    row = simulated_row(RELU)
    row = replace(row, measurement=replace(row.measurement, time_s=0.002))
    count = OperatorCount(RELU, 1, 1, 1)
    flagged = TupleCost(Case(RELU), row, count, [Use(0, 5), Use(1, 3)], {TupleFlag.NOT_PRECISE})
    other = TupleCost(Case(RELU), row, count, [Use(0, 7)])
    text = text_of(report_sections.flags([compared("a", 1.0), compared("b", 1.0)], [flagged, other]))
    assert "8.0 %" in text
    assert TupleFlag.NOT_PRECISE.meaning in text
    assert TupleFlag.FLAGGED.meaning not in text


# Meters and drift

OURS, THEIRS = "GPU-1111aaaa", "GPU-2222bbbb"


def qualified(board: str, deviation_ratio: float, verdict: str = GOOD) -> QualificationRow:
    quality = MeterQuality(f"meter of {board}", 0.1, 0.2, None, None, 0.01, None, deviation_ratio, 0.01, verdict)
    times = {"qualified_at": "2026-11-22T00:00:00+00:00", "device_product": "simulated", "torch_version": "2.11.0"}
    names = "read_time_s polling_deviation_ratio power_per_kelvin_ratio power_per_kelvin_standard_error_ratio"
    unknown: dict[str, Any] = dict.fromkeys([*names.split(), "idle_power_w", "idle_power_after_load_w"])
    return QualificationRow(board, "1.0", quality, **unknown, **times)


def test_meters_of_the_report_s_boards_are_reported_and_their_worst_deviation() -> None:
    rows = [qualified(OURS, 0.004), qualified(THEIRS, 0.07), replace(qualified(OURS, -0.013), driver_version="2.0")]
    text = text_of(report.meters(rows, {OURS}))
    assert f"meter of {OURS}" in text
    assert f"meter of {THEIRS}" not in text
    assert "The meters of 1 boards agree within 1.30 %" in text
    assert "agree within" not in report.meters([qualified(OURS, 0.5, REFERENCE)], {OURS})
    assert "no qualification of these boards' meters" in text_of(report.meters(rows, {"another"}))


@pytest.mark.parametrize(("boards", "is_drawn"), [({OURS}, True), ({THEIRS}, False), ({OURS, THEIRS}, True)])
def test_sentinels_of_the_report_s_boards_are_drawn(boards: set[str | None], is_drawn: bool) -> None:
    def on(board: str, time_s: float) -> MeasurementRow:
        row = simulated_row(RELU)
        circumstances = replace(row.circumstances, device_uuid=board)
        return replace(row, circumstances=circumstances, measurement=replace(row.measurement, time_s=time_s))

    rows = [on(OURS, 1.0), on(OURS, 1.02), on(THEIRS, 1.0)]
    text = text_of(report.drift(rows, boards))
    assert ("Standard deviations: time 1.4" in text) == is_drawn
    assert ("no repeated drift checks" in text) != is_drawn


# The next measurements: which steps are shown, and with which commands


COMPARED_S = 0.01


def candidate(
    name: str, dropped_s: float | None = 0.0, ratio: float = 1.0, device: str = "cuda", counts_all: bool = True
) -> Compared:
    comparison = SimpleNamespace(
        full=SimpleNamespace(measurement=SimpleNamespace(time_s=COMPARED_S)),
        gap=SimpleNamespace(dropped=SimpleNamespace(time_s=dropped_s)),
        cost=SimpleNamespace(missing=()),
        time_ratio=Estimate(ratio, 0.0),
        kernels=None,
        conditions=SimpleNamespace(execution="graph", device_type=device),
    )
    row = SimpleNamespace(name=name, counted=ALL if counts_all else "modules")
    return cast("Compared", SimpleNamespace(row=row, comparison=comparison))


def measured(
    flag: TupleFlag, relative_error: float | None, loop_s: float | None, time_s: float = 0.001, calls: int = 2
) -> TupleCost:
    circumstances = SimpleNamespace(relative_error=relative_error, loop_s=loop_s)
    use = SimpleNamespace(comparison=0, calls=calls, is_summed=True)
    cost = {"flags": {flag}, "uses": [use], "time_s": Estimate(time_s, 0.0)}
    return cast("TupleCost", SimpleNamespace(**cost, row=SimpleNamespace(circumstances=circumstances)))


def commands(candidates: list[Compared], *tuples: Any) -> list[str]:
    return [step.command for step in next_steps(candidates, tuples)]


@pytest.mark.parametrize(
    ("relative_error", "loop_s", "options"),
    [(0.01, None, " --relative-error 0.01"), (None, 1.0, " --seconds 1"), (None, 30.0, "")],
)
def test_what_is_measured_again_is_so_by_the_protocol_of_the_rest(
    relative_error: float | None, loop_s: float | None, options: str
) -> None:
    doubtful = measured(TupleFlag.FLAGGED, relative_error, loop_s)
    assert commands([candidate("a")], doubtful) == [command("measure", "a", "--execution", "graph") + options]
    on_cpu = commands([candidate("a", device="cpu")], doubtful)
    assert on_cpu == [command("measure", "a", "--device", "cpu") + options]


@pytest.mark.parametrize(("calls", "is_noticed"), [(1, False), (2, True)])
def test_what_is_measured_again_takes_a_noticeable_share_with_all_of_its_calls(calls: int, is_noticed: bool) -> None:
    short = measured(TupleFlag.FLAGGED, 0.01, None, 0.6 * NOTICEABLE_RATIO * COMPARED_S, calls)
    assert bool(commands([candidate("a")], short)) == is_noticed


def test_what_was_imprecise_runs_for_30_s() -> None:
    imprecise = measured(TupleFlag.NOT_PRECISE, 0.01, None)
    assert commands([candidate("a")], imprecise) == [command("measure", "a", "--execution", "graph")]


def test_what_the_whitelist_leaves_out_is_a_step_where_it_is_much() -> None:
    candidates = [
        candidate("much", 0.0006),
        candidate("little", 0.00005),
        candidate("unknown", None),
        candidate("leaf", 0.004, counts_all=False),
    ]
    (step,) = next_steps(candidates, [])
    assert (step.command, step.models) == (command("advise", "much", "--coverage-target", "0.99"), (0,))
    assert "6.0 % of a whole model's time" in step.reason


def test_kernels_are_looked_at_on_gpus() -> None:
    assert commands([candidate("a", ratio=0.9)]) == [command("verify kernels", "a")]
    assert commands([candidate("a", ratio=0.9, device="cpu")]) == []


def test_users_code_and_models_of_a_profile_have_commands_that_run() -> None:
    proposals = Proposals(frozenset({"a", "b"}), {"a": ("net.py:build", "--allow-code")})
    doubtful = measured(TupleFlag.FLAGGED, None, 1.0)
    (step,) = next_steps([candidate("a", device="cpu")], [doubtful], proposals)
    assert step.command == command("profile", "net.py:build", "--allow-code", "--device", "cpu", "--seconds", "1")
    (step,) = next_steps([candidate("b", device="cpu")], [doubtful], proposals)
    assert step.command == command("measure", "b", "--device", "cpu", "--seconds", "1", "--allow-code")
    (step,) = next_steps([candidate("b", ratio=1.1)], [], proposals)
    assert step.command == command("verify kernels", "b", "--allow-code")
