"""Figures of claims about sums in each precision and memory format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from claim_formats import days, percent, spread
from claim_tables import kernel_ratios
from sum_vs_full import corrected

from opcost.comparing.cache_chain_rows import ChainRow
from opcost.comparing.row import ComparisonRow
from opcost.running.request import Request
from opcost.stages.compare import ComparingReport, find_comparisons, reports_of
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

FOLDER = Path("docs", "data", "precisions")

MODELS: Mapping[str, Sequence[str]] = {
    "h200_second": ("resnet50", "vit_b_16"),
    "h200_third": ("swin_t",),
    "h200_fourth": ("convnext_tiny",),
    "h200_fifth": ("densenet121", "efficientnet_b0"),
}
"""The models of each folder. A folder is of one board; a model on several is taken from the most complete one."""

PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "bf16-channels_last": "bf16, channels last"}
"""The ends of configs' names, and the words for them."""

TWO_MODELS = ("resnet50", "vit_b_16")
"""The models under autocast, and those of the H100."""

BATCH = 32


@dataclass(frozen=True, kw_only=True)
class CorrectedRows(Database):
    """The tables of one folder, with the cache corrections of another."""

    corrections: Database

    @property
    def calls_in_chains(self) -> CsvTable[ChainRow]:
        """The other folder's measurements of chains."""
        return self.corrections.calls_in_chains


def sums_in_precisions(root: Path) -> dict[str, str]:
    """Return the differences of sums and wholes in each precision, and in all of them."""
    sums = pd.concat([sums_of(root, folder, models, PRECISIONS) for folder, models in MODELS.items()])
    image_mj = sums.set_index(["model", "precision"])["full_energy_j"] / BATCH * 1e3
    found = {
        "precision_models": str(sums["model"].nunique()),
        "precision_sums": str(len(sums)),
        "precision_days": days_of_folders(root, MODELS),
        "precision_error_time_median": percent(sums["time_standard_error_ratio"].median()),
        "precision_error_time_highest": percent(sums["time_standard_error_ratio"].max()),
        "precision_error_energy_lowest": percent(sums["energy_standard_error_ratio"].min()),
        "precision_error_energy_highest": percent(sums["energy_standard_error_ratio"].max()),
        "resnet50_fp32_image": f"{image_mj['resnet50', 'fp32']:.0f} mJ",
        "resnet50_bf16_channels_last_image": f"{image_mj['resnet50', 'bf16-channels_last']:.0f} mJ",
    }
    for precision in (*PRECISIONS, None):
        rows = sums if precision is None else sums[sums["precision"] == precision]
        in_precision = "" if precision else " in " + rows["precision"].map(PRECISIONS)
        found |= differences(rows, (precision or "all_precisions").replace("-", "_"), rows["model"] + in_precision)
    return found


def differences(sums: pd.DataFrame, key: str, names: pd.Series) -> dict[str, str]:
    """Return how far sums are from their wholes, plain and corrected.

    Args:
        sums: rows of comparisons.
        key: the beginning of the figures' names.
        names: those of the sums, with the same index.
    """
    found = {}
    for quantity, ratios in ratios_of(sums):
        errors = (ratios - 1).abs()
        found |= {
            f"{key}_{quantity}_median": percent(errors.median()),
            f"{key}_{quantity}_worst": percent(errors.max()),
            f"{key}_{quantity}_worst_sum": f"{percent(errors.max())} ({names[errors.idxmax()]})",
        }
    return found


def sums_of_two_models(root: Path) -> dict[str, str]:
    """Return the sums over wholes of two models under autocast, and in bf16 on an H100."""
    found = {}
    for name, folder, precision in (("autocast", "h200_second", "amp-bf16"), ("h100", "h100", "bf16")):
        sums = sums_of(root, folder, TWO_MODELS, [precision])
        found |= {f"{name}_{quantity}": _both(ratios) for quantity, ratios in ratios_of(sums)}
        found[f"{name}_days"] = days_of_folders(root, [folder])
    return found


def kernels_in_precisions(root: Path) -> dict[str, str]:
    """Return the ratio of kernel time alone to kernel time in the model in each precision, by the profiler."""
    tables = [pd.read_csv(root / FOLDER / folder / "kernel_times.csv") for folder in ("h200_fifth", "h100")]
    (alone, same), (alone_h100, same_h100) = map(kernel_ratios, tables)
    return {
        "precision_kernel_cases": str(len(alone)),
        "precision_kernel_models": str(len({name.partition("_32x3")[0] for name in alone.index})),
        "precision_kernel_days": days(*(table["profiled_at"] for table in tables)),
        **spread(alone, "precision_kernels"),
        "h100_kernels": _both(alone_h100),
        "precision_same_kernels_lowest": percent(min(same.min(), same_h100.min())),
    }


def sums_of(root: Path, folder: str, models: Iterable[str], precisions: Iterable[str]) -> pd.DataFrame:
    """Return the sums and wholes of models in precisions, from the rows of one folder and the committed corrections.

    Raises:
        ValueError: a sum lacks an operator or its cache correction.
    """
    cases = {f"{model}_{BATCH}x3x224x224_{one}": (model, one) for model in models for one in precisions}
    found = []
    for report in reports_in(root, FOLDER / folder, cases):
        (row,) = report.comparisons
        model, precision = cases[report.name]
        found.append({"model": model, "precision": precision, **asdict(complete(row))})
    return pd.DataFrame(found).set_index("name").loc[list(cases)]


def reports_in(root: Path, folder: Path, names: Iterable[str] = ()) -> list[ComparingReport]:
    """Return the comparisons of a folder's rows and the committed corrections.

    Args:
        root: of the repository.
        folder: the tables; its configs are in ``measurements`` beside it.
        names: of configs, all without any.
    """
    rows = CorrectedRows(root / folder, corrections=Database(root / "database"))
    request = Request(tuple(names), root / folder.parent / "measurements", rows, dry_run=True)
    return reports_of(request, find_comparisons(request))


def _both(ratios: pd.Series) -> str:
    return " and ".join(f"{ratio:.3f}" for ratio in ratios)


def complete(row: ComparisonRow) -> ComparisonRow:
    if row.missing_operators or row.correction_energy_j is None:
        raise ValueError(f"{row.name}: the sum lacks {row.missing_operators} operators, or its cache correction")
    return row


def ratios_of(sums: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """Yield sums over wholes in time and energy, without and with the cache correction, each with its name."""
    for quantity, column in (("time", "time_s"), ("energy", "energy_j")):
        summed, whole = sums[column], sums[f"full_{column}"]
        yield quantity, summed / whole
        yield f"{quantity}_corrected", corrected(sums, column) / whole


def days_of_folders(root: Path, folders: Iterable[str]) -> str:
    """Return the days on which the operators and wholes of folders were measured."""
    names = ("operator_measurements.csv", "full_model_measurements.csv")
    tables = [pd.read_csv(root / FOLDER / folder / name, low_memory=False) for folder in folders for name in names]
    return days(*(table["started_at"] for table in tables))
