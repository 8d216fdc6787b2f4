"""Fourier transforms and what belongs to them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, Given, operator
from jq.frontends.onnx.tensors import numpy_type


def _complex(x: Any) -> Any:
    """The last axis holds one real number, or real and imaginary part."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


@operator("DFT", takes="x[... 1|2] dft_length?! axis?!; inverse onesided")
def dft(o: Given) -> Array:
    x, given = jnp.asarray(o.x), o.dft_length
    default = 1 if o.node.version < 20 else -2
    at = (default if o.axis is None else int(np.asarray(o.axis).reshape(()))) % x.ndim
    n, z = x.shape[at] if given is None else int(given.reshape(())), _complex(x)
    if o.onesided and o.inverse:
        size = n if given is not None else 2 * (x.shape[at] - 1)
        return jnp.fft.irfft(z, size, axis=at)[..., None].astype(x.dtype)
    if o.inverse:
        y = jnp.fft.ifft(z, n, axis=at)
    else:
        y = jnp.fft.rfft(z.real, n, axis=at) if o.onesided else jnp.fft.fft(z, n, axis=at)
    return jnp.stack([y.real, y.imag], -1).astype(x.dtype)


@operator("STFT", takes="signal[B L / B L 1|2] frame_step! window[W]? frame_length?!; onesided")
def stft(o: Given) -> Array:
    x, step = jnp.asarray(o.signal), int(o.frame_step.reshape(()))
    size = o.window.shape[0] if o.frame_length is None else int(o.frame_length.reshape(()))
    z = x if x.ndim == 2 else _complex(x)
    if size > z.shape[1]:
        raise o.node.refuse(f"frames of {size} of a signal of {z.shape[1]}")
    starts = np.arange(0, z.shape[1] - size + 1, step)
    frames = z[:, starts[:, None] + np.arange(size)]
    if o.window is not None:
        frames = frames * jnp.asarray(o.window)
    y = jnp.fft.rfft(frames, axis=-1) if o.onesided else jnp.fft.fft(frames, axis=-1)
    return jnp.stack([y.real, y.imag], -1).astype(x.dtype)


@operator("MelWeightMatrix", takes="bins! length! rate! lower! upper!; output_datatype")
def mel_weight_matrix(o: Given) -> Array:
    """Triangles that are equally wide on the mel scale, [length // 2 + 1, bins]."""
    count, length, rate = (int(v.reshape(())) for v in (o.bins, o.length, o.rate))
    low, high = (2595 * np.log10(1 + float(v.reshape(())) / 700) for v in (o.lower, o.upper))
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
    return matrix.astype(numpy_type(o.output_datatype))
