"""Models in the order of their cost per sample, each with the sum of its operators.

A model whose whole is not measured has the corrected sum of its operators as its cost, with predicted costs of those
that are not measured. The error of such a sum is expected from the sums of other models with a measured whole, and from
predictions of operators that were held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated

import numpy as np

from opcost.columns import COUNT_FROM_1, Column, Columns, one_of
from opcost.comparing.model_result import Doubt, ModelResult, predicted_piece
from opcost.comparing.roofline import Roofline, roof_share
from opcost.estimates import Estimate, estimate_fields, ratio_if_known, value_of
from opcost.measuring.conditions import DEVICE_UUID, Conditions
from opcost.operators.counts import MODEL, OperatorCount
from opcost.operators.model_inputs import Unit
from opcost.operators.training import PARTS
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, PREDICTED_ERROR_RATIOS, CostModel, predictor_of
from opcost.summing.summation import EnergyBasis, Measurements

TIME, ENERGY, POWER, SAVING, NAME = "time", "energy", "power", "saving", "name"
SORTS = (ENERGY, TIME, POWER, SAVING, NAME)
"""The orders of models: the smallest energy, time or power first, the largest saving first, or by name.

Energy, time and saving are those of a sample. The saving is the energy that the operators would save at their roof.
"""

FEWEST_WHOLES = 5
"""The fewest models from whose deviations the error of a sum is expected."""

EXPECTED_QUANTILE = 0.95
ENOUGH_WHOLES = 19
"""The fewest models of which one is expected beyond that quantile."""


@dataclass(frozen=True)
class Differences:
    """Magnitudes of some models' relative differences: the median, and the 95th percentile or the largest."""

    models: int
    median_ratio: float
    high_ratio: float


@dataclass(frozen=True)
class SumErrors:
    """Deviations of sums of operators from measured wholes; ``is_assumed`` says that they are those of other ones."""

    time: Differences
    energy: Differences
    is_assumed: bool = False


ASSUMED_SUM_ERRORS: Mapping[bool, SumErrors] = MappingProxyType(
    {
        True: SumErrors(Differences(13, 0.023, 0.052), Differences(13, 0.025, 0.063), is_assumed=True),
        False: SumErrors(Differences(88, 0.008, 0.092), Differences(88, 0.022, 0.049), is_assumed=True),
    }
)
"""The deviations where fewer than ``FEWEST_WHOLES`` are known, by whether sums have a cache correction: the largest of
any device and precision in the shipped database (2026-11-28: bf16), without correction the larger ones of 88 models of
an H200 in graphs and of six run eagerly."""


def sum_errors(models: Iterable[ModelResult]) -> Mapping[bool, SumErrors]:
    """Return the deviations of complete sums from their wholes, by whether sums have a cache correction.

    They are assumed if fewer than ``FEWEST_WHOLES`` are known. Flagged wholes and sums with flagged parts are left out.
    The models are of one device, in one execution.
    """
    sound = [one for one in models if Doubt.FLAGGED not in one.doubts]
    found = {}
    for is_corrected, assumed in ASSUMED_SUM_ERRORS.items():
        ratios = [one.corrected_ratios for one in sound if (one.correction is not None) == is_corrected]
        time, has_time = _deviations((ratio for ratio, _ in ratios), assumed.time)
        energy, has_energy = _deviations((ratio for _, ratio in ratios), assumed.energy)
        found[is_corrected] = SumErrors(time, energy, is_assumed=not (has_time and has_energy))
    return found


def _deviations(ratios: Iterable[float | None], assumed: Differences) -> tuple[Differences, bool]:
    """Return deviations of ratios from 1, and whether they are their own: assumed ones, if too few are known."""
    found = [abs(ratio - 1) for ratio in ratios if ratio is not None]
    if len(found) < FEWEST_WHOLES:
        return assumed, False
    # Of few values the next larger one, so that the error is not too small.
    median, high = map(float, np.quantile(found, [0.5, EXPECTED_QUANTILE], method="higher"))
    # Too few for a high quantile do not lower the assumed one.
    high = high if len(found) >= ENOUGH_WHOLES else max(high, assumed.high_ratio)
    return Differences(len(found), median, high), True


