"""The comparison of each model's sum of operators with the measured whole, or with the same model under others.

The rows are those of a database. Nothing is measured or counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import product

from opcost.columns import grouped
from opcost.comparing.comparison import KindCost, Remark, comparison_row, differing, kinds_of
from opcost.comparing.conditions_side_by_side import SideBySide, side_by_side, without_code
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
from opcost.estimates import NORMAL_QUANTILE, Estimate, estimate_of
from opcost.measuring.conditions import (
    ATTENTION_SWITCHES,
    PRECISION_FIELDS,
    WARM,
    Conditions,
    differ_only_in,
    differing_fields,
)
from opcost.measuring.protocol import protocol_options
from opcost.measuring.record import ComparisonRow, MeasurementRow, is_doubtful
from opcost.measuring.setting import (
    ALL_CHOICES,
    BEFORE,
    DATABASE,
    DEVICE,
    DRIVER,
    FIELDS_OF,
    TORCH,
    VALUES,
    ChosenConditions,
    Limit,
    are_chosen,
    is_meant,
    is_version_of,
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
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import Phase
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO
from opcost.running.request import Request
from opcost.running.shipped_counts import Identity, counted_or_shipped, counts_in, identity_of, with_newer_pickles
from opcost.stages.ranking_data import named_as
from opcost.stages.wanted_model import Proposals
from opcost.storage.configs import ModelConfig, chosen_by, model_tuple, under
from opcost.storage.database import Database
from opcost.storage.files import path_of
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
    """Compare each chosen model under its config's conditions with the same model under others, or by other rows.

    A model that is not named itself is left out if it is not measured on both sides. Raises UserError: what is asked
    for is unknown (see ``parse_conditions``), or a named model, or every model, is not measured on both sides.
    """
    request.database.must_exist()
    request = replace(request, database=request.database.read_once())
    configs = request.models() if request.names else request.folders.readable()
    try:
        asked = parse_conditions(against)
    except ValueError as error:
        raise UserError(f"--against {error}; {_read(request, configs, runs).measured(configs)}") from None
    chosen, of_rows = ({key: asked[key] for key in asked if (key in VALUES) is is_of} for is_of in (True, False))
    sides = _sides(request, configs, runs, of_rows)
    found: list[SideBySide] = []
    mistakes: list[str] = []
    for config in configs:
        try:
            found += _reports(sides, config, replace(chosen_by(config), **chosen), of_rows)
        except UserError as error:
            is_named = any(request.folders.is_single(config, pattern) for pattern in request.names)
            mistakes += error.lines if is_named else ()
    if not (found or mistakes):
        text = f"--against {','.join(against)}: no model is measured under its own conditions and under these"
        mistakes = [f"{text}; {sides[0].measured(configs)}"]
    if mistakes:
        raise UserError(*mistakes)
    return found


@dataclass(frozen=True)
class Excess:
    """A model that costs more than a limit allows, by a ratio to the other one."""

    report: SideBySide
    limit: Limit
    more: Estimate


def excesses(reports: Iterable[SideBySide], limits: Sequence[Limit]) -> list[Excess]:
    """Return the models that cost more by a limit, and by more than the 95 % interval of the difference.

    The whole counts, or the sum if that is not measured on both sides. Raises UserError: the cost of one is unknown.
    """
    found, unknown = [], []
    for report, limit in product(reports, limits):
        sides, names = (
            report.whole or report.sum,
            [f"saved_{limit.quantity}_{of}ratio" for of in ("", "standard_error_")],
        )
        saved = estimate_of(*(getattr(sides, name, None) for name in names))
        if saved is None:
            line = f"{report.name}: its {limit.quantity} is unknown on one of both sides"
            unknown.append(f"--fail-if '{limit}': {line}; measure it, or leave the limit out")
        elif -saved.value > max(limit.ratio, NORMAL_QUANTILE * saved.standard_error):
            found.append(Excess(report, limit, saved.times(-1)))
    if unknown:
        raise UserError(*unknown)
    return found


@dataclass(frozen=True)
class _Side:
    """The rows and counts of models under all conditions that configs can choose, and the choice of rows to sum.

    ``counts`` are of operators that compute something. ``wholes`` are by the model's key, ``boards`` those of operator
    rows. ``other_code`` has the key of each model of a user's code in these rows, by the key of its present code.
    ``label`` is the name of the rows, empty if their conditions name them.
    """

    counts: Mapping[Identity, OperatorCounts]
    wholes: Mapping[str, Sequence[MeasurementRow]]
    measurements: Measurements
    boards: Mapping[Conditions, Iterable[str | None]]
    runs: OperatorRuns
    other_code: Mapping[str, str]
    label: str = ""

    def identity_of(self, config: ModelConfig) -> Identity:
        key, composites = identity_of(config)
        return self.other_code.get(key, key), composites

    def conditions_of(self, config: ModelConfig) -> list[Conditions]:
        """Return the sets of conditions under which a model, or most of its operators, is measured on this side."""
        found = [row.conditions for row in self.wholes_of(config)]
        if (counts := self.counts.get(self.identity_of(config))) is not None:
            of_cache = (one for one in self.boards if one.cache == self.runs.cache)
            ratio = self.measurements.measured_ratio
            found += [replace(one, cache=WARM) for one in of_cache if ratio(counts, one) >= MOSTLY_KNOWN_RATIO]
        return list(dict.fromkeys(one for one in found if are_chosen(one, config)))

    def wholes_of(self, config: ModelConfig) -> Sequence[MeasurementRow]:
        return self.wholes.get(self.identity_of(config)[0], ())

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

    def on_board(self, config: ModelConfig, conditions: Conditions, board: str | None) -> ModelResult:
        counts, measurements = self.counts[self.identity_of(config)], self.measurements.preferring(board)

        def conditions_of(whole: MeasurementRow | None) -> Conditions:
            return replace(conditions, cache=self.runs.cache) if whole is None else conditions_of_sum(whole, self.runs)

        def sum_of(whole: MeasurementRow | None) -> ModelCost:
            return sum_operators(counts, measurements, conditions_of(whole), self.runs.input_data)

        wholes = [row for row in self.wholes_of(config) if row.conditions == conditions]
        own = [row for row in wholes if row.circumstances.device_uuid == board] or wholes
        whole, cost = best_whole(own, sum_of) if own else (None, sum_of(None))
        selection = select(counts, (EVERYTHING,))
        return ModelResult(conditions_of(whole), whole, cost, selection, measurements, self.runs, **named_as(config))


def _sides(
    request: Request, configs: Sequence[ModelConfig], runs: OperatorRuns, asked: Mapping[str, str]
) -> tuple[_Side, _Side]:
    """Return the models' own rows and those that are asked for. Of one database, own rows are all the others."""
    if not asked:
        own = _read(request, configs, runs)
        return own, own
    folder, date = asked.get(DATABASE), asked.get(BEFORE)
    own = _read(request, configs, runs, lambda row: folder is not None or not _is_asked_for(asked, row))
    request = replace(request, device=asked.get(DEVICE, request.device))
    labels = ("", "") if date is None else (f"from {date}", f"before {date}")
    if folder is not None:
        paths = request.database.folder, path_of(folder)
        labels = (paths[0].name, paths[1].name) if paths[0].name != paths[1].name else (str(paths[0]), str(paths[1]))
        request = replace(request, database=Database(paths[1]))
        request.database.must_exist()
    other = _read(request, configs, runs, lambda row: _is_asked_for(asked, row), bool(folder or date))
    return replace(own, label=labels[0]), replace(other, label=labels[1])


