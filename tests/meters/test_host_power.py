"""The host's power in a loop, from counters in files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from opcost.running.apparatus import HostPowerWatch


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
