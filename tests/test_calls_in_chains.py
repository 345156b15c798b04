"""What calls take longer in chains of others: operators in chains behind a stream, beside each of them in a loop."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS, Device, Load, simulated_row

from opcost import stage_chains
from opcost.bench import Bench
from opcost.calls_in_chains import (
    ELEMENTWISE,
    KINDS,
    NORM,
    PRODUCT,
    REPEATS,
    SIDES,
    STREAM_BYTES,
    Chain,
    ChainRow,
    Corrections,
    Curve,
    Excess,
    MeasuredChain,
    before,
    chain_row,
    chains_of,
    corrections_under,
    kind_of,
    refusal,
)
from opcost.errors import CannotMeasureError
from opcost.measurement import Measurement, MeasurementRow
from opcost.operators import OperatorCount, OperatorTuple, TensorSpec
from opcost.pickle_files import read_counts, write_counts
from opcost.ports import MeasurementProtocol
from opcost.request import FILTERED_COUNTS
from opcost.stage_chains import calls_in_chains_in, find_chains, find_chains_if_unknown
from opcost.stage_comparing import compare_models
from opcost.stage_full_models import measure_full_models
from opcost.stage_measuring import measure_operators
from opcost.statistics import Estimate
from opcost.subjects import Subject
from opcost.torch_capture import capture
from opcost.torch_chains import ChainBehindAStream
from opcost.torch_workload import operator_call

GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
CHAIN = Chain(ELEMENTWISE, 8)
ALONE = Load(time_s=5e-6, power_w=400.0)
BEFORE = Load(time_s=70e-6, power_w=500.0)
LONGER_S = {ELEMENTWISE: 0.2e-6, NORM: 0.4e-6, PRODUCT: 0.9e-6}
LONGER_W = 300.0
RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
MODEL_S = 10e-6


def row_of(
    time_s: float, energy_j: float | None, at_reference_j: float | None = None, notes: str = ""
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
        notes=notes,
    )
    return replace(row, measurement=measurement)


def at(row: MeasurementRow, temperature_c: float | None) -> MeasurementRow:
    return replace(row, measurement=replace(row.measurement, temperature_c=temperature_c))


def measured(whole: MeasurementRow, before: MeasurementRow, *alone: MeasurementRow, kind: str = NORM) -> MeasuredChain:
    return MeasuredChain(Chain(kind, 8), whole, before, alone)


def test_what_a_chain_takes_longer_is_more_than_its_stream_and_its_blocks_alone() -> None:
    rows = measured(row_of(40.0, 400.0), row_of(10.0, 100.0), row_of(1.0, 10.0), row_of(2.0, 20.0))
    excess = rows.excess()
    # Six blocks of 3 s and 30 J; an operator that was measured once stands for six calls, and so does its error.
    assert (excess.time_s.value, excess.energy_j.value) == (12.0, 120.0)  # type: ignore[union-attr]
    assert excess.time_s.standard_error == pytest.approx(0.3 * math.sqrt(2 + 2 * REPEATS**2))
    assert excess.energy_j.standard_error == pytest.approx(0.4 * math.sqrt(2 + 2 * REPEATS**2))  # type: ignore[union-attr]


def test_an_operator_that_is_in_a_block_twice_was_measured_once() -> None:
    same = row_of(1.0, 10.0)
    excess = measured(row_of(40.0, 400.0), row_of(10.0, 100.0), same, same).excess()
    assert excess.time_s == Estimate(18.0, pytest.approx(0.3 * math.sqrt(2 + (2 * REPEATS) ** 2)))


def test_energies_are_at_the_reference_temperature_where_all_are_known_there() -> None:
    stream, alone = row_of(1.0, 10.0, 11.0), row_of(1.0, 10.0, 11.0)
    referred = measured(row_of(9.0, 80.0, 90.0), stream, alone)
    mixed = measured(row_of(9.0, 80.0, 90.0), row_of(1.0, 10.0), alone)
    unknown = measured(row_of(9.0, None), stream, alone)
    energies_j = [
        None if (found := rows.excess().energy_j) is None else found.value for rows in (referred, mixed, unknown)
    ]
    assert energies_j == [90.0 - 7 * 11.0, 80.0 - 7 * 10.0, None]
    assert unknown.excess().time_s.value == 2.0


def test_how_far_temperatures_differ_is_in_the_error_of_the_energy() -> None:
    stream, alone, whole = row_of(1.0, 10.0, 11.0), row_of(1.0, 10.0, 11.0), row_of(9.0, 80.0, 90.0)
    alike, unlike, unknown = (
        measured(at(whole, celsius), stream, alone).excess().energy_j.standard_error  # type: ignore[union-attr]
        for celsius in (50.0, 60.0, None)
    )
    assert alike == unknown
    assert unlike > alike


def test_a_call_of_a_kind_takes_longer_by_what_elementwise_ones_beside_it_do_not_explain() -> None:
    rows = measured(row_of(100.0, 1000.0), row_of(4.0, 40.0), row_of(1.0, 10.0), row_of(3.0, 30.0))
    elementwise = chain_row(replace(rows, chain=CHAIN), None)
    norm = chain_row(rows, elementwise)
    assert (elementwise.kind, elementwise.calls, elementwise.time_s, elementwise.energy_j) == (
        ELEMENTWISE,
        24,
        3.0,
        30.0,
    )
    assert (norm.kind, norm.calls, norm.time_s, norm.energy_j) == (NORM, 24, 0.0, 0.0)
    assert norm.time_standard_error_s == pytest.approx(math.sqrt(2) * elementwise.time_standard_error_s)
    # In and out: 16 images of 64 channels, 8 pixels a side, 4 bytes each.
    assert norm.memory_bytes == 2 * 16 * 64 * 8 * 8 * 4


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (row_of(2.0, 3.0), ""),
        (row_of(2.0, 3.0, notes="not within 0.50% after 8 s"), ""),
        (row_of(2.0, 3.0, notes="below the power limit in a duty cycle of at most 75 %"), ""),
        (replace(row_of(2.0, 3.0), measurement=simulated_row(RELU).measurement), "did not run in a CUDA graph"),
        (row_of(2.0, 3.0, notes="uneven: so"), "uneven"),
        (row_of(2.0, 3.0, notes="clocks held down by the power limit for 30% of the loop"), "clocks held down"),
    ],
)
def test_what_cannot_be_right_is_refused(row: MeasurementRow, reason: str) -> None:
    good = row_of(1.0, 1.0)
    assert reason in refusal([good, row])
    assert bool(refusal([row, good])) == bool(reason)


# Corrections


def known_row(
    kind: str = NORM, memory_bytes: int = 1000, time_s: float = 1.0, energy_j: float | None = None, **conditions: object
) -> ChainRow:
    found = chain_row(measured(row_of(1.0, 1.0), row_of(1.0, 1.0), row_of(1.0, 1.0)), None)
    error_j = None if energy_j is None else 0.1
    changed = replace(GRAPHS, **conditions)  # type: ignore[arg-type]
    return replace(
        found,
        kind=kind,
        memory_bytes=memory_bytes,
        time_s=time_s,
        time_standard_error_s=0.2,
        energy_j=energy_j,
        energy_standard_error_j=error_j,
        conditions=changed,
    )


def of_all_kinds(time_s: float, energy_j: float | None = None, **conditions: object) -> list[ChainRow]:
    return [known_row(kind, time_s=time_s, energy_j=energy_j, **conditions) for kind in KINDS]


def counted(name: str, memory_bytes: int, occurrences: int = 1, flop: int = 0) -> OperatorCount:
    return OperatorCount(OperatorTuple(name, (), ()), occurrences, flop, memory_bytes)


@pytest.mark.parametrize(
    ("count", "kind"),
    [
        (counted("torch.nn.Conv2d", 10, flop=5), PRODUCT),
        (counted("torch.nn.LayerNorm", 10), NORM),
        (counted("torch.nn.functional.layer_norm", 10), NORM),
        (counted("torch.nn.BatchNorm2d", 10), NORM),
        (counted("torch.nn.MaxPool2d", 10), ELEMENTWISE),
        (counted("torch.add", 10), ELEMENTWISE),
    ],
)
def test_each_operator_is_of_one_kind(count: OperatorCount, kind: str) -> None:
    assert kind_of(count) == kind


@pytest.mark.parametrize("field", ["device_product", "torch_version", "driver_version", "cuda_version", "mode"])
def test_what_was_found_holds_for_cards_of_the_kind_with_their_software(field: str) -> None:
    others = of_all_kinds(1.0, **{field: "another"})
    assert corrections_under(others, GRAPHS) is None
    for same in ({"precision": "fp32"}, {"sdpa_math": False}):
        found = corrections_under([*others, *of_all_kinds(2.0)], replace(GRAPHS, **same))  # type: ignore[arg-type]
        assert found is not None
        assert found.of([counted("torch.add", 10)]) == Excess(Estimate(2.0, 0.2), None)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_corrected_where_a_kind_is_not_known(kind: str) -> None:
    assert corrections_under([row for row in of_all_kinds(1.0) if row.kind != kind], GRAPHS) is None


@pytest.mark.parametrize("other", [{"cache": "cold"}, {"cache": "chained"}, {"execution": "eager"}])
def test_only_graphs_of_warm_operators_are_corrected(other: dict[str, str]) -> None:
    rows = [*of_all_kinds(1.0), *of_all_kinds(1.0, **other)]
    assert corrections_under(rows, replace(GRAPHS, **other)) is None  # type: ignore[arg-type]


def test_what_was_found_several_times_has_a_mean() -> None:
    found = corrections_under([*of_all_kinds(1.0, 5.0), *of_all_kinds(3.0, 7.0)], GRAPHS)
    assert found is not None
    excess = found.of([counted("torch.add", 10)])
    assert excess.time_s == Estimate(2.0, pytest.approx(0.2 / 2**0.5))
    assert excess.energy_j == Estimate(6.0, pytest.approx(0.1 / 2**0.5))
    assert (
        corrections_under([*of_all_kinds(1.0, 5.0), *of_all_kinds(3.0)], GRAPHS).of([counted("torch.add", 1)]).energy_j
        is None
    )  # type: ignore[union-attr]


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


def test_what_computes_nothing_takes_no_longer() -> None:
    assert CORRECTIONS.of([counted("torch.nn.Dropout", 0, 5)]).time_s.value == 0.0
    assert CORRECTIONS.of([]).time_s == Estimate(0.0, 0.0)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=8, unique=True), st.integers(1, 10**12))
def test_shares_of_points_are_a_whole(sizes: list[int], memory_bytes: int) -> None:
    curve = Curve(tuple((size, excess_of(1.0)) for size in sorted(sizes)))
    shares = curve.shares(memory_bytes)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0 <= share <= 1 and point < len(sizes) for point, share in shares.items())


# The stage


class Graphs:
    """A bench whose rows say that they ran in a CUDA graph."""

    def __init__(self, bench: Bench, notes: str = "") -> None:
        self._bench = bench
        self._notes = notes

    def __getattr__(self, name: str) -> object:
        return getattr(self._bench, name)

    def measure(self, subject: Subject, precision: str, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        return replace(
            self._bench.measure(subject, precision, protocol, log_name), executed_as="graph", notes=self._notes
        )


def load_of(chain: Chain) -> Load:
    """Return a chain whose elementwise calls take longer by so much, and those of its kind by so much."""
    longer_s = chain.calls * sum(LONGER_S[kind] for kind in {ELEMENTWISE, chain.kind})
    alone = REPEATS * len(chain.operators)
    time_s = BEFORE.time_s + alone * ALONE.time_s + longer_s
    energy_j = BEFORE.energy_j + alone * ALONE.energy_j + LONGER_W * longer_s
    return Load(time_s=time_s, power_w=energy_j / time_s)


def campaign_in(folder: Path) -> SimulatedCampaign:
    loads = {RELU: ALONE}
    for side in SIDES:
        loads[before(side)] = BEFORE
        for chain in chains_of(side):
            loads |= {**dict.fromkeys(chain.operators, ALONE), chain.behind_a_stream: load_of(chain)}
    campaign = SimulatedCampaign(folder, loads, conditions=GRAPHS)
    campaign.machine.device = Device(white_noise_w=1.0, warming_time_s=0.1)
    return campaign


def found_in(campaign: SimulatedCampaign, notes: str = "") -> list[ChainRow]:
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        return find_chains(Graphs(bench, notes), calls_in_chains_in(campaign.database), 8)  # type: ignore[arg-type]


@pytest.fixture
def one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_chains, "SIDES", (8,))


def built_for(side: int) -> list[OperatorTuple]:
    """Return what is measured for images of one side, each once."""
    wanted = [(*chain.operators, before(side), chain.behind_a_stream) for chain in chains_of(side)]
    return list(dict.fromkeys(operator for operators in wanted for operator in operators))


def test_declared_differences_are_found_kind_by_kind_and_kept(tmp_path: Path) -> None:
    campaign = campaign_in(tmp_path)
    found = found_in(campaign)
    assert [row.kind for row in found] == [ELEMENTWISE, NORM, PRODUCT]
    for row in found:
        assert abs(row.time_s - LONGER_S[row.kind]) < 3 * row.time_standard_error_s
        assert row.time_standard_error_s < 0.1e-6
        assert row.energy_j is not None
        assert row.energy_standard_error_j is not None
        assert abs(row.energy_j - LONGER_W * LONGER_S[row.kind]) < 3 * row.energy_standard_error_j
    assert calls_in_chains_in(campaign.database).rows() == found
    assert campaign.built == built_for(8)


@pytest.mark.parametrize("notes", ["uneven: so", "another process came"])
def test_what_is_refused_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture, notes: str) -> None:
    campaign = campaign_in(tmp_path)
    assert found_in(campaign, notes) == []
    assert calls_in_chains_in(campaign.database).rows() == []
    assert f"is not known: torch.nn.LeakyReLU: {notes}; the next run tries again" in caplog.text


def test_each_size_is_found_out_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = campaign_in(tmp_path)
    for sides, told in (((8,), "(1 sizes)"), ((8, 16, 32), "(2 sizes)"), ((8, 16, 32), "(2 sizes)")):
        monkeypatch.setattr(stage_chains, "SIDES", sides)
        with campaign.open_apparatus(None, campaign.database, True) as bench:
            find_chains_if_unknown(Graphs(bench), campaign.database)  # type: ignore[arg-type]
        assert told in caplog.text
    found = [(row.kind, row.memory_bytes) for row in calls_in_chains_in(campaign.database).rows()]
    assert found == [(chain.kind, chain.memory_bytes) for side in (8, 16, 32) for chain in chains_of(side)]
    assert caplog.text.count("is found out last: once") == 2


@pytest.mark.parametrize(
    ("device", "conditions"),
    [
        ("cuda:0", {"execution": "eager"}),
        ("cuda:0", {"cache": "cold"}),
        ("cpu", {"execution": "eager"}),
        ("cpu", {}),
    ],
)
def test_it_is_not_found_out_where_it_does_not_hold(tmp_path: Path, device: str, conditions: dict[str, str]) -> None:
    campaign = replace(campaign_in(tmp_path), device=device, conditions=replace(GRAPHS, **conditions))  # type: ignore[arg-type]
    with campaign.open_apparatus(None, campaign.database, True) as bench:
        find_chains_if_unknown(bench, campaign.database)
    assert campaign.built == []


def measure_model(campaign: SimulatedCampaign, dry_run: bool = False) -> None:
    @contextmanager
    def open_graphs(device: str | None, database: Path, with_meter: bool) -> Iterator[Bench]:
        with campaign.open_apparatus(device, database, with_meter) as bench:
            yield cast("Bench", Graphs(bench))

    protocol = MeasurementProtocol(0.5, 1.0)
    measure_operators(campaign.request(dry_run=dry_run), lambda _: protocol, open_graphs, RecordedProgress())


def test_block_2_finds_it_out_after_it_has_measured_something(tmp_path: Path, one_size: None) -> None:
    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    measure_model(campaign, dry_run=True)
    assert campaign.built == []
    measure_model(campaign)
    assert campaign.built == [RELU, *built_for(8)]
    measure_model(campaign)
    assert campaign.built == [RELU, *built_for(8)]


def test_where_a_chain_fails_nothing_of_it_is_kept_and_the_run_is_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, one_size: None
) -> None:
    def fail(operator: OperatorTuple) -> None:
        if operator == Chain(NORM, 8).behind_a_stream:
            raise CannotMeasureError("it ended the measuring process: ended by SIGKILL")

    campaign = campaign_in(tmp_path)
    campaign.add_model("a", {RELU: 1})
    campaign.before = fail
    with caplog.at_level(logging.WARNING):
        measure_model(campaign)
    assert "chains of 8 pixels a side is not known: it ended the measuring process" in caplog.text
    assert [row.kind for row in calls_in_chains_in(campaign.database).rows()] == [ELEMENTWISE]


def test_the_comparison_corrects_by_what_the_database_knows(tmp_path: Path, one_size: None) -> None:
    campaign = campaign_in(tmp_path)
    config = campaign.add_model("a", {RELU: 3})
    counts = read_counts(FILTERED_COUNTS.path(config), "")
    write_counts(FILTERED_COUNTS.path(config), replace(counts, total_memory_bytes=STREAM_BYTES + 1))
    campaign.loads = {**campaign.loads, counts.model: Load(time_s=MODEL_S, power_w=400.0)}
    measure_model(campaign)
    (campaign.database / "calls_in_chains.csv").unlink()
    protocol = MeasurementProtocol(0.5, 1.0)
    measure_full_models(campaign.request(), lambda _: protocol, campaign.open_apparatus, RecordedProgress())
    for row in of_all_kinds(2e-6, 3e-4):
        calls_in_chains_in(campaign.database).append(row)
    ((row,),) = (report.comparisons for report in compare_models(campaign.request()))
    assert (row.correction_time_s, row.correction_energy_j) == (pytest.approx(6e-6), pytest.approx(9e-4))
    errors = (row.correction_time_standard_error_s, row.correction_energy_standard_error_j)
    assert errors == (pytest.approx(0.6), pytest.approx(0.3))


# The operators


@pytest.mark.parametrize("kind", KINDS)
def test_chains_are_what_block_0_would_count(kind: str) -> None:
    chain = Chain(kind, 8)
    function, args, kwargs = operator_call(chain.behind_a_stream, "cpu")
    assert isinstance(function, ChainBehindAStream)
    with torch.inference_mode():
        output = function(*args, **kwargs)
    assert isinstance(output, torch.Tensor)
    assert output.shape == args[1].shape  # type: ignore[attr-defined]
    found = {count.operator: count for count in capture(function, args, chain.behind_a_stream).counts}
    modules = {operator: count.occurrences for operator, count in found.items() if not operator.is_function}
    assert modules == {operator: REPEATS * n for operator, n in Counter(chain.operators).items()}
    kinds = {kind_of(found[operator]) for operator in chain.operators}
    assert kinds == {ELEMENTWISE, kind}
    elementwise = found[Chain(ELEMENTWISE, 8).operators[0]]
    assert elementwise.memory_bytes == chain.memory_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_values_neither_vanish_nor_become_equal_in_a_chain(kind: str) -> None:
    torch.manual_seed(0)
    function, args, _ = operator_call(Chain(kind, 8).behind_a_stream, "cpu")
    with torch.inference_mode():
        output = function(*args)
    assert isinstance(output, torch.Tensor)
    assert output.unique().numel() > 0.9 * output.numel()
    assert output.abs().median() > 1e-30


def test_the_stream_is_read_before_a_copy_is_made() -> None:
    function, args, _ = operator_call(before(8), "cpu")
    with torch.inference_mode():
        output = function(*args)
    assert torch.equal(output, args[1])  # type: ignore[arg-type]
    counts = capture(function, args, before(8)).counts  # type: ignore[arg-type]
    assert counts[0].memory_bytes >= STREAM_BYTES


def test_no_kernel_runs_twice_in_a_row() -> None:
    for chain in chains_of(8):
        operators = (*chain.operators, *chain.operators)
        assert all(one != other for one, other in itertools.pairwise(operators))
