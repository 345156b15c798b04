"""Log the power of a GPU (with nvidia-smi) or of the CPU (with RAPL) until Ctrl-C -> a CSV file

Example: python power_logger.py --device cuda:0 --output power.csv --seconds 60
With --plot FILE.csv: draw a log -> FILE.svg
With --qualify: qualify the meters of the GPU, which takes half a minute -> database/meter_qualifications.csv
"""

import argparse
import itertools
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.options import DATABASE, VERBOSE, Parser, add_options, device_name, positive_seconds
from opcost.command.run import run
from opcost.errors import UserError
from opcost.power.log_rows import PowerSummary


def main() -> int:
    arguments = parse_arguments()
    log_run(arguments.verbose, arguments.database if arguments.qualify else None)
    if arguments.plot is not None:
        from opcost.reporting.power_plot import plot_log

        report(f"{plot_log(arguments.plot, arguments.output)}: the trace of {arguments.plot}")
        return 0
    return qualify(arguments) if arguments.qualify else log(arguments)


def log(arguments: argparse.Namespace) -> int:
    from opcost.reporting.live_power import shown
    from opcost.stages.log_power import cpu_batches, gpu_batches, gpu_of, stop_on_signals, write_rows

    path = arguments.output or Path(time.strftime("power_log_%Y%m%dT%H%M%SZ.csv", time.gmtime()))
    if path.exists() or not path.parent.is_dir():
        raise UserError(f"--output {path}: must be a new file in a folder that exists")
    stopping, summary = threading.Event(), PowerSummary()
    gpu = None if arguments.device == "cpu" else arguments.gpu or gpu_of(arguments.device)
    meter = (arguments.interval, stopping) if gpu is None else (gpu, arguments.interval, path.parent, stopping)
    with closing(cpu_batches(*meter) if gpu is None else gpu_batches(*meter)) as batches:
        # The first batch comes when the meter runs: before that there is nothing to write, and Ctrl-C is an interrupt.
        first = next(batches, ())
        stop_on_signals(stopping, arguments.seconds)
        report(f"logging {'the CPU' if gpu is None else f'GPU {gpu}'} to {path}; Ctrl-C ends it")
        try:
            write_rows(itertools.chain([first], shown(batches)), path, summary)
        finally:
            report(f"{path}: {summary}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__, usage=argparse.SUPPRESS)
    parser.add_argument("--device", type=device_name, default="cuda", help="cpu, cuda or cuda:N (default: cuda)")
    # As nvidia-smi names it, by index or UUID: the option of earlier versions.
    parser.add_argument("--gpu", help=argparse.SUPPRESS)
    parser.add_argument("--interval", type=positive_seconds, help="seconds between two rows (default: 0.02, CPU 0.1)")
    parser.add_argument("--output", type=Path, help="a new file (default: power_log_<UTC time>.csv)")
    parser.add_argument("--seconds", type=positive_seconds, help="length of the log in s (default: until Ctrl-C)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a log as SVG, beside it or as --output")
    parser.add_argument("--qualify", action="store_true", help="qualify the meters of a GPU that runs nothing else")
    add_options(parser, DATABASE, VERBOSE)
    arguments = parser.parse_args()
    if arguments.gpu is not None and arguments.device != "cuda":
        raise UserError(f"--gpu and --device {arguments.device} exclude each other; leave --gpu out")
    if arguments.plot and (arguments.qualify or arguments.interval or arguments.seconds or arguments.gpu):
        raise UserError("--plot draws a log; leave --qualify, --interval, --seconds and --gpu out")
    if arguments.qualify and arguments.device == "cpu":
        raise UserError("--qualify: a CPU has no second meter to compare with; name a GPU")
    if arguments.qualify and (arguments.interval or arguments.output or arguments.seconds):
        raise UserError("--qualify has a fixed length; leave --interval, --output and --seconds out")
    return arguments


def qualify(arguments: argparse.Namespace) -> int:
    from opcost.reporting.measurement_tables import print_qualification
    from opcost.running.apparatus import open_apparatus
    from opcost.running.devices import device_of_gpu
    from opcost.running.qualification import qualify_meters
    from opcost.storage.database import Database

    device, database = arguments.device, Database(arguments.database)
    with open_apparatus(device_of_gpu(arguments.gpu) if arguments.gpu else device, database) as apparatus:
        report("qualifying the meters: about 30 s")
        print_qualification(qualify_meters(apparatus, database.meter_qualifications))
    return 0


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main)
