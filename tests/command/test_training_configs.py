"""A training step from a config: counted, filtered, measured and compared as any other model, on the CPU."""

import json
import shutil
from pathlib import Path

import pytest
from test_own_models import Home

from opcost.errors import UserError

NET = """
from torch import nn, randn
def build(channels=4):
    return nn.Sequential(nn.Linear(16, channels), nn.SiLU(inplace=True), nn.Linear(channels, 3)), randn(8, 16)
def loss():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 4)
        def forward(self, x):
            return {"loss": self.layer(x).square().mean()}
    return Own(), randn(8, 16)
def nothing():
    return nn.ReLU(), randn(8, 16)
def infinite():
    return nn.Sequential(nn.Linear(16, 3)), randn(8, 16) / 0
def flat():
    return nn.Sequential(nn.Linear(16, 1), nn.Flatten(0)), randn(8, 16)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    found = Home(tmp_path)
    found.net.write_text(NET)
    return found


def write(home: Home, function: str, more: str = "") -> None:
    home.config("step").write_text(f"model_name: {home.net}:{function}\nmode: training\n{more}")
    (home.home / "measurements" / "operator_whitelist.yml").write_text("operators: [Linear, silu_, cross_entropy]\n")


@pytest.mark.parametrize("precision", ["torch-default", "amp-bf16"])
def test_a_step_is_counted_measured_and_compared(
    home: Home, capsys: pytest.CaptureFixture[str], precision: str
) -> None:
    write(home, "build", f"precision: {precision}\ninputs: {{shape: [8, 16]}}\n")
    assert home.run("count", "step", "--allow-code", "--device", "cpu") == 0
    assert home.run("filter", "step") == 0
    run = "step", "--allow-code", "--device", "cpu", "--seconds"
    assert home.run("measure", *run, "0.01") == 0
    # On a busy machine a shorter loop of the step takes no longer than one of its forward.
    assert home.run("measure-models", *run, "0.3") == 0
    capsys.readouterr()
    assert home.run("compare", "step", "--json") == 0
    (model,) = json.loads(capsys.readouterr().out)
    step, *parts = model["comparisons"]
    assert [one["phase"] for one in (step, *parts)] == ["step", "forward", "backward", "optimizer"]
    assert step["time_s"] == pytest.approx(sum(one["time_s"] for one in parts))
    assert all(one["full_time_s"] > 0 for one in parts)
    # Of the forward, a clone is not in the whitelist. All of the backward and the optimiser is kept.
    assert [one["missing_operators"] for one in (step, *parts)] == [0, 0, 0, 0]
    assert [one["flop_ratio"] for one in parts] == [1.0, 1.0, None]
    rows = (home.home / "database" / "operator_measurements.csv").read_text()
    assert {phase for phase in ("forward", "backward", "optimizer") if f",{phase}," in rows} == {
        "forward",
        "backward",
        "optimizer",
    }
    assert "not as counted" not in rows
    shown_among_steps(home, capsys, [one["full_time_s"] for one in model["comparisons"]])


def shown_among_steps(home: Home, capsys: pytest.CaptureFixture[str], times_s: list[float]) -> None:
    """The step is shown with its phases, and is in no ranking of inference."""
    assert home.run("show", "--mode", "training", "--device", "cpu", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [row[f"{name}time_s"] for name in ("", "forward_", "backward_", "optimizer_")] == times_s
    assert row["time_per_sample_s"] == pytest.approx(times_s[0] / 8)
    assert home.run("show", "--mode", "training", "--device", "cpu") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Time per sample of a training step on ")
    assert all(f"{name} ms/sample" in shown for name in ("forward", "backward", "optimizer"))
    assert home.run("show", "step", "--mode", "training") == 0
    assert "backward (one run)" in capsys.readouterr().out
    for words, mistake in [
        (["--device", "cpu"], "^no config with mode: inference is measured on these devices; run "),
        (["step"], "^step: its config has mode: training; add --mode training to show it$"),
        (
            ["resnet50", "--mode", "training"],
            "add --mode inference to show it, or run .*opcost predict resnet50 --mode training ",
        ),
    ]:
        with pytest.raises(UserError, match=mistake):
            home.run("show", *words)


def test_each_layer_of_a_step_has_its_forward_and_its_backward(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A step that is not counted is counted on the spot; without rows there are no costs."""
    write(home, "build")
    assert home.run("layers", "step", "--allow-code", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["layers"]
    assert [(row["path"], row["layer"], row["weights"]) for row in rows] == [
        *(("0", "Linear", 68), ("1", "SiLU", None), ("2", "Linear", 15), ("(loss)", "cross_entropy", None)),
        *(("(no layer)", "backward", None), ("(optimizer)", "sgd", None)),
    ]
    # A copy of what SiLU writes over, its result, the logarithms of the chances and the number of samples.
    saved = {"0": 0, "1": 4 * 32, "2": 4 * 32, "(loss)": 4 * 24 + 4, "(no layer)": 0, "(optimizer)": 0}
    assert {row["path"]: row["saved_bytes"] for row in rows} == saved
    assert home.run("layers", "step", "--allow-code") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("step, a training step: 6 layers in order of execution")
    assert "Linear 16→4" in shown


def test_a_model_may_return_its_own_loss(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, "loss", "loss: own\noptimizer: {name: adamw, lr: 0.01}\n")
    assert home.run("count", "step", "--allow-code", "--device", "cpu", "--json") == 0
    (counted,) = json.loads(capsys.readouterr().out)
    assert (counted["operator_calls"], counted["outside"]) == (19, [])


@pytest.mark.parametrize(
    ("function", "more", "reason"),
    [
        ("nothing", "", "no parameter of the model needs gradients"),
        ("build", "frozen: ['*']\n", "no parameter of the model needs gradients"),
        ("build", "frozen: [head.*]\n", ":3: frozen: no parameter of the model is named head.*"),
        ("flat", "", "the model returns a tensor of 1 dimensions, which has no classes"),
        ("infinite", "", ":2: mode: the loss of its first step is nan; give it inputs"),
        ("build", "loss: own\n", ":3: loss: the model returns no loss of its own"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    home: Home, capsys: pytest.CaptureFixture[str], function: str, more: str, reason: str
) -> None:
    write(home, function, more)
    assert home.run("count", "step", "--allow-code", "--device", "cpu") == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "failed" in line)
    assert reason in line


def test_a_model_of_a_library_that_cannot_be_trained_is_one_line_too(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.config("step").write_text("model_name: squeezenet1_1\ninput_size: [1, 3, 32, 32]\nmode: training\nloss: own\n")
    assert home.run("count", "step", "--device", "cpu") == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "failed" in line)
    assert ":4: loss: the model returns no loss of its own" in line


# A profile of a step


def test_a_profile_of_a_step_writes_its_config_and_counts_it(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.measuring.protocol.CPU_WARM_UP_S", 0.01)
    step, measured = ("profile", "net.py:loss", "--allow-code"), ("--device", "cpu", "--seconds", "0.01")
    step_keys = ("--mode", "training", "--loss", "own", "--optimizer", "adamw")
    assert home.run(*step, *step_keys, "--no-measure") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("net_loss_training: ")
    assert "_foreach_addcdiv_" in shown
    again = "profile net.py:loss --mode training --loss own --optimizer adamw --allow-code --device cpu --seconds 0.5"
    assert again in shown
    assert not home.home.exists()
    assert home.run(*step, *step_keys, *measured) == 0
    (config,) = (home.home / "measurements").glob("*/summary.yml")
    assert config.parent.name == "net_loss_training"
    assert config.read_text().endswith("done: false\nmode: training\nloss: own\noptimizer: adamw\n")
    # The same command finds it again; the model at inference is another one.
    assert home.run(*step, *step_keys, *measured) == 0
    assert home.run(*step, *measured) == 0
    names = sorted(path.parent.name for path in (home.home / "measurements").glob("*/summary.yml"))
    assert names == ["net_loss", "net_loss_training"]
    # Without its rows, a command is proposed that measures them.
    shutil.rmtree(home.home / "database")
    capsys.readouterr()
    assert home.run("layers", "net_loss_training", "--allow-code") == 0
    assert f"{again.partition(' --device')[0]}" in capsys.readouterr().out


def test_a_profile_measures_a_step_on_the_device_that_counted_it(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opcost.measuring.protocol.CPU_WARM_UP_S", 0.01)
    words = "profile", "net.py:build", "--allow-code", "--mode", "training"
    assert home.run(*words, "--no-measure") == 0
    capsys.readouterr()
    # On a busy machine a shorter loop of the step takes no longer than one of its forward.
    assert home.run(*words, "--device", "cpu", "--seconds", "0.2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (model,) = found["models"]
    phases = [one["phase"] for one in model["comparison"]["comparisons"]]
    assert (phases, model["counted_on"]) == (["step", "forward", "backward", "optimizer"], "cpu")
    assert sum(one["time_ratio"] for one in model["operators"]) == pytest.approx(1)
    report = Path(found["report"]).read_text()
    assert "Time per sample of a training step on" in report


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (["--loss", "mse"], "^--loss: it is of a training step; add --mode training, or leave it out$"),
        (["--mode", "training"], "--loss: the model returns a tensor of 0 dimensions, .*; give --loss mse or own$"),
        (
            ["--mode", "training", "--optimizer", "adam", "--precision", "fp16"],
            "^--precision: fp16 has no number as small as the eps of adam; choose bf16, or sgd$",
        ),
        (
            ["--mode", "training", "--scheduler", "tcp://here:1"],
            "^--mode training: a step is counted on the kind of device that measures it; leave the scheduler out",
        ),
    ],
)
def test_a_step_that_cannot_be_profiled_is_one_line_and_leaves_no_config(
    home: Home, options: list[str], mistake: str
) -> None:
    with pytest.raises(UserError, match=mistake) as caught:
        home.run("profile", "net.py:loss", "--allow-code", "--no-measure", *options)
    assert len(caught.value.lines) == 1
    assert not list((home.home / "measurements").glob("*/summary.yml"))
