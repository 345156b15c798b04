"""A command as the work of a power-cap sweep: it is followed as by ``opcost power``. It imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from opcost.errors import UserError
from opcost.metering.cap_rows import CapCost
from opcost.stages.follow_power import Target, follow


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
        """Run the command to its end."""
        with TemporaryDirectory(prefix="opcost-power-cap-") as folder:
            report = follow(Target(self.command), [self.device], Path(folder) / "run.csv", None, lambda _: None)
        if report.is_interrupted:
            raise KeyboardInterrupt
        if report.exit_status:
            raise UserError(f"{self.name}: ended with status {report.exit_status}; the sweep ends")
        (found,) = report.run.devices
        return CapCost(
            report.run.duration_s, found.energy_j, found.energy_standard_error_j, found.missing_reason or None
        )
