"""The least memory of a run, by hand."""

from dataclasses import replace

from simulated_machine import SIMULATED_CONDITIONS

from opcost.operators.counts import CalledModule, OperatorCount, OperatorCounts
from opcost.operators.texts import parse_tuple
from opcost.operators.training import Training
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.prediction.needed_memory import needed_memory

MEBI = 2**20
CONDITIONS = replace(SIMULATED_CONDITIONS, device_memory_bytes=10 * MEBI)
LARGE = TensorSpec((MEBI,), "float32")


def counted(text: str, *operations: str) -> OperatorCount:
    return OperatorCount(parse_tuple(text), 1, 1, 1, LARGE, operations=tuple((name, 1) for name in operations))


def of(*counts: OperatorCount) -> OperatorCounts:
    return OperatorCounts(OperatorTuple("torchvision.models.net"), counts, 1, 1, MEBI, "2.11.0", "meta")


def test_the_weights_and_the_tensors_of_the_largest_call_are_needed() -> None:
    two = counted("torch.Tensor.add on (float32[1048576], float32[1048576])", "add")
    one = counted("torch.nn.ReLU() on (float32[1048576]) eval", "relu")
    found = needed_memory(of(one, two), CONDITIONS)
    assert (found.weights_bytes, found.activations_bytes, found.least_bytes) == (4 * MEBI, 12 * MEBI, 16 * MEBI)
    assert found.is_too_much
    assert not needed_memory(of(), CONDITIONS).is_too_much


def test_an_operation_in_place_and_a_tensor_passed_twice_need_no_more() -> None:
    in_place = counted("torch.nn.ReLU(inplace=True) on (float32[1048576]) eval", "relu_")
    assert needed_memory(of(in_place), CONDITIONS).activations_bytes == 4 * MEBI
    twice = counted("torch.Tensor.mul on (float32[1048576]#0, float32[1048576]#0)", "mul")
    assert needed_memory(of(twice), CONDITIONS).activations_bytes == 8 * MEBI


def test_weights_in_half_precision_need_half_the_memory() -> None:
    assert needed_memory(of(), replace(CONDITIONS, precision="bf16")).weights_bytes == 2 * MEBI
    # Autocast keeps weights in float32.
    assert needed_memory(of(), replace(CONDITIONS, precision="amp-bf16")).weights_bytes == 4 * MEBI


def test_a_training_step_needs_gradients_and_what_it_saves_for_the_backward():
    counts = of()
    saving = (CalledModule("", "Net", 1, saved_bytes=3 * MEBI), CalledModule("layer", "ReLU", 0, saved_bytes=MEBI))
    step = replace(counts, model=Training().of(counts.model), modules=saving)
    weights_bytes = needed_memory(counts, CONDITIONS).weights_bytes
    found = needed_memory(step, CONDITIONS)
    assert (found.weights_bytes, found.activations_bytes) == (2 * weights_bytes, 4 * MEBI)
    frozen = replace(step, model=Training(frozen=("layer.*",)).of(counts.model))
    assert needed_memory(frozen, CONDITIONS).weights_bytes == weights_bytes
