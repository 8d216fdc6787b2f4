"""Inputs are taken as `jax.jit` takes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.frontends.tracing.inputs import check_array
from jq.ir import TensorSpec

WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


@pytest.mark.parametrize(("wide", "narrow"), WIDE.items())
def test_arrays_of_64_bits_are_narrowed_as_by_jax(wide, narrow):
    whole = narrow in ("int32", "uint32")
    most = np.iinfo(narrow).max if whole else 2.0**40 + 3  # what a float cannot hold is rounded
    given = np.array([0.1, most, 7]).astype(wide)
    got = check_array(TensorSpec("x", (3,), narrow), given)
    want = np.asarray(jax.jit(lambda x: x)(given))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("wide", "value"), [("int64", -(2**31) - 1), ("uint64", 2**32)])
def test_integers_that_do_not_fit_are_refused(wide, value):
    """JAX takes them modulo 2**32 without a word: another number is no narrower one."""
    narrow = WIDE[wide]
    with pytest.raises(UserError, match=f"'x' has values that do not fit {narrow}"):
        check_array(TensorSpec("x", (2,), narrow), np.array([1, value], wide))


def test_arrays_of_64_bits_keep_their_type_where_the_model_has_it():
    assert check_array(TensorSpec("x", (2,), "int64"), np.arange(2)).dtype == np.int64


@pytest.mark.parametrize(("dtype", "other"), [("int32", "float64"), ("float32", "int64")])
def test_other_types_are_refused(dtype, other):
    with pytest.raises(UserError, match=f"has type {other}, the model takes {dtype}"):
        check_array(TensorSpec("x", (2,), dtype), np.zeros(2, other))


def test_a_model_takes_its_own_example_and_typed_keys():
    def fn(p, x, i, key):
        return x @ p["w"] + p["w"][i] + jax.random.normal(key, (4,)), key

    w = jnp.eye(4)
    example = np.arange(4.0), np.arange(1), jax.random.key(3)
    model = jq.Model(fn, {"w": w}, example, calibration=[example])
    compiled = jq.compile(model, "int8-static", rules=["*: float"], cache=False)
    want, key = jax.jit(fn)({"w": w}, *example)
    got, data = compiled(*example)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(data, jax.random.key_data(key))
    batch = jax.random.split(jax.random.key(0), 1)
    with pytest.raises(UserError, match="shape"):
        compiled(example[0], example[1], batch)


def test_a_refusal_is_a_value_error() -> None:
    """Python users catch it where an argument does not fit."""
    with pytest.raises(ValueError, match="unknown granularity"):
        jq.fake_quant(np.ones((2, 2), np.float32), granularity="per-row")


class Tensor:
    """Like a tensor of torch: an element type that NumPy does not know, and its refusal."""

    def __init__(self, data, grad=False):
        kind = type("dtype", (), {"__module__": "torch", "__repr__": lambda _: "torch.float32"})
        self.data, self.grad, self.shape, self.dtype = data, grad, data.shape, kind()

    def __array__(self, dtype=None, copy=None):
        if self.grad:
            raise RuntimeError("Use tensor.detach().numpy() instead.")
        return self.data


def test_tensors_of_torch_are_arrays():
    w, x = np.eye(4, dtype=np.float32), np.arange(4, dtype=np.float32)
    params, example = {"w": Tensor(w)}, (Tensor(x, grad=True),)
    compiled = jq.compile(jq.Model(lambda p, x: x @ p["w"], params, example), "float", cache=False)
    np.testing.assert_array_equal(compiled(Tensor(x)), x)
    with pytest.raises(UserError, match=r"'arg0' is no array of float32: .*detach"):
        compiled(*example)


def test_the_order_of_bytes_may_be_another():
    x = np.arange(4, dtype=">f4")
    got = check_array(TensorSpec("x", (4,), "float32"), x)
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, x)