def completed(
    models: Iterable[ModelResult], known: Callable[[], tuple[Collection[OperatorCount], Measurements]]
) -> Iterator[ModelResult]:
    """Yield the figures with the predicted cost of missing operators, unchanged if it is not needed or unknown.

    It is unknown if less than ``MOSTLY_KNOWN_RATIO`` of the model's bytes or FLOPs is measured. ``known`` returns the
    counts of the operators that have rows, and the rows; it is called only if they are needed.
    """
    predictors: dict[tuple[str, EnergyBasis], CostModel | None] = {}
    for model in models:
        missing_ratio = model.missing_ratio
        is_mostly_known = missing_ratio is not None and missing_ratio <= 1 - MOSTLY_KNOWN_RATIO
        if model.whole is not None or not model.cost.parts or model.is_complete or not is_mostly_known:
            yield model
            continue
        place = model.conditions.key, model.cost.basis
        if place not in predictors:
            predictors[place] = predictor_of(*known(), model.conditions, model.cost.basis)
        predictor = predictors[place]
        yield replace(model, predicted=None if predictor is None else predicted_piece(model.cost.missing, predictor))


# Rows of a ranking


WHOLE, SUM = SOURCES = ("whole", "sum")
"""The sources of a cost: the measured whole model, or the sum of its operators."""

MISSING_OPERATORS = "operators have no row"


