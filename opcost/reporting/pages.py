"""Pages of ``docs/``: the columns of all tables from their declarations, and the coverage of FLOPs and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.columns import COLUMN_HEAD, Field, columns_of, described, fields_of
from opcost.comparing.conditions_side_by_side import KindSides, OperatorSides
from opcost.comparing.data_set import DATA_SET_TITLE, DataSetRow, data_columns
from opcost.measuring.flags import CASTING_DOUBT, Flag
from opcost.measuring.record import MeasurementRow
from opcost.metering.layers import MeteredKindRow, MeteredLayerRow
from opcost.metering.window_energy import MeteredWindowRow
from opcost.reporting.model_tables import LayerLine
from opcost.reporting.ranking_tables import ModelLine, OperatorLine
from opcost.storage.database import Database
from opcost.storage.table import CHECKSUM
from opcost.units import UNKNOWN, number_of, percent
from opcost.version import __version__

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.verify import CoverageReport, CoverageRow

BEGINNING = f"""\
# The columns of the database

Made by `opcost verify columns`. Units are SI; 1 is the unit of ratios and shares. An empty cell is unknown, never
zero. A cell with an impossible value is refused. Each table's last column is `{CHECKSUM}`, the CRC-32 of the line's
other cells. A line with a wrong checksum was damaged or changed, and is refused. Delete it, or empty its checksum if
you changed the line on purpose.
"""

CARD = """\
# {title}

Made by `opcost export`, version {version}: {rows} of operators, a table for each kind{wholes}.
They are of {devices}, with torch {torch}, from {first} to {last}. Each is the mean cost of a call, with its
standard error and all conditions. `datapackage.json` lists the tables with their columns, sizes and hashes.
`CITATION.cff` says how to cite them.

Read CSV with `pandas.read_csv(file, keep_default_na=False, na_values=[""])`: otherwise a parameter that is None is an
empty cell.

## Columns

