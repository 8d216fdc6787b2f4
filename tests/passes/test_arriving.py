"""Weights that arrive quantized keep their codes to the bit, whatever format they are in."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from jq.formats import get_format
from jq.formats.floats import NORMAL_QUANTILES
from jq.ir.encodings import encoding_in
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 64)).astype(np.float32)
W8 = X.repeat(12, 0)[:48].T
C4 = RNG.integers(-8, 8, (64, 48))
C8 = RNG.integers(-128, 128, (64, 48))
S = RNG.uniform(0.1, 1, (1, 48)).astype(np.float32)
TILES = RNG.uniform(0.1, 1, (2, 1, 48)).astype(np.float32)
F32 = jnp.float32


def scaled(p):
    return p["w"].astype(F32) * p["s"]


def shifted(p):
    return (p["w"].astype(F32) - 7) * p["s"]


def tiled(p):
    return (p["w"].astype(F32).reshape(2, 32, 48) * p["s"]).reshape(64, 48)


def nibbles(p):
    """Two codes a byte, the lower one first."""
    both = jnp.stack([p["w"] & 15, p["w"] >> 4], 1).reshape(64, 48)
    return (both.astype(F32) - 8) * p["s"]


def narrow(p):
    return p["w"].astype(jnp.bfloat16) * p["s"]


def quantiles(p):
    return jnp.asarray(NORMAL_QUANTILES, F32)[p["w"]] / p["s"]


def subtracted(p):
    """Zero points of integers, as ONNX and TFLite have them."""
    return (p["w"].astype(jnp.int32) - ZEROS).astype(F32) * p["s"]


def words(p):
    """GPTQ: eight codes a word along the summed axis, groups by their index, zero points less 1."""
    codes = (p["w"][:, None] >> jnp.arange(0, 32, 4, dtype=jnp.uint32)[:, None]) & 15
    group = jnp.arange(64) // 32
    shifted = codes.reshape(64, 48).astype(jnp.int32) - jnp.asarray(GROUP_ZEROS + 1)[group]
    return p["s"].reshape(2, 48)[group] * shifted.astype(F32)


def ternary(p):
    """BitNet: four of -1, 0, 1 a byte, in planes."""
    planes = [(p["w"] >> (2 * i)) & 3 for i in range(4)]
    return (jnp.concatenate(planes, 1).astype(jnp.int8) - 1).astype(F32) * p["s"]


def microscaled(p):
    """GPT-OSS: the elements of e2m1 from a table, and exponents of blocks of 32."""
    codes = jnp.stack([p["w"] & 15, p["w"] >> 4], -1).reshape(48, 2, 32)
    elements = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = jnp.asarray(np.concatenate([elements, -elements]))[codes]
    return (values * jnp.exp2(p["s"].astype(F32) - 127)[..., None]).reshape(48, 64).T


def typed(codes, name):
    return np.asarray(codes).astype(getattr(ml_dtypes, name, name))


ZEROS = RNG.integers(100, 150, 48).astype(np.int32)
GROUP_ZEROS = RNG.integers(0, 15, (2, 48)).astype(np.int32)
WORDS = sum((C4[i::8] + 8).astype(np.uint32) << (4 * i) for i in range(8))
PLANES = sum(RNG.integers(0, 3, (64, 12)) << (2 * i) for i in range(4)).astype(np.uint8)
PAIRS = RNG.integers(0, 256, (48, 32)).astype(np.uint8)
EXPONENTS = RNG.integers(120, 125, (48, 2)).astype(np.uint8)
PACKED = (C4[::2] + 8 + ((C4[1::2] + 8) << 4)).astype(np.uint8)
CASES = {  # weight, scale, how the model decodes it, format, blocks, bytes stored
    "int4": (typed(C4, "int4"), S, scaled, "int4", (0, 1), 1536 + 192),
    "uint4": (typed(C4 + 8, "uint4"), S, shifted, "uint4", (0, 1), 1536 + 192 + 24),
    "int2": (typed(C4 % 4 - 2, "int2"), S, scaled, "int2", (0, 1), 768 + 192),
    "uint8": (typed(C8 + 128, "uint8"), S, shifted, "uint8", (0, 1), 3072 + 192 + 48),
    "int16": (typed(C8 * 100, "int16"), S, scaled, "int16", (0, 1), 6144 + 192),
    "fp8": (typed(W8, "float8_e4m3fn"), S, scaled, "float8_e4m3fn", (0, 1), 3264),
    "e5m2": (typed(W8, "float8_e5m2"), S[:, :1], scaled, "float8_e5m2", (0, 0), 3076),
    "tiles": (typed(C4, "int4"), TILES, tiled, "int4", (32, 1), 1920),
    "tiles of bytes": (typed(C8, "int8"), TILES, tiled, "int8", (32, 1), 3456),
    "nibbles": (PACKED, S, nibbles, "uint4", (0, 1), 1536 + 192),  # 8 is the middle
    "bf16 scales": (typed(C8, "int8"), typed(S, "bfloat16"), narrow, "int8", (0, 1), 3072 + 96),
    "integer zeros": (typed(C8 + 128, "uint8"), S, subtracted, "uint8", (0, 1), 3072 + 192 + 48),
    "words": (WORDS, TILES, words, "uint4", (32, 1), 1536 + 384 + 48),
    "ternary": (PLANES, S[:, :1], ternary, "int2", (0, 0), 768 + 4),
    "microscaled": (PAIRS, EXPONENTS, microscaled, "mxfp4", (1, 32), 1536 + 96),
    "quantiles": (typed(C4 + 8, "uint4"), S, quantiles, "nf4", (0, 1), 1536 + 192),
}  # fmt: skip


@pytest.fixture(scope="module")
def float_levels():
    """All cases in one program."""

    def forward(p, x):
        weights = [c[2]({"w": p[n], "s": p[f"{n}.s"]}) for n, c in CASES.items()]
        return [x.astype(w.dtype) @ w for w in weights]

    params = {n: c[0] for n, c in CASES.items()} | {f"{n}.s": c[1] for n, c in CASES.items()}
    model = jq.Model(forward, params, (X,))
    return jq.rewrite(model, pipeline="int8-weight-only"), jax.jit(forward)(params, X)


@pytest.mark.parametrize("name", CASES)
def test_codes_are_kept(float_levels, name):
    program = float_levels[0]["qdq"]
    weight, scale, decode, fmt, block, nbytes = CASES[name]
    entry = program.encodings[name]
    assert (entry["format"], tuple(entry["block"])) == (fmt, block)
    enc, parts = encoding_in(entry), {k: program.weights[f"{name}:{k}"] for k in entry["parts"]}
    assert sum(a.nbytes for a in parts.values() if a is not parts.get("sum")) == nbytes
    want = np.asarray(decode({"w": jnp.asarray(weight), "s": jnp.asarray(scale)}))
    want = want.T if want.shape != enc.shape else want
    got = np.asarray(get_format(enc.format).to_numpy(parts, enc)).astype(want.dtype)
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2.0**-22)


def test_the_program_computes_with_them(float_levels):
    levels, want = float_levels
    for name, got, ref in zip(CASES, evaluated(levels["integer"], X), want, strict=True):
        tolerance = 2.0**-7 if ref.dtype == jnp.bfloat16 else 1e-5
        most = float(np.abs(np.float32(ref)).max())
        error = np.abs(np.float32(got) - np.float32(ref)).max()
        assert error <= tolerance * most * 4, name


def test_what_no_format_holds_is_said(caplog):
    """Numbers that are no multiples of their codes."""
    squares = lambda p, x: x @ (p["w"].astype(F32) ** 2 * p["s"])  # noqa: E731
    model = jq.Model(squares, {"w": C8.astype(np.int8), "s": S}, (X,))
    assert not jq.rewrite(model, pipeline="float")["float"].encodings
    assert "w comes quantized in a way that no format has" in caplog.text


def cubes(p):
    return p["w"].astype(F32) ** 3 * p["s"]


def from_a_table(p):
    return jnp.asarray(RNG.standard_normal(200), F32)[p["w"]]


UNKNOWN = {
    "cubes": (cubes, {"w": C8.astype(np.int8), "s": S}),
    "a large table": (from_a_table, {"w": (C8 + 50).astype(np.uint8) % 200}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_forms_that_nobody_knows_are_said(name, caplog):
    decode, params = UNKNOWN[name]
    model = jq.Model(lambda p, x: x @ decode(p), params, (X,))
    jq.plan(model, pipeline="int8-dynamic")
    assert "w comes quantized in a way that no format has" in caplog.text
    with pytest.raises(jq.UserError, match="would be encoded anew"):
        jq.plan(model, pipeline="float", strict_encodings=True)


def test_positions_and_masks_are_no_codes(caplog):
    def forward(p, x):
        hot = jax.nn.one_hot(p["index"], 48) * p["s"]
        return x @ hot + x @ p["table"][p["index"]] @ jnp.where(p["mask"] > 0, p["square"], 0)

    params = {"index": (np.arange(64) % 48).astype(np.int32), "table": W8, "s": S}
    params |= {"mask": np.ones((48, 48), np.int8), "square": W8[:48]}
    model = jq.Model(forward, params, (X,))
    jq.plan(model, pipeline="int8-dynamic", strict_encodings=True)
    assert "quantized in a way" not in caplog.text


def test_an_activation_that_the_target_cannot_take_is_said(caplog):
    def forward(p, x):
        codes = jnp.round(x * 8).astype(jnp.int8)
        return (codes.astype(F32) * p["rows"]) @ p["w"]

    model = jq.Model(forward, {"w": W8, "rows": S[:, :4].T}, (X,))
    settings = {"activations.mode": "dynamic"}
    (op,) = jq.plan(model, settings=settings, target="npu-per-tensor").ops
    assert "encoded anew" in op.to_dict()["reason"]
    assert "encoded anew" in caplog.text
    with pytest.raises(jq.UserError, match="encoded anew"):
        jq.plan(model, settings=settings, target="npu-per-tensor", strict_encodings=True)


def test_an_axis_of_one_index_has_one_set_of_parameters():
    params = {"w": typed(W8[:, :1], "float8_e4m3fn"), "s": S[:, :1]}
    model = jq.Model(lambda p, x: x @ scaled(p), params, (X,))
    program = jq.rewrite(model, pipeline="float")["integer"]
    assert [tuple(e["block"]) for e in program.encodings.values()] == [(0, 0)]
    want = X @ np.asarray(scaled(params), np.float32)
    np.testing.assert_allclose(evaluated(program, X)[0], want, rtol=1e-5)
