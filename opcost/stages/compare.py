"""The comparison of each model's sum of operators with the measured whole, or with the same model under others.

The rows are those of a database. Nothing is measured or counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from opcost.columns import grouped
from opcost.comparing.comparison import KindCost, Remark, comparison_row, differing, kinds_of
from opcost.comparing.conditions_side_by_side import SideBySide, side_by_side
from opcost.comparing.model_result import (
    USUAL_RUNS,
    Evidence,
    ModelResult,
    OperatorRuns,
    conditions_of_sum,
    counted_only,
    kernel_errors,
)
from opcost.errors import UserError
from opcost.measuring.conditions import (
    ATTENTION_SWITCHES,
    DEVICE_FIELDS,
    PRECISION_FIELDS,
    WARM,
    Conditions,
    differ_only_in,
)
from opcost.measuring.protocol import protocol_options
from opcost.measuring.record import ComparisonRow, MeasurementRow, is_doubtful
from opcost.measuring.setting import (
    ALL_CHOICES,
    DEVICE,
    ChosenConditions,
    are_chosen,
    is_meant,
    parse_conditions,
    refuse_unknown,
)
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.counts import (
    EVERYTHING,
    OperatorCounts,
    conditions_key,
    of_operators,
    of_phase,
    select,
    tuple_key,
)
from opcost.operators.tuples import Phase
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO
from opcost.running.request import Request
from opcost.running.shipped_counts import Identity, counted_or_shipped, counts_in, identity_of, with_newer_pickles
from opcost.stages.ranking_data import named_as
from opcost.stages.wanted_model import Proposals
from opcost.storage.configs import ModelConfig, chosen_by, model_tuple, under
from opcost.summing.summation import Measurements, ModelCost, best_of_each_board, best_whole, sum_operators


@dataclass(frozen=True)
class ComparingReport:
    """The comparisons of one model: a row for each set of conditions, or the reason if there is none.

    For each row, ``kinds`` has the cost of each kind of operator in the sum, and ``remarks`` its remarks. ``remedy`` is
    the command that measures what is missing, None if it is the one for all models. ``results`` are what the rows are
    views of.
    """

    name: str
    comparisons: tuple[ComparisonRow, ...]
    reason: str | None
    kinds: tuple[tuple[KindCost, ...], ...] = ()
    remarks: tuple[tuple[Remark, ...], ...] = ()
    remedy: str | None = None
    results: tuple[ModelResult, ...] = field(default=(), repr=False)
    config: ModelConfig | None = field(default=None, repr=False)

    @property
    def labels(self) -> list[str]:
        """A label for each comparison: the model's name and the conditions that differ."""
        texts = differing([row.conditions for row in self.comparisons])
        parts = ([str(row.phase)] if row.phase.is_part else [] for row in self.comparisons)
        all_parts = [[*own, *part] for own, part in zip(texts, parts, strict=True)]
        return [f"{self.name} ({', '.join(own)})" if own else self.name for own in all_parts]

    @property
    def is_incomplete(self) -> bool:
        return self.reason is not None or any(row.time_s is None for row in self.comparisons)


