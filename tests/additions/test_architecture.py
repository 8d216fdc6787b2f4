"""A new architecture of language models is one description: its name, and what its files call
things."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jq
from jq.base.errors import InternalError
from jq.language.decoder import load_decoder
from jq.language.decoder.architectures import FULL, Architecture, names
from jq.language.decoder.mixers import Mixer
from jq.language.decoder.network import empty, step
from jq.language.decoder.products import dense
from tests.support.decoders import CASES, weights, write_gguf


def logits(path, tokens):
    decoder = load_decoder(path)
    config, count = decoder.config, len(tokens)
    caches = empty(config, 1, count)
    params = decoder.parameters(count)
    found, _ = step(config, params, jnp.asarray([tokens]), jnp.int32(0), caches)
    return np.asarray(found[0])


def test_an_architecture(tmp_path):
    with pytest.raises(jq.UserError, match="unknown model type 'made_up'"):
        load_decoder(folder(tmp_path / "unknown"))
    others = {
        o: theirs.replace("model.", "made_up.") for o, theirs in names.ALL.hugging_face.items()
    }
    Architecture("made-up", {"made_up": FULL}, names=names.ALL._replace(hugging_face=others))

    case = CASES["llama"]
    want = np.array(case["logits"], np.float32)
    got = logits(folder(tmp_path / "model"), case["tokens"])
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-5 * np.abs(want).max())
    with pytest.raises(InternalError, match="architecture 'made-up' is defined twice"):
        Architecture("made-up", {})


def test_an_architecture_in_gguf_files(tmp_path):
    """The keys of its metadata begin with its name, and its tensors are Llama's by default."""
    path = write_gguf("llama", tmp_path / "model.gguf")
    other = tmp_path / "other.gguf"
    other.write_bytes(path.read_bytes().replace(b"llama", b"madeu"))
    with pytest.raises(jq.UserError, match="unknown architecture 'madeu'"):
        load_decoder(other)
    Architecture("madeu", {}, own={"pairs": "neighbours"})
    tokens = CASES["llama"]["tokens"]
    np.testing.assert_array_equal(logits(other, tokens), logits(path, tokens))


def test_a_mixer(tmp_path):
    """One file adds a mixer of tokens as well: here each token with the one in front of it."""

    def mix(config, i, p, x, place, state):
        before = jnp.where(place.position == 0, 0.0, state[0])
        whole = jnp.concatenate([before, x], axis=1)
        return dense(p["output"], x + whole[:, :-1]), (whole[:, -1:],)

    Mixer(
        "pairs",
        mix,
        states=lambda config, batch, capacity: ((batch, 1, config.hidden),),
        shapes=lambda config, p: {"output": (config.hidden, config.hidden)},
    )
    own = names.ALL.but("pairs/output=-,pairs")
    Architecture("made-up", {"made_up": FULL}, names=own, mixers={"": ("pairs",)})
    path = folder(tmp_path / "model", "model.")
    state = load_file(path / "model.safetensors")
    state = {name: array for name, array in state.items() if "self_attn" not in name}
    eye = np.eye(CASES["llama"]["config"]["hidden_size"], dtype=np.float32)
    state |= {f"model.layers.{i}.pairs.weight": eye for i in range(2)}
    save_file(state, path / "model.safetensors")
    tokens = CASES["llama"]["tokens"]
    got, moved = logits(path, tokens), logits(path, [5, *tokens[1:]])
    assert (got != moved).any(axis=-1).tolist() == [True] * 3 + [False] * (len(tokens) - 3)


def folder(path, begin="made_up."):
    """Llama's case as another program would write it: other names of the type and the tensors."""
    path.mkdir()
    config = {**CASES["llama"]["config"], "model_type": "made_up"}
    (path / "config.json").write_text(json.dumps(config))
    state = {name.replace("model.", begin): a for name, a in weights("llama").items()}
    save_file(state, path / "model.safetensors")
    return path
