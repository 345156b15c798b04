from __future__ import annotations

import time

import pytest

from opcost.meters.host import SystemClock


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
