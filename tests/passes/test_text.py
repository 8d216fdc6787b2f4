"""Every `*.mlir` file here: runs the passes that its first line names, and checks the text.

    // RUN: place-weights, sink-dequantize {option = value}
    // SETTINGS: weights.format=int8 activations.mode=static      a plan is made with these
    // RULE: head: float                                           any number of rules
    // RANGES: head:0=-1,1                                         calibrated ranges
    // KERNELS: avx512_vnni                                        their instruction set: else none
    // ERROR: what a pass that refuses says
    // CHECK: ...

The text that is checked starts with a line `// changed: ...` that names the passes that changed
something. A pass that must not fire has `// CHECK: changed: none`. Weights are arguments with
`{jq.weight = "name"}` and hold random numbers; see `tests/support/texts.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options

from jq.base.errors import JqError
from jq.ir import Program
from jq.passes.base import Pass, PassContext, make_pass, run_all
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges
from jq.planning.decisions import QuantPlan
from jq.planning.planner import plan
from jq.target.rules import apply_overrides, parse_assignments, parse_rule, parse_value
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.support.texts import load

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.mlir"))
TARGET = load_target("llvm-cpu").model_copy(update={"kernels": "none"})


def lines(text: str, key: str) -> list[str]:
    return [m.strip() for m in re.findall(rf"^// {key}:(.*)$", text, re.MULTILINE)]


def passes_of(run: str) -> list[Pass]:
    """`name, name {key = value, key = value}`"""
    found = re.findall(r"([\w-]+)\s*(?:\{([^}]*)\})?\s*(?:,|$)", run)
    return [
        make_pass(
            name, {k: parse_value(v) for k, _, v in (p.partition(" = ") for p in _split(opts))}
        )
        for name, opts in found
    ]


def _split(options: str) -> list[str]:
    return [part.strip() for part in options.split(",") if part.strip()]


def context_of(text: str, program: Program) -> PassContext:
    given = lines(text, "SETTINGS")
    settings, decided = Settings(), QuantPlan((), {})
    if given:
        overrides = parse_assignments(given[0].split())
        settings = apply_overrides(settings, overrides, where="SETTINGS")
        rules = tuple(parse_rule(r) for r in lines(text, "RULE"))
        ranges = Ranges({k: r for line in lines(text, "RANGES") for k, r in [_range(line)]})
        decided = plan(program, settings, TARGET, rules, ranges)
    kernels = lines(text, "KERNELS") or ["none"]
    return PassContext(decided, settings, TARGET.model_copy(update={"kernels": kernels[0]}))


def _range(line: str) -> tuple[str, Range]:
    site, _, bounds = line.partition("=")
    low, high = bounds.split(",")
    return site, Range(float(low), float(high))


def output(text: str) -> str:
    """A file's module after the passes."""
    program = load(text)
    (run,) = lines(text, "RUN")
    changed = run_all(passes_of(run), program, context_of(text, program))
    weights = [f"// weight {k}: {v.dtype}{list(v.shape)}" for k, v in program.weights.items()]
    return "\n".join([f"// changed: {', '.join(changed) or 'none'}", *weights, program.text()])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_file(path, tmp_path, capsys):
    text = path.read_text()
    if expected := lines(text, "ERROR"):
        with pytest.raises(JqError, match=re.escape(expected[0])):
            output(text)
        return
    result = tmp_path / "output.mlir"
    result.write_text(output(text))
    failed = Matcher.from_opts(Options(match_filename=str(path), input_file=str(result))).run()
    said = capsys.readouterr()
    assert not failed, f"{said.out}{said.err}\n{result.read_text()}"
