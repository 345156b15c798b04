"""Blocks 0 and 1: counting real models, and what happens to configs that cannot be counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simulated_apparatus import RecordedProgress
from torch import nn
from torchvision.models._api import BUILTIN_MODELS

from opcost.__main__ import main
from opcost.errors import CannotMeasureError, UserError
from opcost.invocation import command
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.model_rows import counts_of, rows_of
from opcost.operators.tuples import OperatorTuple, model_operator
from opcost.operators.values import InputStatistics
from opcost.prediction.durations import Size
from opcost.running.expected_times import size_of
from opcost.running.request import RunRequest, selected
from opcost.running.request import counted as stored
from opcost.sources.models import resolve
from opcost.stages.count import (
    CensusRow,
    CountFailure,
    CountReport,
    count_operators,
    counting_s,
    plan_counting,
    take_census,
)
from opcost.stages.filter import filter_operators
from opcost.storage.configs import ModelConfig, ModelFolders, model_tuple
from opcost.storage.counts_file import read_counts
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS


def add_model(
    folder: Path, name: str, model_name: str, input_size: list[int], done: bool = False, keys: str = ""
) -> None:
    path = folder / "measurements" / name / "summary.yml"
    path.parent.mkdir(parents=True)
    text = f"model_name: {model_name}\nweights_name: null\ninput_size: {input_size}\ndone: {done}\n".lower()
    path.write_text(text + keys)


def request(folder: Path, *names: str, dry_run: bool = False) -> RunRequest:
    return RunRequest(
        names, ModelFolders(folder / "measurements"), Database(folder / "database"), "cpu", dry_run=dry_run
    )


def config_of(folder: Path, name: str) -> ModelConfig:
    (config,) = ModelFolders(folder / "measurements").configs([name])
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
    # Dropout in eval mode does not compute anything.
    of_all, computing = len(counts.counts), sum(count.computes for count in counts.counts)
    assert computing == of_all - 1
    assert progress.results == [
        f"{counts.operator_calls} calls of {of_all} operator tuples, {computing} of which compute something"
    ]
    assert progress.ended == 1


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 32, 32])
    write_whitelist(tmp_path, "Conv2d")
    before = sorted(tmp_path.rglob("*"))
    (plan,) = plan_counting(request(tmp_path))
    assert (plan.name, plan.counted_before, plan.device) == ("small", False, "cpu")
    assert plan_counting(request(tmp_path), on_meta=True)[0].device == "meta"
    assert plan.model == "torchvision.models.squeezenet1_1() on (float32[2, 3, 32, 32]) eval"
    assert sorted(tmp_path.rglob("*")) == before
    count_operators(request(tmp_path), RecordedProgress())
    before = sorted(tmp_path.rglob("*"))
    assert filter_operators(request(tmp_path), dry_run=True)[0].kept.calls == 26
    assert sorted(tmp_path.rglob("*")) == before


def test_done_models_are_counted_only_if_they_are_named_and_are_filtered_all_the_same(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 32, 32], done=True)
    write_whitelist(tmp_path, "Conv2d")
    assert count_operators(request(tmp_path), RecordedProgress()) == []
    assert len(count_operators(request(tmp_path, "small"), RecordedProgress())) == 1
    assert [report.name for report in filter_operators(request(tmp_path))] == ["small"]
    assert FILTERED_COUNTS.path(config_of(tmp_path, "small")).exists()


def test_models_behind_one_that_breaks_the_device_are_left_to_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of CUDA stays in a process: whatever is asked of the device then fails."""
    add_model(tmp_path, "a_good", "squeezenet1_1", [2, 3, 32, 32])
    add_model(tmp_path, "b_faulty", "resnet18", [2, 4, 32, 32])
    add_model(tmp_path, "c_good", "squeezenet1_1", [2, 3, 64, 64])

    def fail(device: str) -> None:
        raise RuntimeError(f"CUDA error on {device}: device-side assert triggered")

    monkeypatch.setattr("opcost.stages.count.synchronize", fail)
    monkeypatch.setattr("opcost.stages.count.is_gpu", lambda device: True)
    first, faulty, left = count_operators(request(tmp_path), RecordedProgress())
    assert not isinstance(first, CountFailure)
    assert isinstance(faulty, CountFailure)
    assert isinstance(left, CountFailure)
    assert "b_faulty has ended the device's work for this process" in left.reason
    assert "count c_good" in left.reason


