"""On a real NVIDIA GPU: its facts, its meter, its conditions, and block 2 from end to end."""

import gc
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from faulty_campaign import children
from simulated_apparatus import RecordedProgress
from torch.profiler import ProfilerActivity, profile
from torchvision.models import get_model

from opcost import EnergyMeter
from opcost.__main__ import main
from opcost.columns import values_of
from opcost.comparing.comparison import RemarkKind
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import ADDED_FIELDS, STATE, Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.instruments import Instruments, ProcessWatch
from opcost.measuring.procedure import measure, measure_beside
from opcost.measuring.protocol import GPU_WARM_UP_S, MeasurementProtocol, protocol_for
from opcost.measuring.record import Measurement, does_other_work, may_be_throttled
from opcost.measuring.setting import USUAL, Setting
from opcost.measuring.workload import Call, Calls, Workload
from opcost.meters.gpu_meters import TickFinder
from opcost.meters.gpus import gpu_facts
from opcost.meters.host import SystemClock
from opcost.meters.nvidia_smi import AVERAGE, INSTANT
from opcost.meters.nvml import COUNTER, SAMPLES, Nvidia
from opcost.meters.opening import no_meters
from opcost.operators.counts import Case, OperatorCounts
from opcost.operators.input_roles import ATTENTION_BACKWARD
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.values import ZEROS_DATA
from opcost.power.ports import DeviceFacts
from opcost.running.apparatus import Apparatus, Workloads, open_apparatus
from opcost.running.bench import open_child_bench
from opcost.running.qualification import qualified
from opcost.running.request import RunRequest
from opcost.stages.verify import compare_kernels
from opcost.storage.configs import ModelConfig, ModelFolders, load_config, model_tuple
from opcost.storage.database import Database
from opcost.torch_backend.alone import difference, replay_device
from opcost.torch_backend.call_states import eviction
from opcost.torch_backend.capture import capture, run_first, steady
from opcost.torch_backend.cost_counter import CostCounter, OperationCost
from opcost.torch_backend.cuda_graph import PLACEMENTS, UntracedGap, capture_calls, untraced_gap
from opcost.torch_backend.probes import with_memory_peak
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import switched, torch_state
from opcost.torch_backend.workload import (
    BackgroundLoad,
    EagerWorkload,
    as_graph,
    beside,
    operator_workload,
)
from opcost.units import short_uuid
from tests.small_model import SmallModel

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[1]
GPU = "cuda:0"
ONE_SECOND = MeasurementProtocol(warm_up_s=GPU_WARM_UP_S, loop_s=1.0)
HALF_A_SECOND = MeasurementProtocol(warm_up_s=0.2, loop_s=0.5)
MATRIX_WIDTH = 4096


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return Database(tmp_path_factory.mktemp("database"))


@pytest.fixture(scope="module")
def qualified_database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """A database that knows the card's meters: to find out takes half a minute."""
    database = Database(tmp_path_factory.mktemp("qualified"))
    with qualified(open_apparatus, GPU, database, True):
        return database


@pytest.fixture
def apparatus(database: Database) -> Iterator[Apparatus]:
    with open_apparatus(GPU, database) as opened:
        yield opened


@pytest.fixture(scope="module")
def product(database: Database) -> Measurement:
    """One second of matrix products."""
    with open_apparatus(GPU, database) as opened:
        return measure(matrix_product(), opened.instruments("matrix_product"), ONE_SECOND)


def matrix_product() -> EagerWorkload:
    factor = torch.randn(MATRIX_WIDTH, MATRIX_WIDTH, device=GPU)
    return EagerWorkload(Calls(lambda: factor @ factor), GPU)


def facts() -> DeviceFacts:
    return gpu_facts(f"GPU-{torch.cuda.get_device_properties(GPU).uuid}")


