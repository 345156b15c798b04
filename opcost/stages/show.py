"""The ranking of models by the cost of a sample, from the rows of a database. Nothing is measured or counted."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from opcost.columns import grouped
from opcost.comparing.model_result import ModelResult
from opcost.comparing.operator_costs import KindCosts, OperatorCost, kind_costs, operator_costs
from opcost.comparing.predicted_run import PredictedRun
from opcost.comparing.ranking import ENERGY, SORTS, SUM, RankingRow, completed, ranked, ranking_row
from opcost.comparing.roofline import Roofline
from opcost.errors import UserError, quoted
from opcost.invocation import command
from opcost.measuring.conditions import (
    CONTIGUOUS,
    WARM,
    Conditions,
    device_type_of,
    differing_fields,
    is_device_name,
    usual_execution,
)
from opcost.measuring.precisions import Precision
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.measuring.setting import ALL_CHOICES, ChosenConditions, device_mistake, is_meant
from opcost.operators.counts import OperatorCount, tuple_key
from opcost.operators.model_inputs import Unit
from opcost.operators.training import INFERENCE, MODES, TRAINING
from opcost.operators.tuples import SIZE_IN_NAME, OperatorTuple
from opcost.running.request import Request
from opcost.running.shipped_counts import identity_of
from opcost.stages.predict import predicted_models
from opcost.stages.ranking_data import BoardDifferences, RankingData, board_differences, ranking_data
from opcost.stages.wanted_model import NO_PROPOSALS, Preparation, Proposals, preparation_of, usual_name
from opcost.storage.configs import ModelConfig, is_glob, model_tuple, under
from opcost.storage.files import cache_folder
from opcost.summing.summation import Measurements


@dataclass(frozen=True)
class Choice:
    """The order of the models, one of ``SORTS``, and whose rows are shown.

    ``device`` is a type (``cpu``, ``cuda``) or a part of a product's name, or several of them with commas; None for
    all. ``execution`` is None for the usual one: graph on a GPU, eager on a CPU. ``operators`` says whether models have
    their operators; None for those of one model that is named without a glob. ``precision``, ``memory_format`` and
    ``batch`` replace those of the named models' configs, None for these. ``mode`` is that of the configs, of ``MODES``.
    """

    by: str = ENERGY
    device: str | None = None
    execution: str | None = None
    operators: bool | None = None
    precision: str | None = None
    memory_format: str | None = None
    batch: int | None = None
    mode: str = INFERENCE

    def __post_init__(self) -> None:
        if self.by not in SORTS:
            raise UserError(f"sort: {self.by!r} is no order; use {', '.join(SORTS)}")
        if self.mode not in MODES:
            raise UserError(f"mode: {self.mode!r} is no mode; use {' or '.join(MODES)}")

    @property
    def devices(self) -> tuple[str | None, ...]:
        """The devices that are meant, one of them None for all."""
        return (None,) if self.device is None else tuple(part.strip() for part in self.device.split(","))

    def means(self, conditions: Conditions) -> bool:
        """Return whether rows under these conditions may be shown: of the devices and the precision."""
        is_device = any(is_meant(device, conditions) for device in self.devices)
        return is_device and self.precision in (None, conditions.precision)

    def execution_on(self, device_type: str) -> str:
        return self.execution or usual_execution(device_type)

    def asked(self, config: ModelConfig) -> ModelConfig:
        return replace(
            config,
            precision=self.precision or config.precision,
            memory_format=self.memory_format or config.memory_format,
            input_size=(self.batch, *config.input_size[1:]) if self.batch and config.input_size else config.input_size,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a command that shows other models in the same order and execution."""
        by = None if self.by == ENERGY else self.by
        mode = None if self.mode == INFERENCE else self.mode
        return _words({"--mode": mode, "--sort": by, "--device": self.device, "--execution": self.execution})

    def measuring_options(self, device_type: str | None = None) -> tuple[str, ...]:
        """Return the options of a command that measures what is shown here; a product's name is none of them."""
        is_torch_name = self.device is not None and is_device_name(self.device)
        device = self.device if is_torch_name else "cpu" if device_type == "cpu" else None
        return _words({"--device": device, "--execution": self.execution})


