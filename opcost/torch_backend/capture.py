"""Capture of a model's operator counts during one run."""

from __future__ import annotations

import itertools
import logging
import threading
from bisect import bisect_right
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._C import _functorch as functorch
from torch._ops import HigherOrderOperator
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from opcost.errors import CannotBuildError, CannotMeasureError, DescriptionError
from opcost.operators.counts import COMPOSITES, OperatorCount, OperatorCounts
from opcost.operators.reuse import Use, reuses
from opcost.operators.tuples import META, OperatorTuple, Phase, PlainValue, is_name_in_place, library_of
from opcost.operators.values import InputStatistics
from opcost.torch_backend.cost_counter import (
    CostCounter,
    OperationCost,
    Operations,
    Work,
    dispatches_itself,
    is_free,
    least_flop,
    operation_cost,
    operations_of,
    operations_without_formula,
    tensor_bytes,
    tensors_of,
    total,
    unfused,
    unwatched,
)
from opcost.torch_backend.inputs import input_statistics, patterns_of
from opcost.torch_backend.meta_device import like_a_device, results_of_a_device
from opcost.torch_backend.operators import can_be_rebuilt, function_defaults, function_of, function_tuple, module_tuple
from opcost.torch_backend.passes import Context, present_phase, running_calls
from opcost.torch_backend.ready_model import (
    FirstRun,
    Forward,
    ObservedForward,
    ReadyModel,
    called_modules,
    carrying,
    inside_of,
    number_of_weights,
    sizes_of,
)
from opcost.torch_backend.run_state import changes_since, put_back
from opcost.torch_backend.switches import autocast_dtypes
from opcost.torch_backend.training_step import TrainingStep, saved_bytes
from opcost.torch_backend.values import (
    distinct_tensors,
    own_tensors,
    plain_value,
    stored_parts,
    tensors_within,
)
from opcost.units import gigaflop, percent, some_of
from opcost.version import version_of


def capture(
    ready: ReadyModel,
    model_tuple: OperatorTuple,
    composites: Collection[str] = (),
    record: Callable[[OperationCost], None] = lambda _: None,
    name: str = "",
) -> OperatorCounts:
    """Run a model once in inference mode and count every call of its operators; ``run_first`` comes before.

    Operators are torch's and torchvision's leaf modules, ``COMPOSITES`` and the further ``composites`` by class name,
    and every function that is called outside them and computes something (``docs/method.md``). Where functions cannot
    be seen (scripted modules, other threads, higher-order operators, the parts of jagged tensors), and inside
    ``torch.func.vmap``, which shows them a single sample, they are torch's operations instead. Operators see no hook
    and no function mode, either of which disables attention's native path. ``record`` is called with each operation
    that ran, in order. ``name`` is that of the model in warnings. Raises DescriptionError: a call could not be
    described, which is a bug. CannotBuildError: the model switches autocast on or off, which no tuple describes.
    """
    name, logger = name or model_tuple.short_name, logging.getLogger(__name__)
    ready, recorder = carrying(ready, partial(_recorded, composites=composites))
    first = ready.first
    # The set-up of a first run makes no difference from the second to the third.
    if first is not None and recorder.work != first.work:
        if recorder.work != _recorded(ready, composites).work:
            put_back(first.before)
            recorder = _recorded(ready, composites)
            text = (
                "%s: its work changes from call to call, as with a random depth or a cache in an object that it holds; "
                "counted is its first call, and no loop measures it, only its operators; let each call do the same work"
            )
            logger.warning(text, name)
        elif recorder.work != (alone := _work_of_run(ready)):
            text = (
                "%s: it does other work while it is observed (%s, else %s), as where it asks for modes of torch; "
                "counted is the observed work"
            )
            logger.warning(text, name, gigaflop(recorder.work.flop), gigaflop(alone.flop))
    if recorder.in_other_autocast:
        operator = recorder.in_other_autocast[0].operator
        raise CannotBuildError(f"{model_tuple.short_name} switches autocast itself, for {operator}")
    costs = [*recorder.costs, *recorder.elsewhere, *recorder.before]
    for cost in costs:
        record(cost)
    library = library_of(model_tuple.operator)
    callers = {call.caller for calls in recorder.calls.values() for call in calls}
    saved = saved_bytes(ready) if isinstance(ready.model, TrainingStep) else None
    modules = called_modules(ready.model, callers, recorder.sizes, saved)
    counts = OperatorCounts(
        model=model_tuple,
        counts=tuple(recorder.counts(list(modules))),
        total_flop=least_flop(costs),
        total_memory_bytes=total(costs).memory_bytes,
        parameters=number_of_weights(ready.model),
        torch_version=str(torch.__version__),
        device_type=ready.device_type,
        outside=tuple(sorted(recorder.outside)),
        composites=tuple(composites),
        library=None if library is None else f"{library} {version_of(library)}",
        without_formula=operations_without_formula(costs),
        modules=tuple(modules.values()),
    )
    if counts.missing_ratio is not None:
        text = "%s: %s of its FLOPs or bytes are in no tuple, so that sums and predictions lack them: %s"
        logger.warning(text, name, percent(counts.missing_ratio), some_of(counts.outside))
    return counts


