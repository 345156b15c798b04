"""The report's trees of layers: nested as the modules are, in the order of execution, with figures that add up."""

import math
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from committed_tables import committed
from simulated_apparatus import RecordedProgress

from opcost.operators.counts import CalledModule
from opcost.reporting.charts import Compared, compared
from opcost.reporting.report import MOST_TREES, layers
from opcost.running.request import Request, RunRequest
from opcost.stages.compare import find_comparisons
from opcost.stages.count import count_operators
from opcost.storage.configs import ModelFolders

ROOT = Path(__file__).parents[2]
MODEL = "resnet18_32x3x32x32"


@pytest.fixture(scope="module")
def shipped() -> Compared:
    """A comparison of a model whose counts are the table's, without paths."""
    return compared_in(Request((MODEL,), ModelFolders(ROOT / "measurements"), committed()))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """The same after the model was counted here."""
    folder = tmp_path_factory.mktemp("measurements")
    (folder / MODEL).mkdir()
    shutil.copy(ROOT / "measurements" / MODEL / "summary.yml", folder / MODEL)
    shutil.copy(ROOT / "measurements" / "operator_whitelist.yml", folder)
    request = RunRequest((MODEL,), ModelFolders(folder), committed(), "cpu")
    count_operators(request, RecordedProgress())
    return compared_in(replace(request, device=None))


def compared_in(request: Request) -> Compared:
    return compared(find_comparisons(request))[0]


class Tree(HTMLParser):
    """Reads the rows of trees: the level of each, and its cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[tuple[int, list[str]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "span" and dict(attributes).get("class") == "layer":
            self.rows.append((self.open.count("details") + (self.open[-2] == "div"), []))
        elif tag == "span" and self.rows:
            self.rows[-1][1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1][1]:
            self.rows[-1][1][-1] += data


def test_a_tree_has_the_modules_as_they_are_nested_in_the_order_of_execution(counted: Compared) -> None:
    rows = Tree(layers([counted])).rows
    top = min(level for level, _ in rows)
    assert rows[0][1][0].startswith("model ResNet")
    names = [cells[0].split()[0] for level, cells in rows if level == top + 1]
    assert [name for name in names if name != "flatten"] == [
        *("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool", "fc")
    ]
    first = next(index for index, (_, cells) in enumerate(rows) if cells[0].startswith("layer1"))
    assert [cells[0].split()[0] for _, cells in rows[first + 1 : first + 5]] == ["0", "conv1", "bn1", "relu"]
    assert "2 calls" in rows[first + 4][1][0]


def test_the_figures_of_a_tree_add_up_to_the_sum(counted: Compared) -> None:
    time_s = counted.comparison.cost.time_s
    assert time_s is not None
    rows = Tree(layers([counted])).rows
    top = min(level for level, _ in rows)
    assert float(rows[0][1][1]) == pytest.approx(1e3 * time_s.value, rel=1e-3)
    known = [float(cells[1]) for level, cells in rows if level == top + 1 and cells[1] != "-"]
    assert math.fsum(known) == pytest.approx(1e3 * time_s.value, rel=1e-3)


def test_a_count_on_shapes_gives_the_tree_of_shipped_values(shipped: Compared, counted: Compared) -> None:
    """Its sum is still that of the shipped counts, which have the values of a run on a GPU."""
    name, on_shapes = shipped.row.name, counted.comparison.counts
    found = layers([shipped], counted={name: on_shapes})
    assert "No tree of" not in found
    assert Tree(found).rows == Tree(layers([counted])).rows
    others = replace(on_shapes, counts=on_shapes.counts[1:])
    assert "No tree of" in layers([shipped], counted={name: others})


def test_models_without_paths_are_named_with_the_commands(shipped: Compared, counted: Compared) -> None:
    found = layers([shipped])
    assert "<details" not in found
    assert f"layers {MODEL}</code>" in found
    assert f"count {MODEL} --meta</code>" in found
    assert f"count {MODEL}" not in layers([counted])


def test_a_report_has_so_many_trees_and_says_how_to_see_others(counted: Compared) -> None:
    others = [replace(counted, row=replace(counted.row, name=f"model_{index}")) for index in range(MOST_TREES + 1)]
    found = layers(others)
    assert found.count('<div class="layers">') == MOST_TREES
    assert f"report model_{MOST_TREES}</code>" in found


def test_names_of_modules_are_escaped(counted: Compared) -> None:
    comparison = counted.comparison
    modules = tuple(CalledModule(module.path, "<script>", module.weights) for module in comparison.counts.modules)
    kept = replace(comparison.counts, modules=modules)
    odd = replace(comparison, selection=replace(comparison.selection, kept=kept))
    found = layers([replace(counted, result=odd)])
    assert "&lt;script&gt;" in found
    assert "<script" not in found
