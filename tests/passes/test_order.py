"""The ordered list of passes: nothing is missing, every step says why and when."""

from __future__ import annotations

import pytest

from jq.base.errors import InternalError, UserError
from jq.ir import Program
from jq.passes.base import Pass, PassContext, Recovery, known_passes
from jq.passes.order import LEVELS, ORDER, passes_for
from jq.passes.pipeline import load_pipeline
from jq.target.rules import apply_overrides
from jq.target.settings import Settings

STEPS = [step for level in LEVELS for step in ORDER[level]]


def names(pipeline: str, **overrides: object) -> dict[str, set[str]]:
    settings = apply_overrides(load_pipeline(pipeline).settings, overrides, where="test")
    return {level: {p.name for p in found} for level, found in passes_for(settings).items()}


def test_every_pass_of_the_package_is_in_the_order_and_says_why() -> None:
    built_in = {n for n, kind in known_passes().items() if kind.__module__.startswith("jq.")}
    assert {step.name for step in STEPS} == built_in
    assert all(step.reason() and not step.reason().endswith(".") for step in STEPS)


def test_a_pass_stands_once_in_a_level() -> None:
    for level in LEVELS:
        found = [step.name for step in ORDER[level]]
        assert len(found) == len(set(found)), level


@pytest.mark.parametrize(
    ("pipeline", "overrides", "level", "there", "missing"),
    [
        ("int8-dynamic", {}, "float", {"smooth"}, {"mark-edges", "mark-residuals"}),
        ("int8-static", {}, "float", {"mark-residuals"}, {"mark-edges", "widen-floats"}),
        ("int8-static", {"placement": "early"}, "float", {"mark-edges"}, {"mark-residuals"}),
        ("int8-static", {"convolution_sums": "float"}, "float", {"smooth"}, {"mark-residuals"}),
        ("int8-static", {}, "integer", {"requantize"}, {"lower-regions", "verify-integer"}),
        ("int8-static", {"integer_only": True}, "integer", {"verify-integer"}, {"requantize"}),
        ("int8-static-integer-only", {}, "integer", {"verify-integer"}, {"lower-contractions"}),
        ("int8-static-integer-only", {}, "target", {"kernel-gemm"}, {"kernel-attention"}),
        ("float", {}, "target", {"kernel-gemm", "unroll-loops"}, {"mark-edges"}),
    ],
)
def test_the_settings_say_what_runs(pipeline, overrides, level, there, missing) -> None:
    found = names(pipeline, **overrides)[level]
    assert there <= found and not missing & found


def test_integer_only_is_refused_where_it_cannot_hold() -> None:
    with pytest.raises(UserError, match="placement=hybrid leaves floats between products"):
        load_pipeline("int8-static", {"integer_only": True})


@pytest.fixture
def outsider():
    """A pass from outside of the package, and the registry as it was before."""
    before = dict(Pass.registry)
    yield
    Pass.registry.clear()
    Pass.registry.update(before)


def test_a_pass_from_outside_says_where_it_belongs(outsider) -> None:
    class Mine(Pass):
        """Because a test wants it."""

        name, after = "mine", "fold-weights"

        def run(self, program: Program, cx: PassContext) -> bool:
            return False

    found = [p.name for p in passes_for(Settings())["float"]]
    assert found.index("mine") == found.index("fold-weights") + 1


def test_a_pass_after_nothing_is_refused(outsider) -> None:
    class Lost(Pass):
        """Because a test wants it."""

        name, after = "lost", "fold-wieghts"

        def run(self, program: Program, cx: PassContext) -> bool:
            return False

    with pytest.raises(InternalError, match="lost wants to run after 'fold-wieghts'"):
        passes_for(Settings())


def test_recovery_that_must_be_asked_for() -> None:
    chosen = {n for n, kind in known_passes().items() if issubclass(kind, Recovery)}
    always = {"bias-correction", "equalize", "gptq", "smooth"}
    assert {n for n in chosen if not known_passes()[n].optional} == always
