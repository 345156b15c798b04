"""The predicted cost of a model on a device, and the learning before it, from the rows of a database."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from opcost.columns import Form, form_of
from opcost.comparing.corrections import corrections_under
from opcost.comparing.model_result import REPRESENTATIVE_RATIO, Evidence, ModelResult
from opcost.comparing.predicted_run import (
    ErrorsOfRuns,
    Knowledge,
    PredictedCalls,
    PredictedRun,
    Range,
    run_under,
    with_usual_zeros,
)
from opcost.comparing.ranking import sum_errors
from opcost.errors import UserError
from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.conditions import WARM, Conditions, usual_execution
from opcost.measuring.data_sheets import SHEETS, DataSheet
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES
from opcost.measuring.record import MeasurementRow, is_doubtful, time_of
from opcost.measuring.setting import are_chosen, is_meant, is_part_of
from opcost.operators.counts import EVERYTHING, OperatorCounts, case_key, of_operators, of_phase, select
from opcost.operators.model_inputs import Units
from opcost.operators.training import PARTS
from opcost.operators.tuples import Phase
from opcost.prediction.learned_costs import LearnedCosts, Lesson, ModelCalls, from_bytes, to_bytes
from opcost.prediction.needed_memory import NeededMemory, needed_memory
from opcost.prediction.samples import (
    RECURRENT,
    Card,
    Samples,
    card_of,
    cases_of,
    family_of,
    feature_names,
    samples_of,
)
from opcost.progress import Progress, reported
from opcost.running.expected_times import numbers_of_rows
from opcost.running.request import Request, RunRequest
from opcost.running.shipped_counts import shipped_counts
from opcost.stages.make_configs import config_of, own_first
from opcost.stages.ranking_data import RankingData, named_as, read_ranking_data
from opcost.stages.wanted_model import WantedModel, known_config, pickled
from opcost.storage.configs import GRID_NAME, ModelConfig, model_tuple
from opcost.storage.database import Database
from opcost.storage.files import keep, kept, replace_file
from opcost.storage.schemas import is_listable, tuples_text
from opcost.storage.table import CsvTable
from opcost.summing.summation import EnergyBasis, Measurements, best_of_each_board
from opcost.units import duration, percent, some_of
from opcost.version import __version__, version_of

BATCH_ARGUMENTS = ("batch", "batch_size")
"""Arguments of a user's function that are the number of samples of a run."""

MOST_PREDICTED = 20
"""The most models that are predicted for a ranking: each takes some 10 ms."""


@dataclass(frozen=True)
class PredictionRequest:
    """The arguments of a prediction.

    ``batch`` replaces that of the model's input; None leaves it. ``device`` is a part of a product's name, None for the
    one with the most rows. ``measure_next`` is the number of tuples in the list that is written. ``counted`` are the
    config and the counts of a model that is an object, None for one that is found by its name.
    """

    wanted: WantedModel
    device: str | None = None
    execution: str | None = None
    batch: int | None = None
    measure_next: int = 0
    counted: tuple[ModelConfig, OperatorCounts] | None = None


