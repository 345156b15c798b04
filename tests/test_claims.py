"""The sentences of ``claimed_prose.md`` follow from the committed rows."""

import importlib
from pathlib import Path

import pandas as pd
import pytest

from opcost.measuring.conditions import EAGER, GRAPH
from opcost.prediction.rates import PREDICTED_ERROR_RATIOS

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def claims():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("claims")


@pytest.fixture(scope="module")
def figures(claims):
    return claims.all_figures(ROOT)


def test_pages_state_figures_of_the_committed_rows(claims, figures):
    sentences = claims.sentences(ROOT)
    words = {page: (ROOT / page).read_text(encoding="utf-8").replace("\n>", "\n").split() for page, _ in sentences}
    filled = [(page, text.format_map(figures)) for page, text in sentences]
    assert [(page, text) for page, text in filled if text not in " ".join(words[page])] == []


def test_committed_comparisons_are_the_sums_of_the_committed_rows():
    """The golden sums are recomputed from the rows of operators by ``test_committed_sums.py``."""
    columns = ["time_s", "full_time_s", "correction_time_s", "energy_j", "full_energy_j", "correction_energy_j"]
    place = ["name", "key", "counted", "input_data"]
    committed = pd.read_csv(ROOT / "database" / "sum_vs_full.csv").set_index(place)[columns]
    golden = pd.read_csv(ROOT / "tests" / "golden" / "sums.csv").drop_duplicates(place).set_index(place)[columns]
    pd.testing.assert_frame_equal(committed, golden.loc[committed.index], rtol=1e-12)


@pytest.mark.parametrize(("prefix", "execution"), [("", GRAPH), ("eager_", EAGER)])
def test_the_error_of_predictions_is_that_of_kinds_that_were_held_out(figures, prefix, execution):
    largest = max(float(figures[f"{prefix}held_out_{quantity}_95"]) for quantity in ("time", "energy"))
    assert pytest.approx(largest, abs=0.05) == PREDICTED_ERROR_RATIOS[execution]
