"""Models whose sums are held against their wholes, as figures show them: of a paper and of the report."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.comparison import KindCost
from opcost.comparing.row import ComparisonRow
from opcost.estimates import Estimate, estimate_of

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Those of Okabe and Ito, which colour-blind eyes can tell apart."""

HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo")
"""One for each colour: they tell them apart in black and white."""

QUANTITIES = (("time", "ms"), ("energy", "mJ"))
KINDS_SHOWN = len(COLOURS) - 1
OTHERS = "others"


SIZE = re.compile(r"_\d+(x\d+){2,}\b")
"""In a config's name: ``_32x3x224x224``, and not ``_32x4d`` of a ResNeXt."""


@dataclass(frozen=True)
class ComparedModel:
    """One model: its summed operators beside the measured whole, and what each kind of operator costs in the sum.

    A correction is what the summed calls take longer in the model than alone, None where that is not known.
    """

    name: str
    time_s: Estimate | None
    full_time_s: Estimate
    energy_j: Estimate | None
    full_energy_j: Estimate | None
    kinds: tuple[KindCost, ...]
    correction_time_s: Estimate | None = None
    correction_energy_j: Estimate | None = None

    def pair(self, quantity: str) -> tuple[Estimate, Estimate] | None:
        """Return sum and whole of ``time`` or ``energy``, None where one is not known."""
        summed, whole = (self.time_s, self.full_time_s) if quantity == "time" else (self.energy_j, self.full_energy_j)
        return None if summed is None or whole is None else (summed, whole)

    def ratio(self, quantity: str) -> Estimate | None:
        """Return sum over whole of ``time`` or ``energy``, None where one is not known."""
        pair = self.pair(quantity)
        return None if pair is None else pair[0].divided_by(pair[1])

    def corrected_ratio(self, quantity: str) -> Estimate | None:
        """Return sum and correction over whole of ``time`` or ``energy``, None where one is not known."""
        ratio, pair = self.ratio(quantity), self.pair(quantity)
        correction = self.correction_time_s if quantity == "time" else self.correction_energy_j
        if ratio is None or pair is None or correction is None:
            return None
        more = correction.times(1 / pair[1].value)
        return Estimate(ratio.value + more.value, math.hypot(ratio.standard_error, more.standard_error))

    def share(self, quantity: str, kind: str, shown: Sequence[str]) -> float:
        """Return what a kind of operator is of the whole, 0 where that is not known.

        Args:
            quantity: ``time`` or ``energy``.
            kind: an operator's name, or ``OTHERS`` for all that are not shown.
            shown: the kinds that have a place of their own.
        """
        pair = self.pair(quantity)
        if pair is None:
            return 0.0
        chosen = [one for one in self.kinds if one.operator == kind or (kind == OTHERS and one.operator not in shown)]
        return sum(one.time_s if quantity == "time" else one.energy_j or 0.0 for one in chosen) / pair[1].value


def without_sizes(models: Sequence[ComparedModel]) -> list[ComparedModel]:
    """Return the models without the input sizes in their names, where one model has not several of them."""
    found = [_name_and_size(model.name) for model in models]
    sizes = Counter(name for name, _ in set(found))
    return [
        model if sizes[name] > 1 else replace(model, name=SIZE.sub("", model.name))
        for model, (name, _) in zip(models, found, strict=True)
    ]


def _name_and_size(name: str) -> tuple[str, str]:
    """Return what is before the size, and the size; conditions behind it tell no model from another."""
    found = SIZE.search(name)
    return (name, "") if found is None else (name[: found.start()], found[0])


def largest_kinds(models: Sequence[ComparedModel]) -> list[str]:
    """Return the kinds that take most time, as a mean share of a model."""
    shares: dict[str, float] = {}
    for model in models:
        for kind in model.kinds:
            shares[kind.operator] = shares.get(kind.operator, 0.0) + kind.time_s / model.full_time_s.value
    return sorted(shares, key=lambda operator: (-shares[operator], operator))[:KINDS_SHOWN]


def compared_model(label: str, row: ComparisonRow, kinds: tuple[KindCost, ...]) -> ComparedModel:
    """Return what figures show of a comparison."""
    return ComparedModel(
        name=label,
        time_s=estimate_of(row.time_s, row.time_standard_error_s),
        full_time_s=Estimate(row.full_time_s, row.full_time_standard_error_s),
        energy_j=estimate_of(row.energy_j, row.energy_standard_error_j),
        full_energy_j=estimate_of(row.full_energy_j, row.full_energy_standard_error_j),
        kinds=kinds,
        correction_time_s=estimate_of(row.correction_time_s, row.correction_time_standard_error_s),
        correction_energy_j=estimate_of(row.correction_energy_j, row.correction_energy_standard_error_j),
    )
