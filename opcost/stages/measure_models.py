"""The full-model script: measure the whole models that the database does not have under the present conditions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opcost.measuring.protocol import ProtocolFor
from opcost.operators.cases import Case
from opcost.progress import Progress
from opcost.running.bench import OpenBench
from opcost.running.campaign import Campaign, Outcome
from opcost.running.expected_times import sizes_in
from opcost.running.plan import Work
from opcost.running.planned_bench import AssumedVersions, assumed_versions
from opcost.running.request import Request, model_tuple
from opcost.stages.model_sizes import size_of


@dataclass(frozen=True)
class FullModelReport:
    """A whole model in the database; time and energy per run, None if not measured.

    ``expected_s`` is the time that its measurement will take, 0 if there is none to make; ``taken_s`` is the time that
    it took in this run, and ``steps_s`` the part of each step of the measurement in it. ``besides_s`` is the time of
    the whole run besides its models, and ``besides_parts_s`` has its parts: start and drift checks; in a dry run they
    are expected. ``device`` is the torch device, ``device_product`` its product name. ``planned`` has the number of
    measurements to make for each reason, and ``assumed`` the versions on a device that is not here. ``builds`` and
    ``builds_time_range_ratio`` are those of the row.
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


def measure_full_models(
    request: Request, protocol_for: ProtocolFor, open_bench: OpenBench, progress: Progress
) -> list[FullModelReport]:
    """Measure each chosen model as a whole, unless the database has it."""
    configs = request.models(request.check)
    shipped = sizes_in(request.database.model_operators)
    works = []
    for config in configs:
        model, size = model_tuple(config), size_of(config, shipped)
        sizes = {} if size is None else {model.key: size}
        works.append(Work(config.name, request.setting_of(config), (Case(model),), sizes))
    begin_s = time.monotonic()
    with open_bench(request.device, request.database, not request.dry_run) as bench:
        protocol = protocol_for(bench.is_gpu)
        campaign = Campaign(bench, protocol, request, request.database.full_model_measurements, works)
        outcomes = campaign.outlook() if request.dry_run else campaign.run(progress)
        product = bench.conditions(request.setting).device_product
        reports = [_full_model_report(outcome, bench.device, product) for outcome in outcomes]
        assumed = assumed_versions(bench, request.setting)
    besides_s = time.monotonic() - begin_s - sum(report.taken_s for report in reports)
    parts_s = campaign.besides_parts_s if request.dry_run else campaign.besides_taken_s(besides_s)
    besides_s = sum(parts_s.values())
    reports = [replace(one, besides_s=besides_s, besides_parts_s=parts_s, assumed=assumed) for one in reports]
    return sorted(reports, key=lambda report: report.name)


def _full_model_report(outcome: Outcome, device: str, device_product: str) -> FullModelReport:
    (key,) = outcome.work.keys
    row = outcome.rows.get(key)
    return FullModelReport(
        name=outcome.work.name,
        time_s=row.measurement.time_s if row else None,
        energy_j=row.measurement.energy_j if row else None,
        power_w=row.measurement.power_w if row else None,
        newly_measured=outcome.measured > 0,
        failed=key in outcome.failures,
        expected_s=outcome.expected_s,
        taken_s=outcome.taken_s,
        steps_s=outcome.steps_s,
        besides_s=0.0,
        reason=outcome.failures.get(key) or (row.measurement.energy_missing_reason if row else None),
        planned=outcome.work.reasons,
        device=device,
        device_product=device_product,
        builds=row.measurement.builds if row else None,
        builds_time_range_ratio=row.measurement.builds_time_range_ratio if row else None,
    )
