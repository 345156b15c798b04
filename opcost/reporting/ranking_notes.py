"""Notes below the tables of ``opcost show``: what a reader has to know to compare the figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from statistics import median

from opcost.columns import Field
from opcost.comparing.comparison import two_versions
from opcost.comparing.operator_costs import OperatorCost, TupleFlag
from opcost.comparing.ranking import FEWEST_WHOLES, SUM, TIME, RankingRow
from opcost.comparing.roofline import Roofline
from opcost.measuring.conditions import ADDED_FIELDS, Conditions
from opcost.measuring.data_sheets import FP32, TF32
from opcost.measuring.precisions import AUTOCAST_DTYPES, DTYPES, TORCH_DEFAULT
from opcost.operators.counts import FORMULA_REMEDY
from opcost.reporting.tables import DOUBTFUL
from opcost.stages.ranking_data import BoardDifferences
from opcost.stages.show import DeviceRanking, ShownModel
from opcost.units import milli, number_of, percent, some_of

ESTIMATED = "~"
NAMES_SHOWN = 6
KIND_TITLES = ("largest kind", "second kind", "third kind")
ROOF_TITLES = frozenset({"time roof", "energy roof", "saving mJ/sample"})
"""The columns of the ranking that notes explain: on the kinds of operators that cost most, and on the roof."""

IDLE = "Idle share: the board's idle power, as its qualification found it, times the time, over the energy."

LEAST_RATE_RATIO = 0.01
"""The share of the highest rate of FLOPs from which that of another arithmetic is named."""

DOUBTS = {
    "is_whole_flagged": "the whole model's measurement is flagged; measure again",
    "is_sum_flagged": "flagged operators have 5 % or more of the summed time; measure them again",
    "is_unexplained": "sum and whole model differ by 25 % or more, so one of them is no result yet",
    "is_above_power_limit": "the sum draws more than the power limit, at which a run is throttled: it takes longer "
    "than the sum",
}
"""Fields of a row that cast doubt on it, with the reason."""


def arithmetic(conditions: Conditions) -> str:
    """Return the formats of convolutions and of matrix products in words."""
    convolutions, products = _formats(conditions)
    if convolutions != products:
        default = " (torch's default)" if conditions.precision == TORCH_DEFAULT else ""
        return f"convolutions in {convolutions} and matrix products in {products}{default}"
    return f"{products} by autocast" if conditions.precision in AUTOCAST_DTYPES else products


def _formats(conditions: Conditions) -> tuple[str, str]:
    dtype = {**DTYPES, **AUTOCAST_DTYPES}.get(conditions.precision)
    if dtype is not None:
        return dtype, dtype
    is_gpu = conditions.device_type != "cpu"
    return TF32 if is_gpu and conditions.cudnn_tf32 else FP32, TF32 if is_gpu and conditions.matmul_tf32 else FP32


def condition_words(field: Field, conditions: Conditions) -> str:
    """Return a condition with its name and unit: ``power limit 400 W``."""
    value = getattr(conditions, field.name)
    label = field.name.removeprefix("device_").removesuffix("_w").removesuffix("_bytes").replace("_", " ")
    if value is None:
        return f"{label} {'default' if field.name in ADDED_FIELDS else 'unknown'}"
    return f"{label} {f'{value:g}' if isinstance(value, float) else value} {field.unit}".rstrip()


def ranking_notes(ranking: DeviceRanking, by: str, left_out: Set[str] = frozenset()) -> list[str]:
    """Return the notes of a ranking with at least one model; columns that are ``left_out``, by title, need none."""
    rows = [model.row for model in ranking.models]
    measured = [row for row in rows if row.predicted_time_s is None]
    quantity = "time" if by == TIME or all(map(is_by_time, rows)) else "energy"
    kinds_shown = len(set(KIND_TITLES) - left_out)
    kinds = dict.fromkeys(kind.operator for model in ranking.models for kind in model.kinds[:kinds_shown])
    lines = [energies_line(rows)]
    times = [row.time_standard_error_s / row.time_s for row in measured if row.time_s and row.time_standard_error_s]
    energies = [
        row.energy_standard_error_j / row.energy_j for row in measured if row.energy_j and row.energy_standard_error_j
    ]
    if times or energies:
        medians = in_quantities(median(times) if times else None, median(energies) if energies else None)
        lines.append(f"Standard errors are {medians} (medians of these models).")
    lines += _boards_line(ranking.boards)
    if len(rows) > 1 and any(len(set(_formats(row.conditions))) > 1 for row in rows):
        lines.append(
            "Models differ in arithmetic, too: convolutions run in TF32; the matrix products of transformers (Linear, "
            "attention) run in fp32, which is slower."
        )
    if kinds:
        lines.append(f"Kinds of operators with their shares of the {quantity} of all measured operators of the model.")
    if any(row.idle_energy_ratio is not None for row in rows if row.forward_time_s is not None):
        lines.append(IDLE)
    lines += _function_lines(kinds)
    if any(row.roof_time_ratio is not None for row in rows) and not left_out >= ROOF_TITLES:
        lines.append(_roof_line(ranking.models))
    return [*lines, *_unknown_flop_lines(rows), *_sum_lines(rows), *predicted_lines(ranking), *doubt_lines(rows)]


def model_notes(model: ShownModel, boards: BoardDifferences, names: Collection[str]) -> list[str]:
    row = model.row
    whole, limit_w = model.result.whole, row.conditions.device_power_limit_w
    stated = [f"power limit {limit_w:g} W"] if limit_w else []
    stated += [f"meter {whole.measurement.meter}"] if whole and whole.measurement.meter else []
    how = f" ({', '.join(stated)})" if stated else ""
    board = f" on this board, {row.device_uuid[:8]}{how}" if row.device_uuid else ""
    error = "" if row.source == SUM else f" ± is one standard error{board}."
    lines = [energies_line([row]) + error, *_boards_line(boards)]
    if row.memory_bytes_ratio is not None and row.sum_time_s is not None:
        share = measured_share(row, "the model's")
        lines.append(f"Shares are those of the sum of all measured operators, with {share}.")
    if row.source != SUM and row.corrected_time_ratio is not None:
        errors = "" if row.is_expected_error_assumed else _errors_of_sums(row)
        others = f"; 95 % of the models' sums deviate by less than {errors}" if errors else ""
        lines.append(f"Corrected: sum plus corrections, over the whole model{others}.")
    if row.idle_energy_ratio is not None and row.forward_time_s is not None:
        lines.append(IDLE)
    if row.roof_time_ratio is not None:
        lines.append(_roof_line([model]))
    lines += [f"{DOUBTFUL} {remark}" for remark in two_versions(model.result)]
    return [*lines, *_unknown_flop_lines([row]), *_function_lines(names), *_sum_lines([row]), *doubt_lines([row])]


def predicted_lines(ranking: DeviceRanking) -> list[str]:
    """Return a line with the predicted costs of models without measured ones, none if there are none."""
    texts = []
    for one in ranking.predicted:
        costs = [
            f"{milli(cost.value)} {unit} ({milli(cost.lower)} to {milli(cost.upper)})"
            for cost, unit in ((one.time_s, "ms"), (one.energy_j, "mJ"))
            if cost is not None
        ]
        texts.append(f"{one.result.name} {' and '.join(costs)}")
    start = f"{ESTIMATED} Predicted on {ranking.product}, never measured; a run with its 90 % interval"
    return [f"{start}: {some_of(texts, NAMES_SHOWN)}."] if texts else []


def flag_lines(operators: Iterable[OperatorCost]) -> list[str]:
    found = {flag for one in operators for flag in one.flags.split("|")}
    return [f"{flag.value}: {flag.meaning}" for flag in TupleFlag if flag.value in found]


def _function_lines(names: Collection[str]) -> list[str]:
    modules = {name.lower(): name for name in names if name != name.lower()}
    return [f"{name}: the function, called outside of the module {modules[name]}." for name in names if name in modules]


def energies_line(rows: Sequence[RankingRow]) -> str:
    known = [row for row in rows if row.energy_j is not None]
    temperatures = {row.reference_temperature_c for row in known}
    if not known:
        reasons = list(dict.fromkeys(row.energy_missing_reason for row in rows if row.energy_missing_reason))
        return f"No energy is measured: {'; '.join(reasons)}." if reasons else "No energy is measured."
    if len(temperatures) > 1:
        names = [row.name for row in known if row.reference_temperature_c is None]
        text = f"Energies are total, at 50 °C; as measured for {some_of(names, NAMES_SHOWN)}"
    else:
        (celsius,) = temperatures
        text = f"Energies are total, {'as measured' if celsius is None else f'at {celsius:g} °C'}"
    # Energies of operators may be as measured although the cost is normalised.
    normalised = [row for row in known if row.reference_temperature_c is not None and row.sum_energy_j is not None]
    others = [row.name for row in normalised if row.sum_reference_temperature_c is None]
    return text + (f"; those of operators as measured for {some_of(others, NAMES_SHOWN)}." if others else ".")


def in_quantities(time_ratio: float | None, energy_ratio: float | None, between: str = " and ") -> str:
    """Return the known ones of two ratios in words: ``1.3 % in time and 2.3 % in energy``."""
    pairs = (("time", time_ratio), ("energy", energy_ratio))
    return between.join(f"{percent(ratio)} in {quantity}" for quantity, ratio in pairs if ratio is not None)


def _boards_line(boards: BoardDifferences) -> list[str]:
    time, energy = boards.time, boards.energy
    known = [one for one in (time, energy) if one is not None]
    if not known:
        return []
    typical = in_quantities(time.median_ratio if time else None, energy.median_ratio if energy else None)
    largest = " and ".join(percent(one.high_ratio) for one in known)
    models = number_of(max(one.models for one in known), "model")
    return [
        f"Whole models were measured on {number_of(boards.boards, 'board')}, which differ by {typical} "
        f"(median of {models} on several boards), at most by {largest}; a model's figures are those of one board."
    ]


def _roof_line(models: Iterable[ShownModel]) -> str:
    roofs = {id(model.roofline): model.roofline for model in models if model.roofline is not None}
    rates = f" ({rates_of(*roofs.values())})" if len(roofs) == 1 else ""
    return (
        f"Roof: cost at the best rates that any operator of the same arithmetic reached{rates}, over the cost. Saving: "
        "the rest. Another precision, or fusion, can save more."
    )


def rates_of(roofline: Roofline) -> str:
    # A tiny product in another format shows nothing of the card.
    highest = roofline.time.flop_rates[roofline.time.highest]
    shown = (named for named in roofline.time.flop_rates.items() if named[1] >= LEAST_RATE_RATIO * highest)
    rates = sorted(shown, key=lambda named: -named[1])
    flops = ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {name}" for name, rate in rates)
    return f"{flops}, and {roofline.time.byte_rate / 1e12:.3g} TB/s"


def _sum_lines(rows: Sequence[RankingRow]) -> list[str]:
    """Return a line for the sums with one expected error that take the place of wholes, and one for predictions."""
    names: dict[str, list[str]] = {}
    predicted = []
    for row in rows:
        errors = _errors_of_sums(row)
        error = f"expected error {errors}" if errors else "its error is unknown"
        if errors and row.is_expected_error_assumed:
            error += f", as on an H200, because fewer than {FEWEST_WHOLES} wholes are measured here"
        if row.time_s is not None and row.predicted_time_s is not None:
            share = percent(row.predicted_time_s / row.time_s)
            predicted.append(f"{row.name} ({share} of the time predicted; {measured_share(row)} measured; {error})")
        elif row.source == SUM:
            names.setdefault(error, []).append(row.name)
    whole = "the sum of its operators, because the whole model is not measured"
    lines = [f"{ESTIMATED} {some_of(found, NAMES_SHOWN)}: {whole}; {error}" for error, found in names.items()]
    if predicted:
        text = "the sum of operators, of which those without a row are predicted from FLOPs and bytes"
        lines.append(f"{ESTIMATED} {some_of(predicted, NAMES_SHOWN)}: {text}")
    return lines


def _errors_of_sums(row: RankingRow) -> str:
    return in_quantities(row.expected_time_error_ratio, row.expected_energy_error_ratio, ", ")


def measured_share(row: RankingRow, owner: str = "its") -> str:
    """Return the shares of a model's bytes and FLOPs that its sum has, of bytes alone if its FLOPs are unknown."""
    moved = f"{percent(row.memory_bytes_ratio)} of {owner} bytes"
    return moved if row.flop_missing_reason is not None else f"{moved} and {percent(row.flop_ratio)} of its FLOPs"


