"""Chains of operators, from which cache corrections are measured by kind and size of operator.

In a loop of itself an operator finds its code, its weights and as much of its inputs as fits in the device's caches. In
a model other operators run in between. The difference is measured with chains of a few operators after a stream of
other data, compared with the same operators in loops. No model is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from opcost.operators.tuples import FLOAT32, OperatorTuple, PlainValue, TensorSpec

ELEMENTWISE, NORM, DEPTHWISE, MATRIX, FILTER = "elementwise", "norm", "depthwise", "matrix", "filter"
KINDS = (ELEMENTWISE, NORM, DEPTHWISE, MATRIX, FILTER)
"""Kinds of operators: without weights; with one or two vectors; one filter per channel; one matrix (Linear, 1 x 1
convolutions, products of two tensors); filters over all channels. A depthwise convolution is one kernel with hardly any
weights. Other convolutions are two to four kernels, more for larger filters."""

LAYER_NORM, ADDITION, LINEAR, WIDE_LINEAR = "layer norm", "addition", "linear", "wide linear"
LAYER_KINDS = (LAYER_NORM, ADDITION, LINEAR, WIDE_LINEAR)
"""Kinds of operators of transformers, which run on tokens instead of images: norms over a token; additions of two
tensors of one size, the older of which was written several calls before; matrices of 2 MB and of 19 MB in 16 bits. Sums
are corrected without them, too: see ``Form.stand_in``."""

TOKENS, LARGE_TOKENS, BRANCH = "elementwise on tokens", "elementwise on large tokens", "branch"
"""Chains of the same calls without those of a kind on tokens. A branch is four times as wide inside."""

BLOCKS = 6
"""Number of blocks of a chain, each with its own weights: models repeat few kinds of layers. It is a choice: by 1 sums
are too large, 12 gives the same as 6 (``docs/log/cache.md``, with chains that treated all products as one kind)."""

VERSION = 3
"""Version of the chains in this file. It is a part of the rows' ``design``."""

STREAM_ELEMENTS = 2**26
STREAM_BYTES = 4 * STREAM_ELEMENTS
"""Size of the fp32 stream that is read before a chain, larger than any GPU's cache (H200: 50 MB). A model that moves
less may find its code and weights in caches."""

SHORTER_STREAMS = (2**21, 2**23, 2**25)
"""Elements of the streams for models that move less: 8 MB, 34 MB and 134 MB, below and above the size of caches."""

BATCH, CHANNELS = 16, 64
WIDTH, LARGE_WIDTH = 1024, 3072
"""Images have 16 times 64 channels; a token has so many elements."""

CALLS_IN_BLOCK = 4
ADD = "torch.Tensor.add"

SIXTEEN_BITS = "bfloat16"
"""The dtype of chains besides float32."""

WITH_WEIGHTS = ("Conv2d", "BatchNorm2d", "LayerNorm", "Linear")
"""Modules of chains that have weights."""

COARSE_SIDES = (8, 112, 160, 48, 80, 24, 64)
SIDES = (*COARSE_SIDES, 32, 56, 16, 96, 72)
"""Sides of the images in chains, in the order of their measurement: tensors of 0.26 MB to 105 MB, with small steps near
the size of caches. A run may end after any of them. The coarse ones alone change corrected sums by 0.12 % (root mean
square of the 51 committed ones; 0.47 % at most), fewer by 0.8 % and more (``docs/log/cache.md``)."""

PRODUCT_SIDES = (8, 24, 48, 64, 80, 112)
"""Sides for products. Half of the sides suffice, because products take longer and depend less on caches."""

WIDE_SIDES = (8, 24, 48)
"""Sides of the squares of large tokens. Chains on more are throttled by the power limit."""

SMALL_SIDES = (8, 24)
"""Sides for chains behind shorter streams: models that move little have small tensors. Larger images evict from caches
themselves what a shorter stream leaves."""

CHAIN, STREAM = (
    "opcost.torch_backend.cache_chains.ChainBehindAStream",
    "opcost.torch_backend.cache_chains.StreamThenCopy",
)
WHOLE_CHAINS = (CHAIN, STREAM)
"""Operators that are measured besides those of the chains."""

Modules: TypeAlias = tuple[tuple[str, Mapping[str, PlainValue]], ...]
"""Names in torch.nn, each with its parameters."""


