"""Models by name: what torchvision knows, what it does not, and what comes out."""

import csv
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models._api import BUILTIN_MODELS, Weights, WeightsEnum
from torchvision.transforms._presets import ImageClassification

from opcost.errors import CannotBuildError, CannotMeasureError, UserError, suggestion
from opcost.invocation import command
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.tuples import (
    MODEL_PACKAGES,
    OperatorTuple,
    PlainValue,
    TensorSpec,
    model_operator,
    run_under,
    stored_as,
)
from opcost.sources import registry
from opcost.sources.models import ResolvedModel, resolve
from opcost.sources.port import ListedModel, PublishedFacts
from opcost.sources.registry import check_config, models_matching, published_models
from opcost.sources.torchvision import build, input_values, listed
from opcost.storage.configs import ModelConfig
from opcost.torch_backend.capture import capture
from opcost.torch_backend.inputs import model_inputs
from opcost.torch_backend.ready_model import ReadyModel, stored_like
from opcost.torch_backend.switches import autocast
from opcost.torch_backend.values import public_name
from tests.small_model import SmallModel

ALL_MODELS = f"{command('make-configs', '--dry-run')} lists them)"
PUBLISHED = Path(registry.__file__).with_name("published.csv")
FILE = "measurements/x/summary.yml:3"
SIZE = (1, 3, 32, 32)


@dataclass(frozen=True)
class Named:
    model_name: str
    weights_name: str | None
    input_size: tuple[int, ...] = (1, 3, 224, 224)
    arguments: tuple[tuple[str, PlainValue], ...] = ()
    inputs: DescribedInputs | None = None

    def where(self, key: str) -> str:
        return f"{FILE}: {key}"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("resnet81", "resnet18"), ("resnet-18", "resnet18"), ("vit_b16", "vit_b_16"), ("swint", "swin_t")],
)
def test_a_mistyped_model_gets_a_suggestion(typed: str, meant: str) -> None:
    (line,) = check_config(Named(typed, None))
    assert line.startswith(f"{FILE}: model_name: this version of torchvision has no model {typed!r}; did you mean ")
    assert meant in line


def test_a_name_that_is_not_known_gets_the_list_or_another_remedy() -> None:
    (line,) = check_config(Named("my_own_network", "WHATEVER"))
    assert "did you mean" not in line
    assert line.endswith(" (opcost knows the models of torchvision, timm, transformers; " + ALL_MODELS)
    (line,) = check_config(Named("torchvision:resnet18", None))
    assert "torchvision:resnet18: torchvision's names have no source before them; write resnet18 (" in line
    (line,) = check_config(Named("quantized_resnet18", None))
    assert line.startswith(f"{FILE}: model_name: quantized models are not supported; did you mean resnet18")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bert-base-uncased", "transformers:BertModel (in its usual size; --argument changes it)?"),
        ("transformers:google/vit-base-patch16-224", "transformers:ViTModel (in its usual size"),
        ("xlm-roberta-base", "transformers:XLMRobertaModel "),
        ("facebook/opt-1.3b", "transformers:OPTModel "),
        ("BertModel", "transformers:BertModel "),
        ("vit_tiny_patch16_224", "timm:vit_tiny_patch16_224?"),
    ],
)
def test_a_name_of_a_hub_or_without_its_library_gets_the_name_that_is_known_here(name: str, meant: str) -> None:
    (line,) = check_config(Named(name, None))
    assert f"; did you mean {meant}" in line


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("r3d_18", (8, 3, 112, 112), "r3d_18 takes 5 numbers such as [8, 3, 16, 112, 112], not 4"),
        ("raft_small", (2, 3, 4, 128, 128), "raft_small takes 4 numbers such as [2, 3, 512, 512], not 5"),
        ("resnet18", (3, 224), "resnet18 takes 4 numbers such as [32, 3, 224, 224], not 2"),
    ],
)
def test_an_input_with_other_dimensions_is_reported(name: str, size: tuple[int, ...], words: str) -> None:
    assert check_config(Named(name, None, size)) == [f"{FILE}: input_size: {words}"]


def test_weights_go_by_their_member_and_mistyped_ones_are_answered_with_those_there_are() -> None:
    assert check_config(Named("resnet50", "IMAGENET1K_V2")) == []
    assert check_config(Named("resnet50", "ResNet50_Weights.IMAGENET1K_V2")) == []
    assert check_config(Named("resnet50", "IMAGENET1K_V3")) == [
        f"{FILE}: weights_name: resnet50 has no weights 'IMAGENET1K_V3'; it has: IMAGENET1K_V1, IMAGENET1K_V2"
    ]
    assert check_config(Named("resnet18", None, ())) == []


