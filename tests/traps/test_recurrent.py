"""Two loops in a row whose kernels read the same numbers, also between and after them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.iree_mends.shields.writes import ShieldSplats
from jq.passes.prepare.loops import PartialUnroll
from tests.support.steps import assert_one_code
from tests.traps.helpers import trap

RNG = np.random.default_rng(0)
PARAMS = {
    "forward": RNG.standard_normal((8, 8)).astype(np.float32) / 2,
    "backward": RNG.standard_normal((8, 8)).astype(np.float32) / 2,
    "head": RNG.standard_normal((16, 4)).astype(np.float32) / 2,
}
HALF = RNG.standard_normal((3, 1, 8)).astype(np.float32) * 9
X = np.concatenate([HALF, -HALF], 1)  # tanh reaches both ends: all zero points are 0


def bidirectional(params, x):
    def run(w, x):
        def step(h, t):
            h = jnp.tanh(h @ w + t)
            return h, h

        return jax.lax.scan(step, jnp.zeros((2, 8)), x)[1]

    both = [run(params["forward"], x), run(params["backward"], x[::-1])]
    return jnp.concatenate(both, -1) @ params["head"]


def compiled():
    model = jq.Model(bidirectional, PARAMS, (X,), calibration=[(X,)])
    return jq.compile(model, "int8-static", settings=["recovery=false"], cache=False)


@trap
def test_numbers_of_two_loops(monkeypatch):
    monkeypatch.setattr(PartialUnroll, "run", lambda *_: False)
    monkeypatch.setattr(ShieldSplats, "run", lambda *_: False)
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    compiled()


def test_numbers_of_two_loops_are_shielded():
    made = compiled()
    (expected,) = XlaExecutable(made.levels["integer"])(X)
    assert_one_code(np.asarray(made(X)), expected)
