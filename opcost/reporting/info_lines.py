"""The findings of ``opcost info`` as lines for people."""

from __future__ import annotations

from opcost.reporting.terminal import print_commands, print_line
from opcost.stages.info import DeviceInfo, Info


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
