"""Notes on the layers of a model: the sum that they add up to, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcost.comparing.run_costs import RunCosts
from opcost.units import UNKNOWN, milli, number_of

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.comparing.layers import Layers
    from opcost.stages.model_layers import LayersReport


def layer_notes(report: LayersReport) -> list[str]:
    """Return the notes on a model's layers, each a line without a command."""
    notes = [*sum_notes(report.costs), *missing_notes(report.layers)]
    if report.layers.are_means:
        notes.append(
            "The model was counted on shapes, and some operators are measured on several kinds of input data: their "
            "calls have the mean."
        )
    if report.differs:
        notes.append(
            "The database has the model with other operators, from another version or device: its sum there is another."
        )
    if report.others:
        notes.append(f"There are rows of {', '.join(report.others)}, too: use --device.")
    return notes


def sum_notes(costs: RunCosts) -> list[str]:
    """Return the sum, the corrected sum and the whole; none without a sum."""
    if costs.sum_time_s is None:
        return []
    at = "" if costs.reference_temperature_c is None else f"; energies are at {costs.reference_temperature_c:g} °C"
    notes = [f"Sum of operators: {_pair(costs.sum_time_s, costs.sum_energy_j)}. The layers add up to it{at}."]
    others = []
    if costs.corrected_time_s is not None:
        others.append(f"Corrected sum: {_pair(costs.corrected_time_s, costs.corrected_energy_j)}.")
    if costs.whole_time_s is not None:
        others.append(f"Whole model: {_pair(costs.whole_time_s, costs.whole_energy_j)}.")
    if costs.corrected_time_s is not None:
        others.append("Layers are not corrected.")
    return [*notes, " ".join(others)] if others else notes


def missing_notes(layers: Layers) -> list[str]:
    """Return the number of calls that compute something and have no row; none if there are none."""
    missing = sum(call.lacks_row for call in layers.calls)
    if not missing:
        return []
    computing = sum(call.count.computes for call in layers.calls)
    if missing == computing:
        return ["Nothing of the model is measured."]
    return [f"{number_of(missing, 'call')} of {computing} without a row: the shares are those of the others."]


def _pair(time_s: float | None, energy_j: float | None) -> str:
    energy = UNKNOWN if energy_j is None else f"{milli(energy_j)} mJ"
    return f"{milli(time_s)} ms, {energy}"
