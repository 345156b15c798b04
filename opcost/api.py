"""Data frames for notebooks: rows of a database, rankings and comparisons, and the cost of a model that is an object.

Columns are those of the files (``opcost verify columns``), in SI units. A figure that is unknown is NaN or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.columns import by_column, columns_of
from opcost.comparing.layers import LayerNode, LayerRow, RunCosts
from opcost.comparing.ranking import ENERGY
from opcost.measuring.record import ComparisonRow
from opcost.measuring.setting import Setting
from opcost.operators.attention import ANY_BACKEND
from opcost.operators.training import INFERENCE
from opcost.reporting.charts import Compared, compared
from opcost.reporting.model_tables import WHOLE, WORK, layer_in_words, layer_notes, rows_of
from opcost.reporting.output import cells_of
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.reporting.ranking_tables import csv_columns, csv_lines
from opcost.reporting.tables import OPERATOR_ON_INPUTS, Column, Table, doubt_mark, work_in_words
from opcost.running.request import Request, RunRequest
from opcost.stages.compare import find_comparisons
from opcost.stages.show import Choice
from opcost.stages.show import show as find_rankings
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.storage.files import cache_folder, user_folders
from opcost.storage.language_models import language_model
from opcost.storage.table import CsvTable
from opcost.units import UNKNOWN, milli, millijoules, milliseconds, percent, ratio

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from pandas import DataFrame
    from torch import nn

    from opcost.stages.model_layers import LayersReport
    from opcost.stages.profile import CostOnDevice, ModelProfile, ProfiledOperator


OPERATORS_SHOWN = 10
"""The operators in the short table."""

SHORT_COSTS: Table[ProfiledOperator | LayerRow] = (
    Column("calls", lambda one: str(one.calls)),
    Column("ms", lambda one: milli(one.time_s)),
    Column("mJ", lambda one: milli(one.energy_j)),
    Column("share", lambda one: percent(one.time_ratio)),
    *WORK,
)
LAYERS: Table[LayerRow] = (
    Column("path", lambda one: one.path or WHOLE),
    Column("layer", layer_in_words),
    Column("on", lambda one: one.input_sizes or UNKNOWN),
)
"""The columns of short tables."""

OPERATOR_COLUMNS = ("operator", "parameters", "inputs", "calls", "flop", "memory_bytes", "time_s", "energy_j", "share")


@dataclass(frozen=True)
class Frames:
    """The tables of a database as data frames; each is read when it is asked for, and each time again."""

    database: Database

    @property
    def operators(self) -> DataFrame:
        """Measurements of operators, one row each: ``operator_measurements.csv``."""
        return _frame_of(self.database.operator_measurements)

    @property
    def models(self) -> DataFrame:
        """Measurements of whole models: ``full_model_measurements.csv``."""
        return _frame_of(self.database.full_model_measurements)

    @property
    def counts(self) -> DataFrame:
        """Operator tuples of models and grids with their calls, FLOPs and bytes: ``model_operators.csv``."""
        return _frame_of(self.database.model_operators)

    @property
    def comparisons(self) -> DataFrame:
        """Sums and whole models as they were last compared: ``sum_vs_full.csv``. ``opcost.compare`` compares again."""
        table = self.database.sum_vs_full
        newest = {row.identity: row for row in table.rows()}
        return _frame(map(cells_of, newest.values()), [field.name for field in columns_of(table.row_type)])

    @property
    def cache_corrections(self) -> DataFrame:
        """Measurements of chains, from which cache corrections are derived: ``calls_in_chains.csv``."""
        return _frame_of(self.database.calls_in_chains)

    @property
    def qualifications(self) -> DataFrame:
        """Qualifications of boards' meters: ``meter_qualifications.csv``."""
        return _frame_of(self.database.meter_qualifications)

    @property
    def drift_checks(self) -> DataFrame:
        """Measurements of the drift check: ``drift_checks.csv``."""
        return _frame_of(self.database.drift_checks)

    @property
    def failures(self) -> DataFrame:
        """Operators and models that could not be measured: ``failures.csv``."""
        return _frame_of(self.database.failures)


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
) -> DataFrame:
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
    report = find_rankings(_request(database, names), choice)
    return _frame(csv_lines(report, sort), csv_columns(report))


