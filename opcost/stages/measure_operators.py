"""Block 2, the operators that the database does not have under the present conditions; whole models; both together."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from opcost.columns import grouped
from opcost.comparing.corrections import is_in_state
from opcost.errors import UserError
from opcost.invocation import command
from opcost.measuring.conditions import STATE, WARM, Conditions, measurement_key
from opcost.measuring.flags import CASTING_DOUBT
from opcost.measuring.protocol import FULL_LOOP_S, MeasurementProtocol, ProtocolFor, protocol_in_state
from opcost.measuring.record import MeasurementRow, is_flagged
from opcost.operators.counts import (
    CAPTURED,
    Case,
    OperatorCounts,
    as_counted,
    cases_of,
    of_operators,
    select,
    tuple_key,
)
from opcost.operators.training import whole_case
from opcost.prediction.durations import Size
from opcost.progress import Progress
from opcost.running.bench import Bench
from opcost.running.campaign import Campaign, Demand, Outcome, campaigns_of, outcomes
from opcost.running.engine import Executor, OpenBench, executor_of
from opcost.running.expected_times import size_of, sizes_in
from opcost.running.plan import Work
from opcost.running.planned_bench import AssumedVersions, assumed_versions
from opcost.running.request import RunRequest, selected, without_grids
from opcost.running.shipped_counts import counted_or_shipped, kept_of_shipped, ship_counts
from opcost.storage.configs import ModelConfig, model_tuple, set_done
from opcost.summing.in_state import limits_of
from opcost.units import some_of


@dataclass(frozen=True)
class OperatorsReport:
    """The result of block 2 for one model.

    Of the ``wanted`` cases of ``tuples`` operator tuples, ``found`` were in the database already, ``measured`` and
    ``failed`` in this run, and ``remaining`` are still missing. ``expected_s`` is the time that the remaining ones will
    take, without those of an earlier model; ``taken_s`` is the time that those of this run took, and ``steps_s`` the
    part of each step of measurements in it. ``besides_s`` is the time of the whole run besides its models, and
    ``besides_parts_s`` has its parts: start, drift checks; in a dry run they are expected.
    ``planned`` has the number of measurements to make for each reason, and ``assumed`` the versions on a device that is
    not here. ``board`` is the UUID of the board whose rows are most of the sum's time, None without rows or on a CPU.
    ``doubts`` has the number of rows with each flag that casts doubt on them, and ``doubtful`` that of these rows.
    """

    name: str
    tuples: int
    wanted: int
    found: int
    measured: int
    failed: int
    remaining: int
    expected_s: float
    taken_s: float
    steps_s: Mapping[str, float]
    besides_s: float
    done: bool
    reasons: tuple[str, ...]
    without_energy: int
    energy_missing_reasons: tuple[str, ...]
    planned: Mapping[str, int]
    device: str
    device_product: str
    besides_parts_s: Mapping[str, float] = field(default_factory=dict)
    assumed: AssumedVersions | None = None
    has_whole: bool = True
    board: str | None = None
    doubtful: int = 0
    doubts: Mapping[str, int] = field(default_factory=dict)


def measure_operators(
    request: RunRequest,
    protocol_for: ProtocolFor,
    open_bench: OpenBench,
    progress: Progress,
    input_data: str = CAPTURED,
) -> list[OperatorsReport]:
    """Measure missing cases on ``input_data``, one of ``INPUT_DATA``; set ``done`` for each complete model."""
    configs = request.open_configs()
    if request.is_product:
        # A plan needs no block 0 here.
        whitelist = request.whitelist()
        models = [(one, select(counts, whitelist).kept) for one, counts in counted_or_shipped(request, configs)]
    else:
        models = selected(request, configs, kept_of_shipped(request, configs))
    _warn_of_unknown_values(models, input_data)
    works = [
        Work(
            config.name,
            request.setting_of(config),
            as_counted(cases_of(kept.counts, input_data), kept),
            {count.operator.key: Size(count.flop, count.memory_bytes) for count in kept.counts},
        )
        for config, kept in models
    ]
    by_name = {config.name: (config, kept) for config, kept in models}
    # A grid is no model, which would leave its calls in states.
    of_models = [(work, kept) for work, (config, kept) in zip(works, models, strict=True) if config.grid is None]
    begin_s = time.monotonic()
    with open_bench(request.device, request.database, not request.dry_run) as opened:
        executor, database = executor_of(opened), request.database
        if not request.dry_run:
            ship_counts(database, [config for config, _ in models])
        demand = Demand(works, protocol_for, database, database.operator_measurements, request.same_board)
        campaigns = campaigns_of(executor, demand)
        in_state = works_in_state(executor, demand, of_models if request.in_state else (), input_data)

        def report(outcome: Outcome, states: Sequence[Outcome] = ()) -> OperatorsReport:
            config, kept = by_name[outcome.work.name]
            return _operators_report(outcome, states, request, config, kept)

        if request.dry_run:
            states = campaigns_in_state(executor, demand, in_state, {})
            of_model = _by_model(states)
            return _plans(campaigns, lambda one: report(one, of_model.get(one.place, ())), states)

        def completed(outcome: Outcome, states: Sequence[Outcome] = ()) -> OperatorsReport:
            """Set ``done`` once nothing is missing by the full protocol on a GPU, on captured values."""
            (config, kept), protocol = by_name[outcome.work.name], outcome.campaign.protocol
            is_full = protocol.loop_s >= FULL_LOOP_S and protocol.relative_error is None
            is_due = is_full and outcome.campaign.bench.is_gpu and input_data == CAPTURED and not outcome.remaining
            # A call whose state cannot be measured costs what it costs warm.
            is_due = is_due and not sum(one.remaining - len(one.reasons) for one in states)
            done = (is_due and kept.has_values and _set_done(request, config)) or config.done
            found = report(outcome, states)
            return replace(found, done=done and not any(one.remaining for one in states))

        of_states = {(kind, work.name) for kind, own in in_state.items() for work in own}
        reports: list[OperatorsReport] = []
        waiting: dict[tuple[str, str], Outcome] = {}
        for outcome in outcomes(executor, campaigns, progress):
            if outcome.place in of_states:
                waiting[outcome.place] = outcome
            else:
                reports.append(completed(outcome))
        states = campaigns_in_state(executor, demand, in_state, campaigns) if waiting else {}
        of_model = _by_model(states)
        with_items = {kind: campaign for kind, campaign in states.items() if campaign.plan.items}
        for outcome in outcomes(executor, with_items, progress) if with_items else ():
            own = of_model[outcome.place]
            if outcome.place in waiting and not any(one.pending for one in own):
                reports.append(completed(waiting.pop(outcome.place), own))
        # Without missing states, or of kinds of devices that were lost.
        reports += [completed(outcome, of_model.get(place, ())) for place, outcome in waiting.items()]
    parts_s = _besides_parts_s(time.monotonic() - begin_s, campaigns, states)
    return _timed(_ordered(reports), parts_s)


def _by_model(campaigns: Mapping[str, Campaign]) -> dict[tuple[str, str], list[Outcome]]:
    return grouped((one for campaign in campaigns.values() for one in campaign.outcomes), lambda one: one.place)


def _plans(
    campaigns: Mapping[str, Campaign], report: Callable[[Outcome], Report], states: Mapping[str, Campaign]
) -> list[Report]:
    """Return the plans of campaigns, with the times of a run that perhaps measures states only."""
    found: list[Report] = []
    for kind, campaign in campaigns.items():
        parts_s = campaign.besides_parts_s or (states[kind].besides_parts_s if kind in states else {})
        found += _timed(map(report, campaign.outcomes), parts_s)
    return _ordered(found)


def _besides_parts_s(
    run_s: float, campaigns: Mapping[str, Campaign], states: Mapping[str, Campaign] = MappingProxyType({})
) -> dict[str, float]:
    """Return the parts of a run's time besides its models, in s; boards are checked for drift side by side."""
    workers = sum(campaign.workers for campaign in campaigns.values())
    checks_s = sum(campaign.checks_s for campaign in campaigns.values()) / workers
    all_campaigns = (*campaigns.values(), *states.values())
    of_models_s = sum(outcome.taken_s for campaign in all_campaigns for outcome in campaign.outcomes)
    return {"start": run_s - of_models_s - checks_s, **({"drift_checks": checks_s} if checks_s else {})}


