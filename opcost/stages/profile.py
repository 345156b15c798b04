"""A profile of a model in one step: count it, measure all that the database lacks, and find what its operators cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from opcost.comparing.operator_costs import operator_costs
from opcost.comparing.ranking import TIME, WHOLE, ModelFigures
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions
from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import META
from opcost.operators.whitelist import EVERYTHING, select
from opcost.progress import Progress
from opcost.running.bench import Bench, OpenBench
from opcost.running.request import COUNTS, Request
from opcost.running.shipped_counts import counted_or_shipped, shipped_counts
from opcost.stages.compare import ComparingReport, ModelComparisons, find_comparisons, reports_of
from opcost.stages.count import CountFailure, count_operators
from opcost.stages.measure_operators import Protocols, UnitReport, measure_units
from opcost.stages.profile_configs import ProfileConfig, configs_of
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.show import Choice, NothingMeasuredError, ShownModel, show
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database

EVERY_OPERATOR = (EVERYTHING,)
"""The whitelist of a profile: the shipped one names operators of other models, and might drop those of this one."""


@dataclass(frozen=True)
class OperatorLine:
    """An operator tuple of a model with the FLOPs, bytes, time and energy of all of its calls in one run.

    FLOPs are None if an operation has no formula, time and energy if no call has a row. Ratios are shares of the sum of
    all measured operators.
    """

    operator: str
    parameters: str
    inputs: str
    training_mode: str | None
    calls: int
    flop: int | None
    memory_bytes: int
    time_s: float | None = None
    energy_j: float | None = None
    time_ratio: float | None = None
    energy_ratio: float | None = None


@dataclass(frozen=True)
class KnownCost:
    """The rows of a model on one device, under the conditions with the most rows.

    ``calls_ratio`` is the share of the calls that have a row. The sum is that of these calls; the predicted cost is
    that of the others, None if it is unknown or the whole is measured.
    """

    conditions: Conditions
    calls_ratio: float
    sum_time_s: float | None
    sum_energy_j: float | None
    predicted_time_s: float | None
    predicted_energy_j: float | None
    whole_time_s: float | None
    whole_energy_j: float | None


@dataclass(frozen=True)
class ModelProfile:
    """The profile of one model; FLOPs and bytes are those of one run.

    ``config`` is the path of its config, None in a dry run and of an object, which have none that stays.
    With a ``flop_missing_reason`` the run has at least these FLOPs. ``missing_ratio`` is the share of the run in
    no operator, None if it is small; ``missing_operations`` names its operations. ``input_size`` is that of the
    first input, batch first; it is empty if it is unknown, with an ``input_size_missing_reason``.
    ``counted_on`` is ``meta``, ``cpu`` or ``cuda``. ``conditions`` are those of the measurements on the device of the
    profile, and ``operators`` has their costs; without such a device they are None, and ``known`` has what the database
    has of other devices. ``comparison`` is that of the sum with the measured whole.
    """

    name: str
    config: str | None
    input_size: tuple[int, ...]
    flop: int
    memory_bytes: int
    parameters: int
    counted_on: str
    operators: tuple[OperatorLine, ...]
    conditions: Conditions | None = None
    comparison: ComparingReport | None = None
    known: tuple[KnownCost, ...] = ()
    flop_missing_reason: str | None = None
    missing_ratio: float | None = None
    missing_operations: tuple[str, ...] = ()
    input_size_missing_reason: str | None = None


@dataclass(frozen=True)
class Profile:
    """The profiles of some models, the measurements of this run, and the comparisons for a report.

    ``request`` names the models' configs, and its tables are read once. ``folder`` is that of the first model's files.
    ``units`` are the plan in a dry run, and empty if nothing is to be measured.
    """

    request: Request
    folder: Path
    models: tuple[ModelProfile, ...]
    units: tuple[UnitReport, ...] = ()
    comparisons: tuple[ModelComparisons, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a measurement failed, or the sum of a measured model could not be compared with a whole."""
        compared = (model.comparison for model in self.models if model.conditions is not None)
        is_incomplete = any(one is None or one.is_incomplete for one in compared)
        return any(unit.failed for unit in self.units) or (is_incomplete and not self.request.dry_run)


@dataclass(frozen=True)
class Measuring:
    """How the operators and the whole of a model are measured; ``announce`` is called with the plan beforehand."""

    protocols: Protocols
    open_bench: OpenBench
    announce: Callable[[Sequence[UnitReport]], None]


