import os
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from powercap import RANGE_UJ, add_domain

from opcost.meters import rapl
from opcost.meters.rapl import RaplDomain, RaplMeter, RaplSampler, rapl_domains, rapl_unavailable_reason, sample_batches


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "powercap"
    (folder / "intel-rapl").mkdir(parents=True)
    return folder


@pytest.fixture
def steady_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package at 50 W whose counter wraps within 0.15 s. It counts when read: a busy machine delays no value."""
    add_domain(root, "intel-rapl:0", "package-0")
    begin_s = time.perf_counter()

    def read_uj(_: RaplDomain) -> int:
        return int(RANGE_UJ - 7_500_000 + (time.perf_counter() - begin_s) * 50e6) % RANGE_UJ

    monkeypatch.setattr(RaplDomain, "read_uj", read_uj)


@pytest.mark.usefixtures("steady_package")
def test_a_meter_can_be_started_again_and_holds_the_last_measurement(root: Path) -> None:
    meter = RaplMeter(root)
    meter.start()
    time.sleep(0.35)
    first = meter.stop()
    meter.start()
    time.sleep(0.35)
    second = meter.stop()
    assert len(second.epoch_s) >= 3
    assert second.epoch_s[0] > first.epoch_s[-1]
    assert second.log_name is None


def test_packages_and_their_memory_count_by_one_driver_and_their_parts_do_not(root: Path) -> None:
    # A second way to the counters is taken where it is the only one.
    add_domain(root, "intel-rapl-mmio:0", "package-0")
    assert len(rapl_domains(root)) == 1
    add_domain(root, "intel-rapl:0", "package-0")
    assert RaplSampler(root).source.name == "rapl package"
    for folder, name in (("0:0", "core"), ("0:1", "uncore"), ("0:2", "dram"), ("1", "package-1"), ("2", "psys")):
        add_domain(root, f"intel-rapl:{folder}", name)
    folders = [domain.counter.parent.name for domain in rapl_domains(root)]
    assert folders == ["intel-rapl:0", "intel-rapl:0:2", "intel-rapl:1"]
    source = RaplSampler(root).source
    assert source.name == "rapl package+dram"
    assert source.averaging_time_s == source.rise_time_s == rapl.INTERVAL_S


def test_power_is_the_sum_of_the_domains(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = add_domain(root, "intel-rapl:0", "package-0", 1_000_000)
    memory = add_domain(root, "intel-rapl:0:0", "dram", RANGE_UJ - 1_000_000)
    now_s = iter([10.0, 12.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now_s))
    sampler = RaplSampler(root)
    assert sampler.sample().power_average_w is None
    package.write_text("61000000\n")
    memory.write_text("3000000\n")
    assert sampler.sample().power_average_w == pytest.approx((60 + 4) / 2)


@given(st.integers(0, RANGE_UJ - 1), st.integers(0, RANGE_UJ - 1))
def test_a_counter_that_wraps_loses_nothing(begin_uj: int, energy_uj: int) -> None:
    domain = RaplDomain("package-0", Path("energy_uj"), RANGE_UJ)
    assert domain.difference_uj(begin_uj, (begin_uj + energy_uj) % RANGE_UJ, elapsed_s=300.0) == energy_uj


@pytest.mark.parametrize("later_uj", [0, 199_999_950, 199_999_999_999, 1_000_000_000])
def test_a_counter_that_begins_again_or_goes_back_a_little_is_no_wrap(root: Path, later_uj: int) -> None:
    counter = add_domain(root, "intel-rapl:0", "package-0", 200_000_000)
    meter = RaplMeter(root)
    meter.start()
    time.sleep(0.05)
    counter.write_text(f"{later_uj}\n")
    trace = meter.stop()
    assert np.isnan(trace.power_w).all()
    assert "the RAPL counter of package-0 jumped from 200 J to" in str(trace.missing_reason)


def test_a_jump_costs_one_sample(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = add_domain(root, "intel-rapl:0", "package-0")
    sampler = RaplSampler(root)
    powers_w = []
    for tenth, jump_uj in enumerate([0, 0, 0, 100_000_000_000, 100_000_000_000, 100_000_000_000]):
        monkeypatch.setattr(time, "perf_counter", partial(float, 100 + tenth / 10))
        counter.write_text(f"{1_000_000 + tenth * 5_000_000 + jump_uj}\n")
        powers_w.append(sampler.sample().power_average_w)
    assert powers_w == [None, *[pytest.approx(50.0)] * 2, None, *[pytest.approx(50.0)] * 2]


@pytest.mark.usefixtures("steady_package")
def test_the_meter_finds_the_power_of_a_package_through_a_wrap(root: Path, tmp_path: Path) -> None:
    log_path = tmp_path / "power_logs" / "operator.csv"
    meter = RaplMeter(root, log_path)
    meter.start()
    time.sleep(0.45)
    stop_s = time.time()
    trace = meter.stop()
    assert trace.missing_reason is None
    assert trace.epoch_s[-1] > stop_s
    assert np.nanmedian(trace.power_w) == pytest.approx(50.0, rel=0.2)
    assert np.nanmin(trace.power_w) > 0
    assert np.isnan(trace.temperature_c).all()
    assert np.isnan(trace.power_capped).all()
    assert trace.log_name == "operator.csv"
    assert len(log_path.read_text().splitlines()) == 1 + len(trace.epoch_s)


def test_a_counter_that_stands_still_is_no_power(root: Path) -> None:
    add_domain(root, "intel-rapl:0", "package-0")
    meter = RaplMeter(root)
    meter.start()
    assert meter.stop().missing_reason == "the RAPL counters stand still"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_sample_in_which_one_of_two_counters_fails_is_no_power_and_no_begin_of_one(root: Path, failing: int) -> None:
    counters = [add_domain(root, "intel-rapl:0", "package-0"), add_domain(root, "intel-rapl:0:0", "dram")]
    sampler = RaplSampler(root)
    sampler.sample()
    powers_w = []
    for text in ("no number", "2000000", "3000000"):
        counters[failing].write_text(text)
        powers_w.append(sampler.sample().power_average_w)
    assert [power_w is None for power_w in powers_w] == [True, True, False]


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    reason = rapl_unavailable_reason(tmp_path / "nothing")
    assert reason is not None
    assert "no RAPL energy counter" in reason
    meter = RaplMeter(tmp_path / "nothing")
    meter.start()
    assert meter.stop().missing_reason == reason


def test_counters_for_root_only_are_reported_with_the_remedy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = add_domain(root, "intel-rapl:0", "package-0")
    assert rapl_unavailable_reason(root) is None
    counter.chmod(0)
    if os.geteuid() == 0:  # who may read everything
        monkeypatch.setattr(RaplDomain, "read_uj", _refuse)
    reason = rapl_unavailable_reason(root)
    assert reason is not None
    assert f"sudo chmod a+r {root}/*/energy_uj" in reason
    monkeypatch.undo()
    counter.chmod(0o644)
    counter.write_text("")
    assert "cannot be read" in (rapl_unavailable_reason(root) or "")


def test_samples_come_until_they_are_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_domain(root, "intel-rapl:0", "package-0")
    stopping = threading.Event()
    batches = sample_batches(0.01, stopping, root)
    assert len([next(batches) for _ in range(3)]) == 3
    stopping.set()
    assert list(batches) == []


def _refuse(domain: RaplDomain) -> int:
    raise PermissionError(13, "Permission denied", str(domain.counter))
