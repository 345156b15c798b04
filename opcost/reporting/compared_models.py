"""Compared models as figures show them, in the report and in files for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.comparison import ComparisonRow, KindCost
from opcost.comparing.gap import with_method_error
from opcost.estimates import Estimate, estimate_of, sum_of_independent
from opcost.operators.tuples import SIZE_IN_NAME

QUANTITIES = (("time", "ms"), ("energy", "mJ"))
KINDS_SHOWN = 7
"""One for each fill of ``svg.patterns``, besides that of the others."""

OTHERS = "others"


@dataclass(frozen=True)
class ComparedModel:
    """One model: the sum of its operators, the measured whole, and the cost of each kind of operator in the sum.

    The ``correction_`` fields are all that corrects the sum, None if the cache correction is unknown. ``energy_ratio``
    is the comparison's sum over whole, whose error includes that of normalising both to one temperature; None for the
    plain quotient.
    """

    name: str
    time_s: Estimate | None
    full_time_s: Estimate
    energy_j: Estimate | None
    full_energy_j: Estimate | None
    kinds: tuple[KindCost, ...]
    correction_time_s: Estimate | None = None
    correction_energy_j: Estimate | None = None
    energy_ratio: Estimate | None = None

    def pair(self, quantity: str) -> tuple[Estimate, Estimate] | None:
        """Return sum and whole of ``time`` or ``energy``, None if one is unknown."""
        summed, whole = (self.time_s, self.full_time_s) if quantity == "time" else (self.energy_j, self.full_energy_j)
        return None if summed is None or whole is None else (summed, whole)

    def ratio(self, quantity: str) -> Estimate | None:
        """Return sum over whole of ``time`` or ``energy``, None if one is unknown."""
        pair = self.pair(quantity)
        if quantity == "energy" and self.energy_ratio is not None:
            return self.energy_ratio
        return None if pair is None else pair[0].divided_by(pair[1])

    def corrected_ratio(self, quantity: str) -> Estimate | None:
        """Return the corrected sum over the whole of ``time`` or ``energy``, None if one is unknown.

        Its error includes that of the method (``METHOD_ERROR_RATIOS``), unlike those of the rows of a comparison.
        """
        ratio, pair = self.ratio(quantity), self.pair(quantity)
        correction = self.correction_time_s if quantity == "time" else self.correction_energy_j
        if ratio is None or pair is None or correction is None:
            return None
        more = correction.times(1 / pair[1].value)
        return with_method_error(sum_of_independent([ratio, more]), quantity)

    def share(self, quantity: str, kind: str, shown: Sequence[str]) -> float:
        """Return the share of the whole that a kind of operator has, 0 if it is unknown.

        ``kind`` may be ``OTHERS`` for all kinds that are not ``shown`` separately.
        """
        pair = self.pair(quantity)
        if pair is None:
            return 0.0
        chosen = [one for one in self.kinds if one.operator == kind or (kind == OTHERS and one.operator not in shown)]
        return sum(one.time_s if quantity == "time" else one.energy_j or 0.0 for one in chosen) / pair[1].value


def without_sizes(models: Sequence[ComparedModel]) -> list[ComparedModel]:
    """Return the models without the input sizes in their names, except for models with several sizes.

    A name may be a label that begins with that of a config.
    """
    sizes: dict[str, set[str]] = {}
    names = []
    for model in models:
        size = SIZE_IN_NAME.search(model.name)
        name = model.name if size is None else model.name[: size.start()]
        sizes.setdefault(name, set()).add("" if size is None else size[0])
        names.append(name)
    return [
        model if len(sizes[name]) > 1 else replace(model, name=SIZE_IN_NAME.sub("", model.name))
        for name, model in zip(names, models, strict=True)
    ]


def largest_kinds(models: Sequence[ComparedModel]) -> list[str]:
    """Return the kinds of operators with the largest mean share of a model's time."""
    shares: dict[str, float] = {}
    for model in models:
        for kind in model.kinds:
            shares[kind.operator] = shares.get(kind.operator, 0.0) + kind.time_s / model.full_time_s.value
    return sorted(shares, key=lambda operator: (-shares[operator], operator))[:KINDS_SHOWN]


def compared_model(label: str, row: ComparisonRow, kinds: tuple[KindCost, ...]) -> ComparedModel:
    """Return a comparison as figures show it."""
    return ComparedModel(
        name=label,
        time_s=estimate_of(row.time_s, row.time_standard_error_s),
        full_time_s=Estimate(row.full_time_s, row.full_time_standard_error_s),
        energy_j=estimate_of(row.energy_j, row.energy_standard_error_j),
        full_energy_j=estimate_of(row.full_energy_j, row.full_energy_standard_error_j),
        kinds=kinds,
        correction_time_s=row.correction("time"),
        correction_energy_j=row.correction("energy"),
        energy_ratio=estimate_of(row.energy_ratio, row.energy_standard_error_ratio),
    )
