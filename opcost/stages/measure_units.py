"""Units of a campaign: all operators of a model in one condition, then the whole, with one start and on one board."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from opcost.measuring.conditions import WARM
from opcost.measuring.protocol import ProtocolFor
from opcost.operators.cases import CAPTURED
from opcost.progress import Progress
from opcost.running.bench import Bench, OpenBench
from opcost.running.request import Request, selected, without_grids
from opcost.stages.measure_operators import FullModelReport, OperatorsReport, measure_full_models, measure_operators

ONCE = ("start", "qualification")
"""The parts of a run's time that operators and wholes share."""


@dataclass(frozen=True)
class UnitReport:
    """A model in the condition of its config. Both parts have the times of the whole run besides its measurements."""

    name: str
    operators: OperatorsReport
    whole: FullModelReport

    @property
    def failed(self) -> bool:
        return self.operators.failed > 0 or self.whole.failed

    @property
    def expected_s(self) -> float:
        """The time that the measurements to be made will take."""
        return self.operators.expected_s + self.whole.expected_s


@dataclass(frozen=True)
class Protocols:
    """The protocols of operators and of wholes, and the values of operators' inputs, one of ``INPUT_DATA``."""

    operators: ProtocolFor
    wholes: ProtocolFor
    input_data: str = CAPTURED


def measure_units(
    request: Request,
    protocols: Protocols,
    open_bench: OpenBench,
    progress: Progress,
    announce: Callable[[Sequence[UnitReport]], None],
) -> list[UnitReport]:
    """Measure the missing operators and the whole of each chosen model, model by model.

    Rows of other boards do not count as measured, so that all rows of a model are of one board. The device is made
    ready once for all models. ``announce`` is called with the plan before anything is measured.
    """
    request = replace(request, same_board=True)
    # Before the operators are measured, which takes minutes and runs no code of a user.
    configs = without_grids(request.open_configs(request.check), is_strict=bool(request.names))
    if not request.names and not request.is_product:
        configs = [config for config, _ in selected(request, configs)]
    names = tuple(config.name for config in configs)
    begin_s = time.monotonic()
    with open_bench(request.device, request.database, not request.dry_run) as bench:

        def opened(*_: object) -> AbstractContextManager[Bench]:
            return nullcontext(bench)

        def both(these: tuple[str, ...], dry_run: bool) -> list[UnitReport]:
            one = replace(request, names=these, dry_run=dry_run)
            of_wholes = replace(one, setting=replace(one.setting, cache=WARM))
            operators = measure_operators(one, protocols.operators, opened, progress, protocols.input_data)
            wholes = measure_full_models(of_wholes, protocols.wholes, opened, progress)
            return [UnitReport(own.name, own, whole) for own, whole in zip(operators, wholes, strict=True)]

        if not names:
            return []
        plan = both(names, dry_run=True)
        of_wholes = plan[0].whole.besides_parts_s
        parts_s = Counter(plan[0].operators.besides_parts_s)
        parts_s.update({name: time_s for name, time_s in of_wholes.items() if name not in ONCE or name not in parts_s})
        plan = _with_besides(plan, parts_s)
        if request.dry_run:
            return plan
        announce(plan)
        found = [report for name in names for report in both((name,), dry_run=False)]
    parts_s, run_s, taken_s = Counter(), time.monotonic() - begin_s, 0.0
    for part in (part for report in found for part in (report.operators, report.whole)):
        parts_s.update({name: time_s for name, time_s in part.besides_parts_s.items() if name not in ONCE})
        taken_s += part.taken_s
    # Time without another name is the start.
    return _with_besides(found, {"start": run_s - taken_s - sum(parts_s.values()), **parts_s})


def _with_besides(reports: Sequence[UnitReport], parts_s: Mapping[str, float]) -> list[UnitReport]:
    """Return reports with the expected or taken times of the run besides all measurements, those of ``ONCE`` once."""
    besides_s, found = sum(parts_s.values()), []
    for report in reports:
        operators = replace(report.operators, besides_s=besides_s, besides_parts_s=dict(parts_s))
        of_run = replace(report.whole, besides_s=besides_s, besides_parts_s=dict(parts_s), assumed=operators.assumed)
        found.append(UnitReport(report.name, operators, of_run))
    return found
