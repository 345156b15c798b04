"""Chains of operators, from which former versions measured cache corrections by kind and size of operator.

Their rows correct sums whose calls have no rows in their states. A chain was a few operators after a stream of other
data, compared with the same operators in loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opcost.operators.tuples import FLOAT32, TensorSpec

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

BLOCKS = 6
"""Number of blocks of a chain, each with its own weights."""

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

SIXTEEN_BITS = "bfloat16"
"""The dtype of chains besides float32."""

COARSE_SIDES = (8, 112, 160, 48, 80, 24, 64)
SIDES = (*COARSE_SIDES, 32, 56, 16, 96, 72)
"""Sides of the images in chains: tensors of 0.26 MB to 105 MB, with small steps near the size of caches. The coarse
ones alone change corrected sums by 0.12 % (root mean square of the 51 committed ones; 0.47 % at most), fewer by 0.8 %
and more (``docs/log/cache.md``)."""

PRODUCT_SIDES = (8, 24, 48, 64, 80, 112)
"""Sides for products. Half of the sides suffice, because products take longer and depend less on caches."""

WIDE_SIDES = (8, 24, 48)
"""Sides of the squares of large tokens. Chains on more are throttled by the power limit."""

SMALL_SIDES = (8, 24)
"""Sides for chains behind shorter streams: models that move little have small tensors. Larger images evict from caches
themselves what a shorter stream leaves."""


@dataclass(frozen=True)
class Form:
    """The form of the chains of a kind.

    ``sides`` are those of its images, or of its squares of tokens of ``width`` elements. ``stand_in`` is the kind on
    images whose correction applies while that of a kind on tokens is unknown.
    """

    sides: tuple[int, ...]
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
    def memory_bytes(self) -> int:
        """The bytes that a call reads and writes, without weights."""
        return (3 if self.kind == ADDITION else 2) * self._operand.floating_bytes

    @property
    def stream_bytes(self) -> int:
        return 4 * self.stream_elements

    @property
    def design(self) -> str:
        stream = f", stream of {1e-6 * self.stream_bytes:.0f} MB" if self.stream_bytes < STREAM_BYTES else ""
        dtype = f", {self.dtype}" if self.dtype != FLOAT32 else ""
        return f"chains {VERSION}, {self.blocks} in a row{stream}{dtype}"

    @property
    def _operand(self) -> TensorSpec:
        width = self.form.width
        shape = (BATCH, CHANNELS, self.side, self.side) if width is None else (self.side**2, width)
        return TensorSpec(shape, self.dtype)


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


FORMS: Mapping[str, Form] = {
    ELEMENTWISE: Form(SIDES),
    NORM: Form(SIDES),
    DEPTHWISE: Form(PRODUCT_SIDES),
    MATRIX: Form(PRODUCT_SIDES),
    FILTER: Form(PRODUCT_SIDES),
    LAYER_NORM: Form(PRODUCT_SIDES, WIDTH, NORM),
    ADDITION: Form(PRODUCT_SIDES, WIDTH, ELEMENTWISE),
    LINEAR: Form(PRODUCT_SIDES, WIDTH, MATRIX),
    WIDE_LINEAR: Form(WIDE_SIDES, LARGE_WIDTH, MATRIX),
}

DESIGN = Chain(ELEMENTWISE, SIDES[0]).design
"""The design of the chains behind the full stream, by which the sums of models that move more are corrected."""
