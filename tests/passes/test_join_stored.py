"""Stored weights that a model joins stay stored: one weight, the same bytes, the same numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.formats import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.ir.markers import DEQUANTIZE, match
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 256)).astype(np.float32)


def stored(name, shape=(64, 256), block=None, **options) -> QuantizedTensor:
    fmt = get_format(name)
    enc = Encoding(name, shape, block or fmt.default_block(shape, 1) or (1, 32), **options)
    return QuantizedTensor(enc, fmt.encode(RNG.standard_normal(shape).astype(np.float32), enc))


def rows(p, x):  # q, k and v as one product
    return x @ jnp.concatenate([p["a"].T, p["b"].T, p["c"].T], axis=1)


def columns(p, x):  # along the blocks
    return jnp.concatenate([x, x, x], axis=1) @ jnp.concatenate([p["a"], p["b"], p["c"]], 1).T


def stack(p, x):
    layers = jnp.stack([p["a"], p["b"], p["c"]]).astype(jnp.bfloat16)
    return jax.lax.scan(lambda h, w: (h, h @ w.T.astype(h.dtype)), x, layers)[1]


def same(name, **options):
    return {key: stored(name, **options) for key in "abc"}


FORMATS = {
    "int8": same("int8", block=(1, 0)),
    "int4": same("int4", scheme="asymmetric", scale_type="float16"),
    "mxfp4": same("mxfp4"),
    "q4_k": same("q4_k"),
    "q6_k": same("q6_k"),
}


def joined(fn, params):
    """The float program after its passes, and the stored weights that it reads."""
    program = jq.rewrite(jq.Model(fn, params, (X,)), pipeline="float")["float"]
    return program, [m for op in program.walk() if (m := match(op, DEQUANTIZE))]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("fn", [rows, columns, stack])
def test_one_weight_of_the_same_bytes(name, fn):
    if (name, fn) == ("int8", columns):
        pytest.skip("a scale for each row of 256 columns is none for 768")
    params = FORMATS[name]
    program, (marker,) = joined(fn, params)
    assert [marker.tensor] == ["a+b+c"] == list(program.encodings)
    parts = {k: program.weights[f"a+b+c:{k}"] for k in params["a"].parts}
    assert sum(p.nbytes for p in parts.values()) == sum(t.nbytes for t in params.values())
    whole = QuantizedTensor(marker.encoding, parts).decode()
    axis = {rows: 0, columns: 1, stack: None}[fn]
    each = [t.decode() for t in params.values()]
    want = np.stack(each) if axis is None else np.concatenate(each, axis)
    assert np.array_equal(whole, want)


@pytest.mark.parametrize(
    ("fn", "params"),
    [
        (rows, {"a": stored("q4_k"), "b": stored("q6_k"), "c": stored("q4_k")}),
        (
            rows,
            {"a": stored("int4"), "b": stored("int4", scale_type="float16"), "c": stored("int4")},
        ),
        (rows, same("int8", block=(0, 0))),  # a scale for each tensor
        (rows, same("nvfp4")),  # a number for the whole tensor besides
        (columns, same("int8", block=(1, 0))),
        (columns, {k: stored("int4", (64, 240 + 16 * (k == "c"))) for k in "abc"}),  # short blocks
    ],
    ids=["formats", "scale types", "tensor scales", "nvfp4", "row scales", "short"],
)
def test_what_is_not_joined(fn, params):
    if fn is columns and params["a"].shape[1] != 256:
        fn = short
    _, markers = joined(fn, params)
    assert sorted(m.tensor for m in markers) == ["a", "b", "c"]


def short(p, x):
    return jnp.concatenate([x[:, :240], x[:, :240], x], 1) @ jnp.concatenate(list(p.values()), 1).T


SLICES = {  # of a weight [64, 256], in either library
    "rows": lambda w, np: np.concatenate([w, w[:2]]),
    "strided rows": lambda w, np: np.concatenate([w[1:60:7], w]),
    "slices of slices": lambda w, np: np.concatenate([w[8:][:32:2], w.T[:, 5:9].T]),
    "stack": lambda w, np: np.stack([w[:32], w[32:]])[1],
    "transposed": lambda w, np: np.concatenate([w.T[:, 3:20], w.T], 1).T,
}


@pytest.mark.parametrize("name", ["q4_k", "int4", "int8"])
@pytest.mark.parametrize("cut", SLICES)
def test_slices_of_a_weight_keep_its_codes(cut, name):
    w = FORMATS[name]["a"]
    model = jq.Model(lambda p, x: x @ SLICES[cut](p["w"], jnp).T, {"w": w}, (X,))
    (op,) = jq.plan(model, pipeline="int8-dynamic").ops
    assert op.decision == "integer" and f"{name} " in op.to_dict()["weights"]
    program, (marker,) = joined(model.fn, {"w": w})
    parts = {k: program.weights[program.weight_name(v)] for k, v in marker.parts.items()}
    found = QuantizedTensor(marker.encoding, parts).decode()
    want = SLICES[cut](w.decode(), np)
    assert np.array_equal(found, want) or np.array_equal(found[1], want)


@pytest.mark.parametrize(
    "fn",
    [
        lambda p, x: jnp.concatenate([x, x[:, :9]], 1) @ jnp.concatenate([p, p[:, :9]], 1).T,
        lambda p, x: x @ jnp.concatenate([p, p, p]).T,  # three times what is stored
        lambda p, x: x @ jnp.sin(p).T,
        lambda p, x: x @ p.mean(0),
        lambda p, x: x @ p.at[3].set(0).T,
        lambda p, x: x @ jnp.sort(p, 0).T,
    ],
    ids=["within a block", "too much", "computed", "reduced", "written into", "sorted"],
)
def test_what_weights_are_computed_into_is_told(fn):
    """Not as a product of two activations."""
    model = jq.Model(fn, FORMATS["q4_k"]["a"], (X,))
    (op,) = jq.plan(model, pipeline="int8-dynamic").ops
    assert op.decision == "float"
    assert op.reason.startswith("an operand is computed from the weights params0 (")
    both = jq.Model(lambda _, x: x @ x.T, {}, (X,))
    assert "two activations" in jq.plan(both, pipeline="int8-dynamic").ops[0].reason


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["q4_k", "int4", "int8"])
def test_a_vector_that_multiplies_a_weight_leaves_its_codes(name, axis):
    """Along what is summed, too, where it goes to the other operand."""
    w, v = FORMATS[name]["a"], RNG.standard_normal((64, 256)).astype(np.float32)
    factor = v.mean(axis, keepdims=True)
    model = jq.Model(lambda p, x: x @ (p["w"] * factor).T, {"w": w}, (X,))
    (op,) = jq.plan(model, pipeline="int8-dynamic").ops
    assert op.decision == "integer" and f"{name} " in op.to_dict()["weights"]
    program = jq.rewrite(model, pipeline="float")["float"]
    want = X @ (w.decode() * factor).T
    np.testing.assert_allclose(evaluated(program, X)[0], want, atol=1e-3)


@pytest.mark.parametrize("name", ["int4", "q4_k"])
def test_results(name):
    params = FORMATS[name]
    floats = {k: jnp.asarray(t.decode()) for k, t in params.items()}

    def fn(p, x):  # one of them is read by itself, too
        return rows(p, x), columns(p, x), x @ p["a"].T

    compiled = jq.compile(jq.Model(fn, params, (X,)), "float")
    for got, want in zip(compiled(X), fn(floats, X), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-3)
    assert compiled.audit().warnings == ()