@dataclass(frozen=True)
class Prediction:
    """The cost of one run of a model: that of its measured whole if there is one, else the predicted cost.

    The whole is the row that ``opcost show`` has, too; ``boards`` are the model's sound wholes, of all boards.
    ``samples`` is the number of measured operators that were learned from. ``memory`` is the least that a run needs.
    ``written`` is the path of the list of tuples, None if none was wanted. ``phases`` are the ``PARTS`` of a training
    step, in order, each measured with the whole or predicted; they are empty of an inference pass.
    """

    run: PredictedRun
    samples: int
    memory: NeededMemory
    written: str | None = None
    boards: tuple[MeasurementRow, ...] = ()
    phases: tuple[Prediction, ...] = ()

    @property
    def result(self) -> ModelResult:
        return self.run.result

    @property
    def phase(self) -> Phase:
        """The phase of all its operators: that of a part of a step, or of a whole run."""
        phases = {count.phase for count in self.result.counts.counts}
        return phases.pop() if len(phases) == 1 else Phase.STEP

    @property
    def whole(self) -> MeasurementRow | None:
        return self.result.whole

    @property
    def time_s(self) -> Range:
        """The time of one run, with its interval of 90 %; that of a measured run has what other boards took."""
        if self.whole is None:
            return self.run.time_s
        return Range.of(time_of(self.whole)).including(*(row.measurement.time_s for row in self.boards))

    @property
    def energy_j(self) -> Range | None:
        """The energy of one run with its interval of 90 %, None if it is unknown: at 50 °C where that is known."""
        if self.whole is None:
            return self.run.energy_j
        energy = self.basis.energy_of(self.whole)
        others = (value_of(self.basis.energy_of(row)) for row in self.boards)
        return None if energy is None else Range.of(energy).including(*(one for one in others if one is not None))

    @property
    def basis(self) -> EnergyBasis:
        """The basis of the energy. Samples are normalised where they can be."""
        is_known = self.whole is not None or self.result.cost.parts
        return self.result.basis if is_known else EnergyBasis.NORMALISED

    @property
    def power_w(self) -> float | None:
        return None if self.energy_j is None else self.energy_j.value / self.time_s.value

    @property
    def other_torch(self) -> str | None:
        """The version of torch that is installed, None if there is none or rows are of the same release."""
        here, rows = version_of("torch"), self.result.conditions.torch_version
        return None if here is None or here.split(".")[:2] == rows.split(".")[:2] else here

    def per_unit(self, cost: Range | None) -> Range | None:
        """Return the part of a cost that one unit has, None if the units or the cost is unknown."""
        return None if self.result.units is None or cost is None else cost.times(1 / self.result.units.number)


def predict(request: RunRequest, wish: PredictionRequest, cache: Path, progress: Progress) -> Prediction:
    """Return the cost of a model, see ``predictions``."""
    return next(predictions(request, [wish], cache, progress))


def predictions(
    request: RunRequest, wishes: Sequence[PredictionRequest], cache: Path, progress: Progress
) -> Iterator[Prediction]:
    """Yield the cost of each model, measured or predicted; configs and what was learned are read once.

    ``cache`` is the folder of what was learned. Raises UserError: a model cannot be counted, or nothing is measured
    under such conditions.
    """
    database, configs = request.database, own_first(request.folders)
    ground, chains = Ground.of(request), database.calls_in_chains.rows()
    known: dict[Conditions, Knowledge] = {}
    for wish in wishes:
        config, own = wish.counted or (_config_of(request, wish, configs), None)
        under = ground.conditions_for(wish.device, wish.execution, config.precision)
        learned = known.get(under) or trained_before(request, ground, under, cache, configs)
        if learned is None:
            # Before the model is counted, which may take a minute.
            require_packages()
        counts = computing_counts(request, config, progress, own)
        if config.training is not None and under.device_type != counts.device_type:
            refuse_recurrent(config, counts)
        learned = known[under] = learned or trained(request, ground, under, cache, progress)
        # Of other operators rows with any attention are the same.
        conditions = under.with_attention(config.attention)
        rows = Evidence(measurements_of(database, counts), chains)
        of_model = database.full_model_measurements.rows(of_operators([model_tuple(config)]))
        best = [row for row in best_of_each_board(of_model, with_parts=True) if row.conditions == conditions]
        wholes = [row for row in best if not row.phase.is_part]
        whole = rows.result(select(counts, (EVERYTHING,)), wholes, conditions).whole if wholes else None
        counts = with_usual_zeros(counts)
        run = run_under(counts, rows, conditions, learned, whole)
        parts = [] if config.training is None else phases_of(counts, rows, learned, run, best)
        samples = learned.learned.samples
        # A user's function may have got the batch as an argument.
        given = (value for name, value in config.arguments if name in BATCH_ARGUMENTS)
        shape = config.shape or next(((value,) for value in given if type(value) is int and value > 0), ())
        units = config.units or (Units(shape[0]) if shape else None)
        written = _write_next(request, config, run.calls, wish.measure_next) if wish.measure_next else None
        yield Prediction(
            run=replace(run, result=replace(run.result, name=config.name, input_size=shape, units=units)),
            samples=samples,
            memory=needed_memory(counts, conditions),
            written=written,
            boards=tuple(row for row in wholes if not is_doubtful(row)),
            phases=tuple(Prediction(one, samples, needed_memory(one.result.counts, conditions)) for one in parts),
        )


