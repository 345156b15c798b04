"""Learned costs under one set of conditions, from the cache or trained on the spot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from opcost.comparing.ranking import Deviations, SumErrors
from opcost.errors import UserError
from opcost.measuring.conditions import Conditions
from opcost.prediction.archive import from_bytes, to_bytes
from opcost.prediction.learned_costs import LearnedCosts
from opcost.prediction.multiprocessors import multiprocessors_of
from opcost.progress import Progress
from opcost.running.request import Request, model_tuple
from opcost.stages.extras import PREDICT, require
from opcost.stages.training_data import read_training_data
from opcost.stages.training_fingerprint import training_fingerprint
from opcost.storage.caches import keep, kept

FEWEST_SAMPLES = 3
"""The fewest measured operators that a prediction is learned from: the rates of products, of the memory and of calls
are three. Intervals hold with so few, too (``docs/log/prediction.md``)."""

TRAINING_S = 20.0
"""The expected time of training on 4,000 samples with two cores."""


@dataclass(frozen=True)
class Trained:
    """Learned costs, and the errors of sums of measured operators, by whether they have a cache correction."""

    learned: LearnedCosts
    sum_errors: Mapping[bool, SumErrors]


def trained(request: Request, conditions: Conditions, folder: Path, progress: Progress) -> Trained:
    """Return the learned costs for the rows of a database; they are kept until the rows change.

    Args:
        request: the folders.
        conditions: those of the rows.
        folder: of the cache.
        progress: reports the training.

    Raises:
        ModuleNotFoundError: nothing is kept, and a package for training is missing.
        UserError: there are too few rows, or a table is damaged.
    """
    # Rows that are added during the training are not among what it learns.
    name = _name(request, conditions)
    found = kept_costs(name, folder)
    if found is None:
        require(PREDICT)
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
            is_corrected: SumErrors(Deviations(*time), Deviations(*energy), is_assumed)
            for is_corrected, (time, energy, is_assumed) in sum_errors.items()
        }
        # Arrays of another form would fail in the midst of use.
        learned.try_all()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return Trained(learned, errors) if isinstance(learned, LearnedCosts) and len(errors) == len((True, False)) else None


def _train(request: Request, conditions: Conditions, progress: Progress) -> Trained:
    known = read_training_data(request, request.folders.sound_configs(), conditions)
    if len(known.samples) < FEWEST_SAMPLES:
        where = f"{conditions.device_product}, {conditions.precision}, {conditions.execution}"
        raise UserError(
            f"{where}: {len(known.samples)} measured operators; a prediction needs {FEWEST_SAMPLES} or more, so "
            "measure models there, or name another --device or --precision"
        )
    # Only training needs scikit-learn.
    from opcost.learners.training import learned_from

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
