"""``power_cap_profiler``, ``set_power_cap`` and ``reset_power_cap``, with the arguments that users know.

All set the power limit of a board, so each needs the consent of its owner: ``OPCOST_ALLOW_POWER_LIMIT=1`` in the
environment. Without it they raise ``UserError`` and do nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opcost.compat.measurement import JOULES_PER_KWH
from opcost.metering.cap_objectives import Wish
from opcost.metering.cap_rows import CapCost, PowerCapRow
from opcost.meters.power_limit_setting import NvmlPowerLimit
from opcost.running.energy_meter import EnergyMeter
from opcost.running.energy_sources import gpu_named
from opcost.running.guarded_limit import check_consent, set_for_good
from opcost.stages.power_cap import CapBoard, CapSweepPlan, CapWork, sweep_caps

HEADER = ("power cap (W)", "time (s)", "energy (J)", "energy (kWh)", "EDP (J s)", "ED2P (J s^2)")


@dataclass(frozen=True)
class _Training:
    """Implements ``CapWork``: one call of a user's function, metered on one GPU."""

    train: Callable[[], object]
    meter: EnergyMeter
    name: str = "train"
    is_steady: bool = False

    def measure(self) -> CapCost:
        with self.meter.window() as window:
            self.train()
        (found,) = window.result.devices
        return CapCost(window.duration_s, found.energy_j, found.energy_standard_error_j, found.missing_reason)


class _Silent:
    """Implements ``Progress``: a library prints nothing."""

    def start(self, items: int, expected_s: Sequence[float] = ()) -> None:
        """Show nothing."""

    def begin(self, name: str) -> None:
        """Show nothing."""

    def finish(self, result: str) -> None:
        """Show nothing."""

    def fail(self, reason: str) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


def power_cap_profiler(  # noqa: PLR0913, PLR0917 (the arguments are those that users know)
    gpu_num: int,
    model: Any,
    dataloader: Any,
    train: Callable[[Any, Any, Any, Any], object],
    loss_fn: Any,
    optimizer: Any,
    out_file: str | Path,
) -> float:
    """Train once at each of some power caps, write a row for each, and return the cap with the least energy in W.

    ``train(dataloader, model, loss_fn, optimizer)`` is called for each cap, in the order of PyTorch's tutorials; each
    call has to do the same work. The model goes on learning from cap to cap. The first call is a warm-up: it is not
    measured. ``out_file`` is replaced: a header, then power cap in W, time in s, energy in J and in kWh, EDP in J s and
    ED²P in J s². The old limit comes back afterwards, also after an exception.

    Raises:
        UserError: there is no such GPU, no consent, no right to set limits, or no energy.
    """
    check_consent(is_given=False)
    board = _board(gpu_num)
    with Path(out_file).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)

        def keep(row: PowerCapRow) -> None:
            writer.writerow(_cells(row))
            file.flush()

        open_work = partial(_warmed_up, partial(train, dataloader, model, loss_fn, optimizer), board.device)
        return sweep_caps(board, open_work, CapSweepPlan(Wish()), keep, _Silent()).proposal.cap_w


def set_power_cap(gpu_num: int, power_cap: float) -> None:
    """Set the power limit of a GPU in W. It stays after the program: ``reset_power_cap`` sets the default again.

    Raises:
        UserError: there is no such GPU, no consent, no right to set limits, or the board refuses it.
    """
    check_consent(is_given=False)
    set_for_good(_board(gpu_num).open_limit, power_cap)


def reset_power_cap(gpu_num: int) -> None:
    """Set the power limit of a GPU to the board's default.

    Raises:
        UserError: as ``set_power_cap``.
    """
    check_consent(is_given=False)
    set_for_good(_board(gpu_num).open_limit, None)


@contextmanager
def _warmed_up(train: Callable[[], object], device: str) -> Iterator[CapWork]:
    """Train once without a measurement, and open the meter."""
    train()
    meter = EnergyMeter([device])
    try:
        yield _Training(train, meter)
    finally:
        meter.close()


def _board(gpu_num: int) -> CapBoard:
    device, uuid = gpu_named(f"cuda:{gpu_num}")
    return CapBoard(device, uuid, partial(NvmlPowerLimit.open, uuid))


def _cells(row: PowerCapRow) -> tuple[float | None, ...]:
    energy_j = row.energy_j
    kwh = None if energy_j is None else energy_j / JOULES_PER_KWH
    products = row.energy_delay_product, row.energy_delay_squared_product
    return row.cap_w, row.time_s, energy_j, kwh, *products
