"""Block 2 and the full-model script: measure what the database lacks under the present conditions."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from opcost.apparatus import OpenApparatus
from opcost.campaign import Campaign, Outcome, Work
from opcost.config_files import ModelConfig, set_done
from opcost.errors import UserError
from opcost.measurement import FULL_LOOP_S, MeasurementProtocol
from opcost.model_sources import check_model
from opcost.operators import META, OperatorCounts
from opcost.progress import Progress
from opcost.request import (
    BLOCK_0,
    FILTERED_COUNTS,
    FULL_MODEL_MEASUREMENTS,
    OPERATOR_MEASUREMENTS,
    Request,
    check_selection,
    counted,
    model_tuple,
)
from opcost.subjects import CAPTURED, Subject, subjects_of


@dataclass(frozen=True)
class OperatorsReport:
    """What block 2 did for one model.

    ``wanted`` are operators, each on every kind of values that it sees in the model; of these ``found`` were in the
    database already, ``measured`` and ``failed`` in this run, and ``remaining`` are still lacking. ``expected_s`` is
    how long the remaining ones take, those left out that an earlier model of the run wants too.
    """

    name: str
    wanted: int
    found: int
    measured: int
    failed: int
    remaining: int
    expected_s: float
    done: bool
    reasons: tuple[str, ...]
    without_energy: int
    energy_missing_reasons: tuple[str, ...]


@dataclass(frozen=True)
class FullModelReport:
    """What the full-model script found or measured of one model; time and energy per run, None if not measured."""

    name: str
    time_s: float | None
    energy_j: float | None
    power_w: float | None
    newly_measured: bool
    failed: bool
    expected_s: float
    reason: str | None


def measure_operators(
    request: Request,
    protocol: MeasurementProtocol,
    open_apparatus: OpenApparatus,
    progress: Progress,
    input_data: str = CAPTURED,
) -> list[OperatorsReport]:
    """Measure each operator tuple of the chosen models that the database lacks; set ``done`` where it is due.

    Args:
        request: which models, and the device.
        protocol: how long each is measured.
        open_apparatus: makes the device ready.
        progress: is told of each operator.
        input_data: the values that operators run on, one of ``INPUT_DATA``.
    """
    models = counted(request, request.open_configs(), FILTERED_COUNTS)
    check_selection(request, models)
    _tell_of_unknown_values(models, input_data)
    works = [Work(config, tuple(subjects_of(counts.counts, input_data))) for config, counts in models]
    on_own_values = [work for work, (_, counts) in zip(works, models, strict=True) if _has_values(counts, input_data)]
    with open_apparatus(request.device, request.database, not request.dry_run) as apparatus:
        campaign = Campaign(apparatus, protocol, request.database, OPERATOR_MEASUREMENTS)
        reports = []
        for work, outcome in campaign.run(works, progress, request.dry_run):
            is_full = protocol.loop_s >= FULL_LOOP_S and protocol.relative_error is None
            is_full_protocol = is_full and apparatus.is_gpu
            is_due = is_full_protocol and not outcome.remaining and not request.dry_run and work in on_own_values
            done = (is_due and _set_done(work.config)) or work.config.done
            reports.append(_operators_report(work, outcome, done))
    return sorted(reports, key=lambda report: report.name)


def measure_full_models(
    request: Request, protocol: MeasurementProtocol, open_apparatus: OpenApparatus, progress: Progress
) -> list[FullModelReport]:
    """Measure each chosen model as a whole, where the database lacks it."""
    configs = request.configs(check_model)
    works = [Work(config, (Subject(model_tuple(config)),)) for config in configs]
    with open_apparatus(request.device, request.database, not request.dry_run) as apparatus:
        campaign = Campaign(apparatus, protocol, request.database, FULL_MODEL_MEASUREMENTS)
        reports = [_full_model_report(*result) for result in campaign.run(works, progress, request.dry_run)]
    return sorted(reports, key=lambda report: report.name)


def _has_values(counts: OperatorCounts, input_data: str) -> bool:
    """Return whether operators run on values such as they saw in the model."""
    return input_data == CAPTURED and counts.device_type != META


def _tell_of_unknown_values(models: list[tuple[ModelConfig, OperatorCounts]], input_data: str) -> None:
    names = [config.name for config, counts in models if counts.device_type == META]
    if names and input_data == CAPTURED:
        text = "%s: counted on shapes only, so operators are measured on normal values; %s without --meta looks at them"
        logging.getLogger(__name__).warning(text, ", ".join(names), BLOCK_0)


def _set_done(config: ModelConfig) -> bool:
    """Set ``done``; where that cannot be, warn and go on: the rows are in the database."""
    try:
        set_done(config.path)
    except UserError as error:
        logging.getLogger(__name__).warning("done was not set: %s", error)
        return False
    return True


def _operators_report(work: Work, outcome: Outcome, done: bool) -> OperatorsReport:
    reasons = [outcome.failures[key] for key in outcome.keys if key in outcome.failures]
    rows = [outcome.rows[key].measurement for key in outcome.keys if key in outcome.rows]
    without_energy = [str(row.energy_missing_reason) for row in rows if row.energy_j is None]
    return OperatorsReport(
        name=work.config.name,
        wanted=len(outcome.keys),
        found=outcome.found,
        measured=outcome.measured,
        failed=len(reasons),
        remaining=outcome.remaining,
        expected_s=outcome.expected_s,
        done=done,
        reasons=tuple(dict.fromkeys(reasons)),
        without_energy=len(without_energy),
        energy_missing_reasons=tuple(dict.fromkeys(without_energy)),
    )


def _full_model_report(work: Work, outcome: Outcome) -> FullModelReport:
    (key,) = outcome.keys
    row = outcome.rows.get(key)
    return FullModelReport(
        name=work.config.name,
        time_s=row.measurement.time_s if row else None,
        energy_j=row.measurement.energy_j if row else None,
        power_w=row.measurement.power_w if row else None,
        newly_measured=outcome.measured > 0,
        failed=key in outcome.failures,
        expected_s=outcome.expected_s,
        reason=outcome.failures.get(key) or (row.measurement.energy_missing_reason if row else None),
    )
