"""The keys `arguments` and `inputs` of a config: values as written, and each mistake one line with its remedy."""

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from written_configs import error_lines, write

from opcost.errors import UserError
from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import PlainValue, Structure, TensorSpec, tensor_specs
from opcost.storage.configs import ModelConfig, ModelFolders, model_tuple
from opcost.storage.schemas import argument_in, tree_text

IDS = "input_ids: {shape: [2, 8], dtype: int64, range: [0, 30]}"


def config_of(folder: Path, text: str) -> ModelConfig:
    (config,) = ModelFolders(written(folder, text)).configs([])
    return config


def written(folder: Path, text: str) -> Path:
    write(folder, "x", f"model_name: transformers:BertModel\n{text}\n")
    return folder


def mistakes_in(folder: Path, text: str) -> list[str]:
    return [line.removeprefix("x/summary.yml:") for line in error_lines(written(folder, text))]


def arguments_of(folder: Path, value: str) -> dict[str, PlainValue]:
    return dict(config_of(folder, f"input_size: [2, 8]\narguments: {value}").arguments)


def inputs_of(folder: Path, value: str) -> DescribedInputs:
    described = config_of(folder, f"inputs: {value}").inputs
    assert described is not None
    return described


# Arguments


@pytest.mark.parametrize(
    ("written_value", "expected"),
    [
        ("3", 3),
        ("1.5", 1.5),
        ("1e-3", 0.001),
        ("true", True),
        ("null", None),
        ("gelu", "gelu"),
        ("'3'", "3"),
        ("'true'", "true"),
        ("[1, [2, x]]", (1, (2, "x"))),
        ("[]", ()),
        ("{a: 1, b: [2]}", Structure("dict", (("a", 1), ("b", (2,))))),
        ("1.2.3", "1.2.3"),
    ],
)
def test_a_value_is_the_one_that_is_written(tmp_path: Path, written_value: str, expected: PlainValue) -> None:
    value = arguments_of(tmp_path, f"{{a: {written_value}}}")["a"]
    assert (value, type(value)) == (expected, type(expected))


def test_no_arguments_may_be_written_in_three_ways(tmp_path: Path) -> None:
    assert [arguments_of(tmp_path, text) for text in ("", "null", "{}")] == [{}, {}, {}]


def test_the_order_of_arguments_does_not_matter(tmp_path: Path) -> None:
    texts = ("{a: 1, b: 2}", "{b: 2, a: 1}")
    first, second = (model_tuple(config_of(tmp_path, f"input_size: [2, 8]\narguments: {text}")).key for text in texts)
    assert first == second


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("3", "the value is 3, in YAML a number; write arguments: {"),
        ("layers", "the value is the text 'layers'; write arguments: {"),
        ("{a b: 1}", "the text 'a b' is no key; write a plain word"),
        ("{3: 1}", "3, in YAML a number is no key"),
        ("{a: 1, a: 2}", "a: given twice, in lines 3 and 3; keep one"),
        ("{a: {b: 1, b: 2}}", "a: b: given twice"),
        ("{a: 2026-01-01}", "a: the value is 2026-01-01, in YAML a date; write a number in digits, or a text"),
        ("{a: 0x20}", "a: the value is 0x20, in YAML a number"),
        ("{a: 1e999}", "a: the value is the text '1e999'"),
        (f"{{a: {'9' * 40}}}", f"a: the value is {'9' * 40}, in YAML a number"),
    ],
)
def test_a_mistake_in_arguments_is_a_line(tmp_path: Path, value: str, words: str) -> None:
    (line,) = mistakes_in(tmp_path, f"input_size: [2, 8]\narguments: {value}")
    assert line.startswith(f"3: arguments: {words}")


def test_tags_anchors_and_aliases_are_refused_and_nothing_else_is_said_of_them(tmp_path: Path) -> None:
    lines = mistakes_in(tmp_path, "arguments: {a: !!python/name:os.system x, b: &c 1, d: *c}\ninputs: [{shape: *c}]")
    assert [line.partition(" ")[2].partition(" is not")[0] for line in lines[:3]] == [
        "the alias *c",
        "the anchor &c",
        "the tag tag:yaml.org,2002:python/name:os.system",
    ]
    assert all("is not allowed" in line or "shape: the value is" in line for line in lines)


def test_each_mistake_in_arguments_is_reported_once(tmp_path: Path) -> None:
    text = "input_size: [2, 8]\narguments:\n  a: .nan\n  3: 1\n  b: {c: 0x7, d: *e}"
    assert [line.partition(":")[0] for line in mistakes_in(tmp_path, text)] == ["4", "5", "6", "6"]


