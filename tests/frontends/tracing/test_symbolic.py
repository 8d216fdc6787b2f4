"""Exports whose symbolic sizes are divided, or are the axis of a window, as JAX runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import jq
from jq.base.errors import UserError
from jq.ir.oracle.interpreter import interpret

WAVE = ("NWC", "WIO", "NWC")


def strided(x: Any) -> Any:
    filters = jnp.arange(12.0).reshape(3, 2, 2)
    return lax.conv_general_dilated(x, filters, (2,), "SAME", dimension_numbers=WAVE)


CASES: dict[str, Callable[[Any], Any]] = {
    "half": lambda x: x[:, : x.shape[1] // 2],
    "two quotients": lambda x: x[:, : x.shape[1] // 2].sum() + x[:, x.shape[1] // 3 :],
    "strided convolution": strided,
    "sums of windows": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 1), (1, 2, 1), "SAME"),
    "cumulative": lambda x: jnp.cumsum(x, 1) + jnp.cumprod(x, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_symbolic_length(name: str, tmp_path: Path) -> None:
    (t,) = export.symbolic_shape("t")
    symbolic = jax.ShapeDtypeStruct((1, t, 2), jnp.float32)
    path = tmp_path / "model.jaxexport"
    path.write_bytes(export.export(jax.jit(CASES[name]))(symbolic).serialize())
    for length in (8, 9):
        x = np.random.default_rng(length).standard_normal((1, length, 2)).astype(np.float32)
        program = jq.trace(path, sizes={"t": length}).program
        (got,) = interpret(program, x)
        np.testing.assert_allclose(got, CASES[name](x), rtol=1e-6, atol=1e-6)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[str, ...], dict[str, int], str]] = {
    "4 divides it": (
        lambda x: x.reshape(x.shape[0] // 4, 4),
        ("mod(t, 4) == 0",),
        {"t": 9},
        "t = 9",
    ),
    "a bound": (lambda x: x * 2, ("t <= 8",), {"t": 9}, "t = 9: it is exported for t <= 8"),
    "none": (lambda x: x[: x.shape[0] // 2], (), {"t": 0}, "t = 0: t >= 1 is what"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_length_that_the_export_excludes(name: str, tmp_path: Path) -> None:
    """The size is named, and what the export asks of it, and nothing of JAX's own passes."""
    function, asked, sizes, said = REFUSED[name]
    shape = export.symbolic_shape("t", constraints=asked)
    path = tmp_path / "model.jaxexport"
    symbolic = jax.ShapeDtypeStruct(shape, jnp.float32)
    path.write_bytes(export.export(jax.jit(function))(symbolic).serialize())
    with pytest.raises(UserError, match=f"does not accept {said}") as caught:
        jq.trace(path, sizes=sizes)
    text = str(caught.value)
    assert "refinement" not in text and "polymorphic" not in text
    assert all(constraint in text for constraint in asked)