@dataclass(frozen=True)
class Form:
    """The form of the chains of a kind.

    ``modules`` are the kind's own in a block; additions and branches have none of ``torch.nn``. ``base`` is the kind of
    the chain that is subtracted; from an elementwise chain its stream is. ``sides`` are those of its images, or of its
    squares of tokens of ``width`` elements. ``stand_in`` is the kind on images whose correction applies while
    that of a kind on tokens is unknown.
    """

    modules: Modules = ()
    base: str = ELEMENTWISE
    sides: tuple[int, ...] = ()
    width: int | None = None
    stand_in: str | None = None


@dataclass(frozen=True)
class Chain:
    """Repeated blocks of operators, each on the output of the one before.

    They run on images, or on tokens, of which ``side`` squared have the bytes of the images. A block of another kind
    than elementwise alternates between this kind and elementwise operators, as models do. The chain runs behind a
    stream of ``stream_elements`` in fp32. Its images and weights are stored in ``dtype``.
    """

    kind: str
    side: int
    blocks: int = BLOCKS
    stream_elements: int = STREAM_ELEMENTS
    dtype: str = FLOAT32

    @property
    def form(self) -> Form:
        return FORMS[self.kind]

    @property
    def own(self) -> tuple[OperatorTuple, ...]:
        if self.kind == ADDITION:
            operands = (self._operand, replace(self._operand, identity=1))
            return CALLS_IN_BLOCK * (OperatorTuple(ADD, (), operands, mode=None),)
        return self._of(self.form.modules)

    @property
    def operators(self) -> tuple[OperatorTuple, ...]:
        """All operators of a block on images, as block 0 counts them."""
        return self._of(block(self.kind))

    def _of(self, modules: Modules) -> tuple[OperatorTuple, ...]:
        found = []
        for name, parameters in modules:
            weights = self._weights if name in WITH_WEIGHTS else ()
            found.append(OperatorTuple(f"torch.nn.{name}", (*parameters.items(), *weights), (self._operand,)))
        return tuple(found)

    @property
    def calls(self) -> int:
        return self.blocks * len(self.own)

    @property
    def memory_bytes(self) -> int:
        """The bytes that a call reads and writes, without weights."""
        return (3 if self.kind == ADDITION else 2) * self._operand.floating_bytes

    @property
    def stream_bytes(self) -> int:
        return 4 * self.stream_elements

    @property
    def behind_a_stream(self) -> OperatorTuple:
        parameters: tuple[tuple[str, PlainValue], ...] = (("blocks", self.blocks), ("kind", self.kind))
        return OperatorTuple(CHAIN, (*parameters, *self._weights), self._inputs)

    @property
    def before(self) -> OperatorTuple:
        """The part before the chain as one operator: the stream is read, then images or tokens are copied."""
        return OperatorTuple(STREAM, inputs=self._inputs)

    @property
    def base(self) -> Chain:
        """The chain behind the same stream that is subtracted; of an elementwise one itself."""
        return replace(self, kind=self.form.base)

    @property
    def subtracted(self) -> OperatorTuple:
        """The calls before and between those of its kind, as one operator."""
        return self.before if self.kind == ELEMENTWISE else self.base.behind_a_stream

    @property
    def parts(self) -> tuple[OperatorTuple, ...]:
        """The different operators whose measurements the chain's correction follows from, its own last."""
        before: tuple[OperatorTuple, ...] = (self.subtracted,)
        if self.kind not in LAYER_KINDS:
            before = (*self.base.operators, self.before, self.base.behind_a_stream)
        return tuple(dict.fromkeys((*before, *self.own, self.behind_a_stream)))

    @property
    def design(self) -> str:
        stream = f", stream of {1e-6 * self.stream_bytes:.0f} MB" if self.stream_bytes < STREAM_BYTES else ""
        dtype = f", {self.dtype}" if self.dtype != FLOAT32 else ""
        return f"chains {VERSION}, {self.blocks} in a row{stream}{dtype}"

    @property
    def _inputs(self) -> tuple[TensorSpec, ...]:
        return TensorSpec((self.stream_elements,), FLOAT32), replace(self._operand, identity=1)

    @property
    def _operand(self) -> TensorSpec:
        width = self.form.width
        shape = (BATCH, CHANNELS, self.side, self.side) if width is None else (self.side**2, width)
        return TensorSpec(shape, self.dtype)

    @property
    def _weights(self) -> tuple[tuple[str, str], ...]:
        return () if self.dtype == FLOAT32 else (("dtype", self.dtype),)


