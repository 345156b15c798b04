"""Sweep a board's power limit: time and energy of a model or a command at some caps, and the cap to propose.

It imports no torch, so that a command needs none.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
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
from opcost.progress import Progress
from opcost.running.engine import Job, LocalExecutor, Worker, carry_out
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
        return CapJob(board, CappedWork(limit, work), plan, keep).carry_out(progress)


@dataclass(frozen=True)
class CappedWork:
    """The bench of caps: a limit that someone else brings back afterwards, and the work under it."""

    limit: GuardedLimit
    work: CapWork
    step_times_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CapItem:
    """A measurement under a cap in W."""

    cap_w: float
    board: str | None = None

    @property
    def names(self) -> tuple[str]:
        return (f"{self.cap_w:g} W",)

    def run(self, bench: CappedWork) -> Iterator[CapCost]:
        bench.limit.set_w(self.cap_w)
        yield bench.work.measure()


class CapJob(Job):
    """The measurements of one sweep; which caps come next depends on the rows before."""

    unit_items = 1
    is_bound = True

    def __init__(
        self, board: CapBoard, bench: CappedWork, plan: CapSweepPlan, keep: Callable[[PowerCapRow], None]
    ) -> None:
        of_board = {"device": board.device, "device_uuid": short_uuid(board.uuid), "found_limit_w": bench.limit.old_w}
        of_plan = {"work": bench.work.name, "order_seed": plan.order_seed}
        self._of_sweep = {"sweep_started_at": present_moment(), **of_plan, **of_board}
        self._bench, self._plan, self._keep = bench, plan, keep
        self._rows: list[PowerCapRow] = []
        self.number = plan.most_measurements

    def carry_out(self, progress: Progress) -> CapSweep:
        deque(carry_out(LocalExecutor(self._bench), {"": self}, progress), maxlen=0)
        found = best_cap(points_of(self._rows), self._plan.wish)
        of_bench = self._bench.work.name, self._bench.limit.old_w
        return CapSweep(*of_bench, self._plan.wish, tuple(self._rows), *found)

    def groups(self) -> Iterator[tuple[CapItem]]:
        limit, work, repetitions = self._bench.limit, self._bench.work, self._plan.repetitions
        found_w = limit.old_w
        yield (CapItem(found_w),)
        try:
            lowest_w = limit.range_w.lowest_w
        except GpuError as error:
            raise UserError(f"{self._of_sweep['device']}: its lowest power limit is unknown: {error}") from error
        caps = caps_below(lowest_w, found_w, self._rows[0].power_w if work.is_steady else None)
        chance = random.Random(self._plan.order_seed)
        for _ in range(repetitions):
            yield from ((CapItem(cap_w),) for cap_w in chance.sample(caps, len(caps)))
        for _ in range(FURTHER_CAPS):
            further_w = further_cap(points_of(self._rows), self._plan.wish)
            if further_w is None:
                break
            yield from ((CapItem(further_w),) for _ in range(repetitions))
        yield (CapItem(found_w),)

    def keep(self, worker: Worker, item: CapItem, content: CapCost) -> str:
        row = content.row(len(self._rows) + 1, item.cap_w, **self._of_sweep)
        self._keep(row)
        if row.energy_j is None:
            place = f"{self._bench.work.name} at {item.cap_w:g} W"
            raise UserError(f"{place}: its energy is unknown: {row.energy_missing_reason}")
        self._rows.append(row)
        return f"{significant(content.time_s)} s  {significant(row.energy_j)} J  {watts(row.power_w)}"

    def fail(self, item: CapItem, reason: str) -> None:
        """The work has raised a ``UserError``, which ends the sweep."""


def caps_below(lowest_w: float, found_w: float, power_w: float | None) -> Sequence[float]:
    """Return a sweep's caps, up to the highest that may slow a steady load of ``power_w``, None if it is unknown."""
    lowest_w = min(lowest_w, found_w)
    highest_w = found_w if power_w is None else min(found_w, ABOVE_POWER_RATIO * power_w)
    return spread_caps(lowest_w, max(highest_w, lowest_w))
