"""Names under which other tools are known, as thin layers over opcost's meters."""

from opcost.compat.layerwise import LayerwiseMeasurementTool
from opcost.compat.measurement import AsynchronousMeasurementTool, EnergyMeasurementTool
from opcost.compat.power_caps import power_cap_profiler, reset_power_cap, set_power_cap

__all__ = [
    "AsynchronousMeasurementTool",
    "EnergyMeasurementTool",
    "LayerwiseMeasurementTool",
    "power_cap_profiler",
    "reset_power_cap",
    "set_power_cap",
]
