"""Weights that become constants keep shape, type and bits."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import InternalError
from jq.ir import Program, dtype_name, editing, ir
from jq.ir.constants import converted, dense_array
from jq.ir.oracle.interpreter import interpret
from tests.iree.helpers import compiled, make_program

RNG = np.random.default_rng(3)
TYPES = [
    np.bool_,
    np.int8,
    np.uint8,
    np.uint32,
    np.float32,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
]


def with_constants(*arrays: np.ndarray) -> Program:
    """Takes nothing and returns the arrays."""
    kinds = [f"tensor<{''.join(f'{n}x' for n in a.shape)}{dtype_name(a.dtype)}>" for a in arrays]
    args = ", ".join(f"%w{i}: {kind}" for i, kind in enumerate(kinds))
    values = ", ".join(f"%w{i}" for i in range(len(kinds)))
    types = ", ".join(kinds)
    program = make_program(
        f"func.func public @main({args}) -> ({types}) {{ return {values} : {types} }}",
        {f"w{i}": array for i, array in enumerate(arrays)},
    )
    return replace(program, module=program.materialize(), weights={})


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 2), (40, 40)])
def test_constants_keep_their_bits(shape: tuple[int, ...]) -> None:
    arrays = [RNG.integers(0, 2 if t == np.bool_ else 99, shape).astype(t) for t in TYPES]
    program = with_constants(*arrays)
    program.verify()
    for y, array in zip(compiled(program)(), arrays, strict=True):
        assert y.dtype == array.dtype
        np.testing.assert_array_equal(y, array)


def test_the_interpreter_refuses_resources() -> None:
    array = np.zeros(40, np.float32)
    program = with_constants(array)
    (op,) = [op for op in program.walk() if op.operation.name == "stablehlo.constant"]
    with editing():
        kind = op.results[0].type
        op.attributes["value"] = ir.DenseResourceElementsAttr.get_from_buffer(array, "w", kind)
    with pytest.raises(InternalError, match="reads no resources"):
        interpret(program)


ENDS = [300, -300, 1e30, -1e30, np.inf, -np.inf, np.nan, 2.7, -0.5, 2.0**31, 2.0**32 - 256, -128.9]
ENDS += [0.0, -0.0, 7, -8, 15, 127, -128, 255]


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8", "int32", "uint32"])
@pytest.mark.parametrize("source", ["float32", "bfloat16"])
def test_constants_are_converted_as_by_xla(dtype: str, source: str) -> None:
    x = jnp.asarray(ENDS, source)
    want = np.asarray(jax.jit(lambda x: x.astype(dtype))(x))
    found = converted(np.asarray(x), want.dtype)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found.astype(np.int64), want.astype(np.int64))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16])
def test_constants_of_types_that_the_bindings_do_not_read(dtype) -> None:
    array = np.array([[-2, -0.25, np.nan], [1.5, 0, -448]]).astype(dtype)
    program = with_constants(array)
    program = replace(program, module=program.materialize(), weights={})
    (constant,) = (op for op in program.walk() if op.operation.name == "stablehlo.constant")
    found = dense_array(constant.results[0])
    assert found is not None
    assert found.dtype == dtype
    np.testing.assert_array_equal(
        found.view(f"i{found.itemsize}"), array.view(f"i{found.itemsize}")
    )
