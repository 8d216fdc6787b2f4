"""Symbolic dimensions: every program has fixed sizes, so they get their values here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jq.errors import UserError


def concrete_shape(
    shape: Sequence[Any], name: str, sizes: Mapping[str, int] | None
) -> tuple[int, ...]:
    """`shape` with its symbolic dimensions (`b`, `2*b + 1`) evaluated at `sizes`."""
    return tuple(_size(dim, name, sizes or {}) for dim in shape)


def _size(dim: Any, name: str, sizes: Mapping[str, int]) -> int:
    if not hasattr(dim, "_evaluate"):  # an integer, not a symbolic expression of JAX
        return int(dim)
    missing = sorted(dim._get_vars() - set(sizes))
    if missing:
        raise UserError(
            f"dimension {dim} has no size",
            op=name,
            hint="pass sizes={" + ", ".join(f"{m!r}: 8" for m in missing) + "}",
        )
    return int(dim._evaluate(dict(sizes)))
