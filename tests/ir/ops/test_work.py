"""Counting operations, by hand for each kind of contraction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq import api
from jq.driver import stages
from jq.frontends.model import Model
from jq.ir.ops.dims import Work, work_of
from jq.target.target import load_target


def work(fn, *shapes):
    arguments = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    model = Model(lambda params, *x: fn(*x), {}, tuple(arguments))
    return work_of(api.trace(model).program)


def test_products_count_batches_rows_columns_and_depth():
    assert work(lambda x, y: x @ y, (3, 5, 7), (3, 7, 11)) == Work(2 * 3 * 5 * 7 * 11, 0)
    both = work(lambda x, y: jnp.einsum("abc,bcd->ad", x, y), (3, 5, 7), (5, 7, 11))
    assert both == Work(2 * 3 * 5 * 7 * 11, 0)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_count_window_and_channels_of_a_group(groups):
    def conv(x, w):
        return jax.lax.conv_general_dilated(
            x,
            w,
            (2, 2),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    found = work(conv, (1, 8, 8, 4), (3, 3, 4 // groups, 6))
    assert found == Work(0, 2 * (4 * 4 * 6) * 3 * 3 * (4 // groups))


class Stopped(Exception):
    pass


@pytest.mark.parametrize(
    ("rows", "pipeline", "by_weight", "packed"),
    [
        (64, "float", False, True),
        (1, "float", False, False),
        (64, "float", True, False),
        (64, "int8-weight-only", True, False),
    ],
)
def test_flags_for_float_products(monkeypatch, rows, pipeline, by_weight, packed):
    """Only where nothing is quantized, no kernel computes it, and there is something to gain."""
    seen = []

    def run(source, *, flags, **_):
        seen.append(tuple(flags))
        raise Stopped

    monkeypatch.setattr(stages, "compile_module", run)
    weight = np.ones((512, 256), np.float32)
    inputs = (jax.ShapeDtypeStruct((rows, 512), np.float32),) * 2

    def product(p, x, y):
        return x @ p if by_weight else x @ y.T

    with pytest.raises(Stopped):
        api.compile(Model(product, weight, inputs), pipeline, "x86-64-v3", cache=False)
    target = load_target("x86-64-v3")
    assert seen == [target.flags + (target.product_flags if packed else ())]