def test_each_model_is_distinguished_from_each_module_by_its_name() -> None:
    names = torchvision.models.list_models()
    assert "quantized_resnet18" in names
    assert [name for name in names if not model_operator(name, None, SIZE).is_model] == []
    modules = {public_name(cls) for cls in subclasses_of(nn.Module) if cls.__module__.startswith("torchvision.")}
    assert modules > {"torchvision.models.ResNet", "torchvision.models.resnet.Bottleneck"}
    assert {name for name in modules if OperatorTuple(name).is_model} == set()


def subclasses_of(cls: type) -> set[type]:
    return {cls}.union(*map(subclasses_of, cls.__subclasses__()))


@pytest.mark.parametrize("find", [resolve, lambda operator: build(operator, "cpu")])
def test_a_model_of_another_version_is_not_built(find: Callable[[OperatorTuple], object]) -> None:
    with pytest.raises(CannotMeasureError, match="this version of torchvision has no model 'no_such_model'"):
        find(model_operator("no_such_model", None, SIZE))


def test_a_model_of_no_source_is_not_built() -> None:
    with pytest.raises(CannotMeasureError, match=r"elsewhere:net: unknown source of models elsewhere"):
        resolve(OperatorTuple("elsewhere.net", (), (TensorSpec(SIZE, "float32"),)))


def test_sources_import_their_library_when_they_are_used() -> None:
    program = (
        "import sys\nfrom opcost.operators.tuples import model_operator\nfrom opcost.sources import models, registry\n"
        "assert 'torchvision' not in sys.modules\nmodels.resolve(model_operator('resnet18', None, (1, 3, 32, 32)))\n"
        "assert 'torchvision' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True)


@pytest.mark.parametrize(("name", "on_meta"), [("resnet18", "meta"), ("ssd300_vgg16", "cpu")])
def test_models_are_counted_on_shapes_where_no_data_decide_what_they_run(name: str, on_meta: str) -> None:
    model = resolve(model_operator(name, None, SIZE))
    assert (model.counting_device("cpu", True), model.counting_device("cpu", False)) == (on_meta, "cpu")


def test_random_weights_differ_from_zero() -> None:
    model = build(model_operator("googlenet", None, SIZE), "cpu")
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert all(weight.abs().max() > 0 for weight in weights)


@pytest.mark.parametrize("weights_name", ["IMAGENET1K_V2", "ResNet50_Weights.IMAGENET1K_V2"])
def test_named_weights_are_those_that_are_loaded(monkeypatch: pytest.MonkeyPatch, weights_name: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", downloads(asked))
    with pytest.raises(UserError, match="IMAGENET1K_V2 of resnet50 cannot be downloaded: .*no network"):
        build(model_operator("resnet50", weights_name, SIZE), "cpu")
    assert asked == [torchvision.models.ResNet50_Weights.IMAGENET1K_V2.url]


def downloads(asked: list[str]) -> Callable[..., Any]:
    def download(url: str, *_: object, **__: object) -> None:
        asked.append(url)
        raise urllib.error.URLError("no network")

    return download


# Without named weights: the graph of the published ones, with random weights


def published(name: str, size: tuple[int, ...] = SIZE, device: str = "meta") -> nn.Module:
    return build(model_operator(name, None, size), device)


def test_the_graph_is_that_of_the_published_weights() -> None:
    assert published("googlenet").transform_input
    assert published("inception_v3").transform_input
    assert published("googlenet").aux1 is None
    assert isinstance(published("fcn_resnet50").aux_classifier, nn.Module)
    detector = published("fasterrcnn_mobilenet_v3_large_fpn", device="cpu")
    norms = {type(module) for module in detector.modules() if "BatchNorm" in type(module).__name__}
    assert norms == {torchvision.ops.FrozenBatchNorm2d}


@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [
        ("vit_h_14", 518, 518),
        ("vit_h_14", 224, 224),
        ("vit_b_16", 384, 384),
        ("vit_b_16", 224, 224),
        ("vit_b_16", 99, 224),
    ],
)
def test_of_several_published_weights_those_are_taken_that_fit_the_input(name: str, side: int, expected: int) -> None:
    assert published(name, (1, 3, side, side)).image_size == expected


def test_nothing_is_downloaded_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", downloads(asked))
    for device in ("cpu", "meta"):
        published("mobilenet_v3_small", device=device)
    build(model_operator("resnet18", "IMAGENET1K_V1", SIZE), "meta")
    assert asked == []


def test_loading_works_again_afterwards() -> None:
    model = published("squeezenet1_0", device="cpu")
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    assert all(not weight.any() for weight in model.parameters())


@pytest.mark.parametrize("name", ["regnet_y_400mf", "vit_b_32", "swin_t", "raft_small", "swin3d_t"])
def test_on_the_meta_device_nothing_takes_memory(name: str) -> None:
    model = published(name)
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def test_the_seed_decides_the_weights() -> None:
    def first_weight(seed: int) -> torch.Tensor:
        return next(build(model_operator("squeezenet1_0", None, SIZE, seed), "cpu").parameters())

    state = torch.get_rng_state()
    assert torch.equal(first_weight(0), first_weight(0))
    assert not torch.equal(first_weight(0), first_weight(1))
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers go on as they would"


# Models that somebody registered


class OwnWeights(WeightsEnum):
    FIRST = Weights(url="https://example.org", transforms=partial(ImageClassification, crop_size=48), meta={})


def without_weights() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3))


