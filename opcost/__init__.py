"""opcost: what PyTorch operators cost in time and energy on real hardware."""

__version__ = "0.2.0"
