"""The comparison of models under their own conditions with the same models under others, from the rows of a database.

Nothing is measured, counted or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from opcost.comparing.comparison import USUAL_RUNS, OperatorRuns, conditions_of_sum
from opcost.comparing.conditions_side_by_side import KindSides, OperatorSides, Side, side_by_side
from opcost.comparing.remarks import Remark
from opcost.comparing.side_remarks import side_remarks
from opcost.comparing.sides import Sides
from opcost.errors import UserError
from opcost.measuring.asked_conditions import DEVICE, ChosenConditions, parse_conditions
from opcost.measuring.conditions import DEVICE_FIELDS, PRECISION_FIELDS, Conditions, differ_only_in
from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.operators.counts import OperatorCounts
from opcost.running.request import Request
from opcost.stages.against_data import AgainstData, chosen_by, read_against_data, under
from opcost.storage.configs import ModelConfig
from opcost.summing.summation import ModelCost, sum_operators, whole_rank


@dataclass(frozen=True)
class AgainstReport:
    """A model under its own conditions, and under others that it is compared with.

    ``chosen`` and ``other_chosen`` are those that a config can choose. ``conditions`` and ``other_conditions`` are all;
    they differ in the precision and in the device only. The boards are those of the wholes. The costs are those of
    ``SideBySide``; ``sum`` is its total, None if nothing is measured under both.
    """

    name: str
    batch_size: int | None
    input_size: str
    chosen: ChosenConditions
    other_chosen: ChosenConditions
    device_uuid: str | None
    other_device_uuid: str | None
    reference_temperature_c: float | None
    whole: Sides | None
    sum: Sides | None
    kinds: tuple[KindSides, ...]
    operators: tuple[OperatorSides, ...]
    remarks: tuple[Remark, ...]
    conditions: Conditions
    other_conditions: Conditions

    @property
    def labels(self) -> tuple[str, str]:
        """The conditions of both sides in the words in which they differ: ``bf16`` and ``fp32``."""
        return _labels((self.chosen, self.conditions), (self.other_chosen, self.other_conditions))


def compare_against(request: Request, against: Sequence[str], runs: OperatorRuns = USUAL_RUNS) -> list[AgainstReport]:
    """Compare each chosen model under its config's conditions with the same model under others, on each device.

    A model that is not named itself is left out if it is not measured under both.

    Args:
        request: which models.
        against: the other conditions, see ``parse_conditions``.
        runs: which runs of operators are summed.

    Raises:
        UserError: conditions are unknown, or a named model, or every model, is not measured under both.
    """
    request.database.must_exist()
    configs = request.models() if request.names else request.folders.readable()
    try:
        asked = parse_conditions(against)
    except ValueError as error:
        measured = read_against_data(request, configs, runs).measured(configs)
        raise UserError(f"--against {error}; {measured}") from None
    data = read_against_data(request, configs, runs, asked.pop(DEVICE, None))
    found: list[AgainstReport] = []
    mistakes: list[str] = []
    for config in configs:
        try:
            found += _reports(data, config, replace(chosen_by(config), **asked))
        except _NotComparableError as error:
            is_named = any(request.folders.is_single(config, pattern) for pattern in request.names)
            mistakes += [str(error)] if is_named else []
    if not (found or mistakes):
        text = f"--against {','.join(against)}: no model is measured under its own conditions and under these"
        mistakes = [f"{text}; {data.measured(configs)}"]
    if mistakes:
        raise UserError(*mistakes)
    return found


class _NotComparableError(Exception):
    """A model is not measured under both sets of conditions. The message names it."""


def _reports(data: AgainstData, config: ModelConfig, other: ChosenConditions) -> Iterator[AgainstReport]:
    """Yield the comparisons of a model, one for each set of conditions.

    Raises:
        _NotComparableError: there is none.
    """
    own = chosen_by(config)
    if own == other and data.other_device is None:
        raise _NotComparableError(f"{config.name}: has {other} itself; {data.measured([config])}")
    sides = []
    for chosen, is_other in ((own, False), (other, True)):
        variant = under(config, chosen)
        conditions, counts = data.conditions_of(variant, is_other), data.counts_of(variant)
        if not conditions:
            place = f" on {data.other_device}" if is_other and data.other_device else ""
            raise _NotComparableError(f"{config.name}: not measured with {chosen}{place}; {data.measured([config])}")
        if counts is None:
            raise _NotComparableError(f"{config.name}: not counted with {chosen}; run block 0 on such a config")
        sides.append((variant, counts, conditions))
    (variant, counts, conditions), (other_variant, other_counts, other_conditions) = sides
    pairs = [(one, another) for one in conditions for another in other_conditions]
    fields = (*PRECISION_FIELDS, *(DEVICE_FIELDS if data.other_device else ()))
    # A card is not compared with itself.
    comparable = [pair for pair in pairs if differ_only_in(*pair, fields) and (own != other or pair[0] != pair[1])]
    if not comparable:
        differences = ", ".join(pairs[0][0].differences(pairs[0][1]))
        same = "with the same software on another device" if data.other_device else "on the same device and software"
        text = f"{config.name}: measured with {own} and with {other}, but not {same}"
        raise _NotComparableError(f"{text} ({differences})")
    for one, another in comparable:
        wholes = data.wholes_of(variant, one), data.wholes_of(other_variant, another)
        label, other_label = _labels((own, one), (other, another))
        these = _Candidate(label, one, counts, tuple(wholes[0]))
        others = _Candidate(other_label, another, other_counts, tuple(wholes[1]))
        yield _report(data, config, other, (these, others))


def _labels(these: tuple[ChosenConditions, Conditions], others: tuple[ChosenConditions, Conditions]) -> tuple[str, str]:
    """Return the conditions of both sides in the words in which they differ, the devices first."""

    def label(own: tuple[ChosenConditions, Conditions], other: tuple[ChosenConditions, Conditions]) -> str:
        product = own[1].device_product
        device = "" if product == other[1].device_product else product.removeprefix("NVIDIA ")
        return " ".join(filter(None, (device, own[0].label(other[0]))))

    return label(these, others), label(others, these)


@dataclass(frozen=True)
class _Candidate:
    """A model under one set of conditions, with the rows of its whole, one of each board."""

    label: str
    conditions: Conditions
    counts: OperatorCounts
    wholes: tuple[MeasurementRow, ...]

    def on_board(self, data: AgainstData, board: str | None) -> Side:
        """Return the side with rows of a board wherever there are any."""

        own = [row for row in self.wholes if row.circumstances.device_uuid == board]
        ranked = ((whole, self._sum(data, board, whole)) for whole in own or self.wholes)
        whole, cost = max(ranked, key=lambda pair: whole_rank(*pair), default=(None, None))
        return Side(self.label, self.conditions, self.counts, whole, cost or self._sum(data, board, None))

    def _sum(self, data: AgainstData, board: str | None, whole: MeasurementRow | None) -> ModelCost:
        runs, own = data.runs, self.conditions
        conditions = replace(own, cache=runs.cache) if whole is None else conditions_of_sum(whole, runs)
        return sum_operators(self.counts, data.measurements.preferring(board), conditions, runs.input_data)


def _report(
    data: AgainstData, config: ModelConfig, other: ChosenConditions, candidates: tuple[_Candidate, _Candidate]
) -> AgainstReport:
    these, others = _of_one_board(data, candidates)
    found = side_by_side(these, others, config.batch_size or 1)
    return AgainstReport(
        name=config.name,
        batch_size=config.batch_size,
        input_size="x".join(map(str, config.shape)),
        chosen=chosen_by(config),
        other_chosen=other,
        device_uuid=these.board,
        other_device_uuid=others.board,
        reference_temperature_c=found.basis.temperature_c,
        whole=found.whole,
        sum=found.total,
        kinds=found.kinds,
        operators=found.operators,
        remarks=side_remarks(found),
        conditions=these.conditions,
        other_conditions=others.conditions,
    )


def _of_one_board(data: AgainstData, candidates: tuple[_Candidate, _Candidate]) -> tuple[Side, Side]:
    """Return both sides, of one board as far as possible, or each of one board if they are of two devices.

    Of several boards, that with the most sound wholes counts, then that with the largest share of the summed times,
    then the last, as in ``best_whole``.
    """
    first, second = candidates
    if first.conditions.device_product != second.conditions.device_product:
        return _of_one_board(data, (first, first))[0], _of_one_board(data, (second, second))[0]
    boards = dict.fromkeys(row.circumstances.device_uuid for one in candidates for row in one.wholes)
    for one in candidates:
        boards |= dict.fromkeys(data.boards.get(replace(one.conditions, cache=data.runs.cache).key, ()))

    def rank(board: str | None) -> tuple[int, int, float]:
        sides = [one.on_board(data, board) for one in candidates]
        wholes = [side.whole for side in sides if side.whole is not None and side.board == board]
        sound = sum(not is_doubtful(whole) for whole in wholes)
        return sound, len(wholes), sum(side.cost.board_ratio(board) for side in sides)

    best = max(reversed(boards), key=rank)
    these, others = (one.on_board(data, best) for one in candidates)
    return these, others
