"""Profiles of models that are objects: counted and measured in this process, and found again by their contents."""

import math
from collections import UserDict
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring import procedure
from opcost.measuring.protocol import RETRIES
from opcost.operators.tuples import model_operator
from opcost.running.request import Request
from opcost.sources.models import resolve
from opcost.sources.registry import models_matching
from opcost.stages import profile as stage
from opcost.stages.holdings import holdings
from opcost.stages.profile import ObjectModel
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database


class Net(nn.Module):
    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, channels, 3)
        self.activation = nn.Softplus()
        self.dropout = nn.Dropout()

    def forward(self, image: Tensor, *, scale: float = 1.0) -> Tensor:
        found: Tensor = self.dropout(self.activation(self.convolution(image))).cumsum(1) * scale
        return found


IMAGE = torch.ones(2, 3, 8, 8)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure once and with hardly any warm-up."""
    monkeypatch.setattr(procedure, "RETRIES", replace(RETRIES, at_once=1))
    monkeypatch.setattr("opcost.measuring.protocol.CPU_WARM_UP_S", 0.01)


def profiled(model: nn.Module, inputs: Any, folder: Path, **options: Any) -> Any:
    return opcost.profile(model, inputs, seconds=0.02, database=folder, **options)


def test_a_model_has_its_operators_its_whole_and_their_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Net().train()
    found = profiled(model, UserDict(image=IMAGE, scale=2.0), tmp_path, name="my net")
    assert "my_net_2x3x8x8: " in capsys.readouterr().err
    frame = found.operators
    assert list(frame.columns) == [
        *("operator", "parameters", "inputs", "calls", "flop", "memory_bytes", "time_s", "energy_j", "share")
    ]
    assert {name.rpartition(".")[2] for name in frame["operator"]} == {"Conv2d", "Softplus", "cumsum", "mul"}
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["time_s"].is_monotonic_decreasing
    assert found.whole.time_s > 0
    assert found.comparison.time_ratio == pytest.approx(frame["time_s"].sum() / found.whole.time_s)
    assert found.profile.name == "my_net_2x3x8x8"
    assert model.training
    for text in (str(found), found._repr_html_()):
        assert "my_net_2x3x8x8" in text
        assert "Conv2d 3→4" in text
    compared = found.profile.comparison
    for share, is_doubtful in ((0.1, False), (0.5, True)):
        row = replace(found.comparison, unexplained_time_s=share * found.whole.time_s)
        changed = replace(found.profile, comparison=replace(compared, comparisons=(row,), remarks=((),)))
        text = str(replace(found, found=replace(found.found, models=(changed,))))
        assert ("(!) No result yet, for the reasons" in text) is is_doubtful


def test_the_same_model_finds_its_rows_again_and_another_does_not(tmp_path: Path) -> None:
    profiled(Net(), IMAGE, tmp_path)
    wholes = Database(tmp_path).full_model_measurements
    (first,) = {row.operator for row in wholes.rows()}
    assert first.startswith("object.model_")
    again = opcost.profile(Net(), (IMAGE,), measure=False, database=tmp_path)
    (known,) = again.known
    assert (known.calls_ratio, again.whole) == (1.0, None)
    assert known.whole_time_s is not None
    # Its rows are no obstacle to other commands.
    (held,) = holdings(Request((), ModelFolders(Path(__file__).parents[2] / "measurements"), Database(tmp_path)))
    assert (held.wholes, held.tuples) == (1, 4)
    assert [name.partition("_")[0] for name in held.complete] == ["model"]
    profiled(Net(5), IMAGE, tmp_path)
    assert len({row.operator for row in wholes.rows()}) == 2


def test_rows_of_registered_operations_hold_for_one_call_only(tmp_path: Path) -> None:
    @torch.library.custom_op("opcost_of_an_object::scale", mutates_args=())
    def scale(image: Tensor) -> Tensor:
        return image * 2.0

    class Scaled(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            found: Tensor = torch.relu(scale(image))
            return found

    for number in (1, 2):
        profiled(Scaled(), IMAGE, tmp_path)
        database = Database(tmp_path)
        assert len({row.key for row in database.full_model_measurements.rows()}) == number
        rows = database.operator_measurements.rows()
        assert [len({row.key for row in rows if row.operator.endswith(name)}) for name in ("scale", "relu")] == [
            number,
            1,
        ]


def test_without_measuring_there_are_flops_and_bytes_only(tmp_path: Path) -> None:
    found = opcost.profile(Net(), IMAGE, measure=False, database=tmp_path)
    assert found.operators["flop"].sum() == found.profile.flop > 0
    for column in ("time_s", "energy_j", "share"):
        assert found.operators[column].isna().all()
        assert math.isnan(found.operators[column].sum(min_count=1))
        assert found.operators[column].dtype == float
    assert found.operators["flop"].dtype == int
    assert (found.whole, found.comparison, found.known) == (None, None, ())
    assert "ms" not in str(found).split()
    assert list(tmp_path.iterdir()) == []
    (convolution,) = [line.split() for line in str(found).splitlines() if line.startswith("Conv2d 3→4")]
    # 2·2·4·36·27 FLOP; 2·3·64 inputs, 2·4·36 outputs, 4·27 weights and 4 biases of 4 bytes.
    assert {"0.00001555", "0.003136"} <= set(convolution)
    assert "Nothing was measured." in str(found)
    first, *others = found.profile.operators
    unknown = replace(found.profile, operators=(replace(first, time_s=1e-6, flop=None), *others))
    assert " - " in str(replace(found, found=replace(found.found, models=(unknown,))))


def test_a_compiled_part_is_counted_as_eager_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def never_compiles(*_: object) -> None:
        raise AssertionError("it is compiled")

    model = nn.Sequential(nn.ReLU(), torch.compile(nn.Sigmoid(), backend=never_compiles))
    found = opcost.profile(model, IMAGE, measure=False, database=tmp_path, name="mine")
    assert len(found.operators) == 2
    assert caplog.messages == [
        "mine: counted and measured as eager, because kernels of torch.compile are no operators: 1"
    ]


def test_the_model_is_as_before_after_an_interrupt_and_the_same_call_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = Net().train()
    opened = stage.open_local_bench

    def interrupted(*args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "open_local_bench", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profiled(model, IMAGE, tmp_path)
    assert all(module.training for module in model.modules())
    monkeypatch.setattr(stage, "open_local_bench", opened)
    assert profiled(model, IMAGE, tmp_path).whole is not None


def test_a_model_that_computes_forces_has_a_whole_and_rows_of_its_backward_pass(tmp_path: Path) -> None:
    class Forces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = nn.Linear(3, 1)

        def forward(self, positions: Tensor) -> Tensor:
            with torch.enable_grad():
                positions = positions.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(self.energy(positions).sum(), positions)
            return -gradient

    found = profiled(Forces(), torch.ones(2, 3), tmp_path)
    assert found.whole.time_s > 0
    frame = found.operators
    assert "torch.ops.aten.mm" in set(frame["operator"])
    assert not frame["time_s"].isna().any()


def test_an_error_of_the_model_itself_is_its_own(tmp_path: Path) -> None:
    model = Net()
    with pytest.raises(TypeError, match="unknown"):
        profiled(model, {"image": IMAGE, "unknown": 1}, tmp_path)
    assert model.training


@pytest.mark.parametrize(
    ("model", "inputs", "options", "message"),
    [
        ("resnet18", IMAGE, {}, "not a torch.nn.Module"),
        (Net(), (1,), {}, "inputs has no tensor"),
        (Net(), IMAGE, {"precision": "bf16"}, r"needs weights in bfloat16.*\.to\(torch.bfloat16\)"),
        (Net(), IMAGE, {"device": "cuda:99"}, "torch sees"),
    ],
)
def test_a_mistake_is_a_user_error(
    model: Any, inputs: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        profiled(model, inputs, tmp_path, **options)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        *((torch.float32, "torch-default"), (torch.bfloat16, "bf16")),
        *((torch.float16, "fp16"), (torch.float64, "torch-default")),
    ],
)
def test_the_precision_follows_from_the_weights(dtype: torch.dtype, precision: str) -> None:
    assert ObjectModel(Net().to(dtype), IMAGE).checked_precision() == precision
    assert ObjectModel(nn.ReLU(), IMAGE, precision="tf32").checked_precision() == "tf32"


class Anything(nn.Module):
    """Takes anything, and computes on its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.weight.cumsum(0)