def running_nvidia_smi() -> set[int]:
    """The ids of this process's children that are nvidia-smi."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children()}
    return {pid for pid, command in commands.items() if b"nvidia-smi" in command}


# Facts and conditions


def test_nvidia_smi_reports_what_torch_sees() -> None:
    properties = torch.cuda.get_device_properties(GPU)
    reported = facts()
    assert reported.uuid == f"GPU-{properties.uuid}"
    assert reported.product == properties.name
    assert reported.memory_bytes == pytest.approx(properties.total_memory, rel=0.05)
    assert reported.driver_version[0].isdigit()
    assert reported.power_limit_w is None or 20 < reported.power_limit_w < 2000


def test_a_gpu_is_kept_at_work_and_watched(apparatus: Apparatus) -> None:
    """In this order: it is at work again as soon as a loop has ended."""
    assert [type(observer) for observer in apparatus.observers] == [BackgroundLoad, ProcessWatch]


def test_conditions_and_circumstances_of_a_gpu_are_complete_and_each_precision_has_its_own(
    apparatus: Apparatus,
) -> None:
    conditions = apparatus.conditions(USUAL)
    unknown = {field.name for field in fields(Conditions) if getattr(conditions, field.name) is None}
    # Those of torch's defaults are empty.
    assert ADDED_FIELDS | {"cpu_threads"} <= unknown <= ADDED_FIELDS | {"cpu_threads", "device_power_limit_w"}
    assert (conditions.device_type, conditions.device_product) == ("cuda", facts().product)
    assert conditions.key == apparatus.conditions(USUAL).key
    precisions = [apparatus.conditions(Setting(name)) for name in ("torch-default", "fp32", "tf32")]
    switches = [(one.matmul_tf32, one.cudnn_tf32) for one in precisions]
    assert switches == [(False, True), (False, False), (True, True)]
    assert len({one.key for one in precisions}) == 3
    circumstances = apparatus.circumstances(ONE_SECOND)
    assert circumstances.device_uuid == short_uuid(facts().uuid)
    assert (circumstances.warm_up_s, circumstances.loop_s) == (GPU_WARM_UP_S, 1.0)
    assert protocol_for(True, 1.0) == ONE_SECOND


def test_the_gpu_is_what_is_taken_unasked_and_one_that_is_not_there_is_a_users_error(database: Database) -> None:
    with open_apparatus(None, database, False) as unasked:
        assert (unasked.device, unasked.is_gpu) == (GPU, True)
    with pytest.raises(UserError, match="torch sees"), open_apparatus("cuda:99", database, False):
        pass


# A measurement


def test_a_matrix_product_has_time_power_energy_errors_and_a_log(product: Measurement, database: Database) -> None:
    assert product.energy_missing_reason is None
    assert 100 < product.power_w < 750
    assert product.energy_j == pytest.approx(product.power_w * product.time_s)
    assert product.power_readings >= 5
    assert product.iterations * product.time_s == pytest.approx(product.loop_time_s, rel=0.01)
    assert product.loop_time_s >= 1.0
    assert 0 < product.power_standard_error_w < 0.05 * product.power_w
    assert 0 < product.time_standard_error_s < 0.05 * product.time_s
    assert product.meter in (SAMPLES, COUNTER, INSTANT, AVERAGE)
    # A loop of a second holds ten values of nvidia-smi: the check, where NVML keeps samples.
    assert product.meter != SAMPLES or product.check_power_w == pytest.approx(product.power_w, rel=0.02)
    assert 15 < product.temperature_c < 100
    assert 0.2e9 < product.sm_clock_hz < 4e9
    assert 0 <= product.power_capped_ratio <= 1
    assert product.power_log == "matrix_product.csv"
    header, *lines = (database.power_logs / product.power_log).read_text().splitlines()
    assert header.startswith("timestamp")
    # 3 s of a row every 20 ms, with much room for a slow nvidia-smi.
    assert len(lines) > 30


def test_one_nvidia_smi_runs_and_ends_with_the_apparatus(tmp_path: Path) -> None:
    before = running_nvidia_smi()
    with open_apparatus(GPU, Database(tmp_path)):
        assert len(running_nvidia_smi() - before) == 1
    assert running_nvidia_smi() == before


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0), reason="needs TF32 units"
)
def test_precisions_are_really_switched_and_switched_back() -> None:
    before = torch_state(GPU)
    factor = torch.randn(MATRIX_WIDTH, MATRIX_WIDTH, device=GPU)
    exact = factor.double() @ factor.double()
    errors = {}
    for name in ("fp32", "tf32", "torch-default"):
        with switched(name):
            errors[name] = float((factor @ factor - exact).abs().mean())
        assert torch_state(GPU) == before
    assert errors["tf32"] > 10 * errors["fp32"]
    assert errors["torch-default"] == pytest.approx(errors["fp32"], rel=0.5)


def test_an_operator_that_does_not_fit_cannot_be_measured_and_the_next_one_can() -> None:
    huge = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((2**42,), "float32"),))
    with pytest.raises(CannotMeasureError, match="memory"):
        operator_workload(huge, GPU).run(1)
    operator_workload(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((8,), "float32"),)), GPU).run(3)


# CUDA graphs


RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((32, 512, 7, 7), "float32"),))
PRODUCT = OperatorTuple(
    "torch.matmul",
    inputs=(TensorSpec((2048, 2048), "float32"), TensorSpec((2048, 2048), "float32", identity=1)),
    mode=None,
)
NONZERO = OperatorTuple("torch.nonzero", inputs=(TensorSpec((1000, 1000), "float32"),), mode=None)
PRECISE = protocol_for(True, relative_error=0.01)


def device_time_s(workload: Workload, rounds: int) -> float:
    """Time of one iteration by the host's clock, the device being at nothing else."""
    workload.run(1)
    workload.finish()
    begin_s = time.perf_counter()
    workload.run(rounds)
    workload.finish()
    return (time.perf_counter() - begin_s) / (rounds * workload.iterations_per_round)


