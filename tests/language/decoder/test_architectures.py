"""Architectures: all have a case, and what a file of theirs lacks or says otherwise is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jq.base.errors import UserError
from jq.language.decoder import load_decoder
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.huggingface import read_config
from tests.language.decoder.test_decoder import assert_equal, logits_of
from tests.support import decoders
from tests.support.decoders import CASES, write_folder

SAVED = [case for case, found in CASES.items() if "saved" in found]
# A case of another one tells all of these.
LIKE = {"minicpm", "qwen3_5_moe_text", "qwen3_vl_text", "qwen3_vl_moe_text", "kimi_k2"}
LIKE |= {"iquestcoder"}
LIKE |= {"qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text"}  # see `test_configs`
# Tensors that models of an architecture may lack.
MAY_LACK = ("bias", "lm_head.weight", "embed_out.weight", "q_norm.weight", "k_norm.weight")


def test_every_architecture_has_a_case():
    types = {t for each in Architecture.registry.values() for t in each.model_types}
    assert types - {found["config"]["model_type"] for found in CASES.values()} == LIKE


@pytest.mark.parametrize("case", SAVED)
def test_a_tensor_that_is_missing_is_noticed(tmp_path, case):
    folder = write_folder(case, tmp_path / "model")
    whole = load_file(folder / "model.safetensors")
    load_decoder(folder)
    first = [n for n in whole if ".layers." not in n or ".layers.0." in n or ".layers.1." in n]
    for name in first:
        if name.endswith(MAY_LACK) and "dt_bias" not in name and "correction_bias" not in name:
            continue
        save_file({n: t for n, t in whole.items() if n != name}, folder / "model.safetensors")
        with pytest.raises(UserError, match="missing|no table|needs"):
            load_decoder(folder)


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize(
    ("case", "values"),
    [
        ("deepseek2", {"topk_method": "group_limited_greedy"}),
        ("deepseek2", {"kv_lora_rank": 8}),
        ("deepseek2", {"kv_lora_rank": None}),
        ("deepseek2", {"qk_rope_head_dim": 7}),
        ("deepseek3", {"topk_group": 0}),
        ("olmoe", {"clip_qkv": 8.0}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt2", {"n_positions": 32}),
        ("starcoder", {"multi_query": False}),
        ("opt", {"do_layer_norm_before": False}),
        ("gpt-oss", {"swiglu_alpha": 1.5}),
        ("gpt-oss", {"swiglu_limit": 5.0}),
        ("gemma4", {"enable_moe_block": True}),
        ("gemma4", {"num_kv_shared_layers": 5}),
        ("gemma4", {"num_kv_shared_layers": -1}),
        ("gemma4", {"num_kv_shared_layers": 0.5}),
        ("gemma4", {"use_bidirectional_attention": "all"}),
        ("gemma4", {"per_layer_config": {"0": {"head_dim": 24}}}),
        ("gemma4", {"per_layer_config": None, "global_head_dim": 16}),
        ("qwen3.5", {"linear_num_key_heads": 3}),
        ("qwen3.5", {"linear_num_key_heads": 0}),
        ("qwen3.5", {"linear_conv_kernel_dim": 3}),
        ("qwen3.5", {"layer_types": ["linear_attention"] * 2}),
        ("qwen3.5", {"layer_types": ["mystery"] * 3}),
        ("qwen3.5", {"layer_types": "linear_attention"}),
        ("lfm2", {"conv_L_cache": 4}),
        ("lfm2", {"layer_types": ["full_attention"] * 3}),
        ("granite4", {"mamba_n_groups": 3}),
        ("granite4", {"mamba_d_state": True}),
        ("falcon-h1", {"time_step_limit": [0.1, 1.0]}),
        ("deepseek3-groups", {"n_group": 3}),
        ("deepseek3-groups", {"n_group": 8}),
        ("deepseek3-groups", {"topk_group": 5}),
        ("deepseek3-groups", {"topk_group": 1}),
        ("granite", {"logits_scaling": 0}),
        ("granite", {"embedding_multiplier": "3"}),
        ("falcon-h1", {"ssm_multipliers": [1.0]}),
        ("falcon-h1", {"mamba_rms_norm": True}),
        ("smollm3", {"no_rope_layers": [1]}),
        ("ministral3", {"original_max_position_embeddings": 0}),
        ("gpt-oss", {"num_local_experts": 3}),
        ("lfm2-experts", {"use_expert_bias": False}),
        ("ernie4.5-experts", {"moe_norm_min": 0.5}),
        ("ernie4.5-none-shared", {"moe_num_shared_experts": 2}),
        ("hunyuan-experts", {"moe_topk": [2, 1]}),
    ],
)
def test_what_describes_no_model_is_refused(tmp_path, case, values):
    with pytest.raises(UserError):
        load_decoder(changed(write_folder(case, tmp_path / "model"), **values))


def test_methods_of_routing_are_alike_in_one_group(tmp_path):
    folder = write_folder("deepseek2", tmp_path / "model")
    greedy = load_decoder(folder).config
    assert (
        load_decoder(changed(folder, topk_method="group_limited_greedy", n_group=1)).config
        == greedy
    )
    with pytest.raises(UserError, match="topk_method"):
        load_decoder(changed(folder, n_group=2))


@pytest.mark.parametrize("given", [{}, None])
def test_heads_that_are_alike_have_the_same_width_where_no_file_says_it(tmp_path, given):
    """`transformers` has 256 there."""
    folder = write_folder("gemma4-alike", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    values = {k: v for k, v in values.items() if k != "head_dim"} | {"per_layer_config": given}
    (folder / "config.json").write_text(json.dumps(values))
    found = read_config(folder)
    assert (found.head, found.get("wide_head")) == (256, 256)


@pytest.mark.parametrize("head", [0, 1])
def test_a_norm_of_a_head_that_is_left_out_is_noticed(tmp_path, head):
    """In all layers, for the numbers of the others would move up."""
    folder = write_folder("stablelm-heads", tmp_path / "model")
    whole = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in whole.items() if f"q_layernorm.norms.{head}." not in n}
    assert len(kept) < len(whole)
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(UserError, match="not one of each head"):
        load_decoder(folder)


def test_a_config_is_the_same_in_every_process(tmp_path):
    """Programs are kept under what it says; the order of a set of names is another in each."""
    known = Architecture.registry["qwen3next"]
    own = dict(read_config(write_folder("qwen3-next", tmp_path / "model")).own)
    named = [name for name in known.own | known.keys if name in own]
    assert list(own) == [*named, "normed_heads"]
    assert len(own) > 5


def test_minicpm_is_granite_by_other_numbers(tmp_path):
    """One of its numbers is fixed: queries make up for it."""
    folder = write_folder("granite", tmp_path / "model")
    changed(
        folder,
        model_type="minicpm",
        scale_emb=3.0,
        scale_depth=0.5 * 2**0.5,
        dim_model_base=16,
        rms_norm_eps=CASES["granite"]["config"]["rms_norm_eps"],
    )
    tensors = load_file(folder / "model.safetensors")
    tensors = {n: np.float32(t * 0.8) if "q_proj" in n else t for n, t in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    assert_equal("granite", logits_of(load_decoder(folder), CASES["granite"]["tokens"]))


@pytest.mark.parametrize("upright", [True, False])
def test_experts_of_a_model_that_sees_are_stacks(tmp_path, upright):
    """Qwen 3 VL: as [in, out] in its own files, as [out, in] in those of `transformers` 5."""
    folder = changed(
        write_folder("qwen3-experts", tmp_path / "model"),
        model_type="qwen3_vl_moe_text",
        norm_topk_prob=None,
    )
    whole = load_file(folder / "model.safetensors")
    found = {name: a for name, a in whole.items() if "experts" not in name}
    for i in range(2):
        front = f"model.layers.{i}.mlp.experts."
        gates, ups, downs = (
            np.stack([whole[f"{front}{e}.{name}_proj.weight"] for e in range(4)])
            for name in ("gate", "up", "down")
        )
        for name, stack in (("gate_up", np.concatenate([gates, ups], axis=1)), ("down", downs)):
            turned = stack if upright else stack.swapaxes(1, 2)
            found[f"{front}{name}_proj"] = np.ascontiguousarray(turned)
    save_file(found, folder / "model.safetensors")
    tokens = CASES["qwen3-experts"]["tokens"]
    assert_equal("qwen3-experts", logits_of(load_decoder(folder), tokens))


def test_the_text_of_a_model_that_sees(tmp_path):
    """Mistral 3: the config of its text, and names in front of those of its tensors."""
    folder = write_folder("ministral3", tmp_path / "model")
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "mistral3", "text_config": text}))
    tensors = load_file(folder / "model.safetensors")
    named = {f"language_model.{name}": t for name, t in tensors.items()}
    save_file(named | {"vision_tower.x": np.ones(3)}, folder / "model.safetensors")
    assert_equal("ministral3", logits_of(load_decoder(folder), CASES["ministral3"]["tokens"]))


@pytest.mark.parametrize(
    ("case", "name", "config"),
    [
        ("qwen3-next", "mtp.layers.0.mlp.gate.weight", {}),
        ("qwen3.5", "model.mtp_linear_proj.0.weight", {}),
        ("deepseek3", "model.layers.2.eh_proj.weight", {"num_nextn_predict_layers": 1}),
    ],
)
def test_layers_for_multi_token_prediction_are_left_out(tmp_path, case, name, config):
    folder = changed(write_folder(case, tmp_path / "model"), **config)
    path = folder / "model.safetensors"
    save_file({**load_file(path), name: np.ones((2, 2), np.float32)}, path)
    load_decoder(folder)
    if config:
        with pytest.raises(UserError, match="no place"):
            load_decoder(changed(folder, num_nextn_predict_layers=0))


def test_gguf_files_count_layers_for_multi_token_prediction(tmp_path, monkeypatch):
    def metadata(writer, config, architecture, plain=decoders._metadata):
        count = config["num_hidden_layers"]
        plain(writer, config | {"num_hidden_layers": count + 1}, architecture)
        writer.add_uint32(f"{architecture}.nextn_predict_layers", 1)
        writer.add_tensor(f"blk.{count}.nextn.eh_proj.weight", np.ones((2, 2), np.float32))

    monkeypatch.setattr(decoders, "_metadata", metadata)
    decoder = load_decoder(decoders.write_gguf("qwen3", tmp_path / "model.gguf"))
    assert_equal("qwen3", logits_of(decoder, CASES["qwen3"]["tokens"]))
