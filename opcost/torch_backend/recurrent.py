"""Recurrent layers on the meta device with the operations of a CPU, where torch would run those of no device.

A CPU multiplies the inputs of all steps at once, and runs a layer of an LSTM in one kernel (oneDNN). Source:
``aten/src/ATen/native/RNN.cpp`` and ``native/mkldnn/RNN.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import linear

State: TypeAlias = tuple[Tensor, ...]
"""The hidden state of a layer, (batch, hidden), and that of an LSTM's cells."""

RECURRENT = {f"{name}.input": name for name in ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")}
"""The kinds of recurrent layers by the names of their operations. Those of packed sequences run as on no device."""

LSTM_MODE = 2
"""oneDNN's number of LSTM (``ideep::rnn_kind``)."""


def is_recurrent_on_shapes(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an operation is a recurrent layer on the meta device."""
    return func.name() in RECURRENT and bool(args[0].is_meta)


def recurrent(func: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Return the output and the last states of recurrent layers on the meta device.

    Args:
        func: one of ``RECURRENT``.
        args: its arguments: (length, batch, width) inputs, states, weights, whether they have biases, the number of
            layers, dropout, whether it trains, whether there are two directions, whether the batch comes first.
    """
    inputs, state, weights, has_biases, layers, dropout, train, is_bidirectional, batch_first = args
    kind, states = RECURRENT[func.name()], list(state) if func.name() == "aten::lstm.input" else [state]
    directions = 2 if is_bidirectional else 1
    size = len(weights) // (layers * directions)
    values = inputs.transpose(0, 1) if batch_first else inputs
    is_fused = kind == "aten::lstm" and states[0].shape == states[1].shape and _has_kernel(inputs)
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


def _has_kernel(inputs: Tensor) -> bool:
    is_admitted = inputs.dtype == torch.float32 or (
        inputs.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return bool(torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled() and is_admitted)


@dataclass(frozen=True)
class _Layer:
    """One direction of a layer, with its weights: of the input, of the hidden state, biases, and a projection."""

    kind: str
    weights: Sequence[Tensor]
    has_biases: bool
    is_reverse: bool

    def fused(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the output and the last state of a layer in one kernel."""
        weights = [*self.weights]
        if not self.has_biases:
            weights += [torch.zeros(one.shape, dtype=one.dtype, device=one.device) for one in weights]
        hidden, cells = (one.unsqueeze(0).contiguous() for one in state)
        form: tuple[Any, ...] = [], LSTM_MODE, hidden.shape[-1], 1, self.has_biases, False, False, False
        output, *final, _ = torch.ops.aten.mkldnn_rnn_layer(values, *weights, hidden, cells, self.is_reverse, *form)
        return output, tuple(one.squeeze(0) for one in final)

    def stepwise(self, values: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the output and the last state of a layer that runs step by step."""
        of_input, of_hidden, *more = self.weights
        biases = more[:2] if self.has_biases else (None, None)
        projection = next(iter(more[2:] if self.has_biases else more), None)
        steps = linear(values, of_input, biases[0]).unbind(0)
        outputs = []
        for step in reversed(steps) if self.is_reverse else steps:
            state = CELLS[self.kind](step, state, linear(state[0], of_hidden, biases[1]))
            if projection is not None:
                state = linear(state[0], projection), *state[1:]
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if self.is_reverse else outputs), state


def _lstm(step: Tensor, state: State, gates: Tensor) -> State:
    entry, keep, new, exit_ = gates.add_(step).chunk(4, 1)
    kept = (keep.sigmoid_() * state[1]).add_(entry.sigmoid_() * new.tanh_())
    return exit_.sigmoid_() * kept.tanh(), kept


def _gru(step: Tensor, state: State, gates: Tensor) -> State:
    (reset, update, new), (of_reset, of_update, of_new) = gates.chunk(3, 1), step.chunk(3, 1)
    new = of_new.add(new.mul_(reset.add_(of_reset).sigmoid_())).tanh_()
    return ((state[0] - new).mul_(update.add_(of_update).sigmoid_()).add_(new),)


CELLS: Mapping[str, Callable[[Tensor, State, Tensor], State]] = {
    "aten::lstm": _lstm,
    "aten::gru": _gru,
    "aten::rnn_tanh": lambda step, _, gates: (gates.add_(step).tanh(),),
    "aten::rnn_relu": lambda step, _, gates: (gates.add_(step).relu(),),
}
"""The step of a layer by its kind: the input of its gates, its state, and the hidden state's part of the gates."""
