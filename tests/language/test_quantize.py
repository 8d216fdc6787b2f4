"""GGUF files in other formats, read back by the `gguf` package."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from jq.errors import UserError
from jq.formats.base import Encoding, get_format
from jq.gguf import load_gguf
from jq.language.quantize import quantize
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
    assert [t.name for t in written] == [t.name for t in tensors] == [r.name for r in rows]
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
    rows = {r.name: r.after for r in quantize(source, tmp_path / "out.gguf", "q4_k")}
    assert rows["blk.0.attn_q.weight"] == "Q5_0"  # 32 columns
    assert rows["token_embd.weight"] == "Q8_0"
    assert load_gguf(tmp_path / "out.gguf").tensors["blk.0.attn_q.weight"].shape == (64, 32)


def test_importance_is_the_mean_square_of_what_comes_in(source, tmp_path):
    """Of the first product: the normalized rows of the table, computed by NumPy."""
    from jq.models.decoder import load_decoder
    from jq.models.decoder.importance import importance_of

    tokens = [1, 5, 9, 30]
    found = importance_of(load_decoder(source), [tokens])
    state = weights("mixtral")
    x = state["model.embed_tokens.weight"][tokens]
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    x = x * state["model.layers.0.input_layernorm.weight"]
    want = (x * x).mean(0)
    assert np.allclose(found["layers/0/attention/query/weight"], want, rtol=1e-4)
    assert found["layers/1/mlp/experts/3/down/weight"].shape == (64,)
    text = tmp_path / "text.txt"
    text.write_text("abc " * 200)
    assert quantize(source, tmp_path / "out.gguf", "q4_k", [text], limit=1)


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