Units are SI; 1 is the unit of ratios and shares. An empty cell is unknown, never zero. In CSV
a text that a spreadsheet would run as a formula begins with an apostrophe. Capital letters in a name stand for a name
or a number: `input_N_size_M` for `input_0_size_1`.
"""

HEAD = f"| {' | '.join(COLUMN_HEAD)} |\n|---|---|---|---|---|"
SHOWN: Mapping[Any, list[str]] = {
    ModelLine: ["Models of `opcost show --csv`, and of `opcost.show`"],
    OperatorLine: ["Operators of `opcost show --operators --csv`"],
    DataSetRow: ["Tables of `opcost export`"],
    LayerLine: ["Layers of `opcost layers --csv`, and of `opcost.layers`"],
    KindSides: ["Kinds of operators of `opcost compare --against --json`"],
    MeteredLayerRow: ["Layers of `opcost.LayerwiseEnergy`"],
    MeteredKindRow: ["Classes of layers of `opcost.LayerwiseEnergy`"],
    MeteredWindowRow: ["Windows of `opcost.EnergyMeter`"],
    OperatorSides: ["Operators of `opcost compare --against --json`"],
}
"""The rows that are printed, not stored, with their titles."""


def database_page() -> str:
    """Return the page: a section for each kind of row, for each group of columns that several have, and for flags."""
    files: dict[Any, list[str]] = {}
    for table in Database(Path()).tables:
        files.setdefault(table.row_type, []).append(f"`{table.path.name}`")
    files |= SHOWN
    # Groups of columns that rows of several kinds have.
    counts = Counter(field.kind for row_type in files for field in fields_of(row_type) if field.is_group)
    shared = [kind for kind, number in counts.items() if number > 1]
    rows = [_section(", ".join(names), row_type, shared) for row_type, names in files.items()]
    groups = [_section(kind.__name__, kind, ()) for kind in shared]
    return "\n".join([BEGINNING, *rows, *groups, *_flags(), ""])


def _flags() -> Iterable[str]:
    flags = [f"| `{flag.value}` | {'yes' if flag in CASTING_DOUBT else ''} | {flag.meaning} |" for flag in Flag]
    return ("## Flags", "", "| flag | casts doubt | meaning |\n|---|---|---|", *flags)


def _section(title: str, kind: Any, shared: Iterable[Any]) -> str:
    kinds = [kind, *(field.kind for field in fields_of(kind) if field.is_group and field.kind not in shared)]
    texts = "\n\n".join(str(getdoc(each)).replace("``", "`") for each in kinds)
    return "\n".join([f"## {title}", "", texts, "", HEAD, *_lines(kind, shared), ""])


def _lines(kind: Any, shared: Iterable[Any]) -> Iterator[str]:
    for field in fields_of(kind):
        if not field.is_group:
            yield _line(field)
        elif field.kind not in shared:
            yield from _lines(field.kind, shared)
        else:
            first, *_, last = columns_of(field.kind)
            name = field.kind.__name__
            yield f"| `{first.name}` to `{last.name}` | | | | [{name}](#{name.lower()}) |"


def _line(field: Field) -> str:
    name, *others = described(field)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (f'`{name}`', *others))} |"


def data_card(rows: Sequence[MeasurementRow], wholes: Sequence[MeasurementRow]) -> str:
    """Return the page of a data set of operators and of whole models."""
    every = [*rows, *wholes]
    devices = Counter(row.conditions.device_product for row in every)
    versions = sorted({row.conditions.torch_version for row in every})
    moments = sorted(row.measurement.ended_at[:10] for row in every)
    beginning = CARD.format(
        title=DATA_SET_TITLE,
        version=__version__,
        rows=number_of(len(rows), "measurement"),
        wholes=f", and {len(wholes)} of whole models" if wholes else "",
        devices=", ".join(f"{product} ({number})" for product, number in devices.most_common()),
        torch=", ".join(versions),
        first=moments[0],
        last=moments[-1],
    )
    return "\n".join([beginning, HEAD, *map(_line, data_columns()), "", *_flags(), ""])


TOLERANCE_RATIO = 0.005
"""The largest deviation of multiply-adds from the published figure, which counts the same operations."""

PUBLISHED_STEP = 1e6
"""Published multiply-adds are rounded to 0.001 · 10⁹."""

TEMPLATE = """\
# FLOPs and bytes in operator tuples

Made on {date} by `{command}` with {libraries}, {device}.

Each model ran twice on the same weights and input: unobserved, with each ATen operation counted as torch dispatches it,
and captured into operator tuples. Random weights in the published graph, seed 0, published input size, one sample.

{summary}

- **modules**, **functions**: calls of each kind in one run; **tuples**: the distinct ones. Functions that compute
  nothing are left out. **operations**: ATen operations that compute, in the unobserved run.
- **FLOPs**, **bytes**: the share of the unobserved run's FLOPs and bytes in tuples.
- **GMAC**: 10⁹ multiply-adds of the unobserved run. **published**: torchvision's `weights.meta["_ops"]`.
  **parameters**: `=` if equal to `num_params`.
- **meta**: `=` if a capture on the meta device gives the same tuples with the same numbers of calls, else the number of
  tuples that differ; then the ratio of its bytes to the device's, if they differ.

