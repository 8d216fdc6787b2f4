"""GPT 2 and its kin: learned positions, matrices [in, out], heads whose rows stand together, and a
tokenizer of two files."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import ByteLevelBPETokenizer

from jq.base.errors import UserError
from jq.frontends.gguf import load_gguf
from jq.language.checkpoint import quantize_folder
from jq.language.decoder import load_decoder
from jq.language.decoder.layerwise import quantized_layers
from jq.language.decoder.products import dense, normed
from jq.language.folder_tokenizer import tokenizer_of_folder
from jq.language.model import LanguageModel
from jq.language.quantize import quantize
from tests.language.decoder.test_decoder import assert_equal, logits_of
from tests.language.test_checkpoint import rounded
from tests.language.test_tokenizer import TEXTS
from tests.support.decoders import CASES, write_folder, write_gguf


def test_the_first_files_of_gpt_2(tmp_path):
    """Names have nothing in front, masks lie beside the weights, and the width follows."""
    folder = write_folder("gpt2", tmp_path / "model")
    path = folder / "model.safetensors"
    plain = {n.removeprefix("transformer."): a for n, a in load_file(path).items()}
    masks = {f"h.0.attn.{n}bias": np.ones((1, 1, 64, 64), np.float32) for n in ("", "masked_")}
    save_file(plain | masks, path)
    assert_equal("gpt2", logits_of(load_decoder(folder), CASES["gpt2"]["tokens"]))
    config = CASES["gpt2"]["config"] | {"n_inner": None, "intermediate_size": None}
    (folder / "config.json").write_text(json.dumps(config))
    assert load_decoder(folder).config.inner == 4 * 32


def test_there_are_no_positions_beyond_the_last(tmp_path):
    model = LanguageModel(write_folder("gpt2", tmp_path / "model"), cache_dir=tmp_path)
    with pytest.raises(UserError, match="65 tokens does not fit into a context of 64"):
        model.generate([3] * 65)
    with pytest.raises(UserError, match="no token in the prompt"):
        model.generate([])
    with pytest.raises(UserError, match="context of 65 tokens is not possible"):
        LanguageModel(model.path, context=65)


@pytest.mark.parametrize("case", ["gpt2", "gpt-neox"])
def test_layers_one_by_one_make_the_same_model(tmp_path, case):
    decoder, tokens = load_decoder(write_folder(case, tmp_path / "m")), CASES[case]["tokens"]
    last = {}
    for _ in quantized_layers(decoder, [tokens], lambda *_: None, reached=last.__setitem__):
        pass
    params = decoder.params
    with jax.default_matmul_precision("highest"):
        x = normed(decoder.config, params["norm"], jnp.asarray(last[2][1]))
        assert_equal(case, np.asarray(dense(params.get("head", params["embed"]), x)[0]))


def test_positions_of_a_gguf_file_stay(tmp_path):
    source = write_gguf("gpt2", tmp_path / "in.gguf")
    rows = {r["name"]: r for r in quantize(source, tmp_path / "out.gguf", "q8_0")}
    assert rows["position_embd.weight"]["after"] == "F32"
    kept, changed = "position_embd.weight", "blk.0.attn_qkv.weight"
    before, after = (load_gguf(p).tensors for p in (source, tmp_path / "out.gguf"))
    np.testing.assert_array_equal(before[kept], after[kept])
    # Half a step, and the rounding of the scale to float16.
    size = np.abs(before[changed]).max() / 127 * (0.5 + 2**-11 * 127)
    assert np.abs(np.asarray(after[changed]) - before[changed]).max() <= size
    assert load_decoder(tmp_path / "out.gguf").config.architecture == "gpt2"


def test_what_of_a_folder_is_rounded(tmp_path):
    out = tmp_path / "out"
    quantize_folder(write_folder("gpt-neox", tmp_path / "neox"), out, "int8", 0)
    packed = {n for n in load_file(out / "model.safetensors") if n.endswith("weight_packed")}
    assert len(packed) == 2 * 4 and not any("embed" in name for name in packed)
    config = json.loads((out / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["embed_out"]
    weights = load_file(tmp_path / "neox/model.safetensors")
    name = "gpt_neox.layers.1.attention.query_key_value.weight"
    found = load_decoder(out).params["layers"]["1"]["attention"]["qkv"]["weight"]
    np.testing.assert_array_equal(np.asarray(found), rounded(weights[name], 8, 0))
    with pytest.raises(UserError, match=r"gpt2 are \[in, out\]"):
        quantize_folder(write_folder("gpt2", tmp_path / "gpt2"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


END, NAMES = "<|endoftext|>", {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"}


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"model_type": "gpt2"}, []),
        ({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, []),
        ({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True} | NAMES, ["</s>"]),
        ({"model_type": "gpt2", "add_bos_token": True}, [END]),
    ],
)
def test_a_tokenizer_of_two_files(tmp_path, settings, first):
    special = [settings.get("eos_token", END), "<pad>"]
    made = ByteLevelBPETokenizer(add_prefix_space=settings.get("add_prefix_space", False))
    made.train_from_iterator(TEXTS, vocab_size=400, special_tokens=special, show_progress=False)
    made.save_model(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = tokenizer_of_folder(tmp_path)
    numbers = [made.token_to_id(name) for name in first]
    assert list(ours.first) == numbers and made.token_to_id(special[0]) in ours.ends
    for text in TEXTS:
        tokens = ours.encode(text)
        assert tokens == [*numbers, *made.encode(text).ids]
        assert ours.decode(tokens) == made.decode(tokens[len(first) :])
    end = made.token_to_id(special[0])
    assert ours.encode(f"a{special[0]}", special=True)[-1] == end
    assert ours.decode([end]) == ""
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Qwen2Tokenizer"})
    )
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        tokenizer_of_folder(tmp_path)
