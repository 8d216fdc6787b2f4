"""Products and convolutions of integer-only programs in kernels: the bits of the integer level."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq import api
from jq.ir.build import string_attr
from jq.ir.decisions import facts_of
from jq.ir.oracle.xla import XlaExecutable
from jq.kernels import ATTRIBUTE, Kernel, Rescale
from jq.passes.kernels._kernel import declarations
from tests.support.programs import assert_same_bits, run_iree

RNG = np.random.default_rng(0)
NHWC = ("NHWC", "HWIO", "NHWC")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x, w, groups=1, stride=1):
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=NHWC, feature_group_count=groups
    )


PARAMS = {
    "conv": normal(3, 3, 3, 16),
    "deep": normal(3, 3, 1, 16),
    "point": normal(1, 1, 16, 24),
    "heads": normal(24, 4, 6),
    "join": normal(4, 6, 20),
    "rows": normal(5, 25),
    "huge": normal(20, 9) * 3e4,
    "bias": normal(16),
}


def network(p, x):
    x = jax.nn.relu6(conv(x, p["conv"], stride=2) + p["bias"])
    x = jax.nn.relu(conv(x, p["deep"], groups=16))
    x = conv(x, p["point"]).reshape(1, 25, 24)
    x = jnp.einsum("bqd,dnh->bqnh", x, p["heads"])
    x = jnp.einsum("bqnh,nhd->bqd", x, p["join"])
    x = p["rows"] @ x[0]
    return x @ p["huge"]


@pytest.mark.parametrize("rounding", ["double", "single", "float32"])
def test_every_form_has_a_kernel_with_the_bits_of_the_integer_level(rounding, tmp_path) -> None:
    target = tmp_path / "target.toml"
    target.write_text(f'kernels = "host"\n[device]\nrounding = "{rounding}"\n')
    batches = [(normal(1, 10, 10, 3),) for _ in range(2)]
    model = jq.Model(network, PARAMS, batches[0], calibration=batches)
    levels = api.rewrite(model, pipeline="int8-static-integer-only", target=str(target))
    program = levels["target"]
    kernels = 0 if rounding == "float32" else 7  # that one is left to the compiler
    assert len(facts_of(program, "kernel")) == kernels
    assert len(facts_of(program, "no_kernel")) == 7 - kernels
    for op in declarations(program).values():
        (step,) = Kernel.from_json(string_attr(op, ATTRIBUTE) or "").epilogue
        assert isinstance(step, Rescale) and step.rounding == rounding
    for (x,) in batches:
        (want,) = XlaExecutable(levels["integer"])(x)
        (got,) = run_iree(program, [x])
        assert_same_bits(got, want, "a network")