def test_a_graph_of_long_kernels_takes_what_a_loop_of_them_takes() -> None:
    eager = operator_workload(PRODUCT, GPU)
    graph = as_graph(eager)
    assert graph.execution == "graph"
    assert device_time_s(graph, 50) == pytest.approx(device_time_s(eager, 50 * graph.iterations_per_round), rel=0.05)


def test_a_short_operator_is_captured_in_several_placements() -> None:
    calls = operator_workload(RELU, GPU).calls
    relocated, placements = calls.relocated, []

    def noted(call: Call) -> Call:
        number = len(placements)
        placements.append(0)

        def noting() -> None:
            output = call()
            assert isinstance(output, torch.Tensor)
            placements[number] = output.data_ptr()

        return noting

    captured = capture_calls(Calls(noted(calls.cycle), relocated=lambda: noted(relocated())), GPU)
    assert len(captured.graphs) == len(set(placements)) == PLACEMENTS
    assert (captured.flags, captured.notes) == ((), "")


def test_a_graph_of_short_kernels_does_without_launches() -> None:
    eager = operator_workload(RELU, GPU)
    graph = as_graph(eager)
    assert graph.iterations_per_round > 300
    assert device_time_s(graph, 100) < 0.7 * device_time_s(eager, 20_000)


@pytest.mark.parametrize("is_traced", [False, True])
def test_a_call_takes_beside_an_eviction_what_it_takes_alone(is_traced: bool) -> None:
    evict, call = eviction(GPU), partial(torch.cuda._sleep, 50_000)

    def both() -> None:
        evict.data()
        call()

    pair = beside(EagerWorkload(Calls(both, overhead=evict.data, alone=Calls(call)), GPU), is_traced)
    instruments = Instruments(no_meters(GPU).meter(""), SystemClock())
    found = measure_beside(pair, instruments, relative_error=0.01)
    alone = measure(as_graph(EagerWorkload(Calls(call), GPU)), instruments, HALF_A_SECOND)
    assert found.time_s == pytest.approx(alone.time_s, rel=0.03)


def test_gaps_of_a_call_are_its_own_whatever_restores_its_input() -> None:
    x = torch.randn(2**20, device=GPU)
    y, stream = torch.empty_like(x), torch.cuda.Stream(GPU)

    def restore() -> None:
        torch.mul(x, 1, out=y)

    def restore_and_call() -> None:
        restore()
        y.relu_()

    several = [Calls(x.relu), Calls(lambda: x.tanh().relu()), Calls(restore_and_call, overhead=restore)]
    gaps = list[UntracedGap]()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        for calls in several:
            calls.cycle()
            gaps.append(untraced_gap(calls, stream))
    one, two, restored = (gap.idle_s for gap in gaps)
    assert one > 0
    assert two == pytest.approx(2 * one, rel=0.3)
    assert restored == pytest.approx(one, rel=0.3)


def test_launches_behind_an_eviction_come_from_memory() -> None:
    tensors = TensorSpec((2**18,), "float32"), TensorSpec((2**18,), "float32", identity=1)
    far = Case(OperatorTuple("torch.add", (), tensors, mode=None), state="inputs near near")
    with Workloads(GPU)(far, USUAL) as load:
        load.run(3)
        load.finish()
        assert load.ended_s is not None
        assert load.far_launches_s is not None
        assert 0 < load.far_launches_s < load.ended_s


def kernels_of(run: Call) -> Counter[str]:
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    assert profiler.profiler is not None
    return Counter(one.name() for one in profiler.profiler.kineto_results.events() if one.device_type().name == "CUDA")


STEP, PROMPT = "input_size: [4, 1]\nmode: decode\ncontext: 128", "input_size: [2, 64]\nmode: prefill"


