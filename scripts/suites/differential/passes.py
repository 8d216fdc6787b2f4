"""Every pass on its own: a program before and after it is evaluated by StableHLO's interpreter.

Inputs are the modules of `tests/passes`. What a pass may change is one of three things:

- nothing, bit by bit (zeros may change their sign): most passes;
- the order of float sums: results agree within `ROUNDED` of the largest;
- the numbers that are stored: the same program must be left, bit by bit, when every quantize with
  its dequantize is taken out again and stored weights are what they were.

Passes that call kernels are compared by IREE elsewhere (`tests/kernels`): no interpreter runs them.
So are those that change the float type, or what the program takes and gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jq.ir import Program, at, func
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, match
from jq.ir.oracle.interpreter import interpret
from jq.passes.base import Pass, PassContext, make_pass
from suites.differential.evaluate import Arrays, same, told

REORDERS = {"fold-scales", "lower-contractions", "split-upsampling"}
ROUNDED = 2.0**-19  # 32 roundings of float32, of the largest result
STORES = {"place-activations", "place-edges", "place-weights"}
OTHERS = {"place-float-types", "quantize-cache", "widen-floats"}
# Ops that the interpreter has not, or ends the process on.
BEYOND = {"stablehlo.fft", "stablehlo.custom_call"}


@dataclass(frozen=True)
class Step:
    """A program before and after a pass.

    Attributes:
        evaluated: whether the interpreter could run both programs.
        wrong: how results differ more than they may; empty if they do not.
    """

    name: str
    evaluated: bool
    wrong: str = ""


def steps(
    program: Program, passes: Sequence[Pass], cx: PassContext, inputs: Arrays
) -> Iterator[Step]:
    """Runs the passes on the program, and judges those that change it."""
    original = {name: np.asarray(array) for name, array in program.weights.items()}
    for each in passes:
        before = program.clone()
        if not each.chosen(cx.settings) or not each.run(program, cx):
            continue
        after = program.clone()
        if each.name in STORES:
            before, after = (unquantized(p, original) for p in (before, after))
        if each.name in OTHERS or not (evaluable(before) and evaluable(after)):
            yield Step(each.name, False)
            continue
        right, found = (value(p, cx, inputs) for p in (before, after))
        yield Step(each.name, True, _differs(each.name, right, found))


def _differs(name: str, right: Arrays, found: Arrays) -> str:
    for i, (a, b) in enumerate(zip(found, right, strict=True)):
        if not same(a, b) and not (name in REORDERS and _close(a, b)):
            return f"{name}: result {i}: {told(a, b)}"
    return ""


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    most = np.abs(b[np.isfinite(b)]).max(initial=0)
    return bool(np.all((a == b) | (np.abs(a - b) <= ROUNDED * most) | (np.isnan(a) & np.isnan(b))))


def value(program: Program, cx: PassContext, inputs: Arrays) -> Arrays:
    """By the interpreter; our markers are written out, for texts leave their functions empty."""
    copy = program.clone()
    for name in ("expand-fake-quant", "lower-markers"):
        make_pass(name, {}).run(copy, cx)
    copy.run_passes("symbol-dce")
    return interpret(copy, *inputs)


def evaluable(program: Program) -> bool:
    """True where the interpreter has every op, and every function has a body of them."""
    functions = [op for op in program.module.body.operations if isinstance(op, func.FuncOp)]
    return all(not f.is_external for f in functions) and not any(
        op.operation.name in BEYOND or not op.operation.name.startswith(("stablehlo.", "func."))
        for op in program.walk()
    )


def unquantized(program: Program, original: Mapping[str, np.ndarray]) -> Program:
    """Without its quantization: what is dequantized is what had been quantized."""
    copy = program.clone()
    for op in list(copy.walk()):
        marker = match(op, DEQUANTIZE)
        if marker is None:
            continue
        codes = marker.parts["codes"]
        if quantized := match(codes, QUANTIZE, QUANTIZE_DYNAMIC):
            float_value = quantized.op.operands[0]
        elif (name := copy.weight_name(codes)) and name.endswith(":codes"):
            with at(op):
                float_value = copy.add_weight(marker.tensor, original[marker.tensor])
        else:
            continue
        if float_value.type == op.results[0].type:
            op.results[0].replace_all_uses_with(float_value)
    copy.drop_dead()
    copy.refresh()
    return copy
