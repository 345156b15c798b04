"""The commands that look, for Python and notebooks: results are tables, data frames and typed objects.

Columns are those of the files (``opcost verify columns``), in SI units. A figure that is unknown is NaN or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import SystemRandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from opcost.columns import by_column, columns_of, grouped
from opcost.comparing.layers import LayerNode, LayerRow, RunCosts
from opcost.comparing.ranking import ENERGY
from opcost.errors import UserError
from opcost.estimates import total_if_known
from opcost.measuring.conditions import CONTIGUOUS
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.measuring.record import ComparisonRow
from opcost.measuring.setting import Setting
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.sweep_axes import Axis, AxisKind
from opcost.operators.training import INFERENCE
from opcost.reporting.charts import bars, compared, parity_chart
from opcost.reporting.comparison_tables import print_comparisons
from opcost.reporting.markup import Chart, log_axis
from opcost.reporting.model_tables import WHOLE, print_layers, print_profile, rows_of
from opcost.reporting.output import cells_of
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.reporting.ranking_tables import csv_columns, csv_lines, print_rankings
from opcost.reporting.results import Result, View, frame_of
from opcost.reporting.tables import print_line, short_texts
from opcost.running.request import Request, RunRequest
from opcost.stages.compare import ComparingReport, find_comparisons
from opcost.stages.predict import Prediction, PredictionRequest
from opcost.stages.predict import predict as find_prediction
from opcost.stages.show import Choice, ShowReport, rankings_of
from opcost.stages.show import show as find_rankings
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.storage.files import cache_folder, user_folders
from opcost.storage.language_models import language_model
from opcost.storage.table import CsvTable
from opcost.units import MILLI

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from pandas import DataFrame
    from torch import nn

    from opcost.comparing.predicted_run import PredictedCalls
    from opcost.stages.model_layers import LayersReport
    from opcost.stages.profile import CostOnDevice, ModelProfile, Profile
    from opcost.stages.sweep import SweepResult
    from opcost.stages.tokens import TokenReport
    from opcost.summing.summation import Part


OPERATOR_COLUMNS = ("operator", "parameters", "inputs", "calls", "flop", "memory_bytes", "time_s", "energy_j", "share")

ALL = 10**9
"""More rows than any table has: a result cuts its tables itself."""


@dataclass(frozen=True)
class Frames:
    """The tables of a database as data frames; each is read when it is asked for, and each time again."""

    database: Database

    def __repr__(self) -> str:
        names = ", ".join(name for name, one in vars(Frames).items() if isinstance(one, property))
        shipped = "" if self.database.shipped is None else f" and {self.database.shipped}"
        return f"<Frames of {self.database.folder}{shipped}: {names}>"

    @property
    def operators(self) -> DataFrame:
        """Measurements of operators, one row each: ``operator_measurements.csv``."""
        return _rows_of(self.database.operator_measurements)

    @property
    def models(self) -> DataFrame:
        """Measurements of whole models: ``full_model_measurements.csv``."""
        return _rows_of(self.database.full_model_measurements)

    @property
    def counts(self) -> DataFrame:
        """Operator tuples of models and grids with their calls, FLOPs and bytes: ``model_operators.csv``."""
        return _rows_of(self.database.model_operators)

    @property
    def comparisons(self) -> DataFrame:
        """Sums and whole models as they were last compared: ``sum_vs_full.csv``. ``opcost.compare`` compares again."""
        table = self.database.sum_vs_full
        newest = {row.identity: row for row in table.rows()}
        return frame_of(map(cells_of, newest.values()), [field.name for field in columns_of(table.row_type)])

    @property
    def cache_corrections(self) -> DataFrame:
        """Measurements of chains, from which cache corrections are derived: ``calls_in_chains.csv``."""
        return _rows_of(self.database.calls_in_chains)

    @property
    def qualifications(self) -> DataFrame:
        """Qualifications of boards' meters: ``meter_qualifications.csv``."""
        return _rows_of(self.database.meter_qualifications)

    @property
    def drift_checks(self) -> DataFrame:
        """Measurements of the drift check: ``drift_checks.csv``."""
        return _rows_of(self.database.drift_checks)

    @property
    def failures(self) -> DataFrame:
        """Operators and models that could not be measured: ``failures.csv``."""
        return _rows_of(self.database.failures)