def llama(folder: Path, keys: str, form: str, backend: str) -> ModelConfig:
    sizes = "hidden_size: 512, intermediate_size: 512, num_hidden_layers: 2, num_attention_heads: 8"
    path = folder / "llama" / "summary.yml"
    path.parent.mkdir()
    path.write_text(
        "model_name: transformers:LlamaForCausalLM\n"
        f"arguments: {{{sizes}, num_key_value_heads: 2, attn_implementation: {form}}}\n"
        f"{keys}\nprecision: bf16\nattention: {backend}\ndone: false\n"
    )
    (config,) = load_config(path, path.parent)
    return config


@pytest.mark.parametrize("keys", [STEP, PROMPT])
def test_attention_whose_mask_is_made_on_the_host_runs_eagerly_with_a_note(tmp_path: Path, keys: str) -> None:
    pytest.importorskip("transformers")
    case, setting = Case(model_tuple(llama(tmp_path, keys, "eager", "torch-default"))), Setting(precision="bf16")
    with Workloads(GPU)(case, setting) as load:
        assert load.execution == "eager"
        assert load.notes == "eager: it synchronises with the GPU"


@pytest.mark.parametrize(
    ("keys", "form", "backend"),
    [
        (STEP, "sdpa", "torch-default"),
        (STEP, "sdpa", "math"),
        (STEP, "copied", "efficient"),
        (STEP, "packed", "efficient"),
        (STEP, "unmasked", "torch-default"),
        (STEP, "unmasked", "flash"),
        (STEP, "unmasked", "math"),
        (PROMPT, "sdpa", "torch-default"),
        (PROMPT, "sdpa", "flash"),
        (PROMPT, "sdpa", "math"),
        (PROMPT, "copied", "efficient"),
        (PROMPT, "copied", "cudnn"),
    ],
)
def test_a_captured_decode_step_or_prefill_runs_the_kernels_of_an_eager_one_with_each_attention(
    tmp_path: Path, keys: str, form: str, backend: str
) -> None:
    pytest.importorskip("transformers")
    config, found = llama(tmp_path, keys, form, backend), {}
    for execution in ("graph", "eager"):
        setting = Setting(precision="bf16", execution=execution, attention=backend)
        with Workloads(GPU)(Case(model_tuple(config)), setting) as load:
            assert load.execution == execution
            for _ in range(3):
                load.run(1)
            load.finish()
            kernels = kernels_of(partial(load.run, 1))
            load.finish()
            found[execution] = {name: number / load.iterations_per_round for name, number in kernels.items()}
    assert found["graph"] == found["eager"]
    # Another back end would have other kernels.
    marks = {"flash": "flash", "efficient": "fmha", "cudnn": "cudnn"}
    if backend in marks:
        assert any(marks[backend] in name.lower() for name in found["eager"])


def test_flash_refuses_a_mask() -> None:
    tensor, mask = TensorSpec((2, 4, 64, 64), "bfloat16"), TensorSpec((2, 1, 64, 64), "bool")
    name = "torch.nn.functional.scaled_dot_product_attention"
    masked = OperatorTuple(name, inputs=(tensor,) * 3, keyword_inputs=(("attn_mask", mask),), mode=None)
    setting = Setting(precision="bf16", attention="flash")
    with pytest.raises(CannotMeasureError, match="alone"), Workloads(GPU)(Case(masked), setting) as load:
        load.run(1)
    with Workloads(GPU)(Case(replace(masked, keyword_inputs=())), setting) as load:
        load.run(1)


def test_values_that_settle_to_denormal_numbers_have_a_time_in_state(apparatus: Apparatus) -> None:
    images = TensorSpec((32, 96, 56, 56), "float32")
    protocol = MeasurementProtocol(0.1, 1.0, relative_error=0.01)

    def time_s(inplace: bool) -> float:
        silu = OperatorTuple("torch.nn.SiLU", (("inplace", inplace),), (images,), mode="eval")
        ((_, measured),) = apparatus.measure(
            Case(silu, state="inputs near"), Setting(cache=STATE), protocol, "in_state"
        )
        return measured.time_s

    assert time_s(True) == pytest.approx(time_s(False), rel=0.3)


