"""Calculations of the scripts in benchmarks/; they measure only where there is a GPU."""

import importlib
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from seeds import Seeds
from simulated_machine import SIMULATED_CONDITIONS

from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.model_rows import rows_of
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.values import InputStatistics, parse_input_data
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """Import a script by its name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_scripts_say_how_they_are_run(benchmark, monkeypatch, capsys):
    scripts = [path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")]
    assert len(scripts) > 6
    for name in sorted(scripts):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
        with pytest.raises(SystemExit) as ended:
            benchmark(name).main()
        assert ended.value.code == 0
        assert f"benchmarks/{name}.py" in capsys.readouterr().out


TENSOR = TensorSpec((4, 4), "float32")
LINEAR = OperatorTuple("torch.nn.Linear", (("in_features", 4), ("out_features", 8)), (TENSOR,))


def count_again(benchmark, monkeypatch, folder, counts, *options, total=100_000, device="cpu"):
    """Return the rows of a table before and after it is counted again; the first is that of the model."""
    model = model_operator("resnet18", None, (1, 3, 8, 8))
    counted = OperatorCounts(model, counts, 256, total, 40, "2.14.1", device, outside=("zeros_like",))
    table = Database(folder).model_operators
    table.append_missing(rows_of("a", counted, "2026-11-22T10:00:00+00:00"))
    before = table.rows()
    monkeypatch.setattr(sys, "argv", ["count_again.py", str(folder), *options])
    benchmark("count_again").main()
    return before, table.rows()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_operations_are_added_to_an_older_table_where_a_tuple_runs_as_counted(benchmark, monkeypatch, tmp_path, device):
    counts = (
        OperatorCount(LINEAR, 1, 2 * 4 * 4 * 8, 4 * (16 + 32 + 8 + 32), TensorSpec((4, 8), "float32")),
        OperatorCount(OperatorTuple("torch.exp", (), (TENSOR,), mode=None), 1, 0, 127),
        OperatorCount(OperatorTuple("mine.Block", (), (TENSOR,)), 1, 0, 128),
    )
    old, new = count_again(benchmark, monkeypatch, tmp_path, counts, "--operations", device=device)
    assert [row.operations for row in new] == [(), (("addmm", 1),) if device == "cpu" else (), (), ()]
    assert [replace(row, operations=()) for row in new] == old


def test_tuples_that_were_counted_in_full_are_counted_again(benchmark, monkeypatch, tmp_path, capsys):
    ids, table, result = TensorSpec((5,), "int64"), 1000 * 8 * 4, TensorSpec((5, 8), "float32")
    embedding = OperatorTuple("torch.nn.Embedding", (("num_embeddings", 1000), ("embedding_dim", 8)), (ids,))
    zeros = OperatorTuple("torch.Tensor.new_zeros", (), (TENSOR, (2, 2)), mode=None)
    picked = OperatorTuple("torch.gather", (), (TENSOR, 0, TensorSpec((1, 4), "int64", identity=1)), mode=None)
    normal, sparse = InputStatistics(0.0, 0.0, 1.0), InputStatistics(0.9, 0.0, 1.0)
    counts = (
        OperatorCount(embedding, 2, 0, 5 * 8 + table + 5 * 8 * 4, result, operations=(("embedding", 1),)),
        OperatorCount(zeros, 2, 0, 64 + 16, TensorSpec((2, 2), "float32"), statistics=((sparse,), (normal,))),
        # Other work: another number of bytes, or the same number of another operation.
        OperatorCount(picked, 1, 0, 99, TensorSpec((1, 4), "float32")),
        OperatorCount(zeros, 1, 0, 64 + 16, TensorSpec((2, 2), "float32"), operations=(("full", 1),)),
        OperatorCount(LINEAR, 1, 7, 99, TensorSpec((4, 8), "float32")),
        OperatorCount(OperatorTuple("mine.Block", (), (TENSOR,)), 1, 0, 128),
    )
    old, new = count_again(benchmark, monkeypatch, tmp_path, counts)
    saved = table - 5 * 8 * 4
    assert [before.memory_bytes - after.memory_bytes for before, after in zip(old, new, strict=True)] == [
        2 * saved + 2 * 64,
        saved,
        64,
        64,
        *(0, 0, 0, 0),
    ]
    assert [replace(after, memory_bytes=before.memory_bytes) for before, after in zip(old, new, strict=True)] == old
    shown = capsys.readouterr().out
    assert f"{zeros}: 80 -> 16 bytes" in shown
    assert f"{embedding}: {table + 200} -> {200 + 160} bytes" in shown
    kept = [line for line in shown.splitlines() if "rows kept" in line]
    assert [line.partition("kept: ")[2].partition(":")[0] for line in kept] == [
        "torch.gather",
        "torch.Tensor.new_zeros",
        "torch.nn.Linear",
        "mine.Block",
        "zeros_like is in no tuple of a",
    ]


def test_every_script_and_every_table_is_explained():
    scripts = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in BENCHMARKS.glob("*.py") if path.stem not in scripts] == []
    data = BENCHMARKS.parent / "docs" / "data"
    tables = (data / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in data.iterdir() if path.name not in tables and path.name != "README.md"] == []


# Sums and wholes


def test_ways_of_runs_enter_no_more_modules_than_stated(benchmark, tmp_path):
    found = benchmark("modules_entered").of_runs(tmp_path)
    most = {"model to counts": 19, "tuple to line": 34}
    assert found.keys() == most.keys()
    assert all(0 < len(one.modules) <= most[way] for way, one in found.items())


def test_sums_are_compared_with_wholes_by_how_they_were_run(benchmark):
    table = pd.DataFrame(
        {
            "name": ["a", "b", "a", "c"],
            "execution": ["graph", "graph", "eager", "graph"],
            "counted": "all",
            "input_data": "captured",
            "missing_operators": [0, 0, 0, 1],
            "time_s": [0.99, 1.02, 0.5, 0.1],
            "full_time_s": 1.0,
            "energy_j": [math.nan, 1.1, math.nan, 0.1],
            "full_energy_j": 1.0,
            "correction_time_s": [0.02, math.nan, 0.0, 0.0],
            "correction_energy_j": math.nan,
            "power_limit_time_s": [math.nan, 0.0, 0.0, 0.0],
            "power_limit_energy_j": math.nan,
        }
    )
    said = benchmark("sum_vs_full").report(table)
    assert "| time, graph, all, captured | 2 | +0.50% | 1.50% | 1.95% | 2.00% | b |" in said
    assert "| energy, graph, all, captured | 1 | +10.00% | 10.00% | 10.00% | 10.00% | b |" in said
    assert "| time, eager, all, captured | 1 | -50.00% |" in said
    assert "energy, eager" not in said
    assert "| time, graph, all, captured, corrected | 1 | +1.00% |" in said
    assert "energy, graph, all, captured, corrected" not in said
    (one, other, eager) = benchmark("sum_vs_full").by_model(table).splitlines()[2:]
    assert one == "| a | graph | 1000 ms | 0.990 | 1.010 | 1000 mJ |  |  |"
    assert other == "| b | graph | 1000 ms | 1.020 |  | 1000 mJ | 1.100 |  |"
    assert eager == "| a | eager | 1000 ms | 0.500 | 0.500 | 1000 mJ |  |  |"


class HostEvent:
    """An event of a GPU, by the host's clock."""

    def __init__(self, **_):
        self.moment_s = 0.0

    def record(self, *_):
        self.moment_s = time.perf_counter()

    def elapsed_time(self, end):
        return 1e3 * (end.moment_s - self.moment_s)


