"""Users' functions as models: how their code is imported, what they return, and how their mistakes are shown."""

import gc
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy
import pytest
import torch

from opcost.errors import CannotBuildError
from opcost.invocation import pip_install
from opcost.measuring.setting import Setting
from opcost.operators.counts import Case
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple, model_operator, storage_form
from opcost.running.apparatus import Workloads
from opcost.sources.arguments import seeded
from opcost.sources.models import resolve
from opcost.sources.registry import check_config, check_that_code_may_run
from opcost.storage.configs import ModelConfig, ModelFolders, model_tuple
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel

NET = """
import torch
from torch import nn
from collections import UserDict
from dataclasses import dataclass
import layers

@dataclass
class Output:
    logits: "torch.Tensor"
    hidden: "list[torch.Tensor]"

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.scale = nn.Linear(4, width), layers.Scale(width)
    def forward(self, x, mask=None, scale=1.0):
        x = self.scale(self.first(x)) * scale
        return Output(x if mask is None else x * mask, [x])

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.own = nn.Embedding(30, 4), nn.Parameter(torch.ones(4))
    def forward(self, ids, lengths=None):
        return {"x": self.table(ids) * self.own, "lengths": lengths}

class Still(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("x", torch.ones(2, 4))
    def forward(self, n=1):
        return self.linear(self.x) * n

def build(width=4): return Net(width), torch.randn(2, 4)
def alone(width=4): return Net(width)
def listed(): return Net(4), [torch.randn(2, 4), torch.ones(2, 4)]
def named(): return Net(4), {"x": torch.randn(2, 4), "scale": 2.0}
def mapped(): return Net(4), UserDict(named()[1])
def tokens(): return Tokens(), torch.randint(30, (2, 8))
def still(): return Still(), ()
def numbered(): return Still(), [3]
def packed(): return nn.LSTM(4, 8), nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
def raises(): return layers.deep(0)
def exits(): raise SystemExit("no\\nmore")
def prints(): print("on stdout"); return build()
def no_module(): return "a model"
def three(): return Net(4), torch.randn(2, 4), 3
def wrong_shape(): return Net(4), torch.randn(2, 5)
value = 3
made = Net(4)
async def later(): return build()
"""

LAYERS = """
from torch import nn
class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
    def forward(self, x): return x * self.width
def deep(n):
    if n > 20: raise LookupError("no such layer\\nmore of it")
    return deep(n + 1)
"""


@pytest.fixture(autouse=True)
def restored_modules() -> Iterator[None]:
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if getattr(sys.modules[name], "__file__", None) and "pytest-" in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return nets(tmp_path / "nets")


def nets(folder: Path, net: str = NET, layers: str = LAYERS) -> Path:
    folder.mkdir(parents=True)
    (folder / "net.py").write_text(dedent(net))
    (folder / "layers.py").write_text(dedent(layers))
    return folder


def config_of(folder: Path, name: str, further: str = "") -> ModelConfig:
    path = folder / "measurements" / "x" / "summary.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"model_name: {name if ':' in name else f'../../net.py:{name}'}\n{further}\n")
    (config,) = ModelFolders(folder / "measurements").configs([])
    return config


def ready(config: ModelConfig, device: str = "cpu") -> ReadyModel:
    return resolve(model_tuple(config), config.code).ready_to_count(device)


def error_of(config: ModelConfig) -> list[str]:
    with pytest.raises(CannotBuildError) as caught:
        ready(config)
    return str(caught.value).splitlines()


# What a function returns


@pytest.mark.parametrize(
    ("name", "positional", "keyword"),
    [
        ("build", 1, []),
        ("listed", 2, []),
        ("named", 0, ["x", "scale"]),
        ("mapped", 0, ["x", "scale"]),
        ("still", 0, []),
        ("numbered", 1, []),
        ("packed", 1, []),
    ],
)
def test_example_inputs_are_a_tensor_a_list_a_dict_or_none(
    folder: Path, name: str, positional: int, keyword: list[str]
) -> None:
    config = config_of(folder, name)
    model = ready(config)
    counts = capture(model, model_tuple(config))
    assert (len(model.inputs), list(model.keyword_inputs)) == (positional, keyword)
    assert not model.model.training
    assert (counts.flop, counts.memory_bytes) == (counts.total_flop, counts.total_memory_bytes)
    assert [difference(count, "cpu") for count in counts.counts] == [None] * len(counts.counts)