def with_any_arguments(**arguments: object) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3))


def with_untyped_weights(weights=None, progress=True) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3))


def with_weights_of_which_none_is_the_default(*, weights=None) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3))


# A type and not its text, which torchvision does not read.
with_weights_of_which_none_is_the_default.__annotations__["weights"] = OwnWeights


@pytest.mark.parametrize(
    ("builder", "side"),
    [
        (without_weights, 224),
        (with_any_arguments, 224),
        (with_untyped_weights, 224),
        (with_weights_of_which_none_is_the_default, 48),
    ],
)
def test_a_model_that_somebody_registered_is_one_like_the_others(
    monkeypatch: pytest.MonkeyPatch, builder: Callable[..., nn.Module], side: int
) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "my_own", builder)
    assert "my_own" in [model.name for model in models_matching([])]
    size = listed("my_own").input_size
    assert size == (32, 3, side, side)
    assert check_config(Named("my_own", None, size)) == []
    (line,) = check_config(Named("my_own", "LAST", size))
    assert line.startswith(f"{FILE}: weights_name: my_own has no weights 'LAST'; it has: ")
    # Without a default, the listed size is that of the first weights.
    weights = "FIRST" if builder is with_weights_of_which_none_is_the_default else None
    assert listed("my_own").published == PublishedFacts(weights=weights)
    model = build(model_operator("my_own", None, size), "cpu")
    with torch.inference_mode():
        assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 4, 6, 6)


def test_a_registered_name_that_torchvision_itself_does_not_find_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "MyOwn", without_weights)
    assert "MyOwn" not in [model.name for model in models_matching([])]
    (line,) = check_config(Named("MyOwn", None))
    assert "torchvision has no model 'MyOwn'" in line


def raises() -> nn.Module:
    raise KeyError("no such\nlayer")


def returns_no_module(**_: object) -> nn.Module:
    return "a model"  # type: ignore[return-value]


def takes_other_arguments(width: int, /) -> nn.Module:
    return nn.Conv2d(3, width, 3)


class RaisesWhenItRuns(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise LookupError("no table")


class TakesTwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


@pytest.mark.parametrize(
    ("builder", "reason"),
    [
        (raises, "the builder of my_own raised KeyError: 'no such\\\\nlayer'"),
        (returns_no_module, "the builder of my_own returned no torch.nn.Module but str"),
        (takes_other_arguments, "the builder of my_own raised TypeError: .* required positional argument"),
        (RaisesWhenItRuns, "my_own raised LookupError: no table"),
        (TakesTwoInputs, "my_own raised TypeError: .* required positional argument"),
    ],
)
def test_a_registered_model_that_fails_is_one_line_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, builder: Callable[..., nn.Module], reason: str
) -> None:
    monkeypatch.setitem(BUILTIN_MODELS, "my_own", builder)
    assert check_config(Named("my_own", None, SIZE)) == []
    with pytest.raises(CannotBuildError, match=reason) as caught:
        resolve(model_operator("my_own", None, SIZE)).with_inputs("cpu")
    assert len(str(caught.value).splitlines()) == 1


