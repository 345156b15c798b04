"""The host: its clock, and its load, temperature and memory, from files as Linux has them."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

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


class Host:
    """A host with counters of one package and its memory, and a clock."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_s = root, 0.0
        self.counters = {"intel-rapl:0": ("package-0", 0), "intel-rapl:0:0": ("dram", 0)}
        for folder, (name, _) in self.counters.items():
            (root / folder).mkdir()
            (root / folder / "name").write_text(name)
            (root / folder / "max_energy_range_uj").write_text("1000000000")
        self.pass_time(0.0, 0.0, 0.0)

    def pass_time(self, seconds: float, package_w: float, dram_w: float) -> None:
        self.now_s += seconds
        for folder, power_w in zip(self.counters, (package_w, dram_w), strict=True):
            name, energy_uj = self.counters[folder]
            energy_uj = (energy_uj + round(power_w * seconds * 1e6)) % 1_000_000_000
            self.counters[folder] = name, energy_uj
            (self.root / folder / "energy_uj").write_text(str(energy_uj))

    def watch(self) -> HostPowerWatch:
        return HostPowerWatch(self.root, lambda: self.now_s)


def test_the_mean_power_of_the_loop_is_that_of_packages_and_memory(tmp_path: Path) -> None:
    host = Host(tmp_path)
    watch = host.watch()
    assert watch.power.host_power_missing_reason == "no loop was run"
    host.pass_time(1.0, 500.0, 500.0)
    watch.before_loop()
    host.pass_time(2.0, 100.0, 10.0)
    watch.after_finish()
    host.pass_time(1.0, 500.0, 500.0)
    assert (watch.power.cpu_package_power_w, watch.power.dram_power_w) == pytest.approx((100.0, 10.0))
    assert watch.power.host_power_missing_reason is None
    watch.before_loop()
    for _ in range(60):
        # Counters wrap several times.
        host.pass_time(5.0, 150.0, 15.0)
        watch.during()
    watch.after_finish()
    assert watch.power.cpu_package_power_w == pytest.approx(150.0)


def begins_again(host: Host) -> None:
    host.counters["intel-rapl:0"] = "package-0", 0
    host.pass_time(0.1, 100.0, 10.0)


@pytest.mark.parametrize(
    ("course", "reason"),
    [
        (begins_again, "the RAPL counter of package-0 jumped from 500 J to 10 J"),
        (lambda host: host.pass_time(1.0, 0.0, 0.0), "the RAPL counters stand still"),
    ],
)
def test_a_counter_that_begins_again_or_stands_still_is_no_power(
    tmp_path: Path, course: Callable[[Host], None], reason: str
) -> None:
    host = Host(tmp_path)
    watch = host.watch()
    host.pass_time(1.0, 500.0, 5.0)
    watch.before_loop()
    course(host)
    watch.after_finish()
    assert watch.power.cpu_package_power_w is None
    assert reason in str(watch.power.host_power_missing_reason)


def test_without_counters_there_is_a_reason(tmp_path: Path) -> None:
    watch = HostPowerWatch(tmp_path)
    watch.before_loop()
    watch.after_finish()
    assert watch.power.cpu_package_power_w is None
    assert "no RAPL energy counter" in str(watch.power.host_power_missing_reason)
