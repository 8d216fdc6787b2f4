"""Rows that a mask hides are left out, and no result of a program changes by a bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.ir import Program
from jq.iree.compiler import compile_module
from jq.iree.handover import handover
from jq.iree.runtime import Executable
from jq.kernels import Kernel, detect
from jq.passes.base import PassContext
from jq.passes.kernels._kernel import declarations
from jq.passes.order import Step
from jq.passes.pipeline import make_plan, rewrite
from tests.passes.test_kernel_passes import array

B, S, D, HEADS = 3, 64, 32, 2
PARAMS = {
    f"{layer}{name}": array(*shape) / 6
    for layer in (0, 1)
    for name, shape in {
        **dict.fromkeys("qkvo", (D, D)),
        "up": (D, 2 * D),
        "down": (2 * D, D),
    }.items()
}
PARAMS |= {"gamma": 1 + array(D) / 9, "beta": array(D) / 9}

pytestmark = [
    pytest.mark.skipif(detect().tiles, reason="products on matrix tiles compute all rows"),
    pytest.mark.usefixtures("quick_xla"),
]


def norm(p: Any, x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * p["gamma"] + p["beta"]


def encode(p: Any, x: jax.Array, mask: jax.Array, layers: int = 1) -> jax.Array:
    bias = (1.0 - mask[:, None, None, :].astype(jnp.float32)) * -10000.0
    x = norm(p, x)
    for i in range(layers):
        q, k, v = (
            (x @ p[f"{i}{n}"]).reshape(B, S, HEADS, D // HEADS).transpose(0, 2, 1, 3) for n in "qkv"
        )
        weights = jax.nn.softmax(q @ k.swapaxes(2, 3) / 4 + bias)
        context = (weights @ v).transpose(0, 2, 1, 3).reshape(B, S, D)
        x = norm(p, x + context @ p[f"{i}o"])
        x = norm(p, x + jax.nn.gelu(x @ p[f"{i}up"]) @ p[f"{i}down"])
    return x


def mean(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    kept = mask[:, :, None].astype(jnp.float32)
    return (encode(p, x, mask, layers=2) * kept).sum(1) / kept.sum(1)


def largest(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask[:, :, None] > 0, encode(p, x, mask), -jnp.inf).max(1)


def first(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    return encode(p, x, mask)[:, 0]


def all_rows(p: Any, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, ...]:
    y = encode(p, x, mask)
    return y, (y * mask[:, :, None]).sum(1)


def behind_a_function(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    """A function may make no number of a row that was left out."""
    return (jnp.log(jnp.abs(encode(p, x, mask))) * mask[:, :, None]).sum(1)


def by_a_branch(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    """A mask that a branch finds: it may read anything."""
    mask = jax.lax.cond(mask.sum() > S, lambda m: m, lambda m: 1 - m, mask)
    return (encode(p, x, mask) * mask[:, :, None]).sum(1)


@cache
def data() -> list[tuple[np.ndarray, np.ndarray]]:
    lengths = [(64, 64, 64), (5, 33, 1), (17, 64, 16), (1, 1, 1), (48, 2, 63)]
    masks = [(np.arange(S) < np.array(n)[:, None]).astype(np.int32) for n in lengths]
    holes = np.zeros((B, S), np.int32)
    holes[0, 7:30], holes[1, 3], holes[2, :60:2] = 1, 1, 1
    return [(array(B, S, D), mask) for mask in [*masks, holes]]


def family(kernel: Kernel) -> str:
    """The kind of a kernel, however a processor multiplies."""
    return kernel.family.removeprefix("pair_")


class Rewritten:
    """A model with the pass, and without, which is compiled when it is checked."""

    def __init__(self, fn: Any, pipeline: str = "int8-static") -> None:
        model = jq.Model(fn, PARAMS, data()[0], calibration=data()[:3])
        self.job = prepare_job(model, Request(pipeline, "llvm-cpu", ["recovery=false"]))
        ranges = jq.calibrate(model) if self.job.needs_ranges else None
        self.plan = make_plan(self.job.program, self.job.pipeline, self.job.target, ranges)
        self.steps = self.job.pipeline.passes["target"]
        self.program = self.by(self.steps)
        self.kernels = [
            Kernel.from_json(op.attributes["jq.kernel"].value)
            for op in declarations(self.program).values()
        ]

    def by(self, steps: Sequence[Step]) -> Program:
        """The program that these steps of the last level make."""
        changed = dataclasses.replace(self.job.pipeline)
        vars(changed)["passes"] = {**self.job.pipeline.passes, "target": tuple(steps)}
        cx = PassContext(self.plan, self.job.pipeline.settings, self.job.target, self.job.data)
        return rewrite(self.job.program, changed, cx)["target"]

    def compiled(self, program: Program) -> Executable:
        handed = handover(program)
        compiled = compile_module(handed.bytecode, flags=self.job.target.flags)
        return Executable.load(compiled.vmfb, handed.parameters or None)

    @property
    def shorter(self) -> list[str]:
        """Families of kernels that leave rows out."""
        return sorted(family(k) for k in self.kernels if getattr(k, "sequences", None))

    def check(self) -> None:
        """The same bits, whatever the batch before has left in memory."""
        without = [step for step in self.steps if step.name != "kernel-hidden-rows"]
        assert len(without) == len(self.steps) - 1
        runs = [self.compiled(program) for program in (self.program, self.by(without))]
        for x, mask in data():
            for run in runs:
                run(np.full_like(x, np.nan), np.ones_like(mask))
            some, every = (run(x, mask) for run in runs)
            for a, b in zip(some, every, strict=True):
                assert np.isfinite(b).all()
                np.testing.assert_array_equal(a, b)


ENCODER = {"gemm", "integer_attention", "normalize"}


@pytest.mark.parametrize("fn", [mean, largest, first])
def test_what_a_mask_hides(fn: Any) -> None:
    rewritten = Rewritten(fn)
    assert set(rewritten.shorter) == ENCODER
    whole = {family(k) for k in rewritten.kernels if not getattr(k, "sequences", None)}
    assert not whole & ENCODER
    rewritten.check()


def test_float_attention_reads_what_its_mask_hides() -> None:
    """No bound holds for its scores: only what follows the last one is left out."""
    rewritten = Rewritten(largest, "int8-dynamic")
    assert {"gemm", "normalize"} <= set(rewritten.shorter)
    assert "attention" not in rewritten.shorter
    rewritten.check()


@pytest.mark.parametrize("fn", [all_rows, behind_a_function, by_a_branch])
def test_rows_that_are_read(fn: Any) -> None:
    assert not Rewritten(fn).shorter


def test_rows_of_another_size() -> None:
    """A product with a row for every head of a token: its rows are not those of the mask."""

    def heads(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        y = x.reshape(B, S, HEADS, D // HEADS) @ p["0q"][: D // HEADS]
        return (y.reshape(B, S, HEADS * D) * mask[:, :, None]).sum(1)

    rewritten = Rewritten(heads)
    assert not rewritten.shorter
    rewritten.check()
