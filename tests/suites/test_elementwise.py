"""Every elementwise function over all exponents, within a few last places of its value."""

from __future__ import annotations

import importlib
import re
import sys
from importlib.metadata import version

import numpy as np
import pytest

from tests.support.child import SCRIPTS


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    return importlib.import_module("suites.commands.elementwise")


# JAX 0.10 spells these in steps that lose the smallest numbers: XLA is as far off.
OLD = {"asin", "lgamma"} if version("jax").startswith("0.10.") else set[str]()
CASES = ["UNARY-float32", "UNARY-bfloat16", "BINARY-float32", "FORMULAS-float32"]


@pytest.mark.parametrize("case", CASES)
def test_all_exponents(script, case: str) -> None:
    group, dtype = case.split("-")
    suite = script.elementwise
    kind = suite.DTYPES[dtype]
    inputs = suite.pairs(kind, 1, 2000) if group == "BINARY" else (suite.numbers(kind, 2),)
    if dtype == "bfloat16":
        inputs = tuple(x[::7] for x in inputs)
    found = suite.errors(script._compiled, getattr(suite, group), inputs)
    wrong = {name: error for name, error in found.items() if error.wrong}
    assert not {n: e for n, e in wrong.items() if n not in OLD or e.ours > e.theirs}


def test_an_error_is_found(script) -> None:
    """The next number is one place off, infinity is next to the largest, NaN is no number."""
    suite = script.elementwise
    exact = np.array([1.0, 1.5, 3.5e38, 1.0, np.nan])
    found = np.array([1 + 2.0**-23, 1.5 + 2.0**-22, np.inf, np.nan, np.nan], np.float32)
    assert suite.last_places(found, exact).tolist() == [1, 2, 0, np.inf, 0]
    assert suite.last_places(np.float32([0]), np.array([1e-39]))[0] == 0
    assert suite.last_places(np.float16([0]), np.array([6e-8]))[0] == pytest.approx(1, abs=0.01)


def test_the_page_has_every_function(script) -> None:
    text = (SCRIPTS.parent / "docs/reference/elementwise.md").read_text()
    suite = script.elementwise
    names = [*suite.UNARY, *suite.BINARY, *suite.FORMULAS]
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == names
