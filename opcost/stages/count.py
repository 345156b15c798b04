"""Block 0: count the operator tuples of each model."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from opcost.errors import AttentionRefusedError, CannotBuildError, CannotMeasureError, UserError
from opcost.estimates import ratio_if_known
from opcost.invocation import command
from opcost.measuring.conditions import device_type_of, is_gpu
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES
from opcost.measuring.setting import ChosenConditions
from opcost.operators.attention import refusal
from opcost.operators.counts import FORMULA_REMEDY, OperatorCounts, of_operators, select, share
from opcost.operators.grids import AnyGrid
from opcost.operators.training import whole_case
from opcost.operators.tuples import META, TORCHVISION_MODELS, OperatorTuple
from opcost.prediction.durations import SECONDS_PER_PARAMETER, Size
from opcost.prediction.rates import Rates
from opcost.progress import Progress, reported
from opcost.running.devices import choose_device
from opcost.running.expected_times import size_of, sizes_in
from opcost.running.request import Request, RunRequest, counted
from opcost.sources.models import ResolvedModel, resolve
from opcost.sources.python_file import CORRECT_MODEL, lent_stderr, own_frames
from opcost.sources.registry import check_that_code_may_run
from opcost.storage.configs import INPUTS_HELP, ModelConfig, clear_done, model_tuple
from opcost.storage.counts_file import write_counts
from opcost.storage.model_counts import COUNTS, has_changed_code
from opcost.torch_backend.alone import count_grid
from opcost.torch_backend.capture import capture
from opcost.torch_backend.passes import in_phase
from opcost.torch_backend.ready_model import REFUSALS
from opcost.torch_backend.switches import attending, autocast, reported_switches
from opcost.torch_backend.workload import one_line, synchronize
from opcost.units import some_of

COUNTING_RATES = {"cpu": Rates(2e-11, 5e-10, 0.3), "cuda": Rates(5e-14, 5e-13, 0.5), META: Rates(0.0, 0.0, 0.25)}
"""Rates at which models are counted, for each FLOP (on a CPU also for each thread), byte and model. CPU: eleven models
on two cores, within a factor of two (2026-11-23). GPU, meta: the mean over the project's configs (H200, two cores)."""

RUNS = 2
"""The runs of each model: the first, which is not counted, and the counted one."""

SECONDS_PER_POINT = 0.05
"""The expected time to run a point of a grid once: small convolutions on two cores (2026-11-25)."""

USUAL_SIZE = Size(5 * 10**11, 10**10, 3 * 10**7)
"""The size of a model that is neither counted nor published: about the mean of the project's configs."""


@dataclass(frozen=True)
class FormulaGap:
    """An operation without a formula in one run; shares are of the operator calls that it ran in, and of bytes."""

    operation: str
    calls: int
    memory_bytes: int
    calls_ratio: float | None
    memory_bytes_ratio: float | None


