"""The solver of weights: against brute force, and never worse than what it starts from."""

import itertools

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format
from jq.passes.recovery import _descent, _solve
from jq.passes.recovery._descent import Solution
from jq.passes.recovery._grids import Grid
from jq.passes.recovery._ranges import search_ranges
from jq.passes.recovery._solve import solve

RNG = np.random.default_rng(0)


def correlated(rows, width):
    x = RNG.standard_normal((rows, width)) @ RNG.standard_normal((width, width))
    return (x.T @ x).astype(np.float64)


def rounded(weight, enc):
    """Plain rounding as the format does it."""
    fmt = get_format(enc.format)
    return np.asarray(fmt.decode(NUMPY, fmt.encode(weight, enc), enc))


def loss(approximation, weight, gram):
    d = approximation - weight
    return float((d * (gram @ d)).sum())


def error(found, weight, gram):
    return loss(found.real(), weight, gram)


def encoding(fmt, shape, block, scheme="symmetric", scale_type="float32"):
    return Encoding(fmt, shape, (block, 1), scheme, scale_type)


def test_two_rows_by_hand():
    """x = (a, a): only the sum of both weights counts, so 0.4 + 0.4 becomes 0 + 1, not 0 + 0.

    The scale is 1 (the third row fixes it: 1 * 1); coordinate descent of scales is off.
    """
    weight = np.array([[0.4], [0.4], [1.0]], np.float32)
    gram = np.array([[1.0, 1.0, 0], [1.0, 1.0, 0], [0, 0, 1e6]])
    found = solve(weight, gram, encoding("int2", (3, 1), 0), damping=1e-12, passes=0)
    assert found.scale[0, 0] == 1
    assert sorted(found.codes[:2, 0].tolist()) == [0, 1] and found.codes[2, 0] == 1


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_near_the_best_of_all_codes(scheme):
    """Four rows of two bits: all 256 codes of the scale found are tried."""
    ratio = []
    for _ in range(20):
        weight, gram = RNG.standard_normal((4, 1)).astype(np.float32), correlated(40, 4)
        enc = encoding("int2", (4, 1), 0, scheme)
        found = solve(weight, gram, enc, damping=1e-9)
        low, high = get_format("int2").limits(enc)
        every = [
            error(Solution(np.array(c, np.float32)[:, None], found.scale, found.zero, found.groups,
                           found.grid), weight, gram)
            for c in itertools.product(range(low, high + 1), repeat=4)
        ]  # fmt: skip
        ratio.append((error(found, weight, gram) + 1e-9) / (min(every) + 1e-9))
    assert np.median(ratio) < 1.05 and min(ratio) > 0.999


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize(("fmt", "block"), [("int4", 32), ("int4", 0), ("int8", 0), ("int2", 16)])
def test_better_than_rounding(fmt, block, scheme):
    weight, gram = RNG.standard_normal((128, 24)).astype(np.float32), correlated(300, 128)
    enc = encoding(fmt, weight.shape, block, scheme, "float16")
    found = solve(weight, gram, enc, damping=0.01)
    assert loss(found.real(), weight, gram) < loss(rounded(weight, enc), weight, gram)
    low, high = get_format(fmt).limits(enc)
    assert found.codes.min() >= low and found.codes.max() <= high
    assert (found.codes == np.rint(found.codes)).all()
    assert (found.scale == found.scale.astype(np.float16)).all()


def test_descent_never_makes_it_worse():
    weight, gram = RNG.standard_normal((96, 16)).astype(np.float32), correlated(200, 96)
    for block in (32, 0):
        enc = encoding("int4", weight.shape, block, "asymmetric")
        errors = [
            error(solve(weight, gram, enc, damping=1e-6, passes=n), weight, gram) for n in range(4)
        ]
        assert all(b <= a * (1 + 1e-4) for a, b in itertools.pairwise(errors))
        assert errors[-1] < errors[0]


@pytest.mark.parametrize(("fmt", "block"), [("int4", 32), ("int4", 128), ("int4", 0)])
def test_panels_change_only_the_order_of_sums(fmt, block, monkeypatch):
    """Sums of float32 in another order may tie-break a code elsewhere, no more."""
    weight, gram = RNG.standard_normal((384, 24)).astype(np.float32), correlated(900, 384)
    enc = encoding(fmt, weight.shape, block)
    whole = solve(weight, gram, enc)
    monkeypatch.setattr(_descent, "PANEL", 100)
    monkeypatch.setattr(_descent, "WHOLE", 100)
    cut = solve(weight, gram, enc)
    assert (whole.codes == cut.codes).mean() > 0.98
    assert error(cut, weight, gram) == pytest.approx(error(whole, weight, gram), rel=0.01)