def profile(
    request: Request, wanted: Sequence[WantedModel], progress: Progress, measuring: Measuring | None
) -> Profile:
    """Profile models: each step is left out whose result is there, so that an interrupted profile goes on.

    The names of models in the request are not used. Without ``measuring`` they are only counted, on shapes if possible,
    and the costs are those in the database. Raises UserError: a model does not exist, or does not run on its input.
    """
    found = configs_of(request.folders, wanted, request.allow_code)
    # A dry run has a folder of its own.
    found = [replace(one, is_kept=not request.dry_run) for one in found]
    # The plan for a product needs sizes only.
    _count(request, found, progress, on_meta=measuring is None or request.is_product)
    return profile_counted(request, found, progress, measuring)


def profile_counted(
    request: Request, found: Sequence[ProfileConfig], progress: Progress, measuring: Measuring | None
) -> Profile:
    """Profile models that are counted, see ``profile``."""
    request = replace(request, names=tuple(one.config.name for one in found), operators=EVERY_OPERATOR)
    if measuring is None:
        return _without_measuring(request, found)
    conditions: dict[str, Conditions] = {}

    @contextmanager
    def open_recorded(device: str | None, database: Database, with_meter: bool) -> Iterator[Bench]:
        with measuring.open_bench(device, database, with_meter) as bench:
            conditions.update({one.config.name: bench.conditions(request.setting_of(one.config)) for one in found})
            yield bench

    units = measure_units(request, measuring.protocols, open_recorded, progress, measuring.announce)
    return _profiled(request, found, units, conditions)


class FailuresToRaise:
    """Passes progress on, but no failures, which are raised together or tried again."""

    def __init__(self, progress: Progress) -> None:
        self.start, self.begin, self.finish, self.end = progress.start, progress.begin, progress.finish, progress.end

    def fail(self, reason: str) -> None:
        pass


def _count(request: Request, found: Sequence[ProfileConfig], progress: Progress, on_meta: bool) -> None:
    """Count the models without counts, and those with counts of shapes only if values are needed."""
    known = shipped_counts(request, [one.config for one in found]) if on_meta else {}
    missing = [one for one in found if one.config.name not in known and not _is_counted(one.config, on_meta)]
    if not missing:
        return
    counting = replace(request, device=None if request.is_product else request.device, dry_run=False)
    configs = [one.config for one in missing]
    reports = count_operators(counting, FailuresToRaise(progress), on_meta, configs=configs)
    failures = {report.name: report.reason for report in reports if isinstance(report, CountFailure)}
    if failures and on_meta:
        # Some models run with values only.
        _count(request, [one for one in missing if one.config.name in failures], progress, on_meta=False)
    elif failures:
        for one in missing:
            if one.config.name in failures:
                one.remove_if_new()
        raise UserError(*failures.values())


def _is_counted(config: ModelConfig, on_meta: bool) -> bool:
    try:
        return COUNTS.read(config).device_type != META or on_meta
    except UserError:
        return False


def _profiled(
    request: Request, found: Sequence[ProfileConfig], units: Sequence[UnitReport], conditions: Mapping[str, Conditions]
) -> Profile:
    """Return the profile after the measurements, from rows under these conditions of each model only."""
    configs = [one.config for one in found]
    request = replace(request, database=request.database.read_once())
    data = read_ranking_data(request, configs, {config.name for config in configs})
    figures = {(one.name, one.conditions): one for each in set(conditions.values()) for one in data.figures(each)}
    comparisons = []
    for model in find_comparisons(replace(request, device=None)) if not request.dry_run else []:
        pairs = zip(model.comparisons, model.kernels, strict=True)
        kept = [pair for pair in pairs if pair[0].full.conditions == conditions[model.config.name]]
        of_model = tuple(one for one, _ in kept), tuple(errors for _, errors in kept)
        comparisons.append(replace(model, comparisons=of_model[0], kernels=of_model[1]))
    reports = {report.name: report for report in reports_of(request, comparisons)}
    for whole in (unit.whole for unit in units if unit.whole.failed):
        report = reports.get(whole.name)
        if report is not None and not report.comparisons:
            # The same command, which the report proposes, would fail again.
            reason = f"the whole model is not measured on {whole.device}: {whole.reason}"
            reports[whole.name] = replace(report, reason=f"{reason}; correct this, and repeat the command", remedy=None)
    models = []
    for one, counts in _with_counts(request, found):
        name = one.config.name
        counted = _counted_profile(one, counts, figures.get((name, conditions[name])))
        models.append(replace(counted, conditions=conditions[name], comparison=reports.get(name)))
    return Profile(request, configs[0].folder, tuple(models), tuple(units), tuple(comparisons))


