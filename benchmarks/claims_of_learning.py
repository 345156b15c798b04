"""Figures of claims about learned costs, from the tables of ``prediction.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from claim_formats import percent

FOLDER = Path("docs", "data", "prediction")
COSTS = ("time", "energy")
METHODS = {
    "learned": "learned",
    "roofline": "roofline",
    "linear in FLOPs": "linear",
    "forest of attributes": "forest",
    "NeuralPower": "neural_power",
}
"""Methods, and the words for them in the names of figures."""

HELD_BACK = Path("docs/data/held_back")
HELD_BACK_NAMES = {
    f"{start}{cost}{end}_{unit}": f"{name}{cost}_{unit}"
    for cost, unit in (("time", "s"), ("energy", "j"))
    for start, end, name in (("measured_", "", ""), ("", "_lower", "lower_"), ("", "_upper", "upper_"))
}


def unseen_tuples(root: Path) -> dict[str, str]:
    """Return the errors in tuples whose shape was not learned from, by method."""
    table = pd.read_csv(root / FOLDER / "unseen_tuples.csv")
    rows = table[table["kind"] == "all"].set_index("method")
    found = {"unseen_tuples": f"{rows.loc['learned', 'samples']:,}"}
    for method, word in METHODS.items():
        for cost in COSTS:
            found[f"{word}_tuple_{cost}_median"] = percent(rows.loc[method, f"{cost}_median"])
            found[f"{word}_tuple_{cost}_within"] = percent(rows.loc[method, f"{cost}_within_10"])
    found |= {f"tuple_{cost}_covered": percent(rows.loc["learned", f"{cost}_covered"]) for cost in COSTS}
    return found


def unseen_families(root: Path) -> dict[str, str]:
    """Return the errors in wholes of models whose family was not learned from, by method."""
    table = pd.read_csv(root / FOLDER / "unseen_families.csv")
    found = {"unseen_models": str(table["model"].nunique()), "unseen_families": str(table["family"].nunique())}
    for method, word in METHODS.items():
        rows = table[table["method"] == method].set_index("model")
        for cost in COSTS:
            errors = (rows[f"{cost}_ratio"] - 1).abs()
            worst = errors.idxmax().removesuffix("_32x3x224x224")
            found |= {
                f"{word}_family_{cost}_median": percent(errors.median()),
                f"{word}_family_{cost}_worst": f"{percent(errors.max())} ({worst})",
                f"{word}_family_{cost}_within": percent((errors <= 0.15).mean()),
            }
    rows = table[table["method"] == "learned"]
    for cost in COSTS:
        known = rows[rows[f"{cost}_half_width"].notna()]
        covered = np.log(known[f"{cost}_ratio"]).abs() <= known[f"{cost}_half_width"]
        found[f"family_{cost}_covered"] = percent(covered.mean())
        found[f"family_{cost}_half"] = percent(rows[f"{cost}_half_width"].median())
    beyond = rows[(rows["time_ratio"] - 1).abs() > 0.15]
    return found | {"families_beyond": ", ".join(sorted(set(beyond["family"]))), "models_beyond": str(len(beyond))}


def later_wholes(root: Path) -> dict[str, str]:
    """Return the errors of wholes predicted before they were measured: other models, batch sizes, and a list."""
    found = {}
    fifteen, fourteen, batches = (
        pd.read_csv(root / FOLDER / f"{name}.csv")
        for name in ("fifteen_later_wholes", "fourteen_later_wholes", "other_batches")
    )
    later = pd.concat([fifteen, fourteen], ignore_index=True)
    held_back = {
        word: pd.read_csv(root / HELD_BACK / f"{name}.csv").rename(columns=HELD_BACK_NAMES)
        for word, name in (("held_back", "predictions"), ("h100_models", "predictions_h100"))
    }
    for word, rows in {"later": later, "batches": batches, **held_back}.items():
        found[f"{word}_wholes"] = str(len(rows))
        for cost, unit in zip(COSTS, ("s", "j"), strict=True):
            actual, predicted = rows[f"{cost}_{unit}"], rows[f"predicted_{cost}_{unit}"]
            errors = (predicted / actual - 1).abs()
            worst = rows.loc[errors.idxmax()]
            within = actual.between(rows[f"lower_{cost}_{unit}"], rows[f"upper_{cost}_{unit}"])
            found |= {
                f"{word}_{cost}_median": percent(errors.median()),
                f"{word}_{cost}_worst": percent(errors.max()),
                f"{word}_{cost}_worst_model": str(worst["model"]),
                f"{word}_{cost}_within": str(within.sum()),
            }
    sizes = sorted(set(batches["batch_size"]))
    larger = batches[batches["batch_size"] > 1]
    ratios = larger["predicted_time_s"] / larger["time_s"]
    return found | {
        "batch_sizes": ", ".join(map(str, sizes)),
        "larger_batches_worst": percent((ratios - 1).abs().max()),
        "batches_measured": percent(batches["measured_time_ratio"].max()),
    }


def learning(root: Path) -> dict[str, str]:
    """Return the errors after learning from few and from all samples, and the times."""
    curve = pd.read_csv(root / FOLDER / "learning_curve.csv").groupby("samples").mean()
    found = {}
    for word, size in (("few", curve.index[0]), ("half", curve.index[-2]), ("most", curve.index[-1])):
        found[f"curve_{word}"] = f"{size:,}"
        found |= {f"curve_{word}_{cost}": percent(curve.loc[size, f"{cost}_median"]) for cost in COSTS}
    times = pd.read_csv(root / FOLDER / "times.csv").set_index("what")
    return found | {
        "learning_seconds": f"{times.loc['learning', 'seconds']:.0f} s",
        "predicting_seconds": f"{times.loc['predicting', 'seconds']:.1f} s",
        "predicting_calls": f"{times.loc['predicting', 'calls']:,}",
    }


def drawn_lists(root: Path) -> dict[str, str]:
    """Return the errors in time of later models' tuples, after learning from shares of the base and drawn lists."""
    table = pd.read_csv(root / FOLDER / "drawn_lists.csv", keep_default_na=False, na_values=[""])
    tuples = table[table["tested"] == "tuples"]
    models = table[table["tested"] == "models"]
    found = {"later_tuples": f"{tuples['number'].min():,}", "later_models": str(models["number"].min())}
    numbers = (tuples["samples"] - tuples["base_samples"]).groupby(tuples["added"]).max()
    found |= {f"{added.replace(' ', '_')}_number": str(numbers[added]) for added in ("random", "least certain")}
    for word, thinned_by, ratio in (("tenth", "models", 0.1), ("half", "models", 0.5), ("whole", "whole", 1.0)):
        of_base = tuples[(tuples["thinned_by"] == thinned_by) & (tuples["base_ratio"] == ratio)]
        means = of_base.groupby("added")["time_median"].mean()
        for added in ("none", "random", "least certain"):
            found[f"later_{word}_{added.replace(' ', '_')}"] = percent(means[added])
    lists = table[table["tested"] == "list: random"].set_index("added")["time_median"]
    return found | {
        f"random_list_{added.replace(' ', '_')}": percent(lists[added]) for added in ("none", "least certain")
    }
