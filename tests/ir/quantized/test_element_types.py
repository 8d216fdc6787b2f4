"""Codes and scales have their own element types in the module that `--emit qdq` writes."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, Format, get_format
from jq.ir import ir, parse_module, run_passes
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable
from jq.ir.quantized.elements import as_elements, as_stored
from jq.ir.quantized.markers import to_quant_types

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 64)).astype(np.float32)


def _forward(p, x):
    return x.reshape(2, 2, 64).transpose(1, 0, 2) @ p["a"] @ p["b"]


def _moved(p, x):
    """A look-up in a stored weight, and a stack that a loop reads."""
    rows = p["a"].T[jnp.array([1, 0, 1, 5])] * x
    return rows, jax.lax.scan(lambda c, w: (c @ w, None), x, p["stack"])[0]


MODEL = jq.Model(
    _forward,
    {
        "a": RNG.standard_normal((64, 41)).astype(np.float32),  # 41: half a byte is left over
        "b": RNG.standard_normal((41, 7)).astype(jnp.bfloat16),
    },
    (X,),
    calibration=[(X,)],
)
TYPES = {  # of what a pipeline and its rule store
    "int4-weight-only": {"64x41xi4", "2x41xi4"},
    "int8-weight-only *: weights.format=int2": {"64x41xi2"},
    "int8-weight-only *: weights.format=nf4": {"64x41xui4"},
    "fp8-weight-only": {"64x41xf8E4M3FN"},
    "int8-weight-only *: weights.format=float8_e5m2, weights.granularity=per-tensor": {
        "64x41xf8E5M2"
    },
    "mxfp8": {"64x41xf8E4M3FN", "2x41xf8E8M0FNU", "2x2x64xf8E4M3FN", "2x2x2xf8E8M0FNU"},
    "mxfp4": {"64x41xf4E2M1FN", "2x41xf8E8M0FNU", "2x2x64xf4E2M1FN", "2x2x2xf8E8M0FNU"},
    "nvfp4": {"64x41xf4E2M1FN", "4x41xf8E4M3FN", "2x2x64xf4E2M1FN", "2x2x4xf8E4M3FN"},
    "mxint8": {"64x41xi8", "2x41xf8E8M0FNU", "2x2x2xf8E8M0FNU"},
}


def _levels(case: str, model: jq.Model = MODEL):
    pipeline, _, rule = case.partition(" ")
    settings = {"min_elements": 1, "recovery": False}
    return jq.rewrite(model, pipeline=pipeline, settings=settings, rules=[rule] if rule else [])


@pytest.mark.parametrize("case", TYPES)
def test_parts_have_their_element_types(case: str, tmp_path: Path) -> None:
    """XLA and the interpreter convert them; read again, from bytecode, it is the program it was."""
    levels = _levels(case)
    program = levels["qdq"].clone()
    to_quant_types(program)
    program.verify()
    text = program.text()
    main = text[: text.index("func.func private")] if "func.func private" in text else text
    found = set(re.findall(r"tensor<([\dx]+x(?:ui4|i[248]|f[48]E\w+))>", main))
    assert found >= TYPES[case], found
    path = tmp_path / "qdq.mlirbc"
    with path.open("wb") as file:
        program.materialize().operation.write_bytecode(file)
    again = jq.trace(path).program
    assert again.weights.keys() == levels["qdq"].weights.keys()
    for name, array in levels["qdq"].weights.items():
        np.testing.assert_array_equal(again.weights[name], np.asarray(array))
    runs = [XlaExecutable, lambda p: lambda x: interpret(p, x)]
    if "uniform_" in text:  # XLA takes no quantized types
        runs, plain = runs[:1], "func.func(stablehlo-legalize-quant-to-math)"
        run_passes(program.module, plain)
    for run in runs:
        for got, want in zip(run(program)(X), run(levels["qdq"])(X), strict=True):
            np.testing.assert_array_equal(got, want)
    pipeline, rest = case.split(" ")[0], {"min_elements": 1, "recovery": False}
    rewritten = jq.rewrite(path, pipeline=pipeline, settings=rest)["integer"]
    for got, want in zip(
        XlaExecutable(rewritten)(X), XlaExecutable(levels["integer"])(X), strict=True
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", ["mxfp4-weight-only", "mxfp8-weight-only"])
def test_bytes_that_move_get_their_types_where_they_are_read(case: str) -> None:
    stack = RNG.standard_normal((2, 64, 64)).astype(np.float32)
    model = jq.Model(_moved, {"a": MODEL.params["a"], "stack": stack}, (X,))
    plain = _levels(case, model)["qdq"]
    program = plain.clone()
    to_quant_types(program)
    assert 'composite "jq.elements"' in program.text()
    for run in (XlaExecutable, lambda p: lambda x: interpret(p, x)):
        for got, want in zip(run(program)(X), run(plain)(X), strict=True):
            np.testing.assert_array_equal(got, want)


def test_narrow_weights_multiply_as_the_codes_that_they_are() -> None:
    """int4 is widened to int8 for a product: the types of one multiplication are one."""
    model = jq.Model(lambda p, x: x @ p["a"], MODEL.params, (X,), calibration=[(X,)])
    rule = "*: weights.format=int4, weights.granularity=per-channel"
    levels = jq.rewrite(model, pipeline="int8-static", settings={"recovery": False}, rules=[rule])
    program = levels["qdq"].clone()
    to_quant_types(program)
    (product,) = [op for op in program.walk() if op.operation.name == "stablehlo.dot_general"]
    kinds = [str(v.type) for v in (*product.operands, product.result)]
    assert all("!quant.uniform<i8:f32" in kind for kind in kinds[:2])
    assert "!quant.uniform<i32:f32:1, {" in kinds[2]
    assert "tensor<64x41x!quant.uniform<i4<-7:7>:f32:1, {" in program.text()
    again = jq.trace(program.materialize()).program
    (got,), (want,) = (XlaExecutable(p)(X) for p in (again, levels["qdq"]))
    np.testing.assert_array_equal(got, want)
    assert jq.encoding(again, "a") == jq.encoding(levels["qdq"], "a")
    opened = program.clone()
    run_passes(opened.module, "func.func(stablehlo-legalize-quant-to-math)")
    run_passes(opened.module, "func.func(chlo-legalize-to-stablehlo)")
    (theirs,) = XlaExecutable(opened)(X)
    np.testing.assert_allclose(theirs, want, rtol=1e-5, atol=1e-5)


def test_a_zero_point_on_the_right_of_a_product_is_taken_off() -> None:
    """StableHLO's products have none there: the codes are written around 0, in 16 bits."""

    def scores(p, x):
        return (x + 1) @ (x * 2 + 3).T

    model = jq.Model(scores, {}, (X,), calibration=[(X,)])
    levels = jq.rewrite(model, pipeline="int8-static", settings={"recovery": False})
    program = levels["qdq"].clone()
    to_quant_types(program)
    (product,) = [op for op in program.walk() if op.operation.name == "stablehlo.dot_general"]
    left, right, result = (str(v.type) for v in (*product.operands, product.result))
    assert "!quant.uniform<i16:f32, " in left and re.search(r"<i16:f32, [^:]*>>$", right)
    assert "!quant.uniform<i32:f32, " in result
    again = jq.trace(program.materialize()).program
    (got,), (want,) = (XlaExecutable(p)(X) for p in (again, levels["qdq"]))
    np.testing.assert_array_equal(got, want)
    run_passes(program.module, "func.func(stablehlo-legalize-quant-to-math)")
    run_passes(program.module, "func.func(chlo-legalize-to-stablehlo)")
    (theirs,) = XlaExecutable(program)(X)
    assert np.abs(theirs - want).max() <= 1e-5 * np.abs(want).max()