SHARED = torch.ones(3, 2)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (IMAGE, "float32[2, 3, 8, 8]"),
        (torch.ones(7), "float32[7]"),
        (torch.zeros(2, 9, dtype=torch.int64), "int64[2, 9]"),
        (torch.ones(2, 3, dtype=torch.float64), "float64[2, 3]"),
        ((torch.ones(()), 2.0, "1e5"), "float32[], 2.0, '1e5'"),
        ({"x": torch.ones(2, 3), "more": [torch.ones(4)], "n": 1}, "x=float32[2, 3], more=(float32[4],), n=1"),
    ],
)
def test_the_tuple_of_a_model_has_the_inputs_as_they_are(inputs: Any, text: str, tmp_path: Path) -> None:
    profiled(Anything(), inputs, tmp_path)
    (row,) = Database(tmp_path).full_model_measurements.rows()
    assert row.inputs == text


@pytest.mark.parametrize(
    "inputs",
    [torch.ones(0, 3), torch.ones(2, 3).t(), (SHARED, SHARED), {"shape": SHARED}, (SHARED, "x" * 70_000)],
    ids=["empty", "strided", "shared", "name", "long"],
)
def test_an_input_that_no_config_describes_has_no_size_and_a_reason(inputs: Any, tmp_path: Path) -> None:
    found = profiled(Anything(), inputs, tmp_path)
    (row,) = Database(tmp_path).full_model_measurements.rows()
    assert (row.inputs, found.profile.input_size) == ("", ())
    assert found.profile.input_size_missing_reason is not None
    assert f"size of the input unknown: {found.profile.input_size_missing_reason}" in str(found)


