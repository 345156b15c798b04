"""A profile of a model that is an object of this process, with its example inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from torch import nn

from opcost.errors import CannotBuildError, CannotMeasureError, UserError
from opcost.measuring.precisions import DTYPES, TORCH_DEFAULT
from opcost.measuring.protocol import ProtocolFor
from opcost.operators.cases import CAPTURED, cases_of
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.model_names import OBJECT
from opcost.operators.tuples import FLOAT32, OperatorTuple, Structure, short_hash
from opcost.progress import Progress
from opcost.running.bench import open_local_bench
from opcost.running.devices import choose_device
from opcost.running.request import COUNTS, Request, model_tuple
from opcost.stages.count import warn_of_compiled
from opcost.stages.make_configs import config_text
from opcost.stages.measure_operators import Protocols
from opcost.stages.profile import Measuring, Profile, profile_counted
from opcost.stages.profile_configs import ProfileConfig, scratch_folder
from opcost.storage.configs import SUMMARY_NAME, ModelConfig, write_config
from opcost.storage.counts_file import write_counts
from opcost.storage.schemas import LONGEST_NAME, tree_text
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel, borrowed, device_of
from opcost.torch_backend.switches import autocast, reported_switches
from opcost.torch_backend.values import plain_value

FINGERPRINT_BYTES = 32
"""The length of a fingerprint of code, SHA-256."""


@dataclass(frozen=True)
class ObjectModel:
    """A user's model, a name for it, its example inputs, and a precision, None for the usual one of its weights."""

    model: nn.Module
    inputs: Any
    name: str | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise UserError(f"model: a {type(self.model).__name__}, not a torch.nn.Module; pass a module")

    @property
    def dtype(self) -> str | None:
        """The dtype of all floating-point weights; None if they differ."""
        found = {
            str(weight.dtype).removeprefix("torch.") for weight in self.model.parameters() if weight.is_floating_point()
        }
        return next(iter(found)) if len(found) == 1 else None if found else FLOAT32

    def checked_precision(self) -> str:
        """Raise UserError: it needs weights of another dtype."""
        usual = next((name for name, dtype in DTYPES.items() if dtype == self.dtype), TORCH_DEFAULT)
        if self.precision is None:
            return usual
        needed = DTYPES.get(self.precision, FLOAT32)
        if self.dtype not in (None, needed):
            remedy = f"convert model and inputs with .to(torch.{needed}) first, or leave precision out"
            raise UserError(
                f"precision: {self.precision} needs weights in {needed}, and these are {self.dtype}; {remedy}"
            )
        return self.precision


def profile_object(request: Request, own: ObjectModel, progress: Progress, protocol_for: ProtocolFor | None) -> Profile:
    """Count a model that is an object, measure the operators that the database lacks and the whole in this process.

    The configs and counts that stages read are in a temporary folder: only this process can run the model. Its rows are
    found again by its contents. The request's device is None for the model's own; without a protocol nothing is
    measured. The model is as before afterwards. Raises UserError: the precision is not that of the weights, or the
    model cannot be counted.
    """
    with counted_object(request, own) as counted:
        write_counts(COUNTS.path(counted.config), counted.counts)
        measuring = None
        if protocol_for is not None:
            open_bench = partial(open_local_bench, ready={model_tuple(counted.config): counted.ready})
            measuring = Measuring(Protocols(protocol_for, protocol_for), open_bench, lambda _: None)
        found = [ProfileConfig(counted.config, is_new=True, is_kept=False)]
        return profile_counted(counted.request, found, progress, measuring)


@dataclass(frozen=True)
class CountedObject:
    """A borrowed model with its counts and its config, which is in the temporary folder of the request."""

    request: Request
    ready: ReadyModel
    config: ModelConfig
    counts: OperatorCounts


@contextmanager
def counted_object(request: Request, own: ObjectModel) -> Iterator[CountedObject]:
    """Count a model that is an object, and yield it; it is given back afterwards. See ``profile_object``."""
    precision = own.checked_precision()
    with ExitStack() as stack:
        try:
            device = None if request.device is None else choose_device(request.device)
            ready = stack.enter_context(borrowed(own.model, own.inputs, device))
            # The code of operations that a program registers is unknown: their rows hold for this call only.
            ready = replace(ready, fingerprint=token_hex(FINGERPRINT_BYTES))
        except ValueError as error:
            raise UserError(str(error)) from None
        request = stack.enter_context(scratch_folder(replace(request, device=device_of(ready)), []))
        ready, counts = _counted(ready, own, precision, str(request.device))
        config = _config(request, ready, own, precision, counts)
        yield CountedObject(request, ready, config, replace(counts, model=model_tuple(config)))


def _counted(ready: ReadyModel, own: ObjectModel, precision: str, device: str) -> tuple[ReadyModel, OperatorCounts]:
    context = partial(autocast, precision, device)
    name = type(own.model).__name__
    try:
        with reported_switches(name):
            ready = run_first(ready, context)
            warn_of_compiled(own.name or name, ready.model)
            with context():
                return ready, capture(ready, OperatorTuple(f"{OBJECT}.{name.lower()}"), name=own.name or name)
    except CannotBuildError as error:
        raise UserError(f"{name}: {error}; leave the switch to precision") from error
    except CannotMeasureError as error:
        raise UserError(f"{name}: {error}") from error


def _config(
    request: Request, ready: ReadyModel, own: ObjectModel, precision: str, counts: OperatorCounts
) -> ModelConfig:
    """Write the config of a model, and return it. It describes the inputs if it can describe them as they are."""
    identities: dict[int, int] = {}
    positional = tuple(plain_value(value, identities) for value in ready.inputs)
    keyword = tuple((name, plain_value(value, identities)) for name, value in ready.keyword_inputs.items())
    tree = Structure("dict", keyword) if keyword else positional
    # The user's name with the shape of the first input: ``my_net_2x3x8x8``.
    shape = "x".join(map(str, ready.tensors[0].shape))
    base = re.sub(r"\W+", "_", own.name or type(own.model).__name__)
    name = "_".join([base, *([shape] if shape else [])])[:LONGEST_NAME]
    keys = {} if precision == TORCH_DEFAULT else {"precision": precision}

    def written(**more: str) -> ModelConfig:
        text = config_text(f"{OBJECT}:{_identity(counts)}", (), is_data_dependent=False, more={**keys, **more})
        write_config(Path(request.measurements, name, SUMMARY_NAME), text)
        (config,) = request.folders.configs([name])
        return config

    with suppress(UserError):
        described = written(inputs=tree_text(tree))
        if model_tuple(described) == DescribedInputs(positional, keyword).given_to(model_tuple(described)):
            return described
    return written()


def _identity(counts: OperatorCounts) -> str:
    """Return a model's name: a hash of its operator tuples on their input data with their calls.

    Of operations in no tuple, it covers the names, and the FLOPs and bytes of all.
    """
    calls = cases_of(counts.counts, CAPTURED)
    lines = sorted(f"{number} {case.operator} on {case.input_data}" for case, number in calls.items())
    if counts.outside:
        flop = counts.total_flop - sum(count.occurrences * (count.flop or 0) for count in counts.counts)
        memory_bytes = counts.total_memory_bytes - counts.memory_bytes
        lines.append(f"{', '.join(counts.outside)}: {flop} FLOP, {memory_bytes} B")
    return "model_" + short_hash("\n".join(lines))
