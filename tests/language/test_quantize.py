"""GGUF files in other formats, read back by the `gguf` package."""

from __future__ import annotations

from functools import partial

import gguf
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.formats.arrays import NUMPY
from jq.formats.base import Encoding, get_format
from jq.frontends.gguf import load_gguf
from jq.language import quantize as quantize_module
from jq.language.decoder import load_decoder
from jq.language.decoder.layerwise import aimed, quantized_layers
from jq.language.quantize import fitted, quantize
from jq.passes.recovery._solve import best_factors
from tests.support.decoders import weights, write_gguf


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_gguf("mixtral", tmp_path_factory.mktemp("quantize") / "in.gguf")


def fields(path):
    reader = gguf.GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items()}, reader.tensors


def test_the_package_reads_the_same_model(source, tmp_path):
    rows = quantize(source, tmp_path / "out.gguf", "q8_0")
    before, tensors = fields(source)
    after, written = fields(tmp_path / "out.gguf")
    changed = {k for k in after if before.get(k) != after[k] and not k.startswith("GGUF.")}
    assert changed == {"general.file_type", "general.quantization_version"}
    assert after["general.file_type"] == 7
    assert [t.name for t in written] == [t.name for t in tensors] == [r["name"] for r in rows]
    for old, new in zip(tensors, written, strict=True):
        values = gguf.dequantize(new.data, new.tensor_type)
        if old.name.endswith(("norm.weight", "ffn_gate_inp.weight")):
            assert new.tensor_type == gguf.GGMLQuantizationType.F32
            assert np.array_equal(values, old.data)
        else:
            assert new.tensor_type == gguf.GGMLQuantizationType.Q8_0
            # Half a step, and the rounding of the scale to float16.
            steps = np.abs(old.data).max() / 127
            assert np.abs(values - old.data).max() <= steps * (0.5 + 2**-11 * 127)


def test_rows_that_a_super_block_does_not_divide_get_smaller_blocks(source, tmp_path):
    rows = {r["name"]: r["after"] for r in quantize(source, tmp_path / "out.gguf", "q4_k")}
    assert rows["blk.0.attn_q.weight"] == "Q5_0"  # 32 columns
    assert rows["token_embd.weight"] == "Q8_0"
    assert load_gguf(tmp_path / "out.gguf").tensors["blk.0.attn_q.weight"].shape == (64, 32)


def test_what_products_read_is_measured(source):
    """Inputs of the first product: the normalized rows of the table, computed by NumPy."""
    pieces, found = [[1, 5, 9, 30], [3, 5, 7, 2]], {}

    def encode(path, aim, gram):
        found[path] = aim().shape, gram

    assert [len(layer) for layer in quantized_layers(load_decoder(source), pieces, encode)] == [
        0,
        0,
    ]
    state = weights("mixtral")
    x = state["model.embed_tokens.weight"][np.ravel(pieces)]
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    x = x * state["model.layers.0.input_layernorm.weight"]
    _, gram = found["layers/0/attention/query/weight"]
    assert np.allclose(gram, x.T @ x / len(x), rtol=1e-3, atol=1e-5)
    assert found["layers/1/mlp/experts/3/down/weight"][0] == (32, 64)


def test_layers_make_up_for_those_before_them(source):
    """The input of the second layer is what the first one gives with its own new weights."""
    pieces, grams = [[1, 5, 9, 30]], []

    def encode(factor, path, aim, gram):
        if path == "layers/1/attention/query/weight":
            grams.append(gram)
        return factor * aim() if path.startswith("layers/0/") else None

    for factor in (1, 0):
        list(quantized_layers(load_decoder(source), pieces, partial(encode, factor)))
    x = weights("mixtral")["model.embed_tokens.weight"][pieces[0]]  # nothing is added to it
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    x = x * weights("mixtral")["model.layers.1.input_layernorm.weight"]
    assert np.allclose(grams[1], x.T @ x / len(x), rtol=1e-3, atol=1e-5)
    assert not np.allclose(grams[0], grams[1], rtol=0.1)


