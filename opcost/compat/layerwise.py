"""``LayerwiseMeasurementTool``, with the arguments and the file that users know; thin over ``LayerwiseEnergy``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from opcost.compat.measurement import write_rows
from opcost.errors import UserError
from opcost.metering.layer_rows import BETWEEN

if TYPE_CHECKING:
    # Only for types: the other tools need no torch.
    from torch import nn

    from opcost.running.layerwise import LayerwiseEnergy

Model = TypeVar("Model", bound="nn.Module")


class LayerwiseMeasurementTool:
    """Measures the energy of each layer of a model in a loop of training or inference.

    At ``stop``, ``out_file`` gets a row for each layer: class, mean energy of an iteration (J), forward and backward.
    The energy is empty where it is unknown. The file has no row for the time between layers, so that its sum is less
    than that of the meter; ``opcost.LayerwiseEnergy`` has all.

    Args:
        out_file: replaced by an empty file now.
        gpu_num: number of the GPU, as CUDA counts it. A model on the CPU is metered there.
    """

    def __init__(self, out_file: str | Path, gpu_num: int = 0) -> None:
        self.out_file = Path(out_file)
        self.out_file.write_text("", encoding="utf-8")
        self._gpu_num = gpu_num
        self._layers: LayerwiseEnergy | None = None

    def start(self, model: Model) -> Model:
        """Begin to measure, and return the same model.

        Raises:
            UserError: it has been started already, or the model is compiled, or on another GPU.
        """
        from opcost.running.layerwise import LayerwiseEnergy

        if self._layers is not None:
            raise UserError("LayerwiseMeasurementTool: start() without stop() after the last start()")
        others = {weight.device for weight in model.parameters() if weight.device.type == "cuda"}
        other = next((device for device in others if device.index != self._gpu_num), None)
        if other is not None:
            raise UserError(f"LayerwiseMeasurementTool: gpu_num is {self._gpu_num}, and the model is on {other}")
        layers = LayerwiseEnergy(model)
        layers.__enter__()
        self._layers = layers
        return model

    def stop(self) -> None:
        """End the measurement, and write the file.

        Raises:
            UserError: it has not begun, or the model was not called.
        """
        if self._layers is None:
            raise UserError("LayerwiseMeasurementTool: stop() without start()")
        layers, self._layers = self._layers, None
        layers.__exit__(None, None, None)
        rows = [(row.layer_class or "", row.energy_j) for row in layers.result.rows if row.layer != BETWEEN]
        write_rows(self.out_file, rows)
