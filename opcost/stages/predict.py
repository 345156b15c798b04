"""The predicted cost of a model on a device, from the rows of a database: nothing is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opcost.comparing.cache_chain_rows import ChainRow
from opcost.comparing.cache_corrections import corrections_under
from opcost.comparing.comparison import corrections_of
from opcost.comparing.power_limit import limit_of
from opcost.comparing.predicted_run import Knowledge, PredictedCalls, PredictedRun, Range, predicted_run
from opcost.comparing.ranking import REPRESENTATIVE_RATIO
from opcost.errors import UserError
from opcost.estimates import value_of
from opcost.measuring.conditions import WARM, Conditions, usual_execution
from opcost.measuring.record import MeasurementRow, is_doubtful, time_of
from opcost.measuring.setting import is_meant, refuse_unknown
from opcost.operators.cases import conditions_key, of_operators
from opcost.operators.counts import OperatorCounts
from opcost.operators.whitelist import EVERYTHING, select
from opcost.operators.zeros_rules import with_usual_zeros
from opcost.prediction.needed_memory import NeededMemory, needed_memory
from opcost.progress import Progress
from opcost.running.expected_times import numbers_of_rows
from opcost.running.request import Request, model_tuple
from opcost.running.shipped_counts import shipped_counts
from opcost.stages.ranking_data import RankingData
from opcost.stages.trained import Trained, require_packages, trained, trained_before
from opcost.stages.wanted_model import WantedModel, known_config, pickled
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database
from opcost.storage.files import replace_file
from opcost.storage.grid_files import GRID_NAME, is_listable, tuples_text
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.index import Measurements, best_of_each_board
from opcost.summing.summation import ModelCost, best_whole, sum_beside
from opcost.units import percent, some_of

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

    ``run`` is the predicted cost, a check of a measured whole. ``whole`` is the row that ``opcost show`` has, too, None
    if it is not measured; ``boards`` are the model's sound wholes, of all boards. ``samples`` is the number of measured
    operators that were learned from. ``memory`` is the least that a run needs. ``written`` is the path of the list of
    tuples, None if none was wanted.
    """

    name: str
    batch: int | None
    conditions: Conditions
    run: PredictedRun
    whole: MeasurementRow | None
    samples: int
    memory: NeededMemory
    written: str | None = None
    boards: tuple[MeasurementRow, ...] = ()

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
        return self.run.basis if self.whole is None else common_basis([self.whole])

    @property
    def power_w(self) -> float | None:
        """The mean power, None if the energy is unknown."""
        return None if self.energy_j is None else self.energy_j.value / self.time_s.value

    def per_sample(self, cost: Range | None) -> Range | None:
        """Return the part of a cost that one sample of the batch has, None if the batch or the cost is unknown."""
        return cost.times(1 / self.batch) if self.batch and cost is not None else None


def predict(request: Request, wish: PredictionRequest, cache: Path, progress: Progress) -> Prediction:
    """Return the cost of a model, measured or predicted.

    ``cache`` is the folder of what was learned. Raises UserError: the model cannot be counted, or nothing is measured
    under such conditions.
    """
    config = known_config(request.folders, wish.wanted, wish.batch) or _new_config(request, wish)
    numbers = numbers_of_rows(request.database.operator_measurements)
    conditions = conditions_for(numbers, wish.device, wish.execution, config.precision)
    learned = trained_before(request, conditions, cache)
    if learned is None:
        # Before the model is counted, which may take a minute.
        require_packages()
    counts = computing_counts(request, config, progress)
    learned = learned or trained(request, conditions, cache, progress)
    rows = RowsOfRun(measurements_of(request.database, counts), request.database.calls_in_chains.rows())
    of_model = request.database.full_model_measurements.rows(of_operators([model_tuple(config)]))
    wholes = [row for row in best_of_each_board(of_model) if row.conditions == conditions]
    whole = (
        best_whole(wholes, lambda row: sum_beside(row, counts, rows.measurements, conditions))[0] if wholes else None
    )
    run = run_under(counts, rows, conditions, learned, whole)
    # A user's function may have got the batch as an argument.
    given = (value for name, value in config.arguments if name in BATCH_ARGUMENTS)
    batch = config.batch_size or next((value for value in given if type(value) is int and value > 0), None)
    written = _write_next(request, config, run.calls, wish.measure_next) if wish.measure_next else None
    return Prediction(
        name=config.name,
        batch=batch,
        conditions=conditions,
        run=run,
        whole=whole,
        samples=learned.learned.samples,
        memory=needed_memory(counts, conditions),
        written=written,
        boards=tuple(row for row in wholes if not is_doubtful(row)),
    )


@dataclass(frozen=True)
class RowsOfRun:
    """The rows of a model's operators, and those of cache chains."""

    measurements: Measurements
    chains: Sequence[ChainRow]