def load(database: str | Path | None = None) -> Frames:
    """Return the tables of a database as data frames.

    Args:
        database: the folder of tables; None for the shipped tables and those of the user's home, as in the commands.

    Raises UserError: there is no such folder. A table that is damaged raises one when it is read.
    """
    found = _request(database).database
    found.must_exist()
    return Frames(found)


def show(  # noqa: PLR0913 (a call in a notebook names its options)
    *names: str,
    sort: str = ENERGY,
    device: str | None = None,
    execution: str | None = None,
    operators: bool = False,
    precision: str | None = None,
    memory_format: str | None = None,
    batch: int | None = None,
    mode: str = INFERENCE,
    database: str | Path | None = None,
) -> Result[ShowReport]:
    """Return the models by the energy of a sample, one row each, or with ``operators`` a row for each operator.

    Args:
        names: models, folders of models, or globs; all that are measured if there is none.
        sort: ``energy``, ``time``, ``power``, ``saving`` or ``name``.
        device: ``cpu``, ``cuda`` or a part of a device's name, several with commas; None for all.
        execution: ``graph`` or ``eager``; None for graph on a GPU and eager on a CPU.
        operators: whether to return the operators of the models, the largest of each model first.
        precision: such as ``bf16``; None for that of the named models' configs.
        memory_format: ``channels_last`` or ``contiguous``; None as for ``precision``.
        batch: samples of a run; None as for ``precision``.
        mode: ``inference``, or ``training`` for training steps.
        database: see ``load``.

    Raises UserError: a name matches no model, nothing is measured, or a table is damaged.
    """
    choice = Choice(sort, device, execution, operators, precision, memory_format, batch, mode)
    found = find_rankings(_request(database, names), choice, cache_folder())
    frame: Callable[[ShowReport], DataFrame] = lambda one: frame_of(csv_lines(one, sort), csv_columns(one))  # noqa: E731
    return Result(found, View(partial(print_rankings, by=sort, top=ALL), frame, _ranking_chart))


def _ranking_chart(report: ShowReport) -> Chart | None:
    if report.has_operators:
        kinds = report.models[0].kinds if report.models else ()
        return _bars(((one.operator, one.costs.time_s, one.costs.energy_j) for one in kinds), "of a run")
    rows = [model.row for model in report.models]
    costs = ((row.name, row.time_per_sample_s, row.energy_per_sample_j) for row in rows)
    return _bars(costs, "per sample")


def compare(
    *names: str, device: str | None = None, database: str | Path | None = None
) -> Result[Sequence[ComparingReport]]:
    """Return the comparison of each model's sum of operators with the whole model; nothing is written.

    The device is ``cpu`` or ``cuda``, None for both; the others are as for ``show``. Raises UserError: a name matches
    no model, or a table is damaged.
    """
    return Result(find_comparisons(_request(database, names, device)), COMPARED)


COMPARED: View[Sequence[ComparingReport]] = View(
    partial(print_comparisons, dry_run=False),
    lambda reports: frame_of(cells_of(row) for report in reports for row in report.comparisons),
    lambda reports: parity_chart(compared(reports)) if any(report.comparisons for report in reports) else None,
)


def report(
    *names: str, output: str | Path = "report.html", device: str | None = None, database: str | Path | None = None
) -> Path:
    """Write sums and whole models as one HTML file that opens offline in any browser; return its path.

    The models are as for ``show``, all that are counted or shipped if none is named; a file of this name is replaced.
    The device is that of ``layers``. Raises UserError: a name matches no model, or a table is damaged.
    """
    from opcost.reporting.report import write_report

    request = _request(database, names, device)
    # The ranking needs the same tables as the comparison.
    request = replace(request, database=request.database.read_once())
    write_report(Path(output), request, find_comparisons(request), rankings_of(request))
    return Path(output)


