"""A power limit that is a number in a file: implements ``PowerLimit`` for tests; no command can choose it."""

import os
from dataclasses import dataclass
from pathlib import Path

from opcost.power.ports import GpuError, LimitRange, NoRightError

RANGE = LimitRange(200.0, 700.0, 700.0)


@dataclass
class FileLimit:
    """The limit in a file. Each set is one line in a second file, so that tests see what was set.

    It refuses to be set where there is a file ``no-right`` beside it.
    """

    path: Path
    name: str = "GPU-of-a-file"

    def limit_range_w(self) -> LimitRange:
        return RANGE

    def limit_w(self) -> float:
        try:
            return float(self.path.read_text())
        except OSError as error:
            raise GpuError(str(error)) from error

    def set_limit_w(self, power_w: float) -> None:
        if self.path.with_name("no-right").exists():
            raise NoRightError("Insufficient Permissions")
        if not RANGE.lowest_w <= power_w <= RANGE.highest_w:
            raise GpuError(f"{power_w} W is out of range")
        new = self.path.with_suffix(f".{os.getpid()}")
        new.write_text(str(power_w))
        new.replace(self.path)
        with self.path.with_suffix(".sets").open("a") as file:
            file.write(f"{power_w:g} {os.getpid()}\n")

    def limit_command(self, power_w: float) -> str:
        return f"set {self.name} {power_w:g}"

    def close(self) -> None:
        pass
