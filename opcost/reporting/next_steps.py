"""The next measurements: of missing, flagged and imprecise tuples, and of sums that are off, the largest gain first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from opcost.comparing.comparison import Comparison
from opcost.comparing.operator_costs import TupleCost, TupleFlag
from opcost.comparing.remarks import NOTICEABLE_RATIO
from opcost.invocation import command
from opcost.measuring.conditions import EXECUTIONS
from opcost.measuring.protocol import protocol_options
from opcost.stages.wanted_model import NO_PROPOSALS, Proposals
from opcost.units import percent

OFF_RATIO = 0.03
"""The error of a complete sum from which its kernels are worth profiling."""

DROPPED_RATIO = 0.01
"""The dropped share of a whole model's time from which the whitelist needs more operators."""

THOROUGH_TARGET = "0.99"
"""The coverage target of such a whitelist."""


@dataclass(frozen=True)
class Step:
    """Something to do, with reason and command; ``models`` are indices of the comparisons."""

    action: str
    reason: str
    command: str
    models: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """A comparison of the model in the folder ``name``.

    ``is_profiled`` says that its kernels are known, ``counts_all`` that only the whitelist drops operators.
    """

    name: str
    comparison: Comparison
    is_profiled: bool
    counts_all: bool = True

    @property
    def runs_as(self) -> tuple[str, str]:
        """The type of the device, and one of ``EXECUTIONS``."""
        return self.comparison.conditions.device_type, self.comparison.conditions.execution


REMEDIES = (
    (TupleFlag.NOT_MEASURED, "measure {number} tuples that have no row", "sums without them are too small", ()),
    (TupleFlag.FLAGGED, "measure {number} flagged tuples again", "they were disturbed", ()),
    (
        TupleFlag.OTHER_BOARD,
        "measure {number} tuples on the whole model's board",
        "boards of one product differ by up to 19 % in energy",
        ("--same-board",),
    ),
    (
        TupleFlag.NOT_PRECISE,
        "measure {number} imprecise tuples for 30 s",
        "their loops did not reach the target precision; the models' other tuples without such a loop are measured, "
        "too (--dry-run shows the time)",
        (),
    ),
)


def next_steps(
    candidates: Sequence[Candidate], tuples: Sequence[TupleCost], proposals: Proposals = NO_PROPOSALS
) -> list[Step]:
    """Return the steps that would improve the figures of compared models.

    The candidates are all comparisons, in the order of the numbers in the tuples' uses.
    """
    steps = []
    devices = sorted({one.runs_as[0] for one in candidates}, reverse=True)
    for flag, what, why, options in REMEDIES:
        shares = _shares(flag, candidates, tuples)
        for device, execution in product(devices, EXECUTIONS):
            chosen = {i: share for i, share in shares.items() if candidates[i].runs_as == (device, execution)}
            noticed = tuple(i for i, share in chosen.items() if share is None or share >= NOTICEABLE_RATIO)
            if not noticed:
                continue
            known = [share for share in chosen.values() if share is not None]
            worst = f"; at most {percent(max(known))} of a whole model's time" if known else ""
            summed = [one for one in tuples if any(use.is_summed and use.comparison in noticed for use in one.uses)]
            how = ["--device", "cpu"] if device == "cpu" else ["--execution", execution]
            if flag is not TupleFlag.NOT_PRECISE:
                # As most rows were measured: with other options, all would be measured again.
                how += protocol_options(one.row.circumstances for one in summed if one.row is not None)
            measuring = proposals.measuring(_named(candidates, noticed), *options, *how)
            action = what.format(number=sum(flag in one.flags for one in summed))
            steps.append(Step(action, why + worst, measuring, noticed))
    dropped = {
        index: (one.comparison.gap.dropped.time_s or 0.0) / one.comparison.full.measurement.time_s
        for index, one in enumerate(candidates)
        if one.counts_all
    }
    noticed = tuple(index for index, share in dropped.items() if share > DROPPED_RATIO)
    if noticed:
        most = percent(max(dropped.values()))
        why = f"dropped operators make sums too small, by at most {most} of a whole model's time"
        advising = command("advise", *_named(candidates, noticed), "--coverage-target", THOROUGH_TARGET)
        steps.append(Step("find the operators that the whitelist needs", why, advising, noticed))
    far = tuple(
        index
        for index, one in enumerate(candidates)
        if not (one.comparison.cost.missing or one.is_profiled or one.runs_as[0] == "cpu")
        and (ratio := one.comparison.time_ratio) is not None
        and abs(ratio.value - 1) > OFF_RATIO
    )
    if far:
        what = f"profile the kernels of {len(far)} sums that are more than {percent(OFF_RATIO, digits=0)} off"
        why = "no operator is missing there; kernels in the model and alone show which kind of operator differs"
        steps.append(Step(what, why, proposals.command("verify kernels", _named(candidates, far)), far))
    return steps


def _shares(flag: TupleFlag, candidates: Sequence[Candidate], tuples: Sequence[TupleCost]) -> dict[int, float | None]:
    """Return the tuples' share of the whole's time, for each comparison that sums any; None if unknown."""
    shares: dict[int, float | None] = {}
    for one in tuples:
        for use in one.uses:
            if flag in one.flags and use.is_summed:
                whole_s = candidates[use.comparison].comparison.full.measurement.time_s
                known = shares.get(use.comparison, 0.0)
                time_s = one.time_s
                share = None if time_s is None or known is None else known + use.calls * time_s.value / whole_s
                shares[use.comparison] = share
    return shares


def _named(candidates: Sequence[Candidate], chosen: Sequence[int]) -> list[str]:
    return list(dict.fromkeys(candidates[index].name for index in chosen))
