"""Runs on the meta device with the shapes, layouts, branches and operations of a CPU or GPU.

torch would run recurrent layers there with the operations of no device. A CPU multiplies the inputs of all steps at
once, and runs a layer of an LSTM in one kernel (oneDNN). Source: ``aten/src/ATen/native/RNN.cpp`` and
``native/mkldnn/RNN.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.nn.attention import SDPBackend
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import _disable_current_modes

from opcost.operators.tuples import META, Phase
from opcost.torch_backend.passes import DispatchMode, present_phase
from opcost.torch_backend.values import arguments_by_name

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The channels-last format by number of dimensions."""

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


@contextmanager
def like_a_device(device: str = META) -> Iterator[None]:
    """While active, runs on the meta device take the branches of a CPU or GPU; on others nothing is changed.

    ``MultiheadAttention`` and ``TransformerEncoderLayer`` take their native paths, convolutions keep the channels-last
    layout, and batch norms in eval mode write no statistics. ``CostCounter`` fuses attention, and runs recurrent layers
    as a CPU does. In a training step attention is fused before autograd sees it, and optimisers may be ``capturable``.
    """
    if device != META:
        yield
        return
    with ExitStack() as stack:
        # Modules and optimisers name the devices that have kernels of theirs, one of them by this name of an
        # extension's.
        stack.enter_context(patch.object(backend_registration, "_privateuse1_backend_name", META))
        stack.enter_context(results_of_a_device(device))
        if present_phase() is not Phase.INFERENCE:
            stack.enter_context(patch.object(torch._C, "_get_privateuse1_backend_name", lambda: META))
            stack.enter_context(_FusedAttention())
        yield


def results_of_a_device(device: str) -> AbstractContextManager[object]:
    """Return the part of ``like_a_device`` that belongs to a thread: layouts and results of operations."""
    return _DeviceResults() if device == META else nullcontext()


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether torch takes a tensor as channels last by its strides, also filters of one value or one channel."""
    return suggest_memory_format(tensor) == CHANNELS_LAST.get(tensor.dim())


def is_fused_attention(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operation is attention on the meta device that a CPU, as torch says, would fuse.

    It is in one kernel, too, if plain products are not allowed: not all kernels of GPUs are of CPUs.
    """
    return func is ATTENTION and args[0].is_meta and _is_fused(arguments_by_name(func, args, kwargs))


def _is_fused(given: Mapping[str, Any]) -> bool:
    if not torch.backends.cuda.math_sdp_enabled():
        return True
    # A run that is being counted may look on.
    with _disable_current_modes():
        on_cpu = {name: _on_cpu(value) for name, value in given.items() if isinstance(value, torch.Tensor)}
        choice = torch._fused_sdp_choice(**{**given, **on_cpu})
    return choice == SDPBackend.FLASH_ATTENTION.value


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU like one on the meta device, in almost no memory: all rows are the same one."""
    width, stride = (tensor.shape[-1], tensor.stride(-1)) if tensor.dim() else (1, 1)
    # Of other strides torch only asks whether they are 1.
    stride = min(stride, 2)
    row = torch.empty(max(1, width * stride), dtype=tensor.dtype, device="cpu")
    like = row.as_strided(tensor.shape, (*[0] * (tensor.dim() - 1), stride) if tensor.dim() else ())
    return like.requires_grad_() if tensor.requires_grad else like


def fused_attention(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """Return attention on the meta device in one kernel, which torch has there but calls on devices with data only."""
    given = arguments_by_name(ATTENTION, args, kwargs)
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    if mask is not None and mask.dtype == torch.bool:
        numbers = (torch.scalar_tensor(value, dtype=query.dtype, device=META) for value in (0.0, -torch.inf))
        mask = torch.where(mask, *numbers)
    if mask is not None:
        mask = mask.expand(*query.shape[:-1], key.shape[-2])
    tensors = [query, key, value, mask]
    # Else the dimensions are heads, length and width.
    has_batch = query.dim() > 3
    query, key, value, mask = tensors if has_batch else [None if one is None else one.unsqueeze(0) for one in tensors]
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    is_causal, scale = given["is_causal"], given["scale"]
    result: torch.Tensor = attend(query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale)[0]
    return result if has_batch else result.squeeze(0)


class _FusedAttention(TorchFunctionMode):
    """Fuses attention that records gradients, which modes below autograd see in parts.

    Attention with dropout is fused as on a GPU; a CPU has no such kernel.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention and (args[0] if args else kwargs["query"]).is_meta:
            given = arguments_by_name(ATTENTION, args, kwargs) | {"dropout_p": 0.0}
            if _is_fused(given):
                return fused_attention((), given)
        return func(*args, **kwargs)


