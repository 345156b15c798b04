"""Names under which other tools are known, as thin layers over opcost's meters."""

from opcost.compat.layerwise import LayerwiseMeasurementTool
from opcost.compat.measurement import AsynchronousMeasurementTool, EnergyMeasurementTool

__all__ = ["AsynchronousMeasurementTool", "EnergyMeasurementTool", "LayerwiseMeasurementTool"]