def compare(*names: str, device: str | None = None, database: str | Path | None = None) -> DataFrame:
    """Return the comparison of each model's sum of operators with the whole model; nothing is written.

    The device is ``cpu`` or ``cuda``, None for both; the others are as for ``show``. Raises UserError: a name matches
    no model, or a table is damaged.
    """
    reports = find_comparisons(_request(database, names, device))
    return _frame(cells_of(row) for report in reports for row in report.comparisons)


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
) -> DataFrame:
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
    from opcost.reporting.token_tables import request_lines, token_lines
    from opcost.stages.tokens import RequestSize, TokenRequest, without_refused
    from opcost.stages.tokens import tokens as find

    pairs: Any = [request] if request and isinstance(request[0], int) else request
    sizes = tuple(RequestSize(*pair) for pair in pairs)
    grid = tuple(batches), () if sizes else tuple(contexts)
    executions = (None,) if execution is None else tuple(execution.split(","))
    wish = TokenRequest(model, language_model(model), *grid, precision, device, executions, sizes, tuple(attentions))
    run_request = RunRequest(**vars(_request(database, device=device)))
    report = find(run_request, without_refused(run_request, wish), cache_folder(), progress_on_stderr())
    return _frame(request_lines(report) if sizes else token_lines(report))


def _request(database: str | Path | None, names: tuple[str, ...] = (), device: str | None = None) -> Request:
    folders = user_folders(database=None if database is None else Path(database))
    return Request(names, ModelFolders.of(folders), Database.of(folders), device)


def _frame_of(table: CsvTable[Any]) -> DataFrame:
    return _frame(map(cells_of, table.rows()), [field.name for field in columns_of(table.row_type)])


def _frame(lines: Iterable[Mapping[str, object]], names: list[str] | None = None) -> DataFrame:
    import pandas

    frame: DataFrame = pandas.DataFrame(list(lines), columns=names)
    return frame


def _typed(frame: DataFrame, floats: Iterable[str], counts: Iterable[str]) -> DataFrame:
    """Return a frame with columns of floats, also of counts if any is unknown.

    A column of None alone has the dtype object, and its sum is 0.
    """
    unknown = [name for name in counts if frame[name].isna().any()]
    typed: DataFrame = frame.astype(dict.fromkeys([*floats, *unknown], float))
    return typed


def _short_table(names: Table[Any], records: Sequence[Any]) -> DataFrame:
    """Return names and costs as texts, without columns that are unknown in all rows."""
    frame = _frame({column.title: column.text(one) for column in (*names, *SHORT_COSTS)} for one in records)
    known: DataFrame = frame.loc[:, (frame != UNKNOWN).any()]
    return known


@dataclass(frozen=True)
class WholeCost:
    """Time and energy of one run of a measured whole model, with standard errors; an unknown energy is None."""

    time_s: float
    time_standard_error_s: float | None
    energy_j: float | None
    energy_standard_error_j: float | None


