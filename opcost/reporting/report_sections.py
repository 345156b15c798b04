"""What the report says of compared models: in the order of what people ask, each figure with what one should see."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import median

from opcost.comparing.comparison import Comparison
from opcost.comparing.kernel_times import KernelErrors
from opcost.comparing.remark_rules import NOTICEABLE_RATIO
from opcost.comparing.remarks import Remark, worded
from opcost.comparing.roofline import Roof, Roofline
from opcost.comparing.row import ComparisonRow
from opcost.comparing.tuple_costs import TupleCost, TupleFlag
from opcost.estimates import Estimate
from opcost.operators.cases import ALL
from opcost.reporting import svg, svg_charts
from opcost.reporting.compared_models import QUANTITIES, ComparedModel, compared_model, without_sizes
from opcost.reporting.html import Markup, code, figure, folded, items, paragraph, table
from opcost.reporting.next_steps import Candidate, next_steps
from opcost.reporting.svg_charts import Deviation, RooflinePlot
from opcost.stages.compare import ComparingReport, ModelComparisons
from opcost.units import percent

PICO = 1e-12

_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{4})[0-9a-f]{4}(?:-[0-9a-f]{4,12})+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/.])~?(?:/[\w.+~@-]+)+/([\w.+~@-]+)")


def without_places(text: str) -> str:
    """Return a text fit to be published: boards by four digits of their UUID, files without their folders."""
    return _PATH.sub(r"…/\1", _UUID.sub(r"\1 \2", text))


def board_of(uuid: str | None) -> str:
    """Return a board's short name."""
    return "unknown" if uuid is None else _UUID.sub(r"\2", uuid)


@dataclass(frozen=True)
class Compared:
    """One comparison, as a row and as figures show it."""

    row: ComparisonRow
    remarks: tuple[Remark, ...]
    comparison: Comparison
    kernels: KernelErrors | None
    model: ComparedModel

    @property
    def label(self) -> str:
        """Its name in the report."""
        return self.model.name

    @property
    def name(self) -> str:
        """That of the model's config."""
        return self.row.name

    @property
    def is_complete(self) -> bool:
        """Whether its sum lacks nothing: only such a sum is to equal the whole."""
        return self.row.time_s is not None and not self.row.missing_operators


def compared(models: Sequence[ModelComparisons], reports: Sequence[ComparingReport]) -> list[Compared]:
    """Return all comparisons, the models' sizes left out of names where they are not needed."""
    found = []
    for one, report in zip(models, reports, strict=True):
        of_model = zip(
            report.labels,
            report.comparisons,
            report.kinds,
            report.remarks,
            one.comparisons,
            one.kernels,
            strict=True,
        )
        for label, row, kinds, remarks, comparison, kernels in of_model:
            found.append(Compared(row, remarks, comparison, kernels, compared_model(label, row, kinds)))
    shorter = without_sizes([one.model for one in found])
    return [replace(one, model=model) for one, model in zip(found, shorter, strict=True)]


# Can I trust it?


def summary(found: Sequence[Compared], tuples: Sequence[TupleCost], reports: Sequence[ComparingReport]) -> str:
    """Return in a sentence or two what this is, and how far sums are from wholes."""
    cards = sorted({one.row.conditions.device_product for one in found})
    told = ", ".join(cards) or "no device"
    lacking = sum(one.row is None for one in tuples)
    without = f" ({lacking} more are not measured)" if lacking else ""
    first = (
        f"{len(reports)} models, {len(found)} comparisons of a sum with a measured whole, {len(tuples) - lacking} "
        f"measured operator tuples{without}, on {told}."
    )
    texts = [first, *(_verdict(found, quantity) for quantity, _ in QUANTITIES), _left_out_on_purpose(found)]
    return paragraph(" ".join(filter(None, texts)))