def test_far_data_take_longer_than_near_ones_and_both_states_have_a_time(apparatus: Apparatus) -> None:
    images = TensorSpec((32, 320, 30, 30), "float16")
    mean = OperatorTuple("torch.mean", (), (images, (2, 3)), mode=None)
    protocol = MeasurementProtocol(0.1, 1.0, relative_error=0.01)

    def time_s(state: str) -> float:
        ((_, measured),) = apparatus.measure(Case(mean, state=state), Setting(cache=STATE), protocol, "in_state")
        assert measured.energy_j is None
        return measured.time_s

    assert time_s("inputs far") > 1.1 * time_s("inputs near")


def test_code_takes_the_longer_the_farther_it_is(apparatus: Apparatus) -> None:
    images = TensorSpec((1, 256, 14, 14), "float32")
    parameters = {"in_channels": 256, "out_channels": 256, "kernel_size": 7, "padding": 3, "groups": 256}
    convolution = OperatorTuple("torch.nn.Conv2d", tuple(parameters.items()), (images,))
    protocol = MeasurementProtocol(0.1, 1.0, relative_error=0.01)

    def time_s(state: str) -> float:
        case = Case(convolution, state=f"inputs near{state}")
        ((_, measured),) = apparatus.measure(case, Setting(cache=STATE), protocol, "in_state")
        return measured.time_s

    near_s, half_s, far_s = map(time_s, ("", ", code half", ", code far"))
    assert 0.98 * near_s < half_s < 1.02 * far_s
    assert near_s < far_s


def test_what_waits_for_the_gpu_runs_as_it_is_and_says_why() -> None:
    workload = as_graph(operator_workload(NONZERO, GPU))
    assert workload.execution == "eager"
    assert workload.notes == "eager: it synchronises with the GPU"
    workload.run(3)
    workload.finish()


def test_a_call_that_waits_in_its_midst_is_captured_in_pieces_and_computes_the_same() -> None:
    x, table, index = torch.randn(4096, 4096, device=GPU), torch.randn(64, 4096, device=GPU), torch.arange(32)
    outputs: list[torch.Tensor] = []

    def call() -> None:
        scale = float(x.abs().max().item())
        chosen = table[index].add_(1)
        outputs[:] = [torch.relu(x @ x)[:32] * scale + chosen]

    captured = capture_calls(Calls(call), GPU)
    assert captured.waits == 2
    (output,) = outputs
    for _ in range(2):
        captured.replay(2)
        torch.cuda.synchronize()
        replayed = output.clone()
        with torch.inference_mode():
            call()
        torch.testing.assert_close(replayed, outputs[0])
        # The scale is a number of the capture; that of the new data is the same.
        x.copy_(x.flip(0))


def test_a_model_that_asks_whether_it_is_captured_runs_as_it_was_counted() -> None:
    x = torch.randn(1024, 1024, device=GPU)
    noticed: list[bool] = []

    def call() -> torch.Tensor:
        noticed.append(torch.cuda.is_current_stream_capturing())
        return torch.relu(x)

    capture_calls(Calls(call), GPU)
    assert noticed
    assert not any(noticed)


def test_a_model_that_waits_is_captured_in_pieces() -> None:
    model = get_model("mvit_v2_s", weights=None).eval().to(GPU)
    x = torch.randn(2, 3, 16, 224, 224, device=GPU)
    outputs: list[torch.Tensor] = []

    def call() -> None:
        outputs[:] = [model(x)]

    captured = capture_calls(Calls(call), GPU)
    # Each of 16 blocks selects its relative positions in height, width and time.
    assert captured.waits == 48
    (output,) = outputs
    x.normal_()
    captured.replay(1)
    torch.cuda.synchronize()
    with torch.inference_mode():
        torch.testing.assert_close(output, model(x))


def test_a_position_in_a_cache_is_put_back_in_a_graph_and_costs_nothing() -> None:
    """The cache has place for one more call only."""
    cache, position = torch.zeros(4096, 4096, device=GPU), torch.tensor([4095], device=GPU)
    weight, x = torch.randn(4096, 4096, device=GPU), torch.randn(1, 4096, device=GPU)

    def decode(model: SmallModel, x: torch.Tensor) -> torch.Tensor:
        model.cache.index_copy_(0, model.position, x @ weight)
        model.position += 1
        return x @ model.cache.T

    ready = steady(run_first(ReadyModel(SmallModel(decode, cache=cache, position=position), (x,))))
    assert [part.nbytes for part, _ in ready.carried.parts] == [8]
    workload = as_graph(EagerWorkload(Calls(ready.run, overhead=ready.carried.put_back), GPU))
    assert workload.execution == "graph"
    workload.run(100)
    workload.finish()
    assert position.item() == 4096
    assert torch.allclose(cache[-1], (x @ weight)[0])
    assert not cache[:-1].any()
    assert device_time_s(workload.overhead, 20) < 0.2 * device_time_s(workload, 20)


