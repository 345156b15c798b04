"""LayerwiseEnergy around loops on a simulated GPU with declared truth, and around real ones on this CPU."""

import copy
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from simulated_energy import SimulatedSource
from simulated_machine import SIMULATED_CONDITIONS, Device, Load, SimulatedMachine, declared_row
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils.checkpoint import checkpoint

from opcost import LayerwiseEnergy, UserError
from opcost.metering.layers import BETWEEN, UNKNOWN_OWNER, KnownCost, MeteredLayerRow
from opcost.operators.counts import Case, case_columns
from opcost.operators.tuples import OperatorTuple, Phase
from opcost.power.trace import Window
from opcost.running import energy_meter, layer_loop
from opcost.running.devices import product_of
from opcost.running.layer_loop import LoopState, known_costs, measured_as
from opcost.storage.database import Database
from opcost.storage.files import user_folders
from opcost.storage.table import CsvTable
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.layer_marks import HostStopwatch, LayerMarks, ObservedBackward
from opcost.torch_backend.passes import in_phase
from opcost.torch_backend.ready_model import ObservedForward, ReadyModel
from opcost.torch_backend.switches import kept_switches, tf32_switches, torch_state
from opcost.torch_backend.training_step import as_step
from opcost.units import milli

BACKWARD_FACTOR = 2


class Work(torch.autograd.Function):
    """Runs a load on a machine in the forward, and twice as much in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Callable[[int], None]) -> Tensor:
        ctx.run = run
        run(1)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.run(BACKWARD_FACTOR)
        return gradients[0], None


class WorkTwice(Work):
    """Runs the load once in the backward, in an operation that has a backward, too."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return Work.apply(gradients[0], ctx.run), None


class Layer(nn.Module):
    """Takes the time of a load, and hands its tensor on in any form."""

    def __init__(
        self,
        machine: SimulatedMachine,
        load: Load,
        pack: Callable[[Tensor], Any] = lambda x: x,
        work: type[Work] = Work,
    ) -> None:
        super().__init__()
        self._work = work
        self.weight = nn.Parameter(torch.ones(1))
        self._run = lambda times: machine.run_load(load, times)
        self._pack = pack

    def forward(self, x: Tensor) -> Any:
        return self._pack(self._work.apply(x * self.weight, self._run))


class SimulatedStopwatch(HostStopwatch):
    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine

    def mark(self) -> float:
        return self._machine.read().monotonic_s


HOT, COOL = Load(power_w=600.0, time_s=0.010), Load(power_w=300.0, time_s=0.020)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    machine = SimulatedMachine(HOT, Device(white_noise_w=5.0))
    machine.has_pauses = True
    machine.idle(3.0)
    monkeypatch.setattr(energy_meter, "open_sources", lambda _: [SimulatedSource(machine)])
    monkeypatch.setattr(energy_meter, "SystemClock", lambda: machine)
    monkeypatch.setattr(layer_loop, "stopwatch_of", lambda _: SimulatedStopwatch(machine))
    return machine


def by_layer(layers: LayerwiseEnergy) -> dict[str, MeteredLayerRow]:
    return {row.layer: row for row in layers.result.rows}


def check_totals(layers: LayerwiseEnergy) -> None:
    """Rows add up to the meter's seconds and joules."""
    result = layers.result
    total_s = math.fsum(row.time_s or 0.0 for row in result.rows) * result.iterations
    assert total_s == pytest.approx(result.window.duration_s, rel=1e-9)
    if result.window.energy_j is not None:
        total_j = math.fsum(row.energy_j or 0.0 for row in result.rows) * result.iterations
        assert total_j == pytest.approx(result.window.energy_j, rel=1e-9)