def test_models_that_do_not_run_on_their_input_are_reported_at_once_and_the_others_are_counted(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("fault", [KeyError("layer"), AttributeError("no\nlayer"), ValueError()])
def test_a_registered_model_that_cannot_be_built_is_one_line_and_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def my_own() -> None:
        raise fault

    monkeypatch.setitem(BUILTIN_MODELS, "my_own", my_own)
    add_model(tmp_path, "a", "my_own", [2, 3, 32, 32])
    add_model(tmp_path, "b", "squeezenet1_1", [2, 3, 32, 32])
    failure, counted = count_operators(request(tmp_path), RecordedProgress())
    assert isinstance(failure, CountFailure)
    assert failure.reason.startswith(
        f"{tmp_path}/measurements/a/summary.yml:1: model_name: the builder of my_own raised "
    )
    assert len(failure.reason.splitlines()) == 1
    assert not isinstance(counted, CountFailure)


def test_mistyped_models_are_reported_before_anything_is_counted(tmp_path: Path) -> None:
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
    assert caught.value.lines == (f"{tmp_path}/measurements: no model is counted; run {command('count')}",)
    with pytest.raises(UserError, match=r"a/operators\.pkl: .* run .*opcost count a "):
        filter_operators(request(tmp_path, "a"))


def test_models_without_counts_or_with_those_of_another_size_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_model(tmp_path, "a", "squeezenet1_1", [2, 3, 32, 32])
    add_model(tmp_path, "b", "squeezenet1_1", [2, 3, 64, 64])
    write_whitelist(tmp_path, "Conv2d")
    count_operators(request(tmp_path, "a"), RecordedProgress())
    assert [report.name for report in filter_operators(request(tmp_path))] == ["a"]
    assert caplog.messages == []
    assert [report.name for report in filter_operators(request(tmp_path, "*"))] == ["a"]
    assert caplog.messages == [f"1 model is not counted and left out: b; run {command('count', '*')}"]
    count_operators(request(tmp_path, "b"), RecordedProgress())
    summary = tmp_path / "measurements" / "b" / "summary.yml"
    summary.write_text(summary.read_text().replace("64", "32"))
    assert [report.name for report in filter_operators(request(tmp_path))] == ["a"]
    assert "b/operators.pkl" in caplog.text
    with pytest.raises(UserError, match=r"b/operators.pkl: .*summary\.yml"):
        filter_operators(request(tmp_path, "b"))


def test_a_whitelist_that_keeps_nothing_or_misspells_an_operator_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_model(tmp_path, "a", "squeezenet1_1", [2, 3, 32, 32])
    count_operators(request(tmp_path), RecordedProgress())
    nearly = "Conv2dd in the whitelist matches no operator; did you mean Conv2d?"
    for names, messages in (
        (("Conv2dd", "Hardswish", "BatchNorm2d"), [nearly, "a: the whitelist keeps no operator"]),
        (("Conv2d", "Conv2dd", "Conv1d"), []),
    ):
        caplog.clear()
        write_whitelist(tmp_path, *names)
        filter_operators(request(tmp_path))
        assert caplog.messages == messages
    write_whitelist(tmp_path, "Conv2D", "Hardswish")
    with pytest.raises(UserError) as caught:
        filter_operators(request(tmp_path))
    (line,) = caught.value.lines
    assert line.endswith("operator_whitelist.yml: Conv2D matches no operator; did you mean Conv2d?")


@pytest.mark.parametrize("model_name", ["swin_t", "googlenet"])
def test_a_class_is_no_misspelt_function(tmp_path: Path, model_name: str) -> None:
    # Both call functions (linear, relu) whose classes they use as well, or not at all.
    add_model(tmp_path, "a", model_name, [1, 3, 224, 224])
    write_whitelist(tmp_path, "Linear", "ReLU", "Sigmoid", "relu")
    count_operators(request(tmp_path), RecordedProgress(), on_meta=True)
    (report,) = filter_operators(request(tmp_path))
    assert "Linear" in {operator.operator for operator in report.operators if operator.kept}


def test_an_input_that_no_memory_can_hold_cannot_be_measured() -> None:
    with pytest.raises(CannotMeasureError, match="RuntimeError"):
        resolve(model_operator("squeezenet1_1", None, (2**40, 3, 64, 64))).with_inputs("cpu")


# On the meta device


def counted(results: list[CountReport | CountFailure]) -> list[CountReport]:
    assert all(isinstance(result, CountReport) for result in results), results
    return [result for result in results if isinstance(result, CountReport)]


def test_a_run_on_shapes_counts_the_same_as_one_for_real(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "mobilenet_v3_small", [2, 3, 64, 64])
    (real,) = counted(count_operators(request(tmp_path), RecordedProgress()))
    read = read_counts(COUNTS.path(config_of(tmp_path, "small")), "x")
    COUNTS.path(config_of(tmp_path, "small")).unlink()
    (meta,) = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    assert replace(meta, counted_on="cpu") == real
    on_meta = read_counts(COUNTS.path(config_of(tmp_path, "small")), "x")
    without_values = tuple(replace(count, statistics=()) for count in read.counts)
    assert (on_meta.device_type, on_meta.counts) == ("meta", without_values)
    assert replace(on_meta, device_type="cpu", counts=read.counts) == read


def test_counts_on_shapes_do_not_take_the_place_of_real_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [1, 3, 64, 64])
    count_operators(request(tmp_path), RecordedProgress(), on_meta=True)
    count_operators(request(tmp_path), RecordedProgress())
    assert caplog.text == ""
    count_operators(request(tmp_path), RecordedProgress(), on_meta=True)
    assert caplog.messages[0].startswith("small: ")
    ((_, kept),) = stored(request(tmp_path), [config_of(tmp_path, "small")], COUNTS)
    assert kept.device_type == "cpu"