def config_and_counts(
    request: RunRequest, wish: PredictionRequest, progress: Progress
) -> tuple[ModelConfig, OperatorCounts]:
    """Return the config of a model, perhaps one that is not written, and its counts. Raises UserError: see there."""
    config = _config_of(request, wish, own_first(request.folders))
    return config, computing_counts(request, config, progress)


def _config_of(request: RunRequest, wish: PredictionRequest, configs: Sequence[ModelConfig]) -> ModelConfig:
    return known_config(request.folders, wish.wanted, wish.batch) or _new_config(request, wish, configs)


def refuse_recurrent(config: ModelConfig, counts: OperatorCounts) -> None:
    """Refuse a step with recurrent layers: their backward is one operation on a GPU, elsewhere some for each time."""
    names = sorted({one.operator.short_name for one in counts.counts if one.operator.short_name in RECURRENT})
    if names:
        text = f"the backward of {' and '.join(names)} is another on a GPU than where it was counted"
        counting = command("count", config.name, has_code=config.code is not None)
        raise UserError(f"{config.name}: {text}; run {counting} on the GPU, and predict from its counts")


def phases_of(
    counts: OperatorCounts,
    rows: Evidence,
    known: Knowledge,
    step: PredictedRun,
    measured: Sequence[MeasurementRow],
) -> list[PredictedRun]:
    """Return the ``PARTS`` of a training step, each with its row of the whole's board among ``measured``, if any."""
    found, result = [], step.result
    selection = select(counts, (EVERYTHING,))
    for phase in PARTS:
        own = of_phase(selection, phase).kept
        of_board = (row for row in measured if row.phase is phase and row.circumstances.device_uuid == result.board)
        part = None if result.whole is None else next(of_board, None)
        if own.counts:
            found.append(run_under(own, rows, result.conditions, known, part))
    return found


def measurements_of(database: Database, counts: OperatorCounts) -> Measurements:
    """Return the rows of a model's operators under any conditions. Raises UserError: one of these rows is damaged."""
    wanted = of_operators(count.operator for count in counts.counts)
    return Measurements(database.operator_measurements.rows(wanted))


def _new_config(request: RunRequest, wish: PredictionRequest, known: Sequence[ModelConfig]) -> ModelConfig:
    """Return the config that describes the model and has the batch, perhaps one that is not written."""
    folders, allow_code = request.folders, request.allow_code
    config = known_config(folders, wish.wanted, None) or config_of(folders, wish.wanted, allow_code, known)
    if wish.batch in (None, config.batch_size):
        return config
    same = WantedModel.of(config)
    if same is None or not config.input_size:
        remedy = f"give the batch there, or as an argument of the function: --argument batch={wish.batch}"
        raise UserError(f"--batch: the inputs of {config.name} are those of its function or config; {remedy}")
    return config_of(folders, replace(same, input_size=(wish.batch, *config.input_size[1:])), allow_code, known)


def computing_counts(
    request: RunRequest, config: ModelConfig, progress: Progress, own: OperatorCounts | None = None
) -> OperatorCounts:
    """Return the counts of operators that compute: ``own`` ones, shipped, pickled, or of a run.

    Raises UserError: there are none.
    """
    counts = own or shipped_counts(request.database, [config]).get(config.name) or pickled(config, None)
    if counts is None:
        from opcost.stages.count import count_in_memory

        counts = count_in_memory(request, config, progress)
    if counts.covered_ratio < REPRESENTATIVE_RATIO:
        share = percent(1 - counts.covered_ratio)
        text = f"{share} of its FLOPs or bytes are in no tuple ({some_of(counts.outside)}), so that no sum predicts it"
        raise UserError(f"{config.name}: {text}; count it again, or name these operations in an issue")
    kept = select(counts, (EVERYTHING,)).kept
    if not kept.counts:
        raise UserError(f"{config.name}: no operator of it computes anything, so there is nothing to predict")
    return kept


