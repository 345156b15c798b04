"""A run of a model -> its operator counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from opcost.operators import OperatorCount, OperatorCounts, OperatorTuple
from opcost.torch_flops import CostCounter, OperationCost, total
from opcost.torch_operators import module_tuple

COMPOSITES: tuple[type[nn.Module], ...] = (nn.MultiheadAttention,)
"""Modules with children whose own forward computes with the children's weights: one operator each."""


def capture(model: nn.Module, inputs: tuple[Any, ...], model_tuple: OperatorTuple) -> OperatorCounts:
    """Run a model once in inference mode and count every call of its operators.

    Operators are the leaf modules (no children) and the ``COMPOSITES``. A module called three times counts three
    times; what runs inside an operator is not counted again; what runs outside is in the totals only.

    Args:
        model: the model, in the mode in which it is measured.
        inputs: its positional arguments.
        model_tuple: describes the model as a whole.
    """
    recorder = _Recorder()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(recorder.hooks_on(model))
        stack.enter_context(CostCounter(recorder.record))
        model(*inputs)
    whole = total(recorder.costs)
    return OperatorCounts(
        model=model_tuple,
        counts=tuple(recorder.counts()),
        total_flop=whole.flop,
        total_memory_bytes=whole.memory_bytes,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        torch_version=str(torch.__version__),
    )


def operator_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model that are counted as operators, each once."""
    seen: set[int] = set()
    pending = [module]
    while pending:
        candidate = pending.pop()
        if id(candidate) in seen:
            continue
        seen.add(id(candidate))
        children = list(candidate.children())
        if isinstance(candidate, COMPOSITES) or not children:
            yield candidate
        else:
            pending.extend(reversed(children))


class _Recorder:
    """Collects the costs of a run, and gives those inside an operator's call to that operator."""

    def __init__(self) -> None:
        self.costs: list[OperationCost] = []
        self._costs_of: dict[OperatorTuple, list[OperationCost]] = {}
        self._occurrences: dict[OperatorTuple, int] = {}
        self._active: list[OperatorTuple] = []

    @contextmanager
    def hooks_on(self, model: nn.Module) -> Iterator[None]:
        handles = []
        for module in operator_modules(model):
            handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            # Also after an error: the model may catch it and go on.
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def record(self, cost: OperationCost) -> None:
        self.costs.append(cost)
        if self._active:
            self._costs_of[self._active[0]].append(cost)

    def counts(self) -> Iterator[OperatorCount]:
        """Yield the counts in order of first call; costs per call are means over the calls."""
        for operator, occurrences in self._occurrences.items():
            cost = total(self._costs_of[operator])
            yield OperatorCount(
                operator, occurrences, round(cost.flop / occurrences), round(cost.memory_bytes / occurrences)
            )

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        operator = module_tuple(module, args, kwargs)
        if not self._active:
            self._occurrences[operator] = self._occurrences.get(operator, 0) + 1
            self._costs_of.setdefault(operator, [])
        self._active.append(operator)

    def _leave(self, *_: object) -> None:
        self._active.pop()