def _without_measuring(request: Request, found: Sequence[ProfileConfig]) -> Profile:
    request = replace(request, database=request.database.read_once())
    shown: Sequence[ShownModel] = ()
    try:
        shown = show(request, Choice(operators=True)).models
    except NothingMeasuredError:
        pass
    except UserError:
        # The user's only database may have to be made by the first measurement.
        if request.database.folder.is_dir():
            raise
    models = []
    for one, counts in _with_counts(request, found):
        known = []
        for model in (model for model in shown if model.row.name == one.config.name):
            row, calls = model.row, sum(operator.costs.calls for operator in model.operators)
            cost = KnownCost(
                conditions=row.conditions,
                calls_ratio=calls / max(1, counts.operator_calls),
                sum_time_s=row.sum_time_s,
                sum_energy_j=row.sum_energy_j,
                predicted_time_s=row.predicted_time_s,
                predicted_energy_j=row.predicted_energy_j,
                whole_time_s=row.time_s if row.source == WHOLE else None,
                whole_energy_j=row.energy_j if row.source == WHOLE else None,
            )
            known.append(cost)
        models.append(replace(_counted_profile(one, counts, None), known=tuple(known)))
    comparisons = find_comparisons(replace(request, device=None)) if shown else []
    return Profile(request, found[0].config.folder, tuple(models), comparisons=tuple(comparisons))


def _with_counts(request: Request, found: Sequence[ProfileConfig]) -> Iterator[tuple[ProfileConfig, OperatorCounts]]:
    """Yield the configs in the user's order with the counts of operators that compute something."""
    counts = {
        config.name: select(one, EVERY_OPERATOR).kept
        for config, one in counted_or_shipped(request, [one.config for one in found])
    }
    yield from ((one, counts[one.config.name]) for one in found)


def _counted_profile(one: ProfileConfig, counts: OperatorCounts, figures: ModelFigures | None) -> ModelProfile:
    config, reason = one.config, None
    if not config.shape:
        of_inputs = "the first input is a single value"
        reason = (
            of_inputs if config.inputs is not None else "the model comes with its inputs, and no config describes them"
        )
    return ModelProfile(
        name=config.name,
        config=str(config.path) if one.is_kept else None,
        input_size=config.shape,
        flop=counts.total_flop,
        memory_bytes=counts.total_memory_bytes,
        parameters=counts.parameters,
        counted_on=counts.device_type,
        operators=_operator_lines(counts, figures),
        flop_missing_reason=counts.flop_missing_reason,
        missing_ratio=counts.missing_ratio,
        missing_operations=counts.outside,
        input_size_missing_reason=reason,
    )


def _operator_lines(counts: OperatorCounts, figures: ModelFigures | None) -> tuple[OperatorLine, ...]:
    """Return the operators of a model: the one that takes most time first, then those without a row by size.

    The size is the share of the model's FLOPs or bytes, of both the larger. No figures: no operator has a row.
    """
    costs = {} if figures is None else {one.key: one.costs for one in operator_costs(figures, None, TIME)}
    most_flop, most_bytes = max(1, counts.total_flop), max(1, counts.total_memory_bytes)
    lines: dict[OperatorLine, float] = {}
    for count in counts.counts:
        operator, cost = count.operator, costs.get(count.operator.key)
        line = OperatorLine(
            operator=operator.operator,
            parameters=operator.parameters_text,
            inputs=operator.inputs_text,
            training_mode=operator.mode,
            calls=count.occurrences,
            flop=None if count.flop is None else count.occurrences * count.flop,
            memory_bytes=count.occurrences * count.memory_bytes,
            time_s=None if cost is None else cost.time_s,
            energy_j=None if cost is None else cost.energy_j,
            time_ratio=None if cost is None else cost.time_ratio,
            energy_ratio=None if cost is None else cost.energy_ratio,
        )
        lines[line] = max((line.flop or 0) / most_flop, line.memory_bytes / most_bytes)
    return tuple(sorted(lines, key=lambda line: (-(line.time_s or 0.0), -lines[line], line.operator, line.inputs)))