def _timed(reports: Iterable[Report], parts_s: Mapping[str, float]) -> list[Report]:
    """Return reports with the parts of a run's time besides its models."""
    return [replace(one, besides_s=sum(parts_s.values()), besides_parts_s=dict(parts_s)) for one in reports]


def _ordered(reports: Iterable[Report]) -> list[Report]:
    return sorted(reports, key=lambda report: (report.name, report.device_product))


def _warn_of_unknown_values(models: Sequence[tuple[ModelConfig, OperatorCounts]], input_data: str) -> None:
    unknown = [config for config, kept in models if not kept.has_values]
    names = [config.name for config in unknown]
    if names and input_data == CAPTURED:
        text = "%s: counted on shapes only, measured on normal values; to capture values, run %s without --meta"
        with_code = [config.name for config in unknown if config.code is not None]
        counting = command("count", *with_code, has_code=bool(with_code))
        logging.getLogger(__name__).warning(text, ", ".join(names), counting)


def _set_done(request: RunRequest, config: ModelConfig) -> bool:
    """Set ``done``; if that fails, only warn: the rows are in the database."""
    try:
        set_done(request.folders.own_copy(config.path), config.name)
    except UserError as error:
        logging.getLogger(__name__).warning("done not set: %s", error)
        return False
    return True