@dataclass(frozen=True)
class Ground:
    """The ground of predictions: the numbers of operators' rows by their conditions, and the data sheets by product."""

    numbers: Mapping[Conditions, int]
    sheets: Mapping[str, DataSheet]

    @staticmethod
    def of(request: Request) -> Ground:
        return Ground(numbers_of_rows(request.database.operator_measurements), SHEETS)

    def conditions_for(self, device: str | None, execution: str | None, precision: str) -> Conditions:
        """Return the conditions with the most rows among those that are wanted, else what they would be.

        ``device`` is a part of a product's name, None for the product with the most rows; ``execution`` is None for
        the usual one of the device. Raises UserError: there is nothing to start from.
        """
        most = sorted(self.numbers, key=lambda one: -self.numbers[one])
        of_device = [one for one in most if is_meant(device, one)]
        sheets = [sheet for name, sheet in self.sheets.items() if device is not None and is_part_of(device, name)]
        like = next(iter(of_device or (one for one in most if sheets and one.device_type == "cuda")), None)
        if like is None:
            rows = ", ".join(sorted({one.device_product for one in most})) or "no device"
            text = f"no row and no data sheet of it; there are rows of {rows}, and sheets of {some_of([*self.sheets])}"
            raise UserError(f"--device {device or 'cuda'}: {text}")
        wanted = replace(
            like, precision=precision, cache=WARM, execution=execution or usual_execution(like.device_type)
        )
        if not of_device:
            sheet = sheets[0]
            wanted = replace(
                wanted,
                device_product=sheet.product,
                device_memory_bytes=sheet.memory_bytes,
                device_power_limit_w=sheet.power_limit_w,
            )
        start = self.nearest_to(wanted)
        names = ("device_type", "device_product", "precision", "execution")
        is_measured = all(getattr(start, name) == getattr(wanted, name) for name in names)
        return start if is_measured else wanted

    def nearest_to(self, wanted: Conditions) -> Conditions:
        """Return the conditions with rows whose rates can be scaled to those of others, which have the most alike.

        Raises UserError: there are none.
        """
        fitting = [one for one in self.pool_of(wanted) if self.can_scale(one, wanted)]
        if not fitting:
            there = ", ".join(sorted({f"{one.execution} on {one.device_product}" for one in self.numbers})) or "nothing"
            raise UserError(f"no operator was measured in {wanted.execution} on a device like this, only in {there}")
        sizes = {**DTYPES, **AUTOCAST_DTYPES}

        def unlikeness(one: Conditions) -> tuple[bool, bool, bool, int]:
            is_other_size = (one.precision in sizes) != (wanted.precision in sizes)
            is_other_card = one.device_product != wanted.device_product
            return one.precision != wanted.precision, is_other_size, is_other_card, -self.numbers[one]

        return min(fitting, key=unlikeness)

    def pool_of(self, conditions: Conditions) -> list[Conditions]:
        """Return the conditions whose rows are learned from together: of a type of device, in one execution."""
        how = attrgetter("device_type", "execution", "cache")
        return sorted((one for one in self.numbers if how(one) == how(conditions)), key=attrgetter("key"))

    def can_scale(self, one: Conditions, other: Conditions) -> bool:
        products = {one.device_product, other.device_product}
        return len(products) == 1 or products <= self.sheets.keys()

    def scaled(self, card: Card, start: Conditions, wanted: Conditions) -> Card:
        """Return the card of conditions without enough rows, by the data sheets; without these it is the same."""
        own, other = self.sheets.get(start.device_product), self.sheets.get(wanted.device_product)
        if own is None or other is None:
            return card
        found = card.scaled(own, start.precision, other, wanted.precision)
        return replace(found, power_limit_w=wanted.device_power_limit_w or found.power_limit_w)

    def multiprocessors(self, conditions: Conditions) -> int:
        if conditions.device_type == "cpu":
            return conditions.cpu_threads or 1
        sheet = self.sheets.get(conditions.device_product)
        return USUAL if sheet is None else sheet.multiprocessors