def test_a_registered_model_is_of_no_task_by_the_name_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_weights, "__module__", "detection.mine")
    monkeypatch.setitem(BUILTIN_MODELS, "my_own", without_weights)
    assert not listed("my_own").is_data_dependent


# Inputs


def test_inputs_have_the_form_that_a_task_takes() -> None:
    def inputs(name: str, *size: int) -> tuple[object, ...]:
        return input_values(model_operator(name, None, size))

    frame = (2, 3, 128, 128)
    assert inputs("resnet18", 2, 3, 8, 8) == (TensorSpec((2, 3, 8, 8), "float32"),)
    assert inputs("r3d_18", 2, 3, 4, 8, 8) == (TensorSpec((2, 3, 4, 8, 8), "float32"),)
    assert inputs("raft_small", *frame) == (TensorSpec(frame, "float32"), TensorSpec(frame, "float32", identity=1))
    images = tuple(TensorSpec((3, 128, 128), "float32", identity=index) for index in range(2))
    assert inputs("fcos_resnet50_fpn", *frame) == (images,)


def test_the_published_facts_without_torch_are_those_of_torchvision(pytestconfig: pytest.Config) -> None:
    models = {model.name: model for model in models_matching([]) if not model.is_foreign}
    if pytestconfig.getoption("--renew-golden"):
        with PUBLISHED.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            names = [field.name for field in fields(PublishedFacts)]
            writer.writerow(("name", "task", "input_size", "is_data_dependent", *names))
            for one in models.values():
                size = "x".join(map(str, one.input_size))
                writer.writerow((one.name, one.task, size, int(one.is_data_dependent), *astuple(one.published)))
    assert published_models() == models


def test_all_but_quantized_models_are_chosen_and_detectors_depend_on_data() -> None:
    models = {model.name: model for model in models_matching([])}
    quantized = {name for name in torchvision.models.list_models() if name.startswith("quantized_")}
    assert set(models) == set(torchvision.models.list_models()) - quantized
    assert [model.name for model in models_matching(["vit_b_*", "vit_b_16"])] == ["vit_b_16", "vit_b_32"]
    detectors = {name for name in models if "rcnn" in name or name.startswith(("fcos", "retinanet", "ssd"))}
    assert {name for name, model in models.items() if model.is_data_dependent} == detectors
    assert {model.task for name, model in models.items() if name in detectors} == {"detection"}


class OtherSource:
    """A source of one model, which a config names ``other:net``."""

    def listed(self, model_name: str) -> None:
        if model_name != "net":
            raise CannotMeasureError("no such model")

    def mistakes(self, config: Any) -> list[str]:
        return []


def test_a_config_names_another_source_before_a_colon(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Named("other:net", None)
    unknown = (
        "other:net: unknown source of models other; a file ends with .py, as in other.py:net "
        "(opcost knows the models of torchvision, timm, transformers; "
    )
    assert check_config(model) == [f"{FILE}: model_name: {unknown}{ALL_MODELS}"]
    monkeypatch.setattr(registry, "SOURCES", {**registry.SOURCES, "other": OtherSource})
    monkeypatch.setitem(MODEL_PACKAGES, "other", "other.models.")
    assert check_config(model) == []
    (line,) = check_config(Named("other:mesh", None))
    assert line.startswith(
        f"{FILE}: model_name: no such model (opcost knows the models of torchvision, timm, transformers, other; "
    )
    operator = model_operator("other:net", None, SIZE)
    assert (operator.operator, operator.is_model, operator.short_name) == ("other.models.net", True, "net")
    assert isinstance(registry.source_of(operator), OtherSource)
    assert not OperatorTuple("other.models.Net").is_model


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("torchvision.models.resnet50", "a package is no part of the name; write resnet50 ("),
        ("tf_efficientnetv2_s.in1k", "no source has a model 'tf_efficientnetv2_s.in1k' ("),
        ("timm.models.resnet50", "no source has a model 'timm.models.resnet50' ("),
        ("nopackage.resnet50", "no source has a model 'nopackage.resnet50' ("),
    ],
)
def test_a_name_with_dots_is_one_mistake_that_quotes_all_of_it(name: str, mistake: str, tmp_path: Path) -> None:
    config = ModelConfig("x", tmp_path / "summary.yml", name, None, (2, 3, 64, 64), done=False)
    (line,) = check_config(config)
    assert line.startswith(f"{tmp_path}/summary.yml:1: model_name: {mistake}")


