"""Boards in tables: by the beginning of their UUIDs, also those of tables that have whole ones."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_machine import simulated_row

from opcost.measuring.protocol import protocol_for
from opcost.measuring.record import MeasurementRow
from opcost.operators.tuples import OperatorTuple
from opcost.power.ports import DeviceFacts
from opcost.running.apparatus import open_apparatus
from opcost.storage.database import Database
from opcost.units import short_uuid

ROOT = Path(__file__).parents[1]
WHOLE = "GPU-11111111-2222-3333-4444-555555555555"
SHORT = "GPU-11111111"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (WHOLE, SHORT),
        (SHORT, SHORT),
        (WHOLE.replace("GPU", "MIG"), "MIG-11111111"),
        (f"MIG-{WHOLE}/1/0", f"MIG-{SHORT}/1/0"),
        ("another board", "another board"),
    ],
)
def test_a_uuid_ends_after_eight_digits(text: str, shown: str) -> None:
    assert short_uuid(text) == shown


def row_on(board: str) -> MeasurementRow:
    row = simulated_row(OperatorTuple("torch.nn.ReLU"))
    return replace(row, circumstances=replace(row.circumstances, device_uuid=board))


def test_a_row_with_a_whole_uuid_is_of_the_same_board_and_the_same_row_as_a_shipped_one(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    Database(own).operator_measurements.append(row_on(WHOLE))
    Database(shipped).operator_measurements.append(row_on(SHORT))
    assert WHOLE in Database(own).operator_measurements.path.read_text(encoding="utf-8")
    assert Database(own, shipped).operator_measurements.rows() == [row_on(SHORT)]
    table = Database(own).operator_measurements
    assert table.append_missing(Database(shipped).operator_measurements.rows()) == 0


def test_rows_are_measured_on_a_board_by_the_beginning_of_its_uuid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = DeviceFacts(WHOLE, "a card", 1, None, None)
    monkeypatch.setattr("opcost.running.apparatus.facts_of", lambda _: facts)
    with open_apparatus("cpu", Database(tmp_path), with_meter=False) as apparatus:
        assert apparatus.circumstances(protocol_for(False)).device_uuid == SHORT


def test_no_committed_table_or_page_names_a_board_by_its_whole_uuid() -> None:
    pattern = r"(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}"
    done = subprocess.run(["git", "grep", "-hioE", pattern], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "this file has some"
    assert {*done.stdout.split()} <= {"GPU-11111111-2222", "MIG-11111111-2222"}, "a board's whole UUID is committed"