def test_the_estimator_has_a_time_for_each_part_of_a_step(benchmark, monkeypatch, tmp_path):
    """On a CPU with the host's clock: the estimator itself asks for a GPU's."""
    torch = benchmark("torch")
    monkeypatch.setattr(torch, "Event", HostEvent)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda: None)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    path = tmp_path / "small" / "summary.yml"
    path.parent.mkdir()
    keys = {"model_name": "squeezenet1_1", "input_size": [1, 3, 32, 32], "mode": "training", "optimizer": "adamw"}
    path.write_text(yaml.safe_dump(keys), encoding="utf-8")
    (config,) = ModelFolders(tmp_path).configs([])
    found = benchmark("estimated_steps").estimated_s(config, "cpu")
    assert [str(phase) for phase in found] == ["forward", "backward", "optimizer"]
    assert all(time_s > 0 for time_s in found.values())


def test_estimates_stand_beside_sums_and_wholes_and_are_empty_where_unknown(benchmark):
    script, phases = benchmark("estimated_steps"), benchmark("opcost.operators.tuples").Phase

    def result(whole_s, sum_s, phases=()):
        whole = SimpleNamespace(measurement=SimpleNamespace(time_s=whole_s))
        cost = SimpleNamespace(time_s=SimpleNamespace(value=sum_s))
        return SimpleNamespace(name="one", whole=whole, cost=cost, is_complete=True, phases=phases)

    parts = tuple(result(whole_s, 1.1 * whole_s) for whole_s in (0.003, 0.006, 0.001))
    step = result(0.010, 0.011, parts)
    estimates = {phases.FORWARD: 0.003, phases.BACKWARD: 0.0054, phases.OPTIMIZER: 0.002}
    known = script.table([step], {"one": estimates}).set_index("part")
    assert known.loc["step", "estimator (ms)"] == pytest.approx(10.4)
    assert known["estimator / whole"].tolist() == pytest.approx([1.04, 1.0, 0.9, 2.0])
    assert known["sum / whole"].tolist() == pytest.approx([1.1] * 4)
    header, (line, *_) = script.in_words(script.table([step], {}))
    assert line == ["one", "step", "10", "11", "", "1.1", ""]
    assert header[-1] == "estimator / whole"