def _operators_report(
    outcome: Outcome, states: Sequence[Outcome], request: RunRequest, config: ModelConfig, kept: OperatorCounts
) -> OperatorsReport:
    """Return the report of a model with the ``states`` of its calls."""
    keys, known, own = outcome.work.keys, outcome.campaign.known.best, [outcome, *states]
    calls = {count.operator.key: count.occurrences for count in kept.counts}
    times_s: defaultdict[str | None, float] = defaultdict(float)
    rows = [known[key] for key in keys if key in known]
    for row in rows:
        times_s[row.circumstances.device_uuid] += row.measurement.time_s * calls[tuple_key(row.key)]
    reasons = [reason for one in own for reason in one.reasons]
    measured = [row.measurement for row in rows]
    without_energy = [str(one.energy_missing_reason) for one in measured if one.energy_j is None]
    return OperatorsReport(
        name=outcome.work.name,
        tuples=len({tuple_key(key) for key in keys}),
        wanted=sum(len(one.work.keys) for one in own),
        found=sum(one.found for one in own),
        measured=sum(one.measured for one in own),
        failed=len(reasons),
        remaining=sum(one.remaining for one in own),
        expected_s=sum(one.expected_s for one in own),
        taken_s=sum(one.taken_s for one in own),
        steps_s=sum((one.steps_s for one in states), outcome.steps_s),
        besides_s=0.0,
        done=config.done and not any(one.remaining for one in states),
        reasons=tuple(dict.fromkeys(reasons)),
        without_energy=len(without_energy),
        energy_missing_reasons=tuple(dict.fromkeys(without_energy)),
        planned=sum((Counter(one.work.reasons) for one in states), Counter(outcome.work.reasons)),
        device=outcome.campaign.bench.device,
        device_product=outcome.campaign.product,
        assumed=assumed_versions(outcome.campaign.bench, request.setting),
        has_whole=config.grid is None,
        board=max(times_s, key=lambda board: times_s[board], default=None),
        doubtful=sum(map(is_flagged, measured)),
        doubts=Counter(flag.value for one in measured for flag in one.flags if flag in CASTING_DOUBT),
    )


def works_in_state(
    executor: Executor, demand: Demand, models: Sequence[tuple[Work, OperatorCounts]], input_data: str
) -> dict[str, list[Work]]:
    """Return the calls of models in their states, by the limits of each kind of device that captures graphs."""
    found: defaultdict[str, list[Work]] = defaultdict(list)
    without: list[str] = []
    for kind, bench in executor.kinds.items():
        for work, counts in models:
            setting = replace(work.setting, cache=STATE)
            conditions = bench.conditions(setting)
            if is_in_state(conditions):
                calls = cases_of(counts.counts, input_data, limits_of(conditions))
                if cases := as_counted((case for case in calls if case.state), counts):
                    found[kind].append(replace(work, setting=setting, cases=cases))
                if not any(count.reuse for count in counts.counts):
                    without.append(work.name)
        if kind in found:
            # Now, as a campaign asks: later its process may have ended.
            bench.circumstances(protocol_in_state(demand.protocol_for(bench.is_gpu)))
    if without:
        text = "%s: counted without reuse distances, so that calls have no state; to count again, run %s"
        names = tuple(dict.fromkeys(without))
        logging.getLogger(__name__).warning(text, some_of(names), command("count", *names))
    return found