def _verdict(found: Sequence[Compared], quantity: str) -> str:
    off = [
        abs(ratio.value - 1) for one in found if one.is_complete and (ratio := one.model.ratio(quantity)) is not None
    ]
    if not off:
        return f"No {quantity} of a complete sum can be held against its whole."
    marks = [mark for one in found if one.is_complete for mark in _errors_of(one, quantity)]
    corrected = [abs(mark.value.value) for mark in marks if mark.look == 1]
    better = ""
    if corrected:
        those = "" if len(corrected) == len(off) else f" in {len(corrected)} of {len(off)}"
        better = f" (corrected for caches{those}: {percent(median(corrected))} and {percent(max(corrected))})"
    return f"Sums of {quantity} are {percent(median(off))} off in the median, {percent(max(off))} at worst{better}."


def _left_out_on_purpose(found: Sequence[Compared]) -> str:
    shares = {
        one.label: one.row.dropped_time_s / one.row.full_time_s
        for one in found
        if one.row.dropped_time_s is not None and one.row.counted == ALL
    }
    worst = max(shares, key=shares.__getitem__, default="")
    if not worst or shares[worst] < NOTICEABLE_RATIO:
        return ""
    left_out = percent(shares[worst])
    return f"The whitelist leaves out {left_out} of the time in {worst}, elsewhere less: sums are short by that."


def parity(found: Sequence[Compared]) -> str:
    """Return both parity figures."""
    models = [one.model for one in found if one.is_complete]
    caption = (
        "Each mark is a model. On the line, its operators sum to the measured whole; dotted: 5 % off. See whether "
        "marks stay between the dotted lines at all sizes. Bars are 95 % intervals within these runs (mostly smaller "
        f"than the mark); another run or board may differ by more.{_left_out(found)}"
    )
    return figure([svg_charts.parity(models, quantity, unit) for quantity, unit in QUANTITIES], caption)


def _left_out(found: Sequence[Compared]) -> str:
    lacking = [one.label for one in found if not one.is_complete]
    if not lacking:
        return ""
    return f" Left out, since their sums lack operators: {', '.join(lacking)}."


def errors(found: Sequence[Compared]) -> str:
    """Return how the errors of sums are distributed."""
    complete = [one for one in found if one.is_complete]
    drawings = []
    for quantity, _ in QUANTITIES:
        rows = [(one.label, list(_errors_of(one, quantity))) for one in complete]
        rows.sort(key=lambda row: row[1][0].value.value if row[1] else 0.0)
        drawings.append(svg_charts.deviations(rows, f"{quantity}: sum less whole (% of the whole)"))
    legend = [
        svg_charts.legend_mark(0, "the sum"),
        svg_charts.legend_mark(1, "the sum, corrected for caches (where that is known)"),
    ]
    caption = (
        "How far each sum is from its whole, in order: the middle row is the median. Marks left of zero: the sum is "
        "too small. A correction that helps moves squares nearer to zero than circles."
    )
    return figure(drawings, caption, legend)


def _errors_of(one: Compared, quantity: str) -> Iterable[Deviation]:
    ratio = one.model.ratio(quantity)
    if ratio is None:
        return
    yield Deviation(_less_one(ratio), 0, f"{quantity} {percent(ratio.value - 1)} off")
    corrected = one.model.corrected_ratio(quantity)
    if corrected is not None:
        yield Deviation(_less_one(corrected), 1, f"{quantity} {percent(corrected.value - 1)} off when corrected")


def _less_one(ratio: Estimate) -> Estimate:
    return Estimate(ratio.value - 1, ratio.standard_error)


def doubts(found: Sequence[Compared], tuples: Sequence[TupleCost]) -> str:
    """Return how many tuples have something to be known, and for what share of the models' time."""
    whole_s = math.fsum(one.row.full_time_s for one in found)
    cells = []
    for flag in TupleFlag:
        flagged = [one for one in tuples if flag in one.flags]
        times_s = [one.time_s.value * sum(use.calls for use in one.uses) for one in flagged if one.time_s is not None]
        share = math.fsum(times_s) / whole_s if whole_s and times_s else None
        if flagged:
            cells.append((flag.value, str(len(flagged)), percent(share), flag.meaning))
    if not cells:
        return paragraph("No tuple is flagged.")
    columns = ("flag", "tuples", "share of all models' time", "what it means")
    return table(columns, cells, "What is to be known of measurements: the table of tuples can be filtered by it.")


