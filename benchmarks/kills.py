"""Kill, interrupt and starve campaigns on the simulated device at random: no row may be lost, none be there twice

Files are real; every end is followed by a check of all files, and by a process that goes on. About five minutes.
Example: PYTHONPATH=.:tests python benchmarks/kills.py --kills 1000 --among-four 200 --full-disks 100 --interrupts 200
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from killed_campaigns import fill_the_disk, interrupt_one_by_one, kill_among_four, kill_one_by_one

KINDS = {
    "kills": (kill_one_by_one, 1000),
    "among_four": (kill_among_four, 200),
    "full_disks": (fill_the_disk, 100),
    "interrupts": (interrupt_one_by_one, 200),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (_, times) in KINDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=times, metavar="NUMBER")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name, (attack, _) in KINDS.items():
        begin_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tally = attack(Path(folder), getattr(arguments, name), arguments.seed)
        print(f"{name}: {tally}: no row lost, none twice ({time.monotonic() - begin_s:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
