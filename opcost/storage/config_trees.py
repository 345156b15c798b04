"""The keys of a config that are trees: the arguments of a model, and its described inputs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from opcost.operators.model_inputs import CAUSAL, INTEGERS, NAMED_VALUES, NORMAL, UNIFORM, DescribedInputs
from opcost.operators.tuples import Constant, PlainValue, Structure, TensorSpec
from opcost.storage.config_nodes import REFUSED, Mistake, described, doubled, kind, line_of, shown

SHAPE, DTYPE, RANGE, VALUES = TENSOR_KEYS = ("shape", "dtype", "range", "values")
"""The keys of a tensor. A mapping with a shape is one; any other is a dict."""

FLOATING_DTYPES = ("float32", "float64", "float16", "bfloat16")
INTEGER_DTYPES = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATING_DTYPES, *INTEGER_DTYPES, "bool", "complex64")

LIMITS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32)},
    "uint8": (0, 255),
    "bool": (0, 1),
}
"""The least and the largest value of dtypes that cannot have each number of 18 digits."""

MAXIMUM_SIDE = 2**40

TENSOR_EXAMPLE = "{shape: [8, 128], dtype: int64, range: [0, 30522]}"
INPUTS_EXAMPLE = f"inputs: {{input_ids: {TENSOR_EXAMPLE}}}"
ARGUMENTS_EXAMPLE = "arguments: {num_hidden_layers: 2}"

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Parts: TypeAlias = tuple[tuple[str, PlainValue], ...]


def arguments_in(node: yaml.Node | None) -> tuple[Parts, list[Mistake]]:
    """Return the arguments of a model in the order of their names, and the mistakes in them."""
    parts, mistakes = parts_in(node, "arguments", f"write {ARGUMENTS_EXAMPLE}")
    return tuple(sorted(parts, key=lambda part: part[0])), mistakes


def parts_in(node: yaml.Node | None, key: str, remedy: str) -> tuple[Parts, list[Mistake]]:
    """Return the values of a key that is a mapping in the order of the file, none without it, and the mistakes."""
    reader = _Reader(key, remedy)
    if node is None or kind(node) == "null":
        return (), []
    if not isinstance(node, yaml.MappingNode):
        return (), [reader.mistake(node, f"the value is {described(node)}")]
    return reader.parts(node), reader.mistakes


def tree_in(node: yaml.Node, key: str, remedy: str) -> tuple[PlainValue, list[Mistake]]:
    """Return the value of a node of a key, in which mappings are dicts, and the mistakes in it."""
    reader = _Reader(key, remedy)
    return reader.value(node), reader.mistakes


def inputs_in(node: yaml.Node | None) -> tuple[DescribedInputs | None, list[Mistake]]:
    """Return the inputs that a config describes, None if it describes none, and the mistakes in them.

    A list has the positional arguments, a mapping those by keyword, and a tensor is the only one. No inputs are a
    mistake: a config without the key has the inputs that a user's function returns.
    """
    reader = _Reader("inputs", f"write {INPUTS_EXAMPLE}", with_tensors=True)
    if node is None or kind(node) == "null":
        return None, []
    if not isinstance(node, (yaml.MappingNode, yaml.SequenceNode)):
        return None, [reader.mistake(node, f"the value is {described(node)}")]
    if not node.value:
        return None, [reader.mistake(node, "there are none", f"{reader.remedy}, or remove the key")]
    value = reader.value(node)
    positional: tuple[PlainValue, ...] = ()
    keyword: Parts = ()
    if isinstance(value, Structure):
        keyword = value.parts
    else:
        positional = value if isinstance(value, tuple) else (value,)
    values = tuple(reader.values)
    return DescribedInputs(positional, keyword, values if any(one != NORMAL for one in values) else ()), reader.mistakes


def tree_text(value: PlainValue) -> str:
    """Return a tree in YAML on one line, which ``arguments_in`` or ``inputs_in`` reads back.

    Texts are quoted: some that look like numbers are texts for YAML and numbers here. Of a tensor, it has the shape and
    the dtype.
    """
    text: str = yaml.dump(_written(value), Dumper=_Writer, default_flow_style=True, width=2**31, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


class _Text(str):
    """A text that is quoted."""


class _Writer(yaml.SafeDumper):
    """Writes each list and text where it is, also if it is there twice."""

    def ignore_aliases(self, data: object) -> bool:
        """Return true: a name for a part that occurs twice is no value."""
        return True


_Writer.add_representer(_Text, lambda writer, text: writer.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def _written(value: PlainValue) -> object:
    if isinstance(value, TensorSpec):
        return {SHAPE: list(value.shape), DTYPE: value.dtype}
    if isinstance(value, Structure):
        return {name: _written(part) for name, part in value.parts}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return _Text(value) if isinstance(value, (str, Constant)) else value


@dataclass
class _Reader:
    """Reads the nodes of one key. ``values`` are those of the tensors so far."""

    key: str
    remedy: str
    with_tensors: bool = False
    mistakes: list[Mistake] = field(default_factory=list)
    values: list[PlainValue] = field(default_factory=list)

    def mistake(self, node: yaml.Node, text: str, remedy: str | None = None) -> Mistake:
        """Return a mistake at a node."""
        return line_of(node), f"{self.key}: {text}; {remedy or self.remedy}"

    def value(self, node: yaml.Node) -> PlainValue:
        """Return the value of a node."""
        if isinstance(node, yaml.MappingNode):
            is_tensor = self.with_tensors and any(key.value in (SHAPE, DTYPE, RANGE) for key, _ in node.value)
            return self._tensor(node) if is_tensor else Structure("dict", self.parts(node))
        if isinstance(node, yaml.SequenceNode):
            return tuple(map(self.value, node.value))
        return self._scalar(node)

    def parts(self, node: yaml.MappingNode) -> Parts:
        """Return the values of a mapping by name."""
        self.mistakes += doubled((key for key, _ in node.value), f"{self.key}: ")
        named = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or not _NAME.fullmatch(key.value):
                text = f"{described(key)} is no name of an argument"
                self.mistakes.append(self.mistake(key, text))
            else:
                named.append((key.value, self.value(value)))
        return tuple(dict(named).items())

    def _scalar(self, node: yaml.Node) -> PlainValue:
        name = kind(node)
        if name == "null" or node.tag == REFUSED:
            return None
        if name == "bool":
            return bool(yaml.SafeLoader.bool_values[node.value.lower()])
        if name == "int" and _INTEGER.fullmatch(node.value):
            return int(node.value)
        if name in ("float", "str") and _NUMBER.fullmatch(node.value):
            # PyYAML reads 1e-3 as a text.
            is_quoted = isinstance(node, yaml.ScalarNode) and node.style in ("'", '"')
            number = str(node.value) if is_quoted else float(node.value)
            if isinstance(number, str) or math.isfinite(number):
                return number
        elif name == "str":
            return str(node.value)
        self.mistakes.append(self.mistake(node, f"{described(node)} is no value", "write a number, a text or a list"))
        return None

    def _tensor(self, node: yaml.MappingNode) -> PlainValue:
        nodes: dict[str, yaml.Node] = {}
        self.mistakes += doubled((key for key, _ in node.value), f"{self.key}: ")
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in TENSOR_KEYS:
                nodes[key.value] = value
            elif key.tag != REFUSED:
                name = shown(key.value) if isinstance(key, yaml.ScalarNode) else described(key)
                remedy = f"a tensor has {', '.join(TENSOR_KEYS)}"
                self.mistakes.append(self.mistake(key, f"{name}: unknown key of a tensor", remedy))
        if SHAPE not in nodes:
            self.mistakes.append(self.mistake(node, "a tensor without a shape", f"write {TENSOR_EXAMPLE}"))
        shape = self._shape(nodes[SHAPE]) if SHAPE in nodes else ()
        dtype = self._one_of(nodes.get(DTYPE), DTYPE, DTYPES, "float32")
        identity = len(self.values)
        self.values.append(self._values(nodes, dtype, shape))
        return TensorSpec(shape, dtype, identity=identity)

    def _shape(self, node: yaml.Node) -> tuple[int, ...]:
        value = self._plain(node)
        sides = value if isinstance(value, tuple) else ()
        numbers = tuple(side for side in sides if type(side) is int and 0 < side <= MAXIMUM_SIDE)
        if not isinstance(value, tuple) or len(numbers) < len(sides):
            text = f"shape: the value is {described(node)}"
            self.mistakes.append(self.mistake(node, text, "write shape: [8, 128] (whole numbers above 0)"))
        return numbers

    def _plain(self, node: yaml.Node) -> PlainValue:
        """Return the value of a node without tensors; the caller reports a mistake in it."""
        reader = _Reader(self.key, self.remedy)
        value = reader.value(node)
        return None if reader.mistakes else value

    def _values(self, nodes: dict[str, yaml.Node], dtype: str, shape: tuple[int, ...]) -> PlainValue:
        """Return the values of a tensor: those in a range, or named ones."""
        if RANGE not in nodes:
            values = self._one_of(nodes.get(VALUES), VALUES, NAMED_VALUES, NORMAL)
            if values == CAUSAL and len(shape) < 2:
                remedy = "give the shape two dimensions or more"
                self.mistakes.append(self.mistake(nodes[VALUES], "values: causal is a mask of two dimensions", remedy))
            return values
        if VALUES in nodes:
            self.mistakes.append(self.mistake(nodes[VALUES], "values: given beside range", "keep one"))
        is_real = dtype in FLOATING_DTYPES
        ends = self._plain(nodes[RANGE])
        numbers = (int, float) if is_real else (int,)
        is_range = isinstance(ends, tuple) and len(ends) == 2 and all(type(end) in numbers for end in ends)
        if not is_range or not ends[0] < ends[1]:  # type: ignore[index, operator]
            remedy = f"write range: {'[0.0, 1.0]' if is_real else '[0, 30522]'} (the second is excluded, and larger)"
            self.mistakes.append(self.mistake(nodes[RANGE], f"range: the value is {described(nodes[RANGE])}", remedy))
            return NORMAL
        least, most = LIMITS.get(dtype, (-math.inf, math.inf))
        if not least <= ends[0] < ends[1] <= most + 1:  # type: ignore[index, operator]
            text = f"range: {dtype} has values from {least} to {most}"
            self.mistakes.append(self.mistake(nodes[RANGE], text, "choose a range in these, or another dtype"))
        return (UNIFORM if is_real else INTEGERS, *ends)  # type: ignore[misc]

    def _one_of(self, node: yaml.Node | None, key: str, known: tuple[str, ...], usual: str) -> str:
        if node is None:
            return usual
        if isinstance(node, yaml.ScalarNode) and node.value in known:
            return str(node.value)
        if node.tag != REFUSED:
            text = f"{key}: the value is {described(node)}"
            self.mistakes.append(self.mistake(node, text, f"write one of {', '.join(known)}"))
        return usual
