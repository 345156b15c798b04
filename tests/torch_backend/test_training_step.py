"""A training step is counted call by call: each has a phase and an owner, and each tuple runs again alone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from opcost.errors import CannotBuildError
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, Phase
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, repeatable, run_first
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, Operations, operations_of
from opcost.torch_backend.passes import Context, in_phase
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast, autocast_dtypes
from opcost.torch_backend.training_step import as_step, calls_of, saved_bytes
from opcost.torch_backend.workload import EagerWorkload

BATCH, CLASSES = 2, 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + nn.functional.scaled_dot_product_attention(q, k, v)


def convolutions() -> nn.Module:
    """Groups, statistics, activations in place whose backward reads their input, and a residual branch."""
    inner = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish(True))

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu_(x + self.inner(x))

    first = nn.Conv2d(3, 8, 3), nn.SiLU(inplace=True), Residual(), nn.Dropout(0.5)
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))


def transformer() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 8), Attention(), nn.LayerNorm(8), nn.Flatten(), nn.Linear(32, CLASSES))


class Again(nn.Module):
    """Parts that run again in the backward, activations in place of other kinds, and a product in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(3, 8), nn.Linear(8, CLASSES), nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        again = checkpoint(lambda one: torch.tanh(self.first(one)), x.sum(1), use_reentrant=False)
        return self.second(nn.functional.relu6(again * 2, inplace=True).mul_(self.scale))


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(3, 8), nn.Linear(8, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(BATCH, 8)
            for part in x.unbind(1):
                state = self.cell(part, state)
            return self.head(state)

    return Last()


class Doubled(torch.autograd.Function):
    """A function of a user that returns the gradient that it was given, and reads it afterwards."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return value + other

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return gradient + torch.ones_like(gradient), gradient * 2


class Shared(nn.Module):
    """Gradients that several calls read: both terms of an addition get the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(3, CLASSES), nn.Linear(3, CLASSES)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = (part(x) for part in self.parts)
        return Doubled.apply(first.sin() * second.cos() + (first + second), first)  # type: ignore[no-untyped-call]


MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "convolutions": (convolutions, torch.randn(BATCH, 3, 8, 8)),
    "transformer": (transformer, torch.randint(0, 20, (BATCH, 4))),
    "recurrent": (recurrent, torch.randn(BATCH, 4, 3)),
    "again": (Again, torch.randn(BATCH, 4, 3)),
    "shared": (Shared, torch.randn(BATCH, 3)),
}
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda own: torch.optim.SGD(own, 1e-3, momentum=0.9, foreach=True),
    "adamw": lambda own: torch.optim.AdamW(own, 1e-3, foreach=True),
    "single": lambda own: torch.optim.SGD(own, 1e-3, foreach=False),
}
IN_LOOPS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    **OPTIMIZERS,
    "nesterov": lambda own: torch.optim.SGD(own, 0.1, momentum=0.9, nesterov=True, foreach=True),
    "decay": lambda own: torch.optim.SGD(own, 0.1, momentum=0.9, weight_decay=0.1, foreach=True),
    "fused": lambda own: torch.optim.SGD(own, 0.1, momentum=0.9, fused=True),
    "adam": lambda own: torch.optim.Adam(own, 0.1, weight_decay=0.1, amsgrad=True, foreach=True),
    "fused adamw": lambda own: torch.optim.AdamW(own, 0.1, fused=True),
    "tensor": lambda own: torch.optim.AdamW(own, torch.tensor(0.1), foreach=False),
}


def loss(outputs: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, torch.arange(BATCH))


AMP = partial(autocast, "amp-bf16", "cpu")


def step_of(
    model: nn.Module, inputs: torch.Tensor, optimizer: str = "sgd", context: Context = nullcontext
) -> ReadyModel:
    return run_first(as_step(ReadyModel(model.train(), (inputs,)), loss, IN_LOOPS[optimizer], context))


def counts_of(ready: ReadyModel) -> OperatorCounts:
    return capture(ready, OperatorTuple("step", mode="train"))