def campaigns_in_state(
    executor: Executor, demand: Demand, works: Mapping[str, Sequence[Work]], warm: Mapping[str, Campaign]
) -> dict[str, Campaign]:
    """Return the campaigns of calls in their states, by the kind of device.

    Each is measured on the board that has its row in the ``warm`` campaign, because its energy follows from that row.
    """

    def protocol(is_gpu: bool) -> MeasurementProtocol:
        return protocol_in_state(demand.protocol_for(is_gpu))

    found = {}
    for kind, of_kind in works.items():
        bench, known = executor.kinds[kind], warm[kind].known.best if kind in warm else {}
        boards = {worker.board for worker in executor.workers if worker.kind == kind}
        of_boards = [
            one
            for work in of_kind
            for one in _by_board(work, known, bench.conditions(replace(work.setting, cache=WARM)), boards)
        ]
        found[kind] = Campaign(executor, kind, replace(demand, works=of_boards, protocol_for=protocol, of_pairs=True))
    return found


def _by_board(
    work: Work, known: Mapping[str, MeasurementRow], of_warm: Conditions, boards: Set[str | None]
) -> list[Work]:
    """Return the parts of a work, each for the board of its warm rows if that is one of several here."""

    def board_of(case: Case) -> str | None:
        row = known.get(measurement_key(replace(case, state=""), of_warm))
        board = None if row is None or len(boards) == 1 else row.circumstances.device_uuid
        return board if board in boards else None

    return [replace(work, cases=tuple(cases), board=board) for board, cases in grouped(work.cases, board_of).items()]


@dataclass(frozen=True)
class FullModelReport:
    """A whole model in the database; time and energy per run, None if not measured.

    Fields with the names of those of ``OperatorsReport`` mean the same. ``builds`` and ``builds_time_range_ratio`` are
    those of the row.
    """

    name: str
    time_s: float | None
    energy_j: float | None
    power_w: float | None
    newly_measured: bool
    failed: bool
    expected_s: float
    taken_s: float
    steps_s: Mapping[str, float]
    besides_s: float
    reason: str | None
    planned: Mapping[str, int]
    device: str
    device_product: str
    besides_parts_s: Mapping[str, float] = field(default_factory=dict)
    assumed: AssumedVersions | None = None
    builds: int | None = None
    builds_time_range_ratio: float | None = None


Report = TypeVar("Report", OperatorsReport, FullModelReport)


def measure_full_models(
    request: RunRequest,
    protocol_for: ProtocolFor,
    open_bench: OpenBench,
    progress: Progress,
    boards: Mapping[str, str | None] = MappingProxyType({}),
) -> list[FullModelReport]:
    """Measure each chosen model as a whole, unless the database has it, on the board of its name if that is there."""
    configs = request.models(request.check)
    shipped = sizes_in(request.database.model_operators, of_operators(map(model_tuple, configs)))
    works = []
    for config in configs:
        model, size = model_tuple(config), size_of(config, shipped)
        sizes = {} if size is None else {model.key: size}
        board = boards.get(config.name)
        works.append(Work(config.name, request.setting_of(config), (whole_case(model),), sizes, board))
    begin_s = time.monotonic()
    with open_bench(request.device, request.database, not request.dry_run) as opened:
        executor, database = executor_of(opened), request.database
        demand = Demand(works, protocol_for, database, database.full_model_measurements, request.same_board)
        campaigns = campaigns_of(executor, demand)
        if request.dry_run:
            return _plans(campaigns, lambda one: _whole_report(one, request), {})
        reports = [_whole_report(outcome, request) for outcome in outcomes(executor, campaigns, progress)]
    return _timed(_ordered(reports), _besides_parts_s(time.monotonic() - begin_s, campaigns))