def test_a_packed_sequence_keeps_the_sizes_of_its_batches_on_the_cpu(folder: Path) -> None:
    (given,) = ready(config_of(folder, "packed"), "meta").inputs
    assert (given.data.device.type, given.batch_sizes.device.type) == ("meta", "cpu")


def test_described_inputs_replace_the_examples(folder: Path) -> None:
    described = config_of(folder, "build", "inputs: {x: {shape: [3, 4], values: zeros}, scale: 0.5}")
    model = ready(described)
    assert torch.equal(model.keyword_inputs["x"], torch.zeros(3, 4))
    assert model.keyword_inputs["scale"] == 0.5
    sized = ready(config_of(folder, "alone", "input_size: [5, 4]"))
    assert sized.inputs[0].shape == (5, 4)


def test_arguments_reach_the_function_and_part_the_models(folder: Path) -> None:
    narrow, wide = config_of(folder, "build"), config_of(folder, "build", "arguments: {width: 8}")
    assert model_tuple(narrow) != model_tuple(wide)
    assert [ready(config).model.first.out_features for config in (narrow, wide)] == [4, 8]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_weights_are_in_the_precision_of_the_config_also_if_inputs_are_integers(folder: Path, device: str) -> None:
    config = config_of(folder, "tokens", "precision: bf16")
    model = ready(config, device)
    assert storage_form(model_tuple(config)) == ("bfloat16", False)
    assert {weight.dtype for weight in model.model.parameters()} == {torch.bfloat16}
    assert (model.inputs[0].dtype, model.device_type) == (torch.int64, device)
    floating = ready(config_of(folder, "build", "precision: bf16"), device)
    assert floating.inputs[0].dtype == torch.bfloat16


@pytest.mark.parametrize("precision", ["torch-default", "bf16"])
def test_inputs_of_other_dtypes_than_float32_keep_them(folder: Path, precision: str) -> None:
    (folder / "net.py").write_text(MIXED)
    form = f"precision: {precision}\nmemory_format: channels_last\n"
    described = "inputs: {times: {shape: [2, 4], dtype: float64}, x: {shape: [2, 3, 8, 8]}}"
    for config in (config_of(folder, "build", form), config_of(folder, "build", form + described)):
        model = ready(config)
        weight, x = model.model.conv.weight, model.keyword_inputs["x"]
        asked = torch.bfloat16 if precision == "bf16" else torch.float32
        assert (model.keyword_inputs["times"].dtype, x.dtype, weight.dtype) == (torch.float64, asked, asked)
        assert all(one.is_contiguous(memory_format=torch.channels_last) for one in (x, weight))
        assert not weight.is_contiguous()


def test_weights_and_examples_depend_on_the_seed_alone(folder: Path) -> None:
    first, again, other = (ready(config_of(folder, "build", f"seed: {seed}")) for seed in (0, 0, 1))
    assert torch.equal(first.inputs[0], again.inputs[0])
    assert torch.equal(first.model.first.weight, again.model.first.weight)
    assert not torch.equal(first.inputs[0], other.inputs[0])


MIXED = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
    def forward(self, times, x):
        return times.sum(), self.conv(x)
