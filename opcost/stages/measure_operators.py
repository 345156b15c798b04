"""Block 2: measure the operators that the database does not have under the present conditions."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from opcost.comparing.cache_chain_rows import is_corrected
from opcost.comparing.weights_from_memory import cases_from_memory, excesses_from_memory
from opcost.errors import UserError
from opcost.invocation import command
from opcost.measuring.conditions import COLD
from opcost.measuring.protocol import FULL_LOOP_S, MeasurementProtocol, ProtocolFor
from opcost.measuring.setting import Setting
from opcost.operators.cases import CAPTURED, Case, as_counted, cases_of, of_operators, tuple_key
from opcost.operators.counts import OperatorCounts
from opcost.operators.whitelist import select
from opcost.prediction.durations import Size
from opcost.progress import Progress
from opcost.running.bench import Bench, OpenBench
from opcost.running.campaign import Campaign, Outcome
from opcost.running.plan import Reason, Work
from opcost.running.planned_bench import AssumedVersions, assumed_versions
from opcost.running.request import Request, selected
from opcost.running.shipped_counts import counted_or_shipped, ship_counts
from opcost.stages.cache_chains import Before, ChainTimes, chain_settings, chain_times, measure_missing_chains
from opcost.storage.config_edits import set_done
from opcost.storage.configs import ModelConfig
from opcost.summing.index import Measurements

KNOWN_FROM = 20
"""Measurements whose mean time is the expected one of others on the same card: the mean of 20 is known to about a
quarter (338 tuples on an H100)."""


@dataclass(frozen=True)
class OperatorsReport:
    """The result of block 2 for one model.

    Of the ``wanted`` cases of ``tuples`` operator tuples, ``found`` were in the database already, ``measured`` and
    ``failed`` in this run, and ``remaining`` are still missing. ``expected_s`` is the time that the remaining ones will
    take, without those of an earlier model; ``taken_s`` is the time that those of this run took, and ``steps_s`` the
    part of each step of measurements in it. ``besides_s`` is the time of the whole run besides its models, and
    ``besides_parts_s`` has its parts: start, drift checks, cache corrections; in a dry run they are expected.
    ``device`` is the torch device, ``device_product`` its product name. ``planned`` has the number of measurements to
    make for each reason, and ``assumed`` the versions on a device that is not here. ``later_s`` is the time of cache
    corrections that the next run measures. A grid has no whole model (``has_whole``).
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
    later_s: float = 0.0
    has_whole: bool = True


def measure_operators(
    request: Request,
    protocol_for: ProtocolFor,
    open_bench: OpenBench,
    progress: Progress,
    input_data: str = CAPTURED,
) -> list[OperatorsReport]:
    """Measure the missing cases of the chosen models; set ``done`` for each model that is complete.

    Args:
        request: which models, and the device.
        protocol_for: returns the protocol, given whether the device is a GPU.
        open_bench: makes the device ready.
        progress: reports each operator.
        input_data: the values of inputs, one of ``INPUT_DATA``.
    """
    configs = request.open_configs()
    if request.is_product:
        # A plan needs no block 0 here.
        whitelist = request.whitelist()
        models = [(one, select(counts, whitelist).kept) for one, counts in counted_or_shipped(request, configs)]
    else:
        models = selected(request, configs)
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
    # A grid has no sum to be corrected.
    for_chains = chain_settings(request.setting, (config.precision for config, _ in models if config.grid is None))
    begin_s = time.monotonic()
    with open_bench(request.device, request.database, not request.dry_run) as bench:
        if not request.dry_run:
            ship_counts(request, [config for config, _ in models])
        protocol = protocol_for(bench.is_gpu)
        campaign = Campaign(bench, protocol, request, request.database.operator_measurements, works)
        of_models = [(work, kept) for work, (config, kept) in zip(works, models, strict=True) if config.grid is None]
        plan_pairs = partial(WeightsFromMemory.of, bench, protocol, request, of_models, input_data)
        from_memory = plan_pairs()
        if request.dry_run:
            reports = [_operators_report(outcome, bench, request, by_name) for outcome in campaign.outlook()]
            times = chain_times(bench, request.database, for_chains, Before(campaign.expected_s))
            corrections = None if times is None else replace(times, now_s=times.now_s + from_memory.expected_s())
            return sorted(
                _with_besides(reports, bench, campaign, request.setting, corrections), key=lambda one: one.name
            )
        completion = Completion(request, by_name, protocol, bench.is_gpu, input_data)
        reports = []
        for outcome in campaign.run(progress):
            report = _operators_report(outcome, bench, request, by_name)
            reports.append(report if report.name in from_memory.names else completion.of(report))
        corrections_begin_s = time.monotonic()
        if from_memory.names:
            # Planned again, since the rows with weights in the cache are known now.
            plan_pairs().measure(progress)
        reports = [completion.of(report) if report.name in from_memory.names else report for report in reports]
        before = _before(campaign, reports, protocol)
        for setting in for_chains:
            measure_missing_chains(bench, request.database, progress, setting, before)
        corrections_s = time.monotonic() - corrections_begin_s
    besides_s = time.monotonic() - begin_s - sum(report.taken_s for report in reports)
    parts_s = campaign.besides_taken_s(besides_s, corrections_s)
    reports = [replace(report, besides_s=besides_s, besides_parts_s=parts_s) for report in reports]
    return sorted(reports, key=lambda one: one.name)


