"""Columns that describe an operator tuple or name its model, shared by all tables."""

from __future__ import annotations

from opcost.columns import Column

MODEL = Column("the model's folder in measurements/, or the case of its config")
OPERATOR = Column("the operator tuple's name, such as `torch.nn.Conv2d`; a whole model is stored as an operator, too")
PARAMETERS = Column("the operator tuple's parameters")
INPUTS = Column("the operator tuple's inputs")
TRAINING_MODE = Column("`eval` or `train`; empty for functions")
INPUT_DATA = Column(
    "the values of the inputs: `normal` (standard normal), `zeros`, or as captured in a model, one kind for each "
    "floating-point input, the last for the rest: `captured: 0.5 zeros, normal`; patterns of indices and masks follow: "
    "`captured: normal; patterns zipf`; zeros that a grid sets in weights "
    "come last: `captured: normal; weights 0.9 zeros`"
)
