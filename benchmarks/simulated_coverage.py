"""How often 95 % intervals of time and energy contain the declared truth, fault by fault, on the simulated machine

Example: PYTHONPATH=.:tests python benchmarks/simulated_coverage.py --seeds 1000
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace

import numpy as np
from simulated_machine import LOOKING_RING, RING, Device, Load, MeterModel, SimulatedMachine

from opcost.estimates import BATCHES, Estimate, student_quantile
from opcost.measuring.known_device import KnownDevice
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import SHORT_WARM_UP_S, MeasurementProtocol
from opcost.measuring.record import COEFFICIENT_SPREAD_PER_KELVIN, REFERENCE_TEMPERATURE_C, Measurement, quality_flags
from opcost.measuring.workload import Workload
from opcost.power.trace import PowerSource
from opcost.running import drift_check

LOAD = Load(time_s=0.002, power_w=400.0, jitter_ratio=0.02)
PRECISE = MeasurementProtocol(warm_up_s=0.25, loop_s=30.0, relative_error=0.01)
LONG = MeasurementProtocol(warm_up_s=2.0, loop_s=5.0)
LONGER = MeasurementProtocol(warm_up_s=2.0, loop_s=6.1)
DRIFT_CHECK = MeasurementProtocol(SHORT_WARM_UP_S, drift_check.LOOP_S)
INSTANT = MeterModel(averaging_time_s=0.025)
LIMIT_W = 700.0
AVERAGE = MeterModel(averaging_time_s=1.0)
QUIET = Device(white_noise_w=6.0)


@dataclass(frozen=True)
class Case:
    """A fault, and what is measured with it."""

    name: str
    meter: MeterModel = RING
    device: Device = QUIET
    load: Load = LOAD
    protocol: MeasurementProtocol = PRECISE
    checks: tuple[MeterModel, ...] = ()
    slope: Estimate | None = None


LASTING_50, LASTING_500 = (
    Device(white_noise_w=4.0, correlated_noise_w=4.0, correlation_time_s=time_s) for time_s in (0.05, 0.5)
)
KNOWN_50, KNOWN_500 = (
    replace(RING, source=replace(RING.power_source, correlation_time_s=time_s, noise_ratio=0.011))
    for time_s in (0.05, 0.4)
)
"""The same noise as a qualification finds it: a little less of noise that lasts long."""

HARDLY_LASTING = Device(white_noise_w=0.8, correlated_noise_w=1.0, correlation_time_s=0.18)
KNOWN_180 = replace(RING, source=replace(RING.power_source, correlation_time_s=0.18, noise_ratio=0.003))
"""The worst noise that qualifications of H200s found (``docs/log/meters.md``)."""

KNOWN_36 = replace(RING, source=replace(RING.power_source, correlation_time_s=0.036, noise_ratio=0.002))
LOADS_04, LOADS_1 = (
    Device(white_noise_w=0.8, correlated_noise_w=noise_w, correlation_time_s=0.1) for noise_w in (1.6, 4.0)
)

KNOWN_100 = replace(RING, source=replace(RING.power_source, correlation_time_s=0.1, noise_ratio=0.002))
LOADS_OWN = Device(white_noise_w=1.0, correlated_noise_w=16.0, correlation_time_s=0.1)
"""A load's noise that no qualification has seen: it runs another load."""

KNOWN_AVERAGE = replace(AVERAGE, source=replace(AVERAGE.power_source, correlation_time_s=0.24, noise_ratio=0.0003))
LOADS_300 = Device(white_noise_w=2.0, correlated_noise_w=4.0, correlation_time_s=0.3)