def find_comparisons(
    request: Request, runs: OperatorRuns = USUAL_RUNS, under: Mapping[str, Conditions] | None = None
) -> list[ComparingReport]:
    """Compare each chosen model under every set of conditions in which the whole model was measured.

    A named model without counts has no comparison but a reason, unless no model has counts. Of several boards, that
    with most of the summed operators counts; of equals, the one whose first row comes last. ``under`` are the only
    conditions of wholes to compare, by the model's name.
    """
    configs = request.models() if request.names else request.folders.readable()
    reasons: dict[str, str] = {}
    models, whitelist = counted_or_shipped(request, configs, reasons), request.whitelist()
    selections = [(config, select(counts, whitelist)) for config, counts in models]
    database, device = request.database, request.device
    database.must_exist()
    counts = (count for _, one in selections for count in (*one.kept.counts, *one.dropped.counts))
    rows = database.operator_measurements.rows(of_operators(count.operator for count in counts))
    evidence = Evidence(Measurements(rows), database.calls_in_chains.rows())
    table = database.full_model_measurements
    if device is not None and request.is_product:
        refuse_unknown(device, (row.conditions.device_product for row in table.rows()))
    of_models = table.rows(of_operators(one.kept.model for _, one in selections))
    wholes = grouped(best_of_each_board(of_models, with_parts=True), lambda row: tuple_key(row.key))
    kernels = database.kernel_times.rows()
    found = []
    for config, selection in selections:
        key, results = selection.kept.model.key, []
        of_model = [row for row in wholes.get(key, ()) if are_chosen(row.conditions, config)]
        only = None if under is None else under.get(config.name)
        meant = (row for row in of_model if is_meant(device, row.conditions) and only in (None, row.conditions))
        by_case = grouped(meant, lambda row: row.key).values()
        for own in sorted(by_case, key=lambda rows: list(Phase).index(rows[0].phase)):
            one = evidence.result(of_phase(selection, own[0].phase), own, runs=runs)
            errors = kernel_errors(kernels, key, one.conditions)
            results.append(replace(one, kernels=errors, **named_as(config)))
        found.append(_report(config, results, f" on {device}" if device else ""))
    found += [replace(_report(one, ()), reason=reasons[one.name]) for one in configs if one.name in reasons]
    return sorted(found, key=lambda report: report.name)


def keep_comparisons(request: Request, reports: Sequence[ComparingReport]) -> None:
    """Write comparisons to the database.

    They replace older rows of the same model, conditions and values; others, and equal ones, stay.
    """
    new_rows = [row for report in reports for row in report.comparisons]

    def updated(known: Iterable[ComparisonRow]) -> list[ComparisonRow]:
        rows = {row.identity: row for row in known}
        for row in new_rows:
            old = rows.get(row.identity)
            if old is None or replace(row, compared_at=old.compared_at) != old:
                rows[row.identity] = row
        return list(rows.values())

    if new_rows:
        request.database.sum_vs_full.replace_rows(updated)


def _report(config: ModelConfig, results: Sequence[ModelResult], where: str = "") -> ComparingReport:
    name, now = config.name, datetime.now(timezone.utc).isoformat(timespec="seconds")
    proposals = Proposals.of([config])
    remedy: str | None = proposals.command("measure-models", [name])
    reason = None if results else f"the whole model is not measured{where}; run {remedy}"
    if results:
        # As the operators of the first comparison were measured.
        conditions, parts = results[0].conditions, results[0].cost.parts
        device = ("--device", "cpu") if conditions.device_type == "cpu" else ("--execution", conditions.execution)
        how = protocol_options(part.row.circumstances for part in parts)
        remedy = next(iter(proposals.profiling([name], *device, *how)), None)
    return ComparingReport(
        name=name,
        comparisons=tuple(comparison_row(one, now) for one in results),
        reason=reason,
        kinds=tuple(kinds_of(one.cost) for one in results),
        remarks=tuple(one.remarks for one in results),
        remedy=remedy,
        results=tuple(results),
        config=config,
    )


# Models under their own conditions, and the same models under others


def compare_against(request: Request, against: Sequence[str], runs: OperatorRuns = USUAL_RUNS) -> list[SideBySide]:
    """Compare each chosen model under its config's conditions with the same model under others, on each device.

    A model that is not named itself is left out if it is not measured under both. Raises UserError: conditions are
    unknown (see ``parse_conditions``), or a named model, or every model, is not measured under both.
    """
    request.database.must_exist()
    configs = request.models() if request.names else request.folders.readable()
    try:
        asked = parse_conditions(against)
    except ValueError as error:
        measured = _read(request, configs, runs).measured(configs)
        raise UserError(f"--against {error}; {measured}") from None
    data = _read(request, configs, runs, asked.pop(DEVICE, None))
    found: list[SideBySide] = []
    mistakes: list[str] = []
    for config in configs:
        try:
            found += _reports(data, config, replace(chosen_by(config), **asked))
        except UserError as error:
            is_named = any(request.folders.is_single(config, pattern) for pattern in request.names)
            mistakes += error.lines if is_named else ()
    if not (found or mistakes):
        text = f"--against {','.join(against)}: no model is measured under its own conditions and under these"
        mistakes = [f"{text}; {data.measured(configs)}"]
    if mistakes:
        raise UserError(*mistakes)
    return found


