"""Every pass on its own, over all text tests: the program before and after it evaluates alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.passes.test_text import FILES, context_of, lines, passes_of
from tests.support.child import Child
from tests.support.texts import inputs_of, load

# What the interpreter cannot run before and after: kernels, Fourier transforms, other types.
ELSEWHERE = {
    *(
        "kernel-activations",
        "kernel-chain",
        "kernel-convolution",
        "kernel-decode",
        "kernel-floats",
        "kernel-gemm",
        "kernel-halves",
        "kernel-hidden-rows",
        "kernel-integer-rows",
        "kernel-merge",
        "kernel-quantize",
    ),
    *(
        "kernel-pairs",
        "kernel-ranges",
        "kernel-updates",
        "kernel-views",
        "place-float-types",
        "plain-transforms",
        "quantize-cache",
    ),
    *("shield-splats", "widen-floats"),
}
RUN = [path for path in FILES if not lines(path.read_text(), "ERROR")]


def judged(path: Path) -> list[Any]:
    """The steps of a file's passes, in order."""
    from suites.differential.passes import steps

    text = path.read_text()
    program = load(text)
    (run,) = lines(text, "RUN")
    return list(steps(program, passes_of(run), context_of(text, program), inputs_of(program)))


def all_judged(paths: list[Path]) -> dict[str, list[Any]]:
    return {path.stem: judged(path) for path in paths}


@pytest.fixture(scope="module")
def found(child: Child) -> dict[str, list[Any]]:
    return child.call(all_judged, RUN)


@pytest.mark.parametrize("name", [path.stem for path in RUN])
def test_before_and_after(name: str, found: dict[str, list[Any]]) -> None:
    assert [step.wrong for step in found[name] if step.wrong] == []


def test_every_pass_is_evaluated(found: dict[str, list[Any]]) -> None:
    steps = [step for each in found.values() for step in each]
    seen = {step.name for step in steps if step.evaluated}
    assert {step.name for step in steps} - seen <= ELSEWHERE
    assert not seen & ELSEWHERE - {"place-float-types", "kernel-views"}
    assert len(seen) > 30


def test_a_wrong_pass_is_seen(child: Child) -> None:
    assert child.call(wrong) == ["absorb-transposes: result 0: 12 of 12"]


def wrong() -> list[str]:
    """Messages about a pass that also reverses the results."""
    from jq.ir import at, stablehlo
    from jq.passes.prepare.transposes.move_transposes import AbsorbTransposes

    run = AbsorbTransposes.run

    def runs(self: Any, program: Any, cx: Any) -> bool:
        changed = run(self, program, cx)
        (value,) = program.returned
        with at(list(program.body.operations)[-1]):
            program.return_values([stablehlo.negate(value)])
        return changed

    AbsorbTransposes.run = runs  # type: ignore[method-assign]
    try:
        path = next(path for path in RUN if path.stem == "absorb_transposes")
        return [step.wrong.partition(",")[0] for step in judged(path)]
    finally:
        AbsorbTransposes.run = run  # type: ignore[method-assign]
