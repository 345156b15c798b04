"""Strange models against a dispatch count of its own: each is counted so, or something is said of it.

All ``KINDS`` of layers are built plainly, called twice, hidden in a list and run in a thread; the other
``CONSTRUCTIONS`` are made of some of them.
"""

import logging
import math
import random
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pytest
import torch
from strange_models import CONSTRUCTIONS, KINDS, Construction, Kind, Word
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opcost.errors import CannotBuildError, CannotMeasureError, UserError
from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel


class Products(TorchDispatchMode):
    """Counts the FLOPs of products by the names of operations, with formulas of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.flop = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(one.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for one in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        self.flop += product(func, args, result)
        return result


def product(func: Any, args: Any, result: Any) -> float:  # noqa: PLR0911, PLR0912
    """Return the FLOPs of an operation by its name; 0 for all others."""
    name = func._overloadpacket.__name__
    tensors = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
    factor = 4 if any(map(torch.is_complex, tensors)) else 1
    size = tensors[0].shape[-1] if tensors and not tensors[0].is_nested and tensors[0].dim() else 0
    match name:
        case "mm" | "bmm" | "matmul" | "mv" | "dot" | "vdot":
            return factor * 2 * args[0].numel() * (args[1].shape[-1] if args[1].dim() > 1 else 1)
        case "addmm" | "baddbmm" | "addmv":
            return factor * 2 * args[1].numel() * (args[2].shape[-1] if args[2].dim() > 1 else 1)
        case "linear":
            return 2 * args[0].numel() * args[1].shape[0]
        case "linear_dynamic":
            return 2 * args[0].numel() * result.shape[-1]
        case "convolution":
            return 2 * args[0].shape[0] * math.prod((args[0] if args[6] else result).shape[2:]) * args[1].numel()
        case "convolution_backward":
            places = (args[1] if args[7] else args[0]).shape[2:]
            return sum(args[10][:2]) * 2 * args[1].shape[0] * math.prod(places) * args[2].numel()
        case "_native_multi_head_attention":
            return attention_layer(*args[0].shape)
        case "_transformer_encoder_layer_fwd":
            lengths = [one[0] for one in args[0]._nested_tensor_size().tolist()] if args[0].is_nested else None
            batch, length, width = (1, 1, args[1]) if lengths else args[0].shape
            layer = (
                sum(attention_layer(1, one, width) for one in lengths) if lengths else attention_layer(*args[0].shape)
            )
            hidden = next(weight for weight in tensors[-4:] if weight.dim() == 2)
            return layer + 4 * (sum(lengths) if lengths else batch * length) * hidden.numel()
        case "mkldnn_rnn_layer":
            return 2 * math.prod(args[0].shape[:-1]) * (args[1].numel() + args[2].numel())
        case "quantized_lstm":
            return 2 * math.prod(args[0].shape[:-1]) * 4 * result[1].shape[-1] * (size + result[1].shape[-1])
        case "_trilinear":
            return 2 * args[0].shape[0] * args[1].numel()
        case "_euclidean_dist":
            return 2 * math.prod(args[0].shape[:-1]) * args[1].shape[-2] * (size + 2)
        case "_fft_r2c" | "_fft_c2r" | "_fft_c2c":
            real = 1 if name == "_fft_c2c" else 2
            larger = result if name == "_fft_c2r" else args[0]
            return 5 * larger.numel() * math.log2(math.prod(larger.shape[place] for place in args[1])) / real
        case "linalg_lu_solve":
            return 2 * args[0].shape[0] * size**2 * args[2].shape[-1]
        case "_linalg_solve_ex":
            return args[0].shape[0] * (2 / 3 * size**3 + 2 * size**2 * args[1].shape[-1])
        case "linalg_cholesky_ex":
            return args[0].shape[0] * size**3 / 3
        case "_linalg_eigh":
            return args[0].shape[0] * 9 * size**3
        case "linalg_qr":
            small = min(args[0].shape[-2:])
            product_of_reflections = 4 * small**2 * (small - small / 2 - small / 2 + small / 3)
            return args[0].shape[0] * (2 * small**2 * (size - small / 3) + product_of_reflections)
    if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
        _, query, key, value = args[:4]
        return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (3 * query.shape[-1] + 2 * value.shape[-1])
    if name.startswith("_scaled_dot_product"):
        query, key, value = args[:3]
        return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 0


def attention_layer(batch: int, length: int, width: int) -> int:
    return 2 * batch * length * width * (4 * width + 2 * length)


@dataclass(frozen=True)
class Kept(ReadyModel):
    """Keeps the results of its runs, and gives each the same random numbers of torch."""

    results: list[Any] = field(default_factory=list)

    def run(self) -> Any:
        torch.manual_seed(1)
        self.results.append(super().run())
        return self.results[-1]


@dataclass(frozen=True)
class Found:
    """A count of a model on a device, None if it is refused, with the kind of what is said of it."""

    said: Word
    counts: OperatorCounts | None = None
    ready: ReadyModel | None = None
    refusal: str = ""


def built(kind: Kind, construction: Construction, device: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the same model with the same inputs in each call."""
    random.seed(0)
    torch.manual_seed(0)
    with torch.device(device):
        return construction.build(kind.make).eval(), kind.inputs()