@dataclass(frozen=True)
class _Data:
    """The rows and counts of models under all conditions that configs can choose, and the choice of rows to sum.

    ``counts`` are of operators that compute something. ``wholes`` are by the model's key, ``boards`` those of operator
    rows. ``device`` is the one of these rows, ``other_device`` that to compare with; None: the same, or any.
    """

    counts: Mapping[Identity, OperatorCounts]
    wholes: Mapping[str, Sequence[MeasurementRow]]
    measurements: Measurements
    boards: Mapping[Conditions, Iterable[str | None]]
    runs: OperatorRuns
    device: str | None
    other_device: str | None

    def conditions_of(self, config: ModelConfig, is_other: bool = False) -> list[Conditions]:
        """Return the sets of conditions of a side under which a model, or most of its operators, is measured."""

        def is_of_side(one: Conditions) -> bool:
            if self.other_device is None or (self.device is not None and not is_other):
                return is_meant(self.device, one)
            return is_meant(self.other_device, one) == is_other

        found = [row.conditions for row in self.wholes.get(model_tuple(config).key, ())]
        if (counts := self.counts.get(identity_of(config))) is not None:
            of_cache = (one for one in self.boards if one.cache == self.runs.cache)
            ratio = self.measurements.measured_ratio
            found += [replace(one, cache=WARM) for one in of_cache if ratio(counts, one) >= MOSTLY_KNOWN_RATIO]
        return list(dict.fromkeys(one for one in found if are_chosen(one, config) and is_of_side(one)))

    def wholes_of(self, config: ModelConfig, conditions: Conditions) -> list[MeasurementRow]:
        return [row for row in self.wholes.get(model_tuple(config).key, ()) if row.conditions == conditions]

    def measured(self, configs: Iterable[ModelConfig]) -> str:
        """Return in words which choices of conditions any of these models is measured under."""
        found = {one for config in configs for one in ALL_CHOICES if self.conditions_of(under(config, one))}
        others = grouped((one for one in ALL_CHOICES if one in found), lambda one: (one.memory_format, one.attention))
        precisions = {how: ", ".join(one.precision for one in own) for how, own in others.items()}
        texts = [
            f"memory_format={name}{'' if backend == ANY_BACKEND else f',attention={backend}'} with precision={own}"
            for (name, backend), own in precisions.items()
        ]
        return f"the database has {' and '.join(texts) or 'no row of such a model'}"


def _read(
    request: Request, configs: Sequence[ModelConfig], runs: OperatorRuns, other_device: str | None = None
) -> _Data:
    """Return all that is known of these models under any conditions, and on another device if one is named.

    Counts are those of block 0 in any folder, or shipped ones. Raises UserError: a table is damaged, or no row is of
    the device that is asked for.
    """
    database = request.database
    variants = [under(config, chosen) for config in configs for chosen in ALL_CHOICES]
    measured = database.full_model_measurements.rows(of_operators({model_tuple(variant) for variant in variants}))
    wanted = {identity_of(variant) for variant in variants}
    table = counts_in(database.model_operators, {key for key, _ in wanted}.__contains__)
    found = with_newer_pickles(table, (one for one in request.folders.readable() if identity_of(one) in wanted))
    counts = {
        identity: counted_only(select(own, (EVERYTHING,)), runs).kept
        for identity, own in found.items()
        if identity in wanted
    }
    operators = {count.operator for one in counts.values() for count in one.counts}
    rows = database.operator_measurements.rows(of_operators(operators))
    products = [row.conditions.device_product for row in (*measured, *rows)]
    if request.device is not None and request.is_product:
        refuse_unknown(request.device, products)
    if other_device is not None:
        refuse_unknown(other_device, products)
    wholes = grouped(best_of_each_board(measured), lambda row: tuple_key(row.key))
    # By the key, because hashing the conditions of each row takes long.
    boards: dict[str, tuple[Conditions, dict[str | None, None]]] = {}
    for row in rows:
        boards.setdefault(conditions_key(row.key), (row.conditions, {}))[1][row.circumstances.device_uuid] = None
    return _Data(counts, wholes, Measurements(rows), dict(boards.values()), runs, request.device, other_device)