MASKED = """
import torch


class Masked(torch.nn.Module):
    def forward(self, x):
        found = torch.cat((x, x[:0]))
        return found.add(torch.tensor([0.0, -torch.inf])).mul(torch.tensor([torch.nan, 1.0]))


def build():
    return Masked(), torch.ones(3, 2)
"""


def test_counts_of_values_that_are_no_numbers_survive_both_pickles(tmp_path: Path) -> None:
    """Detectors have empty inputs, masks are infinite: what is written must equal what is read."""
    folder = tmp_path / "measurements" / "masked"
    folder.mkdir(parents=True)
    (folder / "summary.yml").write_text("model_name: ../../masked.py:build\n")
    (tmp_path / "masked.py").write_text(MASKED)
    write_whitelist(tmp_path, "add", "mul", "cat")
    asked = replace(request(tmp_path), allow_code=True)
    count_operators(asked, RecordedProgress())
    filter_operators(asked)
    config = config_of(tmp_path, "masked")
    ((_, kept),) = selected(asked, [config])
    assert kept.counts == read_counts(COUNTS.path(config), "x").counts
    (_, empty), (_, infinite), (_, not_a_number) = (count.statistics[0] for count in kept.counts)
    assert empty == InputStatistics(zeros_ratio=None, mean=None, spread=None)
    assert infinite == InputStatistics(zeros_ratio=0.5, mean=None, spread=None)
    assert not_a_number == InputStatistics(zeros_ratio=0.0, mean=None, spread=None)


def test_a_size_that_no_memory_holds_is_counted_on_shapes(tmp_path: Path) -> None:
    add_model(tmp_path, "large", "squeezenet1_1", [100000, 3, 224, 224])
    (report,) = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    assert report.counted_flops == report.flops > 10**13