@dataclass(frozen=True)
class CountReport:
    """The counts of one model.

    FLOPs, bytes and parameters are those of the whole model run; ``counted_`` those in operator tuples,
    ``whitelisted_`` those in tuples that the whitelist keeps (None without a whitelist). FLOPs are None if an operation
    without a formula ran there; then ``flops_missing_reason`` names all of these, ``without_formula`` describes them,
    and ``least_flops`` are the FLOPs of all other operations of the run. ``outside`` names the operations in no tuple.
    ``counted_on`` is ``meta``, ``cpu`` or ``cuda``. ``left_out`` describes the tuples of a grid that torch refuses.
    """

    name: str
    operator_calls: int
    module_calls: int
    function_calls: int
    unique_tuples: int
    flops: int | None
    bytes: int
    parameters: int
    counted_flops: int | None
    counted_bytes: int
    whitelisted_flops: int | None
    whitelisted_bytes: int | None
    outside: tuple[str, ...]
    counted_on: str
    least_flops: int
    flops_missing_reason: str | None
    without_formula: tuple[FormulaGap, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class CountFailure:
    """A model that does not run on its input or cannot be counted, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class CountPlan:
    """The plan of block 0 for one model: the device, and the expected time."""

    name: str
    model: str
    counted_before: bool
    device: str
    expected_s: float


@dataclass(frozen=True)
class CensusRow:
    """The calls and tuples that compute of one model, or of all (``name`` is None); tuples of several are shared."""

    name: str | None
    calls: int
    tuples: int
    shared_tuples: int
    unshared_tuples: int


@dataclass(frozen=True)
class _Task:
    config: ModelConfig
    target: ResolvedModel | AnyGrid
    device: str
    expected_s: float

    @property
    def model(self) -> ResolvedModel:
        assert isinstance(self.target, ResolvedModel)
        return self.target


def plan_counting(request: RunRequest, on_meta: bool = False) -> list[CountPlan]:
    """Return the models that block 0 would run, without running any."""
    plans = []
    for task in _tasks(request, on_meta, request.open_configs(request.check)):
        text = str(task.target.operator if isinstance(task.target, ResolvedModel) else task.target)
        is_counted = COUNTS.path(task.config).exists()
        plans.append(CountPlan(task.config.name, text, is_counted, task.device, task.expected_s))
    return plans


def count_operators(
    request: RunRequest,
    progress: Progress,
    on_meta: bool = False,
    is_strict: bool = False,
    configs: Sequence[ModelConfig] | None = None,
) -> list[CountReport | CountFailure]:
    """Run each model once, and write its operator tuples with their occurrences to a pickle.

    If no model is named, users' code that may not run is no error: the other models are counted. ``on_meta`` runs them
    on shapes only, unless their work depends on values. ``is_strict`` refuses models with operations without a formula
    for their FLOPs. Without ``configs`` those that the request names are read.
    """
    refused: list[ModelConfig] = []
    if configs is None:
        configs, refused = request.open_and_refused()
    tasks = _tasks(request, on_meta, configs)
    whitelist = request.whitelist_if_any()
    with reported(progress, len(tasks), [task.expected_s for task in tasks]):
        reports: list[CountReport | CountFailure] = []
        faulty = ""
        for task in tasks:
            name = task.config.name
            if faulty:
                again = command("count", name, has_code=task.config.code is not None)
                reason = f"{name}: {faulty} has ended the device's work for this process; to count it, run {again}"
                progress.begin(name)
                progress.fail(reason)
                reports.append(CountFailure(name, reason))
                continue
            reports.append(_count_and_report(task, request, whitelist, progress, is_strict))
            if isinstance(reports[-1], CountFailure) and is_gpu(task.device) and not _works(task.device):
                faulty = name
    return [*reports, *(CountFailure(one.name, line) for one in refused for line in check_that_code_may_run(one))]


def count_in_memory(request: RunRequest, config: ModelConfig, progress: Progress) -> OperatorCounts:
    """Return the counts of a model, of shapes only if it runs on these. Raises UserError: it cannot be counted."""
    mistakes = [] if request.allow_code else check_that_code_may_run(config)
    if mistakes:
        raise UserError(*mistakes)

    def counts_of(on_meta: bool) -> OperatorCounts:
        (task,) = _tasks(replace(request, device=None), on_meta, [config])
        with reported(progress, 1, [task.expected_s]):
            progress.begin(config.name)
            counts, _ = _count(task)
            progress.finish(_counted_words(counts))
            return counts

    try:
        return counts_of(on_meta=True)
    except AttentionRefusedError:
        raise
    except UserError:
        # Some models run with values only.
        return counts_of(on_meta=False)


def census(request: Request) -> list[CensusRow]:
    """Return the numbers of calls and tuples of the chosen models that are counted, of each and of all together."""
    return take_census({config.name: counts for config, counts in counted(request, request.configs(), COUNTS)})


def take_census(models: Mapping[str, OperatorCounts]) -> list[CensusRow]:
    """Return a row for each model, and one for all together, in which each tuple counts once."""
    occurrences = {
        name: {count.operator: count.occurrences for count in counts.counts if count.computes}
        for name, counts in models.items()
    }
    users = Counter(operator for operators in occurrences.values() for operator in operators)
    together: Counter[OperatorTuple] = Counter()
    for operators in occurrences.values():
        together.update(operators)
    rows = []
    for name, operators in (*occurrences.items(), (None, together)):
        shared = sum(users[operator] > 1 for operator in operators)
        rows.append(CensusRow(name, sum(operators.values()), len(operators), shared, len(operators) - shared))
    return rows


def _tasks(request: RunRequest, on_meta: bool, configs: Sequence[ModelConfig]) -> list[_Task]:
    device = choose_device(request.device)
    # Finding a model runs no code of a user, and a dry run does no more.
    codes = [config.code if request.dry_run else request.code_of(config) for config in configs]
    shipped = sizes_in(request.database.model_operators, of_operators(map(model_tuple, configs)))
    tasks: list[_Task] = []
    for config, code in zip(configs, codes, strict=True):
        if config.grid is not None:
            expected_s = SECONDS_PER_POINT * config.grid.number
            tasks.append(_Task(config, config.grid, META if on_meta else device, expected_s))
        else:
            model = resolve(model_tuple(config), code)
            counted_on = model.counting_device(device, on_meta)
            expected_s = counting_s(size_of(config, shipped), counted_on)
            tasks.append(_Task(config, model, counted_on, expected_s))
    return tasks


def counting_s(size: Size | None, device: str) -> float:
    """Return the expected time to build, run and count a model of a size, None if unknown, in s."""
    size = size or USUAL_SIZE
    kind = device_type_of(device)
    rates, threads = COUNTING_RATES[kind], torch.get_num_threads() if kind == "cpu" else 1
    built_s = 0.0 if kind == META else SECONDS_PER_PARAMETER * size.parameters
    run_s = rates.per_flop * (size.flop or 0) / threads + rates.per_byte * size.memory_bytes
    return rates.per_call + built_s + RUNS * run_s


def _count_and_report(
    task: _Task, request: RunRequest, whitelist: tuple[str, ...] | None, progress: Progress, is_strict: bool
) -> CountReport | CountFailure:
    config = task.config
    progress.begin(config.name)
    try:
        counts, left_out = _count(task)
        if is_strict and counts.without_formula:
            reason = f"{config.model_name}: {counts.flop_missing_reason}; {FORMULA_REMEDY}, or count without --strict"
            raise UserError(f"{config.where(config.grid.key if config.grid else 'model_name')}: {reason}")
        if config.done and has_changed_code(config, request.database.model_operators):
            # A campaign that ends early would leave it done, with rows of its former code.
            clear_done(config.path)
        has_values = False
        with suppress(UserError):
            has_values = not counts.has_values and COUNTS.read(config).has_values
        if has_values:
            text = (
                "%s: earlier counts have input values and are kept; delete %s to replace them by counts of shapes only"
            )
            logging.getLogger(__name__).warning(text, config.name, COUNTS.path(config))
        else:
            write_counts(COUNTS.path(config), counts)
    except UserError as error:
        progress.fail(str(error))
        return CountFailure(config.name, str(error))
    progress.finish(_counted_words(counts))
    return _count_report(config.name, counts, whitelist, left_out)


def _works(device: str) -> bool:
    """Return whether a device works after a failure: a fault of CUDA, such as an index beyond a table, is for good."""
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True


def _counted_words(counts: OperatorCounts) -> str:
    text = f"{counts.operator_calls} calls of {len(counts.counts)} operator tuples"
    computing = sum(count.computes for count in counts.counts)
    return text if computing == len(counts.counts) else f"{text}, {computing} of which compute something"


def _count(task: _Task) -> tuple[OperatorCounts, tuple[str, ...]]:
    """Return the counts of a model or a grid, and a line for each kind of tuples of a grid that are left out."""
    if isinstance(task.target, ResolvedModel):
        return _count_model(task), ()
    counts, refusals = count_grid(task.target, task.device)
    if not counts.counts:
        remedy = "correct its parameters, inputs or dtypes"
        raise UserError(f"{task.config.where(task.target.key)}: no tuple is left; {refusals[0]}; {remedy}")
    return counts, tuple(refusals)


def _count_model(task: _Task) -> OperatorCounts:
    config = task.config
    try:
        context = partial(autocast, config.precision, task.device)
        # A user's model may print, and raise anything wherever it is used.
        messages = lent_stderr() if config.code is None else own_frames(config.code, CORRECT_MODEL)
        with messages, in_phase(whole_case(task.model.operator).phase):
            ready = task.model.ready_to_count(task.device, context)
            classes = {type(module).__name__ for module in ready.model.modules()}
            unknown = [name for name in config.composites if name not in classes]
            if unknown:
                mistake = f"{config.model_name} has no module of class {', '.join(unknown)}"
                raise UserError(f"{config.where('composites')}: {mistake}; it has {', '.join(sorted(classes))}")
            warn_of_compiled(config.name, ready.model)
            with reported_switches(config.model_name), attending(config.attention), context():
                counts = capture(ready, task.model.operator, config.composites, name=config.name)
                # A CPU refuses by itself, and for other reasons.
                refused = [] if task.device == "cpu" else refusals(counts, config.attention)
                if refused:
                    text = f"attention {config.attention} alone cannot run a call of it on a GPU, because {refused[0]}"
                    remedy = "choose another back end or form of its calls, or leave it out"
                    raise AttentionRefusedError(f"{config.where('attention')}: {text}; {remedy}")
                return counts
    except CannotBuildError as error:
        raise _not_built(task, error) from error
    except CannotMeasureError as error:
        raise UserError(_does_not_run(task, str(error))) from error
    except REFUSALS as error:
        raise UserError(_does_not_run(task, one_line(error))) from error


def refusals(counts: OperatorCounts, backend: str) -> list[str]:
    return list(dict.fromkeys(filter(None, (refusal(count.operator, backend) for count in counts.counts))))


def _not_built(task: _Task, error: CannotBuildError) -> UserError:
    config = task.config
    is_registered = task.model.operator.operator.startswith(TORCHVISION_MODELS) and task.model.listed.is_foreign
    keys = [key for key in ("arguments", "inputs", "input_size") if key in config.lines]
    if config.code:
        keys, remedy = [], "correct its arguments or the function" if config.arguments else "fix the function"
    elif is_registered:
        keys, remedy = [], "fix the function, which was registered with torchvision"
    elif config.inputs is not None:
        remedy = "correct its arguments or inputs"
    else:
        remedy = f"correct its {'arguments' if config.arguments else 'size'}, or {INPUTS_HELP}"
    key = error.key or next(iter(keys), "model_name")
    first, *frames = error.with_remedy(config.option(key), usual=remedy).splitlines()
    return UserError(f"{config.where(key)}: {first}", *frames)


def warn_of_compiled(model_name: str, model: nn.Module) -> None:
    """Warn of a model's modules that ``torch.compile`` has compiled, because their compiled code is not run."""
    compiled = [
        name or "itself"
        for name, module in model.named_modules()
        if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
    ]
    if compiled:
        text = "%s: counted and measured as eager, because kernels of torch.compile are no operators: %s"
        logging.getLogger(__name__).warning(text, model_name, some_of(compiled))


def _does_not_run(task: _Task, reason: str) -> str:
    config = task.config
    size = list(config.input_size) if config.input_size else f"its inputs ({task.model.operator.inputs_text})"
    # Besides its size, a model may not run with these.
    asked = {}
    if config.precision in DTYPES or config.precision in AUTOCAST_DTYPES:
        asked["precision"] = config.precision
    usual = vars(ChosenConditions())
    asked |= {key: own for key in ("memory_format", "attention") if (own := getattr(config, key)) != usual[key]}
    # A user's function may return the inputs.
    key = next((key for key in (*asked, "inputs", "input_size") if key in config.lines), "model_name")
    options = [(config.option(name), name, value) for name, value in asked.items()]
    given = [f"{option} {value}" if option else f"{name}: {value}" for option, name, value in options]
    form = f" with {', '.join(given)}" if asked else ""
    other = f"leave out {' or '.join(option or name for option, name, _ in options)}, or " if asked else ""
    chosen = "a size that it accepts and that fits into memory" if config.input_size else "inputs that it accepts"
    return (
        f"{config.where(key)}: {config.model_name} does not run{form} on {size} on {task.device} ({reason}); "
        f"{other}choose {chosen}"
    )


def _count_report(
    name: str, counts: OperatorCounts, whitelist: tuple[str, ...] | None, left_out: tuple[str, ...]
) -> CountReport:
    kept = None if whitelist is None else select(counts, whitelist).kept
    gaps = []
    for one in counts.without_formula:
        of_model = share([count for count in counts.counts if one.operation in count.without_formula], counts)
        memory_bytes_ratio = ratio_if_known(one.memory_bytes, counts.total_memory_bytes)
        gaps.append(FormulaGap(one.operation, one.calls, one.memory_bytes, of_model.calls_ratio, memory_bytes_ratio))
    return CountReport(
        name=name,
        operator_calls=counts.operator_calls,
        module_calls=counts.operator_calls - counts.function_calls,
        function_calls=counts.function_calls,
        unique_tuples=len(counts.counts),
        flops=None if counts.without_formula else counts.total_flop,
        bytes=counts.total_memory_bytes,
        parameters=counts.parameters,
        counted_flops=counts.flop,
        counted_bytes=counts.memory_bytes,
        whitelisted_flops=None if kept is None else kept.flop,
        whitelisted_bytes=None if kept is None else kept.memory_bytes,
        outside=counts.outside,
        counted_on=counts.device_type,
        least_flops=counts.total_flop,
        flops_missing_reason=counts.flop_missing_reason,
        without_formula=tuple(gaps),
        left_out=left_out,
    )
