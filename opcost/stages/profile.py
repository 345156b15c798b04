"""A profile of a model in one step: count it, measure all that the database lacks, and find what its operators cost.

The model may also be an object of this process, with its example inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from torch import nn

from opcost.columns import grouped
from opcost.comparing.model_result import ModelResult
from opcost.comparing.operator_costs import operator_costs
from opcost.comparing.ranking import TIME, WHOLE
from opcost.errors import CannotBuildError, CannotMeasureError, UserError
from opcost.measuring.conditions import Conditions, device_type_of
from opcost.measuring.precisions import DTYPES, TORCH_DEFAULT
from opcost.measuring.protocol import ProtocolFor
from opcost.operators.counts import CAPTURED, EVERYTHING, OperatorCounts, cases_of, select
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.model_names import OBJECT
from opcost.operators.tuples import FLOAT32, META, OperatorTuple, Structure, short_hash
from opcost.progress import Progress
from opcost.running.bench import Bench
from opcost.running.devices import choose_device
from opcost.running.engine import Executor, OpenBench, executor_of
from opcost.running.planned_bench import open_local_bench
from opcost.running.request import RunRequest
from opcost.running.shipped_counts import counted_or_shipped, in_table, shipped_counts
from opcost.stages.compare import ComparingReport, find_comparisons
from opcost.stages.count import CountFailure, count_operators, warn_of_compiled
from opcost.stages.make_configs import config_text, found_or_written, scratch_folder
from opcost.stages.measure_operators import Protocols, UnitReport, measure_units
from opcost.stages.predict import Prediction, PredictionRequest, predict
from opcost.stages.ranking_data import read_ranking_data
from opcost.stages.show import Choice, NothingMeasuredError, ShownModel, show
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import SUMMARY_NAME, ModelConfig, model_tuple, write_config
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database
from opcost.storage.files import cache_folder
from opcost.storage.model_counts import COUNTS
from opcost.storage.schemas import LONGEST_NAME, tree_text
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel, borrowed, device_of
from opcost.torch_backend.switches import autocast, reported_switches
from opcost.torch_backend.values import plain_value

EVERY_OPERATOR = (EVERYTHING,)
"""The whitelist of a profile: the shipped one names operators of other models, and might drop those of this one."""


@dataclass(frozen=True)
class ProfiledOperator:
    """An operator tuple of a model with the FLOPs, bytes, time and energy of all of its calls in one run.

    FLOPs are None if an operation has no formula, time and energy if no call has a row. Ratios are shares of the sum of
    all measured operators.
    """

    operator: str
    parameters: str
    inputs: str
    training_mode: str | None
    calls: int
    flop: int | None
    memory_bytes: int
    time_s: float | None = None
    energy_j: float | None = None
    time_ratio: float | None = None
    energy_ratio: float | None = None


@dataclass(frozen=True)
class CostOnDevice:
    """The rows of a model on one device, under the conditions with the most rows.

    ``calls_ratio`` is the share of the calls that have a row. The sum is that of these calls; the predicted cost is
    that of the others, None if it is unknown or the whole is measured.
    """

    conditions: Conditions
    calls_ratio: float
    sum_time_s: float | None
    sum_energy_j: float | None
    predicted_time_s: float | None
    predicted_energy_j: float | None
    whole_time_s: float | None
    whole_energy_j: float | None


@dataclass(frozen=True)
class ModelProfile:
    """The profile of one model; FLOPs and bytes are those of one run.

    ``config`` is the path of its config, None if none stays: of an object, and of a model that is not measured.
    With a ``flop_missing_reason`` the run has at least these FLOPs. ``missing_ratio`` is the share of the run in
    no operator, None if it is small; ``missing_operations`` names its operations. ``input_size`` is that of the
    first input, batch first; it is empty if it is unknown, with an ``input_size_missing_reason``.
    ``counted_on`` is ``meta``, ``cpu`` or ``cuda``. ``conditions`` are those of the measurements on the device of the
    profile, and ``operators`` has their costs; without such a device they are None, and ``known`` has what the database
    has of other devices. ``comparison`` is that of the sum with the measured whole.
    """

    name: str
    config: str | None
    input_size: tuple[int, ...]
    flop: int
    memory_bytes: int
    parameters: int
    counted_on: str
    operators: tuple[ProfiledOperator, ...]
    conditions: Conditions | None = None
    comparison: ComparingReport | None = None
    known: tuple[CostOnDevice, ...] = ()
    flop_missing_reason: str | None = None
    missing_ratio: float | None = None
    missing_operations: tuple[str, ...] = ()
    input_size_missing_reason: str | None = None


@dataclass(frozen=True)
class Profile:
    """The profiles of some models, the measurements of this run, and the comparisons for a report.

    ``request`` names the models' configs, and its tables are read once. ``folder`` is that of the first model's files.
    ``units`` are the plan in a dry run, and empty if nothing is to be measured.
    """

    request: RunRequest
    folder: Path
    models: tuple[ModelProfile, ...]
    units: tuple[UnitReport, ...] = ()
    comparisons: tuple[ComparingReport, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a measurement failed, or the sum of a measured model could not be compared with a whole."""
        compared = (model.comparison for model in self.models if model.conditions is not None)
        is_incomplete = any(one is None or one.is_incomplete for one in compared)
        return any(unit.failed for unit in self.units) or (is_incomplete and not self.request.dry_run)


