import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nvidia_smi_stage import NvidiaSmiStage, is_alive

from opcost.meters.log_meters import AVERAGE_SOURCE, INSTANT_SOURCE, NvidiaSmiMeter, power_trace
from opcost.meters.nvidia_smi import NvidiaSmiLogger, cut, parse_log
from opcost.power.log_rows import PowerRow, is_power_capped, is_thermal_slowdown
from opcost.power.ports import GpuError
from opcost.power.trace import PowerTrace, Window, fresh_readings, mean_power

RECORDINGS = Path(__file__).parents[1] / "recordings"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvidiaSmiStage]:
    stage = NvidiaSmiStage(tmp_path / "stage", monkeypatch)
    yield stage
    assert stage.living() == [], "nvidia-smi was left behind"


def logger_in(folder: Path) -> NvidiaSmiLogger:
    return NvidiaSmiLogger("0", folder / "power_logs", start_deadline_s=5.0)


def measured(logger: NvidiaSmiLogger, seconds: float, name: str = "operator", deadline_s: float = 2.0) -> PowerTrace:
    meter = NvidiaSmiMeter(logger, name, deadline_s)
    meter.start()
    time.sleep(seconds)
    return meter.stop()


def test_a_measurement_holds_its_own_rows_and_their_neighbours(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    with logger_in(tmp_path) as logger:
        time.sleep(0.15)
        begin_s = time.time()
        trace = measured(logger, 0.4)
        end_s = time.time()
    assert trace.missing_reason is None
    assert trace.epoch_s[0] < begin_s <= trace.epoch_s[1]
    assert begin_s < trace.epoch_s[-1] < end_s
    assert np.all(np.diff(trace.epoch_s) >= 0)
    assert trace.sm_clock_hz[0] == 1.98e9
    assert (trace.temperature_c[0], trace.memory_temperature_c[0], trace.busy_ratio[0]) == (45, 39, 0.97)


def test_readings_follow_the_load_that_was_declared(
    stage: NvidiaSmiStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "power"
    table.write_text("0 120\n")
    monkeypatch.setenv("FAKE_NVIDIA_SMI_POWER", str(table))
    with logger_in(tmp_path) as logger:
        meter = NvidiaSmiMeter(logger, "operator")
        meter.start()
        time.sleep(0.1)
        step_s = time.time()
        with table.open("a") as file:
            file.write(f"{step_s} 600\n")
        time.sleep(0.25)
        trace = meter.stop()
    assert np.all(trace.power_w[trace.epoch_s < step_s] == 120.0)
    assert set(trace.power_w) == {120.0, 600.0}
    assert trace.power_w[-1] == 600.0


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_measurements_share_a_process_and_each_is_kept_as_it_was_printed(
    stage: NvidiaSmiStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    with logger_in(tmp_path) as logger:
        begin_s = time.time()
        first, second = measured(logger, 1.1, "a"), measured(logger, 0.1, "b")
        assert len(stage.pids()) == 2  # one question for the fields, one log
    power = mean_power(first, begin_s, Window(begin_s, begin_s + 1.1))
    assert power.estimate_w is not None
    assert (300 <= power.estimate_w.value <= 306, power.readings >= 5) == (True, True)
    assert first.epoch_s[-2] < second.epoch_s[1]
    assert second.epoch_s[-1] == pytest.approx(time.time(), abs=60)
    assert sorted(path.name for path in (tmp_path / "power_logs").iterdir()) == ["a.csv", "b.csv"]
    for trace in (first, second):
        lines = (tmp_path / "power_logs" / str(trace.log_name)).read_text().splitlines()
        assert [row.values.epoch_s for row in parse_log(lines)] == trace.epoch_s.tolist()
        assert len(lines) == 1 + len(trace.epoch_s)


@pytest.mark.parametrize("fault", ["cut_line", "repeated_header", "decimal_comma", "renamed_headers", "slow_start"])
def test_readings_survive_faults_of_the_log(stage: NvidiaSmiStage, tmp_path: Path, fault: str) -> None:
    stage.act(fault)
    with logger_in(tmp_path) as logger:
        trace = measured(logger, 0.35)
    assert trace.missing_reason is None
    assert trace.source == INSTANT_SOURCE
    assert len(fresh_readings(trace, Window(0, time.time()))) >= 1
    assert set(trace.power_w) <= {300.0 + step for step in range(7)}
    assert set(trace.sm_clock_hz) == {1.98e9}


def test_rows_that_are_held_back_in_blocks_are_waited_for(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("block_buffered")
    with NvidiaSmiLogger("0", tmp_path, interval_s=0.005) as logger:
        begin_s = time.time()
        trace = measured(logger, 0.25)
    assert trace.missing_reason is None
    assert trace.epoch_s[-1] > begin_s + 0.25


def test_an_older_driver_gives_its_averaged_power(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("missing_instant")
    with logger_in(tmp_path) as logger:
        trace = measured(logger, 0.1)
    assert trace.source == AVERAGE_SOURCE
    assert np.all(trace.power_w > 300)
    assert np.all(trace.power_capped == 0)


def test_a_gpu_that_shows_no_power_says_so(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("not_supported")
    with logger_in(tmp_path) as logger:
        trace = measured(logger, 0.1)
    assert trace.missing_reason == "nvidia-smi reports no power for this GPU"
    assert trace.temperature_c[0] == 45


def test_a_log_that_ends_says_why_and_the_next_measurement_starts_it_again(
    stage: NvidiaSmiStage, tmp_path: Path
) -> None:
    stage.act("dies")
    with logger_in(tmp_path) as logger:
        broken = measured(logger, 0.4, "a")
        stage.act("error_on_stdout")
        refused = measured(logger, 0.0, "b")
        stage.act()
        whole = measured(logger, 0.1, "c")
    assert "ended during the measurement" in str(broken.missing_reason)
    assert "GPU is lost" in str(broken.missing_reason)
    assert "communicate with the NVIDIA driver" in str(refused.missing_reason)
    assert whole.missing_reason is None


def test_a_log_that_falls_silent_says_so_and_is_started_again(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("stalls")
    with logger_in(tmp_path) as logger:
        silent = measured(logger, 1.0, "a", deadline_s=1.2)
        stage.act()
        whole = measured(logger, 0.1, "b")
    assert silent.missing_reason is not None
    assert "printed nothing in the last" in silent.missing_reason
    assert whole.missing_reason is None


def test_a_log_that_pauses_right_before_the_end_is_complete(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("stalls")
    with logger_in(tmp_path) as logger:
        trace = measured(logger, 0.25, deadline_s=0.1)
        end_s = time.time()
    assert trace.epoch_s[-1] < end_s - 0.1
    assert trace.missing_reason is None


def test_a_log_without_a_first_row_is_an_error(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("silent")
    with pytest.raises(GpuError, match=r"no row within 0\.4 s"):
        NvidiaSmiLogger("0", tmp_path, start_deadline_s=0.4).__enter__()


def test_the_log_ends_with_a_program_that_is_killed(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    program = (
        "import os, pathlib, time\n"
        "from opcost.meters.nvidia_smi import NvidiaSmiLogger\n"
        f"with NvidiaSmiLogger('0', pathlib.Path({str(tmp_path)!r})) as logger:\n"
        "    print(logger._process.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    assert stage.living() == []


def test_ctrl_c_does_not_reach_the_log(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    """A terminal sends it to the process group: the rows of the measurement that is ended must still come."""
    with logger_in(tmp_path) as logger:
        assert logger._process is not None
        assert os.getpgid(logger._process.pid) != os.getpgid(0)
        assert os.getsid(logger._process.pid) == logger._process.pid


def test_a_meter_that_was_never_started_gives_no_power(tmp_path: Path) -> None:
    assert NvidiaSmiMeter(logger_in(tmp_path), "operator").stop().missing_reason == "the meter was not started"


@pytest.mark.parametrize(
    ("reasons", "capped", "thermal"),
    [
        (0x0, False, False),
        (0x1, False, False),  # idle
        (0x4, True, False),  # software power cap
        (0x8, False, True),  # hardware slowdown, cause unknown
        (0x20, False, True),  # software thermal slowdown
        (0x48, False, True),  # hardware slowdown for its temperature
        (0x88, True, False),  # hardware slowdown by the power brake
        (0x24, True, True),
        (None, None, None),
    ],
)
def test_event_reasons_distinguish_power_from_heat(
    reasons: int | None, capped: bool | None, thermal: bool | None
) -> None:
    assert is_power_capped(reasons) is capped
    assert is_thermal_slowdown(reasons) is thermal


def test_the_source_is_a_field_that_most_rows_have() -> None:
    rows = [PowerRow(float(index), power_average_w=200.0) for index in range(9)]
    trace = power_trace([PowerRow(9.0, power_instant_w=1.0, power_average_w=201.0), *rows], None)
    assert trace.source == AVERAGE_SOURCE
    assert power_trace([], None).missing_reason == "nvidia-smi logged no row in time"


def recorded(name: str) -> list[PowerRow]:
    """Return the rows of a recording that are in order of time."""
    return [row.values for row in cut(parse_log((RECORDINGS / name).read_text().splitlines()), 0, time.time())]


def test_an_h200_shows_its_load_at_once_in_one_field_and_after_a_second_in_the_other() -> None:
    rows = recorded("nvidia_smi_580_h200.csv")
    instant = power_trace(rows, None)
    average = power_trace([replace(row, power_instant_w=None) for row in rows], None)
    assert (instant.source, average.source) == (INSTANT_SOURCE, AVERAGE_SOURCE)
    assert instant.epoch_s[instant.power_w > 600][0] - instant.epoch_s[0] < 0.25
    assert average.epoch_s[average.power_w > 600][0] - average.epoch_s[0] > 0.9
    assert set(instant.power_capped[instant.power_w > 600]) == {1.0}
    assert instant.sm_clock_hz[0] == 1.98e9


def test_a_card_of_driver_470_gives_what_it_has() -> None:
    trace = power_trace(recorded("nvidia_smi_470_hand_written.csv"), None)
    assert trace.source == AVERAGE_SOURCE
    assert trace.power_w[[0, 2, 4]].tolist() == [71.13, 148.9, 152.41]
    assert np.isnan(trace.power_w[3])
    assert np.isnan(trace.sm_clock_hz[4])
    assert np.isnan(trace.memory_temperature_c).all()
    assert np.isnan(trace.power_capped).all()


def test_a_damaged_log_gives_its_good_rows() -> None:
    trace = power_trace(recorded("nvidia_smi_535_damaged_hand_written.csv"), None)
    assert trace.power_w[:2].tolist() == [301.2, 303.85]
    assert np.isnan(trace.power_w[2:]).all()
    assert trace.thermal_slowdown[:2].tolist() == [0, 1]
    assert len(trace.epoch_s) == 3
