"""Conversions to exponents of 8 bits (`float8_e8m0fnu`), which scales of blocks have; and between
float16 and other floats of 8 bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from jq.base.errors import CompilerError, UserError
from tests.traps.helpers import mended, raw, trap

EXPONENTS = ml_dtypes.float8_e8m0fnu
RNG = np.random.default_rng(0)
TEXT = """(%x: tensor<SIZExTYPE>) -> tensor<SIZExf32> {
  %e = stablehlo.convert %x : (tensor<SIZExTYPE>) -> tensor<SIZExf8E8M0FNU>
  %r = stablehlo.convert %e : (tensor<SIZExf8E8M0FNU>) -> tensor<SIZExf32>
  return %r : tensor<SIZExf32> }"""
READ = """(%x: tensor<256xf8E8M0FNU>) -> tensor<256xf32> {
  %r = stablehlo.convert %x : (tensor<256xf8E8M0FNU>) -> tensor<256xf32>
  return %r : tensor<256xf32> }"""
CODES = np.arange(256, dtype=np.uint8).view(EXPONENTS)
# Around every place where the result changes, at both ends and in the middle, and bits at random.
PLACES = [0, 0x400000, 0x600000, 0x800000, 0xC00000, 0x3F800000, 0x3FC00000, 0x40400000]
PLACES += [0x7F000000, 0x7F400000, 0x7F800000, 0x7FC00000, 0x80000000, 0xBF800000, 0xFF800000]
NEAR = (np.array(PLACES, np.int64)[:, None] + [-1, 0, 1]) % 2**32
BITS = np.concatenate([NEAR.ravel(), RNG.integers(0, 2**32, 400)]).astype(np.uint32)


def text(x: np.ndarray, kind: str = "f32") -> str:
    return TEXT.replace("SIZE", str(x.size)).replace("TYPE", kind)


def rounded(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return x.astype(np.float32).astype(EXPONENTS).astype(np.float32)


@trap
def test_floats_to_exponents_without_the_pass() -> None:
    x = np.array([1.5, 3, 0.75, -1, 0], np.float32)
    np.testing.assert_array_equal(raw(text(x), x)[0], rounded(x))


@trap
def test_the_smallest_exponent_without_the_pass() -> None:
    np.testing.assert_array_equal(raw(READ, CODES)[0], CODES.astype(np.float32))


def test_every_exponent_is_read() -> None:
    (found,) = mended("round-to-exponents", READ, CODES)
    np.testing.assert_array_equal(found, CODES.astype(np.float32))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "i32"])
def test_every_number_becomes_the_nearest_exponent(kind: str) -> None:
    dtype = {"f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "i32": "i4"}[kind]
    x = BITS.view(dtype).copy()
    (found,) = mended("round-to-exponents", text(x, kind), x)
    np.testing.assert_array_equal(found, rounded(x))


HALVES = """(%x: tensor<400xf16>) -> (tensor<400xf16>) {
  %e = stablehlo.convert %x : (tensor<400xf16>) -> tensor<400xTYPE>
  %r = stablehlo.convert %e : (tensor<400xTYPE>) -> tensor<400xf16>
  return %r : tensor<400xf16> }"""
FLOATS = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}


@trap(raises=CompilerError)
@pytest.mark.parametrize("kind", FLOATS)
def test_float16_and_floats_of_8_bits_without_the_pass(kind: str) -> None:
    raw(HALVES.replace("TYPE", kind), np.ones(400, np.float16))


@pytest.mark.parametrize("kind", FLOATS)
def test_float16_becomes_the_nearest_float_of_8_bits(kind: str) -> None:
    x = BITS[-400:].astype(np.uint16).view(np.float16)
    (found,) = mended("convert-by-float32", HALVES.replace("TYPE", kind), x)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(found, x.astype(FLOATS[kind]).astype(np.float16))


def test_scales_of_blocks_that_a_model_computes() -> None:
    def fn(_, x):
        scale = (jnp.abs(x).max(-1, keepdims=True) / 6).astype(jnp.float8_e8m0fnu)
        return scale, jnp.round(x / scale.astype(x.dtype))

    x = RNG.standard_normal((5, 32)).astype(np.float32)
    compiled = jq.compile(jq.Model(fn, {}, (x,)), pipeline="float")
    for ours, theirs in zip(compiled(x), jax.jit(fn)({}, x), strict=True):
        np.testing.assert_array_equal(np.asarray(ours, np.float32), np.asarray(theirs, np.float32))


def test_floats_of_4_bits_are_refused_where_a_model_computes_with_them() -> None:
    def fn(p, x):
        return p.astype(x.dtype) + x.astype(jnp.float4_e2m1fn).astype(x.dtype)

    x, p = np.ones((3, 5), np.float32), np.ones((3, 5), ml_dtypes.float4_e2m1fn)
    for params, step in ((p, fn), ({}, lambda _, x: x.astype(jnp.float4_e2m1fn))):
        with pytest.raises(UserError, match="IREE does not compute with float4_e2m1fn .*float8"):
            jq.compile(jq.Model(step, params, (x,)), pipeline="float")
