"""The schemas of files that people write: a ``summary.yml``, a ``grid.yml`` and the operator whitelist."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias, get_args

import yaml
from pydantic import AfterValidator, Discriminator, Field, PositiveInt, Tag, model_validator
from typing_extensions import Self, TypeAliasType

from opcost.errors import UserError, shortened
from opcost.measuring.conditions import CONTIGUOUS, MemoryFormat
from opcost.measuring.precisions import AUTOCAST_DTYPES, TORCH_DEFAULT, Precision
from opcost.operators.attention import ANY_BACKEND, BACKENDS, Backend
from opcost.operators.generation import DECODE, GENERATING, generation_arguments, is_generating
from opcost.operators.grids import MAXIMUM_POINTS, Grid, GridTensor, TupleList
from opcost.operators.model_inputs import CAUSAL, INTEGERS, NORMAL, UNIFORM, DescribedInputs, Unit
from opcost.operators.model_names import TRANSFORMERS, ModelName
from opcost.operators.texts import parse_tuple
from opcost.operators.training import LOSSES, OPTIONS, TRAINING, LossName, Training
from opcost.operators.tuples import (
    DEFAULT_SEED,
    SIZE_IN_NAME,
    Constant,
    OperatorTuple,
    PlainValue,
    Structure,
    TensorSpec,
    nested,
)
from opcost.storage.yaml_files import BY_LIST, ONE, SEVERAL, OneOrSeveral, Place, Schema, document_of, shown
from opcost.units import is_one_line

FloatingDtype = Literal["float32", "float64", "float16", "bfloat16"]
Dtype = Literal[FloatingDtype, "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]

LIMITS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32)},
    "uint8": (0, 255),
    "bool": (0, 1),
}
"""The least and the largest value of dtypes that cannot have each number of 18 digits."""

Side = Annotated[int, Field(gt=0, le=2**40)]

TENSOR_EXAMPLE = "{shape: [8, 128], dtype: int64, range: [0, 30522]}"
INPUTS_EXAMPLE = f"inputs: {{input_ids: {TENSOR_EXAMPLE}}}"
ARGUMENTS_EXAMPLE = "arguments: {num_hidden_layers: 2}"


class Tensor(Schema):
    """A tensor. A mapping with any of the first three keys is one; any other is a dict."""

    shape: list[Side]
    dtype: Dtype = "float32"
    range: list[int | float] | None = None
    values: Literal["normal", "zeros", "ones", "causal"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.values == CAUSAL and len(self.shape) < 2:
            raise ValueError("values: causal is a mask of two dimensions; give the shape two dimensions or more")
        if self.range is None:
            return self
        if self.values is not None:
            raise ValueError("values: given beside range; keep one")
        is_real = self.dtype in get_args(FloatingDtype)
        is_range = len(self.range) == 2 and (is_real or all(type(end) is int for end in self.range))
        if not is_range or not self.range[0] < self.range[1]:
            example = "[0.0, 1.0]" if is_real else "[0, 30522]"
            raise ValueError(f"range: not two numbers; write range: {example} (the second is excluded, and larger)")
        least, most = LIMITS.get(self.dtype, (-math.inf, math.inf))
        if not least <= self.range[0] < self.range[1] <= most + 1:
            text = f"range: {self.dtype} has values from {least} to {most}"
            raise ValueError(f"{text}; choose a range in these, or another dtype")
        return self


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "<mapping>" if value.keys().isdisjoint(("shape", "dtype", "range")) else "<tensor>"
    return "<list>" if isinstance(value, list) else "<value>"


def _allowing(is_allowed: Callable[[Any], bool]) -> AfterValidator:
    """Return a validator after which the field's description is the remedy."""

    def check(value: Any) -> Any:
        if not is_allowed(value):
            raise ValueError
        return value

    return AfterValidator(check)


if TYPE_CHECKING:
    Inputs: TypeAlias = Any