def build(): return Net(), {"times": torch.randn(2, 4).double(), "x": torch.randn(2, 3, 8, 8)}
"""

OPERATION = """
import torch
@torch.library.custom_op("opcost_{name}::scale", mutates_args=())
def scale(x: torch.Tensor, gain: float) -> torch.Tensor:
    return x * gain
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(scale(x, 2.0))
def build(): return Net(), torch.randn(2, 4)
"""


def test_an_operation_of_a_users_file_is_another_tuple_after_an_edit(folder: Path) -> None:
    def counted(text: str) -> dict[str, OperatorTuple]:
        (folder / "net.py").write_text(text)
        config = config_of(folder, "build")
        counts = capture(ready(config), model_tuple(config)).counts
        assert [difference(count, "cpu") for count in counts] == [None] * len(counts)
        assert config.code is not None
        assert dict(counts[0].operator.parameters) == {"sha256": config.code.fingerprint}
        return {count.operator.short_name: count.operator for count in counts}

    text = OPERATION.replace("{name}", folder.parent.name)
    before, after = counted(text), counted(text.replace("x * gain", "(x * gain).tanh()"))
    scale = before["scale"]
    assert before["relu"] == after["relu"]
    assert scale.key != after["scale"].key
    assert str(scale) == f"{scale.operator}(sha256={dict(scale.parameters)['sha256']!r}) on (float32[2, 4], 2.0)"
    assert parse_operator(scale.operator, scale.parameters_text, scale.inputs_text, scale.mode) == scale


def test_all_generators_are_seeded_for_each_source_and_put_back() -> None:
    operator = model_operator("resnet18", None, (1, 3, 8, 8), seed=3)

    def drawn() -> tuple[float, float, float]:
        return random.random(), numpy.random.random(), torch.rand(()).item()

    def later() -> tuple[float, float, float]:
        with seeded(operator):
            return drawn()

    states = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert later() == later()
    assert states == (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


# Mistakes


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("namd", "namd is not there; did you mean named?"),
        ("zzz", "zzz is not there; the file has build, alone, listed and "),
        ("value", "value is a value and no function; "),
        ("made", "made is a model and no function; name a function that returns it and its inputs"),
        ("later", "returned coroutine instead of a torch.nn.Module, or of one and its inputs"),
        ("no_module", "returned str instead of a torch.nn.Module, or of one and its inputs"),
        ("three", "returned tuple instead of a torch.nn.Module, or of one and its inputs"),
        ("alone", "returned no example inputs beside the model; return both, or give an input size"),
    ],
)
def test_a_function_that_gives_no_model_is_one_line(
    folder: Path, name: str, reason: str, recwarn: pytest.WarningsRecorder
) -> None:
    (line,) = error_of(config_of(folder, name))
    gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]
    assert line.startswith("../../net.py:")
    assert reason in line


STORED = """
import torch
from torch import nn
def build(kinds):
    model = nn.Sequential(*(nn.Linear(4, 4).to(getattr(torch, kind)) for kind in kinds))
    return model, torch.randn(2, 4).to(getattr(torch, kinds[0]))
"""


@pytest.mark.parametrize("precision", ["torch-default", "fp32", "amp-bf16"])
@pytest.mark.parametrize(("kind", "remedy"), [("bfloat16", "bf16"), ("float16", "fp16")])
def test_a_model_of_16_bits_needs_its_precision(folder: Path, precision: str, kind: str, remedy: str) -> None:
    (folder / "net.py").write_text(STORED)
    arguments = f"arguments: {{kinds: [{kind}, {kind}]}}\n"
    (line,) = error_of(config_of(folder, "build", f"{arguments}precision: {precision}"))
    assert line == (
        f"../../net.py:build has weights in {kind} and none in float32; write precision: {remedy}, "
        "or return a model in float32"
    )
    model = ready(config_of(folder, "build", f"{arguments}precision: {remedy}")).model
    assert str(model[0].weight.dtype) == f"torch.{kind}"


def test_a_model_of_several_dtypes_is_as_it_was_built(folder: Path) -> None:
    (folder / "net.py").write_text(
        STORED
        + """
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(4, 4).bfloat16(), nn.Linear(4, 4)
    def forward(self, ids):
        return self.out(self.table(ids).float())