def tokens(  # noqa: PLR0913 (a call in a notebook names its options)
    model: str,
    batches: Sequence[int] = (1, 8, 32),
    contexts: Sequence[int] = (512, 2048),
    *,
    precision: str = "bf16",
    device: str | None = None,
    execution: str | None = None,
    attentions: Sequence[str] = (ANY_BACKEND,),
    request: tuple[int, int] | Sequence[tuple[int, int]] = (),
    database: str | Path | None = None,
) -> Result[TokenReport]:
    """Return the costs of prefills and decode steps of a language model, a row each, measured or predicted.

    With ``request`` the rows are instead of requests, each made in batches of such, with time in s and energy in J.

    Args:
        model: a public architecture such as ``llama-3.2-1b``, the path of a ``config.json``, or ``transformers:CLASS``.
        batches: texts of a decode step.
        contexts: tokens that each text of a decode step attends to, and of the prompt of a prefill.
        precision: of weights and arithmetic.
        device: a part of a device's name; None for the one with most rows.
        execution: see ``show``; ``graph,eager`` has both beside each other.
        attentions: kinds of attention beside each other: back ends of torch that run it alone (``flash``,
            ``efficient``, ``cudnn``, ``math``), forms of the model's calls (``sdpa``, ``copied``, ``packed``,
            ``unmasked``, ``eager``), or both as in ``unmasked:flash``. Those that cannot run have no rows.
        request: the tokens of a prompt and those that are made, ``(2048, 256)``, or several such pairs.
        database: see ``load``.

    Raises UserError: there is no such model, it cannot be counted, or nothing is measured under such conditions.
    """
    # They import torch.
    from opcost.reporting.token_tables import print_tokens, request_lines, token_lines
    from opcost.stages.tokens import RequestSize, TokenRequest, without_refused
    from opcost.stages.tokens import tokens as find

    pairs: Any = [request] if request and isinstance(request[0], int) else request
    sizes = tuple(RequestSize(*pair) for pair in pairs)
    grid = tuple(batches), () if sizes else tuple(contexts)
    executions = (None,) if execution is None else tuple(execution.split(","))
    wish = TokenRequest(model, language_model(model), *grid, precision, device, executions, sizes, tuple(attentions))
    run_request = RunRequest(**vars(_request(database, device=device)))
    report = find(run_request, without_refused(run_request, wish), cache_folder(), progress_on_stderr())
    lines = request_lines if sizes else token_lines
    view: View[TokenReport] = View(print_tokens, lambda one: frame_of(lines(one)), _token_chart)
    return Result(report, view)


def _token_chart(found: TokenReport) -> Chart | None:
    costs = []
    for one in found.costs:
        energy = one.energy_of_token_j
        name = f"{one.point.mode} of {one.point.batch} x {one.point.context}"
        costs.append((name, 1 / one.tokens_per_s, None if energy is None else energy.value))
    return _bars(costs, "per token")


