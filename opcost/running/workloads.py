"""Workloads of operators and models on a device, captured as CUDA graphs or called from Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeAlias

from opcost.measuring.conditions import GRAPH, device_type_of, usual_execution
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Calls, Workload
from opcost.operators.cases import Case
from opcost.operators.model_names import UserCode
from opcost.operators.tuples import OperatorTuple
from opcost.sources.models import resolve
from opcost.sources.python_file import register_operations
from opcost.torch_backend.capture import check_steady
from opcost.torch_backend.differences import Difference, difference, replay_device
from opcost.torch_backend.interludes import BackgroundLoad, with_pauses
from opcost.torch_backend.passes import Context
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast, precision
from opcost.torch_backend.workload import EagerWorkload, as_graph, operator_workload


def execution_on(device: str, setting: Setting) -> str:
    """Return the execution on a device: the setting's, else ``graph`` on a GPU and ``eager`` on a CPU."""
    return setting.execution or usual_execution(device_type_of(device))


OPERATIONS = "torch.ops."
"""The beginning of the names of registered operations, a user's among them."""


class MakeWorkload(Protocol):
    """Builds the workload of an operator or a model in a setting, for use within a context, with a duty cycle."""

    def __call__(self, case: Case, setting: Setting, duty_cycle: float = 1.0) -> AbstractContextManager[Workload]: ...


ReadyModels: TypeAlias = Mapping[OperatorTuple, ReadyModel]
"""Models that are objects of this process, by their tuples. Others are built from their source."""

NO_MODELS: ReadyModels = MappingProxyType({})


@dataclass(frozen=True)
class Workloads:
    """Builds workloads on a device; the background load, if there is one, pauses while one is in use."""

    device: str
    background: BackgroundLoad | None = None
    ready: ReadyModels = field(default_factory=dict)

    @contextmanager
    def __call__(self, case: Case, setting: Setting, duty_cycle: float = 1.0) -> Iterator[Workload]:
        """Build a workload while the background load runs; pause the load until the end of the context."""
        with precision(setting.precision):
            eager = self._eager(case, setting)
            if self.background is not None:
                self.background.pause()
            try:
                if duty_cycle < 1:
                    with eager.context():
                        eager = eager.of(with_pauses(eager.calls, self.device, duty_cycle))
                yield as_graph(eager) if execution_on(self.device, setting) == GRAPH else eager
            finally:
                if self.background is not None:
                    self.background.resume()

    def _eager(self, case: Case, setting: Setting) -> EagerWorkload:
        context = partial(autocast, setting.precision, self.device)
        if case.operator.is_model:
            ready = self._model(case.operator, setting.code, context)
            if ready.first is not None:
                check_steady(ready, context)
                # The state before takes memory that the loop does not need.
                ready = replace(ready, first=None)
            return EagerWorkload(Calls(partial(_run_in, context, ready)), self.device)
        if setting.code is not None and case.operator.operator.startswith(OPERATIONS):
            register_operations(setting.code)
        # Before it is built, so that the memory never holds it twice.
        found = self._difference(case, setting)
        loop = partial(context, keeps_casts=False)
        workload = operator_workload(case.operator, self.device, case.input_data, setting.cache, loop)
        if found is None:
            return workload
        return workload.annotated(f"not as counted: {found.text}", (found.flag,))

    def _difference(self, case: Case, setting: Setting) -> Difference | None:
        """Return how an operator differs from its count; None if it does not, or if that is unknown."""
        counted = case.counted
        device = None if counted is None else replay_device(counted.device_type, self.device)
        if counted is None or device is None:
            return None
        return difference(counted.count, device, partial(autocast, setting.precision, device))

    def _model(self, operator: OperatorTuple, code: UserCode | None, context: Context) -> ReadyModel:
        return self.ready.get(operator) or resolve(operator, code).with_inputs(self.device, context)


def _run_in(context: Context, ready: ReadyModel) -> object:
    with context():
        return ready.run()
