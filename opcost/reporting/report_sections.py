"""The report's sections on compared models, in the order of its questions, each figure with a caption."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median

from opcost.columns import grouped
from opcost.comparing.comparison import NOTICEABLE_RATIO
from opcost.comparing.operator_costs import TupleCost, TupleFlag
from opcost.comparing.ranking import ENERGY, WHOLE
from opcost.comparing.roofline import Roofline
from opcost.estimates import Estimate, ratio_if_known
from opcost.html_text import Markup, paragraph, prose
from opcost.invocation import command
from opcost.measuring.conditions import EAGER, EXECUTIONS, WARM, Conditions, usual_execution
from opcost.measuring.protocol import protocol_options
from opcost.operators.counts import ALL
from opcost.operators.model_inputs import Unit
from opcost.operators.tuples import TORCHVISION_MODELS
from opcost.reporting import charts
from opcost.reporting.charts import Compared
from opcost.reporting.markup import Chart, Entry, code, figure, folded, items, table
from opcost.reporting.ranking_notes import arithmetic, is_cost_doubtful, rates_of
from opcost.reporting.ranking_tables import Ranked, RankingTable, table_of
from opcost.reporting.tables import DOUBTFUL, doubt_mark, drawn, of_texts
from opcost.sources.registry import published_models
from opcost.stages.compare import ComparingReport
from opcost.stages.show import DeviceRanking
from opcost.stages.wanted_model import NO_PROPOSALS, Proposals
from opcost.units import MILLI, millijoules, number_of, percent, with_named_boards

PICO = 1e-12
KERNEL_KINDS_SHOWN = 10
PAGE_CHARACTERS = 140
"""The width of a table that a usual screen shows as a whole, with the widest letters of usual fonts."""

WANTED_TOP1 = 80
"""The accuracy in % for which the least energy is named; a smaller multiple of 5, if no model has it."""

PARTS = ("modules", "functions", "cache correction", "power limit", "dropped", "not measured", "unexplained")

_PATH = re.compile(r"(?<![\w/.])~?(?:/[\w.+~@-]+)+/([\w.+~@-]+)")


def without_identities(text: str) -> str:
    """Return a text that can be published: boards by four digits of their UUID, files without their folders."""
    return _PATH.sub(r"…/\1", with_named_boards(text))


def board_of(uuid: str | None) -> str:
    return "unknown" if uuid is None else with_named_boards(uuid).rpartition(" ")[2]


# Which model costs least?


def ranking(rankings: Sequence[DeviceRanking]) -> str:
    tables = [found for one in rankings if (found := table_of(one, ENERGY)) is not None]
    if not tables:
        return paragraph(f"No whole model is measured. Measure: {command('measure-models')}.")
    return "".join(_picture(one) + _fitting(one) + paragraph(" ".join(one.notes)) for one in tables)


def _fitting(ranking: RankingTable) -> str:
    """Return a ranking with the columns that a page has room for, and the titles of the others."""
    # A saving is an answer to the page's question; further kinds of operators are in their chart.
    columns = [replace(one, drop=0) if one.title.startswith("saving") else one for one in ranking.columns]
    filled = [(column, [column.text(one) for one in ranking.records]) for column in columns]
    shown = drawn(filled, PAGE_CHARACTERS, 1)
    others = f"Not shown: {', '.join(shown.left_out)}." if shown.left_out else ""
    kept = table([column for column, _ in shown.columns], ranking.records, ranking.title)
    return f'<div class="sortable">{kept}</div>' + paragraph(others) * bool(others)


def _picture(ranking: RankingTable) -> str:
    """Return the energies over the published accuracies with the answer in a sentence; without any, the energies."""
    sound = [one for one in ranking.records if one.row.source == WHOLE and not is_cost_doubtful(one.row)]
    rated = list(_rated(sound))
    if not rated:
        costs = [(one.label, ratio_if_known(one.row.energy_per_sample_j, MILLI)) for one in sound]
        unit = ranking.records[0].row.unit or Unit.SAMPLE
        bars = charts.bars(costs, f"least energy per {unit} (mJ)")
        return "" if bars is None else figure(Chart([bars]), "Measured whole models without doubts.")
    top1 = min(WANTED_TOP1, 5 * int(max(one.top1_percent for one in rated) // 5))
    least = min((one for one in rated if one.top1_percent >= top1), key=lambda one: one.energy_j)
    answer = (
        f"The least energy for at least {top1} % top-1 is {millijoules(least.energy_j)} per image: {least.name}, "
        f"{least.top1_percent:g} % with {least.weights}."
    )
    caption = (
        f"{number_of(len(rated), 'model')} of torchvision, measured as a whole at the input size of the default "
        "weights, without doubts. The accuracy is what torchvision publishes of these weights on ImageNet-1K; it was "
        "not measured here."
    )
    return paragraph(Markup(f"<strong>{prose(answer)}</strong>")) + figure(charts.accuracy_chart(rated), caption)


def _rated(models: Iterable[Ranked]) -> Iterator[charts.Rated]:
    """Yield the models of torchvision at the size of their default weights, whose accuracy is published."""
    published = published_models()
    for one in models:
        row, whole = one.row, one.model.result.whole
        known = published.get(whole.operator.removeprefix(TORCHVISION_MODELS)) if whole is not None else None
        if whole is None or known is None or row.energy_per_sample_j is None:
            continue
        facts, is_usual = known.published, whole.parameters in ("", f"weights='{known.published.weights}'")
        if is_usual and facts.top1_percent is not None and one.model.result.input_size[1:] == known.input_size[1:]:
            yield charts.Rated(one.label, row.energy_per_sample_j, facts.top1_percent, facts.weights or "")


# Can I trust it?


def summary(found: Sequence[Compared], tuples: Sequence[TupleCost], reports: Sequence[ComparingReport]) -> str:
    devices = ", ".join(sorted({one.row.conditions.device_product for one in found})) or "no device"
    unmeasured = sum(one.row is None for one in tuples)
    without = f" ({unmeasured} more are not measured)" if unmeasured else ""
    texts = [
        f"{number_of(len(reports), 'model')}, {number_of(len(found), 'comparison')} of a sum with a measured whole "
        f"model, {len(tuples) - unmeasured} measured operator tuples{without}, on {devices}."
    ]
    known = [one for one in _verdicts(found) if one.best]
    sides = []
    for device, own in grouped(known, lambda one: one.device).items():
        costs = " and ".join(f"{percent(median(one.best))} in {one.quantity}" for one in own)
        sides.append(f"{costs} on {device}{' (corrected)' if all(one.is_corrected for one in own) else ''}")
    medians = f"In the median, sums of operators differ from the whole model by {', '.join(sides)}."
    return paragraph(" ".join([*texts, medians if sides else "No complete sum can be compared with a whole model."]))


@dataclass(frozen=True)
class _Verdict:
    """How far complete sums of a quantity on a device are from their wholes, as shares of these.

    ``alone`` are those of whitelisted operators, ``corrected`` those of all with their correction, where it is known.
    ``doubtful`` is the number of sums that are no result yet, ``reasons`` has how many of them have which doubt.
    """

    device: str
    quantity: str
    alone: Sequence[float]
    corrected: Sequence[float]
    doubtful: int
    reasons: Mapping[str, int]

    @property
    def is_corrected(self) -> bool:
        return len(self.corrected) == len(self.alone)

    @property
    def best(self) -> Sequence[float]:
        return self.corrected if self.is_corrected else self.alone


def _verdicts(found: Sequence[Compared]) -> list[_Verdict]:
    of_device = grouped(usual_ones(found), lambda one: one.row.conditions.device_product)
    return [_verdict(device, own, name) for device, own in of_device.items() for name, _ in charts.QUANTITIES]


def _verdict(device: str, found: Sequence[Compared], quantity: str) -> _Verdict:
    complete = [one for one in found if one.is_complete and one.ratio(quantity) is not None]
    sound = [one for one in complete if not one.doubts(quantity)]
    costs = [one.row.costs(quantity) for one in sound]
    # Without a cache correction the rest is not that of a corrected sum.
    rests = [one.over_whole(one.unexplained) for one in costs if one.correction is not None]
    return _Verdict(
        device,
        quantity,
        [abs(ratio.value - 1) for one in sound if (ratio := one.ratio(quantity)) is not None],
        [abs(rest) for rest in rests if rest is not None],
        len(complete) - len(sound),
        Counter(doubt.value for one in complete for doubt in one.doubts(quantity)),
    )


def verdicts(found: Sequence[Compared]) -> str:
    """Return the table of how far sums are from wholes, with what they leave out."""
    columns = of_texts("device", "of", "all operators, corrected", "whitelisted operators alone", "no result yet")
    lines = []
    for one in _verdicts(found):
        sides = (
            f"{percent(median(off))}, at worst {percent(max(off))} ({number_of(len(off), 'model')})" if off else ""
            for off in (one.corrected, one.alone)
        )
        reasons = ", ".join(f"{number} {reason}" for reason, number in one.reasons.items())
        left_out = f"{number_of(one.doubtful, 'sum')} ({reasons})" if one.doubtful else ""
        lines.append((one.device, one.quantity, *sides, left_out))
    caption = (
        "How far sums are from the whole model, in the median; each model in its usual execution (a graph on a GPU)"
    )
    dropped = _left_out_on_purpose(usual_ones(found))
    return table(columns, lines, caption) + paragraph(dropped) * bool(dropped) if lines else ""


def _left_out_on_purpose(found: Sequence[Compared]) -> str:
    shares = {
        one.name: one.row.dropped_time_s / one.row.full_time_s
        for one in found
        if one.row.dropped_time_s is not None and one.row.counted == ALL and not one.doubts("time")
    }
    worst = max(shares, key=shares.__getitem__, default="")
    if not worst or shares[worst] < NOTICEABLE_RATIO:
        return ""
    return f"The whitelist drops up to {percent(shares[worst])} of a model's time ({worst}), which the sum is short by."


def parity(found: Sequence[Compared]) -> str:
    caption = (
        "Each mark is a model. On the solid line, the sum equals the measured whole model; the dotted lines are 5 % "
        "off. Bars are 95 % intervals, mostly smaller than the mark; another board may differ "
        f"by more.{_left_out(found)}"
    )
    return figure(charts.parity_chart(_complete(found)), caption)


def _complete(found: Sequence[Compared]) -> list[Compared]:
    return [one for one in found if one.is_complete]


def _left_out(found: Sequence[Compared]) -> str:
    incomplete = [one.name for one in found if not one.is_complete]
    return f" Left out, since operators are missing: {', '.join(incomplete)}." if incomplete else ""


def errors(found: Sequence[Compared]) -> str:
    caption = (
        "The error of each sum, in order: the middle row is the median. Left of zero, the sum is too small. If "
        "corrections help, squares are nearer to zero than circles; their intervals include the method's own error."
    )
    return figure(charts.error_chart(_complete(found)), caption)


def usual_ones(found: Sequence[Compared]) -> list[Compared]:
    return [found[index] for index in sorted(counted_once(found))]


def counted_once(found: Sequence[Compared]) -> frozenset[int]:
    """Return indices of one comparison for each model and device, in the usual execution if any: times count once."""

    def is_usual(index: int) -> bool:
        conditions = found[index].row.conditions
        return conditions.execution == usual_execution(conditions.device_type)

    # The last usual one, or the last one if none is usual.
    ordered = sorted(range(len(found)), key=is_usual)
    rows = ((found[index].row, index) for index in ordered)
    return frozenset({(row.name, row.conditions.device_product): index for row, index in rows}.values())


def flags(found: Sequence[Compared], tuples: Sequence[TupleCost]) -> str:
    counted = counted_once(found)
    whole_s = math.fsum(found[index].row.full_time_s for index in counted)
    cells = []
    for flag in TupleFlag:
        flagged = [one for one in tuples if flag in one.flags]
        times_s = [
            one.time_s.value * sum(use.calls for use in one.uses if use.comparison in counted)
            for one in flagged
            if one.time_s is not None
        ]
        share = math.fsum(times_s) / whole_s if whole_s and times_s else None
        if flagged:
            cells.append((flag.value, str(len(flagged)), percent(share), flag.meaning))
    if not cells:
        return paragraph("No tuple is flagged.")
    columns = of_texts("flag", "tuples", "share of all models' time", "meaning")
    return table(columns, cells, "Flags of tuples; the table of tuples can be filtered by flag.")


# What costs most?


def kinds(found: Sequence[Compared]) -> str:
    caption = (
        "The parts of each sum. The line at 100 % is the measured whole model; the figures are the sum and the whole. "
        f"The longest part costs most, and may differ between time and energy.{_left_out(found)}"
    )
    return figure(charts.kind_chart(_complete(found)), caption)


def roofs_of(rankings: Iterable[DeviceRanking]) -> dict[Conditions | None, Roofline]:
    """Return the roofline of each set of conditions that is ranked, whatever the execution."""
    shown = (model for one in rankings for model in one.all_models)
    return {_of_roof(one.row.conditions): one.roofline for one in shown if one.roofline is not None}


def roof_place(one: TupleCost) -> Conditions | None:
    """Return the place in ``roofs_of`` of a tuple's roof, None if it is not measured."""
    return None if one.row is None else _of_roof(one.row.conditions)