def predict(  # noqa: PLR0913 (a call in a notebook names its options)
    model: str | nn.Module,
    inputs: Any = None,
    *,
    batch: int | None = None,
    input_size: Sequence[int] = (),
    arguments: Mapping[str, Any] = MappingProxyType({}),
    precision: str | None = None,
    memory_format: str = CONTIGUOUS,
    device: str | None = None,
    execution: str | None = None,
    allow_code: bool = False,
    database: str | Path | None = None,
) -> Result[Prediction]:
    """Predict what one run of a model costs on a device, from measured operators, without a GPU.

    A model that was measured whole has that cost, and its prediction is a check. The first call learns for 75 s or
    more.

    Args:
        model: a name as ``opcost predict`` takes it (``resnet50``, ``timm:NAME``, ``transformers:CLASS``,
            ``net.py:build``, or a folder of a config), or a module, which is counted as by ``profile``.
        inputs: of a module, as for ``profile``. The options up to ``memory_format`` are of names.
        batch: samples of a run; None for those of the input size.
        input_size: batch first; empty for the published one.
        arguments: of the class or function that builds the model.
        precision: see ``profile``; None for torch's default, and for a module the usual one of its weights.
        memory_format: ``channels_last`` or ``contiguous``.
        device: a part of a product's name such as ``H200``; None for the one with the most rows.
        execution: see ``show``.
        allow_code: whether a function of yours that builds the model may run.
        database: see ``load``.

    Raises:
        UserError: the model cannot be counted, or nothing is measured under such conditions.
        Exception: any that a module raises on its inputs, as it is.
    """
    from opcost.reporting.model_tables import prediction_line, print_prediction

    request, progress = RunRequest(**vars(_request(database)), allow_code=allow_code), progress_on_stderr()
    if isinstance(model, str):
        if inputs is not None:
            raise UserError("inputs: those of a model's name are found by it; give input_size, or pass a module")
        named = _wanted(model, input_size, arguments, precision, memory_format)
        found = find_prediction(request, PredictionRequest(named, device, execution, batch), cache_folder(), progress)
    else:
        # They import torch.
        from opcost.stages.profile import ObjectModel, predict_object

        if batch is not None or input_size or arguments:
            raise UserError("batch, input_size and arguments are of a model's name; a module has its inputs")
        own = ObjectModel(model, inputs, None, precision)
        choice = Choice(device=device, execution=execution)
        found = predict_object(request, own, choice, cache_folder(), progress)
    view: View[Prediction] = View(print_prediction, lambda one: frame_of([prediction_line(one)]), _prediction_chart)
    return Result(found, view)


def _prediction_chart(found: Prediction) -> Chart | None:
    parts: tuple[Part | PredictedCalls, ...] = (*found.result.cost.parts, *found.run.calls)
    of_parts = ((part.case.operator.short_name, part.time_s, part.energy_j) for part in parts)
    costs = [
        (kind, sum(time_s for _, time_s, _ in own), total_if_known(energy_j for *_, energy_j in own))
        for kind, own in grouped(of_parts, lambda part: part[0]).items()
    ]
    return _bars(_largest(costs), "of a run by its operators")