else:
    Tree = TypeAliasType(
        "Tree",
        Annotated[
            Annotated[Tensor, Tag("<tensor>")]
            | Annotated[dict[str, "Tree"], Tag("<mapping>")]
            | Annotated[list["Tree"], Tag("<list>")]
            | Annotated[Any, Tag("<value>")],
            Discriminator(_kind),
        ],
    )
    # A config without the key has the inputs that a user's function returns.
    Inputs = Annotated[Tree, _allowing(lambda tree: tree is None or (tree and isinstance(tree, (Tensor, dict, list))))]


def _plain(tree: Any, values: list[PlainValue]) -> PlainValue:
    """Return a tree as a value of a tuple, with the next identities for its tensors, and add their values."""
    if isinstance(tree, Tensor):
        is_real = tree.dtype in get_args(FloatingDtype)
        in_range = None if tree.range is None else (UNIFORM if is_real else INTEGERS, *tree.range)
        values.append(in_range or tree.values or NORMAL)
        return TensorSpec(tuple(tree.shape), tree.dtype, identity=len(values) - 1)
    if isinstance(tree, dict):
        return Structure("dict", tuple((name, _plain(part, values)) for name, part in tree.items()))
    return tuple(_plain(item, values) for item in tree) if isinstance(tree, list) else tree


def described_inputs(tree: Any) -> DescribedInputs | None:
    """Return described inputs: a list has the positional arguments, a mapping those by keyword, a tensor is one."""
    if tree is None:
        return None
    values: list[PlainValue] = []
    found = _plain(tree, values)
    drawn = tuple(values) if any(one != NORMAL for one in values) else ()
    if isinstance(found, Structure):
        return DescribedInputs((), found.parts, drawn)
    return DescribedInputs(found if isinstance(found, tuple) else (found,), (), drawn)


def sorted_arguments(arguments: dict[str, Any] | None) -> tuple[tuple[str, PlainValue], ...]:
    return tuple((name, _plain(value, [])) for name, value in sorted((arguments or {}).items()))


def argument_in(text: str) -> tuple[str, PlainValue] | None:
    """Return the one argument in ``arguments: {NAME: VALUE}``; None if the text has a mistake or anything else."""
    try:
        document = document_of(Path(), text.encode(errors="surrogateescape"), ARGUMENTS_EXAMPLE)
    except UserError:
        return None
    arguments = document.values.get("arguments")
    is_one = not document.mistakes and len(document.values) == 1 and isinstance(arguments, dict) and len(arguments) == 1
    return sorted_arguments(arguments)[0] if is_one else None