def test_layers_have_their_declared_times_and_with_known_powers_their_energies(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(Layer(machine, HOT), Layer(machine, COOL))
    hot_j, cool_j = 0.010 * 600.0, 0.020 * 300.0
    monkeypatch.setattr(layer_loop, "known_costs", lambda *_: {2: KnownCost(0.010, hot_j), 4: KnownCost(0.020, cool_j)})
    source = SimulatedSource(machine)
    with LayerwiseEnergy(model) as layers, torch.no_grad():
        layers._loop.marks.autocasts = {(None, None)}  # type: ignore[union-attr]
        for _ in range(40):
            model(torch.ones(2))
    rows = by_layer(layers)
    assert rows["0"].forward_time_s == pytest.approx(0.010, rel=0.01)
    assert rows["1"].forward_time_s == pytest.approx(0.020, rel=0.01)
    assert rows["0"].backward_time_s is None
    window = layers.result.window
    true_j = source.gpu().true_energy_j(Window(window.begin_s, window.begin_s + window.duration_s))
    assert window.energy_j == pytest.approx(true_j, rel=0.02)
    assert rows["0"].energy_j == pytest.approx(hot_j, rel=0.03)
    assert rows["1"].energy_j == pytest.approx(cool_j, rel=0.03)
    # Time alone takes one third of 12 J for the hot layer.
    assert rows["0"].energy_by_time_j == pytest.approx(4.0, rel=0.03)
    check_totals(layers)
    assert "powers of 2 layers" in str(layers.result)
    assert repr(layers) == repr(layers.result) == str(layers.result)
    html = layers._repr_html_()
    assert html == layers.result._repr_html_()
    assert "powers of 2 layers" in html
    # The layers, and their classes.
    assert html.count("<table>") == 2
    assert f'<td data-label="mJ" class="number">{milli(rows["0"].energy_j)}' in html
    known_j = [row.energy_j for row in layers.result.rows if row.energy_j is not None]
    assert list(layers.result.to_frame()["energy_j"].dropna()) == known_j


def test_accumulated_gradients_and_what_is_between(machine: SimulatedMachine) -> None:
    model = nn.Sequential(Layer(machine, HOT), Layer(machine, COOL))
    with LayerwiseEnergy(model) as layers:
        for step in range(40):
            model(torch.ones(2)).sum().backward()
            if step % 4 == 3:
                machine.idle(0.12)
    rows = by_layer(layers)
    assert layers.result.iterations == 40
    assert (rows["0"].forward_time_s, rows["0"].backward_time_s) == pytest.approx((0.010, 0.020), rel=0.01)
    assert (rows["1"].forward_time_s, rows["1"].backward_time_s) == pytest.approx((0.020, 0.040), rel=0.01)
    # A quarter of the pauses of the optimizer.
    assert rows[BETWEEN].time_s == pytest.approx(0.03, rel=0.05)
    check_totals(layers)


def test_marked_iterations_that_took_longer_hide_no_time_between(machine: SimulatedMachine) -> None:
    model = nn.Sequential(Layer(machine, HOT))
    with LayerwiseEnergy(model) as layers, torch.no_grad():
        for iteration in range(9):
            model(torch.ones(2))
            machine.idle(0.003)
            if iteration in (1, 7):
                model[0]._run = lambda _: machine.run_load(HOT, 4)
            else:
                model[0]._run = lambda _: machine.run_load(HOT, 1)
    row = by_layer(layers)[BETWEEN]
    assert (row.time_s, row.energy_j) == (None, None)
    assert str(layers.result).count(row.energy_missing_reason or "no reason") == 1
    check_totals(layers)


def test_step_ends_an_iteration_of_several_calls(machine: SimulatedMachine) -> None:
    model = nn.Sequential(Layer(machine, HOT))
    with LayerwiseEnergy(model) as layers:
        for _ in range(30):
            (model(torch.ones(2)) + model(torch.ones(2))).sum().backward()
            layers.step()
    row = by_layer(layers)["0"]
    assert layers.result.iterations == 30
    assert row.calls == 2
    assert (row.forward_time_s, row.backward_time_s) == pytest.approx((0.020, 0.040), rel=0.01)
    check_totals(layers)


@dataclass
class Features:
    last: Any


KEPT: list[Tensor] = []

FORMS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "the newest of two outputs is unused": (lambda x: (x, x * 3), lambda found: found[0]),
    "the first of two outputs is unused": (lambda x: (x * 3, x * 2), lambda found: found[1]),
    "dataclass": (Features, lambda found: found.last),
    "dict in a dataclass": (lambda x: Features({"last": x}), lambda found: found.last["last"]),
    "iterator": (lambda x: iter([x]), next),
    "context": (KEPT.append, lambda _: KEPT.pop()),
    "view": (lambda x: x[:1], lambda found: found),
    "view of an unused base, in place": (lambda x: x[:1].mul_(2), lambda found: found),
}


