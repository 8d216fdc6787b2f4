"""Decoders against `transformers` (its logits are in transformers_logits.json), from safetensors
and from GGUF."""

from __future__ import annotations

import json
from functools import partial

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.formats.tensor import QuantizedTensor
from jq.language.decoder import load_decoder
from jq.language.decoder.network import empty, step
from jq.language.decoder.program import decoder_model
from tests.support import decoders
from tests.support.decoders import CASES, write_folder, write_gguf

# Kept in files as float32 with 7 digits; both sides sum a few hundred float32 products a logit.
TOLERANCE = 5e-5
# llama.cpp's llama has no windows; its file cannot say which layers of qwen2 have one, nor how
# gemma2 scales scores, nor that shares are not to add up to 1.
NO_GGUF = {"mistral", "qwen2-window", "gemma2-scale", "qwen3-shares"}
# Numbers that llama.cpp has in its own code; architectures that it has not, or whose files here
# would be those of no converter.
NO_GGUF |= {"llama4", "minicpm3", "ministral", "glm", "deepseek3"}
NO_GGUF |= {"glm4-latent", "youtu", "internlm3", "vaultgemma", "helium"}
NO_GGUF |= {"solar-open", "opt", "cohere2-whole", "flex-olmo", "bamba"}
NO_GGUF |= {"gpt-neo", "gpt-j", "hyperclovax", "phi-experts"}
NO_GGUF |= {"gemma4-keys", "gemma3-exact-gelu", "deepseek3-groups", "stablelm-heads"}
NO_GGUF |= {"falcon-h1-gelu", "falcon-h1-biases", "phi-heads", "deepseek3-halves"}
QUICK = {"xla_backend_optimization_level": 0}  # most of the time is the compiler's
PIECES = {"gemma3": (0, 1, 6, 10), "llama": (0, 3, 11)}
# Layers with a state: token by token at first, and a piece that is no power of two.
STATES = {"lfm2", "qwen3.5", "granite4", "falcon-h1", "deepseek2", "gemma4"}


def logits_of(decoder, tokens, pieces=(0,)):
    """f32[tokens, vocabulary] by plain JAX, the prompt taken in in pieces that begin there."""
    config, capacity = decoder.config, 32
    params = jax.tree.map(np.asarray, decoder.parameters(capacity))
    caches = empty(config, 1, capacity)
    rows, run = [], jax.jit(partial(step, config), compiler_options=QUICK)
    with jax.default_matmul_precision("highest"):
        for start, end in zip(pieces, (*pieces[1:], len(tokens)), strict=True):
            piece = jnp.asarray(tokens[start:end], jnp.int32)[None]
            logits, caches = run(params, piece, jnp.int32(start), caches)
            rows.append(np.asarray(logits[0]))
    return np.concatenate(rows)


def assert_equal(case, got):
    want = np.array(CASES[case]["logits"], np.float32)
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("case", CASES)
def test_safetensors(case, tmp_path):
    decoder = load_decoder(write_folder(case, tmp_path / "model", shards=2 if "3" in case else 1))
    pieces = (0, 1, 9) if case in STATES else (0,)
    assert_equal(case, logits_of(decoder, CASES[case]["tokens"], pieces))


@pytest.mark.parametrize("case", [c for c in CASES if c not in NO_GGUF])
def test_gguf(case, tmp_path):
    decoder = load_decoder(write_gguf(case, tmp_path / "model.gguf"))
    assert_equal(case, logits_of(decoder, CASES[case]["tokens"], PIECES.get(case, (0,))))


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 0},
        {"num_attention_heads": 3},
        {"head_dim": 15},
        {"hidden_size": 1.5},
        {"rms_norm_eps": 0},
        {"rope_parameters": [1]},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10.0, "factor": 0}},
        {"rope_parameters": {"rope_type": "spiral", "rope_theta": 10.0}},
        {"num_local_experts": 2, "num_experts_per_tok": 3},
        {"hidden_act": "mystery"},
        {"num_hidden_layers": 10**9},
        {"vocab_size": 49},
        {"sliding_window": 4, "layer_types": "all"},
    ],
)
def test_configs_that_describe_no_model_are_refused(tmp_path, change):
    folder = write_folder("llama", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError):
        load_decoder(folder)


