"""Programs compiled by IREE as they are, and after the pass that we run on them.

A test of a defect, a trap, is an expected failure (strict): when it passes, the tool is mended, and
what its reason names can go. Each is told by a mend or in `jq/passes/iree_mends/elsewhere.txt`.
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from jq.ir import Program
from jq.passes.base import PassContext, make_pass, run_all
from jq.passes.iree_mends.mend import Mend, defects
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.support.child import Child
from tests.support.texts import built_for_iree, load, run_module

LIMIT = 300.0  # seconds, where a program takes none: a wrong loop may never end


def raw(text: str, *inputs: np.ndarray, **weights: np.ndarray) -> list[np.ndarray]:
    return _run(load(text, weights), *inputs)


def mended(name: str, text: str, *inputs: np.ndarray, **weights: np.ndarray) -> list[np.ndarray]:
    program = load(text, weights)
    cx = PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    made = make_pass(name, {})
    assert isinstance(made, Mend) and made.left(program), "the pass finds nothing"
    assert run_all([made], program, cx) == [name], "the pass changed nothing"
    assert not made.left(program), "the pass leaves something"
    return _run(program, *inputs)


def _run(program: Program, *inputs: np.ndarray) -> list[np.ndarray]:
    """Compiled here, run in a process of its own, which may crash, or hang."""
    return _child().call(run_module, *built_for_iree(program), *inputs, limit=LIMIT)


@cache
def _child() -> Child:
    return Child()


JAXLIB = tuple(int(part) for part in version("jaxlib").split(".")[:2])


DEFECTS = {name: found for found in defects() for name in found.traps}


def trap(function: Any = None, *, raises: type[Exception] | None = None) -> Any:
    """Marks the test of a defect; one that no mend tells of is a `KeyError`."""
    if function is None:
        return partial(trap, raises=raises)
    file = "/".join(function.__module__.split(".")[1:])
    found = DEFECTS[f"{file}.py::{function.__name__}"]
    reason = f"{found.by} can go when this passes: {found.what}"
    there = is_seen(found.seen, JAXLIB)
    return pytest.mark.xfail(there, reason=reason, strict=True, raises=raises)(function)


def is_seen(seen: str, jaxlib: tuple[int, int]) -> bool:
    """True if a defect was seen in a version of jaxlib: `0.10, 0.11`, or `0.11 on`; IREE is
    pinned."""
    if "jaxlib" not in seen:
        return True
    versions = [(int(a), int(b)) for a, b in re.findall(r"(\d+)\.(\d+)", seen)]
    return jaxlib in versions or (seen.endswith(" on") and jaxlib >= versions[0])