def run_anchors(self: Any, x: torch.Tensor) -> torch.Tensor:
    features = self.linear(x)
    self.anchors = self.anchors.to(features.dtype)
    return features + self.anchors


def test_a_data_dependent_model_has_initialised_its_caches_under_autocast_before_it_is_counted() -> None:
    operator = run_under(model_operator("anchors", None, (2, 4)), "bfloat16")
    source: Any = OneModel(SmallModel(run_anchors, linear=nn.Linear(4, 4), anchors=torch.zeros(4)))
    listed = ListedModel("anchors", "detection", (2, 4), True, PublishedFacts(None, None))
    context = partial(autocast, "amp-bf16", "cpu")
    ready = ResolvedModel(operator, source, listed).ready_to_count("cpu", context)
    with context():
        counts = capture(ready, operator)
    assert [count.operator.short_name for count in counts.counts] == ["Linear", "add"]
    assert "bfloat16[2, 4], bfloat16[4]" in str(counts.counts[-1].operator)


class OfManyDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("exact", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("rotation", torch.zeros(4, dtype=torch.complex64))
        self.register_buffer("index", torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", {"linear.weight": "float32", "exact": "float64", "rotation": "complex64", "index": "int64"}),
        ("bfloat16", {"linear.weight": "bfloat16", "exact": "bfloat16", "rotation": "complex64", "index": "int64"}),
    ],
)
def test_only_a_precision_of_16_bits_changes_dtypes_and_only_of_real_weights(
    dtype: str, expected: dict[str, str]
) -> None:
    operator = stored_as(model_operator("resnet18", None, SIZE), dtype, is_channels_last=False)
    values = stored_like(OfManyDtypes(), operator).state_dict()
    assert {name: str(values[name].dtype).removeprefix("torch.") for name in expected} == expected


# First runs


class SetsUpInItsFirstRun(nn.Module):
    """Makes a table in its first run, and notes the conditions of each run."""

    def __init__(self, note: Callable[[tuple[bool, bool]], None]) -> None:
        super().__init__()
        self.note, self.table = note, torch.empty(0)
        self.linear = nn.Linear(32, 32)

    def forward(self, images: Any) -> torch.Tensor:
        x = images[0] if isinstance(images, list) else images
        self.note((torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")))
        if not self.table.numel():
            self.table = self.linear(x).exp()
        return x + self.table


@dataclass(frozen=True)
class OneModel:
    """A source of the one model."""

    model: nn.Module

    def ready(self, operator: OperatorTuple, device: str) -> ReadyModel:
        return ReadyModel(self.model.to(device).eval(), *model_inputs(operator, device, {}))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("is_data_dependent", "is_foreign"), [(False, False), (True, False), (False, True)])
def test_one_first_run_as_the_counted_one_comes_before_the_count(
    is_data_dependent: bool, is_foreign: bool, device: str
) -> None:
    runs: list[tuple[bool, bool]] = []
    facts = ListedModel("sets_up", "", SIZE, is_data_dependent, PublishedFacts(None, None), is_foreign)
    source: Any = OneModel(SetsUpInItsFirstRun(runs.append))
    resolved = ResolvedModel(model_operator("sets_up", None, SIZE), source, facts)
    context = partial(torch.autocast, "cpu", torch.bfloat16)
    ready = resolved.ready_to_count(device, context)
    assert runs == [(True, True)]
    with context():
        counts = capture(ready, resolved.operator)
    # The third shows that the first was longer because of a set-up, the last that observation changes nothing.
    assert runs == [(True, True)] * 4
    table = "bfloat16" if device == "cpu" else "float32"
    assert [count.operator.short_name for count in counts.counts] == ["add"]
    assert table in str(counts.counts[0].operator)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("vit_tiny", "vit_tiny_s8 or vit_tiny_patch16_224 or gcvit_tiny"),
        ("gcvit_tony", "gcvit_tiny"),
        ("", "something else"),
    ],
)
def test_names_that_begin_with_the_users_text_are_suggested_first(name: str, names: str) -> None:
    known = ["davit_tiny", "gcvit_tiny", "vit_tiny_patch16_224", "vit_tiny_s8", "xcit"]
    found = suggestion(name, known, "something else")
    assert found.removeprefix("did you mean ").startswith(names)