# Architectures


MODELS = (("one", 64), ("other", 96), ("wrong", 2))
BERT = {"model_name": "transformers:BertForMaskedLM", "input_size": [1, 128], "arguments": {"num_hidden_layers": 2}}
RUN = {"date": "2026-11-25", "libraries": "torch 2", "seconds": 90.0, "processes": 2}


def test_the_page_of_architectures_has_totals_and_names_what_is_not_counted_or_not_the_same(benchmark):
    script = benchmark("architectures")
    counts = {"calls": 9, "tuples": 3, "flops": 9_876_406_272, "counted_flops": 9_876_406_272, "bytes": 9}
    bert = script.Result("bert", BERT, **counts, counted_bytes=9, rebuilt=3)
    other = script.Result("other", BERT, **counts, counted_bytes=8, rebuilt=2, differences=("torch.mm on (): no",))
    refused = script.Result("refused", {"model_name": "timm:x", "inputs": {"x": {"shape": [2, 3]}}}, refused="why; how")
    assert [result.passes for result in (bert, other, refused)] == [True, False, False]
    results, run = script.read(script.written([bert, other, refused], 90.0, 2))
    assert run["seconds"] == RUN["seconds"]
    page = script.page(results, RUN)
    assert "architectures that pass: 1 of 2 of transformers, 0 of 1 of timm" in page
    assert "in tuples: at least 100.0000% of FLOPs, 88.8889% of bytes" in page
    assert "same operations, outputs, FLOPs and bytes in a fresh process: 5 of 6" in page
    assert "- not counted: refused (why)" in page
    assert "- not the same: other: `torch.mm on (): no`" in page
    assert "| bert, 2 of its layers, 128 tokens | 9,876,406,272 | 9,876,406,272 |" in page
    expected = (
        "| transformers BertForMaskedLM | num_hidden_layers=2 | 1x128 | 9 | 3 | 9.876 | 100.00% | 100.00% | 3 / 3 |"
    )
    assert expected in page


def test_one_model_counts_once_for_each_process_and_its_tuples_are_rebuilt_in_another(benchmark, monkeypatch, tmp_path):
    script = benchmark("architectures")
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    models = {name: {"model_name": "squeezenet1_0", "input_size": [1, 3, size, size]} for name, size in MODELS}
    one, other, wrong = script.check_all(models, 1)
    assert one.passes
    assert other.passes
    assert one.tuples == one.rebuilt > 30
    assert "does not run on [1, 3, 2, 2]" in wrong.refused


def test_the_listed_architectures_are_configs_of_enough_models_of_each_source(benchmark, tmp_path):
    models = benchmark("architectures").models()
    for name, summary in models.items():
        path = tmp_path / name / "summary.yml"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(summary), encoding="utf-8")
    assert [config.name for config in ModelFolders(tmp_path).configs([])] == sorted(models)
    sources = [summary["model_name"].partition(":")[0] for summary in models.values()]
    assert sources.count("transformers") >= 70
    assert sources.count("timm") >= 100


def test_the_listed_architectures_are_of_every_family_of_timm_at_its_usual_size(benchmark):
    timm = pytest.importorskip("timm")
    listed = [one for one in benchmark("architectures").models().values() if one["model_name"].startswith("timm:")]
    sizes = {one["model_name"].removeprefix("timm:"): one["input_size"] for one in listed}
    families = {module: timm.list_models(module=module) for module in timm.list_modules()}
    assert sum(not sizes.keys().isdisjoint(members) for members in families.values()) >= 98
    assert sizes == {name: [1, *timm.get_pretrained_cfg(name).input_size] for name in sizes}


# Operators of torch


CATALOGUE = """
import json
import operators_of_torch as catalogue
from seeds import some_of
names = catalogue.names()
found = catalogue.results(names[:: len(names) // some_of(len(names))])
print(json.dumps([len(names), [(one.name, one.outcome.name, one.reason) for one in found]]))
"""


