from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir

from jq.base.errors import CompilerError, UserError
from jq.ir import Program, dtype_name
from jq.ir.decisions import SMOOTHING, decide, decisions, facts_of
from jq.iree.compiler import BASE_FLAGS, HOST_FLAGS, compile_module
from jq.iree.dump.reader import read_dump
from jq.iree.handover import handover, parameter_key, read_module
from jq.iree.runtime import Executable
from tests.iree.helpers import compiled, make_program

RNG = np.random.default_rng(0)


TYPES = [
    np.int8,
    np.uint8,
    np.int32,
    np.bool_,
    np.float16,
    np.float32,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
]


def identity(weights: dict[str, np.ndarray]) -> Program:
    """`main(x) = (convert(w) + x, ...)` in float32, `x` a scalar."""
    args, body, results = "%x: tensor<f32>", "", []
    for i, array in enumerate(weights.values()):
        dims = "".join(f"{n}x" for n in array.shape)
        kind, f32 = f"tensor<{dims}{dtype_name(array.dtype)}>", f"tensor<{dims}f32>"
        args += f", %w{i}: {kind}"
        body += f"""%a{i} = stablehlo.convert %w{i} : ({kind}) -> {f32}
          %b{i} = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> {f32}
          %c{i} = stablehlo.add %a{i}, %b{i} : {f32}
        """
        results.append((f"%c{i}", f32))
    names, kinds = (", ".join(column) for column in zip(*results, strict=True))
    text = f"func.func public @main({args}) -> ({kinds}) {{ {body} return {names} : {kinds} }}"
    return make_program(text, weights)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3, 5), (64, 65)])
def test_weight_types(shape: tuple[int, ...], inline: bool) -> None:
    weights = {
        np.dtype(t).name: RNG.integers(0, 2 if t == np.bool_ else 7, shape).astype(t) for t in TYPES
    }
    outputs = compiled(identity(weights), inline=inline)(np.float32(-3))
    for (name, array), y in zip(weights.items(), outputs, strict=True):
        np.testing.assert_array_equal(y, array.astype(np.float32) - 3, err_msg=name)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 5), ()])
def test_complex_weights(shape: tuple[int, ...], dtype: type, inline: bool) -> None:
    part = "f32" if dtype is np.complex64 else "f64"
    w = np.asarray(RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape), dtype)
    sizes = "".join(f"{n}x" for n in shape)
    kind, flat = f"tensor<{sizes}complex<{part}>>", f"tensor<{sizes}{part}>"
    text = f"""func.func public @main(%x: tensor<{part}>, %w: {kind}) -> ({flat}, {flat}) {{
      %r = stablehlo.real %w : ({kind}) -> {flat}
      %i = stablehlo.imag %w : ({kind}) -> {flat}
      %b = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<{part}>) -> {flat}
      %y = stablehlo.multiply %r, %b : {flat}
      return %y, %i : {flat}, {flat} }}"""
    real, imag = compiled(make_program(text, {"w": w}), inline=inline)(w.real.dtype.type(2))
    np.testing.assert_array_equal(real, 2 * w.real)
    np.testing.assert_array_equal(imag, w.imag)


def test_four_bit_arrays_are_refused() -> None:
    """I4 breaks at some shapes; formats pack nibbles in int8."""
    with pytest.raises(UserError, match="pack two values"):
        handover(identity({"w": np.zeros((4, 4), ml_dtypes.int4)}))


def test_weights_of_any_name() -> None:
    names = ['a"b', "c\\d", "é/ü", "x%22", "params['w']", "a b:codes#2"]
    weights = {name: np.full((2, 300), i, np.float32) for i, name in enumerate(names)}
    kind = "tensor<2x300xf32>"
    args = ", ".join(f"%w{i}: {kind}" for i in range(len(names)))
    program = make_program(
        f"""func.func public @main(%x: {kind}, {args}) -> {kind} {{
          %0 = stablehlo.subtract %w1, %w0 : {kind}
          %1 = stablehlo.multiply %w2, %w5 : {kind}
          %2 = stablehlo.multiply %w3, %w4 : {kind}
          %3 = stablehlo.add %1, %2 : {kind}
          %4 = stablehlo.add %3, %0 : {kind}
          %5 = stablehlo.add %4, %x : {kind}
          return %5 : {kind}
        }}""",
        weights,
    )
    for inline in (True, False):
        (y,) = compiled(program, inline=inline)(np.zeros((2, 300), np.float32))
        assert (y == 1 + 2 * 5 + 3 * 4).all()
    assert len({parameter_key(name) for name in names}) == len(names)


DEQUANTIZED = """func.func public @main(%x: tensor<4x64xf32>, %w: tensor<64x32xi8>,
    %s: tensor<1x32xf32>) -> tensor<4x32xf32> {
  %0 = stablehlo.convert %w : (tensor<64x32xi8>) -> tensor<64x32xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<64x32xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<64x32xf32>
  %3 = stablehlo.dot_general %x, %2, contracting_dims = [1] x [0] {jq.name = "layer/kernel"}
    : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  return %3 : tensor<4x32xf32>
}"""


