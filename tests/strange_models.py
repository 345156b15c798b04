"""Models as few people write them: kinds of layers times ways of building and calling them. All are tiny."""

import asyncio
import contextlib
import copy
import pickle
import queue
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.flop_counter import FlopCounterMode

Make: TypeAlias = Callable[[], nn.Module]
LENGTHS = torch.tensor([5, 3, 2])


class Calls(nn.Module):
    """Calls a function with its input, and with layers that it has."""

    def __init__(self, call: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.call = call
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: Any) -> Any:
        return self.call(*self.layers, *inputs)


class Word(Enum):
    """The kinds of words about a model that is not counted as others are."""

    NONE = "nothing: it is counted"
    UNKNOWN = "operations without a formula"
    WARNED = "a warning"
    REFUSED = "an exception of one line"


# Kinds


@dataclass(frozen=True)
class Kind:
    """A layer, its input, its FLOPs by hand where torch's dispatcher does not show them, and what is said of it."""

    make: Make
    inputs: Callable[[], tuple[Tensor, ...]]
    flop: int | None = None
    word: Word = Word.NONE


def floats(*size: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(size),)


def of_call(call: Callable[..., Any], *size: int) -> Kind:
    return Kind(lambda: Calls(call), floats(*size))


def self_attention(**options: Any) -> Make:
    return lambda: Calls(lambda one, x: one(x, x, x, **options)[0], nn.MultiheadAttention(8, 2, batch_first=True))


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.register_buffer("padding", torch.arange(5, device="cpu") >= LENGTHS[:, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.encoder(x, src_key_padding_mask=self.padding)
        return found


def recurrent(cell: type[nn.RNNBase], **options: Any) -> Make:
    return lambda: Calls(lambda one, x: one(x)[0], cell(8, 6, batch_first=True, **options))


def packed(cell: type[nn.RNNBase], **options: Any) -> Make:
    def call(layer: nn.Module, x: Tensor) -> Tensor:
        given = pack_padded_sequence(x, LENGTHS, batch_first=True)
        return pad_packed_sequence(layer(given)[0], batch_first=True)[0]

    return lambda: Calls(call, cell(8, 6, batch_first=True, **options))


def cells(lstm: nn.Module, gru: nn.Module, x: Tensor) -> Tensor:
    state = None
    for step in x.unbind(1):
        state = lstm(step, state)
    return gru(state[0])


class Weighted(nn.Module):
    """Multiplies by a weight of its own through a function."""

    def __init__(
        self, call: Callable[[Tensor, Tensor], Tensor], *size: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, dtype=dtype))
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x, self.weight)


def quantised(*layers: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(*layers), {nn.Linear, nn.LSTM}, dtype=torch.qint8)


def positive(x: Tensor) -> Tensor:
    return x @ x.mT + 9 * torch.eye(x.shape[-2], device=x.device)


def block_mask(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x, torch.ones(5, 5, dtype=torch.bool, device=x.device).tril())