def products_of(kind: Kind, construction: Construction, device: str) -> int:
    """Return the FLOPs of a model's first run, from the dispatch count."""
    model, inputs = built(kind, construction, device)
    torch.manual_seed(1)
    with torch.no_grad(), Products() as products:
        model(*inputs)
    return round(products.flop)


@cache
def flop_of(name: str) -> int:
    kind = KINDS[name]
    return products_of(kind, CONSTRUCTIONS["plain"], "cpu") if kind.flop is None else kind.flop


def found_by_opcost(kind: Kind, construction: Construction, device: str, caplog: pytest.LogCaptureFixture) -> Found:
    model, inputs = built(kind, construction, device)
    caplog.clear()
    try:
        ready = run_first(Kept(model, inputs))
        counts = capture(ready, OperatorTuple("strange"))
    except (CannotMeasureError, CannotBuildError, UserError) as error:
        return Found(Word.REFUSED, refusal=str(error))
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert all("strange" in text for text in texts), "a warning names the model"
    said = Word.WARNED if texts else Word.UNKNOWN if counts.without_formula else Word.NONE
    return Found(said, counts, ready)


def unobserved(kind: Kind, construction: Construction, device: str, computes_gradients: bool = False) -> Kept:
    """Run a model without opcost, in inference mode unless it computes gradients."""
    ready = Kept(*built(kind, construction, device))
    with torch.no_grad() if computes_gradients else torch.inference_mode():
        ready.run()
    return ready


def tensors(result: Any) -> list[Tensor]:
    return [one for one in tree_leaves(result) if isinstance(one, Tensor)]


PLAIN = ("plain", "twice", "thread", "plain_list")
SAMPLES = ("linear", "conv2d")
"""Kinds of which each construction is made, unless ``MADE_OF`` has others."""

MADE_OF = {
    **dict.fromkeys(
        ("by_class", "deepcopy", "closure", "fresh", "hooks"), ("linear", "mha", "encoder_layer", "encoder_padded")
    ),
    **dict.fromkeys(("pool", "thread_pool", "event_loop_thread", "worker"), ("linear", "sdpa", "norm_batch", "gru")),
    **dict.fromkeys(("weight_norm", "doubled"), ("linear", "conv2d", "mha_weights", "encoder_padded", "norm_batch")),
    **dict.fromkeys(("scripted_child", "frozen"), ("linear", "conv_norm", "pool")),
    **dict.fromkeys(("vmap", "vmap_chunks"), ("linear", "conv2d", "matmul", "linalg_solve")),
    "stacked": ("linear", "conv2d", "norm_batch"),
    "jvp": ("conv2d", "matmul", "softmax", "norm", "gru"),
    "dual": ("conv2d", "matmul", "softmax"),
    **dict.fromkeys(("gradient", "functional_gradient", "backward"), ("linear", "conv2d", "softmax", "einsum", "sdpa")),
    **dict.fromkeys(("cond", "cond_taken", "while_loop", "scan"), ("linear",)),
    **dict.fromkeys(("functional_call", "autograd_function"), ("linear", "lstm", "mha", "jagged")),
    "own_helper": ("conv2d",),
    "random_depth": ("linear",),
}
"""Kinds that a construction admits, or that show more of it."""

