"""Kill sweeps of a power limit at random moments: the old limit comes back each time

The board is simulated: its limit is a number in a file. Processes, pipes, locks and the guardian are real. Each sweep
gets SIGKILL at a random moment; half of the moments are soon after a cap was set. About 4 minutes for 100 kills.
Example: PYTHONPATH=.:tests python benchmarks/power_cap_kills.py --kills 100
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from killed_caps import kill_once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, metavar="NUMBER")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance, begin_s = random.Random(arguments.seed), time.monotonic()
    outcomes = [kill_once(chance) for _ in range(arguments.kills)]
    restored = sum(is_restored for _, is_restored in outcomes)
    capped = sum(was_capped for was_capped, _ in outcomes)
    print(
        f"{len(outcomes)} kills, {capped} of them under a cap: the old limit is back in {restored} "
        f"({time.monotonic() - begin_s:.0f} s)"
    )
    return int(restored < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