@dataclass(frozen=True)
class Completion:
    """The rule for ``done``: it is set by the full protocol on a GPU, on captured values, once nothing is missing."""

    request: Request
    by_name: Mapping[str, tuple[ModelConfig, OperatorCounts]]
    protocol: MeasurementProtocol
    is_gpu: bool
    input_data: str

    def of(self, report: OperatorsReport) -> OperatorsReport:
        """Set ``done`` if a model is complete, and return its report with it."""
        config, kept = self.by_name[report.name]
        is_full = self.protocol.loop_s >= FULL_LOOP_S and self.protocol.relative_error is None and self.is_gpu
        is_due = is_full and not report.remaining and self.input_data == CAPTURED and kept.has_values
        return replace(report, done=(is_due and _set_done(self.request, config)) or config.done)


def _with_besides(
    reports: Sequence[OperatorsReport],
    bench: Bench,
    campaign: Campaign,
    setting: Setting,
    corrections: ChainTimes | None,
) -> list[OperatorsReport]:
    """Return plans with the expected times besides the measurements, and with the versions that they assume."""
    parts_s = campaign.besides_parts_s
    if corrections is not None and (corrections.now_s or not corrections.later_s):
        parts_s["cache_corrections"] = corrections.now_s
    later_s = 0.0 if corrections is None else corrections.later_s
    assumed = assumed_versions(bench, setting, 0.0 if corrections is None else corrections.all_s)
    besides_s = sum(parts_s.values())
    plan = partial(replace, besides_s=besides_s, besides_parts_s=parts_s, assumed=assumed, later_s=later_s)
    return [plan(one) for one in reports]


def _before(campaign: Campaign, reports: Sequence[OperatorsReport], protocol: MeasurementProtocol) -> Before:
    """Return how long the operators took, if they were measured to a relative error as chains are."""
    measured = sum(report.measured for report in reports)
    is_known = protocol.relative_error is not None and measured >= KNOWN_FROM
    return Before(campaign.expected_s, sum(report.taken_s for report in reports) / measured if is_known else None)


def _warn_of_unknown_values(models: Sequence[tuple[ModelConfig, OperatorCounts]], input_data: str) -> None:
    unknown = [config for config, kept in models if not kept.has_values]
    names = [config.name for config in unknown]
    if names and input_data == CAPTURED:
        text = "%s: counted on shapes only, measured on normal values; to capture values, run %s without --meta"
        with_code = [config.name for config in unknown if config.code is not None]
        counting = command("count", *with_code, has_code=bool(with_code))
        logging.getLogger(__name__).warning(text, ", ".join(names), counting)


