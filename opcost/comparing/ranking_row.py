"""Rows of a ranking of models: each column with the function that gives its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, TypeVar

from opcost.columns import COUNT_FROM_1, Column, Columns, one_of
from opcost.comparing.ranking import ENERGY, POWER, SAVING, TIME, Deviations, Doubt, ModelFigures, SumErrors
from opcost.comparing.roofline import Roofline
from opcost.comparing.tuple_costs import RoofShare, roof_share
from opcost.estimates import Estimate, standard_error_of, value_of
from opcost.measuring.conditions import DEVICE_UUID, Conditions
from opcost.operators.cases import MODEL
from opcost.prediction.rates import PREDICTED_ERROR_RATIOS

Known = TypeVar("Known")
Value = TypeVar("Value")

GETTER = "getter"
WHOLE, SUM = SOURCES = ("whole", "sum")
"""The sources of a cost: the measured whole model, or the sum of its operators."""

MISSING_OPERATORS = "operators have no row"


@dataclass(frozen=True)
class RankingSource:
    """The data of a row: a model's figures, the errors of its sum, and the roofline, if known."""

    model: ModelFigures
    errors: SumErrors | None
    roofline: Roofline | None

    @cached_property
    def roof_share(self) -> RoofShare:
        """The share of the roof that the sum reaches, if it has nearly all of the model."""
        return roof_share(self.model.works if self.model.is_representative else (), self.roofline)

    @property
    def expected_time_error_ratio(self) -> float | None:
        deviations = _if_known(self.errors, lambda errors: errors.time)
        return self._expected_error(deviations, self.model.time_s, self.predicted_time_s)

    @property
    def expected_energy_error_ratio(self) -> float | None:
        if self.model.energy_j is None:
            return None
        deviations = _if_known(self.errors, lambda errors: errors.energy)
        return self._expected_error(deviations, self.model.energy_j, self.predicted_energy_j)

    @property
    def is_expected_error_assumed(self) -> bool | None:
        return _if_known(self.errors, lambda errors: errors.is_assumed)

    def _expected_error(
        self, deviations: Deviations | None, cost: Estimate | None, predicted: float | None
    ) -> float | None:
        """Return the error that 95 % of sums do not exceed, that of the predicted part of the cost included."""
        if deviations is None or Doubt.ABOVE_LIMIT in self.model.doubts:
            return None
        predicted_ratio = 0.0 if cost is None or predicted is None else predicted / cost.value
        return math.hypot(
            deviations.high_ratio, PREDICTED_ERROR_RATIOS[self.model.conditions.execution] * predicted_ratio
        )

    @property
    def predicted_time_s(self) -> float | None:
        return _if_known(self.model.predicted, lambda predicted: predicted.time_s)

    @property
    def predicted_energy_j(self) -> float | None:
        return _if_known(self.model.predicted, lambda predicted: predicted.energy_j)

    @property
    def sum_time_s(self) -> float | None:
        return _if_known(self.model.cost, lambda cost: value_of(cost.time_s))

    @property
    def sum_energy_j(self) -> float | None:
        return _if_known(self.model.cost, lambda cost: value_of(cost.energy_j))

    def saving_per_sample(self, cost: float | None, roof_ratio: float | None) -> float | None:
        return None if cost is None or roof_ratio is None else self.per_sample(cost * (1 - roof_ratio))

    def per_sample(self, cost: float | None) -> float | None:
        """Return the part of a cost that one sample has, None if either is unknown."""
        return None if cost is None or self.model.samples is None else cost / self.model.samples

    def samples_per(self, cost: float | None) -> float | None:
        return None if cost is None or self.model.samples is None else self.model.samples / cost

    @property
    def energy_missing_reason(self) -> str | None:
        if self.model.energy_j is not None:
            return None
        if self.model.whole is not None:
            return self.model.whole.measurement.energy_missing_reason
        return _if_known(self.model.cost, lambda cost: cost.energy_missing_reason or MISSING_OPERATORS)