def _whole_report(outcome: Outcome, request: RunRequest) -> FullModelReport:
    (key,), bench = outcome.work.keys, outcome.campaign.bench
    row = outcome.campaign.known.best.get(key)
    failure = outcome.campaign.failed.get(key)
    return FullModelReport(
        name=outcome.work.name,
        time_s=row.measurement.time_s if row else None,
        energy_j=row.measurement.energy_j if row else None,
        power_w=row.measurement.power_w if row else None,
        newly_measured=outcome.measured > 0,
        failed=failure is not None,
        expected_s=outcome.expected_s,
        taken_s=outcome.taken_s,
        steps_s=outcome.steps_s,
        besides_s=0.0,
        reason=failure or (row.measurement.energy_missing_reason if row else None),
        planned=outcome.work.reasons,
        device=bench.device,
        device_product=outcome.campaign.product,
        assumed=assumed_versions(bench, request.setting),
        builds=row.measurement.builds if row else None,
        builds_time_range_ratio=row.measurement.builds_time_range_ratio if row else None,
    )


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
        return self.operators.expected_s + self.whole.expected_s


@dataclass(frozen=True)
class Protocols:
    """The protocols of operators and of wholes, and the values of operators' inputs, one of ``INPUT_DATA``."""

    operators: ProtocolFor
    wholes: ProtocolFor
    input_data: str = CAPTURED


def measure_units(
    request: RunRequest,
    protocols: Protocols,
    open_bench: OpenBench,
    progress: Progress,
    announce: Callable[[Sequence[UnitReport]], None],
) -> list[UnitReport]:
    """Measure the missing operators and the whole of each chosen model, model by model.

    Rows of other boards do not count as measured, so that all rows of a model are of one board, or of those that
    measure side by side. Devices are made ready once for all models. ``announce`` is called with the plan before
    anything is measured.
    """
    request = replace(request, same_board=True)
    # Before the operators are measured, which takes minutes and runs no code of a user.
    configs = without_grids(request.open_configs(request.check), is_strict=bool(request.names))
    if not request.names and not request.is_product:
        configs = [config for config, _ in selected(request, configs)]
    names = tuple(config.name for config in configs)
    begin_s = time.monotonic()
    with open_bench(request.device, request.database, not request.dry_run) as bench:

        def opened(*_: object) -> AbstractContextManager[Bench | Executor]:
            return nullcontext(bench)

        def both(these: tuple[str, ...], dry_run: bool) -> list[UnitReport]:
            one = replace(request, names=these, dry_run=dry_run)
            operators = measure_operators(one, protocols.operators, opened, progress, protocols.input_data)
            # Boards of one product differ, so a whole is measured where most of its sum was.
            boards = {report.name: report.board for report in operators}
            wholes = measure_full_models(one, protocols.wholes, opened, progress, boards)
            return [UnitReport(own.name, own, whole) for own, whole in zip(operators, wholes, strict=True)]

        if not names:
            return []
        plan = both(names, dry_run=True)
        plan = _with_times_of_run(plan, _together_s([plan]))
        if request.dry_run:
            return plan
        announce(plan)
        # One worker has complete models first; of several none waits for the end of a model.
        is_alone = len(executor_of(bench).workers) == 1
        parts = [(name,) for name in names] if is_alone else [names]
        runs = [both(part, dry_run=False) for part in parts]
    found, parts_s = [report for run in runs for report in run], _together_s(runs)
    taken_s = sum(report.operators.taken_s + report.whole.taken_s for report in found)
    # Time without another name is the start.
    parts_s["start"] += time.monotonic() - begin_s - taken_s - sum(parts_s.values())
    return _with_times_of_run(found, parts_s)


def _together_s(runs: Iterable[Sequence[UnitReport]]) -> dict[str, float]:
    """Return the parts of runs' times besides their models; all models of a run have those of it."""
    parts_s: dict[str, float] = {}
    for part in (part for first, *_ in runs for part in (first.operators, first.whole)):
        for name, time_s in part.besides_parts_s.items():
            parts_s[name] = time_s + (0.0 if name in ONCE else parts_s.get(name, 0.0))
    return parts_s


def _with_times_of_run(reports: Sequence[UnitReport], parts_s: Mapping[str, float]) -> list[UnitReport]:
    """Return reports with the times of the run besides all measurements."""
    operators = _timed((report.operators for report in reports), parts_s)
    wholes = _timed((report.whole for report in reports), parts_s)
    return [UnitReport(own.name, own, whole) for own, whole in zip(operators, wholes, strict=True)]