def _recorded(ready: ReadyModel, composites: Collection[str]) -> _Recorder:
    recorder = _Recorder(device=ready.device_type)
    in_threads, counter = inside_of(recorder.of_another_thread), CostCounter(recorder.costs.append)
    with like_a_device(ready.device_type), Operations(recorder.run_outside), counter, in_threads:
        recorder.run(ready, composites)
    return recorder


def steady(ready: ReadyModel, context: Context = nullcontext) -> ReadyModel:
    """Return a model that has run once with the state that its runs carry, which is put back before each.

    Raises CannotMeasureError: two further runs do not do the same work, so that a loop measures other calls than are
    counted.
    """
    ready, work = carrying(ready, partial(_work_of_run, context=context))
    works = work, _work_of_run(ready, context)
    if works[0] != works[1]:
        flops = " and ".join(gigaflop(one.flop) for one in works)
        problem = f"its work changes from call to call ({flops}), so that a loop measures other calls"
        raise CannotMeasureError(f"{problem}; let each call do the same work, as by a fixed depth, or an empty cache")
    return ready


def repeatable(ready: ReadyModel, context: Context = nullcontext) -> ReadyModel:
    """Return a model as a loop runs it: ``steady`` if it has run first, without the state before, for its memory."""
    return ready if ready.first is None else replace(steady(ready, context), first=None)


def run_first(ready: ReadyModel, context: Context = nullcontext) -> ReadyModel:
    """Run a model once as ``capture`` does, so that its set-up is not counted; mark one that computes gradients."""
    before = ready.state

    def run(one: ReadyModel) -> ReadyModel:
        work = _work_of_run(one, context)
        return replace(one, first=FirstRun(work, before, one.state, changes_since(before)))

    try:
        return run(ready)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        try:
            return run(replace(ready, computes_gradients=True))
        except Exception:
            # The first error is that of the model as it is measured.
            raise error from error.__cause__


def _work_of_run(ready: ReadyModel, context: Context = nullcontext) -> Work:
    """Return the work of a run; a CannotMeasureError if the ``forward`` returns what computes only when asked."""
    costs: list[OperationCost] = []

    @contextmanager
    def counted() -> Iterator[None]:
        with results_of_a_device(ready.device_type), CostCounter(costs.append):
            yield

    modes = like_a_device(ready.device_type), CostCounter(costs.append), inside_of(counted), unfused()
    # A training step has a context of its own, for its forward alone.
    of_run = nullcontext() if ready.is_training else context()
    with ExitStack() as stack:
        for mode in (*modes, _no_lost_tangents(), of_run, running_calls()):
            stack.enter_context(mode)
        for result in tree_leaves(ready.run()):
            if isinstance(result, Coroutine):
                result.close()
            # Results that compute when they are asked for something.
            if isinstance(result, (Awaitable, Iterator, AsyncIterator, FunctionType, MethodType, partial)):
                kind = type(result).__name__
                raise CannotMeasureError(f"its forward returns a {kind}, of which nothing has run; return the results")
    return Work.of(costs)


@contextmanager
def _no_lost_tangents() -> Iterator[None]:
    """Refuse tangents in inference mode, where torch drops them silently, but for ``torch.func.jvp``."""
    make: Callable[..., Any] = forward_ad.make_dual

    def checked(tensor: torch.Tensor, *rest: Any, **keywords: Any) -> Any:
        if torch.is_inference_mode_enabled() and not functorch.is_functorch_wrapped_tensor(tensor):
            raise RuntimeError("tangents are computed outside of inference mode only")
        return make(tensor, *rest, **keywords)

    with patch.object(forward_ad, "make_dual", checked):
        yield