# Inputs


def test_inputs_are_positional_or_by_keyword_or_one_tensor(tmp_path: Path) -> None:
    ids = TensorSpec((2, 8), "int64")
    by_keyword = inputs_of(tmp_path, f"{{{IDS}, n: 3, mask: {{shape: [2, 8]}}}}")
    assert by_keyword.positional == ()
    assert by_keyword.keyword == (("input_ids", ids), ("n", 3), ("mask", TensorSpec((2, 8), "float32", identity=1)))
    assert by_keyword.values == (("integers", 0, 30), "normal")
    listed = inputs_of(tmp_path, "[{shape: [2, 3]}, [{shape: [4]}, null], {name: {shape: [5], dtype: bool}}]")
    assert [spec.shape for spec in tensor_specs(listed.positional)] == [(2, 3), (4,), (5,)]
    assert [spec.identity for spec in tensor_specs(listed.positional)] == [0, 1, 2]
    assert (listed.keyword, listed.values) == ((), ())
    one = inputs_of(tmp_path, "{shape: [2, 8], dtype: bfloat16, values: zeros}")
    assert (one.positional, one.values) == ((TensorSpec((2, 8), "bfloat16"),), ("zeros",))
    assert one.is_one_tensor
    assert not by_keyword.is_one_tensor


def test_the_batch_is_that_of_the_first_tensor_or_unknown(tmp_path: Path) -> None:
    texts = (f"inputs: {{n: 3, {IDS}}}", "inputs: [3]", "inputs: [{shape: []}]", "input_size: [4, 8]")
    assert [config_of(tmp_path, text).batch_size for text in texts] == [2, None, None, 4]


def test_values_part_models_and_the_usual_ones_do_not(tmp_path: Path) -> None:
    texts = ("[{shape: [2, 4]}]", "[{shape: [2, 4], values: normal}]", "[{shape: [2, 4], values: zeros}]")
    usual, normal, zeros = (model_tuple(config_of(tmp_path, f"inputs: {text}")) for text in texts)
    assert usual == normal != zeros


def test_floating_inputs_have_the_precision_of_the_config_and_integers_stay(tmp_path: Path) -> None:
    text = f"precision: bf16\ninputs: {{{IDS}, pixel_values: {{shape: [2, 3]}}}}"
    specs = tensor_specs(value for _, value in model_tuple(config_of(tmp_path, text)).keyword_inputs)
    assert [spec.dtype for spec in specs] == ["int64", "bfloat16"]
    integers = model_tuple(config_of(tmp_path, f"precision: bf16\ninputs: {{{IDS}}}"))
    assert dict(integers.parameters)["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("3", "the value is 3, in YAML a number; write inputs: {input_ids"),
        ("[]", "the value is a list of 0; write inputs: {"),
        ("{}", "the value is a mapping; write inputs: {"),
        ("[{shape: 8}]", "item 1: shape is 8, in YAML a number; write inputs: {"),
        ("[{shape: [8, 0]}]", "item 1: shape: item 2 is 0"),
        ("[{shape: [8, 1.5]}]", "item 1: shape: item 2 is 1.5"),
        ("[{shape: [8, '3']}]", "item 1: shape: item 2 is the text '3'"),
        ("[{shape: [99999999999999]}]", "item 1: shape: item 1 is 99999999999999"),
        ("[{shape: [{shape: [1]}]}]", "item 1: shape: item 1 is a mapping"),
        ("[{dtype: int64}]", "item 1: shape: missing; write inputs: {input_ids: {shape: [8, 128], dtype: "),
        ("[{shape: [8], dtype: int65}]", "item 1: dtype is the text 'int65'; write one of float32, float64, "),
        ("[{shape: [8], values: random}]", "item 1: values is the text 'random'; write one of normal, zeros, ones"),
        ("[{shape: [8], values: causal}]", "item 1: values: causal is a mask of two dimensions; give the shape"),
        ("[{shape: [8], size: 3}]", "item 1: size: unknown key; write inputs: {input_ids: {shape"),
        ("[{shape: [8], shape: [9]}]", "item 1: shape: given twice, in lines 2 and 2; keep one"),
        ("[{shape: [8], dtype: int64, range: [5, 5]}]", "item 1: range: not two numbers; write range: [0, 30522]"),
        ("[{shape: [8], range: [1, 0]}]", "item 1: range: not two numbers; write range: [0.0, 1.0]"),
        ("[{shape: [8], range: ['0', 1]}]", "item 1: range: item 1 is the text '0'"),
        ("[{shape: [8], dtype: uint8, range: [0, 257]}]", "item 1: range: uint8 has values from 0 to 255; choose"),
        ("[{shape: [8], range: [0, 1], values: zeros}]", "item 1: values: given beside range; keep one"),
        (f"{'[' * 500}{']' * 500}", "not valid YAML: nested deeper than 8 levels"),
    ],
)
def test_a_mistake_in_inputs_is_a_line(tmp_path: Path, value: str, words: str) -> None:
    (line,) = mistakes_in(tmp_path, f"inputs: {value}")
    assert line.removeprefix("2: ").removeprefix("inputs: ").startswith(words)


