"""Programs from StableHLO and `jax.export` files."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

from jq.base.errors import UserError
from jq.frontends.tracing import trace
from jq.ir import Program, stablehlo

RNG = np.random.default_rng(0)
KERNEL = RNG.standard_normal((8, 4)).astype(np.float32)
X = RNG.standard_normal((3, 8)).astype(np.float32)


def fn(x):
    with jax.named_scope("dense"):
        return {"y": jax.nn.softmax(x @ KERNEL)}


EXPECTED = np.asarray(fn(X)["y"])


def names(program: Program) -> list[str]:
    ops = [op for op in program.walk() if op.operation.name == "stablehlo.dot_general"]
    return [op.attributes["jq.name"].value for op in ops]


def text() -> str:
    lowered = jax.jit(fn).lower(X)
    return lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True)


def write(path, data) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def test_stablehlo_text(tmp_path, run_xla):
    program = trace(write(tmp_path / "m.mlir", text()))
    np.testing.assert_allclose(run_xla(program, [X])[0], EXPECTED, rtol=1e-6)
    assert list(program.weights) == ["dense/constant"]
    assert np.array_equal(program.weights["dense/constant"], KERNEL)
    assert names(program) == ["dense/constant"]
    assert [i.name for i in program.inputs] == ["arg0"]


@pytest.mark.parametrize("suffix", [".mlir", ".mlirbc"])
def test_portable_artifact_of_an_older_version(tmp_path, run_xla, suffix):
    data = stablehlo.serialize_portable_artifact_str(text(), "1.9.0")
    program = trace(write(tmp_path / f"m{suffix}", data))
    np.testing.assert_allclose(run_xla(program, [X])[0], EXPECTED, rtol=1e-6)


def test_a_function_of_any_name_with_a_public_helper(tmp_path, run_xla):
    source = """
    func.func @helper(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.add %a, %a : tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    func.func @predict(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = call @helper(%a) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    program = trace(write(tmp_path / "m.mlir", source))
    assert run_xla(program, [np.array([1, 2], np.float32)])[0].tolist() == [2, 4]


BODY = "(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"func.func @a{BODY} func.func @b{BODY}", "2 public functions: a, b"),
        (f"func.func private @a{BODY}", "no public function"),
        ("func.func @a(", r"cannot parse .*: 1:13 expected"),
        ("func.func private @a()", r"a function has no body \[a\]"),
        (b"ML\xefR\x06StableHLO_v1.9.0xxxxxxxxx", "cannot parse"),
    ],
)
def test_files_that_are_refused(tmp_path, source, expected):
    path = write(tmp_path / "m.mlir", source)
    with pytest.raises(UserError, match=expected) as info:
        trace(path)
    assert "\n" not in str(info.value)
    assert path in str(info.value)


def test_exported_function(tmp_path, run_xla):
    exported = export.export(jax.jit(fn))(X)
    program = trace(write(tmp_path / "m.jaxexport", exported.serialize()))
    result = jax.tree.unflatten(program.out_tree, run_xla(program, [X]))
    np.testing.assert_allclose(result["y"], EXPECTED, rtol=1e-6)
    assert [o.name for o in program.outputs] == ["y"]
    assert list(program.weights) == ["dense/constant"]


def test_exported_function_keeps_unused_arguments_and_platforms(tmp_path, run_xla):
    def two(batch, unused, *, scale):
        return batch["x"] * scale

    exported = export.export(jax.jit(two), platforms=("tpu", "cpu"))(
        {"x": X, "z": X}, np.int32(1), scale=np.float32(3)
    )
    program = trace(write(tmp_path / "m.jaxexport", exported.serialize()))
    assert [i.name for i in program.inputs] == ["arg0/x", "arg0/z", "arg1", "scale"]
    (result,) = run_xla(program, [X, X, np.int32(1), np.float32(3)])
    assert np.array_equal(result, X * 3)