@pytest.mark.parametrize("block", [16, 0])
def test_scales_and_free_zeros_are_those_of_least_squares(block):
    """Codes of a block stay, and all of the others: x W' = scale * (x codes) + minimum * (x 1)."""
    weight = RNG.standard_normal((32, 5)).astype(np.float32)
    gram = correlated(100, 32).astype(np.float32)
    groups = [slice(0, 16), slice(16, 32)] if block else [slice(0, 32)]
    codes = RNG.integers(0, 4, weight.shape).astype(np.float32)
    scale, zero = RNG.random((2, len(groups), 5), np.float32) + 1
    grid = Grid(lambda c: c, lambda s: s, zeros=lambda z: z)
    found = Solution(codes, scale, zero, groups, grid)
    rest = found.real() - weight
    s = groups[0]
    rest[s] -= found.real()[s]
    root = np.linalg.cholesky(gram.astype(np.float64)).T  # the rows of an x
    residual = gram @ (found.real() - weight)
    product = None if block else gram @ weight
    _descent._move_scales(found, _descent._Panel(gram, residual, slice(0, 32)), product, 0)
    for n in range(5):
        columns = np.stack([root[:, s] @ codes[s, n], root[:, s].sum(1)], 1)
        best = np.linalg.lstsq(columns, -root @ rest[:, n])[0]
        if best[0] > 0:
            np.testing.assert_allclose(
                [found.scale[0, n], -found.scale[0, n] * found.zero[0, n]], best, rtol=2e-3
            )


@pytest.mark.parametrize("fmt", ["uint2_zero", "uint4_min", "int3"])
def test_more_rounds_are_no_worse_in_any_column(fmt):
    weight, gram = RNG.standard_normal((96, 16)).astype(np.float32), correlated(200, 96)
    enc = encoding(fmt, weight.shape, 32, "asymmetric" if fmt == "int3" else "symmetric", "float16")

    def errors(rounds):
        d = solve(weight, gram, enc, damping=1e-6, rounds=rounds).real() - weight
        return (d * (gram @ d)).sum(0)

    one, three = errors(1), errors(3)
    assert (three <= one * (1 + 1e-3)).all() and three.sum() < one.sum()


def test_search_of_ranges_is_not_worse_than_the_full_range():
    weight = RNG.standard_t(3, (64, 8)).astype(np.float32)
    for scheme in ("symmetric", "asymmetric"):
        enc = encoding("int4", weight.shape, 16, scheme)
        scale, zero = search_ranges(get_format("int4"), weight, np.ones(1), enc)
        fmt = get_format("int4")
        codes = fmt.quantize(weight, scale, zero.astype(np.int32), enc)
        ours = fmt.dequantize(NUMPY, codes, scale, zero.astype(np.int32), enc)
        assert ((ours - weight) ** 2).sum() < ((rounded(weight, enc) - weight) ** 2).sum()


def test_short_last_block_and_zero_column():
    weight, gram = RNG.standard_normal((40, 3)).astype(np.float32), correlated(90, 40)
    weight[:, 1] = 0
    found = solve(weight, gram, encoding("int4", (40, 3), 32, "asymmetric"))
    assert found.scale.shape == (2, 3) and (found.real()[:, 1] == 0).all()


@pytest.mark.parametrize(("fmt", "block"), [("mxfp4", 32), ("nvfp4", 16), ("nf4", 64),
                                            ("mxfp6_e2m3", 32), ("fp4_e2m1", 0), ("uint2_zero", 16),
                                            ("uint3_zero", 32), ("uint4_zero", 0)])  # fmt: skip
def test_small_floats_and_tables(fmt, block):
    """Stored codes decode to what was solved for, and are closer than plain rounding."""
    weight, gram = RNG.standard_normal((80, 24)).astype(np.float32), correlated(200, 80)
    weight[:, 1] = 0
    enc = Encoding(fmt, weight.shape, (block, 1), scale_type="float16")
    found = solve(weight, gram, enc, damping=0.01)
    parts = found.grid.stored(found.codes, found.scale, found.zero, enc)
    np.testing.assert_array_equal(get_format(fmt).decode(NUMPY, parts, enc), found.real())
    assert {k: (a.shape, a.dtype) for k, a in parts.items()} == get_format(fmt).storage(enc)
    assert loss(found.real(), weight, gram) < 0.6 * loss(rounded(weight, enc), weight, gram)
    assert (found.real()[:, 1] == 0).all()