def _words(options: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(text for option, value in options.items() if value is not None for text in (option, value))


USUAL_CHOICE = Choice()


class NothingMeasuredError(UserError):
    """No model and no operator is measured in the execution that is to be shown."""


@dataclass(frozen=True)
class ShownModel:
    """A model of a ranking: its row, its roofline if known, and the kinds of operators in its sum, the largest first.

    ``operators`` is empty if they are not to be shown. ``result`` is what all are views of.
    """

    row: RankingRow
    roofline: Roofline | None
    kinds: tuple[KindCosts, ...]
    operators: tuple[OperatorCost, ...]
    result: ModelResult

    @property
    def needs_rows(self) -> bool:
        return self.row.source == SUM and bool(self.result.missing)


@dataclass(frozen=True)
class DeviceRanking:
    """The models with a cost on one device in order, those with an incomplete sum only, and how far boards differ.

    ``others`` are measured under other conditions only, which they have by name. ``differing`` are the fields of
    conditions in which the rankings of this device differ. ``protocol_options`` are those of a command that measures
    operators without a row. ``predicted`` are models without a cost, if it could be predicted at once.
    """

    product: str
    models: tuple[ShownModel, ...]
    incomplete: tuple[ShownModel, ...]
    boards: BoardDifferences
    conditions: Conditions
    others: Mapping[str, Conditions] = field(default_factory=dict)
    differing: tuple[str, ...] = ()
    protocol_options: tuple[str, ...] = ()
    predicted: tuple[PredictedRun, ...] = ()

    @property
    def all_models(self) -> tuple[ShownModel, ...]:
        """The models in order, those with an incomplete sum only last."""
        return (*self.models, *self.incomplete)


@dataclass(frozen=True)
class ShowReport:
    """The rankings, one for each device, and the chosen models that are in none: they are not measured.

    ``preparation`` is that of measuring the operators without a row, None if there are none. ``without_cost`` are those
    of the user's names and globs of which no model has a cost on any device. ``other_executions`` are models without a
    cost whose whole is measured in another execution. ``also`` has options with which the models are measured as well.
    """

    rankings: tuple[DeviceRanking, ...]
    not_measured: tuple[str, ...]
    has_operators: bool
    preparation: Preparation | None = None
    choice: Choice = USUAL_CHOICE
    without_cost: tuple[str, ...] = ()
    other_executions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    proposals: Proposals = NO_PROPOSALS
    also: tuple[str, ...] = ()

    @property
    def models(self) -> list[ShownModel]:
        """The models of all devices in the order of the rankings, also those with an incomplete sum only."""
        return [model for ranking in self.rankings for model in ranking.all_models]


def show(request: Request, choice: Choice = USUAL_CHOICE, cache: Path | None = None) -> ShowReport:
    """Return the ranking of the chosen models on each device that has rows.

    Each ranking has one set of conditions (see ``_sets``). A device has a further ranking for models that are named and
    measured under other conditions only. The request's device is not used. ``cache`` is the folder of what predictors
    learned, None for no predictions. Raises NothingMeasuredError: nothing is measured in this execution. UserError: no
    device has that name, or a table is damaged.
    """
    request.database.must_exist()
    request = replace(request, folders=request.folders.read_once(), database=request.database.read_once())
    _refuse_empty_globs(request)
    # Roofs and expected errors rest on all models, so that they do not depend on the choice.
    readable = {config.name: config for config in request.folders.readable() if config.mode == choice.mode}
    named = _of_mode(request, choice, request.models()) if request.names else list(readable.values())
    if not named:
        remedy = f"write mode: {choice.mode} in one, or run {command('predict', 'resnet50', '--mode', choice.mode)}"
        raise UserError(f"--mode {choice.mode}: no config has this mode; {remedy}")
    # Of configs that describe the same, the named one is meant.
    described = {_place(config): config for config in reversed((*named, *readable.values()))}
    if not request.names:
        # Models with a config of their own are meant.
        named = [one for one in named if choice.asked(one) == one and choice.batch in (None, one.batch_size)]
    chosen = [_known(choice.asked(config), described) for config in named]
    for config in named:
        if choice.batch not in (None, config.batch_size) and not config.input_size:
            raise UserError(f"--batch: the inputs of {config.name} are those of its function or config; leave it out")
    variants = [_known(one, described) for one in _variants(chosen, described.values())] if request.names else []
    configs = {config.name: config for config in (*readable.values(), *variants, *chosen)}
    names = {config.name for config in chosen}
    own = {config.name: config for config in (*variants, *chosen)} if request.names else {}
    data = ranking_data(request, list(readable.values()), list(own.values()), names, cache)
    if choice.batch is None:
        # A chosen model that is not counted gives way to the same model at a batch that is.
        sized = [one for one in data.models if one.config.name in names and one.config.input_size]
        counted = {_at_any_batch(one.config) for one in sized if one.counts is not None}
        names -= {one.config.name for one in sized if one.counts is None and _at_any_batch(one.config) in counted}
    is_one_named = len(names) == 1 and len(request.names) == 1 and not is_glob(request.names[0])
    has_operators = is_one_named if choice.operators is None else choice.operators
    rankings: list[DeviceRanking] = []
    for product, candidates in _by_product(request, data, choice).items():
        sets = _sets(data, candidates, names)
        of_product = _rankings(request, product, data, sets, replace(choice, operators=has_operators))
        with_figures = {model.row.name for one in of_product for model in one.models}
        left = {name for name in names - with_figures if not (of_product and name in of_product[0].others)}
        # Costs are learned from inference.
        learned = cache if choice.mode == INFERENCE else None
        if predicted := predicted_models(request, data, candidates, left, learned):
            none = DeviceRanking(product, (), (), board_differences(()), predicted[0].result.conditions)
            first, *more = of_product or [none]
            of_product = [replace(first, predicted=predicted), *more]
        rankings += of_product
    if not (rankings or request.names):
        remedy = f"run {command('measure-models')}"
        raise NothingMeasuredError(f"no config with mode: {choice.mode} is measured on these devices; {remedy}")
    if request.names and choice.device is None:
        rankings = _without_begun(rankings)
    shown = [model for ranking in rankings for model in ranking.all_models]
    names_shown = {model.row.name for model in shown}
    known = {model.row.name for ranking in rankings for model in ranking.models}
    with_cost = [config for config, asked in zip(named, chosen, strict=True) if asked.name in known]
    needed = {name for model in shown if model.needs_rows for name in model.result.missing}
    return ShowReport(
        tuple(rankings),
        tuple(sorted(names - names_shown)) if request.names else (),
        has_operators,
        preparation_of(request, needed) if needed else None,
        choice,
        # Of the user's names and globs.
        without_cost=tuple(
            name for name in request.names if not any(request.folders.is_meant(one, name) for one in with_cost)
        ),
        other_executions=_other_executions(data, names - known, choice) if request.names else {},
        proposals=Proposals.of((configs[name] for name in names), without_folder=names - readable.keys()),
        also=_also(data, named, names_shown, choice),
    )


def rankings_of(request: Request) -> tuple[DeviceRanking, ...]:
    """Return the rankings on each device, or on the chosen one, of each mode; none if nothing is measured."""
    # Rows do not have the index of a GPU.
    device = device_type_of(request.device) if request.device and not request.is_product else request.device
    configs, found = request.models() if request.names else request.folders.readable(), list[DeviceRanking]()
    for choice in (Choice(device=device, mode=mode) for mode in MODES):
        own = [config.name for config in configs if config.mode == choice.mode]
        of_mode = request if len(own) == len(configs) or not request.names else replace(request, names=tuple(own))
        if own:
            with suppress(NothingMeasuredError):
                found += show(of_mode, choice, cache_folder()).rankings
    return tuple(found)


def _refuse_empty_globs(request: Request) -> None:
    """Refuse a glob that matches no model with the names of models that are measured."""
    empty = next((name for name in request.names if is_glob(name) and not request.folders.has_any(name)), None)
    if empty is not None:
        measured = {tuple_key(row.key) for row in request.database.full_model_measurements.rows()}
        configs = request.folders.readable()
        found = sorted({SIZE_IN_NAME.sub("", one.name) for one in configs if model_tuple(one).key in measured})
        raise UserError(f"no model matches {quoted(empty)}; measured are {', '.join(found) or 'none'}")


# Which models are meant


def _of_mode(request: Request, choice: Choice, named: Sequence[ModelConfig]) -> list[ModelConfig]:
    """Return those of the mode that is shown. Raises UserError: a name or glob means only others."""
    found = [config for config in named if config.mode == choice.mode]
    without = [name for name in request.names if not any(request.folders.is_meant(one, name) for one in found)]
    if without:
        (other,) = set(MODES) - {choice.mode}
        shown = f"its config has mode: {other}; add --mode {other} to show it"
        if choice.mode == TRAINING:
            shown += f", or run {command('predict', without[0], '--mode', choice.mode)}"
        raise UserError(*(f"{name}: {shown}" for name in without))
    return found


def _place(config: ModelConfig) -> Hashable:
    """Return what distinguishes shown models: fp32 and TF32 have the same counts."""
    return identity_of(config), config.precision, config.unit


def _known(config: ModelConfig, known: Mapping[Hashable, ModelConfig]) -> ModelConfig:
    """Return the config that describes the same, or this one under the usual name of a case."""
    # A config may be one of a precision, whose folder has it in its name.
    precision = rf"_(?:{'|'.join((*get_args(Precision), TRAINING))})(?=_|$)"
    base = re.split(precision, SIZE_IN_NAME.sub("", config.config_name))[0]
    return known.get(_place(config)) or replace(config, name=usual_name(base, config))


def _variants(chosen: Sequence[ModelConfig], known: Iterable[ModelConfig]) -> list[ModelConfig]:
    """Return models under all conditions that a config can choose, and those of configs at any batch."""
    of_model = grouped(known, _of_any_conditions)
    found: list[ModelConfig] = []
    for config in chosen:
        found += of_model.get(_of_any_conditions(config), ())
        found += [under(config, one) for one in ALL_CHOICES if config.grid is None]
    return found


def _at_any_batch(config: ModelConfig) -> tuple[OperatorTuple, str]:
    """Return what configs have in common that differ in their batch only."""
    size = config.input_size and (1, *config.input_size[1:])
    return model_tuple(replace(config, input_size=size)), config.precision


def _of_any_conditions(config: ModelConfig) -> tuple[OperatorTuple, str]:
    return _at_any_batch(under(config, ChosenConditions()))


# Which conditions


def _by_product(request: Request, data: RankingData, choice: Choice) -> dict[str, list[Conditions]]:
    """Return the sets of conditions to show for each device: as asked for, GPUs first, with the most wholes first."""
    standings = data.standings
    found = [one for one in standings if one.cache == WARM and one.execution == choice.execution_on(one.device_type)]
    if not found:
        others = sorted({one.execution for one in standings})
        remedy = f"add --execution {others[0]}" if others else f"run {command('measure-models')}"
        raise NothingMeasuredError(
            f"{request.database.folder}: nothing is measured{' in this execution' if others else ''}; {remedy}, or "
            "name another folder with --database"
        )
    products = {one.device_product for one in found}
    for device in choice.devices:
        if device is not None and not any(is_meant(device, one) for one in found):
            close = difflib.get_close_matches(device, products, n=1)
            if close and not is_device_name(device):
                raise UserError(f"--device {device}: no row of it; did you mean {close[0]}?")
            if mistake := device_mistake(device):
                raise UserError(f"--device: {mistake}")
            raise UserError(f"--device {device}: no row of it; there are rows of {', '.join(sorted(products))}")
    chosen = [one for one in found if choice.means(one)]
    if not chosen:
        precisions = ", ".join(sorted({one.precision for one in found}))
        raise UserError(f"--precision {choice.precision}: no row in it; there are rows in {precisions}")
    wholes = Counter[str]()
    for conditions, standing in standings.items():
        wholes[conditions.device_product] += standing.wholes

    def order(one: Conditions) -> tuple[int, bool, int, str]:
        asked = next(index for index, device in enumerate(choice.devices) if is_meant(device, one))
        return asked, one.device_type == "cpu", -wholes[one.device_product], one.device_product

    return grouped(sorted(chosen, key=order), lambda one: one.device_product)


@dataclass(frozen=True)
class _Set:
    """A set of conditions, and the names of the models to show under it."""

    conditions: Conditions
    names: tuple[str, ...]


def _sets(data: RankingData, candidates: Sequence[Conditions], names: Collection[str]) -> list[_Set]:
    """Return the sets of conditions under which to show the chosen models, the preferred set first, each model once.

    Any difference of conditions makes figures incomparable (see ``Conditions``), so a ranking has one set: that under
    which the most models have a whole; of equals, with the most measured operators' bytes, then the newest. The other
    sets have only the models that are not measured under a preferred one.
    """

    standings = data.standings

    def suitability(one: Conditions) -> tuple[int, float, str]:
        return standings[one].wholes, standings[one].measured_ratio, standings[one].newest

    left, found = set(names), []
    for conditions in sorted(candidates, key=suitability, reverse=True):
        measured = data.results(conditions, left)
        # Costs of a token are not compared with those of an image.
        for of_unit in grouped(measured, lambda one: Unit.SAMPLE if one.units is None else one.units.unit).values():
            found.append(_Set(conditions, tuple(one.name for one in of_unit)))
        left.difference_update(one.name for one in measured)
    return found


# The rankings


def _rankings(
    request: Request, product: str, data: RankingData, sets: Sequence[_Set], choice: Choice
) -> list[DeviceRanking]:
    ranked_sets = sets if request.names else sets[:1]
    # Without a name, models that were measured under other conditions are listed only; precisions are in ``also``.
    listed = [one for one in sets[len(ranked_sets) :] if one.conditions.precision == sets[0].conditions.precision]
    others = {name: one.conditions for one in listed for name in one.names}
    found = []
    for one in ranked_sets:
        conditions, shown = one.conditions, _shown(data, one, choice)
        summary = data.summary(conditions)
        needs_rows = any(model.needs_rows for model in shown)
        found.append(
            DeviceRanking(
                product,
                models=tuple(model for model in shown if model.row.time_s is not None),
                incomplete=tuple(model for model in shown if model.row.time_s is None),
                boards=summary.boards,
                conditions=conditions,
                others=others,
                differing=differing_fields([one.conditions for one in ranked_sets]),
                # As most operators were measured. Loops of 30 s count as precise, and need no others of that length.
                protocol_options=(summary.protocol_options or USUAL_OPTIONS) if needs_rows else (),
            )
        )
    return found


def _shown(data: RankingData, one: _Set, choice: Choice) -> list[ShownModel]:
    """Return the models to show in order. The errors of their sums rest on all models."""
    summary = data.summary(one.conditions)
    roofline = summary.roofline
    named = data.results(one.conditions, one.names)

    def known() -> tuple[list[OperatorCount], Measurements]:
        every = data if data.overview is None else data.overview.everything
        own = (count for model in data.models if model.counts is not None for count in model.counts.counts)
        return [*every.operator_counts.values(), *own], every.evidence.measurements

    models = {model.name: model for model in completed(named, known)}
    idle_w = data.idle_powers_w
    rows = [
        ranking_row(
            model,
            summary.errors if model.correction is None else summary.errors_corrected,
            roofline,
            idle_w.get(model.board or ""),
        )
        for model in models.values()
    ]
    found = []
    for row in ranked(rows, choice.by):
        model = models[row.name]
        operators = operator_costs(model, roofline, choice.by) if choice.operators else ()
        kinds = kind_costs(model, roofline, choice.by)
        found.append(ShownModel(row, roofline, kinds, operators, model))
    return found


def _without_begun(rankings: Sequence[DeviceRanking]) -> list[DeviceRanking]:
    """Leave out partial sums, and predictions, of models that another device has completely; no device is asked for."""
    complete = {model.row.name for one in rankings for model in one.models if not model.needs_rows}
    kept = [
        replace(
            one,
            models=tuple(model for model in one.models if not (model.needs_rows and model.row.name in complete)),
            incomplete=tuple(model for model in one.incomplete if model.row.name not in complete),
            predicted=tuple(run for run in one.predicted if run.result.name not in complete),
        )
        for one in rankings
    ]
    return [one for one in kept if one.all_models or one.predicted]


def _other_executions(data: RankingData, names: Collection[str], choice: Choice) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for model in (one for one in data.models if one.config.name in names):
        meant = [row.conditions for row in model.wholes if choice.means(row.conditions)]
        for execution in {one.execution for one in meant if one.execution != choice.execution_on(one.device_type)}:
            found.setdefault(execution, []).append(model.config.name)
    return {execution: tuple(models) for execution, models in found.items()}


def _also(data: RankingData, named: Sequence[ModelConfig], shown: Collection[str], choice: Choice) -> tuple[str, ...]:
    """Return the options under which the models ``named`` without options are also measured on all devices."""

    def options(config: ModelConfig) -> dict[str, str]:
        batch = {"--batch": str(config.input_size[0])} if config.input_size else {}
        return {**batch, "--precision": config.precision, "--memory-format": config.memory_format}

    places = set(map(_of_any_conditions, named))
    fitting = [one for one in data.models if _of_any_conditions(one.config) in places]
    others = [one for one in fitting if one.config.name not in shown]
    measured = [one.config for one in others if all(data.has_cost(one, device) for device in choice.devices)]
    measured.sort(key=lambda one: (one.precision, one.memory_format != CONTIGUOUS, one.input_size[:1]))
    usual = [config for config in named if config.name in shown] or named
    own = {item for config in usual for item in options(config).items()}
    texts = (" ".join(" ".join(item) for item in options(config).items() if item not in own) for config in measured)
    return tuple(dict.fromkeys(filter(None, texts)))