def test_their_encodings_can_be_asked_for() -> None:
    program = _levels("mxfp4")["qdq"]
    to_quant_types(program)
    found = {
        str(ir.RankedTensorType(v.type).element_type): jq.encoding(program, v)
        for op in program.walk()
        for v in op.operation.results
        if "f4E2M1FN" in str(v.type)
    }
    assert found["f4E2M1FN"] is not None and found["f4E2M1FN"].format == "mxfp4"


@pytest.mark.parametrize("damage", ["f8E5M2", "computed"])
def test_parts_that_are_not_those_of_the_format_are_refused(damage: str) -> None:
    program = _levels("fp8-weight-only")["qdq"]
    to_quant_types(program)
    text = str(program.materialize().operation.get_asm())
    if damage == "f8E5M2":
        text = text.replace("f8E4M3FN", damage)
        with pytest.raises(jq.UserError, match="float8_e5m2|int8"):
            jq.trace(parse_module(text))
        return
    constant = re.search(r"(%\w+) = stablehlo.constant [^\n]*tensor<64x41xf8E4M3FN>", text)
    assert constant
    moved = f"{constant[0]}\n %z = stablehlo.negate {constant[1]} : tensor<64x41xf8E4M3FN>"
    text = text.replace(constant[0], moved).replace(
        f'dequantize" {constant[1]},', 'dequantize" %z,'
    )
    with pytest.raises(jq.UserError, match="no constant"):
        jq.trace(parse_module(text))


@pytest.mark.parametrize("name", sorted(Format.registry))
def test_element_types_hold_what_is_stored(name: str) -> None:
    """In every format the bytes come back, and conversions give what decoding gives."""
    fmt, shape = get_format(name), (3, 64, 33)
    x = RNG.standard_normal(shape).astype(np.float32)
    for scheme in fmt.schemes:
        enc = Encoding(name, shape, fmt.default_block(shape, 1) or (1, 0, 1), scheme)
        try:
            parts = fmt.encode(x, enc)
        except FormatError:
            return  # rows of 33 are not for ggml's blocks
        types = fmt.element_types(enc)
        typed = {k: as_elements(v, enc, k) if k in types else v for k, v in parts.items()}
        for part, dtype in types.items():
            assert typed[part].dtype == dtype
            np.testing.assert_array_equal(as_stored(typed[part], enc, part), parts[part])
        got = np.asarray(fmt.decode_elements(NUMPY, typed, enc))
        np.testing.assert_array_equal(got, fmt.to_numpy(parts, enc))


def test_which_formats_have_element_types() -> None:
    """All of less than a byte and all floats, but for 3 and 6 bits, ggml blocks, and places of 2
    bits."""
    typed = {
        name
        for name, fmt in Format.registry.items()
        if fmt.element_types(Encoding(name, (32, 32), fmt.default_block((32, 32), 1) or (0, 0)))
    }
    with_scale_alone = {"mxint8", "mxfp6_e2m3", "mxfp6_e3m2"}
    assert typed - with_scale_alone == {
        *("uint4_min", "uint4_zero", "codebook4"),
        *("int2", "int4", "uint2", "uint4", "nf4", "fp4_e2m1", "nvfp4", "mxfp4", "float4_e2m1fn"),
        *("float8_e4m3fn", "float8_e5m2", "mxfp8_e4m3", "mxfp8_e5m2"),
    }
    assert (
        np.dtype(ml_dtypes.float4_e2m1fn)
        == get_format("mxfp4").element_types(Encoding("mxfp4", (32, 32), (1, 32)))["codes"]
    )