PART_TIME_RING = replace(RING, update_period_s=0.01988, row_period_s=0.01988, averaging_time_s=0.01)
WARMING = replace(QUIET, cold_power_ratio=0.95, warming_time_s=5.0)
SWINGING = replace(QUIET, clock_swing_ratio=0.03)
CAPPING = replace(QUIET, white_noise_w=1.5, capping_delay_s=0.55)
TOO_MUCH = replace(LOAD, power_w=735.0)
SHORT_TOO_MUCH = replace(TOO_MUCH, time_s=3e-5)
PAUSED = replace(PRECISE, duty_cycle=0.75)
KNOWN_LOOKING = replace(LOOKING_RING, source=replace(RING.power_source, correlation_time_s=0.01, noise_ratio=0.002))
KNOWN_RING = replace(RING, source=KNOWN_LOOKING.source)
CASES = (
    Case("white noise of 0.5 % per reading"),
    Case("white noise of 5 % per reading", device=Device(white_noise_w=40.0)),
    Case("noise that lasts 50 ms, not qualified", device=LASTING_50),
    Case("the same, qualified", KNOWN_50, LASTING_50),
    Case("noise that lasts 0.5 s, not qualified", device=LASTING_500),
    Case("the same, qualified", KNOWN_500, LASTING_500),
    Case("noise of 0.3 % that lasts 0.18 s, qualified", KNOWN_180, HARDLY_LASTING),
    Case("the same where a load has three times as much", KNOWN_180, replace(HARDLY_LASTING, correlated_noise_w=3.0)),
    Case("noise of the load of 0.4 % that lasts 0.1 s, the meter's of 0.2 % and 36 ms known", KNOWN_36, LOADS_04),
    Case("the same of 1 %", KNOWN_36, LOADS_1),
    Case("noise of the load that lasts 0.1 s, the meter's own known, 6 s loop", KNOWN_100, LOADS_OWN, protocol=LONGER),
    Case("an average over 1 s, 5 s loop", AVERAGE, protocol=LONG),
    Case("the same, qualified, noise of the load of 1 % that lasts 0.3 s", KNOWN_AVERAGE, LOADS_300, protocol=LONG),
    Case("a window of 25 ms every 100 ms, 5 s loop", INSTANT, protocol=LONG),
    Case("the same, precise loop", INSTANT),
    Case("values shown 0.3 s late", replace(RING, lag_s=0.3, source=PowerSource("late", 0.36, 0.02, 0.02, False))),
    Case("rows that repeat each value fifty times", MeterModel(row_period_s=0.002), protocol=LONG),
    Case("ticks of 5 W", replace(RING, tick_w=5.0)),
    Case("times that scatter by 20 %", load=replace(LOAD, jitter_ratio=0.2)),
    Case("ten placements whose times differ by 1 %", load=replace(LOAD, placements=10, placement_spread_ratio=0.01)),
    Case("ten placements whose times differ by 2 %", load=replace(LOAD, placements=10, placement_spread_ratio=0.02)),
    Case(
        "ten placements whose times differ by 1 %, 5 s loop",
        load=replace(LOAD, placements=10, placement_spread_ratio=0.01),
        protocol=LONG,
    ),
    Case("warming up by 5 %, its slope known", device=WARMING, slope=Estimate(0.0025, 0.0001)),
    Case("warming up by 5 %, slope unknown", device=WARMING),
    Case("warming up by 5 %, its slope twice the known one", device=WARMING, slope=Estimate(0.00125, 0.0001)),
    Case("clocks that swing by 3 %", device=SWINGING),
    Case("735 W where the limit is 700 W, in a duty cycle", LOOKING_RING, CAPPING, TOO_MUCH, PAUSED),
    Case("such a cycle of calls of 0.03 ms", LOOKING_RING, CAPPING, SHORT_TOO_MUCH, PAUSED),
    Case("such a cycle by a ring that sees all of the time", RING, CAPPING, TOO_MUCH, PAUSED),
    Case("such a cycle by one that sees half of it", PART_TIME_RING, CAPPING, TOO_MUCH, PAUSED),
    Case("735 W in a duty cycle, the ring qualified", KNOWN_LOOKING, CAPPING, TOO_MUCH, PAUSED),
    Case("such a cycle of calls of 0.03 ms, the ring qualified", KNOWN_LOOKING, CAPPING, SHORT_TOO_MUCH, PAUSED),
    Case("white noise, the ring qualified", KNOWN_RING),
    Case("white noise of 5 %, the ring qualified", KNOWN_RING, Device(white_noise_w=40.0)),
    Case("warming up by 5 %, its slope known, the ring qualified", KNOWN_RING, WARMING, slope=Estimate(0.0025, 0.0001)),
    Case("a meter 3 % too high, another right, 5 s loop", replace(RING, scale=1.03), checks=(INSTANT,), protocol=LONG),
    Case("the same, precise loop", replace(RING, scale=1.03), checks=(INSTANT,)),
    Case("the same, the drift check's loop", replace(RING, scale=1.03), checks=(INSTANT,), protocol=DRIFT_CHECK),
    Case("meters of a drift check that are both right", checks=(INSTANT,), protocol=DRIFT_CHECK),
    Case(
        "a one-second average that calls itself instant, 5 s loop",
        replace(AVERAGE, source=INSTANT.power_source),
        protocol=LONG,
    ),
    Case("pulses in step with a part-time meter alone", INSTANT, load=replace(LOAD, swing_w=200.0), protocol=LONG),
    Case(
        "pulses in step with a part-time meter, ring right",
        load=replace(LOAD, swing_w=200.0),
        checks=(INSTANT,),
        protocol=LONG,
    ),
)


