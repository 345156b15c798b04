"""Names of GPU kernels for screens: without return type, template arguments and parameters."""

from __future__ import annotations

import re

_CUTLASS = re.compile(r"cutlass::Kernel2?<(\w+)>")
"""The kernel of CUTLASS that runs any other one: only its argument names the other."""


def short_kernel_name(name: str) -> str:
    """Return the qualified name of a kernel's function.

    Args:
        name: as the profiler gives it, demangled.
    """
    named = _CUTLASS.sub(r"\1", name.replace("(anonymous namespace)::", ""))
    words = _without_template_arguments(named).partition("(")[0].split()
    return words[-1] if words else name


def _without_template_arguments(name: str) -> str:
    depth, kept = 0, []
    for character in name:
        depth += character == "<"
        if depth == 0:
            kept.append(character)
        depth -= character == ">" and depth > 0
    return "".join(kept)
