"""Power meters and facts of devices: NVML, nvidia-smi, RAPL. Imports no torch."""