def sweep(  # noqa: PLR0913 (a call in a notebook names its options)
    model: str,
    *,
    size: str | Iterable[int] | None = None,
    tokens: str | Iterable[int] | None = None,
    batch: str | Iterable[int] | None = None,
    context: str | Iterable[int] | None = None,
    input_size: Sequence[int] = (),
    arguments: Mapping[str, Any] = MappingProxyType({}),
    precision: str | None = None,
    memory_format: str = CONTIGUOUS,
    measure: bool = True,
    repetitions: int = 10,
    seconds: float = 1.0,
    device: str | None = None,
    execution: str | None = None,
    allow_code: bool = False,
    database: str | Path | None = None,
) -> Result[SweepResult]:
    """Measure and predict a model's time and energy over the size of its input, a row for each size.

    One of ``size``, ``tokens``, ``batch`` and ``context`` varies; none for a config with lists. Each repetition is on
    disk before the next, so that after an interrupt the same call goes on.

    Args:
        model: a name as for ``predict``.
        size: sides of the image, such as ``"8:4096:x2"``, ``"224,256"``, or numbers.
        tokens: lengths of the text.
        batch: samples of a run.
        context: tokens that a decode step of a language model attends to.
        input_size: the input of which a number varies; empty for the published one.
        arguments: of the class or function that builds the model.
        precision: None for torch's default.
        memory_format: ``channels_last`` or ``contiguous``.
        measure: whether to measure; if not, the curve is predicted beside the repetitions that are there, and nothing
            is written.
        repetitions: of each size.
        seconds: the length of each loop.
        device: ``cpu``, ``cuda`` or ``cuda:N``; without ``measure`` also a part of a product's name.
        execution: see ``show``.
        allow_code: see ``predict``.
        database: see ``profile``.

    Raises UserError: there is no such model or axis, nothing is known of any size, or the device is not there
    or in use.
    """
    # They import torch.
    from opcost.reporting.sweeps import print_sweep, size_curves
    from opcost.stages.sweep import SweepProtocol, SweepWish, run_sweep, sweep_of

    given = {"size": size, "tokens": tokens, "batch": batch, "context": context}
    axes = [_axis(AxisKind(kind), sizes) for kind, sizes in given.items() if sizes is not None]
    if len(axes) > 1:
        raise UserError(f"{' and '.join(one.kind.value for one in axes)}: a sweep varies one of them; leave one out")
    setting = Setting(execution=execution)
    request = RunRequest(**vars(_request(database, device=device)), setting=setting, allow_code=allow_code)
    swept = sweep_of(
        request, _wanted(model, input_size, arguments, precision, memory_format), axes[0] if axes else None
    )
    protocol = SweepProtocol(repetitions, seconds, SystemRandom().getrandbits(32)) if measure else None
    found = run_sweep(request, swept, SweepWish(protocol), cache_folder(), progress_on_stderr())

    def chart(one: SweepResult) -> Chart:
        return Chart(size_curves(one.sizes, (f"{one.axis} ({one.name})", one.unit), log_axis, one.curves)[0][:2])

    view: View[SweepResult] = View(print_sweep, lambda one: frame_of(map(by_column, one.sizes)), chart)
    return Result(found, view)


def _axis(kind: AxisKind, sizes: str | Iterable[int]) -> Axis:
    try:
        return Axis.parse(kind, sizes if isinstance(sizes, str) else ",".join(map(str, sizes)))
    except ValueError as error:
        raise UserError(f"{kind.value}: {error}") from None


def _wanted(
    model: str, input_size: Sequence[int], arguments: Mapping[str, Any], precision: str | None, memory_format: str
) -> WantedModel:
    wanted = WantedModel(model, tuple(input_size), precision or TORCH_DEFAULT, memory_format)
    return wanted.with_arguments(arguments)


def _request(database: str | Path | None, names: tuple[str, ...] = (), device: str | None = None) -> Request:
    folders = user_folders(database=None if database is None else Path(database))
    return Request(names, ModelFolders.of(folders), Database.of(folders), device)


def _rows_of(table: CsvTable[Any]) -> DataFrame:
    return frame_of(map(cells_of, table.rows()), [field.name for field in columns_of(table.row_type)])


def _typed(frame: DataFrame, floats: Iterable[str], counts: Iterable[str]) -> DataFrame:
    """Return a frame with columns of floats, also of counts if any is unknown.

    A column of None alone has the dtype object, and its sum is 0.
    """
    unknown = [name for name in counts if frame[name].isna().any()]
    typed: DataFrame = frame.astype(dict.fromkeys([*floats, *unknown], float))
    return typed


NamedCost: TypeAlias = tuple[str, float | None, float | None]
"""A name with a time in s and an energy in J."""


def _bars(costs: Iterable[NamedCost], of_what: str) -> Chart | None:
    """Return a chart of energies, of times if no energy is known; None if nothing is."""
    costs = list(costs)
    energies = [(name, energy_j and energy_j / MILLI) for name, _, energy_j in costs]
    times = [(name, time_s and time_s / MILLI) for name, time_s, _ in costs]
    drawing = bars(energies, f"energy {of_what} (mJ)") or bars(times, f"time {of_what} (ms)")
    return None if drawing is None else Chart([drawing])


