"""Code outside of StableHLO that a model calls, named as the user wrote it.

custom_call @lapack_sgeqrf_ffi, in the scope `qr/geqrf`  ->  jnp.linalg.qr
"""

from __future__ import annotations

import re

import jax.numpy as jnp
import jax.scipy.linalg
from jax.lax import linalg

from jq.errors import UserError
from jq.tracing.scope import clean_scope

_LAPACK = re.compile(r"lapack_([a-z0-9]+?)(?:_ffi)?$")
_JITTED = re.compile(r"jit\((\w+)\)")
_CALLBACK = re.compile(r"callback")
# What a function of `jax.lax.linalg` is made of, where it is not called by its own name.
_PRIMITIVES = {"geqrf": "qr", "geqp3": "qr"}
_MODULES = (
    ("jnp.linalg", jnp.linalg),
    ("jax.scipy.linalg", jax.scipy.linalg),
    ("jax.lax.linalg", linalg),
)


def refusal(target: str, path: str) -> UserError:
    """The error for a call of `target` under `path`, as JAX writes it (`jit(f)/jit(qr)/geqrf`)."""
    scope = clean_scope(path)
    if routine := _LAPACK.match(target):
        name = written(path) or "linear algebra"
        return UserError(
            f"{name} is done by LAPACK ({routine[1]}), which only JAX on a CPU calls: no target"
            " has it",
            op=scope or None,
            hint="compute it outside of the model and give its result as an input or a weight, or"
            " keep it in a float function of its own, that JAX runs",
        )
    if _CALLBACK.search(target):
        return UserError(
            "the model calls back into Python, which no compiled program can",
            op=scope or None,
            hint="take the callback (pure_callback, io_callback) out of the model",
        )
    return UserError(
        f"the model calls {target}, code outside of StableHLO that no target has",
        op=scope or None,
        hint="rewrite that part of the model with ordinary array operations",
    )


def written(path: str) -> str | None:
    """The public function of linear algebra in a path, the outermost: `jnp.linalg.qr`."""
    for name in _JITTED.findall(path):
        for prefix, module in _MODULES:
            if hasattr(module, name.lstrip("_")):
                return f"{prefix}.{name.lstrip('_')}"
    primitive = path.rpartition("/")[2]
    primitive = _PRIMITIVES.get(primitive, primitive)
    return f"jax.lax.linalg.{primitive}" if hasattr(linalg, primitive) else None
