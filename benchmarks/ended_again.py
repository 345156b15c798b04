"""When recorded loops would end by the present rule, and whether their intervals hold the mean of the whole loop

The folder has power samples of the longer loops of campaigns; ``--extract`` takes them from power logs.
Example: PYTHONPATH=. python benchmarks/ended_again.py docs/data/loops
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
from tables import markdown

from opcost.estimates import BATCHES, half_width_ratio, student_quantile
from opcost.measuring.known_device import GPU_REPEATABILITY
from opcost.measuring.loop import CHECK_GROWTH, FIRST_CHECK_S, NEXT_CHECK_GROWTH, STOP_RATIO
from opcost.measuring.precision import CHECKS_IN_A_ROW
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.meters.nvml_samples import SAMPLES_SOURCE
from opcost.power.mean import MeanPower, mean_power
from opcost.power.trace import PowerTrace, Window, trace_of_power
from opcost.storage.database import Database

SHORTEST_S = 0.4
"""Length of a loop that is worth ending again."""

LONGER = 2.0
"""A loop's mean is compared with that of its own beginning if it is this many times as long."""

QUALIFIED = replace(SAMPLES_SOURCE, correlation_time_s=0.01, noise_ratio=0.002)
"""The samples as qualifications found them on both boards: independent, with a noise of 0.2 %."""


def extracted(folders: Iterable[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the longer loops of some databases, and their samples in s from the begin of each loop."""
    loops, samples = [], []
    for folder in folders:
        database = Database(folder)
        for row in database.operator_measurements.rows():
            measurement = row.measurement
            if measurement.loop_time_s < SHORTEST_S or measurement.power_log is None:
                continue
            log = pd.read_csv(database.power_logs / measurement.power_log.replace(".csv", "-samples.csv"))
            begin_s = datetime.fromisoformat(measurement.started_at).timestamp()
            moments = {"moment_s": (log.epoch_s - begin_s).round(3), "power_w": log.power_w.round(1)}
            samples.append(pd.DataFrame({"loop": len(loops), **moments}))
            loops.append(
                {
                    "loop": len(loops),
                    "device_product": row.conditions.device_product,
                    "operator": row.operator,
                    "time_s": measurement.time_s,
                    "duty_cycle": measurement.duty_cycle,
                    "loop_time_s": measurement.loop_time_s,
                    "started_at": measurement.started_at,
                }
            )
    return pd.DataFrame(loops), pd.concat(samples)


def mean_within(trace: PowerTrace, window: Window) -> MeanPower:
    """Return the mean power in a window, from the samples until its end."""
    seen = trace.epoch_s <= window.end_s
    return mean_power(trace_of_power(trace.source, trace.epoch_s[seen], trace.power_w[seen]), trace.epoch_s[0], window)


@dataclass(frozen=True)
class Rule:
    """The target precision of a loop, and its longest time in s."""

    relative_error: float = 0.01
    longest_s: float = FULL_LOOP_S

    def is_precise(self, power: MeanPower) -> bool:
        """Return whether a mean power is precise enough to end a loop."""
        if power.estimate_w is None:
            return False
        return half_width_ratio(power.estimate_w, power.readings) <= STOP_RATIO * self.relative_error


def ended_again(trace: PowerTrace, recorded_s: float, rule: Rule) -> Window:
    """Return the window of a recorded loop that ends by the precision of its power, or of its later half's."""
    loop_s = min(recorded_s, rule.longest_s)
    checks = precise = precise_halves = 0
    check_s = FIRST_CHECK_S
    while check_s < loop_s:
        whole, half = Window(0.0, check_s), Window(check_s / 2, check_s)
        checks += 1
        precise = precise + 1 if rule.is_precise(mean_within(trace, whole)) else 0
        if precise and precise >= min(checks, CHECKS_IN_A_ROW):
            return whole
        is_half = not precise and half.duration_s >= FIRST_CHECK_S and rule.is_precise(mean_within(trace, half))
        precise_halves = precise_halves + 1 if is_half else 0
        if precise_halves >= CHECKS_IN_A_ROW:
            return half
        check_s *= NEXT_CHECK_GROWTH if precise or precise_halves else CHECK_GROWTH
    return Window(0.0, loop_s)


def evaluated(loops: pd.DataFrame, samples: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """Return loops with the time at which each would end, its mean's deviation, and whether the interval holds."""
    found = []
    for (_, loop), (_, own) in zip(loops.iterrows(), samples.groupby("loop"), strict=True):
        trace = trace_of_power(QUALIFIED, own.moment_s.to_numpy(), own.power_w.to_numpy())
        window = ended_again(trace, loop.loop_time_s, rule)
        early, whole = mean_within(trace, window), mean_within(trace, Window(0.0, loop.loop_time_s))
        assert early.estimate_w is not None
        assert whole.estimate_w is not None
        ratio = early.estimate_w.value / whole.estimate_w.value - 1
        repeatability_w = GPU_REPEATABILITY.power_ratio * early.estimate_w.value
        error_ratio = early.estimate_w.with_error(repeatability_w).standard_error / early.estimate_w.value
        held = abs(ratio) <= student_quantile(min(early.readings, BATCHES) - 1) * error_ratio
        found.append({"ended_s": window.end_s, "ratio": ratio, "held": held})
    return loops.join(pd.DataFrame(found))


def lines_of(loops: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the cells of a line for each GPU, for loops with pauses and without."""
    for (product, has_pauses), group in loops.groupby(["device_product", loops.duty_cycle.notna()]):
        compared = group[group.loop_time_s >= LONGER * group.ended_s]
        yield [
            f"{product}, {'with' if has_pauses else 'without'} pauses",
            str(len(group)),
            f"{group.loop_time_s.mean():.2f} s",
            f"{group.ended_s.mean():.2f} s",
            f"{group.ended_s.max():.2f} s",
            f"{np.sqrt(np.mean(compared.ratio**2)):.2%}" if len(compared) else "",
            f"{compared.held.sum()} of {len(compared)}",
        ]


HEADER = ("loops", "number", "recorded, mean", "ended again, mean", "longest", "deviation (rms)", "interval held")


def main() -> None:
    """Extract or evaluate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="has loops.csv and samples.csv")
    parser.add_argument("--extract", type=Path, nargs="+", help="databases with power_logs/; the folder is written")
    parser.add_argument("--relative-error", type=float, default=0.01, help="of the energy, at which loops end")
    parser.add_argument("--longest", type=float, default=FULL_LOOP_S, metavar="SECONDS", help="time of a loop")
    arguments = parser.parse_args()
    if arguments.extract:
        loops, samples = extracted(arguments.extract)
        loops.to_csv(arguments.folder / "loops.csv", index=False)
        samples.to_csv(arguments.folder / "samples.csv", index=False)
    loops, samples = (pd.read_csv(arguments.folder / name) for name in ("loops.csv", "samples.csv"))
    rule = Rule(arguments.relative_error, arguments.longest)
    print(markdown(HEADER, lines_of(evaluated(loops, samples, rule))))


if __name__ == "__main__":
    main()