def _write_next(request: Request, config: ModelConfig, calls: Sequence[PredictedCalls], number: int) -> str:
    """Write the most uncertain tuples as a list for block 2. Raises UserError: the folder exists, or none fits."""
    name = f"{config.name}_next"
    operators = list(dict.fromkeys(one.case.operator for one in calls if is_listable(one.case.operator)))[:number]
    if not operators:
        raise UserError(f"--measure-next: {config.name} has no predicted operator that a list can have")
    if not request.folders.is_free(name):
        raise UserError(f"{request.folders.path_of(name).parent}: exists already; measure it, or remove it")
    comments = [f"The operator tuples of {config.name} whose predicted costs are least certain."]
    path = request.folders.own / name / GRID_NAME
    replace_file(path, tuples_text(operators, comments).encode())
    return str(path)


def predicted_models(
    request: Request, data: RankingData, candidates: Sequence[Conditions], names: Collection[str], cache: Path | None
) -> tuple[PredictedRun, ...]:
    """Return the predicted costs of models, the first by name. Nothing is counted, and nothing is learned.

    Models are left out that are not counted, or for whose device and precision nothing is learned from the present
    rows. ``candidates`` are the conditions to choose from; ``cache`` is the folder of what was learned, if any.
    """
    models = [one for one in data.models if one.config.name in names and one.counts and one.counts.counts]
    if cache is None or not models:
        return ()
    ground = Ground.of(request)
    known: dict[Conditions, Knowledge | None] = {}
    # Reading them takes a second.
    configs = request.folders.sound_configs()
    found: list[PredictedRun] = []
    for model in sorted(models, key=lambda one: one.config.name):
        fitting = [one for one in candidates if are_chosen(one, model.config)]
        if not fitting:
            continue
        conditions = max(fitting, key=lambda one: ground.numbers.get(one, 0))
        if conditions not in known:
            known[conditions] = trained_before(request, ground, conditions, cache, configs)
        learned = known[conditions]
        if learned is not None and model.counts is not None:
            run = run_under(model.counts, data.evidence, conditions, learned)
            found.append(replace(run, result=replace(run.result, **named_as(model.config))))
        if len(found) == MOST_PREDICTED:
            break
    return tuple(found)


# Learned costs under one set of conditions, from the cache or trained on the spot


FEWEST_SAMPLES = 3
"""The fewest measured operators that a prediction is learned from: the rates of products, of the memory and of calls
are three. Intervals hold with so few, too (``docs/log/prediction.md``)."""

TRAINING_S = 75.0
"""The expected time of training on 12,000 samples with one core."""

READING_S = 10.0
"""The expected time before it, in which rows and counts are read."""

PACKAGES = ("sklearn", "scipy", "threadpoolctl")
"""The modules of the extra ``predict`` of ``pyproject.toml``, which only training needs."""

USUAL = 108
"""The multiprocessors of a GPU without a data sheet. Only the features of tiles and waves use them."""

ENOUGH_FOR_RATES = 50
"""The fewest samples whose highest rates are those of a card, if there are others to scale."""


