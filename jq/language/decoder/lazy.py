"""JAX, imported when something of it is used: who generates only asks layers for their shapes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
else:
    jax, jnp = _Lazy("jax"), _Lazy("jax.numpy")

__all__ = ["jax", "jnp"]