@pytest.mark.second_tier
def test_detectors_run_for_real_where_others_run_on_shapes(tmp_path: Path) -> None:
    add_model(tmp_path, "a_detector", "ssdlite320_mobilenet_v3_large", [1, 3, 320, 320])
    add_model(tmp_path, "b_flow", "raft_small", [1, 3, 128, 128])
    detector, flow = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    assert (detector.counted_on, flow.counted_on) == ("cpu", "meta")
    assert detector.outside == flow.outside == ()
    assert [plan.device for plan in plan_counting(request(tmp_path), on_meta=True)] == ["cpu", "meta"]


@pytest.mark.second_tier
def test_detectors_are_counted_alike_each_time_and_the_seed_is_part_of_the_model(tmp_path: Path) -> None:
    add_model(tmp_path, "detector", "ssdlite320_mobilenet_v3_large", [1, 3, 320, 320])
    first, again = (counted(count_operators(request(tmp_path), RecordedProgress())) for _ in range(2))
    assert first == again
    path = config_of(tmp_path, "detector").path
    path.write_text(path.read_text() + "seed: 1\n")
    with pytest.raises(UserError, match="summary.yml has changed since; run .*opcost count detector"):
        COUNTS.read(config_of(tmp_path, "detector"))
    assert "seed=1" in str(model_tuple(config_of(tmp_path, "detector")))


@pytest.mark.parametrize(
    "asked", ["precision: fp16", "precision: amp-bf16", "memory_format: channels_last", "attention: efficient"]
)
def test_a_refusal_names_the_keys_besides_the_size_that_may_be_its_cause(tmp_path: Path, asked: str) -> None:
    add_model(tmp_path, "small", "resnet18", [2, 4, 32, 32], keys=f"{asked}\n")
    path = config_of(tmp_path, "small").path
    (report,) = count_operators(request(tmp_path), RecordedProgress())
    assert isinstance(report, CountFailure)
    key = asked.partition(":")[0]
    assert report.reason.startswith(f"{path}:5: {key}: resnet18 does not run with {asked} on [2, 4, 32, 32] on cpu (")
    assert report.reason.endswith(f"; leave out {key}, or choose a size that it accepts and that fits into memory")


def test_a_model_under_autocast_is_counted_on_values_although_shapes_are_asked_for(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [1, 3, 32, 32], keys="precision: amp-bf16\n")
    (report,) = count_operators(request(tmp_path), RecordedProgress(), on_meta=True)
    assert (report.name, report.counted_on) == ("small", "cpu")


def test_counts_of_one_precision_are_not_taken_for_those_of_autocast(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [1, 3, 32, 32])
    count_operators(request(tmp_path), RecordedProgress())
    plain = config_of(tmp_path, "small")
    plain.path.write_text(plain.path.read_text() + "precision: amp-bf16\n")
    mixed = config_of(tmp_path, "small")
    with pytest.raises(UserError, match="summary.yml has changed since"):
        COUNTS.read(mixed)
    count_operators(request(tmp_path), RecordedProgress())
    counts = COUNTS.read(mixed)
    assert counts.model.key != model_tuple(plain).key
    assert "bfloat16" in str(counts.counts[-1].operator)
    (shipped,) = counts_of(rows_of("small", counts, "2026-11-24T00:00:00+00:00"))
    assert shipped.counts.model == counts.model


# Shares, census, composites


def test_shares_in_tuples_and_in_the_whitelist_are_reported(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "resnet18", [2, 3, 64, 64])
    (report,) = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    assert (report.whitelisted_flops, report.whitelisted_bytes) == (None, None)
    write_whitelist(tmp_path, "Conv2d", "add_")
    (report,) = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    assert (report.operator_calls, report.module_calls, report.function_calls) == (68, 60, 8)
    assert (report.counted_flops, report.counted_bytes) == (report.flops, report.bytes)
    linear_flops = 2 * 2 * 512 * 1000
    assert report.whitelisted_flops == report.flops - linear_flops
    assert report.whitelisted_bytes is not None
    assert 0 < report.whitelisted_bytes < report.bytes


