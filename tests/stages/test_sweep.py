"""Sweeps on the simulated machine: what is measured again, in which order, and what survives failures and ends."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fatal_bench import LOST, LOST_ONCE, fatal_answering
from simulated_apparatus import RecordedProgress
from simulated_machine import SIMULATED_CONDITIONS, Load
from simulated_sweep import LOOP_S, SimulatedSweep

from opcost.errors import UserError
from opcost.measuring.sweep_record import SweepPrediction
from opcost.operators.sweep_axes import Axis, AxisKind
from opcost.running import bench as bench_module
from opcost.running.bench import open_child_bench
from opcost.stages.sweep import PredictedSize, keep_sizes, recorded, result_of, sweep_of
from opcost.stages.wanted_model import WantedModel
from opcost.storage.database import Database

LOADS = {32: Load(0.001, 200.0), 64: Load(0.004, 300.0), 128: Load(0.016, 400.0)}


class Ended(BaseException):
    """Ends a sweep as Ctrl-C does."""


class EndsAfter(RecordedProgress):
    """Ends a sweep when some repetitions are reported."""

    def __init__(self, repetitions: int) -> None:
        super().__init__()
        self._left = repetitions

    def finish(self, result: str, worker: str = "") -> None:
        super().finish(result, worker)
        self._left -= 1
        if not self._left:
            raise Ended


def test_each_size_has_its_repetitions_and_the_declared_costs(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    measured = swept.measure(repetitions=3)
    rows = swept.database.sweep_repetitions.rows()
    assert Counter((row.place.size, row.repetition) for row in rows) == Counter(
        (size, number) for size in LOADS for number in (1, 2, 3)
    )
    assert [measured.new, swept.measure(repetitions=3).new, swept.measure(repetitions=4).new] == [9, 0, 3]
    for row in swept.result(measured).sizes:
        load = LOADS[row.place.size]
        assert row.figures.time_s == pytest.approx(load.time_s, rel=0.01)
        assert row.figures.energy_j == pytest.approx(load.time_s * load.power_w, rel=0.02)
        assert row.figures.time_spread_ratio is not None
        assert row.place.units_of_a_run == 2 * row.place.size**2
        assert row.figures.energy_per_unit_j == pytest.approx(row.figures.energy_j / row.place.units_of_a_run)


def test_a_block_shares_one_build_and_every_size_comes_before_any_comes_again(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    swept.measure(repetitions=7)
    assert len(swept.built) == 6
    assert set(swept.built[:3]) == set(swept.built[3:]) == set(LOADS)
    rows = [row for row in swept.database.sweep_repetitions.rows() if row.place.size == 32]
    assert [(row.repetition, row.block) for row in rows] == [(n, 1 + (n > 5)) for n in range(1, 8)]


def test_the_order_of_blocks_is_that_of_the_seed(tmp_path: Path) -> None:
    orders = set()
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        swept = SimulatedSweep(folder, LOADS)
        swept.measure(repetitions=1, seed=seed)
        orders.add(tuple(swept.built))
        assert {row.order_seed for row in swept.database.sweep_repetitions.rows()} == {seed}
    assert len(orders) > 1


def test_a_size_that_fails_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS, failing={256: "out of memory"})
    measured = swept.measure(repetitions=3)
    (failure,) = swept.database.sweep_failures.rows()
    assert (failure.place.size, failure.reason) == (256, "out of memory")
    result = swept.result(measured)
    assert [row.place.size for row in result.failed] == [256]
    assert {row.place.size: row.figures.repetitions for row in result.sizes} == {32: 3, 64: 3, 128: 3, 256: 0}
    # It comes last from now on.
    for seed in range(1, 5):
        progress = RecordedProgress()
        swept.measure(repetitions=seed + 3, seed=seed, progress=progress)
        assert "256" in progress.names[-1]


def test_repetitions_on_another_board_do_not_count(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    swept.measure(repetitions=2)
    table = swept.database.sweep_repetitions
    table.replace_rows(
        lambda rows: [
            replace(
                row,
                measurement=replace(row.measurement, time_s=2 * row.measurement.time_s),
                circumstances=replace(row.circumstances, device_uuid="another"),
            )
            for row in rows
        ]
    )
    measured = swept.measure(repetitions=2)
    assert measured.new == 6
    for row in swept.result(measured).sizes:
        assert row.figures.time_s == pytest.approx(LOADS[row.place.size].time_s, rel=0.01)


@pytest.mark.parametrize("ends_after", [1, 2, 4, 6, 8])
def test_a_sweep_that_ends_goes_on_and_loses_no_repetition(tmp_path: Path, ends_after: int) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    with pytest.raises(Ended):
        swept.measure(repetitions=3, progress=EndsAfter(ends_after))
    assert len(swept.database.sweep_repetitions.rows()) == ends_after
    assert swept.measure(repetitions=3).new == 9 - ends_after
    numbers = Counter((row.place.size, row.repetition) for row in swept.database.sweep_repetitions.rows())
    assert set(numbers.values()) == {1}
    assert len(numbers) == 9


def test_a_block_whose_process_is_killed_is_finished_by_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "answering", fatal_answering)
    swept, progress = SimulatedSweep(tmp_path, LOADS), RecordedProgress()
    measured = swept.measure(repetitions=3, progress=progress, opened=open_child_bench)
    rows = swept.database.sweep_repetitions.rows()
    numbers = {size: [(row.repetition, row.block) for row in rows if row.place.size == size] for size in LOADS}
    assert numbers == {LOST_ONCE: [(1, 1), (2, 2), (3, 2)], LOST: [(1, 1)], 128: [(1, 1), (2, 1), (3, 1)]}
    assert (measured.planned, measured.new, len(progress.results)) == (9, 7, 9)
    (failure,) = swept.database.sweep_failures.rows()
    assert (failure.place.size, failure.reason) == (LOST, "it ended the measuring process: ended by SIGKILL")
    assert swept.measure(repetitions=3, opened=open_child_bench, dry_run=True).planned == 2


def test_a_dry_run_plans_measures_nothing_and_gives_a_time(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    planned = swept.measure(repetitions=3, dry_run=True)
    assert planned.planned == 9
    assert planned.expected_s > 9 * LOOP_S
    assert swept.database.sweep_repetitions.rows() == []
    assert swept.campaign.with_meter == [False]


def test_recorded_repetitions_are_found_without_the_device(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    measured = swept.measure(repetitions=2)
    found = recorded(swept.database, swept.sweep, "simulated machine", "eager")
    assert found is not None
    assert swept.result(found).sizes == swept.result(measured).sizes
    assert recorded(swept.database, swept.sweep, "another", None) is None


def test_of_boards_with_as_many_repetitions_the_newest_is_recorded_and_the_own_one_before_shipped_ones(
    tmp_path: Path,
) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    swept.measure(repetitions=2)
    rows = swept.database.sweep_repetitions.rows()
    shipped = Database(tmp_path / "shipped")
    for board, day in (("old", 1), ("new", 3), ("older", 2)):
        of_board = [
            replace(
                row,
                measurement=replace(row.measurement, started_at=f"2026-11-0{day}T00:00:00+00:00"),
                circumstances=replace(row.circumstances, device_uuid=board),
            )
            for row in rows
        ]
        shipped.sweep_repetitions.append_missing(of_board)

    def board_in(database: Database) -> str | None:
        found = recorded(database, swept.sweep, None, "eager")
        assert found is not None
        return found.wanted.device_uuid

    assert board_in(shipped) == "new"
    own = Database(tmp_path / "own", shipped.folder)
    assert board_in(own) == "new"
    own.sweep_repetitions.append(rows[0])
    assert board_in(own) == rows[0].circumstances.device_uuid


def test_a_shipped_prediction_stays_beside_own_repetitions(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    result = swept.result(swept.measure(repetitions=2))
    prediction = SweepPrediction(predicted_time_s=1.0)
    shipped = Database(tmp_path / "shipped")
    shipped.sweep_sizes.append_missing(replace(row, prediction=prediction) for row in result.sizes)
    own = Database(tmp_path / "own", shipped.folder)
    keep_sizes(own, result)
    assert {row.prediction for row in Database(own.folder).sweep_sizes.rows()} == {prediction}


def test_a_config_with_a_list_of_sizes_is_a_sweep(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, LOADS)
    path = swept.campaign.measurements / "listed" / "summary.yml"
    path.parent.mkdir()
    path.write_text(
        "model_name: resnet18\nweights_name: null\ninput_size: [2, 3, 32, 32]\nbatch: [1, 2, 4]\ndone: false\n"
    )
    sweep = sweep_of(swept.campaign.request(), WantedModel("listed"), None)
    assert (sweep.kind, sweep.name) == (AxisKind.BATCH, "resnet18 Nx3x32x32")
    assert [(point.size, point.config.input_size[0]) for point in sweep.points] == [(1, 1), (2, 2), (4, 4)]


def test_a_model_without_an_axis_is_refused_with_a_remedy(tmp_path: Path) -> None:
    request = SimulatedSweep(tmp_path, LOADS).campaign.request()
    with pytest.raises(UserError, match="resnet18: nothing to sweep over; add --size"):
        sweep_of(request, WantedModel("resnet18"), None)
    with pytest.raises(UserError, match="--size: an input of 2 numbers has no size"):
        sweep_of(request, WantedModel("transformers:BertModel", (2, 8)), Axis(AxisKind.SIZE, (32,)))


def test_a_context_is_an_argument_of_a_decode_step(tmp_path: Path) -> None:
    request = SimulatedSweep(tmp_path, LOADS).campaign.request()
    axis, name = Axis(AxisKind.CONTEXT, (16, 32)), "transformers:LlamaForCausalLM"
    sweep = sweep_of(request, WantedModel(name, (4, 1), arguments=(("hidden_size", 64),)), axis)
    assert sweep.name == f"{name} 4x1 hidden_size=64 context N"
    assert [dict(point.config.arguments)["decode_context"] for point in sweep.points] == [16, 32]
    assert [point.units for point in sweep.points] == [4, 4]
    with pytest.raises(UserError, match="--context: a decode step reads one token of each text; add --input-size"):
        sweep_of(request, WantedModel(name, (4, 8)), axis)


def test_a_curve_that_is_neither_measured_nor_predicted_is_refused_with_reasons(tmp_path: Path) -> None:
    swept = SimulatedSweep(tmp_path, dict.fromkeys((32, 64, 96, 128), LOADS[32]))
    predicted = {
        point: PredictedSize(
            SweepPrediction(prediction_missing_reason=f"{point.size} % is unlike all rows"),
            conditions=SIMULATED_CONDITIONS,
        )
        for point in swept.sweep.points
    }
    with pytest.raises(UserError) as refused:
        result_of(swept.database, swept.sweep, None, predicted)
    assert len(refused.value.lines) == 3
    assert refused.value.lines[0].endswith("not measured, and not predicted: 32 % is unlike all rows")
    known = PredictedSize(SweepPrediction(predicted_time_s=0.001), conditions=SIMULATED_CONDITIONS)
    result = result_of(swept.database, swept.sweep, None, {**predicted, swept.sweep.points[0]: known})
    assert [row.prediction.predicted_time_s for row in result.sizes] == [0.001, None, None, None]
