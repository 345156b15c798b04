"""The replay of counted operator tuples: each is rebuilt, run alone, and compared with its count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from opcost.measuring.flags import Flag
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.operators.tuples import OperatorTuple
from opcost.progress import Progress
from opcost.running.devices import choose_device
from opcost.running.request import COUNTS, Request, counted
from opcost.torch_backend.alone import difference, replay_device
from opcost.torch_backend.switches import autocast


@dataclass(frozen=True)
class RebuildReport:
    """The operator tuples of one model that no earlier model has.

    ``rebuilt`` is the number of tuples with outputs, ATen operations, FLOPs and bytes as counted. The others differ:
    ``value_dependent`` ones may, ``failures`` must not.
    """

    name: str
    operators: int
    rebuilt: int
    value_dependent: tuple[str, ...]
    failures: tuple[str, ...]


def rebuild_operators(request: Request, progress: Progress) -> list[RebuildReport]:
    """Rebuild each distinct operator tuple of the chosen models once and run it.

    Tuples run on the kind of device that they were counted on, or on the request's if that is not here.
    """
    models = counted(request, request.configs(), COUNTS)
    device = choose_device(request.device)
    seen: set[tuple[str | None, OperatorTuple]] = set()
    reports = []
    progress.start(len(models))
    try:
        for config, counts in models:
            progress.begin(config.name)
            dtype = AUTOCAST_DTYPES.get(config.precision)
            new = [count for count in counts.counts if (dtype, count.operator) not in seen]
            seen.update((dtype, count.operator) for count in new)
            kind = replay_device(counts.device_type, device) or device
            context = partial(autocast, config.precision, kind)
            lines: dict[Flag, list[str]] = {Flag.VALUE_DEPENDENT: [], Flag.NOT_AS_COUNTED: []}
            for count in new:
                if (found := difference(count, kind, context)) is not None:
                    lines[found.flag].append(f"{count.operator}: {found.text}")
            reports.append(
                RebuildReport(
                    name=config.name,
                    operators=len(new),
                    rebuilt=len(new) - sum(map(len, lines.values())),
                    value_dependent=tuple(lines[Flag.VALUE_DEPENDENT]),
                    failures=tuple(lines[Flag.NOT_AS_COUNTED]),
                )
            )
            progress.finish(f"{reports[-1].rebuilt} of {len(new)} new tuples rebuilt")
    finally:
        progress.end()
    return reports
