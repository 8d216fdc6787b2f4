"""Codes are kept to the bit, whatever a model computes its numbers with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jq
from jq.formats import NUMPY, get_format
from jq.formats.affine import is_affine
from jq.ir.encodings import encoding_in
from tests.support.programs import evaluated, run_iree

RNG = np.random.default_rng(0)
F32 = jnp.float32
X = RNG.standard_normal((8, 64)).astype(np.float32)
IDS = RNG.integers(0, 64, (2, 5)).astype(np.int32)
SCALE = RNG.uniform(0.1, 1, (1, 48)).astype(np.float32)
ROWS = RNG.uniform(0.1, 1, (64, 1)).astype(np.float32)
LAYERS = RNG.uniform(0.1, 1, (3, 1, 64)).astype(np.float32) / 1024
LOW = {
    "a": RNG.standard_normal((64, 4)).astype(np.float32),
    "b": RNG.standard_normal((4, 48)).astype(np.float32),
}
PAIRS = np.stack([np.arange(256) % 16, np.arange(256) // 16], 1).astype(np.float32) - 8


def codes(shape, low=-8, high=8):
    return RNG.integers(low, high, shape)


def packed(c):
    """Two codes a byte along the first axis, the even ones low."""
    return ((c[::2] & 15) | ((c[1::2] & 15) << 4)).astype(np.uint8)


def unpacked(p):
    both = jnp.stack([p & 15, p >> 4], 1).reshape(-1, p.shape[1]).astype(jnp.int8)
    return jnp.where(both > 7, both - 16, both)


def bits(p, x):
    both = lax.bitcast_convert_type(p["w"], jnp.int4)
    return x @ (jnp.moveaxis(both, -1, 1).reshape(64, 48).astype(F32) * p["s"])


def pairs(p, x):
    both = jnp.asarray(PAIRS)[p["w"].astype(jnp.int32)]
    return x @ (jnp.moveaxis(both, -1, 1).reshape(64, 48) * p["s"])


def added(p, x):
    return x @ (p["w"].astype(F32) * p["s"] - 5 * p["s"])


def signs(p, x):
    return x @ (jnp.where(p["w"], 1.0, -1.0) * p["s"])


def halves(p, x):
    low, high = ((n.astype(F32) - 8) for n in (p["w"] & 15, p["w"] >> 4))
    return (x[:, ::2] @ low + x[:, 1::2] @ high) * p["s"]


def update(p, x):
    return x @ (p["w"].astype(F32) * p["s"] + p["a"] @ p["b"])


def both_ways(p, x):
    hidden = jax.nn.relu(x @ (p["w"].astype(F32) * p["s"]))
    return hidden @ (p["w"].astype(F32) * p["s"]).T


def scan(p, x):
    def body(h, layer):
        return jnp.tanh(h @ (layer["w"].astype(F32) * layer["s"])), None

    return lax.scan(body, x, p)[0]


def scan_of_nibbles(p, x):
    def body(h, layer):
        return jnp.tanh((h @ unpacked(layer["w"]).astype(F32)) * layer["s"]), None

    return lax.scan(body, x, p)[0]


def rows(p, x):
    return p["w"][IDS].astype(F32) * p["s"][IDS] + x[0]


def rows_of_nibbles(p, x):
    both = p["w"][IDS]
    both = jnp.stack([both & 15, both >> 4], -1).reshape(2, 5, 64).astype(F32) - 8
    return both * p["s"][IDS] + x[0]


def tied(p, x):
    hidden = p["w"][IDS].astype(F32) * p["s"][IDS]
    return (hidden + x[0]) @ (p["w"].astype(F32) * p["s"]).T


def grouped(p):
    return p["w"].astype(F32).reshape(2, 32, 48)


def hqq(p, x):
    return x @ ((grouped(p) - p["z"]) * p["g"]).reshape(64, 48)


def mlx(p, x):
    """Two codes a byte, a scale and the smallest number of each block."""
    both = jnp.stack([p["w"] & 15, p["w"] >> 4], 1).reshape(2, 32, 48).astype(F32)
    return x @ (both * p["g"] + p["m"]).reshape(64, 48)


def tinygemm(p, x):
    """The number in the middle of the codes."""
    return x @ ((grouped(p) - 8) * p["g"] + p["m"]).reshape(64, 48)


def signed_bytes(p, x):
    return x @ (grouped(p) * p["g"] + p["m"]).reshape(64, 48)


def k_means(p, x):
    return x @ p["t"][p["w"].astype(jnp.int32)]


def k_means_in_blocks(p, x):
    numbers = p["t"][p["w"].astype(jnp.int32)].reshape(2, 32, 48)
    return x @ (numbers * p["g"]).reshape(64, 48)


def ldexp(p, x):
    return x @ jnp.ldexp(grouped(p), p["e"]).reshape(64, 48)


def desc_act(p, x):
    """GPTQ: the group of each row, in the order in which rows were quantized."""
    return x @ ((p["w"].astype(F32) - p["z"][p["i"], 0]) * p["g"][p["i"], 0])


def dora(p, x):
    """LoRA, and each column of a length of its own."""
    w = p["w"].astype(F32) * p["s"] + p["a"] @ p["b"]
    return x @ (w / jnp.linalg.norm(w, axis=0, keepdims=True) * p["l"])


ORDER = {"i": RNG.permutation(np.repeat(np.arange(2), 32)).astype(np.int32)}
EXPONENTS = {"e": RNG.integers(-6, 0, (2, 1, 48)).astype(np.int32)}
GROUPS = {
    "g": RNG.uniform(0.1, 1, (2, 1, 48)).astype(np.float32),
    "m": RNG.uniform(-5, 5, (2, 1, 48)).astype(np.float32),
    "z": RNG.uniform(3, 12, (2, 1, 48)).astype(np.float32),
}
BOOK = {"t": RNG.standard_normal(16).astype(np.float32)}
FOUR = RNG.standard_normal(4).astype(np.float32)
STACK, TABLE = codes((3, 64, 64)), codes((64, 64), -128)
CASES = {  # how the model computes, its weight, others, the format that is stored, its codes
    "bits": (bits, packed(c := codes((64, 48))), {"s": SCALE}, "int4", c),
    "pairs": (pairs, packed((c := codes((64, 48))) + 8), {"s": SCALE}, "int4", c),
    "added": (added, c := codes((64, 48), 0, 256).astype(np.uint8), {"s": SCALE}, "uint8", c),
    "signs": (signs, c := codes((64, 48)) > 0, {"s": SCALE}, "int4", np.where(c, 1, -1)),
    "halves": (halves, packed((c := codes((64, 48))) + 8), {"s": SCALE}, "uint4", c + 8),
    "update": (update, c := codes((64, 48), -128, 128).astype(np.int8), LOW, "int8", c),
    "both ways": (both_ways, c := codes((64, 48), -128, 128).astype(np.int8), {}, "int8", c),
    "scan": (scan, c := codes((3, 64, 64), -128, 128).astype(np.int8), {"s": LAYERS}, "int8", c),
    "scan of nibbles": (
        scan_of_nibbles, np.stack([packed(layer) for layer in STACK]), {"s": LAYERS}, "int4", STACK,
    ),
    "rows": (rows, c := codes((64, 64), -128, 128).astype(np.int8), {"s": ROWS}, "int8", c),
    "rows of nibbles": (
        rows_of_nibbles, packed((c := codes((64, 64))).T + 8).T, {"s": ROWS}, "uint4", c + 8,
    ),
    "hqq": (hqq, c := codes((64, 48), 0, 16).astype(np.uint8), GROUPS, "uint4_min", c),
    "mlx": (mlx, packed(c := codes((64, 48), 0, 16)), GROUPS, "uint4_min", c),
    "tinygemm": (
        tinygemm, c := codes((64, 48), 0, 16).astype(np.uint8), GROUPS, "uint4_min", c,
    ),
    "signed bytes": (
        signed_bytes, c := codes((64, 48), -128, 128).astype(np.int8), GROUPS, "uint8_min", c,
    ),
    "k-means": (k_means, c := codes((64, 48), 0, 16).astype(np.uint8), BOOK, "codebook4", c),
    "k-means of 4": (
        k_means, c := codes((64, 48), 0, 4).astype(np.uint8), {"t": FOUR}, "codebook2", c,
    ),
    "k-means in blocks": (
        k_means_in_blocks, c := codes((64, 48), 0, 16).astype(np.uint8), GROUPS | BOOK,
        "codebook4", c,
    ),
    "ldexp": (ldexp, c := codes((64, 48)).astype(np.int8), EXPONENTS, "int8", c),
    "desc_act": (
        desc_act, c := codes((64, 48), 0, 16).astype(np.uint8), GROUPS | ORDER, "uint4_min", c,
    ),
    "dora": (
        dora, c := codes((64, 48), -128, 128).astype(np.int8), LOW | {"l": SCALE}, "int8", c,
    ),
    "tied": (tied, c := codes((64, 64), -128, 128).astype(np.int8), {"s": ROWS}, "int8", c),
}  # fmt: skip


@pytest.fixture(scope="module", params=["float", "int8-dynamic"])
def levels(request):
    """All cases in one program: nothing is encoded anew."""

    def forward(p, x):
        return {name: case[0](p[name], x) for name, case in CASES.items()}

    params = {n: {"s": SCALE} | case[2] | {"w": case[1]} for n, case in CASES.items()}
    model = jq.Model(forward, params, (X,))
    strict = {"strict_encodings": True, "recovery": False}
    found = jq.rewrite(model, pipeline=request.param, settings=strict)
    planned = jq.plan(model, pipeline=request.param, settings=strict)
    return request.param, found, jax.jit(forward)(params, X), planned


def test_codes_are_kept(levels):
    _, found, *_ = levels
    program = found["qdq"]
    for name, (*_, fmt, want) in CASES.items():
        own = [n for n in program.encodings if n.split("#")[0] == f"{name}/w"]
        assert [program.encodings[n]["format"] for n in own] == [fmt] * len(own), name
        assert len(own) == (2 if name == "halves" else 1), name
        got = np.concatenate([stored(program, n).reshape(-1) for n in own])
        unsigned = is_affine(fmt) and fmt.startswith("u")
        shift = (1 << (get_format(fmt).integer_bits - 1)) if unsigned else 0
        assert np.array_equal(np.sort(got + shift), np.sort(want.reshape(-1))), name


def test_the_plan_names_the_format(levels):
    rows = [(op, p) for op in levels[-1].ops for p in op.operands.values() if p.weight]
    for name, (*_, fmt, _) in CASES.items():
        own = [op.to_dict() for op, p in rows if p.weight.split("#")[0] == f"{name}/w"]
        assert own, name
        for row in own:
            assert row["weights"].startswith(f"{fmt} ") and "(stored)" in row["weights"], row
            assert row["decision"] in ("integer", "weight-only")


def stored(program, name):
    entry = program.encodings[name]
    parts = {k: program.weights[f"{name}:{k}"] for k in entry["parts"]}
    codes = get_format(entry["format"]).codes(NUMPY, parts, encoding_in(entry))
    return np.asarray(codes).astype(np.int64)


def test_the_program_computes_with_them(levels):
    pipeline, found, want, _ = levels
    results = evaluated(found["integer"], X)
    bound = 1e-5 if pipeline == "float" else 0.05
    for (name, ref), got in zip(sorted(want.items()), results, strict=True):
        assert np.abs(got - ref).max() <= bound * np.abs(ref).max(), name


def test_iree_computes_the_same(levels):
    """With kernels. What is quantized while it runs may be a code off: where functions of floats
    differ in the last place."""
    pipeline, found, *_ = levels
    bound = 1e-5 if pipeline == "float" else 2 / 127
    results = evaluated(found["integer"], X), run_iree(found["target"], [X])
    for name, want, got in zip(sorted(CASES), *results, strict=True):
        assert np.abs(got - want).max() <= bound * np.abs(want).max(), name


def test_a_scale_for_the_whole_stack(caplog):
    """Kernels cut a stack by layer: each has the scale again."""

    def forward(p, x):
        return lax.scan(lambda h, w: (jnp.tanh(h @ w.astype(F32) / 500), None), x, p["w"])[0]

    w = codes((3, 64, 64), -128, 128).astype(np.int8)
    found = jq.rewrite(jq.Model(forward, {"w": w}, (X,)), pipeline="float")
    (got,) = evaluated(found["integer"], X)
    np.testing.assert_allclose(got, jax.jit(forward)({"w": w}, X), rtol=1e-4, atol=1e-5)
    assert tuple(found["qdq"].encodings["w"]["block"]) == (1, 0, 0)
    assert "decode_dot" in str(found["target"].module)


def test_rows_in_any_order_are_stored_for_products_alone(caplog):
    """A sum of a weight itself reads its rows where they were; groups of several sizes stay."""
    w = codes((64, 48), 0, 16).astype(np.uint8)
    found = jq.rewrite(jq.Model(desc_act, GROUPS | ORDER | {"w": w}, (X,)), pipeline="float")
    rows = np.argsort(ORDER["i"], kind="stable")
    rows = rows if ORDER["i"][0] == 0 else np.roll(rows, 32)  # the first row's group is first
    assert np.array_equal(stored(found["qdq"], "w"), w[rows])
    assert tuple(found["qdq"].encodings["w"]["block"]) == (32, 1)

    def also_added(p, x):
        decoded = (p["w"].astype(F32) - p["z"][p["i"], 0]) * p["g"][p["i"], 0]
        return x @ decoded + decoded[:8]

    uneven = ORDER["i"].copy()
    uneven[np.flatnonzero(uneven == 0)[:5]] = 1
    for fn, order in ((also_added, ORDER["i"]), (desc_act, uneven)):
        caplog.clear()
        model = jq.Model(fn, GROUPS | {"i": order, "w": w}, (X,))
        assert not jq.rewrite(model, pipeline="float")["qdq"].encodings
        assert "w comes quantized in a way that no format has" in caplog.text


def test_codebooks_are_said(caplog):
    """One-hot rows times a table, a table for each channel, vectors of a book."""
    table = RNG.standard_normal((16, 48)).astype(np.float32)

    def forward(p, x):
        hot = jax.nn.one_hot(p["hot"], 16) @ p["t"][:, 0]
        channel = jnp.take_along_axis(p["t"], p["channel"].astype(jnp.int32), 0)
        vectors = jnp.moveaxis(p["book"][p["vectors"]], -1, 1).reshape(64, 48)
        return x @ hot, x @ channel, x @ vectors

    index = {k: codes((64, 48), 0, 16).astype(np.uint8) for k in ("hot", "channel")}
    index |= {"vectors": codes((8, 48), 0, 32).astype(np.uint8)}
    params = index | {"t": table, "book": RNG.standard_normal((32, 8)).astype(np.float32)}
    jq.plan(jq.Model(forward, params, (X,)), pipeline="int8-dynamic")
    for name in index:
        assert f"{name} comes quantized in a way that no format has" in caplog.text