def _of_roof(conditions: Conditions) -> Conditions:
    return replace(conditions, execution=EAGER, cache=WARM)


def rooflines(
    roofs: Mapping[Conditions | None, Roofline],
    plots: Mapping[Conditions | None, Sequence[charts.RooflinePlot]],
    tuples: Sequence[TupleCost],
) -> str:
    if not roofs:
        return paragraph("No roofline: no measured tuple has both FLOPs and bytes.")
    sections = [
        _roofline(place, roofline, plots[place], [one for one in tuples if roof_place(one) == place])
        for place, roofline in roofs.items()
        if place is not None
    ]
    others = sum(one.row is not None and roof_place(one) not in roofs for one in tuples)
    note = f"{number_of(others, 'tuple')} under conditions without a ranking have no roof here."
    return "".join(sections) + (paragraph(note) if others else "")


def _roofline(
    place: Conditions, roofline: Roofline, plots: Sequence[charts.RooflinePlot], tuples: Sequence[TupleCost]
) -> str:
    without = sum(one.work is not None and not one.count.flop for one in tuples)
    least = ""
    if roofline.energy is not None:
        rates = sorted(roofline.energy.flop_rates.items(), key=lambda named: -named[1])
        per_flop = ", ".join(f"{1 / rate / PICO:.3g} pJ per FLOP in {name}" for name, rate in rates)
        per_byte = f"{1 / roofline.energy.byte_rate / PICO:.3g} pJ per byte"
        least = f" The least energy is {per_flop}, and {per_byte}, idle power included."
    caption = (
        f"{place.device_product}, {arithmetic(place)}. The roofs (lines) are those of the ranking above, the highest "
        f"rates of any operator: {rates_of(roofline)}.{least} Circles are bound by memory, squares by compute in their "
        "own arithmetic. A tuple far below its roof could be faster. A tuple above it, to the left, reads "
        f"from a cache. {without} tuples without counted FLOPs (norms, activations, copies) are only in the table. "
        "Select a mark, or a row of the table, for details."
    )
    return figure(Chart([plot.figure for plot in plots]), caption)