def dequantized() -> Program:
    weights = {
        "w:codes": RNG.integers(-127, 128, (64, 32)).astype(np.int8),
        "w:scale": RNG.random((1, 32)).astype(np.float32),
    }
    return make_program(DEQUANTIZED, weights)


def held_by(program: str | None) -> set[str]:
    """Types of the tensors that a compiled program holds, in its file or once loaded."""
    assert program is not None
    dump = read_dump(program)
    return {"x".join(map(str, (*c.shape, c.dtype))) for c in (*dump.constants, *dump.derived)}


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_small_weights_stay_low_bit(limit: int) -> None:
    """Without our flag IREE stores a small dequantized weight as float32."""
    given = handover(dequantized(), inline_limit=limit)
    held = held_by(compile_module(given.bytecode).program)
    assert "64x32xi8" in held
    assert "64x32xf32" not in held
    flag = "--iree-opt-const-expr-max-size-increase-threshold"
    assert f"{flag}=0" in BASE_FLAGS
    loose = compile_module(given.bytecode, flags=[f"{flag}=1048576", *HOST_FLAGS]).program
    assert "64x32xf32" in held_by(loose)


def test_names_reach_the_compilers_program() -> None:
    built = compile_module(handover(dequantized()).bytecode)
    assert built.program is not None
    assert 'loc("layer/kernel"' in built.program
    assert 'loc("w:codes"' in built.program


def test_layout_is_evaluated_by_the_compiler() -> None:
    """An expression that does not grow (a transpose) is still folded into the constant."""
    program = make_program(
        """func.func public @main(%x: tensor<4x64xi8>, %w: tensor<48x64xi8>) -> tensor<4x48xi32> {
          %0 = stablehlo.slice %w [0:48:1, 0:64:1] : (tensor<48x64xi8>) -> tensor<48x64xi8>
          %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<48x64xi8>) -> tensor<64x48xi8>
          %2 = stablehlo.negate %1 : tensor<64x48xi8>
          %3 = stablehlo.dot_general %x, %2, contracting_dims = [1] x [0]
            : (tensor<4x64xi8>, tensor<64x48xi8>) -> tensor<4x48xi32>
          return %3 : tensor<4x48xi32>
        }""",
        {"w": RNG.integers(-127, 128, (48, 64)).astype(np.int8)},
    )
    built = compile_module(handover(program).bytecode)
    assert built.program is not None
    assert [c.kind for c in read_dump(built.program).constants] == ["global"]
    assert "arith.subi" not in built.program


def test_composites_become_calls() -> None:
    program = make_program(
        """module {
          func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
            %0 = stablehlo.composite "jq.twice" %x {decomposition = @twice}
              : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }
          func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
            %0 = stablehlo.add %x, %x : tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        }"""
    )
    (y,) = compiled(program)(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(y, [0, 2, 4, 6])
    assert "stablehlo.composite" in program.text()  # the program itself is untouched


KERNEL = """module {
  func.func private @k(tensor<4xf32>) -> tensor<4xf32> attributes {jq.kernel = "gemm"}
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = func.call @k(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""


def test_kernels_are_linked() -> None:
    def link(module: ir.Module) -> None:
        declared = module.body.operations[0]
        body = ir.Module.parse(
            """func.func private @k(%x: tensor<4xf32>) -> tensor<4xf32> {
              %0 = stablehlo.add %x, %x : tensor<4xf32>
              return %0 : tensor<4xf32>
            }"""
        )
        body.body.operations[0].operation.clone(ip=ir.InsertionPoint(declared))
        declared.operation.erase()

    built = compile_module(handover(make_program(KERNEL), link=link).bytecode)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(Executable.load(built.vmfb)(x)[0], x + x)


def test_what_passes_decided_is_no_part_of_what_the_compiler_gets() -> None:
    program = identity({"w": np.ones(3, np.float32)})
    before = handover(program).bytecode
    decide(program, {"w": {"kernel": "gemm_1x3x1", "merged": ["v", "u"]}})
    decide(program, {"w": {"no_kernel": "why"}, "v": {}})
    facts = {"kernel": "gemm_1x3x1", "merged": ("v", "u"), "no_kernel": "why"}
    assert decisions(program.clone()) == {"w": facts, "v": {}}
    decide(program, {"x": {SMOOTHING: np.log2([2.0, 0.25])}})
    assert facts_of(program.clone(), SMOOTHING)["x"].tolist() == [1, -2]
    for text in ("one", "two", "one"):
        program.tell(text)
    assert program.clone().notes == ("one", "two")
    assert handover(program).bytecode == before


def test_what_iree_cannot_read_is_told_with_both_versions():
    """As if JAX wrote an op of a StableHLO that IREE does not know."""
    text = b'func.func @main() { "stablehlo.of_a_later_version"() : () -> () return }'
    with ir.Context(), ir.Location.unknown(), pytest.raises(CompilerError) as refused:
        read_module(text)
    for part in ("IREE 3.", "JAX 0.", "StableHLO 1.", "of_a_later_version"):
        assert part in str(refused.value)
