"""Programs of a few ops that IREE 3.13 refuses, and that compile."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.passes.prepare.loops import PartialUnroll
from tests.traps.helpers import mended, raw, trap

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 9)).astype(np.float32)
FOUR = np.array([1, 2, 9, 0], np.float32)
REVERSED = """(%x: tensor<7x9xf32>) -> tensor<7x5xf32> {
  %s = stablehlo.slice %x [0:7, 0:9:2] : (tensor<7x9xf32>) -> tensor<7x5xf32>
  %r = stablehlo.reverse %s, dims = [0, 1] : tensor<7x5xf32>
  %y = stablehlo.maximum %r, %r : tensor<7x5xf32>
  %z = stablehlo.add %y, %r : tensor<7x5xf32>
  return %z : tensor<7x5xf32> }"""


@trap
def test_reversal_of_every_second_element(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(REVERSED, X)


def test_reversal_of_every_second_element_is_shielded():
    np.testing.assert_array_equal(mended("shield-reversals", REVERSED, X)[0], 2 * X[::-1, ::-2])


# A loop that goes on while its last step found something: the body never asks what it was.
SEARCH = """(%x: tensor<5xi8>) -> (tensor<5xi8>, tensor<5xi1>) {
  %nine = stablehlo.constant dense<9> : tensor<5xi8>
  %one = stablehlo.constant dense<1> : tensor<5xi8>
  %false = stablehlo.constant dense<false> : tensor<i1>
  %0 = stablehlo.compare LT, %x, %nine : (tensor<5xi8>, tensor<5xi8>) -> tensor<5xi1>
  %1:2 = stablehlo.while(%y = %x, %small = %0) : tensor<5xi8>, tensor<5xi1>
    cond {
      %2 = stablehlo.reduce(%small init: %false) applies stablehlo.or across dimensions = [0]
        : (tensor<5xi1>, tensor<i1>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.add %y, %one : tensor<5xi8>
      %3 = stablehlo.compare LT, %y, %nine : (tensor<5xi8>, tensor<5xi8>) -> tensor<5xi1>
      stablehlo.return %2, %3 : tensor<5xi8>, tensor<5xi1>
    }
  return %1#0, %1#1 : tensor<5xi8>, tensor<5xi1> }"""
ITEMS = np.arange(5, dtype=np.int8)


@trap
def test_a_carry_that_only_the_condition_reads(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(SEARCH, ITEMS)


def test_a_carry_that_only_the_condition_reads_is_shielded():
    last, small = mended("shield-carries", SEARCH, ITEMS)
    np.testing.assert_array_equal(last, ITEMS + 10)
    assert not small.any()


def test_loops_whose_condition_is_a_carry_of_bools():
    def search(_, x):
        def body(carry):
            return jnp.all(carry[1] < 200), carry[1] + 1, carry[1] < 7

        start = (jnp.bool_(True), x, x < 100)
        return jax.lax.while_loop(lambda carry: carry[0], body, start)

    x = np.arange(5, dtype=np.uint8) * 40
    ours = jq.compile(jq.Model(search, {}, (x,)), "float")(x)
    for got, want in zip(ours, jax.jit(search)({}, x), strict=True):
        np.testing.assert_array_equal(got, want)


PADDED = """(%x: tensor<7x9xf32>) -> tensor<9x12xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %y = stablehlo.add %x, %x : tensor<7x9xf32>
  %p = stablehlo.pad %y, %one, low = [0, 1], high = [0, 1], interior = [0, 0]
    : (tensor<7x9xf32>, tensor<f32>) -> tensor<7x11xf32>
  %z = stablehlo.pad %p, %zero, low = [2, 0], high = [0, 1], interior = [0, 0]
    : (tensor<7x11xf32>, tensor<f32>) -> tensor<9x12xf32>
  return %z : tensor<9x12xf32> }"""


RESHAPED = PADDED.replace(
    "%z = stablehlo.pad %p, %zero, low = [2, 0], high = [0, 1], interior = [0, 0]",
    "%r = stablehlo.reshape %p : (tensor<7x11xf32>) -> tensor<1x7x11xf32>\n"
    "  %z = stablehlo.pad %r, %zero, low = [0, 2, 0], high = [0, 0, 1], interior = [0, 0, 0]",
)
RESHAPED = RESHAPED.replace("(tensor<7x11xf32>, t", "(tensor<1x7x11xf32>, t").replace(
    "9x12", "1x9x12"
)


@trap
@pytest.mark.parametrize("text", [PADDED, RESHAPED], ids=["padded", "reshaped"])
def test_padding_with_two_values(monkeypatch, text):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(text, X)


@pytest.mark.parametrize("text", [PADDED, RESHAPED], ids=["padded", "reshaped"])
def test_padding_with_two_values_is_shielded(text):
    want = np.pad(np.pad(2 * X, ((0, 0), (1, 1)), constant_values=1), ((2, 0), (0, 1)))
    got = mended("shield-pads", text, X)[0]
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_what_is_written_into_a_larger_tensor_twice():
    """Into ones; then by a convolution, a pool, an update, a scatter, and with gaps."""
    w = RNG.standard_normal((3, 3, 1, 2)).astype(np.float32)

    def fn(_, x):
        y = jnp.pad(2 * x, ((0, 0), (1, 1)), constant_values=1)
        image, ones, more = y[None, ..., None], jnp.ones((7, 11)), jnp.ones((9, 12))
        updated = jax.lax.dynamic_update_slice(ones, 2 * x, (0, 1))
        return (
            jax.lax.conv_general_dilated(
                image, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "SAME"),
            jax.lax.dynamic_update_slice(more, updated, (2, 0)),
            more.at[1:8, :11].set(y),
            jax.lax.pad(y, jnp.float32(0), [(0, 0, 1), (0, 0, 0)]),
        )

    compiled = jq.compile(jq.Model(fn, {}, (X,)), "float")
    for ours, theirs in zip(compiled(X), jax.jit(fn)({}, X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def pyramid():
    """Three pools one after the other, as `SAME` pads them."""
    pool = """"stablehlo.reduce_window"(%{}, %least) <{{
      padding = dense<[[0, 0], [0, 1], [0, 0]]> : tensor<3x2xi64>,
      window_dimensions = array<i64: 1, 2, 1>}}> ({{
      ^bb0(%a: tensor<i8>, %b: tensor<i8>):
        %m = stablehlo.maximum %a, %b : tensor<i8>
        stablehlo.return %m : tensor<i8> }}) : (tensor<2x6x8xi8>, tensor<i8>) -> tensor<2x6x8xi8>"""
    return f"""(%x: tensor<2x6x8xi8>) -> tensor<2x6x8xi8> {{
      %least = stablehlo.constant dense<-128> : tensor<i8>
      %p = {pool.format("x")}
      %q = {pool.format("p")}
      %r = {pool.format("q")}
      return %r : tensor<2x6x8xi8> }}"""


CODES = RNG.integers(-128, 128, (2, 6, 8), np.int8)


@trap
def test_pools_of_pools(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(pyramid(), CODES)


def test_pools_of_pools_are_shielded():
    want = CODES
    for _ in range(3):
        want = np.maximum(want, np.concatenate([want[:, 1:], want[:, -1:]], 1))
    np.testing.assert_array_equal(mended("shield-pads", pyramid(), CODES)[0], want)


# The loop reads what is written into after it.
READ_AND_WRITTEN = """(%x: tensor<7x9xf32>) -> (tensor<7x9xf32>, tensor<7x9xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %row = stablehlo.constant dense<5.0> : tensor<1x9xf32>
  %y = stablehlo.add %x, %x : tensor<7x9xf32>
  %l:2 = stablehlo.while(%i = %zero, %c = %y) : tensor<i32>, tensor<7x9xf32>
    cond {
      %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %n = stablehlo.add %i, %one : tensor<i32>
      %d = stablehlo.add %c, %c : tensor<7x9xf32>
      stablehlo.return %n, %d : tensor<i32>, tensor<7x9xf32>
    }
  %u = stablehlo.dynamic_update_slice %y, %row, %one, %zero
    : (tensor<7x9xf32>, tensor<1x9xf32>, tensor<i32>, tensor<i32>) -> tensor<7x9xf32>
  return %l#1, %u : tensor<7x9xf32>, tensor<7x9xf32> }"""


@trap
def test_an_update_of_what_a_loop_reads():
    np.testing.assert_array_equal(raw(READ_AND_WRITTEN, X)[0], 8 * X)


def test_an_update_of_what_a_loop_reads_is_shielded():
    looped, written = mended("shield-reads", READ_AND_WRITTEN, X)
    np.testing.assert_array_equal(looped, 8 * X)
    np.testing.assert_array_equal(
        written, np.concatenate([2 * X[:1], np.full((1, 9), 5), 2 * X[2:]])
    )


# The sum reads what is written into after it; nothing but their order says so.
SUMMED_AND_WRITTEN = """(%x: tensor<8xf32>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %seven = stablehlo.constant dense<7.0> : tensor<1xf32>
  %y = stablehlo.negate %x : tensor<8xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  %u = stablehlo.dynamic_update_slice %y, %seven, %three
    : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
  %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [0]
    : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  return %s, %u, %m : tensor<f32>, tensor<8xf32>, tensor<f32> }"""
EIGHT = np.arange(8, dtype=np.float32)


@trap
def test_an_update_of_what_a_sum_reads():
    assert raw(SUMMED_AND_WRITTEN, EIGHT)[0] == -28


def test_an_update_of_what_a_sum_reads_is_shielded():
    total, written, largest = mended("shield-reads", SUMMED_AND_WRITTEN, EIGHT)
    assert (total, largest) == (-28, 7)
    np.testing.assert_array_equal(written, np.where(EIGHT == 3, 7, -EIGHT))


READERS = {
    "sum": jnp.sum,
    "product": lambda y: y @ np.arange(48, dtype=np.float32).reshape(8, 6),
    "slice": lambda y: y[2:6],
    "reshape": lambda y: y.reshape(2, 4),
    "whole": lambda y: y,
    "what is written": lambda y: y[:2] * 3,
}
UPDATES = {
    "set": lambda y: y.at[3].set(7),
    "add": lambda y: y.at[np.array([4, 3])].add(7),
    "largest": lambda y: y.at[np.array([6, 0])].max(9),
    "of a part": lambda y: y.at[3:5].set(y[:2] * 3),
    "of a view": lambda y: y.reshape(4, 2).at[1].set(3),
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_is_not_written_into(reader, update):
    def fn(_, x):
        y = -x
        return READERS[reader](y), UPDATES[update](y), x.max()

    ours, theirs = (
        jq.compile(jq.Model(fn, {}, (EIGHT,)), "float")(EIGHT),
        fn({}, jnp.asarray(EIGHT)),
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_update_that_waits_for_all_readers_copies_nothing():
    def fn(_, x):
        y = -x
        return jax.lax.dynamic_update_slice(y, y[:2] * y.sum(), (3,)), x.max()

    text = jq.rewrite(jq.Model(fn, {}, (EIGHT,)), pipeline="float")["target"].text()
    assert "dynamic_update_slice" in text
    assert "stablehlo.select" not in text


def test_what_loops_and_branches_read_is_not_written_into():
    """By a scatter, through a view, read as a capture, by a branch, and updated first."""

    def fn(_, x):
        y, z, v, w = x + 1, x + 2, x + 3, x + 4
        looped = jax.lax.fori_loop(0, 2, lambda i, c: c * 2, y)
        total = jax.lax.fori_loop(0, 2, lambda i, c: c + z.sum(), jnp.float32(0))
        chosen = jax.lax.cond(v[0, 0] > 0, lambda c: c * 2, lambda c: c + 1, v)
        first = jax.lax.dynamic_update_slice(w, w[:1], (2, 0))
        return (
            (looped, y.reshape(-1).at[3].set(5.0)),
            (total, z.at[jnp.array([4, 0])].add(z[:2])),
            (chosen, jax.lax.dynamic_update_slice(v[:, :4], 2 * v[:1, :2], (0, 2))),
            (first, jax.lax.fori_loop(0, 2, lambda i, c: c * 2, w)),
        )

    compiled = jq.compile(jq.Model(fn, {}, (X,)), "float")
    ours, theirs = (jax.tree.leaves(f(X)) for f in (compiled, jax.jit(lambda x: fn({}, x))))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def diagonal_layers(layers, x):
    """Two layers of a diagonal state-space model (S5), by a scan over pairs of complex numbers."""

    def joined(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    for decay, into, out in layers:
        inputs = x.astype(jnp.complex64) @ into
        decays = jnp.broadcast_to(decay, inputs.shape)
        _, states = jax.lax.associative_scan(joined, (decays, inputs))
        x = x + jax.nn.gelu((states @ out).real)
    return x


def test_constants_that_iree_evaluates_in_a_wrong_order():
    def array(*shape):
        return (0.3 * (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))).astype("c8")

    layers = [(array(32), array(16, 32), array(32, 16)) for _ in range(2)]
    x = RNG.standard_normal((17, 16)).astype(np.float32)
    compiled = jq.compile(jq.Model(lambda p, x: diagonal_layers(layers, x), {}, (x,)), "float")
    want = np.asarray(jax.jit(lambda x: diagonal_layers(layers, x))(x))
    np.testing.assert_allclose(compiled(x), want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


# Rows of a tensor move by one: they are written to the tensor that they are read from.
SHIFTED = """(%x: tensor<40x3xf32>, %i: tensor<i32>) -> tensor<40x3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %y = stablehlo.add %x, %x : tensor<40x3xf32>
  %s = stablehlo.dynamic_slice %y, %i, %zero, sizes = [30, 3]
    : (tensor<40x3xf32>, tensor<i32>, tensor<i32>) -> tensor<30x3xf32>
  %z = stablehlo.dynamic_update_slice %y, %s, %j, %zero
    : (tensor<40x3xf32>, tensor<30x3xf32>, tensor<i32>, tensor<i32>) -> tensor<40x3xf32>
  return %z : tensor<40x3xf32> }"""
ROWS = np.arange(120, dtype=np.float32).reshape(40, 3)
MOVED = np.concatenate([ROWS[:4], ROWS[3:33], ROWS[34:]]) * 2


@trap
def test_a_part_written_to_another_place():
    np.testing.assert_array_equal(raw(SHIFTED, ROWS, np.int32(3))[0], MOVED)


def test_a_part_written_to_another_place_is_shielded():
    got = mended("shield-updates", SHIFTED, ROWS, np.int32(3))[0]
    np.testing.assert_array_equal(got, MOVED)


# As above where IREE's folds leave the tensor where it is, and after what writes into it in place.
FOLDED = """(%x: tensor<1x4x32xf32>) -> tensor<1x4x32xf32> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %y = {}
  %s = stablehlo.slice %{} [0:1, 0:2, 0:17] : (tensor<1x4x32xf32>) -> tensor<1x2x17xf32>
  %z = stablehlo.dynamic_update_slice %{}, %s, %zero, %zero, %six
    : (tensor<1x4x32xf32>, tensor<1x2x17xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
    -> tensor<1x4x32xf32>
  return %z : tensor<1x4x32xf32> }}"""
SCATTERED = """"stablehlo.scatter"(%x, %at, %x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %b : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<1x4x32xf32>, tensor<1x1xi32>, tensor<1x4x32xf32>) -> tensor<1x4x32xf32>"""
REVERSAL = FOLDED.format("stablehlo.reverse %x, dims = [0] : tensor<1x4x32xf32>", "y", "x")
LARGER = FOLDED.format("stablehlo.maximum %x, %x : tensor<1x4x32xf32>", "x", "y")
PLACED = FOLDED.format(SCATTERED, "x", "y").replace(
    "%y =", "%at = stablehlo.constant dense<0> : tensor<1x1xi32>\n  %y ="
)
PLANE = np.arange(128, dtype=np.float32).reshape(1, 4, 32)
PLANE_MOVED = PLANE.copy()
PLANE_MOVED[:, :2, 6:23] = PLANE[:, :2, :17]


@trap
@pytest.mark.parametrize("text", [REVERSAL, LARGER], ids=["reverse", "maximum"])
def test_a_part_written_to_another_place_behind_a_fold(text):
    np.testing.assert_array_equal(raw(text, PLANE)[0], PLANE_MOVED)


@pytest.mark.parametrize("text", [REVERSAL, LARGER, PLACED], ids=["reverse", "maximum", "scatter"])
def test_a_part_written_to_another_place_behind_a_fold_is_shielded(text):
    np.testing.assert_array_equal(mended("shield-updates", text, PLANE)[0], PLANE_MOVED)


# A loop computes three rows by themselves, and gives back what they are made from.
ROWS_BY_THEMSELVES = """(%x: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %all = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %more = stablehlo.constant dense<1.0> : tensor<4xf32>
  %y = stablehlo.add %x, %more : tensor<4xf32>
  %r:5 = stablehlo.while(%i = %zero, %h = %y, %a = %all, %b = %all, %c = %all)
    : tensor<i32>, tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
    cond {
      %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %n = stablehlo.add %h, %more : tensor<4xf32>
      %m = stablehlo.negate %h : tensor<4xf32>
      ROWS
      stablehlo.return %j, %n, %a2, %b2, %c2
        : tensor<i32>, tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
    }
  return %r#1, %r#2, %r#3, %r#4
    : tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32> }"""
ROW = """%{0}0 = stablehlo.reshape %m : (tensor<4xf32>) -> tensor<1x4xf32>
      %{0}1 = stablehlo.optimization_barrier %{0}0 : tensor<1x4xf32>
      %{0}2 = stablehlo.dynamic_update_slice %{0}, %{0}1, %i, %zero
        : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>"""


@trap
def test_three_rows_by_themselves():
    raw(ROWS_BY_THEMSELVES.replace("ROWS", "\n      ".join(map(ROW.format, "abc"))), FOUR)


def test_rows_of_what_a_tensor_began_with():
    """The first row of three tensors is written in front of the loop, as a prompt's to a cache."""
    kinds = jnp.float32, jnp.int8, jnp.bfloat16

    def written(i, h, tensors):
        rows = [h.astype(kind)[None] for kind in kinds]
        put = functools.partial(jax.lax.dynamic_update_slice, allow_negative_indices=False)
        return i + 1, h + 1, [put(t, row, (i, 0)) for t, row in zip(tensors, rows, strict=True)]

    def fn(_, x):
        start = written(jnp.int32(0), x, [jnp.zeros((17, 4), kind) for kind in kinds])
        return jax.lax.while_loop(lambda carry: carry[0] < 17, lambda c: written(*c), start)

    ours, theirs = jq.compile(jq.Model(fn, {}, (FOUR,)), "float")(FOUR), jax.jit(fn)({}, FOUR)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_windows_that_slide():
    """Over the input itself, what is computed of it, in one more view, and in loops."""

    def fn(_, x, i):
        def slide(k, rows):
            return jax.lax.dynamic_update_slice(rows, rows[1:], (0, 0)).at[-1].set(k)

        def shift(flat):
            part = jax.lax.dynamic_slice(flat, (i,), (50,))
            return jax.lax.dynamic_update_slice(flat, part, (i + 2,))

        y = 2 * x
        return (
            x.at[:-1].set(x[1:]),
            y.at[1:].set(y[:-1]),
            shift(y.reshape(-1)).reshape(y.shape),
            jax.lax.fori_loop(0, i, slide, y),
            jax.lax.fori_loop(0, i, lambda k, flat: shift(flat), x.reshape(-1)),
        )

    i = np.int32(3)
    compiled = jq.compile(jq.Model(fn, {}, (ROWS, i)), "float")
    for ours, theirs in zip(compiled(ROWS, i), jax.jit(fn)({}, ROWS, i), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# A loop starts with what is read after it, too.
SHARED = """(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %six = stablehlo.constant dense<6.0> : tensor<4xf32>
  %0 = stablehlo.minimum %x, %six : tensor<4xf32>
  %1:2 = stablehlo.while(%i = %zero, %a = %0) : tensor<i32>, tensor<4xf32>
    cond {
      %3 = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.add %a, %a : tensor<4xf32>
      %4 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %4, %3 : tensor<i32>, tensor<4xf32>
    }
  %2 = stablehlo.add %1#1, %0 : tensor<4xf32>
  return %2 : tensor<4xf32> }"""


@trap
def test_what_a_loop_starts_with_is_read_behind_it(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(SHARED, FOUR)


def test_what_a_loop_starts_with_is_shielded():
    np.testing.assert_array_equal(mended("shield-starts", SHARED, FOUR)[0], [5, 10, 30, 0])


# Or with what is computed from a value that is read after it.
BESIDE = (
    SHARED.replace("%a = %0", "%a = %b")
    .replace("  %1:2 =", "  %b = stablehlo.maximum %0, %one_half : tensor<4xf32>\n  %1:2 =")
    .replace("  %2 =", "  %n = stablehlo.negate %0 : tensor<4xf32>\n  %2 =")
    .replace("%1#1, %0", "%1#1, %n")
    .replace("  %0 =", "  %one_half = stablehlo.constant dense<0.5> : tensor<4xf32>\n  %0 =")
)


@trap
def test_what_a_loop_starts_with_is_computed_beside_others(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(BESIDE, FOUR)


def test_what_a_loop_starts_with_is_shielded_from_others():
    (got,) = mended("shield-starts", BESIDE, FOUR)
    np.testing.assert_array_equal(got, [3, 6, 18, 2])


# Or it is read beside the loop, by what nothing else waits for.
APART = (
    SHARED.replace("-> tensor<4xf32> {", "-> (tensor<4xf32>, tensor<4xf32>) {")
    .replace("stablehlo.add %1#1, %0", "stablehlo.clamp %one_half, %1#1, %six")
    .replace("  return %2 : tensor<4xf32>", "  return %2, %n : tensor<4xf32>, tensor<4xf32>")
    .replace("  %2 =", "  %n = stablehlo.sign %0 : tensor<4xf32>\n  %2 =")
    .replace("  %0 =", "  %one_half = stablehlo.constant dense<0.5> : tensor<4xf32>\n  %0 =")
)


@trap
def test_what_a_loop_starts_with_is_read_beside_it(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    raw(APART, FOUR)


def test_what_a_loop_starts_with_is_shielded_from_what_reads_it():
    last, sign = mended("shield-starts", APART, FOUR)
    np.testing.assert_array_equal(last, [4, 6, 6, 0.5])
    np.testing.assert_array_equal(sign, [1, 1, 1, 0])


@trap
def test_rounds_of_a_generator_in_a_loop_of_unknown_length(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    monkeypatch.setattr("jq.passes.iree_mends.shields.loops.UnrollRounds.run", lambda *_: False)
    key = np.uint32([0, 1])
    jq.compile(jq.Model(lambda _, k: jax.random.poisson(k, 2.0, (3,)), {}, (key,)), "float")


def _beside_a_constant() -> None:
    rows = np.arange(224, dtype=np.float32).reshape(7, 32) / 64
    weight = np.eye(32, k=1, dtype=np.float32)

    def made(weight, x):
        looped = jax.lax.map(lambda r: r @ weight, rows[:6].reshape(2, 3, 32))
        return jnp.concatenate([looped.reshape(6, 32), rows[6:]]) + x

    compiled = jq.compile(jq.Model(made, weight, (np.float32(0),)), "float", cache=False)
    shifted = np.pad(rows[:6, :-1], ((0, 0), (1, 0)))
    np.testing.assert_array_equal(compiled(np.float32(1)), np.concatenate([shifted, rows[6:]]) + 1)


@trap
def test_a_loop_over_constants_beside_a_constant(monkeypatch):
    monkeypatch.setattr("jq.iree.compiler._keep", lambda *_: None)
    monkeypatch.setattr(PartialUnroll, "run", lambda *_: False)
    monkeypatch.setattr("jq.iree.compiler.RETRIED", {})
    _beside_a_constant()


def test_a_loop_over_constants_beside_a_constant_is_computed_in_every_call():
    _beside_a_constant()
