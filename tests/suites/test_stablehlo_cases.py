"""Quantized ops as StableHLO's specification defines them; its own cases run by
`scripts/suite.py stablehlo_cases`. The examples have the values of the specification's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

AXIS = "!quant.uniform<i8:f32:0, {0.1:-30,0.5:-20}>"
OTHER = "!quant.uniform<i8:f32:0, {0.1:-20,0.2:-30}>"
EXAMPLES = {
    "uniform_quantize of floats": (
        "dense<[4.0, 15.0]> : tensor<2xf32>",
        [("uniform_quantize", f"2x{AXIS}"), ("bitcast_convert", "2xi8")],
        "dense<[10, 10]> : tensor<2xi8>",
    ),
    "uniform_quantize of codes": (
        "dense<[10, 10]> : tensor<2xi8>",
        [
            ("bitcast_convert", f"2x{AXIS}"),
            ("uniform_quantize", f"2x{OTHER}"),
            ("bitcast_convert", "2xi8"),
        ],
        "dense<[20, 45]> : tensor<2xi8>",
    ),
    "uniform_dequantize": (
        "dense<[10, 10]> : tensor<2xi8>",
        [("bitcast_convert", f"2x{AXIS}"), ("uniform_dequantize", "2xf32")],
        "dense<[4.0, 15.0]> : tensor<2xf32>",
    ),
}


def chain(given: str, steps: list[tuple[str, str]], wanted: str) -> str:
    """A module of unary ops, in the form of StableHLO's cases."""
    lines, kind = [f"%v0 = stablehlo.constant {given}"], given.partition(" : ")[2]
    for i, (op, result) in enumerate(steps):
        lines.append(f'%v{i + 1} = "stablehlo.{op}"(%v{i}) : ({kind}) -> tensor<{result}>')
        kind = f"tensor<{result}>"
    lines.append(f"check.expect_eq_const %v{len(steps)}, {wanted}")
    return "func.func @main() {\n" + "\n".join([*lines, "func.return"]) + "\n}\n"


def verdict(text: str, tmp_path: Path):
    from suites import stablehlo_cases

    file = tmp_path / "case.mlir"
    file.write_text(text)
    (case,) = stablehlo_cases.cases(file)
    return stablehlo_cases.judge(case)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_specifications_examples(name: str, tmp_path: Path) -> None:
    found = verdict(chain(*EXAMPLES[name]), tmp_path)
    assert (found.verdict, found.reason) == ("right", "")


def test_what_differs_is_told(tmp_path: Path) -> None:
    given, steps, wanted = EXAMPLES["uniform_quantize of floats"]
    found = verdict(chain(given, steps, wanted.replace("10, 10", "10, 11")), tmp_path)
    assert found.verdict == "wrong" and "1 of 2 differ, by up to 1" in found.reason


SCALES = 0.05, 0.02, 0.07  # of left, right and result
ZEROS = 3, 0, -5
BINARY = {
    "add": (lambda a, b: a + b, (4, 6), (4, 6), "", 5),
    "multiply": (lambda a, b: a * b, (4, 6), (4, 6), "", 5),
    "dot_general": (
        lambda a, b: a @ b,
        (4, 6),
        (6, 3),
        "{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
        "rhs_contracting_dimensions = [0]>}",
        0,
    ),
    "convolution": (
        lambda a, b: sum(a[:, i : i + 4] @ b[i] for i in range(3)),
        (2, 6, 5),
        (3, 5, 4),
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64, "
        "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>}",
        0,
    ),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_ops_round_the_exact_result(name: str, tmp_path: Path) -> None:
    """Dequantize, compute, quantize, as the specification says of quantized types. The codes are
    drawn so that no result is near a tie, which float32 may round to either side."""
    function, left, right, attributes, zero = BINARY[name]
    zeros = (ZEROS[0], zero, ZEROS[2])
    for seed in range(100):
        rng = np.random.default_rng(seed)
        codes = [rng.integers(-128, 128, shape) for shape in (left, right)]
        real = [s * (c - z) for s, c, z in zip(SCALES, codes, zeros, strict=False)]
        steps = function(*real) / SCALES[2]
        if np.abs(steps % 1 - 0.5).min() > 1e-3:
            break
    wanted = np.clip(np.rint(steps) + zeros[2], -128, 127).astype(int)
    types = [
        f"{'x'.join(map(str, shape))}x!quant.uniform<i8:f32, {s}:{z}>"
        for shape, s, z in zip((left, right, wanted.shape), SCALES, zeros, strict=True)
    ]
    plain = ["x".join(map(str, (*a.shape, "i8"))) for a in (*codes, wanted)]
    lines = []
    for i in (0, 1):
        lines.append(f"%c{i} = stablehlo.constant dense<{codes[i].tolist()}> : tensor<{plain[i]}>")
        kinds = f"(tensor<{plain[i]}>) -> tensor<{types[i]}>"
        lines.append(f'%q{i} = "stablehlo.bitcast_convert"(%c{i}) : {kinds}')
    kinds = f"(tensor<{types[0]}>, tensor<{types[1]}>) -> tensor<{types[2]}>"
    lines.append(f'%q2 = "stablehlo.{name}"(%q0, %q1) {attributes} : {kinds}')
    kinds = f"(tensor<{types[2]}>) -> tensor<{plain[2]}>"
    lines.append(f'%c2 = "stablehlo.bitcast_convert"(%q2) : {kinds}')
    lines.append(f"check.expect_eq_const %c2, dense<{wanted.tolist()}> : tensor<{plain[2]}>")
    text = "func.func @main() {\n" + "\n".join([*lines, "func.return"]) + "\n}\n"
    found = verdict(text, tmp_path)
    assert (found.verdict, found.reason) == ("right", "")


def test_unsigned_codes_that_are_cast_are_refused(tmp_path: Path) -> None:
    kind = "2x!quant.uniform<u8:f32, 0.1:7>"
    steps = [("uniform_quantize", kind), ("bitcast_convert", "2xui8")]
    found = verdict(
        chain("dense<[4.0, 15.0]> : tensor<2xf32>", steps, "dense<[47, 157]> : tensor<2xui8>"),
        tmp_path,
    )
    assert found.verdict == "refused" and found.reason