KINDS: Mapping[str, Kind] = {
    "linear": Kind(lambda: nn.Linear(8, 8), floats(3, 5, 8)),
    "linear_relu": Kind(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)), floats(3, 8)),
    "linear_bf16": Kind(lambda: nn.Linear(8, 8).to(torch.bfloat16), lambda: (torch.randn(3, 8, dtype=torch.bfloat16),)),
    "linear_f64": Kind(lambda: nn.Linear(8, 8, dtype=torch.float64), lambda: (torch.randn(3, 8, dtype=torch.float64),)),
    "bilinear": Kind(lambda: Calls(lambda one, x: one(x, x), nn.Bilinear(8, 8, 4)), floats(3, 8)),
    "conv1d": Kind(lambda: nn.Conv1d(4, 6, 3, padding=1), floats(2, 4, 9)),
    "conv2d": Kind(lambda: nn.Conv2d(4, 6, 3, stride=2), floats(2, 4, 7, 7)),
    "conv2d_same": Kind(lambda: nn.Conv2d(4, 6, 2, padding="same", dilation=3), floats(2, 4, 7, 7)),
    "conv2d_circular": Kind(lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), floats(2, 4, 7, 7)),
    "conv_grouped": Kind(lambda: nn.Conv2d(4, 8, 3, groups=2, bias=False), floats(2, 4, 7, 7)),
    "conv_depthwise": Kind(lambda: nn.Conv2d(4, 4, 3, groups=4), floats(2, 4, 7, 7)),
    "conv_transposed": Kind(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), floats(2, 4, 5, 5)),
    "conv3d": Kind(lambda: nn.Conv3d(2, 3, 2), floats(2, 2, 3, 4, 4)),
    "conv_norm": Kind(lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()), floats(2, 4, 7, 7)),
    "matmul": of_call(lambda x: x @ x.mT, 3, 5, 8),
    "bmm": of_call(lambda x: torch.bmm(x, x.mT), 3, 5, 8),
    "baddbmm": of_call(lambda x: torch.baddbmm(x, x, x), 3, 5, 5),
    "addmm": Kind(lambda: Weighted(lambda x, w: torch.addmm(x, x, w), 8, 8), floats(3, 8)),
    "mv": Kind(lambda: Weighted(torch.mv, 8), floats(3, 8)),
    "einsum": of_call(lambda x: torch.einsum("bid,bjd,bje->bie", x, x, x), 3, 5, 8),
    "tensordot": of_call(lambda x: torch.tensordot(x, x, dims=([1, 2], [1, 2])), 3, 5, 8),
    "sdpa": of_call(lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), 2, 2, 5, 8),
    "sdpa_masked": of_call(block_mask, 2, 2, 5, 8),
    "sdpa_3d": of_call(lambda x: functional.scaled_dot_product_attention(x, x, x), 2, 5, 8),
    "mha": Kind(self_attention(need_weights=False), floats(3, 5, 8)),
    "mha_weights": Kind(self_attention(average_attn_weights=False), floats(3, 5, 8)),
    "encoder_layer": Kind(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), floats(3, 5, 8)),
    "encoder": Kind(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), floats(3, 5, 8)
    ),
    "encoder_padded": Kind(Padded, floats(3, 5, 8)),
    "decoder_layer": Kind(
        lambda: Calls(lambda one, x: one(x, x), nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)), floats(3, 5, 8)
    ),
    "lstm": Kind(recurrent(nn.LSTM), floats(3, 5, 8)),
    "lstm_two": Kind(recurrent(nn.LSTM, num_layers=2, bidirectional=True), floats(3, 5, 8)),
    "lstm_projected": Kind(recurrent(nn.LSTM, proj_size=4), floats(3, 5, 8)),
    "gru": Kind(recurrent(nn.GRU, bidirectional=True), floats(3, 5, 8)),
    "rnn": Kind(recurrent(nn.RNN), floats(3, 5, 8)),
    "cells": Kind(lambda: Calls(cells, nn.LSTMCell(8, 8), nn.GRUCell(8, 8)), floats(3, 5, 8)),
    "lstm_packed": Kind(packed(nn.LSTM), floats(3, 5, 8)),
    "gru_packed": Kind(packed(nn.GRU, bidirectional=True), floats(3, 5, 8)),
    "embedding": Kind(lambda: nn.Embedding(9, 8), lambda: (torch.randint(9, (3, 5)),)),
    "embedding_bag": Kind(lambda: nn.EmbeddingBag(9, 8), lambda: (torch.randint(9, (3, 5)),)),
    "norm": Kind(lambda: nn.LayerNorm(8), floats(3, 5, 8)),
    "norm_rms": Kind(lambda: nn.RMSNorm(8), floats(3, 5, 8)),
    "norm_group": Kind(lambda: nn.GroupNorm(2, 4), floats(2, 4, 7, 7)),
    "norm_batch": Kind(lambda: nn.BatchNorm2d(4), floats(2, 4, 7, 7)),
    "elementwise": of_call(lambda x: torch.sigmoid(x) * x + 1, 3, 8),
    "softmax": of_call(lambda x: x.softmax(-1).cumsum(-1), 3, 8),
    "pool": Kind(lambda: nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)), floats(2, 4, 7, 7)),
    "upsample": Kind(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), floats(2, 4, 5, 5)),
    "moving": of_call(
        lambda x: torch.cat([x.roll(1, 0), x.flip(0)]).sort(-1)[0][:, [1, 0]].gather(1, (x > 9).long()), 3, 8
    ),
    "fft": of_call(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2), 3, 5, 8),
    "fft2": of_call(lambda x: torch.fft.fft2(x).real, 3, 5, 8),
    "linalg_solve": of_call(lambda x: torch.linalg.solve(positive(x), x), 3, 5, 8),
    "linalg_qr": of_call(lambda x: torch.linalg.qr(x)[1], 3, 5, 8),
    "linalg_cholesky": of_call(lambda x: torch.linalg.cholesky(positive(x)), 3, 5, 8),
    "linalg_eigh": of_call(lambda x: torch.linalg.eigh(positive(x))[0], 3, 5, 8),
    "cdist": of_call(lambda x: torch.cdist(x, x), 30, 8),
    "complex": Kind(
        lambda: Weighted(lambda x, w: (torch.complex(x, x) @ w).abs(), 8, 8, dtype=torch.complex64), floats(3, 8)
    ),
    "quantised": Kind(lambda: quantised(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), floats(3, 8)),
    "quantised_lstm": Kind(lambda: Calls(lambda one, x: one[0](x)[0], quantised(nn.LSTM(8, 6))), floats(5, 3, 8)),
    "sparse": replace(of_call(lambda x: x.to_sparse_csr() @ x.mT, 5, 8), word=Word.UNKNOWN),
    "flex": Kind(lambda: Calls(lambda x: flex_attention(x, x, x)), floats(1, 2, 128, 16), flop=4 * 2 * 128 * 128 * 16),
    "nested": of_call(
        lambda x: torch.nested.nested_tensor([x[0], x[1, :3]]).softmax(-1).to_padded_tensor(0.0), 3, 5, 8
    ),
    "jagged": Kind(
        lambda: Calls(
            lambda one, x: one(torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)).to_padded_tensor(0.0),
            nn.Linear(8, 4),
        ),
        floats(3, 5, 8),
    ),
}


