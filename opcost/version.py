"""The version of opcost; ``pyproject.toml`` reads it, and rows name it."""

__version__ = "0.3.0"