def test_composites_of_a_config_are_one_operator_each(tmp_path: Path) -> None:
    add_model(tmp_path, "swin", "swin_t", [1, 3, 224, 224])
    config = config_of(tmp_path, "swin")
    (plain,) = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    config.path.write_text(config.path.read_text() + "composites: [ShiftedWindowAttention]\n")
    with pytest.raises(UserError, match=r"\(composites: none\), but summary\.yml has changed since"):
        COUNTS.read(config_of(tmp_path, "swin"))
    (report,) = counted(count_operators(request(tmp_path), RecordedProgress(), on_meta=True))
    assert report.operator_calls < plain.operator_calls
    assert (report.flops, report.counted_flops) == (plain.flops, plain.flops)
    counts = COUNTS.read(config_of(tmp_path, "swin"))
    assert sum(c.occurrences for c in counts.counts if c.operator.short_name == "ShiftedWindowAttention") == 12


def test_a_composite_that_the_model_does_not_have_is_a_line(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 64, 64], keys="composites: [Fyre, Fire]\n")
    path = config_of(tmp_path, "small").path
    (failure,) = count_operators(request(tmp_path), RecordedProgress(), on_meta=True)
    assert isinstance(failure, CountFailure)
    assert failure.reason.startswith(f"{path}:5: composites: squeezenet1_1 has no module of class Fyre; it has ")
    assert "Fire, " in failure.reason


