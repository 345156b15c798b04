"""Rows of a ranking of models: the columns, and the row of a model's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from opcost.columns import COUNT_FROM_1, Column, Columns, one_of
from opcost.comparing.ranking import ENERGY, POWER, SAVING, TIME, Doubt, ModelFigures, SumDeviations, SumErrors
from opcost.comparing.roofline import Roofline
from opcost.comparing.tuple_costs import roof_share
from opcost.estimates import Estimate, standard_error_of, value_of
from opcost.measuring.conditions import DEVICE_UUID, Conditions
from opcost.operators.cases import MODEL
from opcost.prediction.rates import PREDICTED_ERROR_RATIOS

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
    conditions: Annotated[Conditions, Column("conditions of the cost")]


@dataclass(frozen=True)
class RankingSource:
    """The data of a row: a model's figures, the errors of its sum, and the roofline, if known."""

    model: ModelFigures
    errors: SumErrors | None
    roofline: Roofline | None


def ranking_row(source: RankingSource) -> RankingRow:
    """Return the row of a model. Its sum has a share of the roof if it has nearly all of the model."""
    model, errors = source.model, source.errors
    whole, cost, samples, energy_j = model.whole, model.cost, model.samples, model.energy_j
    sum_s, sum_j = (None, None) if cost is None else (value_of(cost.time_s), value_of(cost.energy_j))
    predicted = model.predicted
    predicted_s, predicted_j = (None, None) if predicted is None else (predicted.time_s, predicted.energy_j)
    roof_time_ratio, roof_energy_ratio = roof_share(model.works if model.is_representative else (), source.roofline)
    energy_missing_reason = None
    if energy_j is None and whole is not None:
        energy_missing_reason = whole.measurement.energy_missing_reason
    elif energy_j is None and cost is not None:
        energy_missing_reason = cost.energy_missing_reason or MISSING_OPERATORS

    def expected_error(
        cost: Estimate | None, predicted: float | None, deviations: SumDeviations | None
    ) -> float | None:
        """Return the error that 95 % of sums do not exceed, with the error of the predicted part of the cost."""
        if deviations is None or Doubt.ABOVE_LIMIT in model.doubts:
            return None
        predicted_ratio = 0.0 if cost is None or predicted is None else predicted / cost.value
        return math.hypot(deviations.high_ratio, PREDICTED_ERROR_RATIOS[model.conditions.execution] * predicted_ratio)

    def per_sample(cost: float | None) -> float | None:
        return None if cost is None or samples is None else cost / samples

    def samples_per(cost: float | None) -> float | None:
        return None if cost is None or samples is None else samples / cost

    def saving_per_sample(cost: float | None, roof_ratio: float | None) -> float | None:
        return None if cost is None or roof_ratio is None else per_sample(cost * (1 - roof_ratio))

    return RankingRow(
        name=model.name,
        batch_size=model.samples,
        input_size="x".join(map(str, model.input_size)),
        source=SUM if whole is None else WHOLE,
        time_s=value_of(model.time_s),
        time_standard_error_s=standard_error_of(model.time_s),
        energy_j=value_of(energy_j),
        energy_standard_error_j=standard_error_of(energy_j),
        power_w=model.power_w,
        time_per_sample_s=per_sample(value_of(model.time_s)),
        energy_per_sample_j=per_sample(value_of(energy_j)),
        samples_per_second=samples_per(value_of(model.time_s)),
        samples_per_joule=samples_per(value_of(energy_j)),
        reference_temperature_c=model.basis.temperature_c,
        sum_reference_temperature_c=None if cost is None else cost.basis.temperature_c,
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
        flop_ratio=None if cost is None else cost.flop_ratio,
        memory_bytes_ratio=None if cost is None else cost.memory_bytes_ratio,
        flop_missing_reason=None if cost is None else cost.flop_missing_reason,
        corrected_time_ratio=model.corrected_time_ratio,
        corrected_energy_ratio=model.corrected_energy_ratio,
        roof_time_ratio=roof_time_ratio,
        roof_energy_ratio=roof_energy_ratio,
        saving_time_per_sample_s=saving_per_sample(sum_s, roof_time_ratio),
        saving_energy_per_sample_j=saving_per_sample(sum_j, roof_energy_ratio),
        energy_missing_reason=energy_missing_reason,
        measured_at=model.measured_at,
        device_uuid=None if whole is None else whole.circumstances.device_uuid,
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
