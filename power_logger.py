"""Log what a GPU (through nvidia-smi) or the CPU (through RAPL) says of its power, until Ctrl-C -> a CSV file

python power_logger.py [--gpu 0] [--interval 0.02] [--output FILE.csv] [--seconds N] [--device cpu]
Example: python power_logger.py --gpu 0 --output power.csv --seconds 60
"""

import argparse
import itertools
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path

from opcost.command_line import positive_seconds, run
from opcost.errors import UserError
from opcost.power_log import PowerRow, PowerSummary, csv_header, csv_line

Batches = Generator[tuple[PowerRow, ...], None, None]


def main() -> int:
    arguments = parse_arguments()
    path = arguments.output or Path(time.strftime("power_log_%Y%m%dT%H%M%SZ.csv", time.gmtime()))
    if path.exists() or not path.parent.is_dir():
        raise UserError(f"--output {path}: must be a new file in a folder that exists")
    stopping = threading.Event()
    is_cpu = arguments.device == "cpu"
    with closing(cpu_batches(arguments, stopping) if is_cpu else gpu_batches(arguments, path, stopping)) as batches:
        # The first batch comes when the meter runs: before that there is nothing to write, and Ctrl-C is an interrupt.
        first = next(batches, ())
        stop_on_signals(stopping, arguments.seconds)
        tell(f"logging {'the CPU' if is_cpu else f'GPU {arguments.gpu}'} to {path}; Ctrl-C ends it")
        write(itertools.chain([first], batches), path)
    return 0


def parse_arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS, formatter_class=form)
    parser.add_argument("--device", default="cuda", help="cuda, of which --gpu names the card, or cpu (default: cuda)")
    parser.add_argument("--gpu", help="index or UUID as `nvidia-smi -L` shows it (default: 0)")
    parser.add_argument("--interval", type=positive_seconds, help="seconds between two rows (default: 0.02, CPU 0.1)")
    parser.add_argument("--output", type=Path, help="a new file (default: power_log_<UTC time>.csv)")
    parser.add_argument("--seconds", type=positive_seconds, help="how long to log (default: until Ctrl-C)")
    arguments = parser.parse_args()
    if arguments.device not in ("cuda", "cpu"):
        raise UserError("--device: cuda or cpu; name the card with --gpu INDEX or UUID as `nvidia-smi -L` shows it")
    if arguments.device == "cpu" and arguments.gpu is not None:
        raise UserError(f"--gpu {arguments.gpu} with --device cpu: the CPU has no card to name, leave one of them out")
    arguments.gpu = arguments.gpu or "0"
    return arguments


def gpu_batches(arguments: argparse.Namespace, path: Path, stopping: threading.Event) -> Batches:
    from opcost.nvidia_smi import NvidiaSmiError
    from opcost.nvidia_smi_logger import INTERVAL_S, log_batches

    try:
        yield from log_batches(arguments.gpu, path.parent, arguments.interval or INTERVAL_S, stopping)
    except NvidiaSmiError as error:
        raise UserError(f"{error}; to log the CPU instead: --device cpu") from error


def cpu_batches(arguments: argparse.Namespace, stopping: threading.Event) -> Batches:
    from opcost.cpu_rapl import INTERVAL_S, rapl_unavailable_reason, sample_batches

    if (reason := rapl_unavailable_reason()) is not None:
        raise UserError(reason)
    yield from sample_batches(arguments.interval or INTERVAL_S, stopping)


def stop_on_signals(stopping: threading.Event, after_s: float | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: stopping.set())
    if after_s is not None:
        signal.setitimer(signal.ITIMER_REAL, min(after_s, threading.TIMEOUT_MAX))


def write(batches: Iterable[tuple[PowerRow, ...]], path: Path) -> None:
    summary = PowerSummary()
    try:
        with path.open("x", encoding="utf-8", buffering=1) as file:
            file.write(csv_header() + "\n")
            for rows in batches:
                file.writelines(csv_line(row) + "\n" for row in rows)
                summary.add_all(rows)
    finally:
        tell(f"{path}: {summary}")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main)