def test_damaged_safetensors_are_refused_with_the_offset(tmp_path):
    folder = write_folder("llama", tmp_path / "model")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for damaged, reason in (
        (whole[:-8], "byte"),
        (whole[:4], "header"),
        (b"\xff" * 8 + whole[8:], "does not fit"),
        (whole[:8] + b"[" + whole[9:], "byte 8"),
        (whole.replace(b'"F32"', b'"F99"', 1), "F99"),
        (whole.replace(b"model.norm.weight", b"model.harm.weight", 1), "harm"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=reason):
            load_decoder(folder)


def test_safetensors_that_are_not_there(tmp_path):
    """The weights are of another form, or one of several files is missing."""
    folder = write_folder("llama", tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"no model.safetensors .*; .*\.bin: save_pretrained"):
        load_decoder(folder)
    parts = write_folder("llama", tmp_path / "parts", shards=2)
    (parts / "model-1.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-1.safetensors is missing.*index.json"):
        load_decoder(parts)


def test_an_unknown_architecture_is_named(tmp_path):
    folder = write_folder("llama", tmp_path / "model")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"llama"', '"mamba"'))
    with pytest.raises(UserError, match="mamba"):
        load_decoder(folder)


def test_a_part_of_a_model_is_refused(tmp_path, monkeypatch):
    def metadata(writer, *given, plain=decoders._metadata):
        plain(writer, *given)
        writer.add_uint16("split.count", 3)

    monkeypatch.setattr(decoders, "_metadata", metadata)
    with pytest.raises(UserError, match="one of 3 parts"):
        load_decoder(write_gguf("llama", tmp_path / "model.gguf"))


@pytest.mark.parametrize("kind", ["Q8_0", "BF16", "F32"])
def test_a_fused_matrix_is_cut_without_a_copy(tmp_path, kind):
    """Into queries, keys and values in the file's own format, for what reads only some in finer
    codes."""
    which = gguf.GGMLQuantizationType[kind]
    file = write_gguf("phi3", tmp_path / "m.gguf", lambda n, a: which if a.ndim > 1 else None)
    decoder = load_decoder(file)
    model = decoder_model(decoder, 3, 16)
    fused = decoder.params["layers"]["0"]["attention"]["qkv"]["weight"]
    found = model.params["layers"]["0"]["attention"]
    assert "qkv" not in found
    parts = [found[name]["weight"] for name in ("query", "key", "value")]
    np.testing.assert_array_equal(np.concatenate([np.asarray(p) for p in parts]), fused)
    if isinstance(fused, QuantizedTensor):
        for part in parts:
            assert part.encoding.format == fused.encoding.format
            assert np.shares_memory(part.parts["blocks"], fused.parts["blocks"])
    tokens = np.array([[3, 4, 5]], np.int32)
    shape = (1, 16, decoder.config.kv_heads, decoder.config.head)
    caches = [(np.zeros(shape, np.float32),) * 2] * 2
    with jax.default_matmul_precision("highest"):
        whole = step(
            decoder.config,
            jax.tree.map(np.asarray, decoder.parameters(16)),
            tokens,
            jnp.int32(0),
            caches,
        )[0]
        cut = step(
            decoder.config, jax.tree.map(np.asarray, model.params), tokens, jnp.int32(0), caches
        )[0]
    np.testing.assert_allclose(cut, whole, rtol=1e-5, atol=1e-6)


TURNS = 10000.0 ** -np.linspace(0, 1, 8, endpoint=False)  # of the cases' heads of 16
FACTORS = np.array([1, 1, 1.5, 2, 2, 3, 4, 5], np.float32)
YARN = {"scaling.type": "yarn", "scaling.factor": 4.0}


@pytest.mark.parametrize(
    ("case", "keys", "factors", "name", "frequencies", "scale"),
    [
        ("llama", {"scale_linear": 4.0}, None, "all", TURNS / 4, 1),
        ("llama", {"scaling.factor": 4.0}, FACTORS, "all", TURNS / 4 / FACTORS, 1),
        ("llama", {"scaling.attn_factor": 1.5}, None, "all", TURNS, 1.5),
        (
            "llama",
            YARN | {"scaling.attn_factor": 1.5},
            None,
            "all",
            None,
            1.5 * (1 + np.log(4) / 10),
        ),
        ("gemma2", {"freq_base_swa": 16.0}, None, "local", 16.0 ** -np.linspace(0, 1, 8, False), 1),
        ("gemma2", {"freq_base_swa": 16.0}, None, "all", TURNS, 1),
        ("gemma3", {"scaling.attn_factor": 1.5}, None, "local", TURNS, 1.5),
    ],
)
def test_rotary_positions_of_a_gguf_file(
    tmp_path, monkeypatch, case, keys, factors, name, frequencies, scale
):
    """llama.cpp's reading of keys that no case has: kinds of scaling go together."""

    def metadata(writer, config, architecture, plain=decoders._metadata):
        plain(writer, config, architecture)
        writer.add_rope_freq_base(10000.0)
        for key, value in keys.items():
            add = writer.add_string if isinstance(value, str) else writer.add_float32
            add(f"{architecture}.rope.{key}", value)
        if factors is not None:
            writer.add_tensor("rope_freqs.weight", factors)

    monkeypatch.setattr(decoders, "_metadata", metadata)
    config = load_decoder(decoders.write_gguf(case, tmp_path / "m.gguf")).config
    found = dict(config.ropes)[name]
    assert name in config.rope_of
    if frequencies is not None:
        np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-6)
    assert found.scale == pytest.approx(scale)


@pytest.mark.parametrize(("count", "sound"), [(1, True), (2, True), (3, False), (0, False)])
def test_numbers_of_activations_in_a_gguf_file(tmp_path, monkeypatch, count, sound):
    """One for each layer, or one for all."""

    def add(writer, key, values, plain=gguf.GGUFWriter.add_array):
        plain(writer, key, (values * 2)[:count] if "xielu" in key else values)

    monkeypatch.setattr(gguf.GGUFWriter, "add_array", add)
    path = write_gguf("apertus", tmp_path / "m.gguf")
    if sound:
        curve = load_decoder(path).params["layers"]["1"]["mlp"]["curve"]
        assert {node["weight"].shape for node in curve.values()} == {(1,)}
        return
    with pytest.raises(UserError, match="describes no known model"):
        load_decoder(path)