def _largest(costs: Iterable[NamedCost]) -> list[NamedCost]:
    return sorted(costs, key=lambda one: (one[2] or 0.0, one[1] or 0.0), reverse=True)


@dataclass(frozen=True)
class WholeCost:
    """Time and energy of one run of a measured whole model, with standard errors; an unknown energy is None."""

    time_s: float
    time_standard_error_s: float | None
    energy_j: float | None
    energy_standard_error_j: float | None


@dataclass(frozen=True, repr=False)
class ProfileResult(Result["Profile"]):
    """The cost of a model's operators; figures are those of one run, in SI units."""

    @property
    def profile(self) -> ModelProfile:
        """All that is known of the model."""
        return self.found.models[0]

    @property
    def operators(self) -> DataFrame:
        """The operator tuples, those that take most time first; those without a row have no time, the largest first.

        FLOPs, bytes, time and energy are those of all calls. ``share`` is that of the time of all measured operators.
        Unknown figures are NaN.
        """
        return self.to_frame()

    @property
    def comparison(self) -> ComparisonRow | None:
        """The comparison of the sum of operators with the whole model; None if the whole is not measured."""
        found = None if self.profile.comparison is None else self.profile.comparison.comparisons
        return found[0] if found else None

    @property
    def whole(self) -> WholeCost | None:
        row = self.comparison
        if row is None:
            return None
        energy = row.full_energy_j, row.full_energy_standard_error_j
        return WholeCost(row.full_time_s, row.full_time_standard_error_s, *energy)

    @property
    def known(self) -> tuple[CostOnDevice, ...]:
        """The costs in the database, of each device, if nothing was measured."""
        return self.profile.known


def _show_profile(found: Profile) -> None:
    print_profile(found, (), ALL)
    for model in found.models:
        if model.input_size_missing_reason is not None:
            print_line(f"size of the input unknown: {model.input_size_missing_reason}")


def _operators_frame(found: Profile) -> DataFrame:
    fields = {**dict(zip(OPERATOR_COLUMNS, OPERATOR_COLUMNS, strict=True)), "share": "time_ratio"}
    rows = ({name: getattr(line, field) for name, field in fields.items()} for line in found.models[0].operators)
    return _typed(frame_of(rows, list(OPERATOR_COLUMNS)), ("time_s", "energy_j", "share"), ("flop",))


def _profile_chart(found: Profile) -> Chart | None:
    operators = found.models[0].operators
    return _bars(_largest((" ".join(short_texts(one)), one.time_s, one.energy_j) for one in operators), "of a run")


def profile(  # noqa: PLR0913 (a call in a notebook names its options)
    model: nn.Module,
    inputs: Any,
    *,
    name: str | None = None,
    device: str | None = None,
    precision: str | None = None,
    measure: bool = True,
    relative_error: float = 0.01,
    seconds: float | None = None,
    execution: str | None = None,
    database: str | Path | None = None,
) -> ProfileResult:
    """Count a model, measure the operators that the database lacks and the whole, and return what each operator costs.

    The model is put into eval mode for the time of the profile. Afterwards it is as before: modes, device, weights,
    gradients and buffers, also after an exception. Rows are saved one by one: after an interrupt the same call goes on.
    The same model, by its operators and their calls, finds its rows again.

    Args:
        model: the model, with weights of one floating-point type.
        inputs: an example: a tensor, a tuple or a list of positional arguments, or a dict or another mapping of keyword
            arguments. It is copied.
        name: the model's name in tables; None for that of its class.
        device: ``cpu``, ``cuda`` or ``cuda:N``; None for the model's own.
        precision: ``torch-default``, ``fp32``, ``tf32``, ``amp-bf16``, ``bf16`` or ``fp16``; None for the usual one of
            the weights' dtype.
        measure: whether to measure; if not, the result has FLOPs, bytes and the costs in the database.
        relative_error: each loop ends when the 95 % intervals of time and energy are within this ratio.
        seconds: instead, the length of each loop in s.
        execution: ``graph`` or ``eager``; None for graph on a GPU and eager on a CPU.
        database: the folder of tables; None for that of the user's home, with the shipped rows beside it.

    Raises:
        UserError: the model cannot be counted, the device is not there or in use, or a table is damaged.
        Exception: any that the model raises on these inputs, as it is.
    """
    # They import torch.
    from opcost.measuring.protocol import protocol_for
    from opcost.stages.profile import ObjectModel, profile_object

    setting = Setting(execution=execution)
    request = RunRequest(**vars(_request(database, device=device)), setting=setting, in_state=True)
    own = ObjectModel(model, inputs, name, precision)
    of_error = partial(protocol_for, relative_error=relative_error)
    protocol = of_error if seconds is None else partial(protocol_for, loop_s=seconds)
    found = profile_object(request, own, progress_on_stderr(), protocol if measure else None)
    view: View[Profile] = View(_show_profile, _operators_frame, _profile_chart)
    return ProfileResult(found, view)