# Constructions


@dataclass(frozen=True)
class Construction:
    """A way of building a model from layers, how often it calls such a layer, and what is said of it.

    ``times`` is None where it computes others than the layer's operations, which torch's dispatcher shows.
    """

    build: Callable[[Make], nn.Module]
    times: int | None = 1
    word: Word = Word.NONE


def both(one: nn.Module, other: nn.Module, *x: Tensor) -> Any:
    return one(*x) + other(*x)


def tied(make: Make) -> nn.Module:
    one, other = make(), make()
    for (path, _), (_, weight) in zip(list(other.named_parameters()), list(one.named_parameters()), strict=True):
        owner, _, name = path.rpartition(".")
        setattr(other.get_submodule(owner), name, weight)
    return Calls(both, one, other)


class PlainList(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.hidden = [layer.eval()]

    def forward(self, *x: Tensor) -> Any:
        return self.hidden[0](*x)


def in_closure(make: Make) -> nn.Module:
    layer = make().eval()
    return Calls(lambda *x: layer(*x))  # noqa: PLW0108


def grad_kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs under the caller's modes of autograd, in another thread too."""
    is_inference = torch.is_inference_mode_enabled()

    def called(*args: Any) -> Any:
        with torch.inference_mode(is_inference), torch.no_grad():
            return function(*args)

    return called


def in_thread(make: Callable[[Callable[[], None]], threading.Thread]) -> Callable[..., Any]:
    """Return a call in a thread that is made for it."""

    def call(layer: nn.Module, *x: Tensor) -> Any:
        found: list[Any] = []
        run = grad_kept(layer)
        thread = make(lambda: found.append(run(*x)))
        thread.start()
        thread.join()
        return found[0]

    return call


def in_pool(layer: nn.Module, *x: Tensor) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda _: grad_kept_in(layer, x), range(2)))