def convolution_step() -> ReadyModel:
    make, inputs = MODELS["convolutions"]
    return step_of(make(), inputs)


def of_phase(counts: OperatorCounts, phase: Phase) -> list[OperatorCount]:
    return [count for count in counts.counts if count.phase is phase]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_the_operations_of_a_step_are_those_of_its_tuples_alone(name: str, optimizer: str) -> None:
    make, inputs = MODELS[name]
    ready = step_of(make(), inputs, optimizer)
    costs: list[OperationCost] = []
    with CostCounter(costs.append):
        ready.run()
    counts = counts_of(ready)
    counted = Counter[str]()
    for count in counts.counts:
        counted.update({operation: number * count.occurrences for operation, number in count.operations})
        assert difference(count, "cpu") is None, count.operator
    assert counted == Counter(dict(operations_of(costs)))
    assert counts.outside == ()
    assert counts.missing_ratio is None
    assert counts.flop_missing_reason is None


def test_each_call_has_its_phase_and_the_module_whose_forward_it_belongs_to() -> None:
    counts = counts_of(convolution_step())
    names = {phase: {count.operator.short_name for count in of_phase(counts, phase)} for phase in Phase}
    assert {"Conv2d", "BatchNorm2d", "Linear", "cross_entropy", "Dropout"} <= names[Phase.FORWARD]
    assert {"convolution_backward", "native_batch_norm_backward", "hardswish_backward"} <= names[Phase.BACKWARD]
    assert names[Phase.OPTIMIZER] == {"_foreach_mul_", "_foreach_add_"}
    assert not names[Phase.INFERENCE]
    paths = [module.path for module in counts.modules]
    owners: dict[str, set[str]] = defaultdict(set)
    for count in of_phase(counts, Phase.BACKWARD):
        owners[count.operator.short_name].update(paths[index] for index in count.callers)
    assert owners["hardswish_backward"] == {"model.2.inner.2"}
    assert owners["native_batch_norm_backward"] == {"model.2.inner.1"}
    assert owners["convolution_backward"] == {"model.0", "model.2.inner.0"}
    assert owners["threshold_backward"] == {"model.2"}
    # Of the loss.
    assert owners["nll_loss_backward"] == {""}
    # The gradients of both branches are added where the last of them is made.
    assert owners["add_"] == {"model.2.inner.0"}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_added_in_place_where_autograd_does_so_unwatched(name: str) -> None:
    make, inputs = MODELS[name]
    model = make()
    counts = counts_of(step_of(model, inputs))
    found = Counter[str]()
    for count in of_phase(counts, Phase.BACKWARD):
        found[count.operator.short_name] += count.occurrences
    model.zero_grad()
    result = loss(model(inputs))
    with profile() as profiler:
        result.backward()
    expected = Counter(one.key.removeprefix("aten::") for one in profiler.events())
    assert [found[kind] for kind in ("add", "add_")] == [expected[kind] for kind in ("add", "add_")]
    assert found["add_"] > 0 or name == "again"


@pytest.mark.parametrize("name", MODELS)
def test_a_watched_backward_has_the_gradients_of_an_unwatched_one(name: str) -> None:
    make, inputs = MODELS[name]
    model = make().eval()
    found = []
    for context in (nullcontext(), CostCounter(lambda _: None)):
        model.zero_grad()
        result = loss(model(inputs))
        with context:
            result.backward()
        found.append([one.grad for one in model.parameters()])
    for unwatched, watched in zip(*found, strict=True):
        torch.testing.assert_close(watched, unwatched)


def test_in_place_a_copy_for_the_backward_is_a_call_of_its_own() -> None:
    counts = counts_of(convolution_step())
    forward = {count.operator.short_name: count.occurrences for count in of_phase(counts, Phase.FORWARD)}
    assert (forward["clone"], forward["silu_"], forward["hardswish_"]) == (2, 1, 1)
    assert "SiLU" not in forward