def watch(
    ready: ReadyModel, mark: Callable[[OperatorTuple], AbstractContextManager[Any]], composites: Collection[str] = ()
) -> None:
    """Run a model once in inference mode, each call of an operator, also a free one, inside the context of ``mark``."""
    _Recorder(mark).run(ready, composites)


def operator_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield each module of a model that is counted as an operator once.

    No scripted module is, whose ``forward`` cannot be observed, and none of other packages than torch and torchvision:
    no tuple needs code that only the model's author has.
    """
    return (found for found, is_operator in _observed_modules(module, ()) if is_operator)


def _observed_modules(module: nn.Module, composites: Collection[str]) -> Iterator[tuple[nn.Module, bool]]:
    """Yield each module that is not inside an operator once, and whether it is an operator itself."""
    seen: set[int] = set()
    pending = [module]
    while pending:
        candidate = pending.pop()
        if id(candidate) in seen or isinstance(candidate, torch.jit.ScriptModule):
            continue
        seen.add(id(candidate))
        is_operator = _is_operator(candidate, composites)
        yield candidate, is_operator
        if not is_operator:
            pending.extend(reversed(list(candidate.children())))


def _is_operator(module: nn.Module, composites: Collection[str]) -> bool:
    classes = {base.__name__ for base in type(module).__mro__}
    is_whole = not classes.isdisjoint(COMPOSITES) or next(module.children(), None) is None
    return (is_whole and can_be_rebuilt(module)) or not classes.isdisjoint(composites)


NO_COST = total([])
NO_USE = Use((), (), (), (), None)


class _Blocks:
    """The memory of a run: blocks by identifiers that no later block has while it is watched. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._watched: dict[int, StorageWeakRef] = {}
        self._written: set[int] = set()

    def of(self, tensors: Iterable[torch.Tensor]) -> tuple[tuple[int, int], ...]:
        """Return the block of each different tensor, with its bytes."""
        with self._lock:
            return tuple(map(self._of_tensor, {id(tensor): tensor for tensor in tensors}.values()))

    def written(self, tensors: Iterable[torch.Tensor]) -> tuple[tuple[int, int], ...]:
        with self._lock:
            blocks = self.of(tensors)
            self._written.update(block for block, _ in blocks)
            return blocks

    def freed(self) -> tuple[int, ...]:
        """Return the blocks that were released since it was asked last, of those that were written."""
        with self._lock:
            found = tuple(block for block in self._written if self._watched[block].expired())
            self._written.difference_update(found)
            for block in found:
                del self._watched[block]
            return found

    def _of_tensor(self, tensor: torch.Tensor) -> tuple[int, int]:
        while functorch.is_functorch_wrapped_tensor(tensor):
            tensor = functorch.get_unwrapped(tensor)
        part = stored_parts(tensor)[-1]
        watched = StorageWeakRef(part.untyped_storage())
        return self._watched.setdefault(watched.cdata, watched).cdata, tensor_bytes(tensor)


class _Nodes:
    """The modules whose calls made the nodes of autograd's graph, by the nodes' sequence numbers."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._paths: list[str] = []

    def note(self, path: str) -> None:
        """Note that the nodes since the last note are those of a module's call."""
        end = torch._C._autograd._get_sequence_nr()
        if end > (self._ends[-1] if self._ends else 0):
            self._ends.append(end)
            self._paths.append(path)

    def owner(self) -> str | None:
        """Return the module whose node runs in a backward pass now, None if none runs, or it has no module."""
        node = torch._C._current_autograd_node()
        place = len(self._ends) if node is None else bisect_right(self._ends, node._sequence_nr())
        return self._paths[place] if place < len(self._ends) else None


@dataclass(frozen=True)
class _Call:
    """One call of an operator: its module's path, its place in the run, its cost, and its inputs' values."""

    operator: OperatorTuple
    statistics: tuple[InputStatistics, ...] = ()
    patterns: tuple[str, ...] = ()
    cost: OperationCost = NO_COST
    operations: tuple[tuple[str, int], ...] = ()
    caller: str = ""
    position: int = 0
    weight_bytes: int = 0
    use: Use = NO_USE


