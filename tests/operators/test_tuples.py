import pickle
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.input_roles import box_sides
from opcost.operators.tuples import (
    OperatorTuple,
    TensorSpec,
    channels_last_strides,
    contiguous_strides,
    model_operator,
    short_hash,
    tensor_specs,
)

CONVOLUTION = OperatorTuple(
    "torch.nn.Conv2d",
    (("in_channels", 3), ("out_channels", 64), ("kernel_size", (7, 7)), ("bias", False)),
    (TensorSpec((32, 3, 224, 224), "float32"),),
)
QUERY = TensorSpec((32, 197, 768), "float32", identity=0)
ATTENTION = OperatorTuple(
    "torch.nn.MultiheadAttention",
    (("embed_dim", 768), ("num_heads", 12), ("batch_first", True)),
    (QUERY, QUERY, QUERY),
    (("need_weights", False),),
)

# Few different values, so that texts which say too little collide.
names = st.sampled_from(["a", "b", "eps"])
shapes = st.lists(st.integers(0, 2), max_size=5).map(tuple)
texts = st.sampled_from(["", "a", "1", "a=1", "None", "float32[1]", "', '", "(", ",)", "\n", "#0", "\u2028"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.floats(allow_nan=False, width=16), st.sampled_from([1.0]), texts
)


@st.composite
def tensors(draw):
    shape = draw(shapes)
    layouts = [None, contiguous_strides(shape), channels_last_strides(shape), tuple(range(len(shape)))]
    return TensorSpec(shape, draw(st.sampled_from(["float32", "float16"])), draw(st.sampled_from(layouts)))


@st.composite
def operators(draw):
    """Operator tuples as capture makes them: tensors are numbered by first appearance."""
    distinct = draw(st.lists(tensors(), min_size=1, max_size=3))
    tensor_numbers = st.integers(0, len(distinct) - 1).map(lambda number: replace(distinct[number], identity=number))
    values = st.recursive(st.one_of(scalars, tensor_numbers), lambda inner: st.lists(inner, max_size=3).map(tuple))
    keywords = st.dictionaries(names, values, max_size=2).map(lambda items: tuple(items.items()))
    plain = st.dictionaries(names, st.one_of(scalars, st.tuples(scalars)), max_size=2)
    operator = OperatorTuple(
        draw(st.sampled_from(["torch.nn.A", "torch.nn.B"])),
        draw(plain.map(lambda items: tuple(items.items()))),
        draw(st.lists(values, max_size=4).map(tuple)),
        draw(keywords),
        draw(st.sampled_from(["eval", "train"])),
    )
    return numbered_by_appearance(operator)


def numbered_by_appearance(operator):
    numbers = {}

    def number(value):
        if isinstance(value, TensorSpec):
            return replace(value, identity=numbers.setdefault(value.identity, len(numbers)))
        return tuple(number(item) for item in value) if isinstance(value, tuple) else value

    inputs = number(operator.inputs)
    return replace(operator, inputs=inputs, keyword_inputs=number(operator.keyword_inputs))


@given(operators())
def test_equal_tuples_have_equal_keys(operator):
    again = pickle.loads(pickle.dumps(operator))
    assert again == operator
    assert again.key == operator.key


@given(operators(), operators())
def test_different_tuples_have_different_texts_and_keys(one, other):
    # 1, 1.0 and True are equal to Python, but not the same parameter.
    assume(repr(one) != repr(other))
    assert str(one) != str(other)
    assert one.key != other.key


@given(operators(), operators(), st.sampled_from(["operator", "parameters", "inputs", "keyword_inputs", "mode"]))
def test_every_field_is_part_of_the_key(one, other, field):
    changed = numbered_by_appearance(replace(one, **{field: getattr(other, field)}))
    assume(repr(changed) != repr(one))
    assert changed.key != one.key


@given(operators())
def test_text_is_one_line_and_key_sixteen_hexadecimal_digits(operator):
    assert len(str(operator).splitlines()) == 1
    assert str(operator).isprintable()
    assert len(operator.key) == 16
    assert set(operator.key) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    ("operator", "text", "key"),
    [
        pytest.param(
            CONVOLUTION,
            "torch.nn.Conv2d(in_channels=3, out_channels=64, kernel_size=(7, 7), bias=False)"
            " on (float32[32, 3, 224, 224]) eval",
            "32efa9ee9eb469d7",
            id="convolution",
        ),
        pytest.param(
            ATTENTION,
            "torch.nn.MultiheadAttention(embed_dim=768, num_heads=12, batch_first=True) on (float32[32, 197, 768]#0,"
            " float32[32, 197, 768]#0, float32[32, 197, 768]#0, need_weights=False) eval",
            "9c373782f960637c",
            id="attention",
        ),
        pytest.param(
            OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((8, 64, 7, 7), "float16", (3136, 1, 448, 64)),)),
            "torch.nn.ReLU() on (float16[8, 64, 7, 7]:channels_last) eval",
            "13aeeb85b5c24617",
            id="channels last",
        ),
        pytest.param(
            OperatorTuple("torch.nn.GELU", (("approximate", "tanh"),), (TensorSpec((4, 5), "float32", (1, 4)),)),
            "torch.nn.GELU(approximate='tanh') on (float32[4, 5]:strides(1, 4)) eval",
            "9e8d71dfaa19cbdb",
            id="strides",
        ),
        pytest.param(
            OperatorTuple("torch.cat", (), ((TensorSpec((2,), "float32"),), 1.5, None, True), mode="train"),
            "torch.cat() on ((float32[2],), 1.5, None, True) train",
            "28bd523778219ade",
            id="nested inputs",
        ),
        pytest.param(
            model_operator("resnet18", "IMAGENET1K_V1", [32, 3, 224, 224]),
            "torchvision.models.resnet18(weights='IMAGENET1K_V1') on (float32[32, 3, 224, 224]) eval",
            "e5464194305d2a9c",
            id="model",
        ),
        pytest.param(
            model_operator("vgg16", None, (1, 3, 224, 224)),
            "torchvision.models.vgg16() on (float32[1, 3, 224, 224]) eval",
            "b06350645b6cb90f",
            id="model with random weights",
        ),
    ],
)
def test_texts_and_keys_stay_what_they_are(operator, text, key):
    """Databases hold these keys: a change makes every stored row worthless."""
    assert str(operator) == text
    assert operator.key == key


