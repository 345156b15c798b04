"""Language models by name: public architectures of transformers, and those of local ``config.json`` files.

Only what decides the work is here. Weights are random; positions are encoded as the class does it by default.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

from opcost.errors import UserError, shortened
from opcost.operators.generation import is_generating
from opcost.operators.model_names import TRANSFORMERS
from opcost.operators.tuples import PlainValue
from opcost.storage.schemas import sorted_arguments


@dataclass(frozen=True)
class LanguageModel:
    """A class of transformers and the arguments of its configuration, in the order of their names."""

    class_name: str
    arguments: tuple[tuple[str, PlainValue], ...]


TABLE = Path(__file__).parent / "language_models.csv"
"""Architectures of public models, as their publishers' files have them (read 2026-11-30)."""

CLASS = "class"


def public_models() -> dict[str, LanguageModel]:
    found = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, class_name = row.pop("name"), row.pop(CLASS)
            # Numbers and truth values are written as in JSON.
            given = {key: json.loads(value) for key, value in row.items() if value}
            found[name] = LanguageModel(class_name, sorted_arguments(given))
    return found


OF_NO_WORK = frozenset(
    "_name_or_path architectures auto_map dtype model_type torch_dtype transformers_version use_cache "
    "bos_token_id eos_token_id pad_token_id initializer_range rope_theta n_ctx max_length min_length do_sample "
    "temperature top_k top_p num_beams num_return_sequences gradient_checkpointing pretraining_tp".split()
)
"""Keys of a ``config.json`` that change no operation's size, besides those with further keys: labels, tasks, positions
and quantisation."""


def language_model(name: str, further: Iterable[tuple[str, PlainValue]] = ()) -> LanguageModel:
    """Return the model of a public name, of a file that ends in ``.json``, or of ``transformers:CLASS``.

    ``further`` arguments are added, or replace its own. Raises UserError: there is none, or the file describes none.
    """
    own = [argument for argument in further if is_generating([argument])]
    if own:
        raise UserError(f"--argument {own[0][0]}: batches and contexts decide it; leave it out")
    found = _named(name)
    return replace(found, arguments=tuple(sorted({**dict(found.arguments), **dict(further)}.items())))


def _named(name: str) -> LanguageModel:
    public = public_models()
    if name.lower() in public:
        return public[name.lower()]
    if name.endswith(".json"):
        return _in_file(Path(name))
    source, _, class_name = name.partition(":")
    if source != TRANSFORMERS or not class_name:
        names = ", ".join(public)
        remedy = f"name one of {names}, a config.json, or transformers:CLASS"
        raise UserError(f"{shortened(name)}: no language model of this name is known; {remedy}")
    return LanguageModel(class_name, ())


def _in_file(path: Path) -> LanguageModel:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a config.json of transformers") from None
    except ValueError as error:
        raise UserError(f"{path}: is no JSON ({error}); name a config.json of transformers") from None
    classes = found.get("architectures") if isinstance(found, dict) else None
    if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
        raise UserError(f'{path}: architectures: it names no class; write "architectures": ["LlamaForCausalLM"]')
    if found.get("quantization_config"):
        text = "%s: quantization_config is left out: weights are stored as --precision says"
        logging.getLogger(__name__).warning(text, path)
    own = {
        key: value for key, value in found.items() if key not in OF_NO_WORK and not isinstance(value, (dict, NoneType))
    }
    return LanguageModel(classes[0], sorted_arguments(own))
