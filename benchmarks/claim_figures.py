"""All figures of claims, recomputed from the committed rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import claims_of_boards as boards
import claims_of_conditions as conditions
import claims_of_learning as learning
import claims_of_loops as loops
import claims_of_predictions as predictions
import claims_of_rows as rows
import claims_of_sums as sums
import claims_of_sweeps as sweeps
import claims_of_wholes as wholes
import claims_of_windows as windows

FIGURES_OF: Sequence[Callable[[Path], Mapping[str, str]]] = (
    sums.sums_against_wholes,
    sums.covered,
    sums.short_kernels,
    sums.other_runs,
    sums.kernels_alone,
    sums.kinds_of_operators,
    wholes.held_out,
    wholes.protocols,
    wholes.sums_on_boards,
    wholes.sums_of_other_boards,
    sums.resnet50,
    sums.under_the_whitelist,
    conditions.sums_on_an_h100,
    conditions.sums_in_precisions,
    conditions.sums_of_two_models,
    conditions.kernels_in_precisions,
    conditions.sums_of_other_sources,
    conditions.sums_of_networks,
    predictions.held_out_kinds,
    predictions.whitelisted_sums,
    learning.unseen_tuples,
    learning.unseen_families,
    learning.later_wholes,
    learning.learning,
    learning.drawn_lists,
    boards.two_boards,
    boards.boards,
    boards.classes_of_boards,
    boards.wholes_between_boards,
    boards.wholes_on_boards,
    boards.wholes_of_many_builds,
    boards.three_runs,
    loops.campaign_speed,
    loops.fast_against_long,
    loops.meters,
    windows.metered_windows,
    windows.metered_layers,
    loops.values_of_inputs,
    loops.patterns_of_inputs,
    loops.counting,
    sweeps.sweeps_of_sizes,
    sweeps.single_iterations,
    sweeps.sweeps_spread,
    sweeps.sweeps_against_first_runs,
    sweeps.sweeps_predicted,
    sweeps.sweeps_fitted,
    sweeps.sweeps_kernels,
    sweeps.same_kernels,
    sweeps.sweep_columns,
    rows.conditions,
    rows.campaigns,
    rows.median_of_all_boards,
    rows.cited_convolution,
    rows.cache_correction,
)


def all_figures(root: Path) -> dict[str, str]:
    """Return every figure by its name, as it is printed.

    Raises:
        ValueError: two figures have one name, so that a claim would state the wrong one.
    """
    found: dict[str, str] = {}
    for figures in FIGURES_OF:
        new = figures(root)
        if names := [name for name in new.keys() & found.keys() if new[name] != found[name]]:
            raise ValueError(f"two figures have one name: {', '.join(sorted(names))}")
        found |= new
    return found