@dataclass(frozen=True)
class ProfileResult:
    """The cost of a model's operators; figures are those of one run, in SI units.

    ``profile`` has all that is known. In a notebook it is shown as a table.
    """

    profile: ModelProfile

    @property
    def operators(self) -> DataFrame:
        """The operator tuples, those that take most time first; those without a row have no time, the largest first.

        FLOPs, bytes, time and energy are those of all calls. ``share`` is that of the time of all measured operators.
        Unknown figures are NaN.
        """
        fields = {**dict(zip(OPERATOR_COLUMNS, OPERATOR_COLUMNS, strict=True)), "share": "time_ratio"}
        rows = ({name: getattr(line, field) for name, field in fields.items()} for line in self.profile.operators)
        return _typed(_frame(rows, list(OPERATOR_COLUMNS)), ("time_s", "energy_j", "share"), ("flop",))

    @property
    def comparison(self) -> ComparisonRow | None:
        """The comparison of the sum of operators with the whole model; None if the whole is not measured."""
        return None if self._compared is None else self._compared.row

    @property
    def _compared(self) -> Compared | None:
        return next(iter(compared(filter(None, [self.profile.comparison]))), None)

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

    def __str__(self) -> str:
        return "\n".join([*self._lines(), self._table().to_string(index=False)])

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, self._lines()))
        return f"<p>{lines}</p>{self._table().to_html(index=False)}"

    def _lines(self) -> list[str]:
        own, one = self.profile, self._compared
        product = "" if own.conditions is None else f" on {own.conditions.device_product}"
        lines = [f"{own.name}{product}: {work_in_words(own)} in one run"]
        if own.input_size_missing_reason is not None:
            lines.append(f"size of the input unknown: {own.input_size_missing_reason}")
        if one is not None:
            lines.append(f"whole {milliseconds(one.row.full_time_s)}, {self._ratio(one, 'time')}")
            if one.row.full_energy_j is not None:
                lines.append(f"whole {millijoules(one.row.full_energy_j)}, {self._ratio(one, 'energy')}")
        return [
            *lines,
            f"{min(OPERATORS_SHOWN, len(own.operators))} of {len(own.operators)} operator tuples, the largest first:",
        ]

    @staticmethod
    def _ratio(one: Compared, quantity: str) -> str:
        """Return sum over whole of ``time`` or ``energy``, with the reasons why it is no result yet."""
        found = one.doubts(quantity)
        shown = ratio(one.row.time_ratio if quantity == "time" else one.row.energy_ratio) + doubt_mark(found)
        return f"sum / whole {shown}" + "".join(f", {doubt.value}" for doubt in found)

    def _table(self) -> DataFrame:
        return _short_table(OPERATOR_ON_INPUTS, self.profile.operators[:OPERATORS_SHOWN])


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
    (found,) = profile_object(request, own, progress_on_stderr(), protocol if measure else None).models
    return ProfileResult(found)


@dataclass(frozen=True)
class LayersResult:
    """The layers of a model with what they cost; figures are those of one run, in SI units.

    ``report`` has all that is known, ``depth`` is that of the rows, None for a row for each call. In a notebook it is
    shown as a table.
    """

    report: LayersReport
    depth: int | None = None

    @property
    def rows(self) -> DataFrame:
        """The layers in the order of execution, with the columns of `opcost verify columns`. Unknown is NaN or None.

        The times and energies add up to those of the sum of operators.
        """
        floats, counts = (
            [column.name for column in columns_of(LayerRow) if column.kind is kind] for kind in (float, int)
        )
        return _typed(_frame(map(by_column, rows_of(self.report, self.depth))), floats, counts)

    @property
    def tree(self) -> LayerNode:
        """The model with all layers inside it; each has the totals of what is inside it."""
        return self.report.layers.tree

    @property
    def costs(self) -> RunCosts:
        """The sum of operators that the layers add up to, the corrected sum, and the measured whole."""
        return self.report.costs

    def __str__(self) -> str:
        return "\n".join([self._table().to_string(index=False), *self._notes()])

    def _repr_html_(self) -> str:
        notes = "<br>".join(map(escape, self._notes()))
        return f"{self._table().to_html(index=False)}<p>{notes}</p>"

    def _notes(self) -> list[str]:
        more = ["opcost.profile(model, inputs) measures what has no row."] if self.report.lacks_rows else []
        return [*layer_notes(self.report), *more]

    def _table(self) -> DataFrame:
        return _short_table(LAYERS, rows_of(self.report, self.depth))


def layers(  # noqa: PLR0913 (a call in a notebook names its options)
    model: nn.Module,
    inputs: Any,
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
    most. All others are as for ``opcost.profile``.

    Raises:
        UserError: the model cannot be counted, no row is of the device, or a table is damaged.
        Exception: any that the model raises on these inputs, as it is.
    """
    # They import torch.
    from opcost.stages.model_layers import layers_of_object
    from opcost.stages.profile import ObjectModel

    own = ObjectModel(model, inputs, name, precision)
    request = RunRequest(**vars(_request(database)))
    return LayersResult(layers_of_object(request, own, Choice(device=device, execution=execution)), depth)
