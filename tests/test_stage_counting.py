"""Blocks 0 and 1: counting real models, and what happens to configs that cannot be counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress

from opcost.apparatus import model_and_inputs
from opcost.config_files import ModelConfig, load_configs
from opcost.errors import CannotMeasureError, UserError
from opcost.operators import model_operator
from opcost.pickle_files import read_counts
from opcost.request import COUNTS, FILTERED_COUNTS, Request
from opcost.stage_counting import CountFailure, count_operators, plan_counting
from opcost.stage_filtering import filter_operators


def add_model(folder: Path, name: str, model_name: str, input_size: list[int], done: bool = False) -> None:
    path = folder / "measurements" / name / "summary.yml"
    path.parent.mkdir(parents=True)
    path.write_text(f"model_name: {model_name}\nweights_name: null\ninput_size: {input_size}\ndone: {done}\n".lower())


def request(folder: Path, *names: str, dry_run: bool = False) -> Request:
    return Request(names, folder / "measurements", folder / "database", "cpu", dry_run)


def config_of(folder: Path, name: str) -> ModelConfig:
    (config,) = load_configs(folder / "measurements", [name])
    return config


def write_whitelist(folder: Path, *names: str) -> None:
    (folder / "measurements" / "operator_whitelist.yml").write_text(f"operators: [{', '.join(names)}]\n")


def test_a_model_is_counted_and_filtered(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 32, 32])
    write_whitelist(tmp_path, "Conv2d", "Linear")
    progress = RecordedProgress()
    (counted,) = count_operators(request(tmp_path), progress)
    (filtered,) = filter_operators(request(tmp_path))
    counts = read_counts(COUNTS.path(config_of(tmp_path, "small")), "x")
    kept = read_counts(FILTERED_COUNTS.path(config_of(tmp_path, "small")), "x")
    assert (counted.name, counted.operator_calls, counted.parameters) == ("small", counts.operator_calls, 1235496)
    assert (counted.unique_tuples, counted.flops, counted.bytes) == (
        len(counts.counts),
        counts.total_flop,
        counts.total_memory_bytes,
    )
    assert counts.counts[0].operator.inputs_text == "float32[2, 3, 32, 32]"
    assert kept.counts == tuple(count for count in counts.counts if count.operator.short_name == "Conv2d")
    assert (filtered.unique_tuples, filtered.kept_tuples) == (len(counts.counts), len(kept.counts))
    assert filtered.kept.calls == 26
    assert filtered.kept.flop_ratio == 1.0
    assert progress.names == ["small"]
    assert progress.ended == 1


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 32, 32])
    write_whitelist(tmp_path, "Conv2d")
    before = sorted(tmp_path.rglob("*"))
    (plan,) = plan_counting(request(tmp_path))
    assert (plan.name, plan.counted_before) == ("small", False)
    assert plan.model == "torchvision.models.squeezenet1_1() on (float32[2, 3, 32, 32]) eval"
    assert sorted(tmp_path.rglob("*")) == before
    count_operators(request(tmp_path), RecordedProgress())
    before = sorted(tmp_path.rglob("*"))
    assert filter_operators(request(tmp_path, dry_run=True))[0].kept.calls == 26
    assert sorted(tmp_path.rglob("*")) == before


def test_done_models_are_counted_only_if_they_are_named(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 32, 32], done=True)
    assert count_operators(request(tmp_path), RecordedProgress()) == []
    assert len(count_operators(request(tmp_path, "small"), RecordedProgress())) == 1


def test_models_that_do_not_run_on_their_input_are_told_at_once_and_the_others_are_counted(tmp_path: Path) -> None:
    add_model(tmp_path, "a_small", "resnet18", [2, 4, 32, 32])
    add_model(tmp_path, "b_vit", "vit_b_16", [1, 3, 32, 32])
    add_model(tmp_path, "c_good", "squeezenet1_1", [2, 3, 32, 32])
    progress = RecordedProgress()
    reports = count_operators(request(tmp_path), progress)
    assert [isinstance(report, CountFailure) for report in reports] == [True, True, False]
    first, second = (report.reason for report in reports if isinstance(report, CountFailure))
    assert first.startswith(f"{tmp_path}/measurements/a_small/summary.yml:3: input_size: resnet18 does not run on ")
    assert "[2, 4, 32, 32]" in first
    assert "b_vit" in second
    assert len(first.splitlines()) == len(second.splitlines()) == 1
    assert COUNTS.path(config_of(tmp_path, "c_good")).exists()
    assert not COUNTS.path(config_of(tmp_path, "b_vit")).exists()
    assert progress.ended == 1


def test_mistyped_models_are_told_before_anything_is_counted(tmp_path: Path) -> None:
    add_model(tmp_path, "a", "squeezenet1_1", [2, 3, 32, 32])
    add_model(tmp_path, "b", "resnet81", [2, 3, 32, 32])
    add_model(tmp_path, "c", "vit_b16", [2, 3, 32, 32])
    with pytest.raises(UserError) as caught:
        count_operators(request(tmp_path), RecordedProgress())
    first, second = caught.value.lines
    assert "resnet18" in first.partition("; did you mean ")[2]
    assert "vit_b_16" in second.partition("; did you mean ")[2]
    assert not COUNTS.path(config_of(tmp_path, "a")).exists()


def test_filtering_without_counts_names_block_0(tmp_path: Path) -> None:
    add_model(tmp_path, "a", "squeezenet1_1", [2, 3, 32, 32])
    write_whitelist(tmp_path, "Conv2d")
    with pytest.raises(UserError) as caught:
        filter_operators(request(tmp_path))
    assert caught.value.lines == (
        f"{tmp_path}/measurements: no model has an operators.pkl yet; run general_pipeline_block0.py first",
    )
    with pytest.raises(UserError, match=r"a/operators\.pkl: not there yet; run general_pipeline_block0\.py a first"):
        filter_operators(request(tmp_path, "a"))


def test_unnamed_models_without_counts_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_model(tmp_path, "a", "squeezenet1_1", [2, 3, 32, 32])
    add_model(tmp_path, "b", "squeezenet1_1", [2, 3, 64, 64])
    write_whitelist(tmp_path, "Conv2d")
    count_operators(request(tmp_path, "a"), RecordedProgress())
    assert [report.name for report in filter_operators(request(tmp_path))] == ["a"]
    assert caplog.messages == [
        "1 models have no operators.pkl yet and are left out; general_pipeline_block0.py makes it"
    ]


def test_a_whitelist_that_misspells_an_operator_is_refused(tmp_path: Path) -> None:
    add_model(tmp_path, "a", "squeezenet1_1", [2, 3, 32, 32])
    write_whitelist(tmp_path, "Conv2D", "Hardswish")
    count_operators(request(tmp_path), RecordedProgress())
    with pytest.raises(UserError) as caught:
        filter_operators(request(tmp_path))
    (line,) = caught.value.lines
    assert line.endswith("operator_whitelist.yml: Conv2D matches no operator; did you mean Conv2d?")


def test_an_input_that_no_memory_can_hold_cannot_be_measured() -> None:
    with pytest.raises(CannotMeasureError, match="RuntimeError"):
        model_and_inputs(model_operator("squeezenet1_1", None, (2**40, 3, 64, 64)), "cpu")
