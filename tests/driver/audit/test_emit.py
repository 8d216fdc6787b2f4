"""The output of `--emit` is the program: another compiler gets all of it."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir import editing, ir, parse_module, run_passes, stablehlo
from jq.ir.oracle.interpreter import interpret
from jq.ir.quantized.markers import to_quant_types
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 64)).astype(np.float32)
MODEL = jq.Model(
    lambda p, x: jnp.tanh(x @ p["a"] + p["bias"]) @ p["b"],
    {
        "a": RNG.standard_normal((64, 40)).astype(np.float32),
        "b": RNG.standard_normal((40, 7)).astype(jnp.bfloat16),
        "bias": RNG.standard_normal(40).astype(np.float32),
    },
    (X,),
    calibration=[(X,)],
)


@pytest.fixture(scope="module", params=["int8-dynamic", "int8-static", "mxfp4-weight-only"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    chosen = {"min_elements": 1}
    compiled = jq.compile(MODEL, request.param, settings=chosen, emit=["float", "qdq", "integer"])
    return compiled, compiled.save(tmp_path_factory.mktemp("emit") / "out")


@pytest.mark.parametrize("level", ["float", "qdq", "integer", "integer.portable"])
def test_an_emitted_module_is_whole(made: tuple[jq.CompiledModel, Path], level: str) -> None:
    compiled, path = made
    level, portable = level.split(".")[0], level.endswith("portable")
    if portable:
        head = (path / "integer.portable.mlirbc").read_bytes()[:24]
        assert head.startswith(b"ML\xefR\rStableHLO_v1.")
    file = f"{level}.portable.mlirbc" if portable else f"{level}.mlirbc"
    again = jq.trace(path / file).program
    (want,) = evaluated(compiled.levels[level], X)
    np.testing.assert_array_equal(evaluated(again, X)[0], want)
    assert (path / f"{level}.mlir").read_text().startswith("module")


def test_stored_weights_come_back_as_they_are(made: tuple[jq.CompiledModel, Path]) -> None:
    compiled, path = made
    again = jq.compile(path / "qdq.mlirbc", "float")
    stored = {w.name: w.format for w in compiled.audit().weights if w.format != "f32"}
    assert {w.name: w.format for w in again.audit().weights}.items() >= stored.items()


TYPED = {
    "int8-static": ["i8<-127:127>:f32:1, {", "i8:f32, ", "i32:f32:1, {"],
    "int8-dynamic": ["i8<-127:127>:f32:1, {"],
    "mxfp4-weight-only": [],
}


def test_codes_have_quantized_types(made: tuple[jq.CompiledModel, Path]) -> None:
    """The output of `--emit qdq`, run by StableHLO's own definition of these types."""
    compiled, path = made
    text, pipeline = (path / "qdq.mlir").read_text(), compiled.manifest.pipeline
    for kind in TYPED[pipeline]:
        assert f"!quant.uniform<{kind}" in text
    assert ("stablehlo.uniform_dequantize" in text) == bool(TYPED[pipeline])
    assert ("stablehlo.uniform_quantize" in text) == (pipeline == "int8-static")
    assert ('composite "jq.quantize_dynamic"' in text) == (pipeline == "int8-dynamic")
    module = parse_module((path / "qdq.mlirbc").read_bytes())
    assert module.operation.verify()
    run_passes(module, "func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo)")
    with editing():
        (got,) = stablehlo.eval_module(module, [ir.DenseElementsAttr.get(X)])
    (want,) = interpret(compiled.levels["qdq"], X)
    # Products are sums of integers there, and the bias is rounded to a step of theirs.
    rounded = 1e-5 if pipeline == "int8-static" else 0
    np.testing.assert_allclose(np.array(got), want, rtol=rounded, atol=rounded)


def test_wide_codes_have_types_too() -> None:
    levels = jq.rewrite(MODEL, pipeline="int8-static-integer-only", target="npu-int8")
    program = levels["qdq"].clone()
    to_quant_types(program)
    assert "!quant.uniform<i16:f32, " in program.text()
    assert "composite" not in program.text()
    again = jq.trace(program.materialize()).program
    (got,), (want,) = (evaluated(p, X) for p in (again, levels["qdq"]))
    np.testing.assert_array_equal(got, want)


def test_types_round_as_ours_but_for_ties() -> None:
    """StableHLO adds the zero point in float32, before it rounds: up to 2^-17 off for 8 bits."""
    x = (RNG.standard_normal(20_000) * 2).astype(np.float32)
    x[:512] = (np.arange(512) - 256 + 0.5) * np.float32(2.0**-5)
    model = jq.Model(
        lambda p, x: jq.fake_quant(x, scheme="asymmetric", range=(-3.03125, 4.9375)), {}, (x,)
    )
    program = jq.rewrite(model, pipeline="int8-static")["qdq"]
    (ours,) = evaluated(program, x)
    to_quant_types(program)
    assert "uniform_quantize" in program.text() and 'jq.quantize"' not in program.text()
    run_passes(program.module, "func.func(stablehlo-legalize-quant-to-math)")
    (theirs,) = evaluated(program, x)
    steps = np.abs(ours - theirs) * 2**5
    near = np.abs(x * 2**5 % 1 - 0.5) <= 2.0**-17
    assert steps.max() == 1 and not steps[~near].any() and near[steps > 0].all()


def test_a_type_that_is_not_what_its_op_says_is_refused(tmp_path: Path) -> None:
    program = jq.rewrite(MODEL, pipeline="int8-static")["qdq"]
    to_quant_types(program)
    first = next(op for op in program.walk() if op.operation.name == "stablehlo.uniform_quantize")
    with editing():
        said = {a.name: a.attr for a in ir.DictAttr(first.operation.attributes["jq.quantize"])}
        said["format"] = ir.StringAttr.get("int16")
        first.operation.attributes["jq.quantize"] = ir.DictAttr.get(said)
    with pytest.raises(jq.UserError, match="not what its op says"):
        jq.trace(program.materialize())


def test_the_target_level_is_text_alone(tmp_path: Path) -> None:
    path = jq.compile(MODEL, emit="target").save(tmp_path / "out")
    assert (path / "target.mlir").is_file()
    assert not (path / "target.mlirbc").exists()
    with pytest.raises(jq.UserError, match="a function has no body"):
        jq.trace(path / "target.mlir")