def _unknown_flop_lines(rows: Sequence[RankingRow]) -> list[str]:
    names = [f"{row.name} ({row.flop_missing_reason})" for row in rows if row.flop_missing_reason is not None]
    return [f"No roof, because FLOPs are unknown: {some_of(names, NAMES_SHOWN)}; {FORMULA_REMEDY}."] if names else []


def is_cost_doubtful(row: RankingRow) -> bool:
    is_of_sum = row.source == SUM and row.is_sum_flagged
    return row.is_whole_flagged or row.is_unexplained or row.is_above_power_limit or is_of_sum


def is_sum_doubtful(row: RankingRow) -> bool:
    """Return whether the sum, and so the largest kinds, the roof and the saving, is no result yet."""
    return row.is_sum_flagged or row.is_missing or row.is_unexplained


def doubt_lines(rows: Sequence[RankingRow]) -> list[str]:
    """Return a line for each reason why costs or sums of these models are no result yet."""
    lines = []
    for field, reason in DOUBTS.items():
        if names := [row.name for row in rows if getattr(row, field)]:
            lines.append(f"{DOUBTFUL} {', '.join(names)}: {reason}.")
    missing = [f"{row.name} ({percent(row.memory_bytes_ratio)} of bytes measured)" for row in rows if row.is_missing]
    if missing:
        reason = "operators are missing from the sum; below 95 %, kinds, roof and saving are unknown"
        lines.append(f"{DOUBTFUL} {', '.join(missing)}: {reason}.")
    by_time = [row.name for row in rows if is_by_time(row)]
    if by_time:
        models = "" if len(by_time) == len(rows) else f" of {', '.join(by_time)}"
        lines.append(f"Not all energies of operators{models} are known: shares and order are those of time.")
    return lines


def is_by_time(row: RankingRow) -> bool:
    """Return whether operators have shares of the time, and its order, because an energy is unknown."""
    return row.sum_time_s is not None and row.sum_energy_j is None