def require_packages() -> None:
    """Check that the packages for training are installed. Raises ModuleNotFoundError: one is missing."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


Learned: TypeAlias = tuple[LearnedCosts, Mapping[str, ErrorsOfRuns]]
"""Learned costs, and the errors of sums by the keys of conditions."""


def trained(request: Request, ground: Ground, conditions: Conditions, folder: Path, progress: Progress) -> Knowledge:
    """Return the learned costs under some conditions, which a folder keeps until the rows change.

    Raises UserError: there are too few rows, or a table is damaged. ModuleNotFoundError: a package is missing.
    """
    # Rows that are added during the training are not among what it learns.
    pool = ground.pool_of(conditions)
    name = _name(request, pool, request.folders.sound_configs())
    found = kept_costs(name, folder)
    if found is None:
        require_packages()
        found = _train(request, ground, pool, progress)
        learned, errors = found
        keep(name, to_bytes((learned, _errors_form().write(errors))), folder, f"learned-{_shared(pool)}-*")
    return knowledge(found, ground, conditions)


def trained_before(
    request: Request, ground: Ground, conditions: Conditions, folder: Path, configs: Iterable[ModelConfig]
) -> Knowledge | None:
    """Return the learned costs that are kept for the present rows and models, None if there are none."""
    pool = ground.pool_of(conditions)
    if not any(folder.glob(f"learned-{_shared(pool)}-*")):
        # The name needs all rows and configs.
        return None
    found = kept_costs(_name(request, pool, configs), folder)
    return None if found is None else knowledge(found, ground, conditions)


RUNS = (Phase.INFERENCE, Phase.STEP)
"""The phases of whole runs, whose sums have errors of their own."""


def knowledge(found: Learned, ground: Ground, conditions: Conditions) -> Knowledge:
    """Return what is known under some conditions, with the rates of the nearest ones if these have too few rows."""
    learned, errors = found
    if conditions.key in learned.cards:
        return Knowledge(learned.under(conditions.key), errors[conditions.key])
    known = {one: number for one, number in ground.numbers.items() if one.key in learned.cards}
    start = replace(ground, numbers=known).nearest_to(conditions)
    card = ground.scaled(learned.cards[start.key], start, conditions)
    return Knowledge(learned.under(start.key, card), errors[start.key], start)


def _errors_form() -> Form:
    return form_of(Mapping[str, ErrorsOfRuns])


def kept_costs(name: str, folder: Path) -> Learned | None:
    """Return what a cache has under a name, None if it has nothing, or is damaged or of another version."""
    content = kept(name, folder)
    if content is None:
        return None
    try:
        learned, sum_errors = from_bytes(content)
        errors = _errors_form().read(sum_errors)
        # Arrays of another form would fail in the midst of use.
        learned.try_all()
        is_whole = isinstance(learned, LearnedCosts) and learned.cards.keys() == errors.keys()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    are_whole = (of_runs.keys() == {*RUNS} for of_runs in errors.values())
    of_both = (own.keys() == {True, False} for of_runs in errors.values() for own in of_runs.values())
    return (learned, errors) if is_whole and all(are_whole) and all(of_both) else None


def _train(request: Request, ground: Ground, pool: Sequence[Conditions], progress: Progress) -> Learned:
    logging.getLogger(__name__).warning(
        "learning once from the measured operators, until rows change: about %s", duration(READING_S + TRAINING_S)
    )
    data = read_ranking_data(request, request.folders.sound_configs(), (), under=pool)
    known = {one: training_data(data, one) for one in pool}
    known = {one: own for one, own in known.items() if len(own.samples) >= FEWEST_SAMPLES}
    if not known:
        number = sum(ground.numbers[one] for one in pool)
        raise UserError(f"{number} measured operators; a prediction needs {FEWEST_SAMPLES} or more: measure models")
    # Only training needs scikit-learn.
    from opcost.learners import learned_from

    with reported(progress, 1, [TRAINING_S]):
        progress.begin("training")
        learned = learned_from(lessons_of(known, ground))
        progress.finish(f"learned from {learned.samples} measured operators")
    return learned, {one.key: own.sum_errors for one, own in known.items()}


def lessons_of(known: Mapping[Conditions, TrainingData], ground: Ground) -> dict[str, Lesson]:
    """Return the samples under each conditions by their keys, with the card's rates: scaled ones if samples are few."""
    numbers = {one: len(own.samples) for one, own in known.items()}
    enough = {one: number for one, number in numbers.items() if number >= ENOUGH_FOR_RATES}
    with_rates = replace(ground, numbers=enough or numbers)
    lessons: dict[Conditions, Lesson] = {}
    for one in sorted(known, key=lambda one: one not in with_rates.numbers):
        own = known[one]
        if one not in with_rates.numbers and any(with_rates.can_scale(other, one) for other in enough):
            start = with_rates.nearest_to(one)
            card = ground.scaled(lessons[start].card, start, one)
        else:
            card = card_of(own.samples, ground.multiprocessors(one), one.device_power_limit_w)
        lessons[one] = Lesson(own.samples, tuple(own.wholes.values()), card)
    return {one.key: lesson for one, lesson in lessons.items()}


