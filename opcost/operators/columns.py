"""Columns that describe an operator tuple, in all tables that have them."""

from __future__ import annotations

from opcost.columns import Column

OPERATOR = Column("the operator tuple's name, such as `torch.nn.Conv2d`; a model is an operator like any other")
PARAMETERS = Column("the operator tuple's parameters")
INPUTS = Column("the operator tuple's inputs")
TRAINING_MODE = Column("`eval` or `train`; empty for functions")
INPUT_DATA = Column(
    "the values of the inputs: `normal` (Gaussian), `zeros`, or like those in a model, one kind for each floating "
    "input, the last for the rest: `captured: 0.5 zeros, normal`"
)