def grad_kept_in(layer: nn.Module, x: tuple[Tensor, ...]) -> Any:
    with torch.inference_mode():
        return layer(*x)


def in_thread_pool(layer: nn.Module, *x: Tensor) -> Any:
    with ThreadPool(2) as pool:
        return sum(pool.map(lambda _: grad_kept_in(layer, x), range(2)))


def in_applied_pool(layer: nn.Module, *x: Tensor) -> Any:
    with ThreadPool(1) as pool:
        return pool.apply_async(grad_kept_in, (layer, x)).get()


def in_event_loop(layer: nn.Module, *x: Tensor) -> Any:
    async def run() -> Any:
        return layer(*x)

    return asyncio.run(run())


def in_thread_of_event_loop(layer: nn.Module, *x: Tensor) -> Any:
    return asyncio.run(asyncio.to_thread(grad_kept_in, layer, x))


class Worker(nn.Module):
    """Has a thread that lives longer than a call, and gets its work by a queue."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.asked, self.done = queue.Queue[Any](), queue.Queue[Any]()
        threading.Thread(target=work, args=(self.asked, self.done), daemon=True).start()

    def forward(self, *x: Tensor) -> Any:
        self.asked.put((self.layer, x))
        found = self.done.get()
        if isinstance(found, Exception):
            raise found
        return found


def work(asked: queue.Queue[Any], done: queue.Queue[Any]) -> None:
    while True:
        try:
            done.put(grad_kept_in(*asked.get()))
        except Exception as error:
            done.put(error)


def scripted(make: Make) -> nn.Module:
    return torch.jit.script(make().eval())


def example(make: Make, kind: Kind) -> nn.Module:
    return torch.jit.trace(make().eval(), kind.inputs())


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: nn.Module, *x: Tensor) -> Any:
        return layer(*x)


def jvp(layer: nn.Module, x: Tensor) -> Any:
    return torch.func.jvp(layer, (x,), (torch.ones_like(x),))[1]


def gradient(layer: nn.Module, x: Tensor) -> Any:
    with torch.enable_grad():
        given = x.detach().clone().requires_grad_()
        return torch.autograd.grad(layer(given).sum(), given)[0]


def backward(layer: nn.Module, x: Tensor) -> Any:
    with torch.enable_grad():
        given = x.detach().clone().requires_grad_()
        layer(given).sum().backward()
        return given.grad


def functional_gradient(layer: nn.Module, x: Tensor) -> Any:
    return torch.func.grad(lambda one: layer(one).sum())(x)


def dual(layer: nn.Module, x: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(layer(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


def stacked(one: nn.Module, other: nn.Module, x: Tensor) -> Any:
    weights, buffers = torch.func.stack_module_state([one, other])
    base = copy.deepcopy(one)
    return torch.vmap(lambda w, b: torch.func.functional_call(base, (w, b), (x,)))(weights, buffers)


def with_hooks(make: Make) -> nn.Module:
    layer = make()
    layer.register_forward_pre_hook(lambda _, args: tuple(one + 0 for one in args))
    layer.register_forward_hook(lambda _, args, output: output * 2)
    return nn.Sequential(layer)


def called_by_hook(make: Make) -> nn.Module:
    layer, other = nn.Identity(), make().eval()
    layer.register_forward_hook(lambda _, args, output: other(*args))
    return nn.Sequential(layer, nn.Identity())


def parametrized(change: Callable[[nn.Module], Any]) -> Callable[[Make], nn.Module]:
    def build(make: Make) -> nn.Module:
        layer = make()
        for one in [one for one in layer.modules() if isinstance(getattr(one, "weight", None), nn.Parameter)]:
            change(one)
        return layer

    return build


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def own_class(make: Make) -> nn.Module:
    """Return a layer of a subclass with a ``forward`` of its own."""
    layer = make()
    base = type(layer)
    layer.__class__ = type("Own", (base,), {"forward": lambda self, *x: base.forward(self, *x) * 2})
    return layer


def own_helper(make: Make) -> nn.Module:
    layer = make()
    base = type(layer)

    def helper(self: Any, x: Tensor, *rest: Any) -> Tensor:
        return base._conv_forward(self, x, *rest) + self.weight.sum()

    layer.__class__ = type("Own", (base,), {"_conv_forward": helper})
    return layer


def own_call(make: Make) -> nn.Module:
    layer = make()
    base = type(layer)
    layer.__class__ = type("Own", (base,), {"__call__": lambda self, *x: base.__call__(self, *x) * 2})
    return nn.Sequential(layer)


def replaced_forward(make: Make) -> nn.Module:
    layer = make()
    forward = layer.forward
    layer.forward = lambda *x: forward(*x) * 2
    return nn.Sequential(layer)


class Named(torch.Tensor):
    """A subclass of tensors that changes nothing."""


class Wrapped(torch.Tensor):
    """A tensor around another one, which sees operations."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner, by_name = tree_map_only(Wrapped, lambda one: one.inner, (args, kwargs or {}))
        result = func(*inner, **by_name)
        return Wrapped(result) if func is torch.ops.aten.detach.default else result


