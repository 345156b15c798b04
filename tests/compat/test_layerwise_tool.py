"""The layerwise tool under the name that users know: its file, and a model that stays the same object."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from torch import nn

from opcost import UserError
from opcost.compat import LayerwiseMeasurementTool


def test_a_row_for_each_layer_and_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    tracker = LayerwiseMeasurementTool(path, 0)
    assert path.read_text() == ""
    own = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    model = tracker.start(own)
    assert model is own
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
    with pytest.raises(UserError, match="without stop"):
        tracker.start(model)
    tracker.stop()
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert [name for name, _ in rows] == ["Sequential", "Linear", "ReLU", "Linear"]
    assert all(cell == "" or float(cell) >= 0 for _, cell in rows)
    assert "forward" not in vars(model)
    with pytest.raises(UserError, match="without start"):
        tracker.stop()