def test_a_backward_has_twice_the_products_of_its_forward_but_for_the_gradient_of_the_images() -> None:
    counts = counts_of(convolution_step())
    flop = {phase: sum(one.occurrences * (one.flop or 0) for one in of_phase(counts, phase)) for phase in Phase}
    images = 2 * BATCH * 6 * 6 * 8 * 3 * 9
    assert flop[Phase.BACKWARD] == 2 * flop[Phase.FORWARD] - images
    assert flop[Phase.OPTIMIZER] == 0


def test_frozen_weights_have_no_gradient_and_no_update() -> None:
    make, inputs = MODELS["convolutions"]
    model = make()
    model[0].requires_grad_(False)
    counts = counts_of(step_of(model, inputs))
    (update,) = (one for one in of_phase(counts, Phase.OPTIMIZER) if one.operator.short_name == "_foreach_mul_")
    assert len(update.operator.floating_inputs) == len(list(model.parameters())) - 2
    owners = {counts.modules[one].path for count in of_phase(counts, Phase.BACKWARD) for one in count.callers}
    assert "model.0" not in owners


LOOPED = 10


def bits_of(tensors: Iterable[torch.Tensor]) -> list[list[int]]:
    return [one.detach().flatten().view(torch.int32).tolist() for one in tensors]


@pytest.mark.parametrize("optimizer", IN_LOOPS)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_in_a_loop_does_the_work_of_the_same_step_each_time(name: str, optimizer: str) -> None:
    make, inputs = MODELS[name]
    model = make()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    ready = step_of(model, inputs, optimizer)
    before, counted = bits_of(model.parameters()), counts_of(ready).counts
    # Counting runs steps as they are.
    assert bits_of(model.parameters()) != before
    before = bits_of(model.parameters())
    calls = calls_of(ready, Phase.STEP)
    costs: list[OperationCost] = []
    losses = []
    for _ in range(LOOPED):
        with CostCounter(costs.append):
            result = calls.cycle()
        assert isinstance(result, torch.Tensor)
        losses.append(result.item())
    assert bits_of(model.parameters()) == before
    assert losses == pytest.approx(LOOPED * losses[:1], rel=1e-6)
    expected = Counter[str]()
    for count in counted:
        expected.update({operation: number * count.occurrences for operation, number in count.operations})
    assert Counter(dict(operations_of(costs))) == Counter({one: LOOPED * number for one, number in expected.items()})
    assert calls.overhead is None


def test_a_step_that_is_counted_after_its_loop_has_the_rate_of_its_user() -> None:
    ready = convolution_step()
    calls_of(ready, Phase.STEP).cycle()
    tuples = {str(count.operator) for count in of_phase(counts_of(ready), Phase.OPTIMIZER)}
    assert sum(text.endswith("alpha=-0.001)") for text in tuples) == 1


@pytest.mark.parametrize("optimizer", IN_LOOPS)
def test_an_optimiser_in_a_loop_finds_the_same_gradients_each_time(optimizer: str) -> None:
    make, inputs = MODELS["again"]
    model = make()
    ready = step_of(model, inputs, optimizer)
    calls = calls_of(ready, Phase.OPTIMIZER)
    before = bits_of(model.parameters())
    ends = []
    for _ in range(LOOPED):
        calls.cycle()
        if calls.overhead is not None:
            calls.overhead()
        ends.append(bits_of(one.grad for one in model.parameters() if one.grad is not None))
    assert all(end == ends[0] for end in ends)
    assert bits_of(model.parameters()) == before
    # Of these, only Nesterov's momentum writes gradients.
    assert (calls.overhead is None) == (optimizer != "nesterov")