@dataclass(frozen=True, repr=False)
class LayersResult(Result["LayersReport"]):
    """The layers of a model with what they cost; figures are those of one run, in SI units.

    The rows are in the order of execution, with the columns of `opcost verify columns`. The times and energies add up
    to those of the sum of operators.
    """

    @property
    def rows(self) -> DataFrame:
        return self.to_frame()

    @property
    def tree(self) -> LayerNode:
        """The model with all layers inside it; each has the totals of what is inside it."""
        return self.found.layers.tree

    @property
    def costs(self) -> RunCosts:
        """The sum of operators that the layers add up to, the corrected sum, and the measured whole."""
        return self.found.costs


def layers(  # noqa: PLR0913 (a call in a notebook names its options)
    model: str | nn.Module,
    inputs: Any = None,
    *,
    depth: int | None = None,
    name: str | None = None,
    device: str | None = None,
    precision: str | None = None,
    execution: str | None = None,
    database: str | Path | None = None,
) -> LayersResult:
    """Run a model once, and return its layers in the order of execution with what each costs, from rows.

    Nothing is measured: ``opcost.profile`` measures the operators of the same model. The model is as before afterwards.
    With ``depth`` there is one row for each module with this many names in its path, without it one for each call. The
    rows are of ``device``: ``cpu``, ``cuda``, or a part of a product's name such as ``H200``; None is the one with the
    most. All others are as for ``opcost.profile``. A model may also be given by its name, as for ``opcost.predict``.

    Raises:
        UserError: the model cannot be counted, no row is of the device, or a table is damaged.
        Exception: any that the model raises on these inputs, as it is.
    """
    # They import torch.
    from opcost.stages.model_layers import find_layers, layers_of_object
    from opcost.stages.profile import ObjectModel

    request, choice = RunRequest(**vars(_request(database))), Choice(device=device, execution=execution)
    floats, counts = ([column.name for column in columns_of(LayerRow) if column.kind is kind] for kind in (float, int))

    def show(found: LayersReport) -> None:
        print_layers(found, depth)
        if found.lacks_rows:
            print_line("opcost.profile(model, inputs) measures what has no row.")

    def frame(found: LayersReport) -> DataFrame:
        return _typed(frame_of(map(by_column, rows_of(found, depth))), floats, counts)

    def chart(found: LayersReport) -> Chart | None:
        costs = ((one.path or WHOLE, one.time_s, one.energy_j) for one in rows_of(found, depth))
        return _bars(_largest(costs), "of a run")

    if isinstance(model, str):
        if inputs is not None or name is not None:
            raise UserError("inputs, name: those of a model's name are found by it; pass a module")
        found = find_layers(request, _wanted(model, (), {}, precision, CONTIGUOUS), choice, progress_on_stderr())
    else:
        found = layers_of_object(request, ObjectModel(model, inputs, name, precision), choice)
    return LayersResult(found, View(show, frame, chart))