class Inverts(nn.Module):
    """A product of 2 * 3 * 8 * 8 * 8 FLOPs, and an inverse, which has no formula."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._standard_gamma(x @ x.mT + torch.eye(8, device=x.device))


@pytest.fixture
def inverts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "inverts", Inverts)
    add_model(tmp_path, "own", "inverts", [2, 3, 8, 8])
    write_whitelist(tmp_path, "'*'")


@pytest.mark.usefixtures("inverts")
def test_a_model_with_an_operation_without_a_formula_is_counted_and_its_flop_are_unknown(tmp_path: Path) -> None:
    (report,) = count_operators(request(tmp_path), RecordedProgress())
    assert isinstance(report, CountReport)
    assert (report.flops, report.counted_flops, report.whitelisted_flops) == (None, None, None)
    assert report.least_flops == 2 * 2 * 3 * 8**3
    assert report.flops_missing_reason == "no formula for the FLOPs of aten::_standard_gamma"
    assert report.counted_bytes == report.bytes
    (gap,) = report.without_formula
    assert (gap.operation, gap.calls) == ("aten::_standard_gamma", 1)
    assert gap.calls_ratio == 1 / report.operator_calls
    assert gap.memory_bytes_ratio == gap.memory_bytes / report.bytes
    counts = read_counts(COUNTS.path(config_of(tmp_path, "own")), "x")
    (shipped,) = counts_of(rows_of("own", counts, "2026-11-25T10:00:00+00:00"))
    assert shipped.counts.without_formula == counts.without_formula
    assert [one.flop for one in shipped.counts.counts] == [one.flop for one in counts.counts]
    (filtered,) = filter_operators(request(tmp_path))
    shares = [filtered.kept, filtered.dropped, filtered.outside, *(one.share for one in filtered.operators)]
    assert {share.flop_ratio for share in shares} == {None}
    assert filtered.kept.memory_bytes_ratio == 1.0


@pytest.mark.usefixtures("inverts")
@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 2)])
def test_the_command_names_operations_without_a_formula_with_their_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], status: int
) -> None:
    folders = ["--measurements", f"{tmp_path}/measurements", "--database", f"{tmp_path}/database"]
    line = ["count", "own", *folders, "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["opcost", *line, *options])
    assert main() == status
    shown = capsys.readouterr()
    if status:
        reason = (
            "summary.yml:1: model_name: inverts: no formula for the FLOPs of aten::_standard_gamma; register one with"
        )
        assert reason in shown.err
        assert "register_flop_formula, or count without --strict" in shown.err
        assert not COUNTS.path(config_of(tmp_path, "own")).exists()
        return
    assert "≥ " in shown.out
    words = " ".join(shown.out.split())
    assert "own: no formula for the FLOPs of aten::_standard_gamma (25.0 % of calls, " in words
    assert "register_flop_formula" in words
    monkeypatch.setattr("sys.argv", ["opcost", *line, "--json"])
    assert main() == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["flops"], report["least_flops"]) == (None, 2 * 2 * 3 * 8**3)
    assert report["without_formula"][0]["operation"] == "aten::_standard_gamma"
    assert report["without_formula"][0]["calls_ratio"] == 0.25


# Expected durations


SIZES = st.builds(Size, st.integers(0, 10**16), st.integers(0, 10**13), st.integers(0, 10**10))


@given(SIZES, SIZES, st.sampled_from(("cpu", "cuda:0", "meta")))
def test_expected_times_are_positive_and_grow_with_the_size(size: Size, more: Size, device: str) -> None:
    larger = Size(size.flop + more.flop, size.memory_bytes + more.memory_bytes, size.parameters + more.parameters)
    assert 0 < counting_s(size, device) <= counting_s(larger, device) < float("inf")
    assert 0 < counting_s(None, device) < 60


def test_a_large_model_is_expected_to_take_longer_than_a_small_one(tmp_path: Path) -> None:
    add_model(tmp_path, "huge", "vit_h_14", [32, 3, 518, 518])
    add_model(tmp_path, "small", "resnet18", [32, 3, 32, 32])
    huge, small = plan_counting(request(tmp_path))
    assert small.expected_s < 5
    assert huge.expected_s > 120
    on_meta, _ = plan_counting(request(tmp_path), on_meta=True)
    assert on_meta.expected_s < 5


def test_a_counted_size_replaces_the_published_one(tmp_path: Path) -> None:
    add_model(tmp_path, "small", "squeezenet1_1", [2, 3, 32, 32])
    config = config_of(tmp_path, "small")
    published = size_of(config, {})
    (counted,) = count_operators(request(tmp_path), RecordedProgress())
    assert isinstance(counted, CountReport)
    assert size_of(config, {}) == Size(counted.flops, counted.bytes, counted.parameters)
    assert published is not None
    # At the published size of 224 pixels a side, scaled by the number of pixels.
    assert 1 / 4 < published.flop / counted.flops < 4
    assert published.parameters == counted.parameters


# Calls and tuples over several models, each shared tuple counted once


CONVOLUTION, LINEAR, ADD, DROPOUT = (OperatorTuple(name) for name in ("a.Conv2d", "a.Linear", "a.add", "a.Dropout"))


def counts_with(**occurrences: int) -> OperatorCounts:
    operators = {"convolution": CONVOLUTION, "linear": LINEAR, "add": ADD, "dropout": DROPOUT}
    costs = {"convolution": (100, 10), "linear": (0, 10), "add": (0, 1), "dropout": (0, 0)}
    counts = tuple(OperatorCount(operators[name], n, *costs[name]) for name, n in occurrences.items())
    return OperatorCounts(model_operator("resnet18", None, (1, 3, 8, 8)), counts, 1000, 1000, 1, "2.11.0", "meta")


def test_tuples_are_counted_once_over_all_models_and_calls_as_often_as_they_occur() -> None:
    models = {
        "a": counts_with(convolution=3, linear=1),
        "b": counts_with(convolution=2, add=5),
        "c": counts_with(linear=7),
    }
    assert take_census(models) == [
        CensusRow("a", calls=4, tuples=2, shared_tuples=2, unshared_tuples=0),
        CensusRow("b", calls=7, tuples=2, shared_tuples=1, unshared_tuples=1),
        CensusRow("c", calls=7, tuples=1, shared_tuples=1, unshared_tuples=0),
        CensusRow(None, calls=18, tuples=3, shared_tuples=2, unshared_tuples=1),
    ]


def test_what_computes_nothing_is_not_counted() -> None:
    assert take_census({"a": counts_with(dropout=4)})[0] == CensusRow("a", 0, 0, 0, 0)


def test_no_models_have_nothing() -> None:
    assert take_census({}) == [CensusRow(None, 0, 0, 0, 0)]