@pytest.mark.parametrize("fmt", ["mxfp4", "nvfp4", "nf4"])
def test_codes_that_a_format_has_are_found_as_they_are(fmt):
    weight = RNG.standard_normal((64, 8)).astype(np.float32)
    enc = Encoding(fmt, weight.shape, (get_format(fmt).default_block((64, 8), 0) or (64, 1)))
    weight = rounded(weight, enc)
    found = solve(weight, np.eye(64), enc)
    np.testing.assert_allclose(found.real(), weight, rtol=1e-6, atol=1e-7)


def both_sides(rng, rows, columns):
    """A weight, moments of its inputs, and those of directions of its results: few count much."""
    weight = rng.standard_normal((rows, columns)).astype(np.float32)
    inputs = rng.standard_normal((4 * rows, rows)) @ rng.standard_normal((rows, rows))
    fading = np.exp(-np.arange(columns) / 8)[:, None]
    outputs = rng.standard_normal((4 * columns, columns))
    outputs = outputs @ (fading * rng.standard_normal((columns, columns)))
    return weight, inputs.T @ inputs, outputs.T @ outputs


@pytest.mark.parametrize("fmt", ["int2", "int4", "nvfp4"])
def test_directions_of_the_result_that_count_little_take_the_error(fmt):
    rng = np.random.default_rng(7)
    for columns in (5, 40):
        weight, gram, outputs = both_sides(rng, 48, columns)
        block = 16 if fmt == "nvfp4" else 24
        enc = (
            encoding(fmt, weight.shape, block)
            if fmt != "nvfp4"
            else Encoding(fmt, weight.shape, (block, 1))
        )
        lost = []
        for g in (None, outputs):
            d = solve(weight, gram, enc, outputs=g).real() - weight
            lost.append(float(((gram @ d) * (d @ outputs)).sum()))
        assert lost[1] < 0.8 * lost[0], (columns, lost)


def test_directions_that_count_alike_change_next_to_nothing():
    """The descent ends by what some columns gain, and not all: so few codes may differ."""
    weight, gram, _ = both_sides(np.random.default_rng(8), 32, 40)
    enc = encoding("int4", weight.shape, 16, "asymmetric")
    plain, same = (solve(weight, gram, enc, outputs=g) for g in (None, 3 * np.eye(40)))
    assert (plain.codes != same.codes).mean() < 0.1
    assert error(same, weight, gram) == pytest.approx(error(plain, weight, gram), rel=0.02)


def test_columns_aim_at_the_least_that_those_before_leave(monkeypatch):
    """tr(G D^T H D) is stationary there, for any H, for D of the errors of those before and of what
    the aim adds to the weight, once the columns to come have done their best as well."""
    weight, gram, outputs = both_sides(np.random.default_rng(9), 24, 40)
    aims = []
    monkeypatch.setattr(_solve, "TURNS", 3)

    def seen(part, aim, h, passes):
        aims.append((part, aim.copy()))

    monkeypatch.setattr(_solve, "descend", seen)
    solve(weight, gram, encoding("int2", weight.shape, 0), outputs=outputs, damping=1e-2)
    g, turn = _solve._damped(_solve.near_one(outputs), 1e-2)
    own, g, start = weight[:, turn], g[np.ix_(turn, turn)], 0
    moved = np.zeros_like(own)  # D
    for part, aim in aims:
        s = slice(start, start + aim.shape[1])
        moved[:, s] = aim - own[:, s]
        slope = moved[:, : s.stop] @ g[: s.stop, s]
        rest = slice(s.stop, None)
        slope -= moved[:, : s.stop] @ g[: s.stop, rest] @ np.linalg.solve(g[rest, rest], g[rest, s])
        assert np.abs(slope).max() <= 1e-4 * np.abs(moved).max() * np.abs(g).max()
        moved[:, s] = part.real() - own[:, s]
        start = s.stop
    assert len(aims) == 3 and np.abs(moved).max() > 0.1
