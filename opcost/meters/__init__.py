"""Power meters and facts of devices: GPUs of each vendor, RAPL, the host. Imports no torch."""