def _is_asked_for(asked: Mapping[str, str], row: MeasurementRow) -> bool:
    one, date = row.conditions, asked.get(BEFORE)
    versions = (asked.get(TORCH), one.torch_version), (asked.get(DRIVER), one.driver_version)
    return (
        is_meant(asked.get(DEVICE), one)
        and (date is None or row.measurement.started_at < date)
        and all(begin is None or is_version_of(begin, version) for begin, version in versions)
    )


def _read(
    request: Request,
    configs: Sequence[ModelConfig],
    runs: OperatorRuns,
    is_of_side: Callable[[MeasurementRow], bool] = lambda _: True,
    has_other_code: bool = False,
) -> _Side:
    """Return all that is known of these models under any conditions, by rows of the device and of a side.

    Counts are those of block 0 in any folder, or shipped ones; with ``has_other_code`` those of the database first.
    Raises UserError: a table is damaged, or no row is of the device that is asked for.
    """
    database = request.database
    variants = [under(config, chosen) for config in configs for chosen in ALL_CHOICES]
    models, wholes_table = {model_tuple(one) for one in variants}, database.full_model_measurements
    other_code: dict[str, str] = {}
    if has_other_code and any(one.code for one in variants):
        of_name = {without_code(model): model.key for model in models}
        for row in filter(is_of_side, wholes_table.rows()):
            model = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
            if (key := of_name.get(without_code(model))) is not None:
                # The newest comes last.
                other_code[key] = tuple_key(row.key)
    keys = {other_code.get(model.key, model.key) for model in models}
    measured = wholes_table.rows(lambda key: tuple_key(key) in keys)
    wanted = {(other_code.get(key, key), composites) for key, composites in map(identity_of, variants)}
    table = counts_in(database.model_operators, {key for key, _ in wanted}.__contains__)
    pickled = (one for one in request.folders.readable() if identity_of(one) in wanted)
    found = with_newer_pickles(table, (one for one in pickled if not (has_other_code and identity_of(one) in table)))
    counts = {
        identity: counted_only(select(own, (EVERYTHING,)), runs).kept
        for identity, own in found.items()
        if identity in wanted
    }
    operators = {count.operator for one in counts.values() for count in one.counts}
    rows = database.operator_measurements.rows(of_operators(operators))
    if request.device is not None and request.is_product:
        refuse_unknown(request.device, (row.conditions.device_product for row in (*measured, *rows)))
    measured, rows = (
        [row for row in some if is_meant(request.device, row.conditions) and is_of_side(row)]
        for some in (measured, rows)
    )
    wholes = grouped(best_of_each_board(measured), lambda row: tuple_key(row.key))
    # By the key, because hashing the conditions of each row takes long.
    boards: dict[str, tuple[Conditions, dict[str | None, None]]] = {}
    for row in rows:
        boards.setdefault(conditions_key(row.key), (row.conditions, {}))[1][row.circumstances.device_uuid] = None
    return _Side(counts, wholes, Measurements(rows), dict(boards.values()), runs, other_code)