class _DeviceResults(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._native_multi_head_attention.default and args[0].is_meta:
            return _native_attention(arguments_by_name(func, args, kwargs))
        if func is torch.ops.aten._transformer_encoder_layer_fwd.default and args[0].is_meta:
            return torch.empty_like(args[0])
        result = func(*args, **kwargs)
        if func is torch.ops.aten.convolution.default and result.is_meta:
            # Like oneDNN and cuDNN. From about torch 2.12 on the meta result is contiguous, because ``meta_conv`` in
            # ``torch/_meta_registrations.py`` does not know the device. All later operators would get another layout.
            is_last = any(map(is_channels_last, args[:2]))
            return result.contiguous(memory_format=CHANNELS_LAST[result.dim()]) if is_last else result
        is_norm = func is torch.ops.aten.native_batch_norm.default and result[0].is_meta
        if is_norm and not arguments_by_name(func, args, kwargs)["training"]:
            return result[0], result[0].new_empty(0), result[0].new_empty(0)
        if func is torch.ops.aten._weight_norm_interface.default and result[0].is_meta:
            result = result[0], result[1].new_empty(args[1].shape)
        bags = (torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only)
        if func.overloadpacket in bags and result[0].is_meta:
            return _embedding_bag(result[0], arguments_by_name(func, args, kwargs))
        return result


def _embedding_bag(output: torch.Tensor, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Return the output of bags and what a CPU notes beside: the bag of each index, sizes, and places of maxima.

    torch 2.14 notes no bags for sums of tables of these dtypes (``aten/src/ATen/native/EmbeddingBag.cpp``).
    """
    weight, factors, indices = given["weight"], given["per_sample_weights"], given["indices"]
    is_direct = given["mode"] == 0 and given["padding_idx"] < 0
    is_direct = is_direct and weight.dtype in (torch.float32, torch.float16, torch.bfloat16)
    is_direct = is_direct and weight.stride(1) == 1 and (factors is None or factors.stride(0) == 1)
    bags = output.shape[0]
    # The mode 2 gives the maximum.
    maxima = (bags, weight.shape[1]) if given["mode"] == 2 else (bags,)
    return output, *(indices.new_empty(size) for size in ((0 if is_direct else len(indices),), (bags,), maxima))


def _native_attention(given: Mapping[str, Any]) -> Any:
    """Return output and weights of ``_native_multi_head_attention``, which does not support the meta device."""
    query = given["query"]
    batch, length, _ = query.shape
    by_head = () if given["average_attn_weights"] else (given["num_head"],)
    weights = query.new_empty((batch, *by_head, length, given["key"].shape[1]))
    return torch.empty_like(query), weights if given["need_weights"] else None


State: TypeAlias = tuple[Tensor, ...]
"""The hidden state of a layer, (batch, hidden), and that of an LSTM's cells."""

RECURRENT = {f"{name}.input": name for name in ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")}
"""The kinds of recurrent layers by the names of their operations. Those of packed sequences run as on no device."""


def recurrent(func: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Return the output and the last states of recurrent layers on the meta device; ``func`` is one of ``RECURRENT``.

    ``args`` are (length, batch, width) inputs, states, weights, whether they have biases, the number of layers,
    dropout, whether it trains, whether there are two directions, whether the batch comes first.
    """
    inputs, state, weights, has_biases, layers, dropout, train, is_bidirectional, batch_first = args
    kind, states = RECURRENT[func.name()], list(state) if func.name() == "aten::lstm.input" else [state]
    directions = 2 if is_bidirectional else 1
    size = len(weights) // (layers * directions)
    values = inputs.transpose(0, 1) if batch_first else inputs
    takes_bfloat16 = inputs.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    has_kernel = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    has_kernel = has_kernel and (inputs.dtype == torch.float32 or takes_bfloat16)
    is_fused = kind == "aten::lstm" and states[0].shape == states[1].shape and has_kernel
    values = values.contiguous() if is_fused else values
    last: list[State] = []
    for number in range(layers):
        outputs = []
        for direction in range(directions):
            place = number * directions + direction
            layer = _Layer(kind, weights[place * size : (place + 1) * size], has_biases, is_reverse=direction == 1)
            run = layer.fused if is_fused else layer.stepwise
            output, final = run(values, tuple(one[place] for one in states))
            outputs.append(output)
            last.append(final)
        values = torch.cat(outputs, -1) if is_bidirectional else outputs[0]
        if dropout and train and number < layers - 1:
            values = torch.dropout(values, dropout, True)
    finals = [torch.stack(parts) for parts in zip(*last, strict=True)]
    return values.transpose(0, 1) if batch_first else values, *finals


@dataclass(frozen=True)
class _Layer:
    """One direction of a layer, with its weights: of the input, of the hidden state, biases, and a projection."""

    kind: str
    weights: Sequence[Tensor]
    has_biases: bool
    is_reverse: bool

    def fused(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        weights = [*self.weights]
        if not self.has_biases:
            weights += [torch.zeros(one.shape, dtype=one.dtype, device=one.device) for one in weights]
        hidden, cells = (one.unsqueeze(0).contiguous() for one in state)
        # 2 is oneDNN's number of LSTM (``ideep::rnn_kind``).
        form: tuple[Any, ...] = [], 2, hidden.shape[-1], 1, self.has_biases, False, False, False
        output, *final, _ = torch.ops.aten.mkldnn_rnn_layer(values, *weights, hidden, cells, self.is_reverse, *form)
        return output, tuple(one.squeeze(0) for one in final)

    def stepwise(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        of_input, of_hidden, *more = self.weights
        biases = more[:2] if self.has_biases else (None, None)
        projection = next(iter(more[2:] if self.has_biases else more), None)
        steps = linear(values, of_input, biases[0]).unbind(0)
        outputs = []
        for step in reversed(steps) if self.is_reverse else steps:
            state = _cell(self.kind, step, state, linear(state[0], of_hidden, biases[1]))
            if projection is not None:
                state = linear(state[0], projection), *state[1:]
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if self.is_reverse else outputs), state


def _cell(kind: str, step: Tensor, state: State, gates: Tensor) -> State:
    """Return the next state, by the input of the gates in a ``step`` and the hidden state's part of the ``gates``."""
    if kind == "aten::lstm":
        entry, keep, new, exit_ = gates.add_(step).chunk(4, 1)
        kept = (keep.sigmoid_() * state[1]).add_(entry.sigmoid_() * new.tanh_())
        return exit_.sigmoid_() * kept.tanh(), kept
    if kind == "aten::gru":
        (reset, update, new), (of_reset, of_update, of_new) = gates.chunk(3, 1), step.chunk(3, 1)
        new = of_new.add(new.mul_(reset.add_(of_reset).sigmoid_())).tanh_()
        return ((state[0] - new).mul_(update.add_(of_update).sigmoid_()).add_(new),)
    total = gates.add_(step)
    return (total.tanh() if kind == "aten::rnn_tanh" else total.relu(),)