# What costs most?


def kinds(found: Sequence[Compared]) -> str:
    """Return what kinds of operators each model consists of."""
    models = [one.model for one in found if one.is_complete]
    drawn = [svg_charts.kinds(models, quantity) for quantity, _ in QUANTITIES]
    looks = [*range(len(drawn[0][1]) - 1), 7]
    legend = [svg.swatch(look) + escape(name) for look, name in zip(looks, drawn[0][1], strict=True)]
    caption = (
        "What each sum consists of, beside the measured whole (the line at 100 %, and the figures: sum of whole). The "
        f"longest piece of a bar is where to begin. Energy may be spent elsewhere than time.{_left_out(found)}"
    )
    return figure([drawing for drawing, _ in drawn], caption, legend)


def rooflines(roofline: Roofline | None, plots: Sequence[RooflinePlot], tuples: Sequence[TupleCost]) -> str:
    """Return the card's roofline in time and energy."""
    if roofline is None:
        return paragraph("No measured tuple both computes and moves anything: there is no roofline.")
    without = sum(one.work is not None and not one.flop for one in tuples)
    time = roofline.time
    caption = (
        f"The roofs (lines) are the best that these rows reached: {_rates(time)}, and {time.byte_rate / 1e12:.3g} TB/s "
        f"by what moves more than caches hold.{_least_energy(roofline)} Round: its time is bound by memory; square: by "
        "computing, in its own arithmetic. Far below its roof a tuple has room. Above it, to the left, operators find "
        f"in a cache what they move. {without} tuples without counted FLOPs (norms, activations, copies) are in the "
        "table only. Choose a mark, or a row of the table, to see more of it."
    )
    return figure([plot.svg for plot in plots], caption)


def _least_energy(roofline: Roofline) -> str:
    if roofline.energy is None:
        return ""
    per_flop = ", ".join(f"{1 / rate / PICO:.3g} pJ per FLOP in {name}" for name, rate in _sorted(roofline.energy))
    per_byte = f"{1 / roofline.energy.byte_rate / PICO:.3g} pJ per byte"
    return f" The least energy is {per_flop}, and {per_byte}, idle power included."


def _rates(roof: Roof) -> str:
    return ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {name}" for name, rate in _sorted(roof))


def _sorted(roof: Roof) -> list[tuple[str, float]]:
    return sorted(roof.flop_rates.items(), key=lambda named: -named[1])


# Where is the sum wrong, and why?


def remarks(found: Sequence[Compared], reports: Sequence[ComparingReport]) -> str:
    """Return what the reader must know about each model."""
    texts = {one.label: list(map(worded, one.remarks)) for one in found}
    for one in found:
        if one.row.energy_missing_reason:
            texts[one.label].append(f"no energy: {one.row.energy_missing_reason}")
    without = [f"{report.name}: {report.reason}" for report in reports if report.reason]
    told = [
        folded(f"{label} ({len(lines)})", items(list(map(without_places, lines))))
        for label, lines in texts.items()
        if lines
    ]
    return items(list(map(without_places, without))) + "".join(told)


# What should I measure next?


def steps(found: Sequence[Compared], tuples: Sequence[TupleCost], reports: Sequence[ComparingReport]) -> str:
    """Return what to measure next, and how."""
    cells: list[tuple[str | Markup, ...]] = []
    lacking = [report.name for report in reports if report.reason]
    if lacking:
        what, command = f"measure {len(lacking)} whole models", f"python full_model_measurement.py {' '.join(lacking)}"
        why = "their sums have nothing to be held against, and their tuples are not in this report"
        cells.append((what, why, code(command)))
    candidates = [Candidate(one.name, one.comparison, one.kernels is not None, one.row.counted == ALL) for one in found]
    for step in next_steps(candidates, tuples):
        models = ", ".join(found[index].label for index in step.models)
        cells.append((step.what, f"{step.why} ({models})", code(step.command)))
    if not cells:
        return paragraph("Nothing: every sum is complete, undisturbed, as precise as asked, and near its whole.")
    return table(("what", "why", "command"), cells, "What would make these figures better.")