def mixed(): return Mixed(), torch.tensor([1, 2])
def double(): return nn.Linear(4, 4).double(), torch.randn(2, 4).double()
"""
    )
    mixed, double = (ready(config_of(folder, name)).model for name in ("mixed", "double"))
    assert [mixed.table.weight.dtype, mixed.out.weight.dtype] == [torch.bfloat16, torch.float32]
    assert double.weight.dtype == torch.float64


def test_what_a_file_prints_is_no_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready(config_of(folder, "prints"))
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "on stdout\n")


def test_what_a_function_raises_is_shown_with_its_own_innermost_frames(folder: Path) -> None:
    first, *frames = error_of(config_of(folder, "raises"))
    assert first == "../../net.py:raises raised LookupError: no such layer ..."
    assert len(frames) == 5
    assert all(re.match(rf"  {folder}/layers\.py:\d+ in deep: ", frame) for frame in frames)
    assert frames[-1].endswith('if n > 20: raise LookupError("no such layer\\nmore of it")')


@pytest.mark.parametrize(
    ("net", "name", "further", "first", "frame"),
    # In the place of an … stand the number of a line, more of the code, or words of torch or of Python.
    [
        (
            None,
            "wrong_shape",
            "",
            " raised RuntimeError: mat1 and mat2 shapes…",
            "… in forward: x = self.scale(self.first(x)) * scale",
        ),
        (None, "exits", "", " raised SystemExit: no ...", "… in exits: …"),
        (None, "Net", "", ": missing a required argument: 'width'; its arguments are width", None),
        (
            None,
            "build",
            "arguments: {height: 3}",
            ": got an unexpected keyword argument 'height'; its arguments are width=4",
            None,
        ),
        (
            None,
            "build",
            "memory_format: channels_last",
            " has no weights and no inputs of 4 or 5 dimensions, which channels_last is for; leave memory_format out",
            None,
        ),
        (
            "import no_such_package",
            "build",
            "",
            " raised ModuleNotFoundError: No module named 'no_such_package'; correct the import, install the package "
            f"that has it with {pip_install('PACKAGE')}, or add its folder to PYTHONPATH",
            "1 in <module>: import no_such_package",
        ),
        (
            "import torch.none",
            "build",
            "",
            " raised ModuleNotFoundError: No module named 'torch.none'",
            "1 in <module>: …",
        ),
        ("from layers import none", "build", "", " raised ImportError: cannot import name 'none'…", "1 in <module>: …"),
        *(
            (
                f"import asyncio\ndef build(): raise {error}('no')",
                "build",
                "",
                f" raised {name}: no",
                "2 in build: def build(): raise …",
            )
            for error, name in [
                ("GeneratorExit", "GeneratorExit"),
                ("asyncio.CancelledError", "CancelledError"),
                ("type('Own', (BaseException,), {})", "Own"),
            ]
        ),
        *(
            (
                f"import sys\ndef build(): raise type('A\\n' * 9, (Exception,), {{'__str__': lambda self: {text}}})()",
                "build",
                "",
                " raised A A A A A A A A A : no message",
                "2 in build: …",
            )
            for text in ("1", "1 / 0", "sys.exit(4)")
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_innermost_frame_of_the_user(
    folder: Path, net: str | None, name: str, further: str, first: str, frame: str | None
) -> None:
    if net is not None:
        (folder / "net.py").write_text(net)
    line, *frames = error_of(config_of(folder, name, further))
    start, is_cut, _ = f"../../net.py:{name}{first}".partition("…")
    assert (line[: len(start)] if is_cut else line) == start
    assert "run the command in" not in line
    assert len(frames) == (frame is not None)
    if frame is not None:
        assert re.fullmatch(re.escape(f"  {folder}/net.py:{frame}").replace("…", ".+"), frames[0])


def test_an_error_of_any_length_or_name_is_cut(folder: Path) -> None:
    (folder / "net.py").write_text(f"def build(): raise ValueError('x' * 10_000_000, '{'y' * 10_000}')\n")
    assert max(map(len, error_of(config_of(folder, "build")))) < 1200
    (folder / "net.py").write_text("def build(): raise type('A\\n' * 9000, (Exception,), {})()\n")
    first, _ = error_of(config_of(folder, "build"))
    assert re.fullmatch(r"../../net.py:build raised (A ){100}\.\.\.: no message", first)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("train = lambda self, mode: 1 / 0", "../../net.py:build raised ZeroDivisionError: division by zero"),
        ("to = lambda self, device: 1 / 0", "../../net.py:build raised ZeroDivisionError: division by zero"),
        ("train = lambda self, mode: nn.Module.train(self, mode) and None", None),
        ("eval = to = lambda self, *_: None", None),
    ],
)
def test_a_model_may_have_its_own_train_and_to(folder: Path, method: str, expected: str | None) -> None:
    text = f"import torch\nfrom torch import nn\nclass Net(nn.Linear):\n    {method}\n"
    text += "def build(): return Net(4, 4), torch.zeros(2, 4)\n"
    (folder / "net.py").write_text(text)
    if expected is None:
        assert isinstance(ready(config_of(folder, "build")).model, torch.nn.Linear)
    else:
        assert error_of(config_of(folder, "build"))[0] == expected


def test_an_interrupt_of_a_function_is_one_of_the_program(folder: Path) -> None:
    (folder / "net.py").write_text("def build(): raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        ready(config_of(folder, "build"))


def test_a_file_that_could_not_be_imported_is_imported_after_it_was_corrected(folder: Path) -> None:
    (folder / "net.py").write_text("import no_such_package\n")
    assert len(error_of(config_of(folder, "build"))) == 2
    (folder / "net.py").write_text(NET)
    assert ready(config_of(folder, "build")).inputs


# Modules


def test_files_of_one_name_in_two_folders_are_two_models(tmp_path: Path, folder: Path) -> None:
    other = nets(tmp_path / "other", layers=LAYERS.replace("x * self.width", "x + self.width"))
    configs = [config_of(one, "build") for one in (folder, other)]
    assert model_tuple(configs[0]) != model_tuple(configs[1])
    for _ in range(2):
        names = [
            [count.operator.short_name for count in capture(ready(config), model_tuple(config)).counts]
            for config in configs
        ]
        assert names == [["Linear", "mul", "mul"], ["Linear", "add", "mul"]]


def test_two_configs_of_one_file_share_its_module(folder: Path) -> None:
    (folder / "net.py").write_text("print('imported')\n" + NET)
    first, second = (ready(config_of(folder, name)) for name in ("build", "listed"))
    assert type(first.model) is type(second.model)


def test_a_file_that_was_changed_is_imported_again(folder: Path) -> None:
    ready(config_of(folder, "build"))
    (folder / "layers.py").write_text(LAYERS.replace("x * self.width", "x - self.width"))
    config = config_of(folder, "build")
    assert "sub" in [count.operator.short_name for count in capture(ready(config), model_tuple(config)).counts]


def test_a_file_that_changes_while_a_command_runs_is_refused(folder: Path) -> None:
    config = config_of(folder, "build")
    operator = model_tuple(config)
    (folder / "layers.py").write_text(LAYERS + "\n# more\n")
    assert model_tuple(config) == operator
    (line,) = error_of(config)
    assert "has changed meanwhile; run the command again" in line


def test_a_module_is_imported_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").write_text("from .inner import width\n")
    (folder / "mine" / "inner.py").write_text("width = 6\n")
    (folder / "mine" / "net.py").write_text(
        "import torch\nfrom . import width\ndef build(): return torch.nn.Linear(4, width), torch.ones(2, 4)\n"
    )
    monkeypatch.chdir(folder)
    assert ready(config_of(folder, "mine.net:build")).model.out_features == 6


def test_a_relative_import_needs_the_name_of_the_module(folder: Path) -> None:
    (folder / "mine" / "inner").mkdir(parents=True)
    (folder / "mine" / "__init__.py").touch()
    (folder / "mine" / "inner" / "net.py").write_text("from ..widths import (\n    width,\n)\n")
    first, _ = error_of(config_of(folder, "../../mine/inner/net.py:build"))
    assert first.endswith(f"; name the module, mine.inner.net:build, and run the command in {folder}")


def test_a_file_beside_it_with_the_name_of_another_module_is_refused(folder: Path) -> None:
    (folder / "random.py").write_text("width = 3\n")
    (folder / "net.py").write_text("import random\n" + NET)
    (line,) = error_of(config_of(folder, "build"))
    assert line.startswith(f"{folder}/random.py: Python has another module random, ")
    assert line.endswith("; rename the file")


def test_a_late_import_finds_the_modules_of_its_own_folder(tmp_path: Path, folder: Path) -> None:
    late = "\ndef late():\n    import later\n    return Net(later.width), torch.randn(2, 4)\n"
    folders = folder, nets(tmp_path / "other")
    for width, one in zip((3, 5), folders, strict=True):
        (one / "net.py").write_text(NET + late)
        (one / "later.py").write_text(f"width = {width}\n")
    widths = [ready(config_of(one, "late")).model.first.out_features for one in (*folders, *folders)]
    assert widths == [3, 5, 3, 5]


# Permission


def test_code_runs_only_if_it_is_handed_on(folder: Path) -> None:
    marker = folder / "marker"
    (folder / "net.py").write_text(f"open({str(marker)!r}, 'w').close()\n" + NET)
    config = config_of(folder, "build")
    assert check_config(config) == []
    (line,) = check_that_code_may_run(config)
    assert line.startswith(f"{folder}/measurements/x/summary.yml:1: model_name: ../../net.py:build is Python code; if ")
    assert line.endswith("with --allow-code")
    case = Case(model_tuple(config))
    with pytest.raises(Exception, match="runs only with --allow-code"), Workloads("cpu")(case, Setting()):
        pass
    assert not marker.exists()
    with Workloads("cpu")(case, Setting(code=config.code)) as workload:
        workload.run(1)
    assert marker.exists()
