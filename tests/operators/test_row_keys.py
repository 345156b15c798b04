"""The parts of a row's key."""

from simulated_machine import SIMULATED_CONDITIONS

from opcost.measuring.conditions import measurement_key
from opcost.operators.cases import Case, case_key, conditions_key, tuple_key
from opcost.operators.texts import parse_operator


def test_the_parts_of_a_key_are_what_it_was_put_together_from() -> None:
    case = Case(parse_operator("torch.nn.modules.activation.ReLU", "inplace=True", "float32[2, 3]", "inference"))
    key = measurement_key(case, SIMULATED_CONDITIONS)
    assert (tuple_key(key), case_key(key), conditions_key(key)) == (
        case.operator.key,
        case.key,
        SIMULATED_CONDITIONS.key,
    )
    assert tuple_key(case.key) == case.operator.key