def test_the_most_memory_of_a_call_is_that_of_its_tensors() -> None:
    kept, weights = torch.ones(2**20, device=GPU), torch.ones(2**20, device=GPU)

    def call() -> torch.Tensor:
        return weights.exp() + weights.sin()

    calls = with_memory_peak(Calls(call), lambda: [weights], GPU)
    assert calls.call_memory_peak_bytes == 4 * kept.untyped_storage().nbytes()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_backward_of_an_attention_runs_alone_and_in_a_graph(dropout: float) -> None:
    class Attending(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with torch.enable_grad():
                given = [one.detach().requires_grad_() for one in inputs]
                outputs = F.scaled_dot_product_attention(*given, dropout_p=dropout)
                return torch.autograd.grad(outputs.sum(), given)

    ready = ReadyModel(Attending().eval(), tuple(torch.randn(2, 4, 64, 32, device=GPU) for _ in range(3)))
    counts = capture(run_first(ready), model_operator("attending", None, (2, 4, 64, 32)))
    (count,) = (one for one in counts.counts if one.operator.operator in ATTENTION_BACKWARD)
    workload = as_graph(operator_workload(count.operator, GPU))
    assert (workload.execution, workload.flags) == ("graph", ())
    workload.run(3)
    workload.finish()


def test_a_graph_whose_output_is_not_finite_says_so() -> None:
    graph = as_graph(operator_workload(OperatorTuple("torch.sqrt", inputs=RELU.inputs, mode=None), GPU))
    assert (graph.execution, graph.flags) == ("graph", (Flag.NOT_FINITE,))


def test_a_call_that_a_graph_cannot_hold_leaves_the_gpu_usable() -> None:
    values = torch.ones(1000, device=GPU)

    def call() -> None:
        # Allowed outside of a capture, and no wait that torch notices.
        torch.cuda.current_stream().query()

    workload = as_graph(EagerWorkload(Calls(call), GPU))
    assert workload.execution in ("eager", "graph")
    assert float(values.sum()) == 1000
    assert as_graph(operator_workload(RELU, GPU)).execution == "graph"


def test_captures_give_their_memory_back() -> None:
    large = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((2**28,), "float32"),))
    before = torch.cuda.memory_allocated(GPU)
    for operator in (large, RELU, large, RELU):
        workload = as_graph(operator_workload(operator, GPU))
        workload.run(2)
        workload.finish()
        del workload
    gc.collect()
    assert torch.cuda.memory_allocated(GPU) <= before + 2**20


def test_a_graph_whose_outputs_fill_the_memory_is_captured_after_torch_gave_some_back() -> None:
    free, _ = torch.cuda.mem_get_info(GPU)
    side = int(free * 0.3 / 4)
    kept = torch.empty(int(free * 0.5), dtype=torch.uint8, device=GPU)
    del kept  # torch keeps it for later: half of the memory is in its cache now
    workload = as_graph(operator_workload(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((side,), "float32"),)), GPU))
    assert workload.execution == "graph"
    workload.run(1)
    workload.finish()
    del workload
    gc.collect()
    torch.cuda.empty_cache()


# NVML, the qualification, and a campaign's bench


def test_nvml_keeps_power_samples_of_a_gpu_at_work() -> None:
    gpu = Nvidia().open(facts().uuid)
    workload = as_graph(operator_workload(PRODUCT, GPU))
    begin_s = time.time()
    while time.time() < begin_s + 1.0:
        workload.run(1)
    workload.finish()
    samples = gpu.power_samples(begin_s)
    gpu.close()
    assert len(samples) > 20
    assert all(begin_s <= epoch_s <= time.time() for epoch_s, _ in samples)
    assert max(power_w for _, power_w in samples) > 100


def test_a_gpu_times_its_rounds_as_the_host_does() -> None:
    side = TensorSpec((16384, 16384), "float32")
    addition = OperatorTuple("torch.add", (), (side, replace(side, identity=1)), mode=None)
    workload = as_graph(operator_workload(addition, GPU))
    assert workload.placements == 1
    for _ in range(5):
        workload.run(5)
    begin_s, by_the_gpu_s = time.perf_counter(), 0.0
    for _ in range(20):
        workload.run(5)
        by_the_gpu_s += workload.ended_s
    assert by_the_gpu_s == pytest.approx(time.perf_counter() - begin_s, rel=0.01)
    workload.finish()