@dataclass(frozen=True)
class Measuring:
    """How the operators and the whole of a model are measured; ``announce`` is called with the plan beforehand."""

    protocols: Protocols
    open_bench: OpenBench
    announce: Callable[[Sequence[UnitReport]], None]


def profile(
    request: RunRequest, wanted: Sequence[WantedModel], progress: Progress, measuring: Measuring | None
) -> Profile:
    """Profile models: each step is left out whose result is there, so that an interrupted profile goes on.

    The names of models in the request are not used. Without ``measuring`` they are only counted, on shapes if possible,
    and the costs are those in the database; as in a dry run, the request's own folder is then a temporary one. Raises
    UserError: a model does not exist, or does not run on its input.
    """
    found = found_or_written(request.folders, wanted, request.allow_code)
    configs = [config for config, _ in found]
    # The plan for a product needs sizes only.
    failures = _count(request, configs, progress, on_meta=measuring is None or request.is_product)
    for config, is_new in found:
        # One that was written for a model that cannot be counted is removed; an earlier one stays.
        if is_new and config.name in failures:
            with suppress(OSError):
                config.path.unlink()
                config.path.parent.rmdir()
    if failures:
        raise UserError(*failures.values())
    is_kept = measuring is not None and not request.dry_run
    return profile_counted(request, configs, progress, measuring, is_kept)


def profile_counted(
    request: RunRequest, configs: Sequence[ModelConfig], progress: Progress, measuring: Measuring | None, is_kept: bool
) -> Profile:
    """Profile models that are counted, see ``profile``; ``is_kept`` says whether their own configs last."""
    request = replace(request, names=tuple(config.name for config in configs), operators=EVERY_OPERATOR)
    if measuring is None:
        found = _without_measuring(request, configs)
    else:
        found = _measured(request, configs, progress, measuring)
    left = {str(config.path) for config in configs if is_kept or not config.path.is_relative_to(request.folders.own)}
    return replace(
        found, models=tuple(one if one.config in left else replace(one, config=None) for one in found.models)
    )


def _measured(request: RunRequest, configs: Sequence[ModelConfig], progress: Progress, measuring: Measuring) -> Profile:
    """Return the profile after the measurements, from rows under the same conditions of each model only."""
    conditions: dict[str, Conditions] = {}

    @contextmanager
    def open_recorded(device: str | None, database: Database, with_meter: bool) -> Iterator[Bench | Executor]:
        with measuring.open_bench(device, database, with_meter) as opened:
            bench = next(iter(executor_of(opened).kinds.values()))
            conditions.update({one.name: bench.conditions(request.setting_of(one)) for one in configs})
            yield opened

    units = measure_units(request, measuring.protocols, open_recorded, progress, measuring.announce)
    request = replace(request, database=request.database.read_once())
    data = read_ranking_data(request, configs, {one.name for one in configs}, in_table(request.database, configs))
    results = {(one.name, one.conditions): one for each in set(conditions.values()) for one in data.results(each)}
    comparisons = [] if request.dry_run else find_comparisons(replace(request, device=None), under=conditions)
    reports = {report.name: report for report in comparisons}
    for whole in (unit.whole for unit in units if unit.whole.failed):
        report = reports.get(whole.name)
        if report is not None and not report.comparisons:
            # The same command, which the report proposes, would fail again.
            reason = f"the whole model is not measured on {whole.device}: {whole.reason}"
            reports[whole.name] = replace(report, reason=f"{reason}; correct this, and repeat the command", remedy=None)
    models = []
    for config, counts in _with_counts(request, configs):
        name = config.name
        counted = _counted_profile(config, counts, results.get((name, conditions[name])))
        models.append(replace(counted, conditions=conditions[name], comparison=reports.get(name)))
    return Profile(request, configs[0].folder, tuple(models), tuple(units), tuple(comparisons))


