"""``--no-skips``: before a release nothing may be missing that a test needs, but a GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NO_PROGRAM = 'def test_it():\n    pytest.skip("missing")\n'
NO_LIBRARY = 'pytest.importorskip("missing")\n'
NO_GPU = '@pytest.mark.gpu\n@pytest.mark.skip(reason="missing")\ndef test_it():\n    assert 0\n'


TESTS_BY_NAME = {"test_program": NO_PROGRAM, "test_library": NO_LIBRARY, "test_gpu": NO_GPU}


@pytest.mark.parametrize(
    ("options", "expected"), [([], {"skipped": 3}), (["--no-skips"], {"skipped": 1, "failed": 1, "error": 1})]
)
def test_what_is_missing_fails_its_test_before_a_release(
    tmp_path: Path, options: list[str], expected: dict[str, int]
) -> None:
    for name, body in TESTS_BY_NAME.items():
        (tmp_path / f"{name}.py").write_text(f"import pytest\n\n{body}")
    flags = ["-ra", "-p", "conftest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    command = [sys.executable, "-m", "pytest", *flags, *options, str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    *_, outcomes = result.stdout.splitlines()
    found = re.findall(r"(\d+) (skipped|passed|failed|error)", outcomes)
    assert {kind: int(number) for number, kind in found} == expected, result.stdout