def test_a_known_size_is_that_of_the_first_input(tmp_path: Path) -> None:
    found = opcost.profile(Anything(), {"n": 1, "x": torch.ones(7)}, measure=False, database=tmp_path).profile
    assert (found.name, found.input_size, found.input_size_missing_reason) == ("Anything_7", (7,), None)
    single = opcost.profile(Anything(), torch.ones(()), measure=False, database=tmp_path).profile
    assert (single.name, single.input_size) == ("Anything", ())
    assert single.input_size_missing_reason == "the first input is a single value"


def test_the_name_of_a_shipped_model_leaves_its_config_alone(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "measurements" / "resnet18_32x3x32x32" / "summary.yml"
    before = shipped.read_bytes()
    image = torch.ones(32, 3, 32, 32)
    found = opcost.profile(nn.ReLU(), image, name="resnet18", measure=False, database=tmp_path)
    assert (found.profile.name, shipped.read_bytes()) == (shipped.parent.name, before)
    assert {name.rpartition(".")[2] for name in found.operators["operator"]} == {"ReLU"}


@torch.jit.script
def outside_once(x: Tensor) -> Tensor:
    return x.exp()


@torch.jit.script
def outside_twice(x: Tensor) -> Tensor:
    return x.exp().exp()


class Outside(nn.Module):
    """Runs operations of a scripted function, which are in no tuple."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.function(x.cumsum(0))
        return found


def test_the_identity_covers_input_data_and_operations_outside_of_tuples(tmp_path: Path) -> None:
    models = [
        *((nn.Softplus(), torch.ones(2, 3)), (nn.Softplus(), torch.zeros(2, 3))),
        *((Outside(outside_once), torch.ones(2, 3)), (Outside(outside_twice), torch.ones(2, 3))),
    ]
    for model, x in [*models, (nn.Softplus(), 2 * torch.ones(2, 3))]:
        profiled(model, x, tmp_path)
    assert len({row.operator for row in Database(tmp_path).full_model_measurements.rows()}) == len(models)


def test_an_object_is_a_model_that_no_other_program_can_build() -> None:
    operator = model_operator("object:model_0123456789abcdef", None, (2, 3))
    assert operator.is_model
    with pytest.raises(CannotMeasureError, match="call opcost.profile there"):
        resolve(operator).with_inputs("cpu")
    assert not any(model.name.startswith("model_") for model in models_matching(["*"]))