def test_a_loss_that_is_no_number_is_refused_in_its_first_step_and_before_its_loop() -> None:
    class Root(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.tensor([value]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.value).sqrt().sum()

    def step(value: float) -> ReadyModel:
        return as_step(ReadyModel(Root(value), (torch.ones(2),)), lambda own: own, OPTIMIZERS["single"])

    with pytest.raises(CannotBuildError, match="the loss of its first step is nan"):
        run_first(step(-1.0))
    # Its gradient is infinite.
    for phase in Phase.STEP, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER:
        with pytest.raises(CannotBuildError, match="the loss of its next step is nan"):
            calls_of(step(0.0), phase)
    # Shapes have no loss.
    with torch.device("meta"):
        shapes = step(-1.0)
    run_first(shapes)


def test_the_check_of_a_loss_is_no_operation_of_the_step() -> None:
    make, inputs = MODELS["transformer"]
    ready = as_step(ReadyModel(make(), (inputs,)), loss, OPTIMIZERS["single"])
    first, again = list[OperationCost](), list[OperationCost]()
    for costs in first, again:
        with CostCounter(costs.append):
            ready.run()
    assert operations_of(first) == operations_of(again)


# Under autocast


@pytest.mark.parametrize("name", MODELS)
def test_under_autocast_the_operations_of_a_step_are_those_of_its_tuples_alone(name: str) -> None:
    make, inputs = MODELS[name]
    ready = step_of(make(), inputs, context=AMP)
    costs: list[OperationCost] = []
    with CostCounter(costs.append):
        ready.run()
    counts, counted, different = counts_of(ready), Counter[str](), dict[str, str]()
    for count in counts.counts:
        counted.update({operation: number * count.occurrences for operation, number in count.operations})
        found = difference(count, "cpu", AMP)
        if found is not None:
            different[count.operator.short_name] = found.text
    assert counts.outside == ()
    assert counts.missing_ratio is None
    further = counted - Counter(dict(operations_of(costs)))
    if name == "recurrent":
        # The step casts the cell's weights once, in the first of four calls. Alone each call casts them.
        assert {one: text.partition(", not ")[1] for one, text in different.items()} == {"GRUCell": ", not "}
        assert further == Counter({"_to_copy": 3 * 4})
    else:
        assert not different
        assert counted == Counter(dict(operations_of(costs)))


@pytest.mark.parametrize("name", MODELS)
def test_under_autocast_gradients_are_those_of_a_plain_step(name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    step = as_step(ReadyModel(model, (inputs,)), loss, OPTIMIZERS["single"], AMP)
    found = []
    for plain in (True, False):
        model.zero_grad()
        torch.manual_seed(0)
        if plain:
            with torch.autocast("cpu", torch.bfloat16):
                result = loss(model(inputs))
            result.backward()
        else:
            step.model.run_backward(inputs)
        found.append([one.grad for one in model.parameters()])
    for expected, own in zip(*found, strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=0)


def casts_by_weight(model: nn.Module, run: Callable[[], object]) -> Counter[str]:
    """Return how often each weight is cast while something runs."""
    names = {one.data_ptr(): name for name, one in model.named_parameters()}
    casts = Counter[str]()

    def noted(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if operation is torch.ops.aten._to_copy.default and args[0].data_ptr() in names:
            casts[names[args[0].data_ptr()]] += 1
        return operation(*args, **kwargs)

    with Operations(noted):
        run()
    return casts


@pytest.mark.parametrize("phase", [Phase.STEP, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER])
def test_each_step_of_a_loop_casts_each_weight_once(phase: Phase) -> None:
    make, inputs = MODELS["recurrent"]
    with in_phase(phase):
        ready = step_of(make(), inputs, context=AMP)
        workload = EagerWorkload(calls_of(ready, phase), "cpu")
        weights = 0 if phase is Phase.OPTIMIZER else 1
        expected = Counter({f"model.{name}": weights * 3 for name, _ in ready.model.model.named_parameters()})
        assert casts_by_weight(ready.model, lambda: workload.run(3)) == +expected
        # No cast is kept from the loop before.
        assert casts_by_weight(ready.model, lambda: workload.run(3)) == +expected


def test_under_autocast_each_phase_runs_as_in_a_plain_step() -> None:
    seen: dict[str, set[tuple[torch.dtype | None, ...]]] = defaultdict(set)

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen["forward"].add(autocast_dtypes())
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            seen["backward"].add(autocast_dtypes())
            return gradient

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Noting.apply(self.layer(x))

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            seen["optimizer"].add(autocast_dtypes())
            return super().step(closure)

    def noted_loss(outputs: Any) -> torch.Tensor:
        seen["loss"].add(autocast_dtypes())
        return loss(outputs)

    given = ReadyModel(Net(), (torch.randn(BATCH, 3),))
    ready = run_first(as_step(given, noted_loss, lambda own: Optimizer(own, 1e-3), AMP))
    counts_of(ready)
    for phase in Phase.STEP, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER:
        with in_phase(phase):
            again = repeatable(run_first(ready, AMP), AMP)
            EagerWorkload(calls_of(again, phase), "cpu").run(2)
    on, off = {(torch.bfloat16, None)}, {(None, None)}
    assert seen == {"forward": on, "loss": on, "backward": off, "optimizer": off}


def test_a_part_that_switches_autocast_itself_is_refused_in_a_step_too() -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x).float()
            with torch.autocast("cpu", enabled=False):
                return self.second(x)

    ready = step_of(Part(), torch.randn(BATCH, 3), context=AMP)
    with pytest.raises(CannotBuildError, match="switches autocast itself, for torch.nn.Linear"):
        counts_of(ready)


def test_each_module_has_the_memory_that_it_saves_for_the_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, CLASSES))
    inputs = torch.randn(BATCH, 3)
    counts = counts_of(step_of(model, inputs))
    saved = {module.path: module.saved_bytes for module in counts.modules}
    # A ReLU keeps its result, which is the input of what follows; a GELU its input; the last product the GELU's result.
    assert saved == {
        "": saved[""],
        "model": 0,
        "model.0": 0,
        "model.1": 4 * BATCH * 8,
        "model.2": 0,
        "model.3": 4 * BATCH * 16,
        "model.4": 4 * BATCH * 16,
    }
    assert saved[""] >= 4 * BATCH * CLASSES
    inference = capture(run_first(ReadyModel(model.eval(), (inputs,))), OperatorTuple("model"))
    assert {module.saved_bytes for module in inference.modules} == {None}