@pytest.mark.parametrize("hot_is_last", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_backward_is_that_of_its_layer_in_whichever_form_it_hands_on_its_output(
    machine: SimulatedMachine, form: str, hot_is_last: bool
) -> None:
    pack, unpack = FORMS[form]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hot, self.cool = Layer(machine, HOT, pack), Layer(machine, COOL)

        def forward(self, x: Tensor) -> Any:
            return self.hot(self.cool(x)) if hot_is_last else self.cool(unpack(self.hot(x)))

    model = Model()
    with LayerwiseEnergy(model) as layers:
        for _ in range(10):
            output = model(torch.ones(2))
            (unpack(output) if hot_is_last else output).sum().backward()
    check_backwards(layers, hot=0.020, cool=0.040)
    check_totals(layers)


def check_backwards(layers: LayerwiseEnergy, **expected_s: float) -> None:
    """Check the time of each layer's backward, and that no other has any."""
    backwards_s = {row.layer: row.backward_time_s for row in layers.result.rows if row.backward_time_s}
    assert backwards_s == pytest.approx(expected_s, rel=0.01)


class Headed(nn.Module):
    """A body that is called twice, a head, and an auxiliary head whose output is an attribute."""

    def __init__(self, machine: SimulatedMachine) -> None:
        super().__init__()
        self.body, self.head, self.aux = Layer(machine, HOT), Layer(machine, COOL), Layer(machine, COOL)
        self.found = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        self.found = self.aux(x)
        return self.head(self.body(x))


def gradients_of_all(loss: Tensor, model: Headed) -> None:
    loss.backward()


def gradients_of_the_head(loss: Tensor, model: Headed) -> None:
    torch.autograd.grad(loss, model.head.weight)


def gradients_in_two_backwards(loss: Tensor, model: Headed) -> None:
    loss.backward(retain_graph=True)
    loss.backward()


@pytest.mark.parametrize(
    ("is_used", "backward", "expected_s"),
    [
        (True, gradients_of_all, {"body": 0.040, "head": 0.040, "aux": 0.040}),
        (False, gradients_of_all, {"body": 0.040, "head": 0.040}),
        (True, gradients_of_the_head, {"head": 0.040}),
        (False, gradients_in_two_backwards, {"body": 0.080, "head": 0.080}),
    ],
)
def test_an_auxiliary_head_and_a_layer_that_is_called_twice(
    machine: SimulatedMachine, is_used: bool, backward: Callable[[Tensor, Headed], None], expected_s: dict[str, float]
) -> None:
    model = Headed(machine)
    with LayerwiseEnergy(model) as layers:
        for _ in range(10):
            output = model(torch.ones(2))
            backward((output + model.found if is_used else output).sum(), model)
    check_backwards(layers, **expected_s)
    check_totals(layers)


@pytest.fixture(params=[False, True], ids=["", "backward in a thread"])
def device_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run backwards in this thread, or in one that stays and counts its own nodes, as those of a GPU do."""
    with ThreadPoolExecutor(1) as pool:
        inside = pool.submit(threading.get_ident).result()

        def run_apart(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            is_inside = threading.get_ident() == inside
            return run(*args, **kwargs) if is_inside else pool.submit(run, *args, **kwargs).result()

        observed = ObservedBackward(run_apart)
        if request.param:
            observed.install()
        yield
        observed.remove()


@pytest.mark.usefixtures("device_thread")
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_a_hidden_output(machine: SimulatedMachine, reentrant: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hot, self.cool = Layer(machine, HOT, Features), Layer(machine, COOL)

        def forward(self, x: Tensor) -> Tensor:
            return self.cool(checkpoint(lambda y: self.hot(y).last, x, use_reentrant=reentrant))

    model = Model()
    with LayerwiseEnergy(model) as layers:
        for _ in range(10):
            model(torch.ones(2, requires_grad=True)).sum().backward()
    # A forward that runs again counts as backward; the other kind runs only the operations whose tensors are missing.
    check_backwards(layers, hot=0.030 if reentrant else 0.020, cool=0.040)


class First(nn.Module):
    def forward(self, outputs: tuple[Tensor, ...]) -> Tensor:
        return outputs[0]


@pytest.mark.usefixtures("device_thread")
def test_a_penalty_on_gradients(machine: SimulatedMachine) -> None:
    model = nn.Sequential(Layer(machine, HOT, lambda x: (x * x, x), WorkTwice), First(), Layer(machine, COOL))
    with LayerwiseEnergy(model) as layers:
        for _ in range(10):
            x = torch.ones(2, requires_grad=True)
            (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            gradient.square().sum().backward()
    # Layer 0 takes 10 ms for its gradient, 20 ms for the gradient of that, and 10 ms again for what that depends on.
    check_backwards(layers, **{"0": 0.040, "2": 0.040})


def test_the_backward_of_a_call_before_the_iteration_is_of_an_unknown_layer(machine: SimulatedMachine) -> None:
    model = nn.Sequential(Layer(machine, HOT), Layer(machine, COOL))
    with LayerwiseEnergy(model) as layers:
        model(torch.ones(2))
        for _ in range(30):
            # Iterations with even numbers are marked: they have the second call and both backwards.
            (model(torch.ones(2)) + model(torch.ones(2))).sum().backward()
    rows = by_layer(layers)
    hot_s, cool_s, unknown_s = (rows[layer].backward_time_s for layer in ("0", "1", UNKNOWN_OWNER))
    assert hot_s
    assert (cool_s, unknown_s) == pytest.approx((2 * hot_s, 3 * hot_s), rel=0.01)
    assert "step()" in str(layers.result)
    check_totals(layers)


def test_the_backward_of_a_call_before_the_context_is_of_an_unknown_layer(machine: SimulatedMachine) -> None:
    model = nn.Sequential(Layer(machine, HOT), Layer(machine, COOL))
    earlier = model(torch.ones(2))
    with LayerwiseEnergy(model) as layers:
        (model(torch.ones(2)) + earlier).sum().backward()
    rows = by_layer(layers)
    hot_s, cool_s, unknown_s = (rows[layer].backward_time_s for layer in ("0", "1", UNKNOWN_OWNER))
    assert hot_s
    assert (cool_s, unknown_s) == pytest.approx((2 * hot_s, 3 * hot_s), rel=0.01)


@pytest.mark.parametrize("threads", [1, 2])
def test_layers_in_several_threads_have_their_own_backward_or_none(machine: SimulatedMachine, threads: int) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hot, self.cool = Layer(machine, HOT), Layer(machine, COOL)

        def forward(self, x: Tensor) -> Any:
            for layer, is_apart in ((self.hot, True), (self.cool, threads == 2)):
                # A new thread counts its nodes from 0 on.
                with ThreadPoolExecutor(1) as pool:
                    x = pool.submit(layer, x).result() if is_apart else layer(x)
            return x

    model = Model()
    with LayerwiseEnergy(model) as layers:
        for _ in range(10):
            model(torch.ones(2)).sum().backward()
    expected_s = {"hot": 0.020, "cool": 0.040} if threads == 1 else {UNKNOWN_OWNER: 0.060}
    check_backwards(layers, **expected_s)
    check_totals(layers)


def test_two_models_whose_iterations_overlap(machine: SimulatedMachine) -> None:
    engine = Variable._execution_engine
    first, second = (nn.Sequential(Layer(machine, load, Features)) for load in (HOT, COOL))
    with LayerwiseEnergy(first) as of_first, LayerwiseEnergy(second) as of_second:
        for _ in range(10):
            (second(first(torch.ones(2)).last).last).sum().backward()
    check_backwards(of_first, **{"0": 0.020})
    check_backwards(of_second, **{"0": 0.040})
    assert Variable._execution_engine is engine


def test_a_model_is_as_before_also_after_an_exception() -> None:
    torch.manual_seed(0)
    other = torchvision.models.resnet18()
    inputs = torch.randn(2, 3, 32, 32)

    def train(one: nn.Module, fail_at: int) -> Tensor:
        optimizer = torch.optim.SGD(one.parameters(), 0.01)
        for number in range(5):
            optimizer.zero_grad()
            output = one(inputs)
            if number == fail_at:
                raise ValueError("the user's")
            output.square().mean().backward()
            optimizer.step()
        return torch.cat([weight.detach().flatten() for weight in one.parameters()])

    for fail_at in (0, 2, 4):
        broken = copy.deepcopy(other)
        attributes = [dict(vars(module)) for module in broken.modules()]
        with pytest.raises(ValueError, match="the user's"), LayerwiseEnergy(broken):
            train(broken, fail_at)
        assert [vars(module).keys() for module in broken.modules()] == [one.keys() for one in attributes]
    model = copy.deepcopy(other)
    before = [dict(vars(module)) for module in model.modules()]
    with LayerwiseEnergy(model) as layers:
        weights = train(model, -1)
    assert [dict(vars(module)) for module in model.modules()] == before
    assert torch.equal(weights, train(other, -1))
    check_totals(layers)
    assert layers.result.uncalled == ()


def test_a_forward_that_the_loop_replaces_stays_and_runs_each_time() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    forward, calls = model[0].forward, 0

    def counted(x: Tensor) -> Any:
        nonlocal calls
        calls += 1
        return forward(x)

    with LayerwiseEnergy(model) as layers:
        for number in range(30):
            if number == 4:
                model[0].forward = counted
            model(torch.randn(4, 8))
    assert calls == 26
    assert vars(model[0])["forward"] is counted
    assert "forward" not in vars(model[1])
    check_totals(layers)


def test_after_the_end_nothing_is_counted_any_more() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with LayerwiseEnergy(model) as layers:
        # As those do that wrap a model for autocast.
        model.forward = partial(model.forward)  # type: ignore[method-assign]
        model(torch.randn(4, 8))
    for _ in range(3):
        model(torch.randn(4, 8))
    assert not any("forward" in vars(module) for module in list(model.modules())[1:])
    with pytest.raises(UserError, match="outside of its context"):
        layers.step()
    assert layers.result.iterations == 1


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9")
@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_newer_switches_of_precision_are_read(precision: str) -> None:
    model = nn.Linear(8, 8)
    with kept_switches():
        torch.backends.cuda.matmul.fp32_precision = precision
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        with LayerwiseEnergy(model) as layers:
            model(torch.randn(4, 8))
        check_totals(layers)
        assert tf32_switches() == (precision == "tf32", False)
        assert torch_state("cpu")["matmul_tf32"] == (precision == "tf32")


def test_autocast_with_a_scaler_and_a_model_that_is_never_called() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu")
    with LayerwiseEnergy(model) as layers:
        for _ in range(6):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(4, 8)).float().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert {row.layer for row in layers.result.rows} >= {"0", "1", "2", BETWEEN}
    check_totals(layers)
    with LayerwiseEnergy(model) as layers:
        pass
    with pytest.raises(UserError, match="no call of the model"):
        _ = layers.result


def test_one_iteration_is_enough_and_its_file_has_all_rows(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with LayerwiseEnergy(model) as layers:
        model(torch.randn(4, 8))
        with pytest.raises(UserError, match="before the end"):
            _ = layers.result
        assert repr(layers) == "<LayerwiseEnergy: no result>"
        assert "no result" in layers._repr_html_()
    result = layers.result
    assert (result.iterations, result.marked) == (1, 1)
    result.to_csv(tmp_path / "layers.csv")
    assert CsvTable(tmp_path / "layers.csv", MeteredLayerRow).rows() == list(result.rows)
    assert BETWEEN in str(result)
    if result.window.energy_j is None:
        assert all(row.energy_missing_reason for row in result.rows)
    with pytest.raises(UserError, match="cannot be written"):
        result.to_csv(tmp_path)


def test_what_cannot_be_metered_is_refused_at_once() -> None:
    for wrong, words in (
        (torch.compile(nn.Linear(2, 2)), "compiled"),
        (nn.Linear(2, 2, device="meta"), "only cpu and cuda"),
        (lambda x: x, "not a torch.nn.Module"),
    ):
        with pytest.raises(UserError, match=words), LayerwiseEnergy(wrong):  # type: ignore[arg-type]
            pass
    model = nn.Sequential(nn.Linear(2, 2))
    with LayerwiseEnergy(model):
        model(torch.ones(1, 2))
        with pytest.raises(UserError, match="metered already"):
            LayerwiseEnergy(nn.Sequential(model))
    assert "forward" not in vars(model)
    with pytest.raises(UserError, match=r"outside of its context"):
        LayerwiseEnergy(nn.Linear(2, 2)).step()


def calls_of(model: nn.Module, inputs: Tensor) -> dict[int, dict[OperatorTuple, int]]:
    """Return the operator tuples of a model's layers in one iteration."""
    marks = LayerMarks(model, HostStopwatch())
    root = ObservedForward(model, marks.around_model)
    root.install()
    marks.open(marks._stopwatch.mark(), describes=True)
    model(inputs)
    root.remove()
    marks.close(marks._stopwatch.mark())
    return marks.calls_of_tuples


def test_the_shipped_rows_know_the_layers_of_a_shipped_model() -> None:
    with torch.device("meta"):
        model, inputs = torchvision.models.resnet18().eval(), torch.randn(32, 3, 224, 224)
    calls = calls_of(model, inputs)
    database = Database.of(user_folders())
    h200 = LoopState("cuda", "NVIDIA H200", "torch-default", False, True)
    costs = known_costs(calls, h200, database)
    assert costs.keys() == calls.keys()
    powers_w = [cost.power_w for cost in costs.values()]
    assert 150 < min(powers_w) < max(powers_w) < 750
    assert max(powers_w) > 1.2 * min(powers_w)
    assert not known_costs(calls, LoopState("cuda", "NVIDIA H200", "fp16", False, True), database)
    assert not known_costs(calls, LoopState("cpu", "no such CPU", "torch-default", False, True), database)
    in_training = known_costs(calls_of(model.train(), inputs), h200, database)
    assert 0 < len(in_training) < len(costs)


def test_only_tuples_with_the_same_kernels_in_training_have_powers() -> None:
    relu, norm = (OperatorTuple(f"torch.nn.{name}", mode="train") for name in ("ReLU", "BatchNorm2d"))
    in_eval = [(OperatorTuple(f"torch.nn.{name}"), Phase.INFERENCE) for name in ("ReLU", "BatchNorm2d")]
    assert measured_as(relu) == [(relu, Phase.FORWARD), in_eval[0]]
    assert measured_as(norm) == [(norm, Phase.FORWARD)]
    assert measured_as(OperatorTuple("torch.nn.BatchNorm2d")) == [in_eval[1]]


def test_rows_of_a_training_step_know_the_forward_and_the_backward_of_a_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(8, 16)
    with in_phase(Phase.STEP):
        step = as_step(ReadyModel.of(model, inputs), lambda outputs: outputs.square().mean(), torch.optim.SGD)
        counts = capture(run_first(step), OperatorTuple("net"))
    conditions = replace(SIMULATED_CONDITIONS, device_type="cpu", device_product=product_of("cpu"), execution="eager")
    powers_w = {Phase.FORWARD: 60.0, Phase.BACKWARD: 90.0}
    database = Database(tmp_path)
    for count in counts.counts:
        if count.phase in powers_w:
            case = Case(count.operator, phase=count.phase)
            row = declared_row(
                case.operator, conditions, phase=case.phase, time_s=1e-5, energy_j=1e-5 * powers_w[case.phase]
            )
            database.operator_measurements.append(replace(row, **case_columns(case)))
    with LayerwiseEnergy(model, database=tmp_path) as layers:
        for _ in range(4):
            model.zero_grad()
            model(inputs).square().mean().backward()
    rows = by_layer(layers)
    for name in "0123":
        assert rows[name].database_power_w == pytest.approx(60.0)
        assert rows[name].database_backward_power_w == pytest.approx(90.0), name
    # Each operation of a layer's backward is there.
    owned = dict.fromkeys("0123", 0)
    for count in counts.counts:
        for caller in count.callers if count.phase is Phase.BACKWARD and count.computes else ():
            path = counts.modules[caller].path.removeprefix("model.")
            owned[path] = owned.get(path, 0) + 1
    found = {name: (rows[name].database_backward_energy_j or 0) / (90.0 * 1e-5) for name in "0123"}
    assert found == {name: pytest.approx(owned[name]) for name in "0123"}
    assert "of 4 in the backward" in str(layers.result) or layers.result.window.energy_j is None
