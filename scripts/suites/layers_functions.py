"""Functions of `jax.nn`, `jax.image`, `jax.numpy.fft` and `jax.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.numpy import fft

from suites.layers import Table
from suites.program import Case, numbers


def _case(name: str, fn: Callable[..., Any], *inputs: Any, sums: bool = True) -> Case:
    def call(_: Any, *args: Any) -> Any:
        return fn(*args)

    return Case("functions", name, call, inputs, sums=sums, layer=True)


def _of_complex(name: str) -> Callable[..., Any]:
    return lambda real, imag: getattr(fft, name)(real + 1j * imag)


_IDS = np.array([0, 2, 2, 1, 0, 3, 1], np.int32)
_SPECIAL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "dot_product_attention": (
        jax.nn.dot_product_attention,
        (numbers(2, 5, 3, 7), numbers(2, 4, 3, 7), numbers(2, 4, 3, 7)),
    ),
    "glu": (jax.nn.glu, (numbers(3, 14),)),
    "log1mexp": (jax.nn.log1mexp, (np.abs(numbers(3, 7)) + 0.1,)),
    "one_hot": (lambda x: jax.nn.one_hot(x, 5), (_IDS,)),
    "scaled_matmul": (
        jax.nn.scaled_matmul,
        (numbers(1, 3, 64), numbers(1, 5, 64), numbers(1, 3, 2), numbers(1, 5, 2)),
    ),
    **{
        f"resize {method}": (
            lambda x, m=method: jax.image.resize(x, (2, 13, 4, 3), m),
            (numbers(2, 9, 7, 3),),
        )
        for method in ("nearest", "linear", "cubic", "lanczos3", "lanczos5")
    },
    "scale_and_translate": (
        lambda x, s, t: jax.image.scale_and_translate(x, (11, 5), (0, 1), s, t, "linear"),
        (numbers(9, 7), np.array([1.3, 0.7], np.float32), np.array([0.5, -1.0], np.float32)),
    ),
    **{
        name: (lambda x, n=name: getattr(jax.ops, n)(x, _IDS, 5), (numbers(7, 3),))
        for name in ("segment_max", "segment_min", "segment_prod", "segment_sum")
    },
    **{name: (getattr(fft, name), (numbers(2, 9),)) for name in ("rfft", "ihfft")},
    **{name: (getattr(fft, name), (numbers(2, 9, 12),)) for name in ("rfft2", "rfftn")},
    **{
        name: (_of_complex(name), (numbers(2, 9), numbers(2, 9)))
        for name in ("fft", "ifft", "irfft", "hfft")
    },
    **{
        name: (_of_complex(name), (numbers(2, 5, 12), numbers(2, 5, 12)))
        for name in ("fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn")
    },
    **{name: (getattr(fft, name), (numbers(3, 7),)) for name in ("fftshift", "ifftshift")},
    **{
        name: (lambda x, n=name: getattr(fft, n)(9) + x, (np.float32(1),))
        for name in ("fftfreq", "rfftfreq")
    },
}
_LEFT_OUT = {
    "get_scaled_dot_general_config": "makes a setting",
    "scaled_dot_general": "quantizes by a setting of XLA's, in blocks",
    "ResizeMethod": "a setting",
}


def _functions() -> dict[str, Callable[[], Case]]:
    made: dict[str, Callable[[], Case]] = {
        n: lambda n=n, f=f, x=x: _case(n, f, *x) for n, (f, x) in _SPECIAL.items()
    }
    x = jnp.asarray(numbers(3, 7) * 3)
    for name in _public(jax.nn):
        if name not in {*_SPECIAL, *_LEFT_OUT}:
            made[name] = lambda n=name: _case(n, getattr(jax.nn, n), np.asarray(x))
    return made


def _public(module: Any) -> list[str]:
    return [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))]


TABLE = Table(
    _functions(), _LEFT_OUT, [n for m in (jax.nn, jax.image, fft, jax.ops) for n in _public(m)]
)
