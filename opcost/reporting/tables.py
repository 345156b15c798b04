"""Output that several commands share: JSON for programs, and lines for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.columns import columns_of, values_of
from opcost.invocation import command_line, is_program
from opcost.printable import printable
from opcost.reporting.terminal import print_commands, print_line, print_origin_line
from opcost.units import UNKNOWN, gigaflop, megabytes, millijoules, milliseconds, percent, watts

if TYPE_CHECKING:
    # Only for types: the stages import torch.
    from opcost.measuring.conditions import Conditions
    from opcost.stages.info import DeviceInfo, Info
    from opcost.stages.make_configs import ConfigReport
    from opcost.stages.profile import ModelProfile

PARTS = ("modules", "functions", "cache correction", "power limit", "dropped", "not measured", "unexplained")
"""The parts of a whole model's time or energy."""

DOUBTFUL = "(!)"
"""The mark of a cost or a sum that is no result yet."""


def print_json(reports: Sequence[Any]) -> None:
    """Print one list with one object per report on stdout; figures are in SI units."""
    print_objects([asdict(report) for report in reports])


def print_objects(objects: Sequence[Mapping[str, Any]]) -> None:
    """Print one list of objects for JSON on stdout."""
    print(json.dumps(objects, indent=2))


def print_configs(reports: Sequence[ConfigReport], dry_run: bool) -> None:
    """Print the configs that were written, in a dry run also those that exist, and the number of both."""
    made = [report for report in reports if report.made]
    for report in reports if dry_run else made:
        state = "exists" if not report.made else "would be written" if dry_run else "written"
        print_line(f"{state}: {report.path}")
    counts = f"{len(made)} configs written, {len(reports) - len(made)} existed already"
    print_line(counts + dry_run_note(dry_run, "nothing was written"))


def print_files(label: str, paths: Sequence[Path]) -> None:
    """Print the names of files on stderr, in a line behind a label; nothing if there are none."""
    if paths:
        print(printable(f"{label}: {', '.join(map(str, paths))}"), file=sys.stderr)


def doubt_mark(is_doubtful: object) -> str:
    """Return the mark behind a name or a figure that is doubtful, empty if it is not."""
    return f" {DOUBTFUL}" if is_doubtful else ""


def print_origin(*facts: str) -> None:
    """Print what made the tables above: version, command, and facts such as the device; empty facts are left out."""
    from opcost import __version__

    # A notebook has no command.
    command = f": {command_line()}" if is_program() else ""
    print_origin_line(f"opcost {__version__}{command}", ", ".join(filter(None, facts)))


def shared_facts(conditions: Sequence[Conditions]) -> list[str]:
    """Return device, driver and torch of some rows, each only if all rows share it."""
    drivers = {f"driver {one.driver_version}" if one.driver_version else "" for one in conditions}
    facts = ({one.device_product for one in conditions}, drivers, {f"torch {one.torch_version}" for one in conditions})
    return [next(iter(fact)) for fact in facts if len(fact) == 1]


def dry_run_note(dry_run: bool, text: str) -> str:
    """Return a note behind a title in a dry run, else nothing."""
    return f" (dry run: {text})" if dry_run else ""


READ_AS: Mapping[str, Callable[[Any], str]] = {
    "s": milliseconds,
    "J": millijoules,
    "W": watts,
    "1": partial(percent, digits=2),
}
"""The format of each unit; texts and counts are shown unchanged."""


def titled(row: Any) -> dict[str, str]:
    """Return the text of each column of a row that has a title, by that title."""
    return {
        field.column.title: UNKNOWN if value is None else READ_AS.get(field.unit, str)(value)
        for field, value in zip(columns_of(type(row)), values_of(row), strict=True)
        if field.column.title
    }


def print_info(info: Info) -> None:
    """Print a line for each finding, then the next steps."""
    versions, shipped, own = info.versions, info.shipped, info.own
    both = own.shipped_models_are_read and own.shipped_rows_are_read
    on = f" on {', '.join(shipped.devices)}" if shipped.devices else ""
    torch = f"{versions.torch}, torchvision {versions.torchvision}" if versions.torch else "not installed"
    lines = [
        ("opcost", versions.opcost),
        ("Python", f"{versions.python} ({versions.executable})"),
        ("torch", torch),
        ("CPU", _device(info.cpu)),
        *[("GPU", _device(gpu)) for gpu in info.gpus],
        *[("GPU", f"none ({info.no_gpu_reason})")] * (not info.gpus),
        ("shipped", f"{shipped.rows:,} rows of operators, {shipped.models} models{on}"),
        ("", f"{shipped.database}, {shipped.measurements}"),
        ("yours", f"{own.rows:,} rows of operators{'' if both else '; not all shipped files are read'}"),
        ("", f"{own.database}, {own.measurements}"),
    ]
    for label, text in lines:
        print_line(f"{label:<9}{text}", hanging=9)
    print_line("\nNext steps:")
    print_commands([(step.command, step.purpose) for step in info.next_steps])


def _device(device: DeviceInfo) -> str:
    driver = f", driver {device.driver_version}" if device.driver_version else ""
    meters = f"power meters: {', '.join(device.meters)}" if device.meters else f"no energy: {device.no_meter_reason}"
    return f"{device.product}{driver}; {meters}"


def work_in_words(model: ModelProfile) -> str:
    """Return the FLOPs and bytes of a run: ``4.1 GFLOP, 97 MB moved``."""
    least = "at least " if model.flop_missing_reason is not None else ""
    return f"{least}{gigaflop(model.flop)}, {megabytes(model.memory_bytes)} moved"