class FailuresToRaise(Progress):
    """Passes progress on, but no failures, which are raised together or tried again."""

    def __init__(self, progress: Progress) -> None:
        vars(self).update({name: getattr(progress, name) for name in ("start", "begin", "finish", "end")})


def _count(request: RunRequest, configs: Sequence[ModelConfig], progress: Progress, on_meta: bool) -> dict[str, str]:
    """Count models without counts, or with those of shapes where values are needed; return failures by name."""
    known = shipped_counts(request.database, configs) if on_meta else {}
    missing = []
    for config in configs:
        is_counted = config.name in known
        with suppress(UserError):
            is_counted = is_counted or _is_enough(config, COUNTS.read(config).device_type, on_meta, request.device)
        if not is_counted:
            missing.append(config)
    if not missing:
        return {}
    counting = replace(request, device=None if request.is_product else request.device, dry_run=False)
    reports = count_operators(counting, FailuresToRaise(progress), on_meta, configs=missing)
    failures = {report.name: report.reason for report in reports if isinstance(report, CountFailure)}
    if failures and on_meta:
        # Some models run with values only.
        return _count(request, [one for one in missing if one.name in failures], progress, on_meta=False)
    return failures


def _is_enough(config: ModelConfig, counted_on: str, on_meta: bool, device: str | None) -> bool:
    """Return whether counts have what is needed: to measure, values, and those operations that a step has on a device.

    The device is None for the usual one.
    """
    if on_meta or counted_on == META or config.training is None:
        return on_meta or counted_on != META
    return counted_on == device_type_of(choose_device(device))


def _without_measuring(request: RunRequest, configs: Sequence[ModelConfig]) -> Profile:
    request = replace(request, database=request.database.read_once())
    shown: Sequence[ShownModel] = ()
    try:
        shown = show(request, Choice(operators=True, mode=configs[0].mode), cache_folder()).models
    except NothingMeasuredError:
        pass
    except UserError:
        # The user's only database may have to be made by the first measurement.
        if request.database.folder.is_dir():
            raise
    models = []
    for config, counts in _with_counts(request, configs):
        known = []
        for model in (model for model in shown if model.row.name == config.name):
            row, calls = model.row, sum(operator.costs.calls for operator in model.operators)
            cost = CostOnDevice(
                conditions=row.conditions,
                calls_ratio=calls / max(1, counts.operator_calls),
                sum_time_s=row.sum_time_s,
                sum_energy_j=row.sum_energy_j,
                predicted_time_s=row.predicted_time_s,
                predicted_energy_j=row.predicted_energy_j,
                whole_time_s=row.time_s if row.source == WHOLE else None,
                whole_energy_j=row.energy_j if row.source == WHOLE else None,
            )
            known.append(cost)
        models.append(replace(_counted_profile(config, counts, None), known=tuple(known)))
    comparisons = find_comparisons(replace(request, device=None)) if shown else []
    return Profile(request, configs[0].folder, tuple(models), comparisons=tuple(comparisons))


def _with_counts(request: RunRequest, configs: Sequence[ModelConfig]) -> Iterator[tuple[ModelConfig, OperatorCounts]]:
    """Yield the configs in the user's order with the counts of operators that compute something."""
    counts = {one.name: select(own, EVERY_OPERATOR).kept for one, own in counted_or_shipped(request, configs)}
    yield from ((config, counts[config.name]) for config in configs)


