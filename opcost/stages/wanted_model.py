"""A model to profile, as ``opcost profile`` takes it, and the config that describes the same."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from opcost.errors import UserError, shortened
from opcost.invocation import ALLOW_CODE
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT
from opcost.operators.model_names import ModelName, UserCode
from opcost.operators.tuples import PlainValue
from opcost.storage.config_trees import argument_in, tree_text
from opcost.storage.configs import ModelConfig


def option_of(key: str) -> str:
    """Return the argument of the command line that gives a key."""
    return {"model_name": "MODEL", "arguments": "--argument"}.get(key, f"--{key.replace('_', '-')}")


def placed(code: UserCode) -> str:
    """Return a model's name for a config: a relative path would refer to the config's folder."""
    return f"{code.module or code.path}:{code.function}"


@dataclass(frozen=True)
class WantedModel:
    """The model to profile, as the keys of a config: implements ``sources.ports.ConfiguredModel``.

    ``input_size`` has the batch first; it is empty for the size that the model's source publishes, and if a user's
    function returns the inputs. ``arguments`` are those of the class or function that builds the model.
    """

    model_name: str
    input_size: tuple[int, ...] = ()
    precision: str = TORCH_DEFAULT
    memory_format: str = CONTIGUOUS
    weights_name: None = None
    inputs: None = None
    arguments: tuple[tuple[str, PlainValue], ...] = ()

    def where(self, key: str) -> str:
        return option_of(key)

    def option_for(self, key: str) -> str:
        """Return the argument that gives a key of the config, the model if its source gives the size."""
        return option_of("model_name" if key == "input_size" and not self.input_size else key)

    @property
    def further_keys(self) -> Mapping[str, object]:
        """The keys besides name and size, with their values. Those of a config are to be equal, whether given or not.

        A key that configs get later is added here, and to ``USUAL_KEYS``.
        """
        return {"precision": self.precision, "memory_format": self.memory_format, "arguments": self.arguments}

    @property
    def words(self) -> tuple[str, ...]:
        size = ("--input-size", "x".join(map(str, self.input_size))) if self.input_size else ()
        keys = WantedModel(self.model_name).further_keys
        changed = [(key, value) for key, value in self.further_keys.items() if value != keys[key]]
        options = [text for key, value in changed if key != "arguments" for text in (option_of(key), str(value))]
        arguments = [f"{name}={tree_text(value)}" for name, value in self.arguments]
        given = [text for argument in arguments for text in (option_of("arguments"), argument)]
        allowed = (ALLOW_CODE,) if ModelName.of(self.model_name).is_file else ()
        return (self.model_name, *size, *options, *given, *allowed)

    @property
    def base_name(self) -> str:
        """The name of a folder for the model, without its size: ``my_net_build`` for ``my_net.py:build``."""
        named = ModelName.of(self.model_name)
        text = f"{Path(str(named.code)).name.removesuffix('.py')}_{named.name}" if named.is_file else self.model_name
        return re.sub(r"\W+", "_", text).strip("_")

    @staticmethod
    def from_arguments(arguments: Namespace) -> WantedModel:
        """Return the model that a command line names.

        Raises:
            UserError: an argument for building it cannot be read.
        """
        return WantedModel(
            arguments.model,
            arguments.input_size or (),
            arguments.precision,
            arguments.memory_format,
            arguments=arguments_of(arguments.argument),
        )

    @staticmethod
    def of(config: ModelConfig) -> WantedModel | None:
        """Return the model whose profile uses this config, None if there is none: it has other keys.

        A file below the present folder has its relative path, as a user would type it.
        """
        code = config.code
        name = config.model_name if code is None else placed(code)
        wanted = WantedModel(
            name, config.input_size, config.precision, config.memory_format, arguments=config.arguments
        )
        if not wanted.is_described_by(config):
            return None
        if code is None or code.module is not None or not Path(code.path).is_relative_to(Path.cwd()):
            return wanted
        return replace(wanted, model_name=f"{Path(code.path).relative_to(Path.cwd())}:{code.function}")

    def is_described_by(self, config: ModelConfig) -> bool:
        own = {"model_name": self.model_name, "input_size": self.input_size, **USUAL_KEYS, **self.further_keys}
        # 1, 1.0 and True are equal in Python, but build different models.
        return all(repr(getattr(config, key)) == repr(value) for key, value in own.items())


def arguments_of(texts: Sequence[str]) -> tuple[tuple[str, PlainValue], ...]:
    """Return the arguments that texts such as ``num_hidden_layers=2`` name, each with a value in YAML.

    They are in the order of their names, as in configs: the config of a profile is found again in any order.

    Raises:
        UserError: one of them is none.
    """
    found: dict[str, PlainValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        # As a config has it, where it is written to.
        argument = argument_in(f"arguments: {{{name}: {value}}}") if equals else None
        if argument is None:
            remedy = (
                "write NAME=VALUE, such as num_hidden_layers=2, in plain YAML of a few levels without anchors and tags"
            )
            raise UserError(f"--argument {shortened(text)}: cannot be read; {remedy}")
        found[argument[0]] = argument[1]
    return tuple(sorted(found.items()))


USUAL_KEYS: Mapping[str, object] = MappingProxyType(
    {"weights_name": None, "seed": 0, "composites": (), "inputs": None, "grid": None}
)
"""Keys that a profile leaves at their default."""
