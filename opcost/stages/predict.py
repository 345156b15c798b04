"""The predicted cost of a model on a device, and the learning before it, from the rows of a database."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opcost.comparing.corrections import corrections_under
from opcost.comparing.model_result import REPRESENTATIVE_RATIO, Evidence, ModelResult
from opcost.comparing.predicted_run import (
    Knowledge,
    PredictedCalls,
    PredictedRun,
    Range,
    run_under,
    with_usual_zeros,
)
from opcost.comparing.ranking import Differences, SumErrors, sum_errors
from opcost.errors import UserError
from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.conditions import WARM, Conditions, usual_execution
from opcost.measuring.record import MeasurementRow, is_doubtful, time_of
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.counts import (
    EVERYTHING,
    OperatorCounts,
    case_key,
    conditions_key,
    of_operators,
    of_phase,
    select,
)
from opcost.operators.model_inputs import Units
from opcost.operators.training import PARTS
from opcost.operators.tuples import Phase
from opcost.prediction.learned_costs import LearnedCosts, ModelCalls, from_bytes, to_bytes
from opcost.prediction.needed_memory import NeededMemory, needed_memory
from opcost.prediction.samples import RECURRENT, Samples, cases_of, family_of, feature_names, samples_of
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
from opcost.version import __version__

BATCH_ARGUMENTS = ("batch", "batch_size")
"""Arguments of a user's function that are the number of samples of a run."""

MOST_PREDICTED = 20
"""The most models that are predicted for a ranking: each takes some 10 ms."""


@dataclass(frozen=True)
class PredictionRequest:
    """The arguments of a prediction.

    ``batch`` replaces that of the model's input; None leaves it. ``device`` is a part of a product's name, None for the
    one with the most rows. ``measure_next`` is the number of tuples in the list that is written.
    """

    wanted: WantedModel
    device: str | None = None
    execution: str | None = None
    batch: int | None = None
    measure_next: int = 0


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
    numbers, chains = numbers_of_rows(database.operator_measurements), database.calls_in_chains.rows()
    known: dict[Conditions, Knowledge] = {}
    for wish in wishes:
        found = known_config(request.folders, wish.wanted, wish.batch)
        config = found or _new_config(request, wish, configs)
        conditions = conditions_for(numbers, wish.device, wish.execution, config.precision)
        learned = known.get(conditions) or trained_before(request, conditions, cache, configs)
        if learned is None:
            # Before the model is counted, which may take a minute.
            require_packages()
        counts = computing_counts(request, config, progress)
        if config.training is not None and conditions.device_type != counts.device_type:
            refuse_recurrent(config, counts)
        learned = known[conditions] = learned or trained(request, conditions, cache, progress)
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


def computing_counts(request: RunRequest, config: ModelConfig, progress: Progress) -> OperatorCounts:
    """Return the counts of operators that compute: shipped, pickled, or of a run. Raises UserError: there are none."""
    counts = shipped_counts(request.database, [config]).get(config.name) or pickled(config, None)
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


def conditions_for(
    numbers: Mapping[Conditions, int], device: str | None, execution: str | None, precision: str
) -> Conditions:
    """Return the conditions with the most rows of operators among those that are wanted.

    ``numbers`` are of rows. ``device`` is a part of a product's name, None for the product with the most rows;
    ``execution`` is None for the usual one of the device. Raises UserError: there is none.
    """
    of_device = {one: number for one, number in numbers.items() if is_meant(device, one)}
    if not of_device and device is not None:
        refuse_unknown(device, (one.device_product for one in numbers))
    fitting = {
        one: number
        for one, number in of_device.items()
        if one.precision == precision
        and one.cache == WARM
        and one.execution == (execution or usual_execution(one.device_type))
    }
    if not fitting:
        precisions = ", ".join(sorted({one.precision for one in of_device})) or "nothing"
        place = "the database" if device is None else device
        raise UserError(f"--precision {precision}: no measured operators of {place} in it, only in {precisions}")
    return max(fitting, key=lambda one: fitting[one])


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
    numbers = Counter(conditions_key(row.key) for row in data.operator_rows)
    known: dict[Conditions, Knowledge | None] = {}
    # Reading them takes a second.
    configs = request.folders.sound_configs()
    found: list[PredictedRun] = []
    for model in sorted(models, key=lambda one: one.config.name):
        fitting = [one for one in candidates if one.precision == model.config.precision]
        if not fitting:
            continue
        conditions = max(fitting, key=lambda one: numbers[one.key])
        if conditions not in known:
            known[conditions] = trained_before(request, conditions, cache, configs)
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

TRAINING_S = 30.0
"""The expected time of training on 7,000 samples with one core."""

READING_S = 10.0
"""The expected time before it, in which rows and counts are read."""

PACKAGES = ("sklearn", "scipy", "threadpoolctl")
"""The modules of the extra ``predict`` of ``pyproject.toml``, which only training needs."""

OF_PRODUCTS: Mapping[str, int] = MappingProxyType(
    {
        "NVIDIA B200": 148,
        "NVIDIA H200": 132,
        "NVIDIA H100 80GB HBM3": 132,
        "NVIDIA H100 PCIe": 114,
        "NVIDIA A100-SXM4-80GB": 108,
        "NVIDIA A100-SXM4-40GB": 108,
        "NVIDIA A100-PCIE-40GB": 108,
        "NVIDIA A100 80GB PCIe": 108,
        "NVIDIA A30": 56,
        "NVIDIA A10": 72,
        "NVIDIA L40S": 142,
        "NVIDIA L4": 58,
        "NVIDIA GeForce RTX 4090": 128,
        "NVIDIA GeForce RTX 3090": 82,
        "NVIDIA RTX A6000": 84,
        "Tesla V100-SXM2-32GB": 80,
        "Tesla V100-SXM2-16GB": 80,
        "Tesla T4": 40,
    }
)
"""The multiprocessors of GPUs; a CPU has its threads instead."""

