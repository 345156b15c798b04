"""Sweep a board's power limit: time and energy of a model or a command at some caps, and the cap to propose.

It imports no torch, so that a command needs none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

from opcost.columns import present_moment
from opcost.errors import UserError
from opcost.metering.cap_rows import CapCost, CapPoint, PowerCapRow, Wish
from opcost.metering.power_caps import (
    ABOVE_POWER_RATIO,
    CAPS,
    FURTHER_CAPS,
    CapFit,
    Proposal,
    best_cap,
    further_cap,
    spread_caps,
)
from opcost.power.ports import GpuError
from opcost.progress import Progress, reported
from opcost.running.power_limit import GuardedLimit, OpenPowerLimit, guarded_limit
from opcost.stages.follow_power import Target, follow
from opcost.units import short_uuid, significant, watts


class CapWork(Protocol):
    """The work that is measured at each cap."""

    @property
    def name(self) -> str: ...

    @property
    def is_steady(self) -> bool:
        """Whether its mean power says which caps slow it: a command may have phases of higher power."""

    def measure(self) -> CapCost:
        """Do the work under the limit that is set, and meter it; raise ``UserError`` if it fails."""


@dataclass(frozen=True)
class CommandWork:
    """Implements ``CapWork`` for a command: it runs once, followed as by ``opcost power``."""

    command: tuple[str, ...]
    device: str
    is_steady: bool = False

    @property
    def name(self) -> str:
        return " ".join(self.command)

    def measure(self) -> CapCost:
        with TemporaryDirectory(prefix="opcost-power-cap-") as folder:
            report = follow(Target(self.command), [self.device], Path(folder) / "run.csv", None, lambda _: None)
        if report.is_interrupted:
            raise KeyboardInterrupt
        if report.exit_status:
            raise UserError(f"{self.name}: ended with status {report.exit_status}; the sweep ends")
        (found,) = report.run.devices
        energy = found.energy_j, found.energy_standard_error_j
        return CapCost(report.run.duration_s, *energy, found.missing_reason or None)


OpenWork: TypeAlias = Callable[[], AbstractContextManager[CapWork]]


def points_of(rows: Sequence[PowerCapRow]) -> list[CapPoint]:
    """Return the measurements whose energy is known."""
    return [row.point for row in rows if row.point is not None]


@dataclass(frozen=True)
class CapSweepPlan:
    """How a sweep is measured: repetitions of each cap, the seed of their order, and what is looked for."""

    wish: Wish
    repetitions: int = 1
    order_seed: int = 0

    @property
    def most_measurements(self) -> int:
        """The most measurements: the found limit first and last, eight caps, and up to three more."""
        return 2 + self.repetitions * (CAPS + FURTHER_CAPS)


@dataclass(frozen=True)
class CapBoard:
    """A GPU as it is named, its UUID, and how its limit is opened."""

    device: str
    uuid: str
    open_limit: OpenPowerLimit


@dataclass(frozen=True)
class CapSweep:
    """A sweep that has ended: its rows, the fit and the proposed cap."""

    work: str
    found_limit_w: float
    wish: Wish
    rows: tuple[PowerCapRow, ...]
    fit: CapFit
    proposal: Proposal

    @property
    def points(self) -> list[CapPoint]:
        return points_of(self.rows)

    @property
    def drift_ratio(self) -> float:
        return self.rows[-1].time_s / self.rows[0].time_s - 1


def sweep_caps(
    board: CapBoard, open_work: OpenWork, plan: CapSweepPlan, keep: Callable[[PowerCapRow], None], progress: Progress
) -> CapSweep:
    """Measure the work at the found limit, at caps below it in random order, near the optimum, and at the found limit.

    The found limit is set again whatever ends this. No cap is above it. Call it only with consent. The work is made
    ready once it is known that caps can be set. ``keep`` gets each row before the next measurement begins. Raises
    UserError: the limit cannot be set, the work fails, or its energy is unknown.
    """
    with guarded_limit(board.open_limit) as limit, open_work() as work:
        return CapCourse(board, limit, work, plan, keep).carry_out(progress)


class CapCourse:
    """The measurements of one sweep, on a limit that someone else brings back afterwards."""

    def __init__(
        self,
        board: CapBoard,
        limit: GuardedLimit,
        work: CapWork,
        plan: CapSweepPlan,
        keep: Callable[[PowerCapRow], None],
    ) -> None:
        of_board = {"device": board.device, "device_uuid": short_uuid(board.uuid), "found_limit_w": limit.old_w}
        of_plan = {"work": work.name, "order_seed": plan.order_seed}
        self._of_sweep = {"sweep_started_at": present_moment(), **of_plan, **of_board}
        self._limit, self._work, self._plan, self._keep = limit, work, plan, keep
        self._rows: list[PowerCapRow] = []

    def carry_out(self, progress: Progress) -> CapSweep:
        found_w, wish, repetitions = self._limit.old_w, self._plan.wish, self._plan.repetitions
        with reported(progress, self._plan.most_measurements):
            self._measure(found_w, progress)
            try:
                lowest_w = self._limit.range_w.lowest_w
            except GpuError as error:
                raise UserError(f"{self._of_sweep['device']}: its lowest power limit is unknown: {error}") from error
            caps = caps_below(lowest_w, found_w, self._rows[0].power_w if self._work.is_steady else None)
            chance = random.Random(self._plan.order_seed)
            for _ in range(repetitions):
                for cap_w in chance.sample(caps, len(caps)):
                    self._measure(cap_w, progress)
            for _ in range(FURTHER_CAPS):
                further_w = further_cap(points_of(self._rows), wish)
                if further_w is None:
                    break
                for _ in range(repetitions):
                    self._measure(further_w, progress)
            self._measure(found_w, progress)
        return CapSweep(self._work.name, found_w, wish, tuple(self._rows), *best_cap(points_of(self._rows), wish))

    def _measure(self, cap_w: float, progress: Progress) -> None:
        progress.begin(f"{cap_w:g} W")
        self._limit.set_w(cap_w)
        cost = self._work.measure()
        row = cost.row(len(self._rows) + 1, cap_w, **self._of_sweep)
        self._keep(row)
        if row.energy_j is None:
            raise UserError(f"{self._work.name} at {cap_w:g} W: its energy is unknown: {row.energy_missing_reason}")
        self._rows.append(row)
        progress.finish(f"{significant(cost.time_s)} s  {significant(row.energy_j)} J  {watts(row.power_w)}")


def caps_below(lowest_w: float, found_w: float, power_w: float | None) -> Sequence[float]:
    """Return a sweep's caps, up to the highest that may slow a steady load of ``power_w``, None if it is unknown."""
    lowest_w = min(lowest_w, found_w)
    highest_w = found_w if power_w is None else min(found_w, ABOVE_POWER_RATIO * power_w)
    return spread_caps(lowest_w, max(highest_w, lowest_w))