def tree_text(value: PlainValue) -> str:
    """Return a tree in YAML on one line, with quoted texts: some are texts for YAML and would be numbers here."""
    text: str = yaml.dump(_written(value), Dumper=_Writer, default_flow_style=True, width=2**31, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


class _Text(str):
    """A text that is quoted."""


class _Writer(yaml.SafeDumper):
    """Writes each list and text where it is, also if it is there twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Writer.add_representer(_Text, lambda writer, text: writer.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def _written(value: PlainValue) -> object:
    if isinstance(value, TensorSpec):
        return {"shape": list(value.shape), "dtype": value.dtype}
    if isinstance(value, Structure):
        return {name: _written(part) for name, part in value.parts}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return _Text(value) if isinstance(value, (str, Constant)) else value


# Grids

LONGEST_NAME = 200
"""The most characters of a name, because messages quote names and are one line."""

LONGEST_TEXT = 4000
UNSUPPORTED_KEYS: Mapping[str, str] = {
    **dict.fromkeys("training train mode backward loss optimizer".split(), "opcost measures inference only"),
    **dict.fromkeys("dtype amp autocast half".split(), "write precision: bf16, or another of docs/usage.md"),
    "quantized": "opcost does not measure quantized models",
    "batch_size": "the batch is the first number of input_size; several are written as batch: [1, 8, 32]",
    **dict.fromkeys("device execution cache seconds".split(), "this is an option of the command line"),
}
"""Keys that users expect and opcost does not have, with the reason."""

SIZES_EXAMPLE = "sizes: {batch: [1, 32], side: 56} (whole numbers above 0)"
PARAMETERS_EXAMPLE = "parameters: {in_channels: 64, out_channels: 128, kernel_size: [1, 3]} (a list gives a tuple each)"
OPERATOR_EXAMPLE = "operator: torch.nn.Conv2d (a module or a function of torch or torchvision, with its package)"
TUPLE_EXAMPLE = "torch.nn.ReLU() on (float32[8, 64]) eval"

OPERATOR_PATTERN = r"^torch(vision)?(\.[A-Za-z_]\w*)+$"

SHARES = (0.0, *(tenths / 10 for tenths in range(1, 10)), 1.0)
"""The shares of zeros: those by which rows are distinguished."""

KNOWN_STRUCTURES = ("dict", "slice")
"""The structures that a text names completely. It has only the last part of the name of any other class."""

GridPrecision = Literal["torch-default", "fp32", "tf32"]


Tier = Literal[1, 2, 3]
"""How soon a database is to hold a config: 1 first."""
TIER: Tier | None = Field(
    default=None, description=f"tier: 1 (up to {max(get_args(Tier))}: what a database is to hold)"
)


class MeasuredGrid(Schema):
    """The keys that both forms of a ``grid.yml`` have."""

    precision: GridPrecision = Field(
        default=TORCH_DEFAULT, description=f"precision: {' or '.join(get_args(GridPrecision))} (of products in float32)"
    )
    done: bool = Field(default=False, description="done: false (true or false, no quotes)")
    tier: Tier | None = TIER


def _refuse_mappings(parameters: dict[str, Any]) -> dict[str, Any]:
    for name, value in parameters.items():
        if value == [] or any(isinstance(one, dict) for one in (value if isinstance(value, list) else [value])):
            raise ValueError(f"{shown(name)} is a mapping or an empty list; write {PARAMETERS_EXAMPLE}")
    return parameters


class GridInput(Schema):
    """A tensor with a dtype of its own."""

    shape: list[Side | str]
    dtype: Dtype | None = None


_Input = Annotated[
    Annotated[list[Side | str], Tag("<sides>")] | Annotated[GridInput, Tag("<tensor>")],
    Discriminator(lambda value: "<tensor>" if isinstance(value, dict) else "<sides>"),
]
_Share = Annotated[float, _allowing(SHARES.__contains__)]


class Zeros(Schema):
    """Shares of zeros."""

    inputs: OneOrSeveral[_Share] = 0.0
    weights: OneOrSeveral[_Share] = 0.0


class GridFile(MeasuredGrid):
    """A ``grid.yml`` of one operator."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **UNSUPPORTED_KEYS,
        "dtype": "write dtypes: [float32, bfloat16]",
        "model_name": "a grid has an operator; a model has a summary.yml",
        "batch": "write it under sizes",
        "batch_size": "write sizes: {batch: [1, 32]}",
        "tuple": "did you mean tuples?",
    }

    operator: Annotated[str, Field(pattern=OPERATOR_PATTERN, max_length=LONGEST_NAME)] = Field(
        description=OPERATOR_EXAMPLE
    )
    inputs: Annotated[list[_Input], Field(min_length=1)] = Field(
        description="inputs: [[batch, in_channels, side, side]] (one shape for each tensor, or its shape and dtype)"
    )
    parameters: Annotated[dict[str, Any], AfterValidator(_refuse_mappings)] | None = Field(
        default=None, description=PARAMETERS_EXAMPLE
    )
    sizes: dict[str, OneOrSeveral[Side]] | None = Field(default=None, description=SIZES_EXAMPLE)
    dtypes: OneOrSeveral[FloatingDtype] = Field(default="float32", description="dtypes: [float32, bfloat16]")
    zeros: Zeros | None = Field(
        default=None, description="zeros: {inputs: [0, 0.5], weights: 0.9} (shares in tenths, from 0 to 1)"
    )

    @property
    def grid(self) -> Grid:
        tensors = [(one.shape, one.dtype) if isinstance(one, GridInput) else (one, None) for one in self.inputs]
        zeros = self.zeros or Zeros()
        return Grid(
            operator=self.operator,
            inputs=tuple(GridTensor(tuple(shape), dtype) for shape, dtype in tensors),
            parameters=tuple((name, _several(value)) for name, value in (self.parameters or {}).items()),
            sizes=tuple((name, _several(value)) for name, value in (self.sizes or {}).items()),
            dtypes=_several(self.dtypes),
            input_zeros=_several(zeros.inputs),
            weight_zeros=_several(zeros.weights),
        )

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        if not self.model_fields_set.issuperset(given):
            return
        grid = self.grid
        sizes, parameters = dict(grid.sizes), dict(grid.parameters)
        known, remedy = {**sizes, **parameters}, f"write a number, or the name of one under sizes: {SIZES_EXAMPLE}"
        for name in sizes.keys() & parameters.keys():
            yield ("sizes", name), "given under sizes and parameters; rename one"
        sides = dict.fromkeys(side for tensor in grid.inputs for side in tensor.shape if isinstance(side, str))
        for side in sides:
            wrong = [one for one in known.get(side, ()) if type(one) is not int and one not in sizes]
            if side not in known:
                names = ", ".join(known) or "none"
                yield ("inputs",), f"{shown(side)} is the name of no size and no parameter, which are {names}; {remedy}"
            elif wrong:
                yield ("inputs",), f"{side} is a side, but the parameter may be {wrong[0]!r}; {remedy}"
        used = {*sides, *(text for text in nested(parameters.values()) if isinstance(text, str))}
        for name in sizes.keys() - used - parameters.keys():
            yield ("sizes", name), "in no shape and no parameter; remove it, or write it there"
        if grid.number > MAXIMUM_POINTS:
            remedy = f"a grid may have {MAXIMUM_POINTS}; shorten its lists, or write several grids"
            yield (), f"the lists give {grid.number} tuples; {remedy}"