def _shared(pool: Sequence[Conditions]) -> str:
    """Return the text of what conditions have in common that are learned from together."""
    return f"{pool[0].device_type}-{pool[0].execution}" if pool else "nothing"


def _name(request: Request, pool: Sequence[Conditions], configs: Iterable[ModelConfig]) -> str:
    models = {model_tuple(config).key for config in configs}
    return f"learned-{_shared(pool)}-{training_fingerprint(request.database, pool, models)}.npz"


LEARNING_VERSION = 12
"""The version of what is learned from the same rows. It grows with each change of methods or intervals."""


def training_fingerprint(database: Database, pool: Sequence[Conditions], models: Iterable[str] = ()) -> str:
    """Return 16 hexadecimal digits that depend on the rows under any of these conditions, and on the version.

    ``models`` are the keys of those whose wholes are learned from. Raises UserError: the table of cache chains is
    damaged.
    """
    version = f"{__version__} {LEARNING_VERSION} {[one.key for one in pool]} {feature_names()} {sorted(models)}"
    found = hashlib.sha256(version.encode())
    suffixes = tuple(f"-{one.key}".encode() for one in pool)
    operators = set()
    for line in _lines(database.operator_measurements):
        key = line.partition(b",")[0]
        if key.endswith(suffixes):
            operators.add(key.partition(b"-")[0])
            found.update(line)
    for line in _lines(database.full_model_measurements):
        if line.partition(b",")[0].endswith(suffixes):
            found.update(line)
    for line in _lines(database.model_operators):
        # The second cell is the key of the model's operator.
        if line.partition(b",")[2].partition(b",")[0].partition(b"-")[0] in operators:
            found.update(line)
    chains = database.calls_in_chains.rows()
    for one in pool:
        found.update(repr(corrections_under(chains, one)).encode())
    return found.hexdigest()[:16]


def _lines(table: CsvTable[Any]) -> Iterator[bytes]:
    for path in table.files:
        with path.open("rb") as file:
            yield from file


@dataclass(frozen=True)
class TrainingData:
    """Samples, the calls among them of measured wholes by name, and the errors of sums as ``Knowledge`` has them."""

    samples: Samples
    wholes: Mapping[str, ModelCalls]
    sum_errors: ErrorsOfRuns


def training_data(data: RankingData, conditions: Conditions) -> TrainingData:
    """Return what there is to learn from under some conditions. Sound wholes whose calls are all samples have them."""
    models = {model.config.name: model.counts for model in data.models if model.counts is not None}
    families: dict[str, set[str]] = {}
    for counts in models.values():
        for count in counts.counts:
            families.setdefault(count.operator.key, set()).add(family_of(counts.model))
    cases = cases_of(data.operator_rows, data.operator_counts, conditions)
    frozen = {key: frozenset(names) for key, names in families.items()}
    of_case = {case_key(key): place for place, key in enumerate(cases)}
    results, wholes = data.results(conditions), {}
    for one in results:
        parts = one.cost.parts
        is_sound = one.whole is not None and one.is_complete and not one.is_whole_flagged
        if is_sound and all(part.case.key in of_case for part in parts):
            places = tuple(of_case[part.case.key] for part in parts)
            family = family_of(models[one.name].model)
            wholes[one.name] = ModelCalls(family, places, tuple(part.occurrences for part in parts))
    # Errors of training steps are none of inference.
    errors = {
        phase: sum_errors([one for one in results if bool(one.phases) is (phase is Phase.STEP)]) for phase in RUNS
    }
    return TrainingData(samples_of(cases, data.operator_counts, frozen), wholes, errors)