def _reports(
    sides: tuple[_Side, _Side], config: ModelConfig, other: ChosenConditions, asked: Mapping[str, str]
) -> Iterator[SideBySide]:
    """Yield the comparisons of a model. Raises UserError: there is none; the message names the model."""
    own, known = chosen_by(config), sides[0].measured([config])
    if own == other and not asked:
        raise UserError(f"{config.name}: has {other} itself; {known}")
    rows = ",".join(f"{key}={value}" for key, value in asked.items())
    models = [(side, under(config, chosen)) for side, chosen in zip(sides, (own, other), strict=True)]
    for (side, model), chosen, place in zip(models, (own, other), ("beside", "by"), strict=True):
        where = f" {place} rows of {rows}" if asked else ""
        if not side.conditions_of(model):
            raise UserError(f"{config.name}: not measured with {chosen}{where}; {known}")
        if side.identity_of(model) not in side.counts:
            raise UserError(f"{config.name}: not counted with {chosen}{where}; run block 0 on such a config")
    own_conditions, other_conditions = (side.conditions_of(model) for side, model in models)
    pairs = list(product(own_conditions, other_conditions))
    fields = (*PRECISION_FIELDS, *ATTENTION_SWITCHES, *(name for key in asked for name in FIELDS_OF.get(key, ())))
    comparable = [(one, another) for one, another in pairs if differ_only_in(one, another, fields)]
    if not comparable:
        one, another = min(pairs, key=lambda pair: len(pair[0].differences(pair[1])))
        names = set(differing_fields((one, another)))
        key = next((key for key, fields in FIELDS_OF.items() if names <= {*fields}), None)
        remedy = "" if key is None else f"; add {key}={getattr(another, FIELDS_OF[key][0])} to --against"
        differences = ", ".join(one.differences(another))
        raise UserError(f"{config.name}: not measured under the same other conditions ({differences}){remedy}")
    for both in comparable:
        candidates = [(*model, conditions) for model, conditions in zip(models, both, strict=True)]
        is_one_product = both[0].device_product == both[1].device_product
        groups = [candidates] if is_one_product else [[one] for one in candidates]
        these, others = (result for group in groups for result in _of_one_board(group))
        labels = sides[0].label, sides[1].label
        yield side_by_side((replace(these, name=config.name), others), (own, other), labels)


def _of_one_board(candidates: Sequence[tuple[_Side, ModelConfig, Conditions]]) -> list[ModelResult]:
    """Return the results of one device, of one board as far as possible.

    Of several boards, that with the most sound wholes counts, then that with the largest share of the summed times,
    then the last, as in ``best_whole``.
    """
    boards: dict[str | None, None] = {}
    for side, config, conditions in candidates:
        wholes = (row for row in side.wholes_of(config) if row.conditions == conditions)
        boards |= dict.fromkeys(row.circumstances.device_uuid for row in wholes)
    for side, _, conditions in candidates:
        boards |= dict.fromkeys(side.boards.get(replace(conditions, cache=side.runs.cache), ()))

    def rank(results: Sequence[ModelResult], board: str | None) -> tuple[int, int, float]:
        own = [one.whole for one in results if one.whole is not None and one.board == board]
        sound = sum(not is_doubtful(whole) for whole in own)
        return sound, len(own), sum(one.cost.board_ratio(board) for one in results)

    found = (
        (board, [side.on_board(config, conditions, board) for side, config, conditions in candidates])
        for board in reversed(boards)
    )
    return max(found, key=lambda one: rank(one[1], one[0]))[1]
