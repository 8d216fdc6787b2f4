"""Moments of the inputs of products and convolutions, against NumPy on the rows themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.planning.moments import readers
from jq.planning.moments.collect import collect
from jq.planning.moments.inputs import Wanted

pytestmark = pytest.mark.usefixtures("quick_xla")


@pytest.fixture(autouse=True, params=[0, readers.SMALL], ids=["inside", "handed-over"])
def _small(request, monkeypatch):
    monkeypatch.setattr(readers, "SMALL", request.param)


RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def program_of(f, params, data):
    return trace(Model(f, params, tuple(data[0])))


def check(program, data, wanted, rows):
    """Holds moments of rows that all count alike against NumPy's."""
    rows = rows.astype(np.float64)
    gram = rows.swapaxes(-1, -2) @ rows
    whole = collect(program, data, [wanted], power=0)[wanted.name]
    found = collect(program, data, [wanted], power=0, full=False)[wanted.name]
    np.testing.assert_allclose(whole.gram, gram, rtol=1e-4, atol=1e-4)
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    np.testing.assert_allclose(found.gram, diagonal, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.sum, rows.sum(-2), rtol=1e-4, atol=1e-4)
    low, high = rows.min(-2), rows.max(-2)  # of all samples, each of which has its own
    np.testing.assert_array_equal(found.low.reshape(-1, *low.shape).min(0), low)
    np.testing.assert_array_equal(found.high.reshape(-1, *high.shape).max(0), high)
    assert found.total == whole.total == rows[..., 0].size


