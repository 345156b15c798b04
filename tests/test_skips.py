"""``--no-skips``: before a release nothing may be missing that a test needs, but a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NO_PROGRAM = 'def test_it():\n    pytest.skip("missing")\n'
NO_LIBRARY = 'pytest.importorskip("missing")\n'
NO_GPU = '@pytest.mark.gpu\n@pytest.mark.skip(reason="missing")\ndef test_it():\n    assert 0\n'


@pytest.mark.parametrize(
    ("body", "options", "may_be_missing"),
    [
        (NO_PROGRAM, [], True),
        (NO_PROGRAM, ["--no-skips"], False),
        (NO_LIBRARY, ["--no-skips"], False),
        (NO_GPU, ["--no-skips"], True),
    ],
)
def test_what_is_missing_fails_its_test_before_a_release(
    tmp_path: Path, body: str, options: list[str], may_be_missing: bool
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(f"import pytest\n\n{body}")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "conftest", "-p", "no:cacheprovider", *options, str(test)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode == 0) == may_be_missing, result.stdout
    assert ("1 skipped" in result.stdout) == may_be_missing
    assert "missing" in result.stdout
