"""Optional packages that stages ask for before they work."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from opcost.command.run import EXTRAS
from opcost.stages.extras import PACKAGES, PREDICT, require

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
MODULES = {"scikit-learn": "sklearn"}
"""The modules of packages that have another name."""


@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extra_has_the_packages_that_it_installs(extra: str) -> None:
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"][extra]
    names = [re.split(r"\W*[<>=]", requirement)[0] for requirement in declared]
    assert {MODULES.get(name, name) for name in names} == set(PACKAGES[extra])
    assert set(PACKAGES[extra]) <= EXTRAS.keys()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require(PREDICT)
    monkeypatch.setattr("opcost.stages.extras.find_spec", lambda name: None if name == "threadpoolctl" else name)
    with pytest.raises(ModuleNotFoundError) as caught:
        require(PREDICT)
    assert caught.value.name == "threadpoolctl"