def test_short_hash_is_the_beginning_of_sha256():
    assert short_hash("abc") == "ba7816bf8f01cfea"


def test_tensors_passed_more_than_once_carry_their_number():
    one, other = replace(QUERY, identity=0), replace(QUERY, identity=1)
    tuples = [replace(ATTENTION, inputs=inputs) for inputs in [(one, one, one), (one, other, other), (one, one, other)]]
    assert [operator.inputs_text.count("#") for operator in tuples] == [3, 2, 2]
    assert len({operator.key for operator in tuples}) == 3


@pytest.mark.parametrize(
    ("inputs", "keyword_inputs", "numbers"),
    [((QUERY,), (("key", QUERY),), 2), ((QUERY, (QUERY,)), (), 2), ((QUERY, replace(QUERY, identity=1)), (), 0)],
    ids=["by name", "inside a tuple", "all different"],
)
def test_only_a_tensor_that_is_passed_again_carries_its_number(inputs, keyword_inputs, numbers):
    assert OperatorTuple("f", (), inputs, keyword_inputs).inputs_text.count("#") == numbers


def test_tensor_specs_are_found_at_any_depth_in_order():
    first, second, third = (TensorSpec((size,), "float32", identity=size) for size in range(3))
    assert tensor_specs([1, (first, ("a", (second,))), None, third]) == [first, second, third]


def test_short_name_is_the_last_component():
    assert CONVOLUTION.short_name == "Conv2d"
    assert OperatorTuple("relu").short_name == "relu"
    assert OperatorTuple("aten::linear.default").short_name == "linear"


@pytest.mark.parametrize(
    ("shape", "contiguous", "channels_last"),
    [
        ((), (), None),
        ((5,), (1,), None),
        ((2, 3, 4), (12, 4, 1), None),
        ((2, 3, 4, 5), (60, 20, 5, 1), (60, 1, 15, 3)),
        ((2, 3, 4, 5, 6), (360, 120, 30, 6, 1), (360, 1, 90, 18, 3)),
        ((1, 2, 3, 4, 5, 6), (720, 360, 120, 30, 6, 1), None),
    ],
)
def test_strides_of_dense_layouts(shape, contiguous, channels_last):
    """As torch gives them for torch.empty(shape) and its ``contiguous(memory_format=...)``."""
    assert contiguous_strides(shape) == contiguous
    assert channels_last_strides(shape) == channels_last


def test_a_dimension_of_size_zero_counts_as_one_in_strides():
    assert contiguous_strides((2, 0, 4, 5)) == (20, 20, 5, 1)


def test_totals_count_every_occurrence():
    calls = OperatorCount(CONVOLUTION, 3, flop=100, memory_bytes=7), OperatorCount(ATTENTION, 2, 1000, 11)
    counts = OperatorCounts(model_operator("resnet18", None, (1, 3, 32, 32)), calls, 5000, 100, 10, "2.11.0", "cuda")
    assert counts.operator_calls == 5
    assert counts.flop == 2300
    assert counts.memory_bytes == 43


def test_one_tensor_passed_twice_is_one_floating_input():
    assert ATTENTION.floating_inputs == (ATTENTION.inputs[0],)


def test_tuples_cannot_be_changed():
    with pytest.raises(AttributeError):
        CONVOLUTION.mode = "train"


def test_boxes_of_an_image_are_as_wide_as_it_is_before_it_was_scaled():
    images, boxes = TensorSpec((1, 3, 40, 80), "float32"), TensorSpec((5, 5), "float32", identity=1)
    operator = OperatorTuple("torch.ops.torchvision.roi_align", inputs=(images, boxes, 0.5), mode=None)
    assert list(box_sides(operator)) == [(1, 160.0)]
