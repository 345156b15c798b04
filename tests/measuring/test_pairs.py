"""Loops of a workload beside its overhead, with declared noise."""

import numpy as np
import pytest
from simulated_machine import Load, SimulatedMachine, SimulatedPair

from opcost.errors import CannotMeasureError
from opcost.estimates import half_width_ratio
from opcost.measuring.flags import Flag
from opcost.measuring.loop import LONGEST_PAIRS_S, run_pairs
from opcost.measuring.procedure import ONLY_TIMED, measure_beside

EVICTION_S = 1.5e-4


class NoisyPair(SimulatedPair):
    """A pair whose differences scatter by a share of the load's time."""

    def __init__(self, seed: int, time_s: float, noise_ratio: float) -> None:
        self.machine = SimulatedMachine()
        super().__init__(self.machine, Load(time_s=time_s), Load(time_s=EVICTION_S))
        self._noise, self._noise_ratio = np.random.default_rng(seed), noise_ratio

    def run(self, rounds: int) -> int:
        ended = super().run(rounds)
        assert self.ended_s is not None
        self.ended_s *= 1 + self._noise_ratio * self._noise.standard_normal()
        return ended


@pytest.mark.parametrize("noise_ratio", [0.005, 0.02, 0.03])
def test_intervals_of_loops_that_end_by_their_precision_hold_the_truth(noise_ratio: float) -> None:
    held = []
    for seed in range(300):
        pair = NoisyPair(seed, 3e-6, noise_ratio)
        time_s = run_pairs(pair, pair.machine.instruments(), 0.01)
        half_width_s = half_width_ratio(time_s.time_s, len(time_s.chunk_durations_s)) * time_s.time_s.value
        held.append(abs(time_s.time_s.value - 3e-6) <= half_width_s)
    assert np.mean(held) > 0.9


def test_a_precise_time_ends_early_and_a_noisy_one_is_flagged_when_the_time_is_over() -> None:
    precise, noisy = NoisyPair(1, 3e-6, 0.001), NoisyPair(1, 3e-6, 0.3)
    short = measure_beside(precise, precise.machine.instruments(), 0.01)
    long = measure_beside(noisy, noisy.machine.instruments(), 0.01)
    assert short.loop_time_s < 0.2 * LONGEST_PAIRS_S < 0.9 * LONGEST_PAIRS_S < long.loop_time_s
    assert [Flag.IMPRECISE in one.flags for one in (short, long)] == [False, True]
    assert short.time_s == pytest.approx(3e-6, rel=0.005)
    assert (short.energy_j, short.energy_missing_reason) == (None, ONLY_TIMED)


def test_a_call_that_is_lost_in_noise_cannot_be_measured() -> None:
    lost = NoisyPair(1, 1e-9, 100.0)
    with pytest.raises(CannotMeasureError, match="no longer than its overhead"):
        measure_beside(lost, lost.machine.instruments(), 0.01)
