"""The node cases of the onnx package through `jq.frontends.onnx`: each passes, or is excluded with
a reason.

Oracle: the expected outputs that the package itself has. A case is evaluated by JAX, operator by
operator; an input that a shape depends on is fixed to its value, as `load_onnx(values=...)` does.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from jq.base.errors import UserError
from jq.frontends.onnx import operators as _  # noqa: F401  (defines them)
from jq.frontends.onnx.read import from_proto
from jq.frontends.onnx.tensors import Files
from jq.frontends.onnx.values import plain
from jq.frontends.onnx.walk import Walk, require_operators

# Of the name of a case, the first that matches -> why it is not supported. Checked both ways: a
# case that passes must not be listed.
EXCLUDED = {
    r"^test_(adagrad|adam|momentum|nesterov_momentum|gradient)": "training",
    r"^test_training_dropout": "training",
    r"^test_ai_onnx_ml": "the domain ai.onnx.ml",
    r"string|strnorm|regex|^test_tfidf": "strings",
    r"^test_image_decoder": "reads compressed images",
    r"^test_bernoulli": "random numbers",
    r"^test_nonmaxsuppression": "the shape of the result depends on the data",
    r"^test_flexattention_(causal_mask|\w+_mod|relative\w+l|soft_cap)$": "functions in attention",
    r"^test_attention_(3d|4d)_(causal_|padded_kv_)+bf16": "other roundings to bfloat16",
}


@cache
def cases() -> dict[str, Any]:
    """Name -> case, in a fixed order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own arithmetic
        return {c.name: c for c in sorted(load_model_tests(kind="node"), key=lambda c: c.name)}


def excluded(name: str) -> str | None:
    return next((why for pattern, why in EXCLUDED.items() if re.search(pattern, name)), None)


def run(case: Any) -> None:
    """Raises `UserError` or `AssertionError` when the case does not pass."""
    file = from_proto(case.model, Path("case.onnx"))
    require_operators(file)
    for inputs, outputs in case.data_sets:
        given, expected = ([array_of(v) for v in values] for values in (inputs, outputs))
        bounds = {"rtol": case.rtol, "atol": max(case.atol, _rounding(case.model, given))}
        with jax.enable_x64(True):
            for actual, wanted in zip(_evaluated(file, given), expected, strict=True):
                _compare(actual, wanted, bounds)


def _rounding(model: onnx.ModelProto, given: list[Any]) -> float:
    """Largest error of a Fourier transform in float32; 0 where there is none, or it is in float64.

    A sum of n products with rounded factors is off by at most (n + 4) u times the sum of
    magnitudes, and a fast transform by less. The package's own bound is below that.
    """
    node = model.graph.node[0]
    if node.op_type != "DFT" or given[0].dtype != np.float32:
        return 0.0
    options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    inputs = dict(zip(filter(None, node.input), given, strict=True))
    x, default = given[0].astype(np.float64), 1 if model.opset_import[0].version < 20 else -2
    axis = int(inputs.get("".join(node.input[2:]), options.get("axis", default))) % x.ndim
    n, total = x.shape[axis], np.abs(x).sum((axis, x.ndim - 1)).max()
    if options.get("inverse"):  # of one half, which stands for two
        n, total = (2 * (n - 1), 2 * total) if options.get("onesided") else (n, total)
        total /= n
    return float((n + 4) * 2.0**-24 * total)


def _evaluated(file: Any, given: list[Any]) -> list[Any]:
    """First with no input known, then with those that may be shapes, scales or regions, then all:
    what is refused without a value is computed with it."""
    for fixed in (_never, _may_be_shape):
        try:
            values = [v if fixed(v) else _traced(v) for v in given]
            return Walk(file).run(file.graph, values)
        except UserError:
            pass
    return Walk(file).run(file.graph, [_traced(v) if isinstance(v, list) else v for v in given])


def _never(value: Any) -> bool:
    return False


def _may_be_shape(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind in "iub" or value.ndim == 1)


def _traced(value: Any) -> Any:
    if isinstance(value, list):
        return [_traced(v) for v in value]
    if value is not None and value.dtype.hasobject:
        raise UserError("strings")
    return value if value is None else jnp.asarray(value)


def array_of(value: Any) -> Any:
    if isinstance(value, list):
        return [array_of(v) for v in value]
    if isinstance(value, onnx.TensorProto):
        return Files(Path("case.onnx")).array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _compare(actual: Any, wanted: Any, bounds: dict[str, float]) -> None:
    if isinstance(wanted, list):
        assert isinstance(actual, list) and len(actual) == len(wanted)
        for pair in zip(actual, wanted, strict=True):
            _compare(*pair, bounds)
        return
    if wanted is None:
        assert actual is None
        return
    actual, wanted = np.asarray(plain(actual)), np.asarray(wanted)
    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, wanted)
    else:
        pair = (v if v.dtype.kind == "c" else v.astype(np.float64) for v in (actual, wanted))
        np.testing.assert_allclose(*pair, **bounds)
