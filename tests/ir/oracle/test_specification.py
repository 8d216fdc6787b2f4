"""The examples that StableHLO's specification gives of its ops, by our reader and both evaluators.

Values: openxla/stablehlo, docs/spec.md at 0016ba1d5ff720d3ab1b660816aa172aedabc5e1; the modules are
written anew, around the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from jq.frontends.tracing import load_model
from jq.frontends.tracing.entry import trace
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable


@dataclass(frozen=True)
class Example:
    """Attributes:
    body: the lines of a function of %0, %1, ..., whose result is %r.
    inputs, result: arrays.
    exact: of functions that are rounded alike everywhere.
    interpreted: whether the interpreter has the op.
    """

    body: str
    inputs: tuple[np.ndarray, ...]
    result: np.ndarray
    exact: bool = True
    interpreted: bool = True


def i32(values: object) -> np.ndarray:
    return np.array(values, np.int32)


def i64(values: object) -> np.ndarray:
    return np.array(values, np.int64)


def f32(values: object) -> np.ndarray:
    return np.array(values, np.float32)


ROUND = f32([-0.8166, -0.2530, 0.2530, 0.8166, 2.0])
PAIRS = f32([[[1, 2], [3, 4]], [[3, 4], [1, 2]]])
ONES, MEAN = f32([1, 1]), f32([2, 3])
NORMALIZED = f32([[[0, 0], [2, 2]], [[2, 2], [0, 0]]])
IMAGE = i32([[1, 2, 5, 6], [3, 4, 7, 8], [10, 11, 14, 15], [12, 13, 16, 17]])
EXAMPLES = {
    "batch_norm_inference": Example(
        '%r = "stablehlo.batch_norm_inference"(%0, %1, %2, %3, %4) '
        "{epsilon = 0.0 : f32, feature_index = 2 : i64} : (tensor<2x2x2xf32>, tensor<2xf32>, "
        "tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2x2xf32>",
        (PAIRS, ONES, ONES, MEAN, ONES),
        NORMALIZED,
        interpreted=False,
    ),
    "bitcast_convert": Example(
        "%r = stablehlo.bitcast_convert %0 : (tensor<2xf32>) -> tensor<2x4xi8>",
        (f32([0, 1]),),
        np.array([[0, 0, 0, 0], [0, 0, -128, 63]], np.int8),
    ),
    "broadcast_in_dim": Example(
        "%r = stablehlo.broadcast_in_dim %0, dims = [2, 1] : (tensor<1x3xi32>) "
        "-> tensor<2x3x2xi32>",
        (i32([[1, 2, 3]]),),
        i32([[[1, 1], [2, 2], [3, 3]]] * 2),
    ),
    "case": Example(
        '%r:1 = "stablehlo.case"(%0) ({\n stablehlo.return %1 : tensor<2xi64>\n}, {\n '
        "stablehlo.return %2 : tensor<2xi64>\n}) : (tensor<i32>) -> tensor<2xi64>",
        (i32(-1), i64([0, 0]), i64([1, 1])),
        i64([1, 1]),
    ),
    "cbrt": Example(
        "%r = stablehlo.cbrt %0 : tensor<4xf32>", (f32([0, 1, 8, 27]),), f32([0, 1, 2, 3]), False
    ),
    "ceil": Example("%r = stablehlo.ceil %0 : tensor<5xf32>", (ROUND,), f32([-0.0, -0.0, 1, 1, 2])),
    "clamp": Example(
        "%r = stablehlo.clamp %0, %1, %2 : tensor<3xi32>",
        (i32([5, 10, 15]), i32([3, 13, 23]), i32([10, 15, 20])),
        i32([5, 13, 20]),
    ),
    "compare": Example(
        "%r = stablehlo.compare LT, %0, %1, FLOAT : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>",
        (f32([1, 3]), f32([1.1, 2.9])),
        np.array([True, False]),
    ),
    "concatenate": Example(
        "%r = stablehlo.concatenate %0, %1, dim = 0 : (tensor<3x2xi32>, tensor<1x2xi32>) -> "
        "tensor<4x2xi32>",
        (i32([[1, 2], [3, 4], [5, 6]]), i32([[7, 8]])),
        i32([[1, 2], [3, 4], [5, 6], [7, 8]]),
    ),
    "convolution": Example(
        "%r = stablehlo.convolution(%0, %1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {stride = [4, 4], lhs_dilate = [2, 2]} {batch_group_count = 1 : i64, "
        "feature_group_count = 1 : i64} : (tensor<1x4x4x1xi32>, tensor<3x3x1x1xi32>) -> "
        "tensor<1x2x2x1xi32>",
        (IMAGE.reshape(1, 4, 4, 1), np.ones((3, 3, 1, 1), np.int32)),
        i32([10, 26, 46, 62]).reshape(1, 2, 2, 1),
    ),
    "cosine": Example(
        "%r = stablehlo.cosine %0 : tensor<2x2xf32>",
        (f32([[0, 1.57079632], [3.14159265, 4.71238898]]),),
        f32([[1, 0], [-1, 0]]),
        False,
    ),
    "count_leading_zeros": Example(
        "%r = stablehlo.count_leading_zeros %0 : tensor<2x2xi64>",
        (i64([[0, 1], [128, -1]]),),
        i64([[64, 63], [56, 0]]),
    ),
    "divide": Example(
        "%r = stablehlo.divide %0, %1 : tensor<4xf32>",
        (f32([17, -17, 17, -17]), f32([3, 3, -3, -3])),  # 17.1 there, with these results
        f32([5.66666651, -5.66666651, -5.66666651, 5.66666651]),
        False,
    ),
    "dot_general": Example(
        "%r = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1]"
        " : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>",
        (i32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), i32([[[1, 0], [0, 1]]] * 2)),
        i32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
    ),
    "dynamic_slice": Example(
        "%r = stablehlo.dynamic_slice %0, %1, %2, sizes = [2, 2] : "
        "(tensor<4x4xi32>, tensor<i32>, tensor<i32>) -> tensor<2x2xi32>",
        (i32([[0, 0, 1, 1], [0, 0, 1, 1], [0] * 4, [0] * 4]), i32(-1), i32(3)),
        i32([[1, 1], [1, 1]]),
    ),
    "dynamic_update_slice": Example(
        "%r = stablehlo.dynamic_update_slice %0, %1, %2, %3 : "
        "(tensor<4x4xi32>, tensor<2x2xi32>, tensor<i32>, tensor<i32>) -> tensor<4x4xi32>",
        (i32([[1, 1, 0, 0]] * 2 + [[1] * 4] * 2), i32([[1, 1]] * 2), i32(-1), i32(3)),
        np.ones((4, 4), np.int32),
    ),
}


def named(dtype: np.dtype) -> str:
    return {"bool": "i1", "int8": "i8", "int32": "i32", "int64": "i64", "float32": "f32"}[
        dtype.name
    ]


def kind(array: np.ndarray) -> str:
    return f"tensor<{''.join(f'{n}x' for n in array.shape)}{named(array.dtype)}>"


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(name: str, tmp_path: Path) -> None:
    given = EXAMPLES[name]
    arguments = ", ".join(f"%{i}: {kind(a)}" for i, a in enumerate(given.inputs))
    result = kind(given.result)
    text = f"func.func public @main({arguments}) -> {result} {{\n{given.body}\n"
    (tmp_path / "m.mlir").write_text(f"{text}return %r : {result}\n}}".replace("%", "%v"))
    program = trace(load_model(str(tmp_path / "m.mlir")))
    rtol, atol = (0, 0) if given.exact else (4 * np.finfo(np.float32).eps, 1e-7)
    runs: list[Callable[..., list[np.ndarray]]] = [XlaExecutable(program)]
    if given.interpreted:
        runs.append(partial(interpret, program))
    for run in runs:
        (found,) = run(*given.inputs)
        assert found.dtype == given.result.dtype
        np.testing.assert_allclose(found, given.result, rtol=rtol, atol=atol)
        if given.exact and found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(given.result))
