"""The keys of all committed rows follow from their other columns: no change of the code may make them worthless."""

from pathlib import Path

import pytest

from opcost.measuring.conditions import measurement_key
from opcost.operators.cases import Case
from opcost.operators.texts import parse_operator
from opcost.operators.values import parse_input_data
from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / "database", *sorted(path.parent for path in ROOT.glob("docs/data/**/operator_measurements.csv"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_the_keys_of_committed_rows_follow_from_their_other_columns(folder: Path) -> None:
    tables = Database(folder).operator_measurements, Database(folder).full_model_measurements
    rows = [row for table in tables for row in table.rows()]
    assert rows
    for row in rows:
        operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
        assert row.key == measurement_key(Case(operator, parse_input_data(row.input_data)), row.conditions)