def truth_j(case: Case) -> float:
    """Return the declared energy: at the reference temperature where the slope is known, over whole swings."""
    device = case.device
    if case.slope is None:
        return case.load.energy_j * (1 - case.device.clock_swing_ratio**2 / 2)
    kelvin = device.busy_temperature_c - REFERENCE_TEMPERATURE_C
    span = device.busy_temperature_c - device.idle_temperature_c
    return case.load.energy_j * (1 - (1 - device.cold_power_ratio) * kelvin / span)


def holds_time(case: Case, result: Measurement) -> bool:
    """Return whether the interval of the time holds the truth."""
    chunks = BATCHES if case.load.placements == 1 else case.load.placements
    deviation_s = abs(result.time_s - case.load.time_s)
    return deviation_s <= student_quantile(chunks - 1) * result.time_standard_error_s


def holds(case: Case, result: Measurement) -> bool:
    """Return whether the interval of the energy holds the truth."""
    energy_j, error_j = result.energy_j, result.energy_standard_error_j
    if case.slope is not None:
        energy_j, error_j = result.energy_at_reference_j, result.energy_at_reference_standard_error_j
    quantile = student_quantile(max(min(result.power_readings, BATCHES) - 1, 1))
    return abs((energy_j or 0.0) - truth_j(case)) <= quantile * (error_j or 0.0)


def workload(case: Case, machine: SimulatedMachine) -> Workload:
    """Return a case's load on a machine, with pauses where there is a duty cycle."""
    return machine.workload(case.load, case.protocol.duty_cycle)


def results(case: Case, seeds: int) -> list[Measurement]:
    """Measure a case on as many machines."""
    machines = (
        SimulatedMachine(case.load, case.device, case.meter, seed=seed, checks=case.checks) for seed in range(seeds)
    )
    return [
        measure(workload(case, machine), machine.instruments(KnownDevice(case.slope, LIMIT_W)), case.protocol)
        for machine in machines
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    arguments = parser.parse_args()
    print("| fault | energy contained | time contained | mean error of energy | flagged in the row | median loop |")
    print("|---|--:|--:|--:|--:|--:|")
    for case in CASES:
        measured = results(case, arguments.seeds)
        clean = [result for result in measured if not quality_flags(result) and result.energy_j is not None]
        flagged = 1 - len(clean) / len(measured)
        shares = [[check(case, result) for result in clean] for check in (holds, holds_time)]
        covered = " | ".join(f"{np.mean(share):.1%}" if share else "" for share in shares)
        energies = [
            (result.energy_j if case.slope is None else result.energy_at_reference_j) or np.nan for result in measured
        ]
        error = np.nanmean(energies) / truth_j(case) - 1
        loop_s = np.median([result.loop_time_s for result in measured])
        print(f"| {case.name} | {covered} | {error:+.2%} | {flagged:.1%} | {loop_s:.2f} s |", flush=True)
    print(f"\nOperators' slopes are taken to differ by {COEFFICIENT_SPREAD_PER_KELVIN:.2%} per kelvin.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
