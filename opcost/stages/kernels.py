"""The comparison of the kernels of a model with those of its operator tuples run alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from opcost.columns import present_moment
from opcost.comparing.gap import KernelTimeRow, kernel_key
from opcost.errors import CannotMeasureError, UserError
from opcost.estimates import total_if_known
from opcost.measuring.conditions import EAGER, WARM
from opcost.operators.model_names import UserCode
from opcost.operators.tuples import OperatorTuple
from opcost.progress import Progress
from opcost.running.apparatus import OpenApparatus, open_apparatus
from opcost.running.request import Request, model_tuple
from opcost.sources.models import resolve
from opcost.storage.configs import ModelConfig
from opcost.torch_backend.capture import watch
from opcost.torch_backend.passes import Context, inference
from opcost.torch_backend.probes import Kernel, Mark, profiled
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast, precision
from opcost.torch_backend.workload import operator_workload
from opcost.units import milliseconds, percent

REPETITIONS = 3
"""Runs of each tuple alone under the profiler; its time is their mean."""

WARM_UP_RUNS = 2


@dataclass(frozen=True)
class KindOfOperator:
    """Kernel time of all calls of one operator in one run of the model: alone, and in the model.

    ``alone_s`` is None if a tuple does not run alone. ``same_kernels_s`` is the part of ``in_model_s`` in calls that
    launch the same kernels alone.
    """

    operator: str
    calls: int
    in_model_s: float
    alone_s: float | None
    same_kernels_s: float


@dataclass(frozen=True)
class KernelsReport:
    """The kernels of one model: all, those inside counted calls, and those of calls that launch the same alone.

    ``differences`` has a line for each tuple that launches other kernels alone: both lists of kernels, and the time.
    """

    name: str
    kernels: int
    kernel_time_s: float
    counted_ratio: float
    same_kernels_ratio: float
    kinds: tuple[KindOfOperator, ...]
    tuples: tuple[KindOfOperator, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Launched:
    """The kernels that one call of an operator launches, by name, and their total time."""

    names: Counter[str]
    time_s: float

    @staticmethod
    def of(kernels: Iterable[Kernel]) -> Launched:
        kernels = list(kernels)
        return Launched(Counter(kernel.name for kernel in kernels), sum(kernel.time_s for kernel in kernels))


def compare_kernels(
    request: Request, progress: Progress, open_device: OpenApparatus = open_apparatus
) -> list[KernelsReport]:
    """Profile each chosen model, then its tuples alone, and keep the rows. Raises UserError: there is no GPU."""
    configs = request.models(request.check)
    table = request.database.kernel_times
    progress.start(len(configs))
    reports = []
    try:
        with open_device(request.device, request.database, False) as apparatus:
            if not apparatus.is_gpu:
                raise UserError("--device cpu: kernels are compared on a GPU; name one with --device cuda")
            # The profiler reported kernels of a process's first model under other operators (``docs/log/cache.md``).
            profiled(lambda mark: None)
            for config in configs:
                progress.begin(config.name)
                with precision(config.precision):
                    report = _compare(config, apparatus.device, request.code_of(config))
                conditions = apparatus.conditions(request.setting_of(config))
                profiled_at = present_moment()
                for kind in report.kinds:
                    table.append(
                        KernelTimeRow(
                            key=kernel_key(model_tuple(config).key, conditions),
                            name=config.name,
                            operator=kind.operator,
                            calls=kind.calls,
                            in_model_time_s=kind.in_model_s,
                            alone_time_s=kind.alone_s,
                            same_kernels_time_s=kind.same_kernels_s,
                            profiled_at=profiled_at,
                            conditions=replace(conditions, execution=EAGER, cache=WARM),
                        )
                    )
                reports.append(report)
                progress.finish(f"{percent(report.same_kernels_ratio)} of the time in the same kernels alone")
    finally:
        progress.end()
    return reports


def _compare(config: ModelConfig, device: str, code: UserCode | None) -> KernelsReport:
    context = partial(autocast, config.precision, device)
    ready = resolve(model_tuple(config), code).with_inputs(device, context)
    for _ in range(WARM_UP_RUNS):
        with context(), inference():
            ready.run()
    with context():
        operators, kernels = profiled_calls(ready, config.composites)
    whole, calls = Launched.of(kernels), dict[OperatorTuple, list[Launched]]()
    for mark, launched in _by_mark(kernels).items():
        calls.setdefault(operators[mark], []).append(Launched.of(launched))
    alone = _alone(list(calls), device, partial(autocast, config.precision, device, keeps_casts=False))
    kinds = tuple(_kinds(calls, alone, lambda operator: operator.short_name))
    return KernelsReport(
        name=config.name,
        kernels=whole.names.total(),
        kernel_time_s=whole.time_s,
        counted_ratio=sum(kind.in_model_s for kind in kinds) / whole.time_s,
        same_kernels_ratio=sum(kind.same_kernels_s for kind in kinds) / whole.time_s,
        kinds=kinds,
        tuples=tuple(_kinds(calls, alone, str)),
        differences=tuple(_differences(calls, alone)),
    )


def _by_mark(kernels: Iterable[Kernel]) -> dict[int, list[Kernel]]:
    marked: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        if kernel.mark is not None:
            marked.setdefault(int(kernel.mark), []).append(kernel)
    return marked


def profiled_calls(ready: ReadyModel, composites: Collection[str]) -> tuple[list[OperatorTuple], list[Kernel]]:
    """Return the operators that a run of a model calls, and its kernels, whose mark is the number of the call."""
    operators: list[OperatorTuple] = []

    def run(mark: Mark) -> None:
        def mark_call(operator: OperatorTuple) -> AbstractContextManager[Any]:
            operators.append(operator)
            return mark(str(len(operators) - 1))

        watch(ready, mark_call, composites)

    return operators, profiled(run)


def _alone(operators: list[OperatorTuple], device: str, context: Context) -> dict[OperatorTuple, Launched | str]:
    alone: dict[OperatorTuple, Launched | str] = {}
    calls: dict[OperatorTuple, int] = {}

    def run(mark: Mark) -> None:
        for index, operator in enumerate(operators):
            try:
                workload = operator_workload(operator, device, context=context)
                workload.run(1)
                with mark(str(index)):
                    workload.run(REPETITIONS)
                calls[operator] = REPETITIONS * workload.iterations_per_round
            except CannotMeasureError as error:
                alone[operator] = str(error)

    launched = {operators[index]: Launched.of(kernels) for index, kernels in _by_mark(profiled(run)).items()}
    for operator, number in calls.items():
        own = launched.get(operator, Launched(Counter(), 0.0))
        names = Counter({name: round(found / number) for name, found in own.names.items()})
        alone[operator] = Launched(names, own.time_s / number)
    return alone


def _kinds(
    calls: dict[OperatorTuple, list[Launched]],
    alone: dict[OperatorTuple, Launched | str],
    name_of: Callable[[OperatorTuple], str],
) -> list[KindOfOperator]:
    pairs: dict[str, list[tuple[Launched, Launched | str]]] = {}
    for operator, launched in calls.items():
        pairs.setdefault(name_of(operator), []).extend((call, alone[operator]) for call in launched)
    kinds = [
        KindOfOperator(
            operator=name,
            calls=len(group),
            in_model_s=sum(call.time_s for call, _ in group),
            alone_s=total_if_known(None if isinstance(own, str) else own.time_s for _, own in group),
            same_kernels_s=sum(
                call.time_s for call, own in group if not isinstance(own, str) and call.names == own.names
            ),
        )
        for name, group in pairs.items()
    ]
    return sorted(kinds, key=lambda kind: -kind.in_model_s)


def _differences(calls: dict[OperatorTuple, list[Launched]], alone: dict[OperatorTuple, Launched | str]) -> list[str]:
    def names(launched: Launched) -> str:
        return " + ".join(f"{number} x {name}" for name, number in sorted(launched.names.items())) or "no kernel"

    lines = []
    for operator, launched in calls.items():
        own = alone[operator]
        other = [call for call in launched if isinstance(own, str) or call.names != own.names]
        if other:
            time_s = sum(call.time_s for call in other)
            text = own if isinstance(own, str) else f"alone {names(own)}; in the model {names(other[0])}"
            lines.append((time_s, f"{milliseconds(time_s)}: {operator}: {text}"))
    return [line for _, line in sorted(lines, reverse=True)]
