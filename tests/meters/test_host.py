"""The host: its clock, and its load, temperature and memory, from files as Linux has them."""

import time
from pathlib import Path

import pytest

from opcost.meters.host import HostState, SystemClock
from opcost.power.log_rows import HostRow


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 2 3\n")
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  400 kB\n")
    for number, name in enumerate(("nvme", "coretemp")):
        monitor = tmp_path / "hwmon" / f"hwmon{number}"
        monitor.mkdir(parents=True)
        (monitor / "name").write_text(f"{name}\n")
        (monitor / "temp1_input").write_text(f"{40000 + 10000 * number}\n")
    (tmp_path / "hwmon" / "hwmon1" / "temp2_input").write_text("55500\n")
    return tmp_path


def state_of(host: Path) -> HostState:
    return HostState(host / "proc", host / "hwmon", host / "thermal", has_power=False)


def test_load_is_the_busy_share_since_the_last_reading(host: Path) -> None:
    state = state_of(host)
    assert state.read() == HostRow(None, None, pytest.approx(55.5), 600 * 1024)
    (host / "proc" / "stat").write_text("cpu  130 0 70 840 60 0 0 0 90 0\n")
    assert state.read().cpu_load_ratio == pytest.approx(0.5)


def test_a_thermal_zone_stands_in_for_a_monitor(host: Path) -> None:
    (host / "hwmon" / "hwmon1" / "name").write_text("other\n")
    zone = host / "thermal" / "thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("x86_pkg_temp\n")
    (zone / "temp").write_text("61000\n")
    assert state_of(host).read().cpu_temperature_c == pytest.approx(61.0)


def test_what_is_not_reported_is_unknown(tmp_path: Path) -> None:
    assert state_of(tmp_path).read() == HostRow()
    (tmp_path / "proc").mkdir()
    for name in ("stat", "meminfo"):
        (tmp_path / "proc" / name).write_text("cpu x\nMemTotal:\n")
    assert state_of(tmp_path).read() == HostRow()


def test_a_reading_lies_between_those_around_it() -> None:
    before = (time.perf_counter(), time.time())
    reading = SystemClock().read()
    after = (time.perf_counter(), time.time())
    assert before[0] <= reading.monotonic_s <= after[0]
    assert before[1] <= reading.epoch_s <= after[1]


def test_the_monotonic_time_is_that_between_the_two_reads_around_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic = iter([10.0, 11.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(monotonic))
    assert SystemClock().read().monotonic_s == 10.5