def block(kind: str) -> Modules:
    """Return the modules of one block of a kind in order; additions and branches are no modules of ``torch.nn``."""
    elementwise, own = FORMS[ELEMENTWISE].modules, FORMS[kind].modules
    if kind == ELEMENTWISE or not own:
        return elementwise
    return tuple(module for pair in zip(elementwise, own, strict=True) for module in pair)


def chains_of(
    side: int, blocks: int = BLOCKS, stream_elements: int = STREAM_ELEMENTS, dtype: str = FLOAT32
) -> tuple[Chain, ...]:
    """Return the chains on images of one side behind one stream; the elementwise one comes first."""
    kinds = [kind for kind in KINDS if side in FORMS[kind].sides]
    return tuple(Chain(kind, side, blocks, stream_elements, dtype) for kind in kinds)


def layer_chains(dtype: str = FLOAT32, blocks: int = BLOCKS) -> tuple[Chain, ...]:
    """Return the chains on tokens behind the full stream; in fp32 products would differ by their clocks."""
    kinds = [kind for kind in LAYER_KINDS if kind not in (LINEAR, WIDE_LINEAR) or dtype == SIXTEEN_BITS]
    return tuple(Chain(kind, side, blocks, STREAM_ELEMENTS, dtype) for kind in kinds for side in FORMS[kind].sides)


def streams_of(side: int) -> tuple[int, ...]:
    """Return the lengths of the streams for images of one side."""
    return (STREAM_ELEMENTS, *(SHORTER_STREAMS if side in SMALL_SIDES else ()))


def _convolution(width: int, **parameters: PlainValue) -> tuple[str, Mapping[str, PlainValue]]:
    size: dict[str, PlainValue] = {"in_channels": CHANNELS, "out_channels": CHANNELS, "kernel_size": width}
    padding = {"padding": width // 2} if width > 1 else {}
    return "Conv2d", {**size, **padding, **parameters, "bias": False}


def _products(width: int) -> Modules:
    return CALLS_IN_BLOCK * (("Linear", {"in_features": width, "out_features": width, "bias": False}),)


_ELEMENTWISE: Modules = (
    ("LeakyReLU", {"negative_slope": 0.9}),
    ("Threshold", {"threshold": -4.0, "value": 0.0}),
    ("ELU", {}),
    ("Hardshrink", {"lambd": 0.001}),
)
"""Different kernels, none of which makes values equal or small when repeated, because that would change power and
sometimes time."""

FORMS: Mapping[str, Form] = {
    ELEMENTWISE: Form(_ELEMENTWISE, sides=SIDES),
    NORM: Form(CALLS_IN_BLOCK * (("BatchNorm2d", {"num_features": CHANNELS}),), sides=SIDES),
    DEPTHWISE: Form(2 * (_convolution(3, groups=CHANNELS), _convolution(5, groups=CHANNELS)), sides=PRODUCT_SIDES),
    MATRIX: Form(CALLS_IN_BLOCK * (_convolution(1),), sides=PRODUCT_SIDES),
    FILTER: Form(2 * (_convolution(3), _convolution(5)), sides=PRODUCT_SIDES),
    LAYER_NORM: Form(
        CALLS_IN_BLOCK * (("LayerNorm", {"normalized_shape": (WIDTH,)}),), TOKENS, PRODUCT_SIDES, WIDTH, NORM
    ),
    ADDITION: Form((), BRANCH, PRODUCT_SIDES, WIDTH, ELEMENTWISE),
    LINEAR: Form(_products(WIDTH), TOKENS, PRODUCT_SIDES, WIDTH, MATRIX),
    WIDE_LINEAR: Form(_products(LARGE_WIDTH), LARGE_TOKENS, WIDE_SIDES, LARGE_WIDTH, MATRIX),
    TOKENS: Form(width=WIDTH),
    LARGE_TOKENS: Form(width=LARGE_WIDTH),
    BRANCH: Form(width=WIDTH),
}

DESIGN = Chain(ELEMENTWISE, SIDES[0]).design
"""The design of the chains behind the full stream, by which the sums of models that move more are corrected."""
