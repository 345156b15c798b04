"""A database with the committed rows of some models on an H200, in default precision and as CUDA graphs."""

import csv
from pathlib import Path

from opcost.storage.database import Database

DATABASE = Path(__file__).parents[1] / "database"
CONDITIONS = "b5778c1496bbb68b"
KNOWN = ("resnet18_", "resnet50_", "resnet152_", "mobilenet_v2_", "vgg16_")


def known_database(folder: Path) -> Database:
    """Return a database in a folder with the rows of ``KNOWN``."""
    with (DATABASE / "model_operators.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["model"].startswith(KNOWN)]
    _copy("model_operators.csv", folder, {row["model"] for row in rows}, "model")
    keys = {f"{row['key']}-{CONDITIONS}" for row in rows}
    for name in ("operator_measurements.csv", "full_model_measurements.csv"):
        _copy(name, folder, keys, "key")
    (folder / "calls_in_chains.csv").write_bytes((DATABASE / "calls_in_chains.csv").read_bytes())
    return Database(folder)


def _copy(name: str, folder: Path, wanted: set[str], column: str) -> None:
    with (DATABASE / name).open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    place = header.index(column)
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *(row for row in rows if row[place] in wanted)])
