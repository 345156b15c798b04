"""A power-cap sweep on a terminal and as JSON, and the plan of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opcost.columns import by_column
from opcost.measuring.record import MeasurementRow
from opcost.metering.cap_rows import Objective
from opcost.metering.power_caps import ABOVE_POWER_RATIO, free_cap_w, is_efficient, medians_of
from opcost.reporting.layout import Column
from opcost.reporting.terminal import print_line, print_table
from opcost.units import UNKNOWN, duration, millijoules, milliseconds, percent, significant, watts

if TYPE_CHECKING:
    # Only for types: the stages import torch.
    from opcost.stages.power_cap import CapSweep

TITLES = {Objective.ENERGY: "J", Objective.EDP: "EDP, J s", Objective.ED2P: "ED²P, J s²"}
NEAR_LIMIT_RATIO = 0.97
"""Mean power over the limit from which a load is at it."""


@dataclass(frozen=True)
class CapPlan:
    """A sweep that is not run: caps are None where the board's limits are unknown, the duration where the work's is."""

    work: str
    device: str
    found_limit_w: float | None
    caps_w: Sequence[float] | None
    repetitions: int
    measurements: int
    expected_s: float | None
    known: MeasurementRow | None


def print_cap_sweep(sweep: CapSweep) -> None:
    """Print a line for each cap, and the proposal."""
    points = medians_of(sweep.points)
    cells = [
        (
            f"{point.cap_w:g} W",
            str(sum(one.cap_w == point.cap_w for one in sweep.points)),
            significant(point.time_s),
            f"{point.power_w:.1f}",
            *(significant(objective.of(point.time_s, point.energy_j)) for objective in Objective),
            "yes" if is_efficient(point, points) else "",
        )
        for point in points
    ]
    columns = (
        *(Column("cap"), Column("runs", drop=1), Column("s"), Column("W")),
        *(Column(TITLES[objective], drop=0 if objective is Objective.ENERGY else 2) for objective in Objective),
        Column("Pareto", drop=3),
    )
    print_table(f"{sweep.work}: time and energy under power caps", columns, cells)
    # The proposed cap with what the fit expects of it, and what a reader should know of the sweep.
    proposal, wish = sweep.proposal, sweep.wish
    found = f"{sweep.found_limit_w:g} W"
    if proposal.never_binds:
        print_line(f"The cap never binds: nothing to gain. {proposal.cap_w:g} W, the lowest cap, costs no time either.")
    elif not proposal.gains:
        print_line(f"Least {wish}: no cap is better than the limit of {found} by more than the meters' errors.")
    else:
        time, energy = (percent(one - 1) for one in (proposal.time_ratio, proposal.energy_ratio))
        print_line(f"Least {wish}: {proposal.cap_w:g} W (fit; against {found}: time {time}, energy {energy})")
    if not proposal.never_binds:
        print_line(f"Lowest cap that costs no time: {free_cap_w(sweep.fit):.0f} W.")
    drift = percent(sweep.drift_ratio)
    print_line(f"Drift from the first to the last run at {found}: {drift} of the time. {found} is set.")


def cap_sweep_object(sweep: CapSweep) -> dict[str, Any]:
    """Return a sweep for JSON, in SI units."""
    proposal = sweep.proposal
    return {
        "work": sweep.work,
        "wish": str(sweep.wish),
        "found_limit_w": sweep.found_limit_w,
        "proposed_cap_w": proposal.cap_w,
        "never_binds": proposal.never_binds,
        "time_ratio": proposal.time_ratio,
        "energy_ratio": proposal.energy_ratio,
        "free_cap_w": free_cap_w(sweep.fit),
        "drift_ratio": sweep.drift_ratio,
        "measurements": [by_column(row) for row in sweep.rows],
    }


def print_cap_plan(plan: CapPlan) -> None:
    """Print what a sweep would do, and what rows say of the power at full clocks."""
    caps = "eight caps between the board's limits, which are read there"
    if plan.caps_w is not None:
        caps = "caps of " + ", ".join(f"{cap:g}" for cap in plan.caps_w) + " W"
    if plan.repetitions > 1:
        caps += f", each {plan.repetitions} times"
    limit = "the limit that is found" if plan.found_limit_w is None else f"{plan.found_limit_w:g} W"
    takes = "" if plan.expected_s is None else f", about {duration(plan.expected_s)}"
    print_line(f"{plan.work} on {plan.device}: at most {plan.measurements} measurements{takes}")
    print_line(f"First, last and afterwards: {limit}.")
    print_line(f"Between, in random order: {caps}; then up to three near the optimum.")
    if plan.known is not None:
        # The row says how a model's power is without a cap.
        conditions, known = plan.known.conditions, plan.known.measurement
        limit_w, power_w = conditions.device_power_limit_w, known.power_w or 0.0
        limit = UNKNOWN if limit_w is None else f"{limit_w:g} W"
        costs = f"{milliseconds(known.time_s)}, {millijoules(known.energy_j)}"
        print_line(f"At a limit of {limit} on {conditions.device_product} it takes {costs} and {watts(power_w)}.")
        if limit_w is not None and power_w > NEAR_LIMIT_RATIO * limit_w:
            print_line("That is at the limit: every lower cap slows it.")
        else:
            print_line(f"Caps above {watts(ABOVE_POWER_RATIO * power_w)} do not slow it and are not measured.")
    print_line("Dry run: no limit was set, and nothing was measured.")


def plan_object(plan: CapPlan) -> dict[str, Any]:
    """Return a plan for JSON."""
    known = plan.known
    return {
        **{name: value for name, value in vars(plan).items() if name != "known"},
        "power_at_full_clocks_w": None if known is None else known.measurement.power_w,
        "full_clocks_limit_w": None if known is None else known.conditions.device_power_limit_w,
    }