def _counted_profile(config: ModelConfig, counts: OperatorCounts, result: ModelResult | None) -> ModelProfile:
    reason = None
    if not config.shape:
        reason = "the model comes with its inputs, and no config describes them"
        reason = "the first input is a single value" if config.inputs is not None else reason
    costs = {} if result is None else {one.key: one.costs for one in operator_costs(result, None, TIME)}
    most_flop, most_bytes = max(1, counts.total_flop), max(1, counts.total_memory_bytes)
    lines: dict[ProfiledOperator, float] = {}
    # In several phases an operator has one cost.
    for own in grouped(counts.counts, lambda count: count.operator.key).values():
        count, calls = own[0], sum(one.occurrences for one in own)
        operator, cost = count.operator, costs.get(count.operator.key)
        line = ProfiledOperator(
            operator=operator.operator,
            parameters=operator.parameters_text,
            inputs=operator.inputs_text,
            training_mode=operator.mode,
            calls=calls,
            flop=None if count.flop is None else calls * count.flop,
            memory_bytes=calls * count.memory_bytes,
            time_s=None if cost is None else cost.time_s,
            energy_j=None if cost is None else cost.energy_j,
            time_ratio=None if cost is None else cost.time_ratio,
            energy_ratio=None if cost is None else cost.energy_ratio,
        )
        lines[line] = max((line.flop or 0) / most_flop, line.memory_bytes / most_bytes)
    return ModelProfile(
        name=config.name,
        config=str(config.path),
        input_size=config.shape,
        flop=counts.total_flop,
        memory_bytes=counts.total_memory_bytes,
        parameters=counts.parameters,
        counted_on=counts.device_type,
        operators=tuple(
            sorted(lines, key=lambda line: (-(line.time_s or 0.0), -lines[line], line.operator, line.inputs))
        ),
        flop_missing_reason=counts.flop_missing_reason,
        missing_ratio=counts.missing_ratio,
        missing_operations=counts.outside,
        input_size_missing_reason=reason,
    )


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
        weights = (weight for weight in self.model.parameters() if weight.is_floating_point())
        found = {str(weight.dtype).removeprefix("torch.") for weight in weights}
        return next(iter(found)) if len(found) == 1 else None if found else FLOAT32

    def checked_precision(self) -> str:
        """Raise UserError: it needs weights of another dtype."""
        usual = next((name for name, dtype in DTYPES.items() if dtype == self.dtype), TORCH_DEFAULT)
        if self.precision is None:
            return usual
        needed = DTYPES.get(self.precision, FLOAT32)
        if self.dtype not in (None, needed):
            remedy = f"convert model and inputs with .to(torch.{needed}) first, or leave precision out"
            found = f"needs weights in {needed}, and these are {self.dtype}"
            raise UserError(f"precision: {self.precision} {found}; {remedy}")
        return self.precision


def profile_object(
    request: RunRequest, own: ObjectModel, progress: Progress, protocol_for: ProtocolFor | None
) -> Profile:
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
        return profile_counted(counted.request, [counted.config], progress, measuring, is_kept=False)


def predict_object(
    request: RunRequest, own: ObjectModel, choice: Choice, cache: Path, progress: Progress
) -> Prediction:
    """Return the cost of a model that is an object, measured or predicted. Raises UserError: see ``predictions``."""
    with counted_object(request, own) as one:
        wanted, counted = WantedModel(one.config.model_name), (one.config, one.counts)
        wish = PredictionRequest(wanted, choice.device, choice.execution, counted=counted)
        return predict(one.request, wish, cache, progress)


@dataclass(frozen=True)
class CountedObject:
    """A borrowed model with its counts and its config, which is in the temporary folder of the request."""

    request: RunRequest
    ready: ReadyModel
    config: ModelConfig
    counts: OperatorCounts


@contextmanager
def counted_object(request: RunRequest, own: ObjectModel) -> Iterator[CountedObject]:
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
        folders = stack.enter_context(scratch_folder(request.folders, []))
        request = replace(request, folders=folders, device=device_of(ready))
        name, context = type(own.model).__name__, partial(autocast, precision, str(request.device))
        try:
            with reported_switches(name):
                ready = run_first(ready, context)
                warn_of_compiled(own.name or name, ready.model)
                with context():
                    counts = capture(ready, OperatorTuple(f"{OBJECT}.{name.lower()}"), name=own.name or name)
        except CannotBuildError as error:
            raise UserError(f"{name}: {error}; leave the switch to precision") from error
        except CannotMeasureError as error:
            raise UserError(f"{name}: {error}") from error
        config = _object_config(request, ready, own, precision, counts)
        yield CountedObject(request, ready, config, replace(counts, model=model_tuple(config)))


def _object_config(
    request: RunRequest, ready: ReadyModel, own: ObjectModel, precision: str, counts: OperatorCounts
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
        write_config(Path(request.folders.own, name, SUMMARY_NAME), text)
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
