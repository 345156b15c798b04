"""Samples that predictors learn from: measured costs of operators, at a mean board."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from opcost.estimates import FloatArray
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, does_other_work, is_doubtful
from opcost.operators.cases import tuple_key
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import has_zeros_in_weights, parse_input_data
from opcost.prediction.features import ATTENTION, CONVOLUTION, Card, kind_of, raw_features
from opcost.summing.summation import EnergyBasis

BOARD_DEVIATION = 0.025
"""The standard deviation of the logarithm of energy between boards of one product, where fewer than
``ENOUGH_BOARDS`` boards are compared: that of nine H200 (2026-11-25, ``benchmarks/prediction.py``)."""

ENOUGH_BOARDS = 4
SHARED_CASES = 5
"""The fewest boards, and cases on a board and another, for a comparison of boards."""

LARGE_BYTES = 64e6
"""Calls that move more show the memory's rate, since no cache of a GPU holds so much."""

TOP_QUANTILE = 0.95

RELATED_FAMILIES = {"wide": "resnet", "resnext": "resnet"}
"""Families of models that consist of the same layers as another one."""


@dataclass(frozen=True)
class Boards:
    """The energies of boards: the logarithm of each one's over that of a mean board, and their deviation."""

    offsets: Mapping[str | None, float]
    deviation: float


@dataclass(frozen=True)
class Samples:
    """Measured costs of calls on a mean board.

    ``raw`` are the features of ``features.RAW``. ``shapes`` are the same for calls that differ in values only.
    ``families`` are those of the models that a call is of, none if it is of no model. Energies are NaN if unknown.
    """

    raw: FloatArray
    kinds: tuple[str, ...]
    shapes: tuple[str, ...]
    families: tuple[frozenset[str], ...]
    times_s: FloatArray
    energies_j: FloatArray
    boards: Boards

    def __len__(self) -> int:
        return len(self.kinds)

    def chosen(self, rows: Sequence[int] | FloatArray) -> Samples:
        """Return the samples at these places."""
        places = [int(row) for row in rows]
        return Samples(
            raw=self.raw[places],
            kinds=tuple(self.kinds[place] for place in places),
            shapes=tuple(self.shapes[place] for place in places),
            families=tuple(self.families[place] for place in places),
            times_s=self.times_s[places],
            energies_j=self.energies_j[places],
            boards=self.boards,
        )


def samples_of(
    cases: Mapping[str, Sequence[MeasurementRow]],
    counts: Mapping[str, OperatorCount],
    families: Mapping[str, frozenset[str]],
) -> Samples:
    """Return a sample for each case; repeats and boards give their median.

    Energies are at the reference temperature where that is known. ``counts``, and ``families`` of the models that an
    operator is of, are by the operator's key.
    """
    boards = boards_of(cases.values())
    found = [(counts[tuple_key(rows[0].key)], rows) for rows in cases.values()]
    kinds = tuple(kind_of(count) for count, _ in found)
    energies_j = []
    for _, rows in found:
        energies = [(_known_energy_j(row), boards.offsets.get(row.circumstances.device_uuid, 0.0)) for row in rows]
        of_boards = [energy_j * math.exp(-offset) for energy_j, offset in energies if energy_j is not None]
        energies_j.append(median(of_boards) if of_boards else math.nan)
    return Samples(
        raw=np.array([raw_features(count, parse_input_data(rows[0].input_data)) for count, rows in found], dtype=float),
        kinds=kinds,
        shapes=tuple(shape_of(kind, count.operator) for kind, (count, _) in zip(kinds, found, strict=True)),
        families=tuple(families.get(count.operator.key, frozenset()) for count, _ in found),
        times_s=np.array([median(row.measurement.time_s for row in rows) for _, rows in found]),
        energies_j=np.array(energies_j),
        boards=boards,
    )


def cases_of(
    rows: Iterable[MeasurementRow], counts: Mapping[str, OperatorCount], conditions: Conditions
) -> dict[str, list[MeasurementRow]]:
    """Return the rows of each case that was measured under these conditions, by their key.

    Flagged rows, rows of other work than was counted, rows with zeros in weights, which no feature shows, and operators
    that compute nothing are left out. ``counts`` are by the operators' keys.
    """
    cases: dict[str, list[MeasurementRow]] = {}
    for row in rows:
        count = counts.get(tuple_key(row.key))
        is_sound = not is_doubtful(row) and not does_other_work(row.measurement)
        is_sound = is_sound and not has_zeros_in_weights(row.input_data)
        if row.conditions == conditions and is_sound and count is not None and count.computes:
            cases.setdefault(row.key, []).append(row)
    return cases


def boards_of(cases: Iterable[Sequence[MeasurementRow]]) -> Boards:
    """Return the energies of boards, from the rows of each case that was measured on several."""
    differences: dict[str | None, list[float]] = {}
    for rows in cases:
        by_board: dict[str | None, list[float]] = {}
        for row in rows:
            energy_j = _known_energy_j(row)
            if energy_j is not None:
                by_board.setdefault(row.circumstances.device_uuid, []).append(math.log(energy_j))
        if len(by_board) > 1:
            middles = {board: median(values) for board, values in by_board.items()}
            centre = median(middles.values())
            for board, middle in middles.items():
                differences.setdefault(board, []).append(middle - centre)
    offsets = {board: median(values) for board, values in differences.items() if len(values) >= SHARED_CASES}
    is_known = len(offsets) >= ENOUGH_BOARDS
    deviation = float(np.std(list(offsets.values()), ddof=1)) if is_known else BOARD_DEVIATION
    return Boards(offsets, deviation)


def card_of(samples: Samples, multiprocessors: int) -> Card:
    """Return a card's rates: the highest of products, and nearly the highest of calls that move many bytes.

    Rates of products that no sample has are those of the others.
    """
    flop, memory_bytes = samples.raw[:, 0], samples.raw[:, 1]
    rates = flop / samples.times_s
    is_convolution = np.array([kind.startswith(CONVOLUTION) for kind in samples.kinds], dtype=bool)
    is_attention = np.array([kind == ATTENTION for kind in samples.kinds], dtype=bool)
    convolution, product = (
        float(np.max(rates[chosen], initial=0.0)) for chosen in (is_convolution, ~is_convolution & ~is_attention)
    )
    large = memory_bytes >= min(LARGE_BYTES, float(np.quantile(memory_bytes, TOP_QUANTILE)))
    byte_rate = float(np.quantile(memory_bytes[large] / samples.times_s[large], TOP_QUANTILE))
    highest = max(convolution, product) or byte_rate
    return Card(multiprocessors, convolution or highest, product or highest, byte_rate, float(samples.times_s.min()))


def family_of(model: OperatorTuple) -> str:
    """Return the family of a whole model: the first letters of its name, ``resnet`` for ``resnet50``."""
    found = re.match(r"[a-z]+", model.short_name.lower())
    name = model.short_name if found is None else found[0]
    return RELATED_FAMILIES.get(name, name)


def shape_of(kind: str, operator: OperatorTuple) -> str:
    """Return what calls of a kind have in common that do the same work: parameters and inputs."""
    parameters = [f"{name}={value}" for name, value in operator.parameters if name != "inplace"]
    return "|".join([kind, *parameters, operator.inputs_text])


def _known_energy_j(row: MeasurementRow) -> float | None:
    for basis in (EnergyBasis.NORMALISED, EnergyBasis.MEASURED):
        energy = basis.energy_of(row)
        if energy is not None:
            return energy.value
    return None
