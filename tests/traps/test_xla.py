"""Mistakes of XLA's CPU compiler with its usual options, and our options for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir.memory import DISABLED, NO_LIBRARY, xla_options
from jq.ir.oracle.xla import XlaExecutable
from tests.traps.helpers import trap

RNG = np.random.default_rng(0)
SEVEN = RNG.integers(-8, 9, (3, 1, 2, 2, 8, 8, 8)).astype(np.float32)
MATRIX, ROWS = (RNG.integers(-8, 9, shape).astype(np.float32) for shape in ((3, 3), (40_000, 3)))
BASE = RNG.integers(-8, 9, (8, 16)).astype(np.float32)


def seven_axes(a: Any, b: Any) -> Any:
    return jnp.sum(a * b, axis=3)


def lengths(w: Any, rows: Any) -> Any:
    return jax.vmap(lambda row: jnp.sum((w @ row) ** 2))(rows)


def shifted(base: Any) -> Any:
    return base.at[1:].set(base[:-1]).reshape((1, *base.shape))


def shifted_in_a_loop(base: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, x: shifted(x[0]), base[None])


def usual(function: Callable[..., Any], *inputs: np.ndarray) -> np.ndarray:
    return np.asarray(jax.jit(function)(*inputs))


def as_reference(function: Callable[..., Any], *inputs: np.ndarray) -> np.ndarray:
    program = jq.trace(jq.Model(lambda _, *x: function(*x), {}, inputs)).program
    return XlaExecutable(program)(*inputs)[0]


RIGHT = [
    (seven_axes, (SEVEN, SEVEN), (SEVEN * SEVEN).sum(3)),
    (lengths, (MATRIX, ROWS), ((ROWS @ MATRIX.T) ** 2).sum(1)),
    (shifted, (BASE,), BASE[[0, *range(7)]][None]),
    (shifted_in_a_loop, (BASE,), BASE[[0, 0, 0, 0, 1, 2, 3, 4]][None]),
]


@trap
def test_a_sum_at_seven_axes() -> None:
    """The process ends."""
    code = "import jax, jax.numpy as jnp; x = jnp.ones((3, 1, 2, 2, 8, 8, 8));"
    code += "print(jax.jit(lambda a, b: jnp.sum(a * b, axis=3))(x, x).sum())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "6144.0\n")


@trap
def test_a_sum_of_squares_after_a_product() -> None:
    function, inputs, right = RIGHT[1]
    np.testing.assert_array_equal(usual(function, *inputs), right)


@trap
def test_a_tensor_that_is_written_into_while_it_is_read() -> None:
    function, inputs, right = RIGHT[2]
    np.testing.assert_array_equal(usual(function, *inputs), right)


@pytest.mark.parametrize("case", RIGHT)
def test_a_reference_is_right(case: Any) -> None:
    function, inputs, right = case
    np.testing.assert_array_equal(as_reference(function, *inputs), right)


def test_options_are_of_the_compilation_alone() -> None:
    before = dict(jax.config.values)
    as_reference(shifted, BASE)
    assert jax.config.values == before


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda cache, row: jax.lax.dynamic_update_slice(cache, row, (3, 0)), (BASE, BASE[:1])),
        (lambda x: jnp.zeros((9, 16)).at[1:].set(x), (BASE,)),
        (lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x), (BASE,)),
        # The product has memory of its own: what is made from it may be written into the tensor.
        (lambda x: jax.lax.dynamic_update_slice(x, (x @ x.T)[:, :8] * 2, (0, 0)), (BASE,)),
    ],
)
def test_what_is_written_from_elsewhere_keeps_its_fusions(function: Any, inputs: Any) -> None:
    lowered = jax.jit(function).lower(*inputs)
    assert xla_options(lowered.compiler_ir()) == NO_LIBRARY


def test_functions_may_be_given_parts_of_one_tensor() -> None:
    write = jax.jit(lambda x, part: jax.lax.dynamic_update_slice(x, part, (1, 0)))
    lowered = jax.jit(lambda x: write(x, x[:-1])).lower(BASE)
    assert xla_options(lowered.compiler_ir()) == {**NO_LIBRARY, DISABLED: "fusion"}
    strict = xla_options(lowered.compiler_ir(), **{DISABLED: "algsimp"})
    assert strict[DISABLED] == "fusion,algsimp"


def chained(table: Any, x: Any) -> Any:
    places = x.astype(jnp.int32)
    for _ in range(40):
        places = (places * 3 + 1) % 7
    return table[places[:, 0]]


SLOW = """
import sys
import jax, numpy as np
from tests.traps.test_xla import chained
jax.jit(chained).lower(np.ones((8, 8), "f4"), np.ones((4, 8), "f4")).compile()
"""


@trap(raises=subprocess.TimeoutExpired)
def test_places_of_many_steps_are_compiled() -> None:
    subprocess.run([sys.executable, "-c", SLOW], check=True, timeout=20)
