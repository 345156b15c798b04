from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.texts import parse_operator, parse_tuple, parse_value
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec, channels_last_strides, value_text

GOLDEN = Path(__file__).parents[1] / "golden" / "operator_texts.txt"

SHAPES = st.lists(st.integers(0, 64), max_size=5).map(tuple)
DTYPES = st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64"])
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("inf", "nan"))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from([Constant("torch.float32"), Constant("..."), Constant("device")]),
)


@st.composite
def tensors(draw):
    shape = draw(SHAPES)
    strides = draw(st.sampled_from([None, channels_last_strides(shape), (7,) * len(shape)]))
    return TensorSpec(shape, draw(DTYPES), strides)


def values_of(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(tuple),
            st.tuples(st.sampled_from(["dict", "slice", "ImageList"]), st.dictionaries(NAMES, inner, max_size=3)).map(
                lambda parts: Structure(parts[0], tuple(parts[1].items()))
            ),
        ),
        max_leaves=6,
    )


def numbered(value, identities):
    """Return a value whose tensors are numbered in order of first appearance, some of them the same tensor."""
    if isinstance(value, TensorSpec):
        identity = identities.setdefault((value.shape, value.dtype, value.strides), len(identities))
        return TensorSpec(value.shape, value.dtype, value.strides, identity)
    if isinstance(value, tuple):
        return tuple(numbered(item, identities) for item in value)
    if isinstance(value, Structure):
        return Structure(value.kind, tuple((name, numbered(part, identities)) for name, part in value.parts))
    return value


VALUES = values_of(st.one_of(LEAVES, tensors()))


@given(
    st.dictionaries(NAMES, values_of(LEAVES), max_size=3),
    st.lists(VALUES, max_size=3),
    st.dictionaries(NAMES, VALUES, max_size=2),
)
def test_texts_are_read_back_as_they_were(parameters, inputs, keyword_inputs):
    identities = {}
    operator = OperatorTuple(
        "torch.nn.Conv2d",
        tuple(parameters.items()),
        numbered(tuple(inputs), identities),
        numbered(Structure("", tuple(keyword_inputs.items())), identities).parts,
    )
    read = parse_operator(operator.operator, operator.parameters_text, operator.inputs_text, operator.mode)
    assert repr(read) == repr(operator)


@given(VALUES)
def test_single_values_are_read_back(value):
    value = numbered(value, {})
    assert repr(parse_value(value_text(value))) == repr(value)


@pytest.mark.parametrize("line", GOLDEN.read_text(encoding="utf-8").splitlines())
def test_texts_of_real_tuples_keep_their_keys(line):
    key, text = line.split("  ", 1)
    read = parse_tuple(text)
    assert (read.key, str(read)) == (key, text)


@pytest.mark.parametrize(
    "text",
    [
        "float32[2",
        "(1, 2",
        "1, 2",
        "",
        "a=1, 2",
        "1  ",
        "(1,2)",
        "'open",
        "float32[2]#7",
        "slice(1)",
        "--1",
        "f()x",
        ")",
        r"'\x'",
        "(" * 900 + ")" * 900,
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="text of|understood|nested"):
        parse_value(text)


def test_parameters_that_are_no_named_values_are_refused():
    with pytest.raises(ValueError, match="is not the text of an operator tuple"):
        parse_operator("torch.nn.ReLU", "1", "float32[2]", "eval")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch.nn.ReLU", "is not the text"),
        ("torch.nn.ReLU() on float32[2]", "is not the text"),
        ("torch.nn.ReLU() on (float32[2]) test", "is not the text"),
        ("torch.nn.ReLU() on (float32[2) eval", "is not understood"),
        ("torch.Tensor.add on (float32[2], float32[2]#1)", r"in other words torch.Tensor.add on \(float32\["),
        ("torch.nn.ReLU on (float32[2]) eval", r"in other words torch.nn.ReLU\(\) on"),
        ("torch.nn.Linear(in_features=2,out_features=3) on (float32[2]) eval", "in other words"),
    ],
)
def test_lines_that_are_no_tuples_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_tuple(text)
