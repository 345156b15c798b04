"""The states of builds of whole models, what they depend on, and the kernels that differ (``whole_states.py``)"""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
from tables import markdown

GAP = 1.01
"""Two neighbouring times that are this far apart belong to two states."""

SHORT, LONG = "short", "long"
BUILD = ["board", "process", "build"]
SHOWN_KERNELS = 12
BETWEEN_EVENTS = "events"
"""Processes with one build, which runs again after each of several events."""


def report_of(path: Path) -> str:
    """Return the report on a file of builds, and on the kernels beside it if there are any."""
    kernels = kernels_beside(path)
    return report(pd.read_csv(path), pd.read_csv(kernels) if kernels.exists() else None)


def report(table: pd.DataFrame, kernels: pd.DataFrame | None = None) -> str:
    """Return what the states of each model depend on, and which kernels differ, in Markdown."""
    table = with_states(table)
    is_between = table["preparation"] == BETWEEN_EVENTS
    parts = [states(table)]
    parts += [] if is_between.all() else [dependences(table[~is_between])]
    parts += [events(table[is_between])] if is_between.any() else []
    if kernels is not None:
        parts += [f"{name}:\n\n{text}" for name, text in differences(table, kernels).items()]
    return "\n\n".join(parts)


def with_states(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the state of each loop, and whether it changed within the loop.

    Rows of the former script (``docs/data/whole_builds.csv``) had a buffer before each build, and one look.
    """
    former = {"preparation": "buffers", "look": 0, "device": "", "chunk_times_s": "", "iterations_per_replay": 0}
    former["temperature_c"] = None
    table = table.assign(**{name: value for name, value in former.items() if name not in table})
    parts = []
    for _, own in table.groupby(["board", "config"]):
        limit_s = limit_between_states_s(own["time_s"])
        chunks = [[float(one) for one in str(text).split("|") if one] for text in own["chunk_times_s"]]
        short = [sum(one < limit_s for one in times_s) for times_s in chunks]
        changed = [1 < number < len(times_s) - 1 for number, times_s in zip(short, chunks, strict=True)]
        state = (own["time_s"] < limit_s).map({True: SHORT, False: LONG})
        parts.append(own.assign(state=state, changed=changed))
    return pd.concat(parts)


def limit_between_states_s(times_s: pd.Series) -> float:
    """Return the middle of the largest gap between times; 0 if no gap is as large as ``GAP``."""
    ordered = sorted(times_s)
    pairs = itertools.pairwise(ordered)
    ratio, limit_s = max(((high / low, (low + high) / 2) for low, high in pairs), default=(1.0, 0.0))
    return limit_s if ratio >= GAP else 0.0


def states(table: pd.DataFrame) -> str:
    """Return each model's states with their times, temperatures and clocks."""
    header = ("model", "board", "state", "loops", "median", "spread", "changed within", "chip", "iterations per replay")
    lines = []
    for (config, board, state), own in table.groupby(["config", "board", "state"]):
        times_s = own["time_s"]
        spread = f"±{times_s.std() / times_s.mean():.2%}" if len(own) > 1 else ""
        chip = f"{own['temperature_c'].mean():.0f} °C" if own["temperature_c"].notna().any() else ""
        replays = "/".join(str(one) for one in sorted(own["iterations_per_replay"].unique()))
        cells = [str(len(own)), f"{1e3 * times_s.median():.4g} ms", spread, str(own["changed"].sum()), chip, replays]
        lines.append([str(config), str(board)[:8], str(state), *cells])
    return markdown(header, lines)


def dependences(table: pd.DataFrame) -> str:
    """Return the share of the short state by preparation, order and look, and how many builds keep their state."""
    header = ("model", "preparation", "first build", "second", "later", "again, after all", "keep their state")
    lines = []
    for (config, preparation), own in table.groupby(["config", "preparation"]):
        at_once, again = (own[own["look"] == look].set_index(BUILD)["state"] for look in (0, 1))
        number = at_once.index.get_level_values("build")
        both = pd.concat([at_once, again], axis=1, join="inner")
        kept = f"{(both.iloc[:, 0] == both.iloc[:, 1]).sum()} of {len(both)}"
        groups = (at_once[number == 0], at_once[number == 1], at_once[number > 1], again)
        lines.append([str(config), str(preparation), *map(shorts, groups), kept])
    return "Loops in the short state:\n\n" + markdown(header, lines)


def events(table: pd.DataFrame) -> str:
    """Return how often each event was followed by a change of a build's state."""
    ordered = table.sort_values("look")
    ordered = ordered.assign(before=ordered.groupby(BUILD)["state"].shift()).dropna(subset="before")
    header = ("model", "event", "short, and stays so", "becomes long", "long, and stays so", "becomes short")
    lines = []
    for (config, event), own in ordered.groupby(["config", "event"]):
        changes = ((SHORT, SHORT), (SHORT, LONG), (LONG, LONG), (LONG, SHORT))
        numbers = (((own["before"] == before) & (own["state"] == after)).sum() for before, after in changes)
        lines.append([str(config), str(event), *map(str, numbers)])
    return "Builds between two loops, by the event between them:\n\n" + markdown(header, lines)


def shorts(found: pd.Series) -> str:
    return f"{(found == SHORT).sum()} of {len(found)}"


def differences(table: pd.DataFrame, kernels: pd.DataFrame) -> dict[str, str]:
    """Return for each model and board how its lists of kernels and their times differ between the states."""
    kernels = kernels.assign(launch=kernels["name_hash"] + " " + kernels["grid_and_block"].fillna(""))
    kernels = kernels.join(table.set_index([*BUILD, "look"])["state"], on=[*BUILD, "look"], how="inner")
    return {
        f"{config} on {str(board)[:8]}": kernel_differences(own)
        for (config, board), own in kernels.groupby(["config", "board"])
    }


def kernel_differences(kernels: pd.DataFrame) -> str:
    """Return whether builds run the same kernels, and the kernels that differ most between two states."""
    lists = kernels.sort_values("kernel").groupby([*BUILD, "state"])["launch"].agg("|".join).reset_index("state")
    by_state = {state: own["launch"].nunique() for state, own in lists.groupby("state")}
    text = f"{lists['launch'].nunique()} different lists of kernels with their grids in {len(lists)} builds"
    text += "".join(f"; {number} in the {state} state" for state, number in by_state.items())
    sums_s = kernels.groupby([*BUILD, "state"])[["kernel_time_s", "gap_s"]].sum().groupby("state").mean()
    parts = [text + ".", *(_sum(str(state), own) for state, own in sums_s.iterrows())]
    if {SHORT, LONG} <= set(by_state):
        parts.append("\n" + _by_kernel(kernels))
    return "\n".join(parts)


def _sum(state: str, sums_s: pd.Series) -> str:
    return f"- {state}: kernels {1e3 * sums_s['kernel_time_s']:.4f} ms, gaps {1e3 * sums_s['gap_s']:.4f} ms"


def _by_kernel(kernels: pd.DataFrame) -> str:
    found = kernels.groupby(["kernel", "name", "grid_and_block", "state"])[["kernel_time_s", "gap_s"]].mean()
    found = found.unstack("state", fill_value=0.0)
    difference_s = pd.DataFrame({part: found[part][LONG] - found[part][SHORT] for part in ("kernel_time_s", "gap_s")})
    ordered = difference_s.sum(axis=1).sort_values(key=abs, ascending=False).index[:SHOWN_KERNELS]
    all_s = difference_s.sum()
    lines = [
        ["all", "", "", "", f"{1e6 * all_s['kernel_time_s']:+.2f} µs", f"{1e6 * all_s['gap_s']:+.2f} µs"],
        *(
            [
                str(at[0]),
                at[1].replace("|", "/")[:70],
                at[2],
                f"{1e6 * found.loc[at, ('kernel_time_s', SHORT)]:.2f} µs",
                f"{1e6 * difference_s.loc[at, 'kernel_time_s']:+.2f} µs",
                f"{1e6 * difference_s.loc[at, 'gap_s']:+.2f} µs",
            ]
            for at in ordered
        ),
    ]
    header = ("number", "kernel", "grid and block", "short", "longer in the long state", "gap after it")
    return markdown(header, lines)


def kernels_beside(output: Path) -> Path:
    """Return the file of the kernels of builds, beside that of their loops."""
    return output.with_suffix(".kernels.csv")