class _Recorder(TorchFunctionMode):
    """Assigns the costs of a run to operators; as a function mode it sees the model's functions, not inner ones."""

    def __init__(
        self, mark: Callable[[OperatorTuple], AbstractContextManager[Any]] = nullcontext, device: str = META
    ) -> None:
        super().__init__()
        self.costs: list[OperationCost] = []
        self.outside: set[str] = set()
        self.sizes: dict[str, tuple[str, str]] = {}
        self.in_other_autocast: list[OperatorTuple] = []
        self.elsewhere: list[OperationCost] = []
        self.before: list[OperationCost] = []
        self._bugs: list[Exception] = []
        self._mark = mark
        self._device = device
        self.calls: dict[tuple[OperatorTuple, Phase], list[_Call]] = {}
        self._blocks = _Blocks()
        self._outputs: dict[OperatorTuple, PlainValue] = {}
        self._thread = threading.get_ident()
        self._is_inside = False
        self._is_split = False
        self._fingerprint: str | None = None
        self._path = ""
        self._phase = present_phase()
        self._autocasts = {self._phase: autocast_dtypes()}
        self._nodes = _Nodes()
        self._elsewhere_paths = threading.local()
        self._positions = itertools.count()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Getters, such as of ``shape``, are none; of higher-order operators the operations of their functions are.
        if getattr(function, "__name__", "") == "__get__" or isinstance(function, HigherOrderOperator):
            return function(*args, **kwargs)
        return self._run(function, function, args, kwargs)

    def run(self, ready: ReadyModel, composites: Collection[str]) -> None:
        self._fingerprint = ready.fingerprint
        with ExitStack() as stack:
            stack.enter_context(running_calls())
            stack.enter_context(unfused())
            paths = {id(module): path for path, module in ready.model.named_modules()}
            # A part that is observed already would look changed.
            for module, is_operator in list(_observed_modules(ready.model, composites)):
                stack.enter_context(self._observing(module, paths[id(module)], is_operator))
            stack.enter_context(patch.object(nn.Module, "__call__", self._finding(composites)))
            stack.enter_context(self)
            try:
                ready.run()
            finally:
                if self._bugs:
                    raise DescriptionError("a call could not be described") from self._bugs[0]

    @contextmanager
    def of_another_thread(self, began_before: bool = False) -> Iterator[None]:
        """Count each operation of another thread meanwhile as a call of an operator: its functions cannot be seen."""
        costs = self.before if began_before else self.elsewhere
        operations = Operations(partial(self.run_outside, is_own_thread=False))
        with results_of_a_device(self._device), operations, CostCounter(costs.append):
            yield

    def run_outside(
        self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_own_thread: bool = True
    ) -> Any:
        """Run an operation, and count it as a call of an operator if it is in no other one, as in scripted modules."""
        if (is_own_thread and self._is_inside) or is_free(operation):
            return operation(*args, **kwargs)
        try:
            call = self._call(function_of(operation), args, kwargs)
        except Exception:
            self.outside.add(operation.name())
            return operation(*args, **kwargs)
        result = operation(*args, **kwargs)
        call = self._with_result(call, result)
        caller = self._path if is_own_thread else getattr(self._elsewhere_paths, "innermost", "")
        self._count(call, [operation_cost(operation, args, kwargs, result)], caller)
        return result

    @property
    def work(self) -> Work:
        """The work of the run, without that of threads that began before it."""
        return Work.of([*self.costs, *self.elsewhere])

    def _observing(self, module: nn.Module, path: str, is_operator: bool) -> AbstractContextManager[None]:
        """Count the calls of a module meanwhile; of one that is no operator, note what it calls and its first sizes."""
        seen = self._off if is_operator or _asks_for_modes(module) else self._on

        def observed(forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if threading.get_ident() != self._thread:
                return self._run_elsewhere(forward, args, kwargs, path)
            before, self._path = self._path, path
            self._noted_phase()
            try:
                with seen():
                    if is_operator:
                        return self._run(module, forward, args, kwargs)
                    result = forward(*args, **kwargs)
            finally:
                self._path = before
            if path not in self.sizes:
                with self._off():
                    self.sizes[path] = sizes_of((args, kwargs)), sizes_of(result)
            return result

        return ObservedForward(module, observed).installed()

    def _run_elsewhere(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any], path: str) -> Any:
        """Call a module's ``forward`` in another thread, which may have begun before the run."""
        is_seen = any(isinstance(mode, CostCounter) for mode in _get_current_dispatch_mode_stack())
        before = getattr(self._elsewhere_paths, "innermost", "")
        self._elsewhere_paths.innermost = path
        try:
            with nullcontext() if is_seen else self.of_another_thread(began_before=True):
                return forward(*args, **kwargs)
        finally:
            self._elsewhere_paths.innermost = before

    def _finding(self, composites: Collection[str]) -> Forward:
        """Return a call of modules that observes those that the model has not registered, as in a plain list."""
        call = nn.Module.__call__

        def found(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            is_seen = self._is_inside or self._is_split or isinstance(module, torch.jit.ScriptModule)
            is_elsewhere = threading.get_ident() != self._thread
            if is_seen or is_elsewhere or isinstance(vars(module).get("forward"), ObservedForward):
                return call(module, *args, **kwargs)
            if _is_operator(module, composites):
                observing = self._observing(module, self._path, is_operator=True)
            else:
                observing = self._off() if _asks_for_modes(module) else nullcontext()
            with observing:
                return call(module, *args, **kwargs)

        return found

    def counts(self, modules: Sequence[str]) -> Iterator[OperatorCount]:
        """Yield the counts in order of first call, with indices of modules; costs are means over all calls."""
        indices = {path: index for index, path in enumerate(modules)}
        in_order = sorted((call for calls in self.calls.values() for call in calls), key=attrgetter("position"))
        reuse = reuses([call.use for call in in_order])
        for (operator, phase), calls in self.calls.items():
            cost = total([call.cost for call in calls])
            yield OperatorCount(
                operator=operator,
                occurrences=len(calls),
                flop=None if cost.flop is None else round(cost.flop / len(calls)),
                memory_bytes=round(cost.memory_bytes / len(calls)),
                outputs=self._outputs.get(operator),
                statistics=tuple(call.statistics for call in calls) if self._device != META else (),
                without_formula=cost.without_formula,
                operations=calls[0].operations,
                phase=phase,
                weight_bytes=None if operator.is_function else calls[0].weight_bytes,
                patterns=tuple(call.patterns for call in calls) if any(call.patterns for call in calls) else (),
                positions=tuple(call.position for call in calls),
                callers=tuple(indices[call.caller] for call in calls),
                reuse=tuple(reuse[call.position] for call in calls),
            )

    @contextmanager
    def _off(self) -> Iterator[None]:
        """Remove this mode, and no other, from the stack of function modes, where operators would see it."""
        if self not in _get_current_function_mode_stack():
            yield
            return
        above = []
        while (mode := _pop_mode()) is not self:
            above.append(mode)
        for mode in reversed(above):
            _push_mode(mode)
        try:
            yield
        finally:
            above = [_pop_mode() for _ in above]
            for mode in (self, *reversed(above)):
                _push_mode(mode)

    @contextmanager
    def _on(self) -> Iterator[None]:
        """Put this mode back meanwhile, if it is off and no operator runs."""
        is_needed = not (self._is_inside or self._is_split or self in _get_current_function_mode_stack())
        with self if is_needed else nullcontext():
            yield

    def _call(self, named: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        """Describe a call of a module or of a function, after which its tuple is named."""
        if isinstance(named, nn.Module):
            operator = module_tuple(named, args, kwargs)
        else:
            operator = function_tuple(named, args, kwargs, self._fingerprint)
        with _disable_current_modes(), torch.no_grad():
            blocks = self._blocks
            own = blocks.of(own_tensors(named))
            use = Use(blocks.of(distinct_tensors(args, kwargs)), own, (), (), None)
            call = _Call(operator, weight_bytes=sum(size for _, size in own), use=use)
            if self._device == META:
                return call
            statistics, patterns = input_statistics(args, kwargs), patterns_of(operator, args, kwargs)
            return replace(call, statistics=statistics, patterns=patterns)

    def _with_result(self, call: _Call, result: Any) -> _Call:
        if call.operator not in self._outputs:
            # torch's function returns the list that the operation, by whose name it is called again, does not.
            name = call.operator.short_name
            is_list_in_place = name.startswith("_foreach_") and name.endswith("_")
            self._outputs[call.operator] = plain_value(None if is_list_in_place else result, {})
        with _disable_current_modes():
            return replace(call, use=replace(call.use, written=self._blocks.written(tensors_within(result))))

    def _run(
        self, named: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function or a module's forward, and count the call unless it is inside another operator's call."""
        is_within = self._is_inside or self._is_split
        self._noted_phase()
        if not is_within and any(map(dispatches_itself, map(type, tensors_of((args, kwargs))))):
            # The operations on the parts are the operators.
            return function(*args, **kwargs)
        if not is_within and (
            function in GRADIENTS
            or _is_transformed((args, kwargs, own_tensors(named)))
            or _may_copy_its_input(named, args, kwargs)
        ):
            # Each operation is a call instead. Autograd runs those of a GPU in a thread that takes over the mode.
            self._is_split = True
            try:
                with Operations(self._run_split):
                    return function(*args, **kwargs)
            finally:
                self._is_split = False
        # torch disables autocast while a mode handles an operation, whose arguments have been cast by then.
        in_other_autocast = autocast_dtypes() != self._autocasts[self._phase]
        # A module that runs again in a backward does so under the autocast of its forward: its operations are counted.
        is_run_again = self._is_split and in_other_autocast and isinstance(named, nn.Module)
        if self._is_inside or is_run_again:
            return function(*args, **kwargs)
        try:
            call = self._call(named, args, kwargs)
        except Exception as error:
            # It is stored, because the model might catch it.
            self._bugs.append(error)
            return function(*args, **kwargs)
        if in_other_autocast and not self._is_split:
            self.in_other_autocast.append(call.operator)
        begin = len(self.costs)
        self._is_inside = True
        try:
            with self._mark(call.operator):
                result = function(*args, **kwargs)
            call = self._with_result(call, result)
            return result
        finally:
            self._is_inside = False
            owner = self._nodes.owner()
            self._nodes.note(self._path)
            if len(self.costs) > begin or not call.operator.is_function:
                self._count(call, self.costs[begin:], self._path if owner is None else owner)

    def _run_split(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._run(function_of(unwatched(operation, args)), operation, args, kwargs)

    def _count(self, call: _Call, ran: Sequence[OperationCost], caller: str) -> None:
        cost, operations = total(ran), operations_of(ran)
        # The same elementwise kernels run on all shapes, other products on each.
        code = (
            call.operator.key
            if cost.flop != 0
            else (operations, *(spec.dtype for spec in call.operator.floating_inputs))
        )
        use = call.use.of(cost.memory_bytes, code) if cost.memory_bytes else NO_USE
        # Blocks that calls without a count released, such as views, are among them.
        use = replace(use, freed=self._blocks.freed())
        call = replace(call, cost=cost, operations=operations, caller=caller, position=next(self._positions), use=use)
        self.calls.setdefault((call.operator, self._noted_phase()), []).append(call)

    def _noted_phase(self) -> Phase:
        """Return the phase of the run. Threads that it starts, and autograd's for a GPU, have none: the last noted."""
        if threading.get_ident() == self._thread and not self._is_split:
            self._phase = present_phase()
            # That in which the phase begins.
            self._autocasts.setdefault(self._phase, autocast_dtypes())
        return self._phase


ASK_FOR_MODES = (nn.TransformerEncoder.forward, nn.TransformerEncoderLayer.forward, nn.MultiheadAttention.forward)
"""Those that take another branch under a function mode, where they are not operators themselves. The operations that it
runs are the operators."""


def _asks_for_modes(module: nn.Module) -> bool:
    """Return whether a module's ``forward`` is one of ``ASK_FOR_MODES``, or calls that of its base."""
    cls: Any = type(module)
    own = cls.forward
    is_derived = any(getattr(base, "forward", None) in ASK_FOR_MODES for base in cls.__mro__)
    return own in ASK_FOR_MODES or (is_derived and "forward" in getattr(own, "__code__", own).co_names)


GRADIENTS = (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)
"""Functions that run a backward pass. They read a graph that no arguments hold, so that none runs again alone."""


NOT_COPIED = ("add", "dropout", "iadd", "isub", "relu", "sigmoid", "sub", "tanh")
"""Calls in place whose backward does not read their input. Others may copy it first, if it needs gradients."""


def _may_copy_its_input(named: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call in place may copy its input for the backward. Alone, with another input, it would not."""
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return False
    name = type(named).__name__ if isinstance(named, nn.Module) else getattr(named, "__name__", "")
    given = {**kwargs, **dict(zip(function_defaults(named), args[1:], strict=False))}
    is_asked_for = (getattr(named, "inplace", False) or given.get("inplace", False)) is True
    if not (is_asked_for or is_name_in_place(name)) or name.strip("_").lower() in NOT_COPIED:
        return False
    target = args[0] if args else kwargs.get("input")
    return isinstance(target, torch.Tensor) and target.requires_grad


def _is_transformed(arguments: Any) -> bool:
    """Return whether, inside ``torch.func.vmap`` or ``jvp``, a function runs others than its own operations."""
    if forward_ad._current_level >= 0:
        return True
    transforms = (functorch.TransformType.Vmap, functorch.TransformType.Jvp)
    levels = functorch.get_interpreter_stack() or ()
    is_inside = any(level.key() in transforms for level in levels)
    return is_inside and any(map(functorch.is_functorch_wrapped_tensor, tensors_within(arguments)))
