"""The host: its clock, and its load, temperature and memory, from files as Linux has them."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from powercap import RANGE_UJ, add_domain

from opcost.meters.host import HostState, SystemClock
from opcost.power.log_rows import HostRow
from opcost.running.apparatus import HostPowerWatch


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


# The host's power in a loop, from counters in files


def spend(counters: Sequence[Path], energies_j: Sequence[float], time_s: float = 0.2) -> None:
    """Let time pass, in which the counters move on; they wrap."""
    time.sleep(time_s)
    for counter, energy_j in zip(counters, energies_j, strict=True):
        counter.write_text(str(round(int(counter.read_text()) + energy_j * 1e6) % RANGE_UJ))


@pytest.fixture
def counters(tmp_path: Path) -> tuple[Path, ...]:
    package = add_domain(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    return package, add_domain(tmp_path, "intel-rapl:0:0", "dram")


def test_the_mean_power_of_the_loop_is_that_of_packages_and_memory(tmp_path: Path, counters: tuple[Path, ...]) -> None:
    watch, threads = HostPowerWatch(tmp_path), threading.enumerate()
    assert watch.power.host_power_missing_reason == "no loop was run"
    for energies_j in ((20.0, 2.0), (30.0, 3.0)):
        spend(counters, (5.0, 5.0), 0.0)
        watch.before_loop()
        spend(counters, energies_j)
        watch.after_finish()
        spend(counters, (5.0, 5.0), 0.0)
        expected_w = [energy_j / 0.2 for energy_j in energies_j]
        assert [watch.power.cpu_package_power_w, watch.power.dram_power_w] == pytest.approx(expected_w, rel=0.1)
        assert watch.power.host_power_missing_reason is None
    assert threading.enumerate() == threads


@pytest.mark.parametrize(
    ("energies_j", "reason"),
    [
        ((-500.0, 1.0), "the RAPL counter of package-0 jumped from 262142.33 J to 261642.33 J"),
        ((0.0, 1.0), "rapl package stands still"),
    ],
)
def test_a_counter_that_begins_again_or_stands_still_is_no_power(
    tmp_path: Path, counters: tuple[Path, ...], energies_j: tuple[float, float], reason: str
) -> None:
    watch = HostPowerWatch(tmp_path)
    watch.before_loop()
    spend(counters, energies_j)
    watch.after_finish()
    assert watch.power.cpu_package_power_w is None
    assert watch.power.dram_power_w == pytest.approx(5.0, rel=0.1)
    assert reason in str(watch.power.host_power_missing_reason)


def test_without_counters_there_is_a_reason(tmp_path: Path) -> None:
    watch = HostPowerWatch(tmp_path)
    watch.before_loop()
    watch.after_finish()
    assert watch.power.cpu_package_power_w is None
    assert "no RAPL energy counter" in str(watch.power.host_power_missing_reason)
