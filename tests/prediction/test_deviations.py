"""Deviations of predicted costs: of kinds with enough samples, with few of them, and with none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opcost.prediction.intervals import FEWEST_SCORES, PRIOR_SAMPLES, TOO_FEW, Deviations

FEW_ERRORS = 3


def found(unknown_kinds: int = FEWEST_SCORES) -> Deviations:
    """Return the deviations of a kind ``known``, of others that were held out whole, and of one with few samples."""
    others = [f"other {place}" for place in range(unknown_kinds)]
    kinds = ["known"] * 40 + others + ["few"] * FEW_ERRORS
    distances = [0.0] * 40 + [math.nan] * unknown_kinds + [TOO_FEW] * FEW_ERRORS
    errors = [0.02] * 40 + [0.4] * unknown_kinds + [0.05] * FEW_ERRORS
    return Deviations.of(kinds, np.array(distances), np.array(errors))


def test_a_kind_with_few_samples_is_between_its_own_errors_and_those_of_unknown_kinds() -> None:
    deviations = found()
    known, few, unknown = deviations.deviations(["known", "few", "few"], np.array([0.0, TOO_FEW, math.nan]))
    assert known < few < unknown == deviations.unknown
    level = FEW_ERRORS * math.log(0.05) + PRIOR_SAMPLES * math.log(unknown)
    assert few == pytest.approx(math.exp(level / (FEW_ERRORS + PRIOR_SAMPLES)))


def test_few_samples_without_errors_of_their_own_are_as_uncertain_as_none() -> None:
    deviations = found()
    few, unknown = deviations.deviations(["single", "single"], np.array([TOO_FEW, math.nan]))
    assert few == unknown


def test_with_too_few_kinds_the_deviations_of_few_and_of_none_are_unknown() -> None:
    deviations = found(unknown_kinds=FEWEST_SCORES - 2)
    known, few, unknown = deviations.deviations(["known", "few", "new"], np.array([0.0, TOO_FEW, math.nan]))
    assert (math.isfinite(known), math.isnan(few), math.isnan(unknown)) == (True, True, True)


def test_nine_tenths_of_calls_are_within_their_intervals() -> None:
    random = np.random.default_rng(0)
    kinds = [f"kind {place % 12}" for place in range(1200)]
    distances = np.array([(math.nan, TOO_FEW, 0.1, 0.4)[place // 12 % 4] for place in range(1200)])
    errors = np.where(np.isfinite(distances), 0.02, 0.2) * random.standard_normal(1200)
    deviations = Deviations.of(kinds[:600], distances[:600], errors[:600])
    half_widths = deviations.factor * deviations.deviations(kinds, distances)
    is_covered = np.abs(errors)[600:] <= half_widths[600:]
    assert 0.85 < is_covered.mean() < 0.95
    assert is_covered[distances[600:] == TOO_FEW].mean() > 0.8