def test_an_operator_beyond_the_power_limit_is_measured_at_full_clocks_in_a_duty_cycle(apparatus: Apparatus) -> None:
    side = TensorSpec((8192, 8192), "bfloat16")
    product = Case(OperatorTuple("torch.matmul", (), (side, replace(side, identity=1)), mode=None))
    ((_, lasting),) = apparatus.measure(product, USUAL, MeasurementProtocol(GPU_WARM_UP_S, 3.0), "lasting")
    if not may_be_throttled(lasting):
        pytest.skip("a product of 8192 x 8192 matrices does not reach this GPU's power limit")
    ((_, row),) = apparatus.measure(product, USUAL, PRECISE, "precise")
    assert Flag.DUTY_CYCLE in row.flags
    assert row.time_s < lasting.time_s
    assert row.power_w > lasting.power_w


def test_a_precise_measurement_takes_well_under_a_second_and_agrees_with_a_long_one(apparatus: Apparatus) -> None:
    case = Case(OperatorTuple("torch.nn.ReLU", (), (TensorSpec((32, 64, 112, 112), "float32"),)))
    apparatus.measure(case, USUAL, PRECISE, "first")
    ((_, short),) = apparatus.measure(case, USUAL, PRECISE, "short")
    ((_, long),) = apparatus.measure(case, USUAL, MeasurementProtocol(GPU_WARM_UP_S, 3.0), "long")
    assert short.loop_time_s < 1.0
    assert short.executed_as == long.executed_as == "graph"
    assert short.time_s == pytest.approx(long.time_s, rel=0.01)
    assert short.energy_j == pytest.approx(long.energy_j, rel=0.05)
    assert short.flags == long.flags == ()


def test_a_qualification_knows_the_card_and_is_made_once(
    qualified_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with qualified(open_apparatus, GPU, qualified_database, True) as apparatus:
        assert "qualified first" not in caplog.text
        assert 0 < apparatus.known.power_coefficient_per_kelvin.value < 0.02
    rows = qualified_database.meter_qualifications.rows()
    by_meter = {row.quality.meter: row for row in rows}
    assert len(by_meter) == len(rows) >= 2
    for row in rows:
        assert row.quality.is_right_when_steady, row.quality
        assert 10 < row.idle_power_after_load_w < 300


def test_a_bench_in_another_process_survives_a_cuda_fault(qualified_database: Database) -> None:
    # An assertion that fails on the GPU, after which CUDA refuses the process.
    fatal = Case(OperatorTuple("torch._assert_async", inputs=(TensorSpec((1,), "float32"),), mode=None), ZEROS_DATA)
    with open_child_bench(GPU, qualified_database, True) as bench:
        with pytest.raises(CannotMeasureError):
            bench.measure(fatal, USUAL, PRECISE, "fatal")
        ((_, measured),) = bench.measure(Case(PRODUCT), USUAL, PRECISE, "product")
    assert measured.energy_j is not None


# Counting on the GPU


def counted_on(device: str, name: str) -> OperatorCounts:
    size = (1, 3, 224, 224)
    model = get_model(name, weights=None).eval().to(device)
    return capture(ReadyModel(model, (torch.zeros(size, device=device),)), model_operator(name, None, size))


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "swin_t"])
def test_tuples_and_flops_are_the_same_on_gpu_and_cpu(name: str) -> None:
    on_gpu, on_cpu = counted_on(GPU, name), counted_on("cpu", name)
    assert [(count.operator, count.occurrences, count.flop) for count in on_gpu.counts] == [
        (count.operator, count.occurrences, count.flop) for count in on_cpu.counts
    ]
    assert on_gpu.total_flop == on_cpu.total_flop
    for counts in (on_gpu, on_cpu):
        device = replay_device(counts.device_type, GPU)
        assert [one for one in (difference(count, device) for count in counts.counts) if one is not None] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_attention_kernel_of_the_gpu_has_its_flops(dtype: torch.dtype) -> None:
    query = torch.randn(2, 4, 64, 32, device=GPU, dtype=dtype)
    recorded: list[OperationCost] = []
    with torch.inference_mode(), CostCounter(recorded.append):
        F.scaled_dot_product_attention(query, query, query)
    assert sum(cost.flop for cost in recorded) == 2 * (2 * 2 * 4 * 64 * 64 * 32)


# From end to end