{table}
"""


def coverage_page(report: CoverageReport, command: str) -> str:
    unchecked = [f"- not checked: {failure.model_name} ({failure.reason})" for failure in report.failures]
    columns: tuple[tuple[str, str, Callable[[CoverageRow], object]], ...] = (
        ("model", "---", lambda row: row.model_name),
        ("input", "---", lambda row: "x".join(map(str, row.input_size))),
        ("on", "---", lambda row: row.device),
        ("modules", "--:", lambda row: row.module_calls),
        ("functions", "--:", lambda row: row.function_calls),
        ("tuples", "--:", lambda row: row.tuples),
        ("operations", "--:", lambda row: row.operations),
        ("FLOPs", "--:", lambda row: percent(row.flop_ratio, 4)),
        ("bytes", "--:", lambda row: percent(row.memory_bytes_ratio, 4)),
        ("GMAC", "--:", lambda row: _billions(row.multiply_adds)),
        ("published", "--:", lambda row: _billions(row.published.multiply_adds)),
        ("parameters", ":-:", _parameters),
        ("meta", ":-:", _meta),
        ("remark", "---", _remarks),
    )
    lines = [[title for title, _, _ in columns], [align for _, align, _ in columns]]
    lines += [[str(write(row)) for _, _, write in columns] for row in report.rows]
    return TEMPLATE.format(
        date=date.today().isoformat(),
        command=command,
        device=report.device_product,
        libraries=", ".join(report.libraries),
        summary="\n".join((summary(report.rows), *unchecked)),
        table="\n".join(f"| {' | '.join(cells)} |" for cells in lines),
    )


def summary(rows: Sequence[CoverageRow]) -> str:
    """Return the worst figures of all rows, one on each line."""
    flops, memory_bytes = (
        percent(min((ratio for ratio in ratios if ratio is not None), default=None), 4)
        for ratios in ([row.flop_ratio for row in rows], [row.memory_bytes_ratio for row in rows])
    )
    outside = sorted({operation for row in rows for operation in row.outside})
    disturbed = [row.model_name for row in rows if not row.is_undisturbed]
    stated = [row for row in rows if row.published.multiply_adds is not None]
    counted = [row for row in rows if row.published.parameters is not None]
    deviating = [row.model_name for row in stated if _deviates(row)]
    unequal = [row.model_name for row in counted if row.parameters != row.published.parameters]
    unknown = [row.model_name for row in rows if row.flop_missing_reason is not None]
    return "\n".join(
        (
            f"- models: {len(rows)}",
            f"- in tuples: at least {flops} of FLOPs, {memory_bytes} of bytes",
            *([f"- models of unknown FLOPs: {', '.join(unknown)}"] if unknown else []),
            f"- operations in no tuple: {', '.join(outside) or 'none'}",
            f"- models that ran other operations while captured: {', '.join(disturbed) or 'none'}",
            f"- multiply-adds that deviate by more than {percent(TOLERANCE_RATIO)} from the published figure: "
            f"{len(deviating)} of {len(stated)}{_named(deviating)}",
            f"- numbers of parameters that deviate from the published ones: "
            f"{len(unequal)} of {len(counted)}{_named(unequal)}",
        )
    )


def _parameters(row: CoverageRow) -> str:
    if row.published.parameters is None:
        return UNKNOWN
    return "=" if row.parameters == row.published.parameters else f"{row.parameters:,} / {row.published.parameters:,}"


def _meta(row: CoverageRow) -> str:
    if row.meta_other_tuples is None or row.meta_memory_bytes_ratio is None:
        return UNKNOWN
    tuples = str(row.meta_other_tuples or "=")
    bytes_ratio = f"{row.meta_memory_bytes_ratio:.4f}"
    return tuples if float(bytes_ratio) == 1 else f"{tuples}, {bytes_ratio}"


def _remarks(row: CoverageRow) -> str:
    remarks = []
    if not row.is_undisturbed:
        remarks.append(f"captured run: {row.captured_operations} operations, different")
    if row.outside:
        remarks.append(f"in no tuple: {', '.join(row.outside)}")
    if row.flop_missing_reason is not None:
        remarks.append(row.flop_missing_reason)
    if _deviates(row):
        off = abs((row.multiply_adds or 0) - (row.published.multiply_adds or 0))
        if off <= PUBLISHED_STEP / 2:
            remarks.append("equal within the rounding of the published figure")
        elif row.proposals is None:
            remarks.append("unexplained")
        else:
            regions = f"depends on values: its box head has {row.proposals.number:,} regions here"
            remarks.append(f"{regions}; the published figure fits {row.proposals.published:,.0f}")
    return "; ".join(remarks)


def _deviates(row: CoverageRow) -> bool:
    published = row.published.multiply_adds
    if published is None or row.multiply_adds is None:
        return False
    return abs(row.multiply_adds - published) > TOLERANCE_RATIO * published


def _billions(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number / 1e9:.3f}"


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