def patches(x, size, strides, padding, dilation):
    """[n, h, w, c] -> rows of (kernel row, kernel column, channel), in NumPy."""
    x = np.pad(x, [(0, 0), *padding, (0, 0)])
    (kh, kw), (sh, sw), (dh, dw) = size, strides, dilation
    height = (x.shape[1] - (kh - 1) * dh - 1) // sh + 1
    width = (x.shape[2] - (kw - 1) * dw - 1) // sw + 1
    taps = [
        x[:, i * dh :][:, : (height - 1) * sh + 1 : sh, j * dw :][:, :, : (width - 1) * sw + 1 : sw]
        for i in range(kh)
        for j in range(kw)
    ]
    return np.stack(taps, -2).reshape(-1, kh * kw, x.shape[-1])


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_convolution(groups, layout):
    data = [[normal(2, 8, 7, 4)] for _ in range(2)]
    kernel = normal(3, 2, 4 // groups, 8)
    strides, padding, dilation = (2, 1), ((1, 0), (2, 1)), (1, 2)

    def f(p, x):
        x = x if layout == "NHWC" else jnp.transpose(x, (0, 3, 1, 2))
        return jax.lax.conv_general_dilated(
            x,
            p["w"],
            strides,
            padding,
            rhs_dilation=dilation,
            dimension_numbers=(layout, "HWIO", layout),
            feature_group_count=groups,
        )

    program = program_of(f, {"w": kernel}, data)
    x = np.concatenate([d[0] for d in data])
    rows = patches(x, (3, 2), strides, padding, dilation)
    rows = np.stack([r.reshape(len(rows), -1) for r in np.split(rows, groups, axis=-1)])
    check(program, data, Wanted("w", 0, (0, 1, 2)), rows[0] if groups == 1 else rows)


def test_batched_product():
    data = [[normal(3, 5, 6)] for _ in range(2)]
    program = program_of(
        lambda p, x: jnp.einsum("abk,ako->abo", x, p["w"]), {"w": normal(3, 6, 4)}, data
    )
    check(program, data, Wanted("w", 0, (2,)), np.concatenate([d[0] for d in data], axis=1))


@pytest.mark.parametrize("steps", [3, 9])  # fewer rows than channels, and more
def test_what_a_sequence_has_in_common(steps):
    """The gram of each sequence's weighted sum takes its share; a mask leaves rows out of both."""
    kept = np.arange(2 * steps).reshape(2, steps) % 3 > 0
    kept[1] = False  # a sequence that does not count at all
    data = [[normal(2, steps, 8), m] for m in (kept, kept[::-1], ~kept)]
    program = program_of(lambda p, x, m: (x @ p["w"]) * m[..., None], {"w": normal(8, 4)}, data)
    found, plain, weighted = (
        collect(program, data, [Wanted("w", 0, (2,))], power=power, shared=shared)["w"].gram
        for power, shared in ((1, 0.25), (1, 0.0), (0, 0.25))
    )
    common = np.zeros((8, 8))
    for x, _ in data:
        for sequence in x.astype(np.float64):
            row = sequence.sum(0) / np.sqrt(steps)
            common += np.outer(row, row)
    rows = np.concatenate([x.reshape(-1, 8) for x, _ in data]).astype(np.float64)
    np.testing.assert_allclose(weighted, 0.75 * rows.T @ rows + 0.25 * common, 1e-4, 1e-4)
    assert np.isfinite(found).all() and np.linalg.norm(found - plain) > 1e-3 * np.linalg.norm(plain)
    # x^T H x of the shared part is never above that of the rows alone (Cauchy and Schwarz).
    assert np.linalg.eigvalsh(plain - found).min() > -1e-3 * np.linalg.norm(plain)


def test_only_the_diagonal_and_some_rows():
    """Rows are drawn by weight: those that a mask removes are never drawn."""
    data = [[normal(16, 6), np.arange(16) % 3 == 0] for _ in range(3)]
    program = program_of(lambda p, x, m: (x @ p["w"]) * m[:, None], {"w": normal(6, 4)}, data)
    wanted = [Wanted("w", 0, (1,))]
    whole = collect(program, data, wanted, power=1)["w"]
    found = collect(program, data, wanted, power=1, full=False, rows=10)["w"]
    np.testing.assert_allclose(found.gram, np.diag(whole.gram), rtol=1e-5)
    assert found.rows.shape == (12, 6) and found.share.sum() == pytest.approx(found.total)
    kept = np.concatenate([x[m] for x, m in data])
    assert all((kept == row).all(1).any() for row in found.rows)
    np.testing.assert_array_equal(found.high.max(0), kept.max(0))


def test_a_product_outside_of_reach_is_left_out():
    data = [[normal(4, 6)]]
    program = program_of(lambda p, x: x @ p["w"], {"w": normal(6, 4)}, data)
    assert collect(program, data, [Wanted("other", 0, (1,))]) == {}


def test_rows_that_are_not_finite_by_what_they_count_are_named():
    data = [[np.full((64, 6), 1e30, np.float32)]]
    program = program_of(lambda p, x: (x * 1.5 @ p["w"]) * 1e12, {"w": normal(6, 4)}, data)
    with pytest.raises(UserError, match="NaN or infinity in sample 0"):
        collect(program, data, [Wanted("w", 0, (1,))], power=1)


def test_nan_is_named():
    data = [[normal(4, 6)], [normal(4, 6)]]
    data[1][0][2, 3] = np.nan
    program = program_of(lambda p, x: x @ p["w"], {"w": normal(6, 4)}, data)
    with pytest.raises(UserError, match="NaN or infinity in sample 1"):
        collect(program, data, [Wanted("w", 0, (1,))], power=0)


def test_convolutions_of_one_input_see_windows_of_their_own():
    """Few rows are handed over as they are: those of a stride are not the others'."""
    data = [[normal(1, 4, 4, 64)]]

    def f(p, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        strides = {"a": (1, 1), "b": (2, 2)}
        products = [
            jax.lax.conv_general_dilated(x, p[k], s, "VALID", dimension_numbers=numbers)
            for k, s in strides.items()
        ]
        return sum(y.sum() for y in products)

    params = {"a": normal(1, 1, 64, 2), "b": normal(1, 1, 64, 2)}
    program = program_of(f, params, data)
    for name, step in (("a", 1), ("b", 2)):
        rows = data[0][0][:, ::step, ::step].reshape(-1, 64)
        check(program, data, Wanted(name, 0, (0, 1, 2)), rows)
    both = collect(program, data, [Wanted(k, 0, (0, 1, 2)) for k in "ab"], power=0)
    assert both["a"].total == 16 and both["b"].total == 4