# Where is the sum wrong, and why?


def gaps(found: Sequence[Compared]) -> str:
    drawings, rows = [], []
    for quantity, _ in charts.QUANTITIES:
        bars = []
        for one in found:
            costs, pieces = one.row.costs(quantity), (one.comparison.gap.modules, one.comparison.gap.functions)
            of_sum = (piece.time_s if quantity == "time" else piece.energy_j for piece in pieces)
            others = (costs.correction, costs.power_limit, costs.dropped, costs.unmeasured, costs.unexplained)
            shares = tuple(map(costs.over_whole, (*of_sum, *others)))
            rest = "unknown" if shares[-1] is None else f"{round(100 * shares[-1], 1) + 0.0:+.1f} % unexplained"
            bars.append(charts.StackedBar(one.name, rest + doubt_mark(one.doubts(quantity)), shares))
        known = [bar for bar in bars if any(share is not None for share in bar.shares)]
        drawings.append(charts.stacked_bars(known, quantity, range(len(PARTS))))
        for one, bar in zip(found, bars, strict=True):
            *parts, rest = map(percent, bar.shares)
            rows.append((bar.name, quantity, *parts, rest + doubt_mark(one.doubts(quantity))))
    caption = (
        "The parts of the whole model (100 %). Modules and functions make the sum. The cache correction is left of "
        "zero if calls take less time in the model than alone. A model at the power limit runs at lower clocks, which "
        "add time. Dropped and unmeasured operators without a row are estimated. The unexplained part is left of zero "
        "if the others exceed the whole. A missing part is unknown."
    )
    legend = [Entry.of_fill(number, name) for number, name in enumerate(PARTS)]
    numbers = table(
        of_texts("model", "of", *PARTS), sorted(rows), f"The parts as shares of the whole. {DOUBTFUL}: no result yet."
    )
    return figure(Chart(drawings, legend), caption) + folded("The figures", numbers)


