"""Fourier transforms that IREE cannot compile, and what takes their place."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.errors import UserError
from tests.traps.helpers import mended, raw, trap

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 15)).astype(np.float32)
Z = (X[..., :12] + 1j * X[..., 3:]).astype(np.complex64)
TWELVE = """(%z: tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x12xcomplex<f32>> {
  %y = stablehlo.fft %z, type = FFT, length = [12]
    : (tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x12xcomplex<f32>>
  return %y : tensor<2x6x12xcomplex<f32>> }"""
# The last axis of [2, 8, 16] is a transform that stays one.
MANY = """(%x: tensor<2x6x15xf32>, %z: tensor<2x6x12xcomplex<f32>>, %o: tensor<2x6x1xf32>)
    -> (tensor<2x6x12xcomplex<f32>>, tensor<2x6x8xcomplex<f32>>, tensor<2x6x22xf32>,
        tensor<2x6x12xcomplex<f32>>, tensor<2x6x8xcomplex<f32>>, tensor<2x6x22xf32>,
        tensor<2x6x1xcomplex<f32>>, tensor<2x6x12xcomplex<f32>>) {
  %0 = stablehlo.fft %z, type = IFFT, length = [12]
    : (tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x12xcomplex<f32>>
  %1 = stablehlo.fft %x, type = RFFT, length = [15]
    : (tensor<2x6x15xf32>) -> tensor<2x6x8xcomplex<f32>>
  %2 = stablehlo.fft %z, type = IRFFT, length = [22]
    : (tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x22xf32>
  %3 = stablehlo.fft %z, type = FFT, length = [2, 6, 12]
    : (tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x12xcomplex<f32>>
  %4 = stablehlo.fft %x, type = RFFT, length = [6, 15]
    : (tensor<2x6x15xf32>) -> tensor<2x6x8xcomplex<f32>>
  %5 = stablehlo.fft %z, type = IRFFT, length = [6, 22]
    : (tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x22xf32>
  %6 = stablehlo.fft %o, type = RFFT, length = [2, 6, 1]
    : (tensor<2x6x1xf32>) -> tensor<2x6x1xcomplex<f32>>
  %7 = stablehlo.fft %z, type = IFFT, length = [6, 12]
    : (tensor<2x6x12xcomplex<f32>>) -> tensor<2x6x12xcomplex<f32>>
  return %0, %1, %2, %3, %4, %5, %6, %7
    : tensor<2x6x12xcomplex<f32>>, tensor<2x6x8xcomplex<f32>>, tensor<2x6x22xf32>,
      tensor<2x6x12xcomplex<f32>>, tensor<2x6x8xcomplex<f32>>, tensor<2x6x22xf32>,
      tensor<2x6x1xcomplex<f32>>, tensor<2x6x12xcomplex<f32>> }"""


def near(got, want):
    """Sums of at most 144 products of single precision."""
    np.testing.assert_allclose(got, want, rtol=0, atol=144 * 2.0**-24 * np.abs(want).max())


@trap
def test_lengths_that_are_no_power_of_two():
    near(raw(TWELVE, Z)[0], np.fft.fft(Z))


def test_transforms_as_products():
    one = X[..., :1]
    want = [
        np.fft.ifft(Z),
        np.fft.rfft(X),
        np.fft.irfft(Z, 22),
        np.fft.fftn(Z),
        np.fft.rfft2(X),
        np.fft.irfft2(Z, (6, 22)),
        np.fft.rfftn(one),
        np.fft.ifft2(Z),
    ]
    for got, wanted in zip(mended("plain-transforms", MANY, X, Z, one), want, strict=True):
        near(got, wanted)


def test_a_transform_that_is_too_long():
    text = TWELVE.replace("12", "1100")
    with pytest.raises(UserError, match="a Fourier transform of 1100 elements.*power of two"):
        mended("plain-transforms", text, np.zeros((2, 6, 1100), np.complex64))