CASES = [
    *((kind, construction) for construction in PLAIN for kind in KINDS),
    *(
        (kind, construction)
        for construction in CONSTRUCTIONS
        if construction not in PLAIN
        for kind in MADE_OF.get(construction, SAMPLES)
    ),
]

BY_CHANCE = {"random_depth"}
"""Constructions whose work no count can foretell; something is said of them."""

WARNED = {("encoder_layer", "by_class")}
"""A call past the module's own ``forward`` is not seen, so that it leaves its fast path."""

OTHER_BYTES_ON_SHAPES = {
    "lstm_packed",
    "gru_packed",
    "jvp",
    "dual",
    "gradient",
    "functional_gradient",
    "backward",
} | BY_CHANCE
"""Kinds and constructions whose bytes on shapes are others, as ``docs/method.md`` says."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "way"), CASES, ids=["-".join(case) for case in CASES])
def test_a_strange_model_is_counted_as_it_runs_or_something_is_said(
    name: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind, construction = KINDS[name], CONSTRUCTIONS[way]
    found = found_by_opcost(kind, construction, "cpu", caplog)
    assert found.said is expected_word(kind, construction, name, way)
    if found.said is Word.REFUSED:
        assert found.refusal
        assert "\n" not in found.refusal
        return
    assert_right(found, name, way, "cpu")
    plain = unobserved(kind, construction, "cpu", found.ready.computes_gradients)
    assert found.counts.parameters == sum(one.numel() for one in plain.model.parameters()) + packed_weights(plain.model)
    if found.said is not Word.WARNED:
        assert_same(found.ready.results[-1], plain.results[-1])
    try:
        unobserved(kind, construction, "meta", found.ready.computes_gradients)
    except Exception:
        # It has no shapes alone.
        return
    on_shapes = found_by_opcost(kind, construction, "meta", caplog)
    assert on_shapes.said is found.said
    assert_right(on_shapes, name, way, "meta")
    if OTHER_BYTES_ON_SHAPES.isdisjoint((name, way)):
        assert on_shapes.counts.total_memory_bytes == found.counts.total_memory_bytes


def expected_word(kind: Kind, construction: Construction, name: str, way: str) -> Word:
    if (name, way) in WARNED:
        return Word.WARNED
    return construction.word if construction.word is not Word.NONE else kind.word


def assert_right(found: Found, name: str, way: str, device: str) -> None:
    """Check the FLOPs, and that the operators have all FLOPs and bytes. Each has rounded means of its calls."""
    kind, construction, counts = KINDS[name], CONSTRUCTIONS[way], found.counts
    nearly = partial(pytest.approx, abs=0.5 * counts.operator_calls, rel=0)
    if found.said is not Word.UNKNOWN and way not in BY_CHANCE:
        times = construction.times
        truth = products_of(kind, construction, device) if times is None else times * flop_of(name)
        assert counts.total_flop == nearly(truth)
    assert counts.outside == ()
    assert counts.flop == (None if counts.without_formula else counts.total_flop)
    assert counts.memory_bytes == nearly(counts.total_memory_bytes)


def assert_same(one: Any, other: Any) -> None:
    for mine, yours in zip(tensors(one), tensors(other), strict=True):
        torch.testing.assert_close(torch.Tensor(mine.detach()), torch.Tensor(yours.detach()), equal_nan=True)


def packed_weights(model: nn.Module) -> int:
    """Return the number of packed weights, which are no parameters: each layer has them once."""
    quantised = torch.ao.nn.quantized.dynamic
    layers = [one for one in model.modules() if isinstance(one, (quantised.Linear, quantised.LSTM))]
    return sum(
        one.in_features * one.out_features + one.out_features
        if isinstance(one, quantised.Linear)
        else 4 * one.hidden_size * (one.input_size + one.hidden_size + 2)
        for one in layers
    )
