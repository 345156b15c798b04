"""The modules that data enters on its way through the code -> a table (a minute)

A module is entered if one of its functions is called (``sys.setprofile``). Each way runs once before, so that caches
are filled as in a long campaign. ``steps`` counts the calls that lead from one module into another.
Example: PYTHONPATH=. python benchmarks/modules_entered.py --names
"""

import argparse
import contextlib
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import torch
from torch import nn

import opcost
from opcost.comparing.comparison import USUAL_RUNS, Evidence, compare, comparison_row
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case, of_operators
from opcost.operators.counts import EVERYTHING, select
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.running.bench import measured_rows
from opcost.stages.predict import kept_costs, run_under
from opcost.storage.counts_file import read_counts, write_counts
from opcost.storage.database import Database
from opcost.summing.summation import Measurements
from opcost.torch_backend.capture import capture, run_first

PACKAGE = str(Path(opcost.__file__).parent) + "/"
DATABASE = Path(__file__).parents[1] / "database"


class Entered:
    """Records the modules of the package whose functions are called, in the order of the first call of each."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.steps = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        name, caller = frame.f_code.co_filename, frame.f_back
        if event == "call" and name.startswith(PACKAGE):
            self.modules.setdefault(name.removeprefix(PACKAGE))
            self.steps += caller is not None and caller.f_code.co_filename != name


def entered(way: Callable[[], object]) -> Entered:
    way()
    found = Entered()
    sys.setprofile(found)
    try:
        way()
    finally:
        sys.setprofile(None)
    return found