USUAL = 108
"""The number for a GPU that is not listed. Only the features of tiles and waves use it."""


def require_packages() -> None:
    """Check that the packages for training are installed. Raises ModuleNotFoundError: one is missing."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def trained(request: Request, conditions: Conditions, folder: Path, progress: Progress) -> Knowledge:
    """Return the learned costs for the rows under some conditions, which a folder keeps until the rows change.

    Raises UserError: there are too few rows, or a table is damaged. ModuleNotFoundError: a package is missing.
    """
    # Rows that are added during the training are not among what it learns.
    name = _name(request, conditions, request.folders.sound_configs())
    found = kept_costs(name, folder)
    if found is None:
        require_packages()
        found = _train(request, conditions, progress)
        sum_errors = {
            str(phase): {is_corrected: astuple(one) for is_corrected, one in own.items()}
            for phase, own in found.sum_errors.items()
        }
        packed = found.learned, sum_errors
        keep(name, to_bytes(packed), folder, f"learned-{conditions.key}-*")
    return found


def trained_before(
    request: Request, conditions: Conditions, folder: Path, configs: Iterable[ModelConfig]
) -> Knowledge | None:
    """Return the learned costs that are kept for the present rows and models, None if there are none."""
    return kept_costs(_name(request, conditions, configs), folder)


RUNS = (Phase.INFERENCE, Phase.STEP)
"""The phases of whole runs, whose sums have errors of their own."""


def kept_costs(name: str, folder: Path) -> Knowledge | None:
    """Return what a cache has under a name, None if it has nothing, or is damaged or of another version."""
    content = kept(name, folder)
    if content is None:
        return None
    try:
        learned, sum_errors = from_bytes(content)
        errors = {
            Phase(phase): {
                is_corrected: SumErrors(Differences(*time), Differences(*energy), is_assumed)
                for is_corrected, (time, energy, is_assumed) in own.items()
            }
            for phase, own in sum_errors.items()
        }
        # Arrays of another form would fail in the midst of use.
        learned.try_all()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    of_all = errors.keys() == {*RUNS} and all(own.keys() == {True, False} for own in errors.values())
    is_whole = isinstance(learned, LearnedCosts) and of_all
    return Knowledge(learned, errors) if is_whole else None


def _train(request: Request, conditions: Conditions, progress: Progress) -> Knowledge:
    logging.getLogger(__name__).warning(
        "learning once from the measured operators, until rows change: about %s", duration(READING_S + TRAINING_S)
    )
    configs = request.folders.sound_configs()
    known = training_data(read_ranking_data(request, configs, (), under=conditions), conditions)
    if len(known.samples) < FEWEST_SAMPLES:
        where = f"{conditions.device_product}, {conditions.precision}, {conditions.execution}"
        raise UserError(
            f"{where}: {len(known.samples)} measured operators; a prediction needs {FEWEST_SAMPLES} or more, so "
            "measure models there, or name another --device or --precision"
        )
    # Only training needs scikit-learn.
    from opcost.learners import learned_from

    with reported(progress, 1, [TRAINING_S]):
        progress.begin("training")
        multiprocessors = OF_PRODUCTS.get(conditions.device_product, USUAL)
        if conditions.device_type == "cpu":
            multiprocessors = conditions.cpu_threads or 1
        learned = learned_from(known.samples, list(known.wholes.values()), multiprocessors)
        progress.finish(f"learned from {len(known.samples)} measured operators")
    return Knowledge(learned, known.sum_errors)


def _name(request: Request, conditions: Conditions, configs: Iterable[ModelConfig]) -> str:
    models = {model_tuple(config).key for config in configs}
    return f"learned-{conditions.key}-{training_fingerprint(request.database, conditions, models)}.npz"


LEARNING_VERSION = 9
"""The version of what is learned from the same rows. It grows with each change of methods or intervals."""


def training_fingerprint(database: Database, conditions: Conditions, models: Iterable[str] = ()) -> str:
    """Return 16 hexadecimal digits that depend on the rows under these conditions, and on the version.

    ``models`` are the keys of those whose wholes are learned from. Raises UserError: the table of cache chains is
    damaged.
    """
    version = f"{__version__} {LEARNING_VERSION} {conditions.key} {feature_names()} {sorted(models)}"
    found = hashlib.sha256(version.encode())
    suffix = f"-{conditions.key}".encode()
    operators = set()
    for line in _lines(database.operator_measurements):
        key = line.partition(b",")[0]
        if key.endswith(suffix):
            operators.add(key.partition(b"-")[0])
            found.update(line)
    for line in _lines(database.full_model_measurements):
        if line.partition(b",")[0].endswith(suffix):
            found.update(line)
    for line in _lines(database.model_operators):
        # The second cell is the key of the model's operator.
        if line.partition(b",")[2].partition(b",")[0].partition(b"-")[0] in operators:
            found.update(line)
    found.update(repr(corrections_under(database.calls_in_chains.rows(), conditions)).encode())
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
    sum_errors: Mapping[Phase, Mapping[bool, SumErrors]]


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