def of_subclass(cls: Callable[[Tensor], Any]) -> Callable[[Make], nn.Module]:
    def build(make: Make) -> nn.Module:
        layer = make()
        for one in layer.modules():
            for name, weight in list(one.named_parameters(recurse=False)):
                setattr(one, name, nn.Parameter(cls(weight.detach()), requires_grad=False))
        return nn.Sequential(layer)

    return build


class Watches(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Looks(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def within(context: Callable[[], contextlib.AbstractContextManager[Any]]) -> Construction:
    def call(layer: nn.Module, *x: Tensor) -> Any:
        with context():
            return layer(*x)

    return calls(call)


def calls(call: Callable[..., Any], times: int | None = 1, layers: int = 1, word: Word = Word.NONE) -> Construction:
    """Return models that call a function with layers and the input."""
    return Construction(lambda make: Calls(call, *(make() for _ in range(layers))), times, word)


def compiled(layer: nn.Module, *x: Tensor) -> Any:
    return torch.compile(layer, backend="eager")(*x)


def failing(layer: nn.Module, *x: Tensor) -> Any:
    with contextlib.suppress(RuntimeError):
        layer(*x)
        torch.ones(2, device=x[0].device) @ torch.ones(3, device=x[0].device)
    return layer(*x)


def asking(layer: nn.Module, *x: Tensor) -> Any:
    """Does twice the work while a function mode looks on."""
    return sum(layer(*x) for _ in range(1 + torch._C._is_torch_function_mode_enabled()))


class Changing(nn.Module):
    """Does more in each call, less, or at random."""

    def __init__(self, layer: nn.Module, number: Callable[[int], int]) -> None:
        super().__init__()
        self.layer, self.number, self.calls = layer, number, 0

    def forward(self, *x: Tensor) -> Any:
        self.calls += 1
        return sum(self.layer(*x) for _ in range(self.number(self.calls)))


class Growing(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.kept = layer, None

    def forward(self, *x: Tensor) -> Any:
        new = self.layer(*x)
        self.kept = new if self.kept is None else torch.cat([self.kept, new])
        return self.kept.sum() + self.kept


def yields(layer: nn.Module, *x: Tensor) -> Iterator[Any]:
    yield layer(*x)


async def awaits(layer: nn.Module, *x: Tensor) -> Any:
    return layer(*x)


class Attributes(nn.Module):
    """Hands all attributes that it lacks on to its layer, as wrappers do."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, *x: Tensor) -> Any:
        return self.layer(*x)


class Fresh(nn.Module):
    """Makes its layer in each call."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.make = make

    def forward(self, *x: Tensor) -> Any:
        torch.manual_seed(0)
        self.layer = self.make().eval()
        return self.layer(*x)


def repeated(layer: nn.Module, x: Tensor) -> Any:
    return while_loop(lambda n, _: n > 0, lambda n, one: (n - 1, layer(one)), (torch.tensor(2), x))[1]


def scanned(layer: nn.Module, x: Tensor) -> Any:
    return scan(lambda carried, one: (carried + layer(one).sum(), layer(one)), torch.zeros((), device=x.device), x)[1]


CONSTRUCTIONS: Mapping[str, Construction] = {
    "plain": Construction(lambda make: make()),
    "sequential": Construction(lambda make: nn.Sequential(nn.Identity(), make(), nn.Identity())),
    "twice": calls(lambda layer, *x: layer(*x) + layer(*x), 2),
    "shared": Construction(lambda make: Calls(both, *[make()] * 2), 2),
    "tied": Construction(tied, 2),
    "plain_list": Construction(lambda make: PlainList(make())),
    "closure": Construction(in_closure),
    "by_forward": calls(lambda layer, *x: layer.forward(*x)),
    "by_class": calls(lambda layer, *x: type(layer).forward(layer, *x)),
    "by_call_impl": calls(lambda layer, *x: layer._call_impl(*x)),
    "dictionary": calls(lambda layer, *x: {"found": layer(*x)}),
    "thread": calls(in_thread(lambda target: threading.Thread(target=target))),
    "timer": calls(in_thread(partial(threading.Timer, 0))),
    "pool": calls(in_pool, 2),
    "thread_pool": calls(in_thread_pool, 2),
    "thread_pool_applied": calls(in_applied_pool),
    "event_loop": calls(in_event_loop),
    "event_loop_thread": calls(in_thread_of_event_loop),
    "worker": Construction(lambda make: Worker(make())),
    "scripted": Construction(scripted),
    "scripted_child": Construction(lambda make: nn.Sequential(torch.jit.script(make().eval()))),
    "frozen": Construction(lambda make: torch.jit.freeze(torch.jit.script(make().eval()))),
    "forked": calls(lambda layer, *x: torch.jit.wait(torch.jit.fork(layer, *x))),
    "fx": Construction(lambda make: torch.fx.symbolic_trace(make())),
    "vmap": calls(lambda layer, x: torch.vmap(layer)(x), None),
    "vmap_chunks": calls(lambda layer, x: torch.vmap(layer, chunk_size=2)(x), None),
    "functional_call": calls(lambda layer, *x: torch.func.functional_call(layer, dict(layer.named_parameters()), x)),
    "stacked": calls(stacked, None, 2),
    "functionalize": calls(lambda layer, *x: torch.func.functionalize(layer)(*x)),
    "cond": calls(lambda layer, x: torch.cond(x.sum() > 1e9, lambda one: one.sin(), layer, (x,))),
    "cond_taken": calls(lambda layer, x: torch.cond(x.sum() < 1e9, layer, lambda one: layer(one) + 1, (x,))),
    "while_loop": calls(repeated, 2),
    "scan": calls(scanned, 2),
    "checkpoint": calls(lambda layer, *x: checkpoint(layer, *x, use_reentrant=False)),
    "checkpoint_reentrant": calls(lambda layer, *x: checkpoint(layer, *x, use_reentrant=True)),
    "checkpoint_sequential": Construction(
        lambda make: Calls(
            lambda s, x: checkpoint_sequential(s, 2, x, use_reentrant=False), nn.Sequential(make(), nn.Tanh())
        )
    ),
    "gradient": calls(gradient, None),
    "backward": calls(backward, None),
    "functional_gradient": calls(functional_gradient, None),
    "jvp": calls(jvp, None),
    "jacobian": calls(lambda layer, x: torch.func.jacrev(lambda one: layer(one).sum())(x), None),
    "dual": calls(dual, None),
    "autograd_function": calls(Once.apply),
    "deepcopy": calls(lambda layer, *x: copy.deepcopy(layer)(*x)),
    "copy": calls(lambda layer, *x: copy.copy(layer)(*x)),
    "pickle": calls(lambda layer, *x: pickle.loads(pickle.dumps(layer))(*x)),
    "hooks": Construction(with_hooks),
    "called_by_hook": Construction(called_by_hook),
    "weight_norm": Construction(parametrized(parametrizations.weight_norm)),
    "weight_norm_hook": Construction(parametrized(torch.nn.utils.weight_norm)),
    "spectral_norm": Construction(parametrized(parametrizations.spectral_norm), None),
    "doubled": Construction(parametrized(lambda one: parametrize.register_parametrization(one, "weight", Doubled()))),
    "pruned": Construction(parametrized(lambda one: prune.l1_unstructured(one, "weight", 0.5))),
    "own_class": Construction(own_class),
    "own_helper": Construction(own_helper),
    "own_call": Construction(own_call),
    "replaced_forward": Construction(replaced_forward),
    "in_place": calls(lambda layer, *x: layer(*x).mul_(2).add_(1)),
    "subclass": Construction(of_subclass(lambda weight: weight.as_subclass(Named))),
    "wrapped": Construction(of_subclass(Wrapped)),
    "input_subclass": calls(lambda layer, x: layer(x.as_subclass(Named))),
    "data_parallel": Construction(lambda make: nn.DataParallel(make())),
    "attributes": Construction(lambda make: Attributes(make())),
    "compiled": Construction(lambda make: torch.compile(make(), backend="eager")),
    "compiled_child": Construction(lambda make: nn.Sequential(torch.compile(make(), backend="eager"))),
    "compiled_within": calls(compiled),
    "dispatch_mode": within(Watches),
    "function_mode": within(Looks),
    "no_function": within(torch._C.DisableTorchFunction),
    "no_subclass": within(torch._C.DisableTorchFunctionSubclass),
    "flop_counter": within(lambda: FlopCounterMode(display=False)),
    "no_grad": within(torch.no_grad),
    "enable_grad": within(torch.enable_grad),
    "inference": within(torch.inference_mode),
    "no_inference": within(lambda: torch.inference_mode(False)),
    "autocast": replace(within(lambda: torch.autocast("cpu", torch.bfloat16)), word=Word.REFUSED),
    "recorded": within(lambda: torch.profiler.record_function("layer")),
    "profiled": within(torch.autograd.profiler.profile),
    "saved_hooks": within(lambda: torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one)),
    "forked_rng": within(torch.random.fork_rng),
    "asks_for_modes": calls(asking, 2, word=Word.WARNED),
    "failing": calls(failing, 2),
    "fresh": Construction(Fresh),
    "counter": Construction(lambda make: Changing(make(), lambda calls: calls)),
    "first_only": Construction(lambda make: Changing(make(), lambda calls: 2 if calls == 1 else 1), 2),
    "every_other": Construction(lambda make: Changing(make(), lambda calls: 2 - calls % 2)),
    "random_depth": Construction(
        lambda make: Changing(make(), lambda _: random.randint(1, 20)), None, word=Word.WARNED
    ),
    "growing": Construction(lambda make: Growing(make())),
    "yields": calls(yields, word=Word.REFUSED),
    "awaits": calls(awaits, word=Word.REFUSED),
    "lazy": calls(lambda layer, *x: lambda: layer(*x), word=Word.REFUSED),
    "lazy_map": calls(lambda layer, *x: zip(layer(*x) for _ in [1]), word=Word.REFUSED),
    "lazy_generator": calls(lambda layer, *x: (layer(*x) for _ in [1]), word=Word.REFUSED),
    "lazy_list": calls(lambda layer, *x: [(layer(*x) for _ in [1])], word=Word.REFUSED),
}