def kernel_kinds(found: Sequence[Compared]) -> str:
    profiled = {one.row.name: kernels for one in found if (kernels := one.comparison.kernels) is not None}
    of_kinds = ((kind, name, error) for name, kernels in profiled.items() for kind, error in kernels.by_kind)
    seen = grouped(of_kinds, lambda one: one[0])
    if not profiled:
        return paragraph(f"The database has no kernel times of these models. Measure: {command('verify kernels')}.")
    largest = sorted(seen, key=lambda kind: -sum(abs(error) for *_, error in seen[kind]))[:KERNEL_KINDS_SHOWN]
    rows = []
    for kind in largest:
        marks = ((Estimate(error, 0.0), 0, f"{model} {100 * error:+.2f} %") for _, model, error in seen[kind])
        rows.append((kind, [charts.Deviation(*mark) for mark in marks]))
    caption = (
        "Kernel time alone minus kernel time in the model, by kind of operator, as a share of the model's kernel time. "
        f"Each mark is one of {len(profiled)} models. Left of zero: the kind takes longer in the model than alone, and "
        "makes the sum too small. Kinds on opposite sides cancel in a sum."
    )
    return figure(Chart([charts.deviations(rows, "kernel time alone minus in the model (%)")]), caption)


def remarks(found: Sequence[Compared], reports: Sequence[ComparingReport]) -> str:
    without = [f"{report.name}: {report.reason}" for report in reports if report.reason]
    shown = items(list(map(without_identities, without)))
    for one in found:
        reason = one.row.energy_missing_reason
        lines = [*map(str, one.remarks), *([f"no energy: {reason}"] if reason else [])]
        if lines:
            shown += folded(f"{one.name} ({len(lines)})", items(list(map(without_identities, lines))))
    return shown