@dataclass(frozen=True)
class RankingRow(Columns):
    """The cost of one run of a model, and of one sample: an image, a clip, or a pair of frames.

    If the whole model is measured, the cost is the whole's. Otherwise it is the corrected sum of its operators with
    predicted costs of operators without a row. The sum has all measured operators, whitelisted or not.
    """

    name: Annotated[str, MODEL]
    batch_size: Annotated[int | None, Column("samples of one run; empty if unknown", COUNT_FROM_1)]
    unit: Annotated[
        Unit | None, Column("unit of the figures for a sample, which is one unless this names another", one_of(*Unit))
    ]
    input_size: Annotated[str, Column("size of the input, batch first")]
    source: Annotated[str, Column("the measured whole model, or the sum of its operators", one_of(*SOURCES))]
    time_s: Annotated[float | None, Column("time of one run")]
    time_standard_error_s: Annotated[
        float | None, Column("standard error of the time; of a corrected sum with that of the method")
    ]
    energy_j: Annotated[float | None, Column("energy of one run")]
    energy_standard_error_j: Annotated[
        float | None, Column("standard error of the energy; of a corrected sum with that of the method")
    ]
    power_w: Annotated[float | None, Column("mean power: energy / time")]
    time_per_sample_s: Annotated[float | None, Column("time / batch size")]
    energy_per_sample_j: Annotated[float | None, Column("energy / batch size")]
    samples_per_second: Annotated[float | None, Column("batch size / time", unit="1/s")]
    samples_per_joule: Annotated[float | None, Column("batch size / energy", unit="1/J")]
    forward_time_s: Annotated[float | None, Column("time of a training step's forward; empty of an inference pass")]
    forward_energy_j: Annotated[float | None, Column("energy of a training step's forward")]
    backward_time_s: Annotated[float | None, Column("time of a training step's backward")]
    backward_energy_j: Annotated[float | None, Column("energy of a training step's backward")]
    optimizer_time_s: Annotated[float | None, Column("time of a training step's optimizer")]
    optimizer_energy_j: Annotated[float | None, Column("energy of a training step's optimizer")]
    idle_energy_ratio: Annotated[
        float | None,
        Column("idle power of the whole's board x time / energy; empty if no qualification has the idle power"),
    ]
    reference_temperature_c: Annotated[float | None, Column("temperature of the energy; empty: as measured")]
    sum_reference_temperature_c: Annotated[
        float | None, Column("temperature of the energies of operators; empty: as measured")
    ]
    is_flagged: Annotated[bool, Column("whether flags cast doubt on the whole or on the sum")]
    is_whole_flagged: Annotated[bool, Column("whether the whole model's measurement is flagged")]
    is_sum_flagged: Annotated[bool, Column("whether flagged operators have 5 % or more of the summed time")]
    is_missing: Annotated[
        bool, Column("whether operators with 0.1 % or more of the model's bytes or FLOPs are not in the sum")
    ]
    is_unexplained: Annotated[
        bool, Column("whether the corrected sum deviates by 25 % or more from the whole, in time or energy")
    ]
    is_above_power_limit: Annotated[
        bool, Column("whether the cost is a sum that draws more than the power limit, so that a run takes longer")
    ]
    expected_time_error_ratio: Annotated[
        float | None, Column("error of the corrected sum: 95 % of the models' sums deviate less from the whole in time")
    ]
    expected_energy_error_ratio: Annotated[
        float | None, Column("error of the corrected sum: 95 % of the models' sums deviate less in energy")
    ]
    is_expected_error_assumed: Annotated[
        bool | None, Column("whether expected errors are those of other sums, because fewer than five wholes are known")
    ]
    sum_time_s: Annotated[float | None, Column("time of the measured operators, without correction")]
    sum_energy_j: Annotated[float | None, Column("energy of the measured operators, without correction")]
    predicted_time_s: Annotated[
        float | None, Column("predicted time of operators without a row, a part of the time of a sum")
    ]
    predicted_energy_j: Annotated[
        float | None, Column("predicted energy of operators without a row, a part of the energy of a sum")
    ]
    flop_ratio: Annotated[float | None, Column("share of the model's FLOPs in the sum")]
    memory_bytes_ratio: Annotated[float | None, Column("share of the model's bytes in the sum")]
    flop_missing_reason: Annotated[str | None, Column("reason why the model's FLOPs are unknown")]
    corrected_time_ratio: Annotated[float | None, Column("time of the complete corrected sum / of the whole model")]
    corrected_energy_ratio: Annotated[float | None, Column("energy of the complete corrected sum / of the whole model")]
    roof_time_ratio: Annotated[
        float | None, Column("time of the sum at its roof / of the sum; empty if under 95 % of bytes are summed")
    ]
    roof_energy_ratio: Annotated[
        float | None, Column("energy of the sum at its roof / of the sum; empty if under 95 % of bytes are summed")
    ]
    saving_time_per_sample_s: Annotated[float | None, Column("time that a sample would save at the roof")]
    saving_energy_per_sample_j: Annotated[float | None, Column("energy that a sample would save at the roof")]
    energy_missing_reason: Annotated[str | None, Column("reason why an energy is empty")]
    measured_at: Annotated[str, Column("end of the newest measurement that the cost rests on")]
    device_uuid: Annotated[str | None, DEVICE_UUID]
    library: Annotated[
        str | None, Column("library that the model comes from, with the version that the cost is of; empty if unknown")
    ]
    conditions: Annotated[Conditions, Column("conditions of the cost")]


def _of_phases(model: ModelResult) -> dict[str, float | None]:
    phases: Sequence[ModelResult | None] = model.phases or [None] * len(PARTS)
    found: dict[str, float | None] = {}
    for part, one in zip(PARTS, phases, strict=True):
        found[f"{part}_time_s"] = None if one is None else value_of(one.time_s)
        found[f"{part}_energy_j"] = None if one is None else value_of(one.energy_j)
    return found