def _several(values: Any) -> tuple[Any, ...]:
    # 1, 1.0 and True are equal in Python.
    items = values if isinstance(values, list) else [values]
    return tuple({repr(one): one for one in (_plain(item, []) for item in items)}.values())


def _tuple_in(text: str) -> OperatorTuple:
    """Return the tuple that a text describes; a ``ValueError``, with the remedy, if none of such can be run."""
    try:
        operator = parse_tuple(text)
    except ValueError as error:
        raise ValueError(f"{error}; write it as tables show it, such as {TUPLE_EXAMPLE}") from None
    if not re.match(OPERATOR_PATTERN, operator.operator):
        name = shortened(operator.operator)
        raise ValueError(f"{name} is no operator of torch or torchvision; remove the tuple")
    values = [*operator.inputs, *(value for _, value in (*operator.parameters, *operator.keyword_inputs))]
    structures = (one.kind for one in nested(values) if isinstance(one, Structure))
    unknown = next((kind for kind in structures if kind not in KNOWN_STRUCTURES), None)
    if unknown is not None:
        reason = f"its text has only the last part of the name of the class {shortened(unknown)}"
        raise ValueError(f"it cannot be run again, because {reason}; remove the tuple")
    return operator


class TuplesFile(MeasuredGrid):
    """A ``grid.yml`` with tuples."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **UNSUPPORTED_KEYS,
        **dict.fromkeys(
            "operator inputs parameters sizes dtypes zeros".split(),
            "it is a key of a grid of one operator; move it, or tuples, to another folder",
        ),
    }

    tuples: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_tuple_in)]],
        Field(min_length=1, max_length=MAXIMUM_POINTS),
    ] = Field(description=f"tuples: and, each on its own line, - {TUPLE_EXAMPLE} (at most {MAXIMUM_POINTS} in a file)")

    @property
    def grid(self) -> TupleList:
        tuples: Any = self.tuples
        return TupleList(tuple(tuples))

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        return repeated("tuples", self.tuples)


def repeated(key: str, items: Iterable[object]) -> Iterator[tuple[Place, str]]:
    """Yield a mistake for each repeated item of a list."""
    first: dict[object, int] = {}
    for index, item in enumerate(items):
        if first.setdefault(item, index) < index:
            yield (key, index), f"{shortened(str(item))}: given twice, also as item {first[item] + 1}; keep one"


def tuples_text(tuples: Iterable[OperatorTuple], comments: Iterable[str]) -> str:
    """Return the text of a ``grid.yml`` with tuples that are to be measured, behind lines of comments."""
    keys = {TupleList.key: [*map(str, tuples)], "done": False}
    lines = "".join(f"# {comment}\n" for comment in comments)
    return lines + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=LONGEST_TEXT + 100)


def is_listable(operator: OperatorTuple) -> bool:
    """Return whether a list can have a tuple: its text describes it completely."""
    text = str(operator)
    try:
        return len(text) <= LONGEST_TEXT and _tuple_in(text) == operator
    except ValueError:
        return False


# Models and the whitelist

WHITELIST_EXAMPLE = "operators: [Conv2d, Linear]"
INPUT_SIZE_EXAMPLE = "input_size: [32, 3, 224, 224] (2 to 6 whole numbers above 0 in plain digits, batch first)"

BATCH, INPUT_SIZE, CONTEXT, PRECISION, MEMORY_FORMAT, ATTENTION = LISTS = (
    *("batch", "input_size", "context", "precision", "memory_format", "attention"),
)
"""The keys that may be lists."""

MAXIMUM_CASES = 1000
"""The most cases of a config. Lists in 64 kB can have a product of many millions."""

LONGEST_PATH = 4096
"""The most characters of a name that is a path: no file of Linux has a longer one."""

_SIZE_AT_END = re.compile(rf"{SIZE_IN_NAME.pattern}\Z")


def _is_name(name: str) -> bool:
    """Return whether a text is one word or a path: folders have any names."""
    is_word = len(name) <= LONGEST_NAME and not re.search(r"\s", name)
    return is_one_line(name) and (is_word or "/" in name or ModelName.of(name).is_file)


def _has_sizes(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(size, list) for size in value)


_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_PATH), _allowing(_is_name)]
_InputSize = Annotated[list[PositiveInt], Field(min_length=2, max_length=6)]


@dataclass(frozen=True)
class SummaryCase:
    """A case of a ``summary.yml``; ``input_size`` is empty after a mistake."""

    input_size: tuple[int, ...]
    precision: str
    memory_format: str
    attention: str
    arguments: tuple[tuple[str, PlainValue], ...]


class Summary(Schema):
    """A ``summary.yml``."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **UNSUPPORTED_KEYS,
        **dict.fromkeys("training train backward".split(), "write mode: training"),
    }

    model_name: _Name = Field(
        description="model_name: resnet18 (of torchvision; others: timm:NAME, transformers:CLASS, net.py:FUNCTION)"
    )
    weights_name: Annotated[_Name, _allowing(lambda name: name.lower() not in {"none", "null", "~"})] | None = Field(
        default=None, description="weights_name: null (random weights, or a name such as IMAGENET1K_V1)"
    )
    input_size: Annotated[
        Annotated[_InputSize, ONE] | Annotated[list[_InputSize], SEVERAL],
        Discriminator(lambda value: SEVERAL.tag if _has_sizes(value) else ONE.tag),
    ] = Field(default=[], description=INPUT_SIZE_EXAMPLE)
    batch: list[PositiveInt] = Field(
        default=[],
        min_length=1,
        description="batch: [1, 8, 32] (whole numbers above 0; one batch is the first number of input_size)",
    )
    done: Annotated[Annotated[bool, ONE] | Annotated[list[str], SEVERAL], BY_LIST] = Field(
        default=False, description="done: false (true or false, no quotes)"
    )
    tier: Tier | None = TIER
    precision: OneOrSeveral[Precision] = Field(default=TORCH_DEFAULT, description="precision: torch-default")
    memory_format: OneOrSeveral[MemoryFormat] = Field(default=CONTIGUOUS, description="memory_format: contiguous")
    attention: OneOrSeveral[Backend] = Field(
        default=ANY_BACKEND, description=f"attention: {ANY_BACKEND} (or {', '.join(BACKENDS)}: a back end alone)"
    )
    unit: Unit | None = Field(
        default=None, strict=False, description=f"unit: sample ({' or '.join(Unit)}: costs are divided by it)"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=DEFAULT_SEED, description="seed: 0 (a whole number from 0 up, for random weights and the input)"
    )
    arguments: dict[str, Any] | None = Field(default=None, description=ARGUMENTS_EXAMPLE)
    inputs: Inputs = Field(default=None, description=INPUTS_EXAMPLE)
    mode: Literal["inference", "training", "prefill", "decode"] = Field(
        default="inference", description="mode: inference (or training, prefill, decode)"
    )
    context: OneOrSeveral[PositiveInt] | None = Field(
        default=None, description="context: 2048 (tokens of each text that a decode step attends to; or a list)"
    )
    loss: LossName = Field(default="cross_entropy", description=f"loss: cross_entropy ({' or '.join(LOSSES)})")
    optimizer: dict[str, Any] | str = Field(
        default="sgd", description="optimizer: sgd (or {name: adamw, lr: 0.0001, fused: true})"
    )
    frozen: list[Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]] = Field(
        default=[], description='frozen: ["layer1.*"] (patterns of names of parameters)'
    )
    composites: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=LONGEST_NAME)]] = Field(
        default=[], description="composites: [ShiftedWindowAttention] (class names without their modules)"
    )

    @property
    def lists(self) -> dict[str, list[Any]]:
        found = {key: getattr(self, key) for key in LISTS}
        lists = {key: value for key, value in found.items() if isinstance(value, list) and value}
        return {key: value for key, value in lists.items() if key != INPUT_SIZE or _has_sizes(value)}

    def cases(self, folder: str) -> dict[str, SummaryCase]:
        """Return the cases by name; none for too many."""
        lists = self.lists
        if math.prod(map(len, lists.values())) > MAXIMUM_CASES:
            return {}
        sizes, batches = lists.get(INPUT_SIZE, [self.input_size]), lists.get(BATCH, [None])
        others = [lists.get(key, [getattr(self, key)]) for key in (CONTEXT, PRECISION, MEMORY_FORMAT, ATTENTION)]
        found = {}
        for size, batch, context, *how in itertools.product(sizes, batches, *others):
            full_size = tuple(size if batch is None else [batch, *size[1:]] if size else [])
            name = case_name(
                folder,
                full_size if BATCH in lists or INPUT_SIZE in lists else None,
                context if CONTEXT in lists else None,
                *(value for key, value in zip((PRECISION, MEMORY_FORMAT, ATTENTION), how, strict=True) if key in lists),
            )
            arguments = {**(self.arguments or {}), **generation_arguments(self.mode, context)}
            precision, memory_format, attention = how
            found[name] = SummaryCase(full_size, precision, memory_format, attention, sorted_arguments(arguments))
        return found

    @property
    def precisions(self) -> list[Precision]:
        return self.precision if isinstance(self.precision, list) else [self.precision]

    @property
    def unit_of_costs(self) -> Unit:
        return self.unit or (Unit.TOKEN if self.mode in GENERATING else Unit.SAMPLE)

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        named = ModelName.of(self.model_name)
        if named.is_file and self.weights_name is not None:
            yield ("weights_name",), "a user's function loads its weights itself; write weights_name: null"
        if "inputs" in given:
            for key in {INPUT_SIZE, BATCH}.intersection(given):
                yield (key,), "given beside inputs; keep one of both"
        elif INPUT_SIZE not in given and (BATCH in given or not named.has_inputs):
            yield (INPUT_SIZE,), f"missing; write {INPUT_SIZE_EXAMPLE}"
        yield from self._mistakes_of_training(given)
        yield from self._mistakes_of_generation(named, given)
        lists = self.lists
        number = math.prod(map(len, lists.values()))
        if number > MAXIMUM_CASES:
            text = f"{', '.join(lists)} give {number} cases; a config may have {MAXIMUM_CASES}; write several configs"
            yield (next(iter(lists)),), text
            return
        for key, items in lists.items():
            has_batches = key == INPUT_SIZE and BATCH in lists
            yield from repeated(key, (str(item[1:] if has_batches else item) for item in items))
        if isinstance(self.done, list) and not lists and self.model_fields_set.issuperset(given):
            yield ("done",), "a list of cases, which a config without lists does not have; write done: false"

    @property
    def training(self) -> Training | None:
        if self.mode != TRAINING:
            return None
        options = {"name": self.optimizer} if isinstance(self.optimizer, str) else dict(self.optimizer)
        name = str(options.pop("name", ""))
        return Training(self.loss, name, tuple(sorted(options.items())), tuple(self.frozen))

    def _mistakes_of_generation(self, named: ModelName, given: set[str]) -> Iterator[tuple[Place, str]]:
        if self.mode == DECODE and CONTEXT not in given:
            yield ("mode",), "a decode step needs the length of its cache; add context: 2048"
        if self.mode != DECODE and self.context is not None:
            yield (CONTEXT,), f"it is of a decode step; write mode: {DECODE}, too, or remove it"
        if named.source == TRANSFORMERS and is_generating((self.arguments or {}).items()):
            remedy = "write mode: prefill, or decode with context"
            yield ("arguments",), f"prefill and decode_context are no arguments; {remedy}"
        if self.mode not in GENERATING:
            return
        if named.source != TRANSFORMERS:
            remedy = "a file's function can return a cache among its inputs, with mode: inference"
            yield ("mode",), f"models of transformers only are generated with; {remedy}"
        sizes = self.lists.get(INPUT_SIZE, [self.input_size])
        if self.mode == DECODE and any(size[1:] != [1] for size in sizes if size):
            yield (INPUT_SIZE,), "a decode step reads one token of each text; write input_size: [8, 1] for 8 texts"
        if self.mode == DECODE and any(one in AUTOCAST_DTYPES for one in self.precisions):
            yield (PRECISION,), "a cache has one dtype, which autocast is not; choose bf16"
        if "inputs" in given:
            yield ("inputs",), "token ids are drawn and the cache is made for it; write input_size"

    def _mistakes_of_training(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        training, keys = self.training, sorted(given.intersection(("loss", "optimizer", "frozen")))
        if training is None:
            if keys:
                yield (keys[0],), "it is of a training step; write mode: training, too"
            return
        if text := next(filter(None, (mistake_of_precision(training, one) for one in self.precisions)), None):
            yield (PRECISION,), text
        options = OPTIONS.get(training.optimizer)
        if options is None:
            names = " or ".join(OPTIONS)
            yield ("optimizer",), f"its name is {training.optimizer!r}, not {names}; write optimizer: {{name: adamw}}"
            return
        given_options = {**options, **dict(training.options)}
        if given_options.get("nesterov") is True and not given_options.get("momentum"):
            yield ("optimizer",), "nesterov needs a momentum above 0; write momentum: 0.9"
        for name, value in training.options:
            is_flag = isinstance(options.get(name), bool)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
            if name not in options:
                known = ", ".join(options)
                yield ("optimizer",), f"{training.optimizer} has no option {shortened(name)}; it has {known}"
            elif not (isinstance(value, bool) if is_flag else is_number):
                wanted = "true or false" if is_flag else "a number from 0 up"
                yield ("optimizer",), f"{name} is {shortened(str(value))}; write {wanted}"


def mistake_of_precision(training: Training, precision: str) -> str | None:
    """Return why a training step cannot have a precision, with the remedy; None if it can."""
    if training.optimizer in OPTIONS.keys() - {"sgd"} and precision == "fp16":
        return f"fp16 has no number as small as the eps of {training.optimizer}; choose bf16, or sgd"
    return None


class Whitelist(Schema):
    """An ``operator_whitelist.yml``."""

    operators: list[Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*|\*)$", max_length=LONGEST_NAME)]] = Field(
        min_length=1,
        description=f'{WHITELIST_EXAMPLE} (class names without their modules, at least one, or "*" for all)',
    )

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        return repeated("operators", self.operators)


def case_name(
    folder: str,
    input_size: Sequence[int] | None,
    context: int | None,
    *others: str,
) -> str:
    """Return a case's name: the folder's, with the values that vary, None for others: ``resnet50_8x3x224x224_bf16``.

    ``others`` are the precision, the memory format and the back end of attention.
    """
    beginning = folder if input_size is None else without_size(folder)
    size = None if input_size is None else "x".join(map(str, input_size))
    cache = None if context is None else f"{CONTEXT}{context}"
    return "_".join([beginning, *(part for part in (size, cache, *others) if part is not None)])


def without_size(folder: str) -> str:
    """Return a folder's name without an input size at its end. The names of all its cases begin with it."""
    return _SIZE_AT_END.sub("", folder)
