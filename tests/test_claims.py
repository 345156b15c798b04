"""Every claim of docs/accuracy.md, and every sentence of ``claimed_prose.md``, follows from the committed rows."""

import importlib
from pathlib import Path

import pandas as pd
import pytest

from opcost.measuring.conditions import EAGER, GRAPH
from opcost.prediction.rates import PREDICTED_ERROR_RATIOS

ROOT = Path(__file__).resolve().parent.parent
SUMS = ROOT / "database" / "sum_vs_full.csv"
PAGES_OF_PROSE = (ROOT / "tests" / "claimed_prose.md").read_text(encoding="utf-8").split("\n## ")[1:]
PROSE = [(page, text) for page, *texts in map(str.splitlines, PAGES_OF_PROSE) for text in texts if text]
"""Pages and their sentences, with the names of figures in braces."""


@pytest.fixture(scope="module")
def benchmark():
    """Import a script by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module


@pytest.fixture(scope="module")
def figures(benchmark):
    return benchmark("claim_figures").all_figures(ROOT)


def is_current(path, text, pytestconfig):
    if pytestconfig.getoption("--renew-golden"):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8") == text


def test_the_tables_of_claims_follow_from_the_committed_rows(benchmark, figures, pytestconfig):
    page = ROOT / "docs" / "accuracy.md"
    renewed = benchmark("claims").renewed(page.read_text(encoding="utf-8"), figures)
    assert is_current(page, renewed, pytestconfig)


def test_the_page_of_all_models_follows_from_the_committed_rows(benchmark, pytestconfig):
    page = benchmark("sum_vs_full").page_of(pd.read_csv(SUMS))
    assert is_current(ROOT / "docs" / "accuracy" / "models.md", page, pytestconfig)


def test_the_tables_of_measured_sweeps_follow_from_their_rows(benchmark, pytestconfig):
    path = ROOT / "docs" / "sweeps_measured.md"
    renewed = benchmark("sweeps_measured").renewed(path.read_text(encoding="utf-8"), ROOT)
    assert is_current(path, renewed, pytestconfig)


@pytest.mark.parametrize(("page", "text"), PROSE)
def test_prose_states_figures_of_the_committed_rows(page, text, figures):
    words = (ROOT / page).read_text(encoding="utf-8").replace("\n>", "\n").split()
    assert text.format_map(figures) in " ".join(words)


def test_committed_comparisons_are_the_sums_of_the_committed_rows():
    """The golden sums are recomputed from the rows of operators by ``test_committed_sums.py``."""
    columns = ["time_s", "full_time_s", "correction_time_s", "energy_j", "full_energy_j", "correction_energy_j"]
    place = ["name", "key", "counted", "input_data"]
    committed = pd.read_csv(SUMS).set_index(place)[columns]
    golden = pd.read_csv(ROOT / "tests" / "golden" / "sums.csv").drop_duplicates(place).set_index(place)[columns]
    pd.testing.assert_frame_equal(committed, golden.loc[committed.index], rtol=1e-12)


@pytest.mark.parametrize(("prefix", "execution"), [("", GRAPH), ("eager_", EAGER)])
def test_the_error_of_predictions_is_that_of_kinds_that_were_held_out(figures, prefix, execution):
    largest = max(float(figures[f"{prefix}held_out_{quantity}_95"]) for quantity in ("time", "energy"))
    assert pytest.approx(largest, abs=0.05) == PREDICTED_ERROR_RATIOS[execution]


def test_a_page_without_the_place_of_a_table_is_refused(benchmark, figures):
    with pytest.raises(ValueError, match="0 places for the table 'wholes'"):
        benchmark("claims").renewed("# Accuracy\n", figures)
