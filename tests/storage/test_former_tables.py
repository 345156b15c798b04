"""Tables of version 0.2, whose rows have phrases in their notes where this version has flags."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_machine import simulated_row

from opcost.errors import UserError
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow, is_flagged
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

ROW = simulated_row(OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((4,), "float32"),)))


def read_back(folder, notes):
    """Return the measurement of a row with these notes, as version 0.2 wrote it: without flags, in a signed line."""
    table = CsvTable(folder / "table.csv", MeasurementRow)
    row = replace(ROW, measurement=replace(ROW.measurement, notes=notes))
    columns, cells = csv.reader(table.text([row]).splitlines())
    kept = [index for index, name in enumerate(columns) if name not in ("flags", "duty_cycle", "checksum")]
    with table.path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [values[index] for index in kept] for values in (columns, cells)
        )
    (read,) = table.rows()
    return read.measurement


def former_table(folder, mode):
    """Return a table as versions up to 0.3 wrote it: with the mode of its conditions, and without a phase."""
    table = CsvTable(folder / "table.csv", MeasurementRow)
    lines = list(csv.DictReader(table.text([ROW]).splitlines()))
    columns = [name for name in lines[0] if name not in ("phase", "checksum")]
    columns.insert(columns.index("sdpa_math") + 1, "mode")
    with table.path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(line | {"mode": mode} for line in lines)
    return table


def test_rows_with_a_mode_are_of_the_inference_phase_and_converted_by_the_next_write(tmp_path):
    table = former_table(tmp_path, "inference")
    assert table.rows() == [ROW]
    table.append(ROW)
    assert table.path.read_text() == table.text([ROW, ROW])
    assert "mode" not in table.text([]).split(",")
    assert (tmp_path / "table.csv.old").is_file()


def test_a_mode_that_was_never_measured_is_refused(tmp_path):
    with pytest.raises(UserError, match="table.csv:2: mode: only 'inference' was ever written; fix or delete the line"):
        former_table(tmp_path, "training").rows()


@pytest.mark.parametrize(
    ("notes", "flags"),
    [
        ("", ()),
        ("uneven: the median chunk took 1.7 times the shortest", (Flag.UNEVEN,)),
        ("meters disagree: 600.0 W and 500.0 W", (Flag.METERS_DISAGREE,)),
        ("meters disagree: 600.0 W and 500.0 W in the sentinel before", (Flag.METERS_DISAGREED_BEFORE,)),
        ("thermal slowdown for 12% of the loop", (Flag.THERMAL_SLOWDOWN,)),
        ("another process came to the GPU meanwhile, one of 7", (Flag.OTHER_PROCESS,)),
        ("another process or more took 80% of the processors meanwhile", (Flag.OTHER_PROCESS,)),
        ("no temperature: the device's log has no row in the loop", (Flag.NO_TEMPERATURE,)),
        ("memory ran out in the capture: libraries may run other algorithms", (Flag.OUT_OF_MEMORY_IN_CAPTURE,)),
        ("not within 1.00% after 2.5 s", (Flag.IMPRECISE,)),
        ("not within 1.00% after 1e+01 s", (Flag.IMPRECISE,)),
        ("not within 0.50% once the overhead is subtracted", (Flag.IMPRECISE,)),
        ("runs nothing on the device", (Flag.NO_KERNEL,)),
        ("clocks held down by the power limit for 30% of the loop", (Flag.POWER_CAPPED,)),
        ("at the power limit of 700 W: slower where it lasts", (Flag.AT_POWER_LIMIT,)),
        ("at the power limit, and nothing tells of clocks", (Flag.POWER_CAP_UNKNOWN,)),
        ("in-place kernel run into another tensor; in place: as warm", (Flag.MODIFIES_INPUT, Flag.RAN_WARM)),
        ("its output holds NaN or infinity", (Flag.NOT_FINITE,)),
        ("of the overhead: clocks still low from the load before for 40% of the loop", (Flag.CLOCKS_STILL_LOW,)),
    ],
)
def test_phrases_are_read_as_flags_and_stay_in_the_notes(tmp_path, notes, flags):
    measured = read_back(tmp_path, notes)
    assert (measured.flags, measured.notes) == (flags, notes)


def test_a_duty_cycle_is_read_with_its_share(tmp_path):
    measured = read_back(tmp_path, "below the power limit in a duty cycle of at most 75 %")
    assert (measured.flags, measured.duty_cycle) == ((Flag.DUTY_CYCLE,), 0.75)


@pytest.mark.parametrize(
    "reason",
    [
        "eager, since CUDA error: the memory is shared with another process",
        "eager, since a kernel is uneven: the sizes differ",
        "eager, since meters disagree",
    ],
)
def test_a_sentence_of_torchs_own_casts_no_doubt(tmp_path, reason):
    """It made sound rows doubtful, and had them measured again."""
    measured = read_back(tmp_path, reason)
    assert (measured.flags, is_flagged(measured)) == ((), False)
    assert not is_flagged(replace(ROW.measurement, notes="another process came to the GPU meanwhile, one of 7"))


ROOT = Path(__file__).parents[2]
KEPT = Database(ROOT / "tests" / "recordings" / "tables_0_2")
UPGRADED = Database(ROOT / "docs" / "data" / "resnet50")
PAIRS = [pair for pair in zip(KEPT.tables, UPGRADED.tables, strict=True) if pair[0].path.is_file()]


@pytest.mark.parametrize(("kept", "upgraded"), PAIRS, ids=lambda table: table.path.stem)
def test_a_kept_table_is_read_as_the_one_that_was_upgraded(kept, upgraded, tmp_path):
    """A copy of it is converted by its next row, and has the rows that it had."""
    path = kept.path
    copy = CsvTable(Path(shutil.copy(path, tmp_path)), upgraded.row_type)
    rows = copy.rows()
    assert rows
    assert rows == upgraded.rows()[: len(rows)]
    copy.prepare()
    assert copy.rows() == rows
    assert (tmp_path / f"{path.name}.old").read_bytes() == path.read_bytes()


def test_a_table_with_a_former_name_is_read_and_goes_on(tmp_path):
    table = Database(tmp_path).drift_checks
    assert table.path.name == "drift_checks.csv"
    table.append(ROW)
    table.path.rename(tmp_path / "sentinel_measurements.csv")
    again = Database(tmp_path).read_once().drift_checks
    assert again.rows() == [ROW]
    Database(tmp_path).drift_checks.append(ROW)
    assert [path.name for path in tmp_path.iterdir()] == ["sentinel_measurements.csv"]
