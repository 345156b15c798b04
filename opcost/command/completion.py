"""Completion in shells: names of models, and devices. Only names of folders and small tables are read."""

from __future__ import annotations

import csv
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from opcost.errors import UserError
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.storage.files import UserFolders, user_folders

IS_ASKED = "_ARGCOMPLETE"
"""The variable with which a shell asks a program for completions instead of running it."""

PUBLISHED = (("opcost.sources", "published.csv"), ("opcost.storage", "language_models.csv"))
"""The tables of models that have names of their own, by package."""

WHOLES = "full_model_measurements.csv"
"""The smallest table with the products of all devices."""


def complete(parser: ArgumentParser) -> None:
    """Answer a shell and exit, if one asks and argcomplete is installed; else do nothing."""
    if IS_ASKED in os.environ:
        with suppress(ModuleNotFoundError):
            import argcomplete

            argcomplete.autocomplete(parser)


def models(parsed_args: Namespace, **_: object) -> list[str]:
    """Return the names of folders of models, with and without the input size, and of published models."""
    folders = _folders(parsed_args)
    names = set[str]()
    for folder in (folders.measurements, folders.shipped_measurements):
        if folder is not None and folder.is_dir():
            names |= {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    for package, file in PUBLISHED:
        with files(package).joinpath(file).open(encoding="utf-8") as table:
            names |= {line["name"] for line in csv.DictReader(table)}
    return sorted(names | {SIZE_IN_NAME.sub("", name) for name in names})


def devices(parsed_args: Namespace, **_: object) -> list[str]:
    """Return the names of devices, and the products that have a measured whole."""
    folders = _folders(parsed_args)
    tables = [folder / WHOLES for folder in (folders.database, folders.shipped_database) if folder is not None]
    return ["cpu", "cuda", *sorted({product for table in tables for product in _products(table)})]


def _products(table: Path) -> Iterator[str]:
    with suppress(OSError, UnicodeDecodeError, csv.Error), table.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            if product := line.get("device_product"):
                yield product


def _folders(arguments: Namespace) -> UserFolders:
    names = ("home", "measurements", "database")
    with suppress(UserError):
        return user_folders(*(getattr(arguments, name, None) for name in names))
    return user_folders(Path())