# What should I measure next?


def steps(
    found: Sequence[Compared],
    tuples: Sequence[TupleCost],
    reports: Sequence[ComparingReport],
    proposals: Proposals = NO_PROPOSALS,
) -> str:
    cells = []
    missing = [report.name for report in reports if report.reason]
    if missing:
        what, measuring = f"measure {len(missing)} whole models", proposals.command("measure-models", missing)
        why = "their sums cannot be compared, and their tuples are not in this report"
        cells.append((what, why, code(measuring)))
    for step in next_steps(found, tuples, proposals):
        models = ", ".join(found[index].name for index in step.models)
        cells.append((step.action, f"{step.reason} ({models})", code(step.command)))
    if not cells:
        return paragraph("Nothing: every sum is complete, not flagged, precise, and close to its whole model.")
    return table(of_texts("step", "reason", "command"), cells, "Measurements that would improve this report.")


OFF_RATIO = 0.03
"""The error of a complete sum from which its kernels are worth profiling."""

DROPPED_RATIO = 0.01
"""The dropped share of a whole model's time from which the whitelist needs more operators."""

THOROUGH_TARGET = "0.99"


@dataclass(frozen=True)
class Step:
    """Something to do, with reason and command; ``models`` are indices of the comparisons."""

    action: str
    reason: str
    command: str
    models: tuple[int, ...]


