from dataclasses import fields, replace

import pytest
from simulated_machine import SIMULATED_CIRCUMSTANCES, SIMULATED_CONDITIONS

from opcost.measuring.conditions import ADDED_FIELDS, ATTENTION_FIELDS, COLD, GRAPH, Conditions, measurement_key
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec, short_hash

OTHER_VALUES = {bool: lambda value: not value, int: lambda value: value + 1, float: lambda value: value + 1.0}
OTHERS_OF_A_FEW = {"precision": "fp32", "cpu_threads": 4, "execution": GRAPH, "cache": COLD}


def changed(field_name):
    """Return conditions that differ in one field."""
    value = getattr(SIMULATED_CONDITIONS, field_name)
    if field_name in OTHERS_OF_A_FEW:
        return replace(SIMULATED_CONDITIONS, **{field_name: OTHERS_OF_A_FEW[field_name]})
    other = OTHER_VALUES.get(type(value), lambda value: f"{value} or not")(value)
    return replace(SIMULATED_CONDITIONS, **{field_name: other})


field_names = pytest.mark.parametrize("name", [field.name for field in fields(Conditions)])


def test_equal_conditions_have_equal_keys_and_no_differences():
    again = replace(SIMULATED_CONDITIONS)
    assert again.key == SIMULATED_CONDITIONS.key
    assert again.differences(SIMULATED_CONDITIONS) == ()


@field_names
def test_every_condition_changes_the_key(name):
    assert changed(name).key != SIMULATED_CONDITIONS.key


@field_names
def test_a_difference_names_the_condition_and_both_values(name):
    other = changed(name)
    values = f"{getattr(other, name)} / {getattr(SIMULATED_CONDITIONS, name)}"
    assert other.differences(SIMULATED_CONDITIONS) == (f"{name}: {values}",)


def test_all_differences_are_reported():
    other = replace(SIMULATED_CONDITIONS, driver_version=None, precision="fp32")
    assert other.differences(SIMULATED_CONDITIONS) == ("driver_version: None / 1.0", "precision: fp32 / torch-default")


def test_what_is_unknown_differs_from_a_text_that_says_so():
    assert (
        replace(SIMULATED_CONDITIONS, driver_version=None).key
        != replace(SIMULATED_CONDITIONS, driver_version="None").key
    )


@pytest.mark.parametrize(
    ("measured", "asked", "is_enough"),
    [
        ((None, 0.01), (1.0, 0.01), True),
        ((None, 0.009), (1.0, 0.01), True),
        ((None, 0.011), (1.0, 0.01), False),
        ((None, 0.001), (1.0, None), False),
        ((1.0, None), (1.0, None), True),
        ((0.9, None), (1.0, None), False),
        ((29.0, None), (1.0, 0.01), False),
        ((30.0, None), (1.0, 0.01), True),
    ],
)
def test_as_long_or_as_precise_as_asked_is_good_enough(measured, asked, is_enough):
    circumstances = replace(SIMULATED_CIRCUMSTANCES, loop_s=measured[0], relative_error=measured[1])
    assert circumstances.suffices_for(*asked, full_loop_s=30.0) == is_enough


def test_keys_stay_what_they_are():
    """Databases hold these keys: a change makes every stored row worthless."""
    relu = OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((32, 64), "float32"),))
    assert SIMULATED_CONDITIONS.key == "8862b84bfa9b31f1"
    assert measurement_key(Case(relu), SIMULATED_CONDITIONS) == "5bf6969355c97ca7-317b32c143692b99-8862b84bfa9b31f1"


def test_rows_from_before_a_condition_existed_keep_their_keys():
    hashed = [field.name for field in fields(Conditions) if field.name not in ADDED_FIELDS]
    lines = [f"{name}={getattr(SIMULATED_CONDITIONS, name)!r}" for name in hashed]
    lines.insert(hashed.index("sdpa_math") + 1, "mode='inference'")
    text = "\n".join(lines)
    assert SIMULATED_CONDITIONS.key == short_hash(text)
    assert all(getattr(SIMULATED_CONDITIONS, name) is None for name in ADDED_FIELDS)


def test_one_back_end_of_attention_alone_is_a_condition():
    usual = SIMULATED_CONDITIONS.with_attention("torch-default")
    alone = {one: usual.with_attention(one) for one in ATTENTION_FIELDS}
    assert {name: one.attention for name, one in alone.items()} == {name: name for name in ATTENTION_FIELDS}
    assert usual.attention == "torch-default"
    assert len({one.key for one in (usual, *alone.values())}) == 5
    assert all(one.with_attention("torch-default") == usual for one in alone.values())