def _if_known(known: Known | None, get: Callable[[Known], Value | None]) -> Value | None:
    return None if known is None else get(known)


def _of(get: Callable[[RankingSource], Value]) -> Value:
    declared: Value = field(metadata={GETTER: get})
    return declared


@dataclass(frozen=True)
class RankingRow(Columns):
    """The cost of one run of a model, and of one sample: an image, a clip, or a pair of frames.

    If the whole model is measured, the cost is the whole's. Otherwise it is the corrected sum of its operators with
    predicted costs of operators without a row. The sum has all measured operators, whitelisted or
    not.
    """

    name: Annotated[str, MODEL] = _of(lambda one: one.model.name)
    batch_size: Annotated[int | None, Column("samples of one run; empty if unknown", COUNT_FROM_1)] = _of(
        lambda one: one.model.samples
    )
    input_size: Annotated[str, Column("size of the input, batch first")] = _of(
        lambda one: "x".join(map(str, one.model.input_size))
    )
    source: Annotated[str, Column("the measured whole model, or the sum of its operators", one_of(*SOURCES))] = _of(
        lambda one: SUM if one.model.whole is None else WHOLE
    )
    time_s: Annotated[float | None, Column("time of one run")] = _of(lambda one: value_of(one.model.time_s))
    time_standard_error_s: Annotated[
        float | None, Column("standard error of the time; of a corrected sum with that of the method")
    ] = _of(lambda one: standard_error_of(one.model.time_s))
    energy_j: Annotated[float | None, Column("energy of one run")] = _of(lambda one: value_of(one.model.energy_j))
    energy_standard_error_j: Annotated[
        float | None, Column("standard error of the energy; of a corrected sum with that of the method")
    ] = _of(lambda one: standard_error_of(one.model.energy_j))
    power_w: Annotated[float | None, Column("mean power: energy / time")] = _of(lambda one: one.model.power_w)
    time_per_sample_s: Annotated[float | None, Column("time / batch size")] = _of(
        lambda one: one.per_sample(value_of(one.model.time_s))
    )
    energy_per_sample_j: Annotated[float | None, Column("energy / batch size")] = _of(
        lambda one: one.per_sample(value_of(one.model.energy_j))
    )
    samples_per_second: Annotated[float | None, Column("batch size / time", unit="1/s")] = _of(
        lambda one: one.samples_per(value_of(one.model.time_s))
    )
    samples_per_joule: Annotated[float | None, Column("batch size / energy", unit="1/J")] = _of(
        lambda one: one.samples_per(value_of(one.model.energy_j))
    )
    reference_temperature_c: Annotated[float | None, Column("temperature of the energy; empty: as measured")] = _of(
        lambda one: one.model.basis.temperature_c
    )
    sum_reference_temperature_c: Annotated[
        float | None, Column("temperature of the energies of operators; empty: as measured")
    ] = _of(lambda one: _if_known(one.model.cost, lambda cost: cost.basis.temperature_c))
    is_flagged: Annotated[bool, Column("whether flags cast doubt on the whole or on the sum")] = _of(
        lambda one: Doubt.FLAGGED in one.model.doubts
    )
    is_whole_flagged: Annotated[bool, Column("whether the whole model's measurement is flagged")] = _of(
        lambda one: one.model.is_whole_flagged
    )
    is_sum_flagged: Annotated[bool, Column("whether flagged operators have 5 % or more of the summed time")] = _of(
        lambda one: one.model.is_sum_flagged
    )
    is_missing: Annotated[
        bool, Column("whether operators with 0.1 % or more of the model's bytes or FLOPs are not in the sum")
    ] = _of(lambda one: Doubt.MISSING in one.model.doubts)
    is_unexplained: Annotated[
        bool, Column("whether the corrected sum deviates by 25 % or more from the whole, in time or energy")
    ] = _of(lambda one: Doubt.UNEXPLAINED in one.model.doubts)
    is_above_power_limit: Annotated[
        bool, Column("whether the cost is a sum that draws more than the power limit, so that a run takes longer")
    ] = _of(lambda one: Doubt.ABOVE_LIMIT in one.model.doubts)
    expected_time_error_ratio: Annotated[
        float | None, Column("error of the corrected sum: 95 % of the models' sums deviate less from the whole in time")
    ] = _of(lambda one: one.expected_time_error_ratio)
    expected_energy_error_ratio: Annotated[
        float | None, Column("error of the corrected sum: 95 % of the models' sums deviate less in energy")
    ] = _of(lambda one: one.expected_energy_error_ratio)
    is_expected_error_assumed: Annotated[
        bool | None, Column("whether expected errors are those of other sums, because fewer than five wholes are known")
    ] = _of(lambda one: one.is_expected_error_assumed)
    sum_time_s: Annotated[float | None, Column("time of the measured operators, without correction")] = _of(
        lambda one: one.sum_time_s
    )
    sum_energy_j: Annotated[float | None, Column("energy of the measured operators, without correction")] = _of(
        lambda one: one.sum_energy_j
    )
    predicted_time_s: Annotated[
        float | None, Column("predicted time of operators without a row, a part of the time of a sum")
    ] = _of(lambda one: one.predicted_time_s)
    predicted_energy_j: Annotated[
        float | None, Column("predicted energy of operators without a row, a part of the energy of a sum")
    ] = _of(lambda one: one.predicted_energy_j)
    flop_ratio: Annotated[float | None, Column("share of the model's FLOPs in the sum")] = _of(
        lambda one: _if_known(one.model.cost, lambda cost: cost.flop_ratio)
    )
    memory_bytes_ratio: Annotated[float | None, Column("share of the model's bytes in the sum")] = _of(
        lambda one: _if_known(one.model.cost, lambda cost: cost.memory_bytes_ratio)
    )
    flop_missing_reason: Annotated[str | None, Column("reason why the model's FLOPs are unknown")] = _of(
        lambda one: _if_known(one.model.cost, lambda cost: cost.flop_missing_reason)
    )
    corrected_time_ratio: Annotated[float | None, Column("time of the complete corrected sum / of the whole model")] = (
        _of(lambda one: one.model.corrected_time_ratio)
    )
    corrected_energy_ratio: Annotated[
        float | None, Column("energy of the complete corrected sum / of the whole model")
    ] = _of(lambda one: one.model.corrected_energy_ratio)
    roof_time_ratio: Annotated[
        float | None, Column("time of the sum at its roof / of the sum; empty if under 95 % of bytes are summed")
    ] = _of(lambda one: one.roof_share.time_ratio)
    roof_energy_ratio: Annotated[
        float | None, Column("energy of the sum at its roof / of the sum; empty if under 95 % of bytes are summed")
    ] = _of(lambda one: one.roof_share.energy_ratio)
    saving_time_per_sample_s: Annotated[float | None, Column("time that a sample would save at the roof")] = _of(
        lambda one: one.saving_per_sample(one.sum_time_s, one.roof_share.time_ratio)
    )
    saving_energy_per_sample_j: Annotated[float | None, Column("energy that a sample would save at the roof")] = _of(
        lambda one: one.saving_per_sample(one.sum_energy_j, one.roof_share.energy_ratio)
    )
    energy_missing_reason: Annotated[str | None, Column("reason why an energy is empty")] = _of(
        lambda one: one.energy_missing_reason
    )
    measured_at: Annotated[str, Column("end of the newest measurement that the cost rests on")] = _of(
        lambda one: one.model.measured_at
    )
    device_uuid: Annotated[str | None, DEVICE_UUID] = _of(
        lambda one: _if_known(one.model.whole, lambda whole: whole.circumstances.device_uuid)
    )
    conditions: Annotated[Conditions, Column("conditions of the cost")] = _of(lambda one: one.model.conditions)


def ranking_row(source: RankingSource) -> RankingRow:
    """Return the row of a model's figures."""
    values: dict[str, Any] = {each.name: each.metadata[GETTER](source) for each in fields(RankingRow)}
    return RankingRow(**values)


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