REMEDIES = (
    (TupleFlag.NOT_MEASURED, "measure {number} tuples that have no row", "sums without them are too small", ()),
    (TupleFlag.FLAGGED, "measure {number} flagged tuples again", "they were disturbed", ()),
    (
        TupleFlag.OTHER_BOARD,
        "measure {number} tuples on the whole model's board",
        "boards of one product differ by up to 19 % in energy",
        ("--same-board",),
    ),
    (
        TupleFlag.NOT_PRECISE,
        "measure {number} imprecise tuples for 30 s",
        "their loops did not reach the target precision; the models' other tuples without such a loop are measured, "
        "too (--dry-run shows the time)",
        (),
    ),
)


def next_steps(
    found: Sequence[Compared], tuples: Sequence[TupleCost], proposals: Proposals = NO_PROPOSALS
) -> list[Step]:
    """Return the steps that would improve the figures of compared models, to whose indices the tuples' uses refer."""
    steps = []
    runs = [(one.comparison.conditions.device_type, one.comparison.conditions.execution) for one in found]
    devices = sorted({device for device, _ in runs}, reverse=True)
    for flag, what, why, options in REMEDIES:
        shares = _shares(flag, found, tuples)
        for device, execution in product(devices, EXECUTIONS):
            chosen = {i: share for i, share in shares.items() if runs[i] == (device, execution)}
            noticed = tuple(i for i, share in chosen.items() if share is None or share >= NOTICEABLE_RATIO)
            if not noticed:
                continue
            known = [share for share in chosen.values() if share is not None]
            worst = f"; at most {percent(max(known))} of a whole model's time" if known else ""
            summed = [one for one in tuples if any(use.is_summed and use.comparison in noticed for use in one.uses)]
            how = ["--device", "cpu"] if device == "cpu" else ["--execution", execution]
            if flag is not TupleFlag.NOT_PRECISE:
                # As most rows were measured: with other options, all would be measured again.
                how += protocol_options(one.row.circumstances for one in summed if one.row is not None)
            measuring = proposals.measuring(_named(found, noticed), *options, *how)
            action = what.format(number=sum(flag in one.flags for one in summed))
            steps.append(Step(action, why + worst, measuring, noticed))
    dropped = {
        index: (one.comparison.gap.dropped.time_s or 0.0) / one.comparison.full.measurement.time_s
        for index, one in enumerate(found)
        if one.row.counted == ALL
    }
    noticed = tuple(index for index, share in dropped.items() if share > DROPPED_RATIO)
    if noticed:
        most = percent(max(dropped.values()))
        why = f"dropped operators make sums too small, by at most {most} of a whole model's time"
        advising = command("advise", *_named(found, noticed), "--coverage-target", THOROUGH_TARGET)
        steps.append(Step("find the operators that the whitelist needs", why, advising, noticed))
    far = tuple(
        index
        for index, one in enumerate(found)
        if not (one.comparison.cost.missing or one.comparison.kernels is not None or runs[index][0] == "cpu")
        and (ratio := one.comparison.time_ratio) is not None
        and abs(ratio.value - 1) > OFF_RATIO
    )
    if far:
        what = f"profile the kernels of {len(far)} sums that are more than {percent(OFF_RATIO, digits=0)} off"
        why = "no operator is missing there; kernels in the model and alone show which kind of operator differs"
        steps.append(Step(what, why, proposals.command("verify kernels", _named(found, far)), far))
    return steps


def _shares(flag: TupleFlag, found: Sequence[Compared], tuples: Sequence[TupleCost]) -> dict[int, float | None]:
    """Return the tuples' share of the whole's time, for each comparison that sums any; None if unknown."""
    shares: dict[int, float | None] = {}
    for one in tuples:
        for use in one.uses:
            if flag in one.flags and use.is_summed:
                whole_s = found[use.comparison].comparison.full.measurement.time_s
                known = shares.get(use.comparison, 0.0)
                time_s = one.time_s
                share = None if time_s is None or known is None else known + use.calls * time_s.value / whole_s
                shares[use.comparison] = share
    return shares


def _named(found: Sequence[Compared], chosen: Sequence[int]) -> list[str]:
    return list(dict.fromkeys(found[index].row.name for index in chosen))
