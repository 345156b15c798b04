"""A powercap folder with energy counters, as Linux shows those of RAPL."""

from pathlib import Path

RANGE_UJ = 262_143_328_850


def add_domain(root: Path, folder: str, name: str, energy_uj: int = 1_000_000) -> Path:
    """Add a counter as the kernel shows it, and return its file."""
    path = root / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    return path / "energy_uj"