def _set_done(request: Request, config: ModelConfig) -> bool:
    """Set ``done``; if that fails, only warn: the rows are in the database."""
    try:
        set_done(request.folders.own_copy(config.path), config.name)
    except UserError as error:
        logging.getLogger(__name__).warning("done not set: %s", error)
        return False
    return True


def _operators_report(
    outcome: Outcome, bench: Bench, request: Request, by_name: Mapping[str, tuple[ModelConfig, OperatorCounts]]
) -> OperatorsReport:
    keys = outcome.work.keys
    config, _ = by_name[outcome.work.name]
    reasons = [outcome.failures[key] for key in keys if key in outcome.failures]
    rows = [outcome.rows[key].measurement for key in keys if key in outcome.rows]
    without_energy = [str(row.energy_missing_reason) for row in rows if row.energy_j is None]
    return OperatorsReport(
        name=outcome.work.name,
        tuples=len({tuple_key(key) for key in keys}),
        wanted=len(keys),
        found=outcome.found,
        measured=outcome.measured,
        failed=len(reasons),
        remaining=outcome.remaining,
        expected_s=outcome.expected_s,
        taken_s=outcome.taken_s,
        steps_s=outcome.steps_s,
        besides_s=0.0,
        done=config.done,
        reasons=tuple(dict.fromkeys(reasons)),
        without_energy=len(without_energy),
        energy_missing_reasons=tuple(dict.fromkeys(without_energy)),
        planned=outcome.work.reasons,
        device=bench.device,
        device_product=bench.conditions(request.setting).device_product,
        has_whole=config.grid is None,
    )


@dataclass(frozen=True)
class WeightsFromMemory:
    """The measurements of pairs that the database does not have: with weights in the cache and from memory.

    A pair may be of any board, but both rows are of one. A product that has its row in the cache from another board is
    therefore measured both ways.
    """

    campaign: Campaign | None

    @property
    def names(self) -> frozenset[str]:
        return frozenset() if self.campaign is None else frozenset(work.name for work in self.campaign.plan.works)

    @classmethod
    def of(
        cls,
        bench: Bench,
        protocol: MeasurementProtocol,
        request: Request,
        models: Sequence[tuple[Work, OperatorCounts]],
        input_data: str,
    ) -> WeightsFromMemory:
        """Plan the missing pairs of some models, given the work of block 2 for each; none where sums need none."""
        if not (bench.is_gpu and is_corrected(bench.conditions(request.setting))):
            return cls(None)
        works = [
            replace(work, setting=replace(work.setting, cache=cache), cases=cases)
            for work, cases in _missing(bench, request, models, input_data)
            for cache in (work.setting.cache, COLD)
        ]
        if not works:
            return cls(None)
        table = request.database.operator_measurements
        campaign = Campaign(bench, protocol, replace(request, same_board=True), table, works)
        return cls(campaign.without_drift_checks())

    def expected_s(self) -> float:
        """Return the expected time in s, without rows in the cache that block 2 measures anyway."""
        if self.campaign is None:
            return 0.0
        return sum(
            self.campaign.item_s(item)
            for item in self.campaign.plan.items
            if item.setting.cache == COLD or item.reason is Reason.OTHER_BOARD
        )

    def measure(self, progress: Progress) -> None:
        """Measure what is missing; what fails is in ``failures.csv``, and the kind of chain corrects it."""
        if self.campaign is not None and self.campaign.plan.items:
            for _ in self.campaign.run(progress):
                pass


def _missing(
    bench: Bench, request: Request, models: Sequence[tuple[Work, OperatorCounts]], input_data: str
) -> list[tuple[Work, tuple[Case, ...]]]:
    """Return the cases of each model whose operators have no pair yet."""
    wanted = [(work, counts, cases_from_memory(counts, input_data)) for work, counts in models]
    operators = {case.operator for _, _, cases in wanted for case in cases}
    measurements = Measurements(request.database.operator_measurements.rows(of_operators(operators)))
    found = []
    for work, counts, cases in wanted:
        known = excesses_from_memory(counts.counts, measurements, bench.conditions(work.setting))
        missing = tuple(case for case in cases if case.operator not in known)
        if missing:
            found.append((work, as_counted(missing, counts)))
    return found