def ranking_row(
    model: ModelResult, errors: SumErrors | None, roofline: Roofline | None, idle_power_w: float | None = None
) -> RankingRow:
    """Return the row of a model; its sum has a share of the roof if it has nearly all of the model.

    ``idle_power_w`` is that of the whole's board, None if unknown.
    """
    whole, cost, energy_j = model.whole, model.cost, model.energy_j
    units = None if model.units is None else model.units.number
    sum_s, sum_j = value_of(cost.time_s), value_of(cost.energy_j)
    predicted = model.predicted
    predicted_s, predicted_j = (None, None) if predicted is None else (predicted.time_s, predicted.energy_j)
    corrected_time_ratio, corrected_energy_ratio = model.corrected_ratios
    roof_time_ratio, roof_energy_ratio = roof_share(model.works if model.is_representative else (), roofline)
    energy_missing_reason = None
    if energy_j is None and whole is not None:
        energy_missing_reason = whole.measurement.energy_missing_reason
    elif energy_j is None:
        energy_missing_reason = cost.energy_missing_reason or MISSING_OPERATORS

    def expected_error(cost: Estimate | None, predicted: float | None, deviations: Differences | None) -> float | None:
        """Return the error that 95 % of sums do not exceed, with the error of the predicted part of the cost."""
        if deviations is None or Doubt.ABOVE_LIMIT in model.doubts:
            return None
        predicted_ratio = 0.0 if cost is None or predicted is None else predicted / cost.value
        return math.hypot(deviations.high_ratio, PREDICTED_ERROR_RATIOS[model.conditions.execution] * predicted_ratio)

    def saving(cost: float | None, roof_ratio: float | None) -> float | None:
        return None if cost is None or roof_ratio is None else cost * (1 - roof_ratio)

    return RankingRow(
        name=model.name,
        batch_size=model.batch_size,
        unit=None if model.units is None else model.units.unit,
        input_size="x".join(map(str, model.input_size)),
        source=SUM if whole is None else WHOLE,
        **estimate_fields("time", "s", model.time_s),
        **estimate_fields("energy", "j", energy_j),
        power_w=model.power_w,
        time_per_sample_s=ratio_if_known(value_of(model.time_s), units),
        energy_per_sample_j=ratio_if_known(value_of(energy_j), units),
        samples_per_second=ratio_if_known(units, value_of(model.time_s)),
        samples_per_joule=ratio_if_known(units, value_of(energy_j)),
        **_of_phases(model),
        idle_energy_ratio=ratio_if_known(idle_power_w, model.power_w),
        reference_temperature_c=model.basis.temperature_c,
        sum_reference_temperature_c=cost.basis.temperature_c,
        is_flagged=Doubt.FLAGGED in model.doubts,
        is_whole_flagged=model.is_whole_flagged,
        is_sum_flagged=model.is_sum_flagged,
        is_missing=Doubt.MISSING in model.doubts,
        is_unexplained=Doubt.UNEXPLAINED in model.doubts,
        is_above_power_limit=Doubt.ABOVE_LIMIT in model.doubts,
        expected_time_error_ratio=expected_error(model.time_s, predicted_s, None if errors is None else errors.time),
        expected_energy_error_ratio=expected_error(
            energy_j, predicted_j, None if errors is None or energy_j is None else errors.energy
        ),
        is_expected_error_assumed=None if errors is None else errors.is_assumed,
        sum_time_s=sum_s,
        sum_energy_j=sum_j,
        predicted_time_s=predicted_s,
        predicted_energy_j=predicted_j,
        flop_ratio=cost.flop_ratio,
        memory_bytes_ratio=cost.memory_bytes_ratio,
        flop_missing_reason=cost.flop_missing_reason,
        corrected_time_ratio=corrected_time_ratio,
        corrected_energy_ratio=corrected_energy_ratio,
        roof_time_ratio=roof_time_ratio,
        roof_energy_ratio=roof_energy_ratio,
        saving_time_per_sample_s=ratio_if_known(saving(sum_s, roof_time_ratio), units),
        saving_energy_per_sample_j=ratio_if_known(saving(sum_j, roof_energy_ratio), units),
        energy_missing_reason=energy_missing_reason,
        measured_at=model.measured_at,
        device_uuid=model.board,
        library=model.counted_with if whole is None else model.measured_with,
        conditions=model.conditions,
    )


def ranked(rows: Iterable[RankingRow], by: str) -> list[RankingRow]:
    """Return the rows of one device in one of the orders ``SORTS``; those without the figure last, by time."""

    def key(row: RankingRow) -> tuple[bool, float, str]:
        figures = {
            ENERGY: row.energy_per_sample_j,
            TIME: row.time_per_sample_s,
            POWER: row.power_w,
            # The largest first.
            SAVING: None if row.saving_energy_per_sample_j is None else -row.saving_energy_per_sample_j,
        }
        figure = figures.get(by, 0.0)
        return figure is None, (row.time_per_sample_s if figure is None else figure) or 0.0, row.name

    return sorted(rows, key=key)
