"""Programs compiled by IREE as they are, and after the pass that we run on them.

A test of a defect is an expected failure (strict): when it passes, IREE has been mended, and the
pass that its reason names can go.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

import numpy as np
import pytest

from jq.ir import Program
from jq.passes.base import PassContext, make_pass, run_all
from jq.passes.iree_mends.mend import Mend
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


def defect(workaround: str, before: tuple[int, int] | None = None) -> pytest.MarkDecorator:
    """Marks the test of something that IREE 3.13 does wrong, or jaxlib before some version."""
    return pytest.mark.xfail(
        before is None or before > JAXLIB,
        reason=f"IREE is right when this passes, and {workaround} can go",
        strict=True,
    )