def test_what_parts_of_an_operator_save_is_the_operators() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    ready = step_of(nn.Sequential(layer, nn.Flatten(), nn.Linear(32, CLASSES)), torch.randn(BATCH, 4, 8))
    modules = {module.path: module.saved_bytes for module in counts_of(ready).modules}
    parts = saved_bytes(ready)
    assert "model.0.linear1" in parts.keys() - modules.keys()
    assert modules["model.0"] == sum(size for path, size in parts.items() if path.startswith("model.0"))
    assert sum(filter(None, modules.values())) == sum(parts.values())


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_changes_no_step(name: str) -> None:
    make, inputs = MODELS[name]
    ready = step_of(make(), inputs)
    before = saved_bytes(ready)
    ready.run()
    assert saved_bytes(ready) == before
    assert sum(before.values()) > 0


def test_a_scripted_part_saves_its_memory_in_the_module_around_it() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 8), nn.ReLU()))
    model = nn.Sequential(scripted, nn.Linear(8, CLASSES))
    counts = counts_of(step_of(model, torch.randn(BATCH, 3)))
    saved = {module.path: module.saved_bytes for module in counts.modules}
    assert (saved["model"], saved["model.1"]) == (4 * BATCH * 8, 0)


def test_an_optimiser_of_sparse_gradients_alone_can_be_measured() -> None:
    model = nn.Sequential(nn.Embedding(20, CLASSES, sparse=True), nn.Flatten(0, 1))
    ready = as_step(
        ReadyModel(model, (torch.zeros(BATCH, 1, dtype=torch.int64),)), loss, lambda own: torch.optim.SGD(own, 0.1)
    )
    assert calls_of(run_first(ready), Phase.OPTIMIZER).overhead is None