def test_exported_symbolic_sizes(tmp_path, run_xla):
    a, b = export.symbolic_shape("a,b")

    def dynamic(x, y):
        with jax.named_scope("dense"):
            h = jax.nn.softmax(x @ KERNEL)
        return h.reshape(-1), jnp.concatenate([y, y]).sum() / y.shape[0]

    specs = (jax.ShapeDtypeStruct(s, np.float32) for s in ((a, 8), (2 * b,)))
    path = write(tmp_path / "m.jaxexport", export.export(jax.jit(dynamic))(*specs).serialize())
    for n in (1, 3):
        y = np.arange(4, dtype=np.float32)
        program = trace(path, sizes={"a": n, "b": 2})
        assert program.outputs[0].shape == (4 * n,)
        for got, want in zip(run_xla(program, [X[:n], y]), dynamic(X[:n], y), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
    with pytest.raises(UserError, match=r"dimension a has no size \[arg0\]; give --size a=8, in"):
        trace(path, sizes={"b": 2})


def test_equal_sizes_have_one_name(tmp_path):
    a, b = export.symbolic_shape("a,b", constraints=["a == b"])
    specs = (jax.ShapeDtypeStruct((n,), np.float32) for n in (a, b))
    path = write(tmp_path / "m.jaxexport", export.export(jax.jit(jnp.add))(*specs).serialize())
    assert trace(path, sizes={"b": 3}).outputs[0].shape == (3,)
    with pytest.raises(UserError, match=r"dimension 'a'; known: b; .*equal.* go by one name"):
        trace(path, sizes={"a": 3, "b": 3})


def test_damaged_export(tmp_path):
    data = export.export(jax.jit(fn))(X).serialize()
    for damaged in (b"", b"not an export", bytes(data[: len(data) // 2])):
        with pytest.raises(UserError, match=r"m\.jaxexport") as info:
            trace(write(tmp_path / "m.jaxexport", damaged))
        assert "\n" not in str(info.value)


def shaped(*shape, dtype="float32"):
    return jax.typeof(jnp.zeros(shape, dtype))


@pytest.mark.parametrize(
    "lie",
    [
        {"module_kept_var_idx": ()},
        {"module_kept_var_idx": (0, 0)},
        {"module_kept_var_idx": (7,)},
        {"in_avals": (shaped(5, 8),)},
        {"in_avals": (shaped(3, 8, dtype="int32"),)},
        {"out_avals": (shaped(3, 5),)},
        {"platforms": ("cpu", "tpu")},
    ],
)
def test_an_export_whose_description_is_not_of_its_module(tmp_path, lie):
    """An argument that was not said to be kept became the constant 0."""
    exported = dataclasses.replace(export.export(jax.jit(fn))(X), **lie)
    path = write(tmp_path / "m.jaxexport", exported.serialize())
    with pytest.raises(UserError, match="described as another than its module is"):
        trace(path)


def test_an_export_of_another_calling_convention(tmp_path):
    exported = export.export(jax.jit(fn))(X)
    exported = dataclasses.replace(exported, calling_convention_version=99)
    path = write(tmp_path / "m.jaxexport", exported.serialize())
    with pytest.raises(UserError, match="calling convention 99"):
        trace(path)


DYNAMIC = """func.func @main(%a: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.tanh %a : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}"""


def test_dynamic_module(tmp_path):
    path = write(tmp_path / "m.mlir", DYNAMIC)
    assert trace(path, sizes={"arg0[0]": 5}).outputs[0].shape == (5, 3)
    with pytest.raises(UserError, match=r"sizes=\{'arg0\[0\]': 8\}"):
        trace(path)


def test_a_size_that_depends_on_data_is_refused(tmp_path):
    source = """func.func @main(%a: tensor<3xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
      %0 = stablehlo.dynamic_reshape %a, %n : (tensor<3xf32>, tensor<1xi32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    with pytest.raises(UserError, match="depends on data"):
        trace(write(tmp_path / "m.mlir", source))


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
)
def test_closed_over_arrays_become_weights(dtype):
    data = RNG.standard_normal((6, 5)).astype(dtype)
    program = trace(
        jax.jit(lambda x: x @ data.astype(np.float32) + 1).lower(X[:, :6]).compiler_ir()
    )
    (name,) = program.weights
    assert program.weights[name].dtype == np.float32
    module = jax.jit(lambda: jnp.asarray(data)).lower().compiler_ir()
    program = trace(module)
    assert program.weights["constant"].dtype == dtype
    assert np.array_equal(program.weights["constant"], data)


def test_resource_blobs_and_shared_and_small_constants(tmp_path, run_xla):
    blob = np.arange(20, dtype="<f4").tobytes().hex()
    source = f"""func.func @main(%a: tensor<20xf32>) -> tensor<20xf32> {{
      %0 = stablehlo.constant dense_resource<w> : tensor<20xf32> loc("layer.weight")
      %1 = stablehlo.constant dense<1.5> : tensor<20xf32>
      %2 = stablehlo.add %a, %0 : tensor<20xf32>
      %3 = stablehlo.constant dense_resource<w> : tensor<20xf32> loc("again")
      %4 = stablehlo.add %2, %3 : tensor<20xf32>
      %5 = stablehlo.add %4, %1 : tensor<20xf32>
      return %5 : tensor<20xf32>
    }}
    {{-# dialect_resources: {{ builtin: {{ w: "0x04000000{blob}" }} }} #-}}"""
    program = trace(write(tmp_path / "m.mlir", source))
    assert {n: w.tolist() for n, w in program.weights.items()} == {"layer.weight": list(range(20))}
    (result,) = run_xla(program, [np.zeros(20, np.float32)])
    assert result.tolist() == [2 * i + 1.5 for i in range(20)]


def test_missing_file():
    with pytest.raises(UserError, match="no such file"):
        trace("nowhere.mlir")


def test_inner_loops_give_up_their_constants_first(tmp_path, run_xla):
    """The outer loop returns what the inner one returned: both only hand the weight through."""
    state = "tensor<i32>, tensor<2xf32>, tensor<2xf32>"

    def loop(names: str, init: str, body: str, result: str) -> str:
        i, w, x = names.split()
        start = f"%{i} = %zero, %{w} = {init[0]}, %{x} = {init[1]}"
        return f"""%{result}:3 = stablehlo.while({start}) : {state}
        cond {{
          %c = stablehlo.compare LT, %{i}, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{ {body} }}"""

    inner = loop(
        "j v y",
        ("%w", "%x"),
        f"""%z = stablehlo.multiply %y, %v : tensor<2xf32>
        %n = stablehlo.add %j, %one : tensor<i32>
        stablehlo.return %n, %v, %z : {state}""",
        "in",
    )
    outer = loop(
        "i w x",
        ("%arg0", "%arg1"),
        f"""{inner}
        %n = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %n, %in#1, %in#2 : {state}""",
        "out",
    )
    source = f"""func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) -> tensor<2xf32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      {outer}
      return %out#2 : tensor<2xf32>
    }}"""
    program = trace(write(tmp_path / "m.mlir", source))
    loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
    assert [len(op.operands) for op in loops] == [2, 2]
    (result,) = run_xla(program, [np.array([2, 3], np.float32), np.ones(2, np.float32)])
    assert result.tolist() == [16, 81]
