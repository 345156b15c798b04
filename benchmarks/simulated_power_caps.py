"""Sweep the caps of simulated cards: how near is the proposed cap to the best one?

The cards' curves come from clocks, voltages and memory times (tests/simulated_caps.py), another form than the fitted
one, with noise of 0.5 % to 1 % in time and 1 % in energy, clocks in steps, and loads that never reach a cap. A case is
met if the true value at the proposed cap is within 3 % of the least one. The exit status is 1 if ED2P is met in fewer
than 95 % of the cases.
Example: PYTHONPATH=.:tests python benchmarks/simulated_power_caps.py --cases 100 --seed 1
"""

from __future__ import annotations

import argparse
import sys

from simulated_caps import LARGEST_LOSS_RATIO, losses

from opcost.metering.cap_objectives import Objective


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.replace("%", "%%"), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100, metavar="NUMBER")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=2, help="of each cap (default: 2, as of a model)")
    arguments = parser.parse_args()
    seeds = range(1000 * arguments.seed, 1000 * arguments.seed + arguments.cases)
    met = {}
    for objective in Objective:
        found = losses(seeds, objective, arguments.repetitions)
        met[objective] = sum(loss <= LARGEST_LOSS_RATIO for loss in found)
        print(
            f"{objective.value}: within 3 % of the least in {met[objective]} of {len(found)} cases; "
            f"median {sorted(found)[len(found) // 2]:.2%}, largest {max(found):.1%} above it",
            flush=True,
        )
    return int(met[Objective.ED2P] < 0.95 * arguments.cases)


if __name__ == "__main__":
    sys.exit(main())