def test_nearly_all_operators_of_torch_are_counted_and_rebuilt(benchmark):
    # A process of its own: the catalogue's module forbids to set torch's flags from then on.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (BENCHMARKS.parent, BENCHMARKS, Path(__file__).parent))),
    }
    child = subprocess.run(
        [sys.executable, "-c", CATALOGUE], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    number, lines = json.loads(child.stdout.splitlines()[-1])
    catalogue = benchmark("operators_of_torch")
    found = [catalogue.Result(name, catalogue.Outcome[outcome], reason) for name, outcome, reason in lines]
    here = [result for result in found if result.outcome != catalogue.Outcome.NOT_HERE]
    failing = catalogue.failing(here)
    # torch 2.14: 9 of 693. Other versions have other entries.
    assert len(failing) <= Seeds(number).at_most(0.02) * len(here), failing
    assert len(here) > 0.9 * len(found) > 80
    assert all(result.reason for result in failing)
    page = catalogue.page(found)
    assert f"| **pass** | **{len(here) - len(failing)} of {len(found)}** |" in page


# Predicted costs


@pytest.fixture
def synthetic(benchmark):
    """Return samples of Linears of two families and one of both, with a whole of each family."""
    data, samples = benchmark("prediction"), benchmark("opcost.prediction.samples")
    calls = []
    for rows in range(1, 31):
        spec = TensorSpec((100 * rows, 64), "float32")
        operator = OperatorTuple("torch.nn.Linear", (("in_features", 64), ("out_features", 64)), (spec,))
        one = OperatorCount(operator, 1, 2 * 6400 * rows * 64, 51200 * rows, spec, operations=(("addmm", 1),))
        calls.append((one, parse_input_data("normal")))
    flop = np.array([count.flop for count, _ in calls])
    families = [frozenset("a"), frozenset("b"), frozenset("ab")] * 10
    held = samples.Samples(
        raw=np.array([samples.raw_features(*call) for call in calls]),
        kinds=("addmm",) * 30,
        shapes=tuple(str(place) for place in range(30)),
        families=tuple(families),
        times_s=1e-6 + flop / 1e13,
        energies_j=1e-4 + flop / 1e11,
        boards=samples.Boards({}, 0.02),
    )
    wholes = []
    learned_costs = benchmark("opcost.prediction.learned_costs")
    for family in "ab":
        places = tuple(place for place, own in enumerate(families) if family in own)
        model = learned_costs.ModelCalls(family, places, (2,) * len(places))
        costs = (2 * held.times_s[list(places)].sum(), 2 * held.energies_j[list(places)].sum())
        wholes.append(data.Whole(f"{family}_32x3", data.named(SIMULATED_CONDITIONS), model, *costs))
    lesson = learned_costs.Lesson(held, [one.calls for one in wholes], samples.card_of(held, 132))
    key = SIMULATED_CONDITIONS.key
    ground = data.Ground({SIMULATED_CONDITIONS: 30}, {})
    return data.Committed(ground, {key: SIMULATED_CONDITIONS}, {key: lesson}, wholes, calls)


def test_nothing_of_a_held_out_family_is_in_its_predictions_and_intervals(benchmark, synthetic, monkeypatch):
    script = benchmark("prediction")
    expected, seen = script.Trials.expected, []

    def recorded(trials, places, models):
        seen.append((set(places), [one.family for one in models]))
        return expected(trials, places, models)

    monkeypatch.setattr(script.Trials, "expected", recorded)
    rows = script.families(synthetic)
    without_a, without_b = ({place for place in range(30) if place % 3 == own} for own in (1, 0))
    assert seen == [(without_a, ["b"]), (without_b, ["a"])]
    assert list(rows["model"]) == ["a_32x3", "b_32x3"]
    for cost in ("time", "energy"):
        assert list(rows[f"{cost}_ratio"]) == [pytest.approx(1, rel=0.2)] * 2
        assert (rows[f"{cost}_half_width"] > 0).all()


def test_kinds_of_few_samples_have_one_row_together(benchmark):
    columns = {cost: np.log([1.05] * 30) for cost in ("time", "energy")}
    halves = {f"{cost} half": [0.1] * 18 + [0.01] * 12 for cost in columns}
    errors = pd.DataFrame({"kind": ["addmm"] * 20 + ["mm"] * 4 + ["relu"] * 6, **columns, **halves})
    rows = benchmark("prediction").tuples_table(errors)
    assert rows[["kind", "samples"]].to_numpy().tolist() == [["all", 30], ["addmm", 20], ["others", 10]]
    assert rows.loc[0, ["time_median", "time_within_10", "time_covered"]].tolist() == pytest.approx([0.05, 1, 0.6])
