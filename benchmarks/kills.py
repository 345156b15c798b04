"""Kill, interrupt and starve campaigns on the simulated device at random: no row may be lost, none duplicated

Files are real; every end is followed by a check of all files, and by a process that goes on. Then a campaign in which
some operators fail in every way, most of which end the process that measures. About ten minutes.
Example: PYTHONPATH=.:tests python benchmarks/kills.py --kills 1000 --among-four 200 --full-disks 100 --interrupts 200
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from faulty_campaign import faulty_processes, run_faulty_campaign
from killed_campaigns import attack

TIMES = {"kills": 1000, "among_four": 200, "full_disks": 100, "interrupts": 200}
FAULT_RATIO = 0.15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, times in TIMES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=times, metavar="NUMBER")
    parser.add_argument("--operators", type=int, default=1000, metavar="NUMBER", help="15 %% of which fail")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in TIMES:
        begin_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            ended, complete = attack(name, Path(folder), getattr(arguments, name), arguments.seed)
        took_s = time.monotonic() - begin_s
        print(f"{name}: {ended}, {complete} campaigns: no row lost, none twice ({took_s:.0f} s)", flush=True)
    if arguments.operators:
        with tempfile.TemporaryDirectory() as folder, faulty_processes():
            faulty = run_faulty_campaign(Path(folder), arguments.operators, FAULT_RATIO, arguments.seed)
        print(f"operators that fail: {faulty}: each good one is measured once, no process is left", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