def test_block_2_measures_a_model_and_its_parts_on_the_gpu(
    tmp_path: Path, qualified_database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "resnet18_2x3x32x32"
    summary = tmp_path / "measurements" / name / "summary.yml"
    summary.parent.mkdir(parents=True)
    summary.write_text("model_name: resnet18\ninput_size: [2, 3, 32, 32]\n")
    shutil.copy(ROOT / "measurements" / "operator_whitelist.yml", summary.parent.parent)
    database = Database(tmp_path / "database")
    folders = ["--measurements", str(summary.parent.parent), "--database", str(database.folder)]
    database.folder.mkdir()
    shutil.copy(qualified_database.meter_qualifications.path, database.folder)

    def run(subcommand: str, *arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["opcost", subcommand, name, *folders, "--device", GPU, *arguments])
        assert main() == 0

    run("count")
    run("filter")
    run("measure", "--relative-error", "0.01")
    run("measure-models", "--seconds", "1")
    run("compare")
    assert "sum / whole" in capsys.readouterr().out

    rows = database.operator_measurements.rows()
    assert len({row.key for row in rows}) == len(rows) >= 20
    in_state = [row for row in rows if row.state]
    assert len(in_state) >= len(rows) / 2
    for row in set(rows).difference(in_state):
        assert row.measurement.energy_missing_reason is None
        assert 30 < row.measurement.power_w < 1000
        assert (database.power_logs / str(row.measurement.power_log)).is_file()
        assert row.conditions.device_type == "cuda"
        assert not does_other_work(row.measurement)
        taken_s, *steps_s = (float(time_s or 0.0) for time_s in values_of(row.step_times))
        assert row.measurement.loop_time_s < taken_s < 30
        assert sum(steps_s) == pytest.approx(taken_s, rel=0.1)
    (whole,) = database.full_model_measurements.rows()
    assert whole.measurement.builds == 3
    assert 0 < whole.measurement.builds_time_range_ratio < 0.1
    assert (database.power_logs / str(whole.measurement.power_log)).is_file()
    (compared,) = database.sum_vs_full.rows()
    assert compared.missing_operators == 0
    assert 0.3 < compared.time_ratio < 1.5
    assert 0.3 < compared.energy_ratio < 1.5
    assert compared.correction_time_s is not None
    assert RemarkKind.CORRECTED_BY_STATES.value in compared.remarks
    # One second is no full protocol.
    assert "done: true" not in summary.read_text()


def test_tuples_alone_run_the_kernels_of_their_model(tmp_path: Path) -> None:
    path = tmp_path / "measurements" / "small" / "summary.yml"
    path.parent.mkdir(parents=True)
    path.write_text("model_name: resnet18\nweights_name: null\ninput_size: [32, 3, 64, 64]\ndone: false\n")
    request = RunRequest((), ModelFolders(tmp_path / "measurements"), Database(tmp_path / "database"), GPU)
    (report,) = compare_kernels(request, RecordedProgress())
    assert report.counted_ratio > 0.99
    assert report.same_kernels_ratio > 0.99, report.differences
    assert sum(kind.calls for kind in report.kinds) == 68


def test_windows_of_a_users_code_have_the_energy_that_the_counter_counts() -> None:
    left, right = (torch.randn(MATRIX_WIDTH, MATRIX_WIDTH, device=GPU, dtype=torch.bfloat16) for _ in range(2))

    def work(seconds: float) -> None:
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            torch.mm(left, right)
            torch.cuda.synchronize()

    gpu = Nvidia().open(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    finder = TickFinder(gpu.energy_j, time.monotonic, lambda seconds: bool(time.sleep(seconds)))
    with EnergyMeter([GPU]) as meter:
        work(1.0)
        first = finder.next_tick(0.0)
        with meter.window("pulses") as pulses:
            for _ in range(10):
                work(0.11)
                time.sleep(0.09)
        last = finder.next_tick(0.0)
        with meter.window("short") as short:
            work(0.2)
    gpu.close()
    # The counter goes on for up to 0.1 s after the window, in which the GPU rests.
    assert pulses.energy_j == pytest.approx(last[1] - first[1], rel=0.05)
    assert pulses.result.devices[0].meter == f"{SAMPLES}, scaled by {COUNTER}"
    assert short.result.energy.standard_error < 0.1 * short.result.energy.value
    meter = EnergyMeter([GPU])
    repeated = meter.measure(lambda: torch.mm(left, right), relative_error=0.02)
    meter.close()
    assert repeated.repeats > 100
    assert 1.96 * repeated.energy.standard_error <= 0.02 * repeated.energy.value