def test_weights_aim_at_what_makes_up_for_their_inputs():
    """Closer to the products with the model's own inputs, by half of the way; not from few rows."""
    rng = np.random.default_rng(5)
    w = rng.standard_normal((8, 16)).astype(np.float32)
    theirs = rng.standard_normal((400, 16)).astype(np.float32)
    ours = theirs @ (np.eye(16) + 0.2 * rng.standard_normal((16, 16))).astype(np.float32)
    moments = [ours.T @ x / len(ours) for x in (ours, theirs - ours)]
    wanted = theirs @ w.T
    before, after = (np.square(ours @ a.T - wanted).sum() for a in (w, aimed(w, *moments, 400)))
    assert after < 0.5 * before
    assert np.array_equal(aimed(w, *moments, 31), w)


def test_a_text_chooses_the_codes_of_every_matrix(source, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abc bca cab " * 60)
    plain, fitted = (tmp_path / name for name in ("plain.gguf", "fitted.gguf"))
    rows = quantize(source, plain, "q4_0")
    assert quantize(source, fitted, "q4_0", [text], limit=2) == rows
    before, after = (load_gguf(path).tensors for path in (plain, fitted))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    fitted_rows = [r for r in rows if r["name"].startswith("blk.") and r["after"] == "Q4_0"]
    assert changed == {r["name"] for r in fitted_rows}
    assert fields(fitted)[1][0].tensor_type == fields(plain)[1][0].tensor_type


GGML = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
GGML += ["iq4_nl", "iq4_xs", "iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m"]
GGML += ["tq1_0", "tq2_0"]


@pytest.mark.parametrize("kind", GGML)
def test_products_change_less(kind):
    """With correlated inputs; the `gguf` package decodes what is stored."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 512)).astype(np.float32)
    x = rng.standard_normal((2000, 32)) @ rng.standard_normal((32, 512))
    x += 0.3 * rng.standard_normal(x.shape)
    gram = (x.T @ x / len(x)).astype(np.float32)
    number = gguf.GGMLQuantizationType[kind.upper()]
    fmt, enc = (
        get_format(kind),
        Encoding(kind, w.shape, get_format(kind).default_block(w.shape, -1)),
    )

    def error(blocks):
        d = gguf.dequantize(blocks.view(np.uint8).reshape(len(w), -1), number) - w
        return float((d * (d @ gram)).sum())

    plain = error(fmt.encode(w, enc, np.diag(gram))["blocks"])
    assert error(fitted(kind, w, gram).parts["blocks"]) < 0.35 * plain


@pytest.mark.parametrize("kind", [*GGML, "ggml_mxfp4"])
def test_codes_go_back_to_where_they_were(kind):
    x = np.random.default_rng(1).standard_normal((4, 512)).astype(np.float32)
    fmt = get_format(kind)
    enc = Encoding(kind, x.shape, fmt.default_block(x.shape, -1))
    parts = fmt.encode(x, enc)
    codes = np.asarray(fmt.integer_parts(NUMPY, parts, enc)[0]).astype(int)
    assert codes.min() >= fmt.limits[0]
    assert codes.max() <= fmt.limits[1]
    other = fmt.with_codes(parts, codes * 0, enc)
    assert not np.array_equal(other["blocks"], parts["blocks"])
    assert np.array_equal(fmt.with_codes(other, codes, enc)["blocks"], parts["blocks"])


@pytest.mark.parametrize("kind", [*GGML, "ggml_mxfp4"])
def test_blocks_times_factors(kind):
    """The `gguf` package decodes them. Powers of two are exact; what has no float16 stays."""
    fmt, rng = get_format(kind), np.random.default_rng(0)
    x = rng.standard_normal((4, 512), np.float32)
    blocks = fmt.encode(x, Encoding(kind, x.shape, (1, fmt.block)))["blocks"]
    number = gguf.GGMLQuantizationType[kind.removeprefix("ggml_").upper()]
    factors = np.ldexp(np.float32(1), rng.integers(-2, 3, blocks.shape[:2])).astype(np.float32)

    def decoded(blocks):
        return gguf.dequantize(blocks.view(np.uint8).reshape(4, -1), number)

    want = decoded(blocks) * np.repeat(factors, fmt.block, axis=1)
    if kind in ("iq1_m", "ggml_mxfp4"):
        assert not fmt.halves
        want = decoded(blocks)
    assert np.array_equal(decoded(fmt.times(blocks, factors)), want)
    huge = np.full_like(factors, np.float32(1e30))
    assert np.array_equal(fmt.times(blocks, huge), blocks)


@pytest.mark.parametrize("kind", ["q4_1", "q5_1"])
@pytest.mark.parametrize("large", [False, True])
def test_two_scales_change_together(kind, large):
    """A block stays as it is if one of them is rounded to few bits, or is too large."""
    fmt, rng = get_format(kind), np.random.default_rng(0)
    x = (rng.standard_normal((8, 512)) * 0.05).astype(np.float32)
    x = np.where(x < x.min() + 0.01, np.float32(-6e4), x) if large else x * np.float32(1e-5)
    enc = Encoding(kind, x.shape, (1, fmt.block))
    parts = fmt.encode(x, enc)
    blocks, factors = parts["blocks"], np.full((8, 512 // fmt.block), np.float32(1.13))
    value, times = (
        np.asarray(fmt.decode(NUMPY, {"blocks": b}, enc), np.float64).reshape(-1, fmt.block)
        for b in (blocks, fmt.times(blocks, factors))
    )
    changed = (fmt.times(blocks, factors) != blocks).any(-1).reshape(-1)
    assert np.array_equal(times[~changed], value[~changed])
    error = abs(times - np.float32(1.13) * value)[changed]
    assert not changed.all()
    assert (error <= 2**-8 * abs(value).max(1, keepdims=True)[changed]).all()


def test_scales_are_the_best_for_the_codes():
    """Factors that were taken out are found; with noise, no other ones are better."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((64, 6)).astype(np.float32)
    x = rng.standard_normal((500, 64)) @ (np.eye(64) + 0.3 * rng.standard_normal((64, 64)) / 8)
    gram = (x.T @ x / len(x)).astype(np.float32)
    gone = rng.uniform(0.5, 2, (2, 6)).astype(np.float32)
    whole = np.repeat(gone, 32, axis=0)
    assert np.allclose(best_factors(w / whole, w, gram, 32), gone, rtol=1e-3)
    values = w / whole + 0.1 * rng.standard_normal(w.shape).astype(np.float32)
    found = best_factors(values, w, gram, 32)
    damped = gram + 0.1 * np.trace(gram) / 64 * np.eye(64)

    def lost(factors):
        d = values * np.repeat(factors, 32, axis=0) - w
        return (d * (damped @ d)).sum(axis=0)

    for other in (found * 1.02, found * 0.98, found * [[1.02], [1]], found * [[1], [1.02]]):
        assert (lost(found) <= lost(other) + 1e-6).all()


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "q5_0", "iq4_nl"])
def test_scales_follow_the_codes(kind, monkeypatch):
    rng = np.random.default_rng(4)
    w = rng.standard_normal((32, 256)).astype(np.float32)
    x = rng.standard_normal((600, 256)) @ (np.eye(256) + rng.standard_normal((256, 256)) / 16)
    gram = (x.T @ x / len(x)).astype(np.float32)

    def error():
        d = np.asarray(fitted(kind, w, gram), np.float32) - w
        return float((d * (d @ gram)).sum())

    ours = error()
    none = partial(np.ones, (256 // get_format(kind).block, 32), np.float32)
    monkeypatch.setattr(quantize_module, "best_factors", lambda *given: none())
    assert ours < 0.995 * error()


@pytest.mark.parametrize("kind", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_what_matters_is_kept_better(kind):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 512), np.float32)
    importance = np.exp(2 * rng.standard_normal(512)).astype(np.float32)
    fmt, enc = get_format(kind), Encoding(kind, x.shape, (1, 256))

    def error(parts):
        return float((np.square(fmt.to_numpy(parts, enc) - x) * importance).sum())

    assert error(fmt.encode(x, enc, importance)) < 0.8 * error(fmt.encode(x, enc))
    nothing = fmt.encode(x, enc, np.zeros(512, np.float32))  # no text said anything
    assert error(nothing) < 1.1 * error(fmt.encode(x, enc))


def test_mistakes_are_refused(source, tmp_path):
    with pytest.raises(UserError, match="q9"):
        quantize(source, tmp_path / "out.gguf", "q9")
    with pytest.raises(UserError, match="own place"):
        quantize(source, source, "q8_0")
    short = tmp_path / "short.txt"
    short.write_text("abc")
    with pytest.raises(UserError, match="tokens"):
        quantize(source, tmp_path / "out.gguf", "q4_k", [short])
    assert not (tmp_path / "out.gguf").exists()
