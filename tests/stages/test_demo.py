"""The demo plays real logs: their energies are those of the shipped rows, and all is marked as recorded."""

import sys
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress

from opcost.__main__ import main
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import tuple_key
from opcost.running.request import RunRequest
from opcost.shipped import shipped_database
from opcost.stages.compare import find_comparisons
from opcost.stages.demo import play
from opcost.storage.database import Database


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRequest, list[float], Path]:
    folder, pauses = tmp_path_factory.mktemp("demo"), list[float]()
    return play(folder, pauses.append, RecordedProgress()), pauses, folder / "recording" / "database"


def rows_of(database: Database, wanted: set[str] | None = None) -> list[MeasurementRow]:
    tables = (database.operator_measurements, database.full_model_measurements)
    return [row for table in tables for row in table.rows(None if wanted is None else wanted.__contains__)]


def test_the_recording_has_rows_that_are_shipped(played: tuple[RunRequest, list[float], Path]) -> None:
    recorded = rows_of(Database(played[2]))
    assert len(recorded) == 18
    shipped = rows_of(Database(shipped_database()), {row.key for row in recorded})
    assert all(row in shipped for row in recorded)


def test_energies_of_the_logs_are_those_of_the_rows(played: tuple[RunRequest, list[float], Path]) -> None:
    request, pauses, recording = played
    recorded = {(tuple_key(row.key), row.input_data): row.measurement for row in rows_of(Database(recording))}
    found = rows_of(request.database)
    assert len(found) == len(pauses) == 18
    assert 10 < sum(pauses) < 15
    for row in found:
        was, now = recorded[tuple_key(row.key), row.input_data], row.measurement
        assert (now.time_s, now.flags, now.temperature_c) == (was.time_s, was.flags, was.temperature_c)
        assert now.power_w == pytest.approx(was.power_w, rel=1e-3)
        assert now.energy_j == pytest.approx(was.energy_j, rel=1e-3)
        assert now.energy_at_reference_j == pytest.approx(was.energy_at_reference_j, rel=1e-3)
        assert row.conditions.device_product == "NVIDIA H200, recorded 2026-11-22"
        assert now.notes.startswith("recorded")


def test_a_log_with_another_power_has_another_energy(played: tuple[RunRequest, list[float], Path]) -> None:
    from opcost.stages.demo import RecordedBench

    bench = RecordedBench.of(Database(played[2]), lambda _: None)
    (whole,) = bench.database.full_model_measurements.rows()
    path = bench.database.power_logs / f"{str(whole.measurement.power_log).removesuffix('.csv')}-samples.csv"
    text = path.read_text()
    header, *lines = text.splitlines()
    halved = [f"{moment},{float(power_w) / 2}" for moment, power_w in (line.split(",") for line in lines)]
    path.write_text("\n".join([header, *halved]))
    try:
        energy_j = bench.evaluated(whole.measurement).energy_j
    finally:
        path.write_text(text)
    assert energy_j == pytest.approx((whole.measurement.energy_j or 0) / 2, rel=1e-3)


def test_the_sum_of_the_recording_is_that_of_the_whole(played: tuple[RunRequest, list[float], Path]) -> None:
    (report,) = find_comparisons(played[0])
    (row,) = report.comparisons
    assert row.time_ratio == pytest.approx(1.005, abs=0.002)
    assert row.energy_ratio == pytest.approx(1.013, abs=0.005)
    assert row.missing_operators == 0


def test_the_command_ends_with_the_comparison_and_the_next_step_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["opcost", "demo"])
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert main() == 0
    out = capsys.readouterr().out
    assert out.startswith("Nothing is measured: a recording of AlexNet")
    assert out.index("Sum of operators and whole model") < out.index("Operators by energy") < out.index("Next steps")
    assert out.count("NVIDIA H200, recorded 2026-11-22") >= 4
