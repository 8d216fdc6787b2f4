"""Fourier transforms and what belongs to them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, Call, Known, operator
from jq.frontends.onnx.tensors import numpy_type


@operator("DFT")
def dft(
    x: Array,
    dft_length: Known = None,
    axis: Known = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
    node: Call,
) -> Array:
    """The last axis holds one real number, or real and imaginary part."""
    x = jnp.asarray(x)
    default = 1 if node.version < 20 else -2
    at = (default if axis is None else int(np.asarray(axis).reshape(()))) % x.ndim
    n = x.shape[at] if dft_length is None else int(dft_length.reshape(()))
    one = x.shape[-1] == 1
    z = x[..., 0] if one else x[..., 0] + 1j * x[..., 1]
    if onesided and inverse:
        size = n if dft_length is not None else 2 * (x.shape[at] - 1)
        return jnp.fft.irfft(z, size, axis=at)[..., None].astype(x.dtype)
    if inverse:
        y = jnp.fft.ifft(z, n, axis=at)
    elif onesided:
        y = jnp.fft.rfft(z.real, n, axis=at)
    else:
        y = jnp.fft.fft(z, n, axis=at)
    return jnp.stack([y.real, y.imag], -1).astype(x.dtype)


@operator("STFT")
def stft(
    signal: Array,
    frame_step: Known,
    window: Array = None,
    frame_length: Known = None,
    *,
    onesided: int = 1,
) -> Array:
    x = jnp.asarray(signal)
    step = int(frame_step.reshape(()))
    size = int(frame_length.reshape(())) if frame_length is not None else window.shape[0]
    z = x if x.ndim == 2 else x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    starts = np.arange(0, z.shape[1] - size + 1, step)
    frames = z[:, starts[:, None] + np.arange(size)]
    if window is not None:
        frames = frames * jnp.asarray(window)
    y = jnp.fft.rfft(frames, axis=-1) if onesided else jnp.fft.fft(frames, axis=-1)
    return jnp.stack([y.real, y.imag], -1).astype(x.dtype)


@operator("MelWeightMatrix")
def mel_weight_matrix(
    bins: Known,
    dft_length: Known,
    sample_rate: Known,
    lower: Known,
    upper: Known,
    *,
    output_datatype: int = 1,
) -> Array:
    """Triangles that are equally wide on the mel scale, [dft_length // 2 + 1, bins]."""
    count, length, rate = (int(v.reshape(())) for v in (bins, dft_length, sample_rate))
    low, high = (2595 * np.log10(1 + float(v.reshape(())) / 700) for v in (lower, upper))
    edges = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    places = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(np.int64)
    matrix = np.zeros((length // 2 + 1, count))
    for i, (a, b, c) in enumerate(zip(places[:-2], places[1:-1], places[2:], strict=True)):
        if b == a:
            matrix[b, i] = 1
        else:
            matrix[a : b + 1, i] = (np.arange(a, b + 1) - a) / (b - a)
        if c > b:
            matrix[b:c, i] = (c - np.arange(b, c)) / (c - b)
    return matrix.astype(numpy_type(output_datatype))


def _window(name: str, terms: tuple[float, ...]) -> None:
    @operator(name)
    def build(size: Known, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        n = int(size.reshape(()))
        steps = n if periodic else n - 1
        angle = 2 * np.pi * np.arange(n) / max(steps, 1)
        shape: Any = sum(t * np.cos(i * angle) for i, t in enumerate(terms))
        return shape.astype(numpy_type(output_datatype))


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))