def measurements_of(database: Database, counts: OperatorCounts) -> Measurements:
    """Return the rows of a model's operators, under any conditions, without reading the others of a database.

    Raises UserError: the header or one of these rows is damaged.
    """
    wanted = of_operators(count.operator for count in counts.counts)
    return Measurements(database.operator_measurements.rows(wanted))


def run_under(
    counts: OperatorCounts,
    rows: RowsOfRun,
    conditions: Conditions,
    learned: Trained,
    whole: MeasurementRow | None = None,
) -> PredictedRun:
    """Return the predicted cost of a run.

    The counts are those of operators that compute something; those on shapes get the usual zeros. The board of the
    measured ``whole`` is preferred.
    """
    counts = with_usual_zeros(counts)
    corrections = corrections_under(rows.chains, conditions)
    knowledge = Knowledge(
        learned.learned,
        corrections_of(counts, corrections, rows.measurements, conditions),
        limit_of(conditions),
        learned.sum_errors,
        conditions.device_power_limit_w,
    )
    cost = sum_beside(whole, counts, rows.measurements, conditions)
    elsewhere = on_other_cards(replace(counts, counts=cost.missing), rows.measurements, conditions)
    return predicted_run(counts, cost, knowledge, elsewhere)


def on_other_cards(counts: OperatorCounts, measurements: Measurements, conditions: Conditions) -> list[ModelCost]:
    """Return the sums of operators on cards of other products, under otherwise the same conditions, as far as known."""

    def how(one: Conditions) -> tuple[str, ...]:
        return one.device_type, one.precision, one.execution, one.cache

    rows = [row for count in counts.counts for row in measurements.of_operator(count.operator.key)]
    others = {row.conditions for row in rows if row.conditions.device_product != conditions.device_product}
    sums = [sum_beside(None, counts, measurements, one) for one in others if how(one) == how(conditions)]
    return [one for one in sums if one.parts]


def _new_config(request: Request, wish: PredictionRequest) -> ModelConfig:
    """Return the config that describes the model and has the batch, perhaps one that is not written."""
    # It imports torch, which a model of known counts does without.
    from opcost.stages.model_layers import config_of

    config = known_config(request.folders, wish.wanted, None) or config_of(request, wish.wanted)
    if wish.batch in (None, config.batch_size):
        return config
    same = WantedModel.of(config)
    if same is None or not config.input_size:
        remedy = f"give the batch there, or as an argument of the function: --argument batch={wish.batch}"
        raise UserError(f"--batch: the inputs of {config.name} are those of its function or config; {remedy}")
    return config_of(request, replace(same, input_size=(wish.batch, *config.input_size[1:])))


def computing_counts(request: Request, config: ModelConfig, progress: Progress) -> OperatorCounts:
    """Return the counts of the operators that compute something: those that ship or are pickled, else of a run.

    Raises UserError: the model cannot be counted, or nothing of it computes.
    """
    counts = shipped_counts(request, [config]).get(config.name) or pickled(config, None)
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
    """Write the most uncertain tuples as a list for block 2, and return its path.

    Raises UserError: the folder exists, or nothing can be listed.
    """
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


@dataclass(frozen=True)
class PredictedModel:
    """A model that is not measured on a device, its batch (None if unknown), and what a run is predicted to cost."""

    name: str
    batch: int | None
    conditions: Conditions
    run: PredictedRun


def predicted_models(
    request: Request, data: RankingData, candidates: Sequence[Conditions], names: Collection[str], cache: Path | None
) -> tuple[PredictedModel, ...]:
    """Return the predicted costs of models, the first by name. Nothing is counted, and nothing is learned.

    Models that are not counted, or whose device and precision have nothing learned that fits the present rows, are left
    out. ``candidates`` are the conditions to choose from; ``cache`` is the folder of what was learned, None for no
    predictions.
    """
    models = [one for one in data.models if one.config.name in names and one.counts and one.counts.counts]
    if cache is None or not models:
        return ()
    numbers = Counter(conditions_key(row.key) for row in data.operator_rows)
    known: dict[Conditions, Trained | None] = {}
    found: list[PredictedModel] = []
    for model in sorted(models, key=lambda one: one.config.name):
        fitting = [one for one in candidates if one.precision == model.config.precision]
        if not fitting:
            continue
        conditions = max(fitting, key=lambda one: numbers[one.key])
        if conditions not in known:
            known[conditions] = trained_before(request, conditions, cache)
        learned = known[conditions]
        if learned is not None and model.counts is not None:
            run = run_under(model.counts, RowsOfRun(data.measurements, data.chains), conditions, learned)
            found.append(PredictedModel(model.config.name, model.config.batch_size, conditions, run))
        if len(found) == MOST_PREDICTED:
            break
    return tuple(found)