def _reports(data: _Data, config: ModelConfig, other: ChosenConditions) -> Iterator[SideBySide]:
    """Yield the comparisons of a model. Raises UserError: there is none; the message names the model."""
    own = chosen_by(config)
    if own == other and data.other_device is None:
        raise UserError(f"{config.name}: has {other} itself; {data.measured([config])}")
    sides = []
    for chosen, is_other in ((own, False), (other, True)):
        variant = under(config, chosen)
        conditions = data.conditions_of(variant, is_other)
        if not conditions:
            place = f" on {data.other_device}" if is_other and data.other_device else ""
            raise UserError(f"{config.name}: not measured with {chosen}{place}; {data.measured([config])}")
        if identity_of(variant) not in data.counts:
            raise UserError(f"{config.name}: not counted with {chosen}; run block 0 on such a config")
        sides.append((variant, conditions))
    (variant, conditions), (other_variant, other_conditions) = sides
    pairs = [(one, another) for one in conditions for another in other_conditions]
    fields = (*PRECISION_FIELDS, *ATTENTION_SWITCHES, *(DEVICE_FIELDS if data.other_device else ()))
    # A card is not compared with itself.
    comparable = [pair for pair in pairs if differ_only_in(*pair, fields) and (own != other or pair[0] != pair[1])]
    if not comparable:
        differences = ", ".join(pairs[0][0].differences(pairs[0][1]))
        same = "with the same software on another device" if data.other_device else "on the same device and software"
        raise UserError(f"{config.name}: measured with {own} and with {other}, but not {same} ({differences})")
    for both in comparable:
        candidates = list(zip((variant, other_variant), both, strict=True))
        is_one_product = both[0].device_product == both[1].device_product
        groups = [candidates] if is_one_product else [[one] for one in candidates]
        these, others = (side for group in groups for side in _of_one_board(data, group))
        yield side_by_side((replace(these, name=config.name), others), (own, other))


def _of_one_board(data: _Data, candidates: Sequence[tuple[ModelConfig, Conditions]]) -> list[ModelResult]:
    """Return the sides of one device, of one board as far as possible.

    Of several boards, that with the most sound wholes counts, then that with the largest share of the summed times,
    then the last, as in ``best_whole``.
    """
    wholes = [data.wholes_of(*one) for one in candidates]
    boards = dict.fromkeys(row.circumstances.device_uuid for rows in wholes for row in rows)
    for _, conditions in candidates:
        boards |= dict.fromkeys(data.boards.get(replace(conditions, cache=data.runs.cache), ()))

    def rank(sides: Sequence[ModelResult], board: str | None) -> tuple[int, int, float]:
        own = [side.whole for side in sides if side.whole is not None and side.board == board]
        sound = sum(not is_doubtful(whole) for whole in own)
        return sound, len(own), sum(side.cost.board_ratio(board) for side in sides)

    found = ((board, [_on_board(data, *one, board) for one in candidates]) for board in reversed(boards))
    return max(found, key=lambda one: rank(one[1], one[0]))[1]


def _on_board(data: _Data, config: ModelConfig, conditions: Conditions, board: str | None) -> ModelResult:
    counts, measurements = data.counts[identity_of(config)], data.measurements.preferring(board)

    def conditions_of(whole: MeasurementRow | None) -> Conditions:
        return replace(conditions, cache=data.runs.cache) if whole is None else conditions_of_sum(whole, data.runs)

    def sum_of(whole: MeasurementRow | None) -> ModelCost:
        return sum_operators(counts, measurements, conditions_of(whole), data.runs.input_data)

    wholes = data.wholes_of(config, conditions)
    own = [row for row in wholes if row.circumstances.device_uuid == board] or wholes
    whole, cost = best_whole(own, sum_of) if own else (None, sum_of(None))
    selection = select(counts, (EVERYTHING,))
    return ModelResult(conditions_of(whole), whole, cost, selection, measurements, data.runs, **named_as(config))