def test_a_size_is_given_once_and_is_not_missing(tmp_path: Path) -> None:
    assert mistakes_in(tmp_path, f"input_size: [2, 8]\nbatch: [1, 2]\ninputs: {{{IDS}}}") == [
        "2: input_size: given beside inputs; keep one of both",
        "3: batch: given beside inputs; keep one of both",
    ]
    (line,) = mistakes_in(tmp_path, "seed: 1")
    assert line.startswith("1: input_size: missing; write input_size: [32, 3, 224, 224]")


def test_the_largest_range_of_a_dtype_is_valid(tmp_path: Path) -> None:
    assert inputs_of(tmp_path, "[{shape: [8], dtype: uint8, range: [0, 256]}]").values == (("integers", 0, 256),)
    assert inputs_of(tmp_path, "[{shape: [8], range: [-1.5, 2]}]").values == (("uniform", -1.5, 2),)


SCALARS = st.sampled_from(
    [
        *"3 -1 0 1.5 1e-3 1e999 .nan .inf 0x1F 0o7 1_000 1:30 '3' '' ~ null yes NO text 2026-01-01 *a &b !c <<".split(),
        *("99999999999999999999", '"\\uD800"', "a b", "shape", "?"),
    ]
)
KEYS = st.sampled_from(["shape", "dtype", "range", "values", "input_ids", "a", "3", "[a]", "'a b'", "~", "<<"])
TREES = st.recursive(
    SCALARS | st.sampled_from(["int64", "bool", "causal", "[2, 8]", "[0, 5]"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(KEYS, inner), max_size=4).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}"
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(["arguments", "inputs"]), TREES)
@example("inputs", "{shape: [2], {a: 1}: 3}")
@example("inputs", "[{shape: [1099511627776, 1099511627776], values: causal}]")
@example("arguments", "{a: 1e309}")
def test_any_tree_gives_values_or_mistakes(key: str, tree: str) -> None:
    size = "input_size: [2, 8]\n" if key == "arguments" else ""
    with tempfile.TemporaryDirectory() as folder:
        found = config_or_mistakes(Path(folder), f"{size}{key}: {tree}")
        if isinstance(found, ModelConfig):
            model = model_tuple(found)
            assert parse_operator(model.operator, model.parameters_text, model.inputs_text, model.mode) == model
            assert all(math.isfinite(value) for _, value in found.arguments if isinstance(value, float))
        else:
            assert found
            assert all(line.startswith(f"{folder}/x/summary.yml:") and len(line.splitlines()) == 1 for line in found)


def config_or_mistakes(folder: Path, text: str) -> ModelConfig | tuple[str, ...]:
    try:
        return config_of(folder, text)
    except UserError as error:
        return error.lines


# Writing

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,3}", fullmatch=True)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**18 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
TREES = st.recursive(
    SCALARS,
    lambda parts: (
        st.lists(parts, max_size=3).map(tuple)
        | st.dictionaries(NAMES, parts, max_size=3).map(lambda found: Structure("dict", tuple(found.items())))
    ),
    max_leaves=8,
)


@given(TREES)
@example("1e5")
@example("12")
@example("true")
@example("😀\u2028\x00")
@example(1e-5)
@example(1e300)
@example(("same", "same"))
def test_what_is_written_is_read_back_with_its_types(tree: PlainValue) -> None:
    text = tree_text(Structure("dict", (("a", tree),)))
    assert "\n" not in text
    assert repr(argument_in(f"arguments: {text}")) == repr(("a", tree))


def test_a_tensor_is_written_with_shape_and_dtype() -> None:
    tree = (TensorSpec((2, 8), "int64"), Structure("dict", (("x", TensorSpec((), "float32", identity=1)),)))
    with tempfile.TemporaryDirectory() as folder:
        assert inputs_of(Path(folder), tree_text(tree)) == DescribedInputs(tree)
