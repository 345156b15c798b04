"""Learned costs under one set of conditions, from the cache or trained on the spot."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import opcost
from opcost.comparing.cache_corrections import corrections_under
from opcost.comparing.ranking import (
    ASSUMED_SUM_ERRORS,
    ModelFigures,
    SumDeviations,
    SumErrors,
    sum_errors_by_correction,
)
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions
from opcost.operators.cases import case_key, tuple_key
from opcost.operators.counts import OperatorCount
from opcost.operators.values import InputData, parse_input_data
from opcost.prediction.archive import from_bytes, to_bytes
from opcost.prediction.features import feature_names
from opcost.prediction.intervals import ModelCalls
from opcost.prediction.learned_costs import LearnedCosts
from opcost.prediction.samples import Samples, cases_of, family_of, samples_of
from opcost.progress import Progress
from opcost.running.request import Request, model_tuple
from opcost.stages.ranking_data import RankingData, read_ranking_data
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database
from opcost.storage.files import keep, kept
from opcost.storage.table import CsvTable
from opcost.units import duration

FEWEST_SAMPLES = 3
"""The fewest measured operators that a prediction is learned from: the rates of products, of the memory and of calls
are three. Intervals hold with so few, too (``docs/log/prediction.md``)."""

TRAINING_S = 30.0
"""The expected time of training on 7,000 samples with one core."""

READING_S = 10.0
"""The expected time before it, in which rows and counts are read."""


PACKAGES = ("sklearn", "scipy", "threadpoolctl")
"""The modules of the extra ``predict`` of ``pyproject.toml``, which only training needs."""


def require_packages() -> None:
    """Check that the packages for training are installed; none is imported.

    Raises ModuleNotFoundError: one is missing. ``command.run`` says how to install it.
    """
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@dataclass(frozen=True)
class Trained:
    """Learned costs, and the errors of sums of measured operators, by whether they have a cache correction."""

    learned: LearnedCosts
    sum_errors: Mapping[bool, SumErrors]


def trained(request: Request, conditions: Conditions, folder: Path, progress: Progress) -> Trained:
    """Return the learned costs for the rows under some conditions; a folder keeps them until the rows change.

    Raises:
        ModuleNotFoundError: nothing is kept, and a package for training is missing.
        UserError: there are too few rows, or a table is damaged.
    """
    # Rows that are added during the training are not among what it learns.
    name = _name(request, conditions)
    found = kept_costs(name, folder)
    if found is None:
        require_packages()
        found = _train(request, conditions, progress)
        packed = (found.learned, {is_corrected: astuple(one) for is_corrected, one in found.sum_errors.items()})
        keep(name, to_bytes(packed), folder, f"learned-{conditions.key}-*")
    return found


def trained_before(request: Request, conditions: Conditions, folder: Path) -> Trained | None:
    """Return the learned costs that are kept for the present rows, None if there are none."""
    return kept_costs(_name(request, conditions), folder)


def kept_costs(name: str, folder: Path) -> Trained | None:
    """Return what a cache has under a name, None if it has nothing, or is damaged or of another version."""
    content = kept(name, folder)
    if content is None:
        return None
    try:
        learned, sum_errors = from_bytes(content)
        errors = {
            is_corrected: SumErrors(SumDeviations(*time), SumDeviations(*energy), is_assumed)
            for is_corrected, (time, energy, is_assumed) in sum_errors.items()
        }
        # Arrays of another form would fail in the midst of use.
        learned.try_all()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return Trained(learned, errors) if isinstance(learned, LearnedCosts) and len(errors) == len((True, False)) else None


def _train(request: Request, conditions: Conditions, progress: Progress) -> Trained:
    logging.getLogger(__name__).warning(
        "learning once from the measured operators, until rows change: about %s", duration(READING_S + TRAINING_S)
    )
    known = read_training_data(request, request.folders.sound_configs(), conditions)
    if len(known.samples) < FEWEST_SAMPLES:
        where = f"{conditions.device_product}, {conditions.precision}, {conditions.execution}"
        raise UserError(
            f"{where}: {len(known.samples)} measured operators; a prediction needs {FEWEST_SAMPLES} or more, so "
            "measure models there, or name another --device or --precision"
        )
    # Only training needs scikit-learn.
    from opcost.learners import learned_from

    progress.start(1, [TRAINING_S])
    progress.begin("training")
    try:
        models = [whole.calls for whole in known.wholes]
        learned = learned_from(known.samples, models, multiprocessors_of(conditions))
        progress.finish(f"learned from {len(known.samples)} measured operators")
    finally:
        progress.end()
    return Trained(learned, known.sum_errors)


def _name(request: Request, conditions: Conditions) -> str:
    models = {model_tuple(config).key for config in request.folders.sound_configs()}
    return f"learned-{conditions.key}-{training_fingerprint(request.database, conditions, models)}.npz"


LEARNING_VERSION = 7
"""The version of what is learned from the same rows. It grows with each change of methods or intervals."""


def training_fingerprint(database: Database, conditions: Conditions, models: Iterable[str] = ()) -> str:
    """Return 16 hexadecimal digits that depend on the rows under these conditions, and on the version.

    ``models`` are the keys of those whose wholes are learned from. Raises UserError: the table of cache chains is
    damaged.
    """
    version = f"{opcost.__version__} {LEARNING_VERSION} {conditions.key} {feature_names()} {sorted(models)}"
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
class Whole:
    """A measured whole model: its calls among the samples, its costs in s and J, and the corrections of its sum."""

    name: str
    calls: ModelCalls
    time_s: float
    energy_j: float | None
    correction_s: float
    correction_j: float | None


@dataclass(frozen=True)
class TrainingData:
    """Samples with the call that each is of, and the measured wholes that consist of them.

    ``sum_errors`` are those of sums of measured operators, by whether they have a cache correction.
    """

    samples: Samples
    calls: Sequence[tuple[OperatorCount, InputData]]
    wholes: Sequence[Whole]
    sum_errors: Mapping[bool, SumErrors] = field(default_factory=lambda: ASSUMED_SUM_ERRORS)


def read_training_data(request: Request, configs: Sequence[ModelConfig], conditions: Conditions) -> TrainingData:
    """Return what there is to learn from under some conditions; rows under others are not parsed.

    The wholes are of the models of these configs. Raises UserError: a table is damaged.
    """
    return training_data(read_ranking_data(request, configs, (), under=conditions), conditions)


def training_data(data: RankingData, conditions: Conditions) -> TrainingData:
    """Return what there is to learn from under some conditions."""
    models = {model.config.name: model.counts for model in data.models if model.counts is not None}
    families: dict[str, set[str]] = {}
    for counts in models.values():
        for count in counts.counts:
            families.setdefault(count.operator.key, set()).add(family_of(counts.model))
    cases = cases_of(data.operator_rows, data.operator_counts, conditions)
    frozen = {key: frozenset(names) for key, names in families.items()}
    of_case = {case_key(key): place for place, key in enumerate(cases)}
    all_figures = data.figures(conditions)
    wholes = (
        _whole(figures, family_of(models[figures.name].model), of_case)
        for figures in all_figures
        if figures.is_complete and not figures.is_whole_flagged
    )
    return TrainingData(
        samples=samples_of(cases, data.operator_counts, frozen),
        calls=[
            (data.operator_counts[tuple_key(key)], parse_input_data(rows[0].input_data)) for key, rows in cases.items()
        ],
        wholes=[whole for whole in wholes if whole is not None],
        sum_errors=sum_errors_by_correction(all_figures),
    )


def _whole(figures: ModelFigures, family: str, of_case: Mapping[str, int]) -> Whole | None:
    """Return a measured whole, None if it has none, or if its sum has other calls than samples."""
    cost, whole = figures.cost, figures.whole
    corrected_s, corrected_j = figures.corrected_time_s, figures.corrected_energy_j
    if cost is None or whole is None or cost.time_s is None or corrected_s is None:
        return None
    if any(part.case.key not in of_case for part in cost.parts):
        return None
    energy_j = cost.basis.energy_of(whole)
    return Whole(
        name=figures.name,
        calls=ModelCalls(
            family,
            tuple(of_case[part.case.key] for part in cost.parts),
            tuple(part.occurrences for part in cost.parts),
        ),
        time_s=whole.measurement.time_s,
        energy_j=None if energy_j is None else energy_j.value,
        correction_s=corrected_s.value - cost.time_s.value,
        correction_j=None if corrected_j is None or cost.energy_j is None else corrected_j.value - cost.energy_j.value,
    )


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

USUAL = 108
"""The number for a GPU that is not listed. Only the features of tiles and waves use it."""


def multiprocessors_of(conditions: Conditions) -> int:
    """Return the multiprocessors of a GPU, the threads of a CPU."""
    if conditions.device_type == "cpu":
        return conditions.cpu_threads or 1
    return OF_PRODUCTS.get(conditions.device_product, USUAL)
