"""The meaning of a `config.json`, against `transformers` (in transformers_configs.json)."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jq.base.errors import UserError
from jq.language.decoder import load_decoder
from jq.language.decoder.huggingface import read_config
from jq.language.decoder.products import ACTIVATIONS
from tests.language.decoder.test_decoder import assert_equal, logits_of
from tests.support import decoders
from tests.support.decoders import CASES, write_folder, write_gguf

FOUND = json.loads((Path(__file__).parent / "transformers_configs.json").read_text())
EXPERTS = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1}
LATENT = {"kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 8}
LATENT |= {"n_group": 1, "topk_group": 1}
WITH_EXPERTS = ("mixtral", "qwen3_moe", "qwen3_next", "llama4_text", "gpt_oss")


def config_of(folder, kind, changes):
    values = {**FOUND["base"], "model_type": kind, **changes}
    values |= EXPERTS if kind in WITH_EXPERTS else {}
    (folder / "config.json").write_text(json.dumps(values))
    return read_config(folder)


@pytest.mark.parametrize("kind", FOUND["windows"])
def test_windows_are_those_of_transformers(tmp_path, kind):
    """All model types, and all keys that name windows in any."""
    keys, count = FOUND["keys"], FOUND["count"]
    for values, want in zip(product(*keys.values()), FOUND["windows"][kind], strict=True):
        changes = {k: v for k, v in zip(keys, values, strict=True) if v != "missing"}
        if want is None:
            with pytest.raises(UserError, match="sliding_window"):
                config_of(tmp_path, kind, changes)
        else:
            windows = config_of(tmp_path, kind, changes).windows
            assert [min(w or count, count) for w in windows] == want, changes


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("olmo3", {"layer_types": ["full_attention"] * 4}),
        ("gemma3_text", {"layer_types": ["full_attention"] * 4}),
        ("gpt_oss", {"layer_types": ["full_attention"] * 4}),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 4}),
        ("qwen3", {"use_sliding_window": False}),
        ("exaone4", {"layer_types": ["full_attention"] * 4}),
        ("llama", {}),
    ],
)
def test_a_window_of_no_layer_may_have_any_size(tmp_path, kind, changes):
    """`transformers` does not read it there; a layer whose window is 0 would see nothing."""
    assert config_of(tmp_path, kind, {"sliding_window": 0, **changes}).windows == (0,) * 4


@pytest.mark.parametrize("kind", ["mistral", "mixtral", "phi3", "gemma2", "gpt_oss", "starcoder2"])
@pytest.mark.parametrize("size", [0, -1, 1 << 31, 2.5, "3", True])
def test_a_window_of_no_size_is_refused(tmp_path, kind, size):
    with pytest.raises(UserError, match="sliding_window is"):
        config_of(tmp_path, kind, {"sliding_window": size})


@pytest.mark.parametrize("given", range(len(FOUND["ropes"])))
def test_positions_are_those_of_transformers(tmp_path, given):
    """Float32 there, and here double precision."""
    parameters, frequencies, scale = FOUND["ropes"][given]
    for key in ("rope_parameters", "rope_scaling"):
        changes = {key: parameters, "rope_theta": parameters["rope_theta"]}
        ((_, rope),) = config_of(tmp_path, "llama", changes).ropes
        np.testing.assert_allclose(rope.frequencies, frequencies, rtol=1e-5)
        assert rope.scale == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("kind", FOUND["turned"])
def test_a_part_of_a_head_turns_where_the_model_reads_it(tmp_path, kind):
    """Positions that are not scaled are each model's own, and most turn whole heads."""
    for way, want in FOUND["turned"][kind].items():
        parameters = {"rope_type": way, "rope_theta": 100.0, "factor": 2.0}
        changes = {"partial_rotary_factor": 0.5, "rope_parameters": parameters}
        ropes = config_of(tmp_path, kind, changes).ropes
        assert [len(rope.frequencies) for name, rope in ropes if name == "all"] == [want]


@pytest.mark.parametrize(
    ("changes", "windows", "still"),
    [
        ({}, [8192, 8192, 8192, 0], [0, 0, 0, 3]),
        ({"attention_chunk_size": 16}, [16, 16, 16, 0], [0, 0, 0, 3]),
        ({"attention_chunk_size": None}, [0, 0, 0, 0], [0, 0, 0, 3]),
        ({"no_rope_layer_interval": 2}, [8192, 0, 8192, 0], [0, 3, 0, 3]),
        ({"no_rope_layers": [1, 0, 0, 1]}, [8192, 0, 0, 8192], [0, 3, 3, 0]),
        ({"no_rope_layers": [], "no_rope_layer_interval": 3}, [8192, 8192, 0, 8192], [0, 0, 3, 0]),
    ],
)
def test_windows_follow_which_layers_turn(tmp_path, changes, windows, still):
    """`layer_types` that `transformers` makes of these keys."""
    found = config_of(tmp_path, "llama4_text", changes)
    assert list(found.windows) == windows
    asked = {"use_sliding_window": True, "sliding_window": 3}
    other = config_of(tmp_path, "smollm3", changes | asked)
    assert list(other.windows) == still
    assert [name == "" for name in other.rope_of] == [window > 0 for window in still]


@pytest.mark.parametrize("kind", FOUND["contexts"])
def test_the_context_that_positions_are_scaled_from(tmp_path, kind):
    """A key beside those of positions counts before one among them; Phi 3 has one in any case."""
    for changes, original, scale in FOUND["contexts"][kind]:
        found = config_of(tmp_path, kind, {"max_position_embeddings": 8192, **changes})
        ((_, rope),) = found.ropes
        assert rope.original == original
        assert rope.scale == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("kind", FOUND["experts"])
def test_experts_are_counted_by_the_key_that_the_model_reads(tmp_path, kind):
    for changes, count in FOUND["experts"][kind]:
        given = {**LATENT, "num_experts_per_tok": 1, **changes}
        (tmp_path / "config.json").write_text(
            json.dumps({**FOUND["base"], "model_type": kind, **given})
        )
        assert read_config(tmp_path).experts == count, changes


# What a class has no value for, or one that its own model refuses.
COMPLETED = {"deepseek_v2": {"num_experts_per_tok": 6}, "glm4_moe": {"head_dim": 128}}


@pytest.mark.parametrize("kind", FOUND["defaults"])
def test_what_a_config_leaves_out_is_as_transformers_has_it(tmp_path, kind):
    given, found = {"model_type": kind, **COMPLETED.get(kind, {})}, []
    for values in (given, FOUND["defaults"][kind] | given):
        (tmp_path / "config.json").write_text(json.dumps(values))
        found.append(read_config(tmp_path))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("case", "change", "tensors"),
    [
        ("llama-biases", {"attention_bias": False}, "attention/(query|key|value|output)/bias"),
        ("llama-biases", {"mlp_bias": None}, "mlp/(gate|up|down)/bias"),
        ("phi-heads", {"qk_layernorm": False}, "attention/(query|key)_norm/.*"),
        ("cohere", {"use_qk_norm": None}, "attention/(query|key)_norm/weight"),
        ("gpt-neox", {"attention_bias": False}, "attention/(qkv|output)/bias"),
        ("falcon-h1", {"mamba_conv_bias": False}, "mamba/filter/bias"),
    ],
)
def test_tensors_that_the_config_turns_off_are_not_read(tmp_path, case, change, tensors):
    """`transformers` makes the model without them."""
    folder = write_folder(case, tmp_path / "model")
    before = flat(load_decoder(folder).params["layers"]["1"])
    values = CASES[case]["config"] | change
    (folder / "config.json").write_text(json.dumps(values))
    off = {name for name in before if re.fullmatch(tensors, name)}
    assert off and flat(load_decoder(folder).params["layers"]["1"]) == before - off


def flat(node, path=""):
    if not isinstance(node, dict):
        return {path}
    return {n for k, v in node.items() for n in flat(v, f"{path}/{k}" if path else k)}


def test_norms_of_heads_that_are_missing(tmp_path):
    path = write_folder("qwen3", tmp_path / "model") / "model.safetensors"
    save_file({n: a for n, a in load_file(path).items() if "k_norm" not in n}, path)
    with pytest.raises(UserError, match="attention/key_norm are missing"):
        load_decoder(path.parent)


YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "truncate": False}
YARN |= {"original_max_position_embeddings": 4096}
OF_MINISTRAL = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0}
OF_MINISTRAL |= {"original_max_position_embeddings": 16384, "mscale_all_dim": 1.0}
OF_MINISTRAL |= {"llama_4_scaling_beta": 0.1}
LINEAR = {"rope_type": "linear", "factor": 2.0}


def halves(theta, local, **full):
    parts = {"full_attention": {"rope_type": "default", "rope_theta": theta, **full}}
    return parts | {"sliding_attention": {"rope_type": "default", "rope_theta": local}}


@pytest.mark.parametrize(
    ("kind", "short", "whole"),
    [
        ("gpt_oss", {}, YARN),
        ("gpt_oss", {"rope_theta": 300.0}, YARN | {"rope_theta": 300.0}),
        ("ministral3", {}, OF_MINISTRAL),
        ("ministral3", {"rope_theta": 300.0}, OF_MINISTRAL),
        ("olmo3", {}, halves(5e5, 5e5)),
        ("olmo3", {"rope_theta": 300.0}, halves(300.0, 5e5)),
        ("olmo3", {"rope_theta": 300.0, "rope_scaling": LINEAR}, halves(300.0, 5e5, **LINEAR)),
        ("olmo3", {"rope_parameters": LINEAR}, halves(5e5, 5e5)),
        ("gemma3_text", {"rope_parameters": LINEAR}, halves(1e6, 1e4)),
        (
            "llama",
            {"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default"}},
            LINEAR | {"rope_theta": 1e4},
        ),
    ],
)
def test_positions_that_a_config_leaves_out(tmp_path, kind, short, whole):
    """As the config classes of `transformers` complete them."""
    changes = {"sliding_window": 3, **short}
    found = config_of(tmp_path, kind, changes)
    assert found == config_of(tmp_path, kind, {"sliding_window": 3, "rope_parameters": whole})
    if kind == "gpt_oss":
        assert dict(found.ropes)["all"].scale == pytest.approx(0.1 * np.log(32) + 1)


def test_shares_whose_key_is_null_are_as_they_are(tmp_path):
    for value, want in ((None, False), (True, True)):
        given = LATENT | {"n_routed_experts": 4, "num_experts_per_tok": 1, "norm_topk_prob": value}
        assert config_of(tmp_path, "deepseek_v3", given).normal_shares is want


def test_a_factor_of_yarn_may_follow_from_the_contexts(tmp_path):
    whole = {"rope_type": "yarn", "rope_theta": 100.0, "original_max_position_embeddings": 16}
    found = config_of(tmp_path, "llama", {"rope_parameters": whole})
    assert (
        found.ropes
        == config_of(tmp_path, "llama", {"rope_parameters": whole | {"factor": 4}}).ropes
    )


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("gemma3_text", {"use_bidirectional_attention": True}),
        ("gemma2", {"use_bidirectional_attention": True}),
        ("gemma", {"use_bidirectional_attention": True}),
        ("qwen2", {"is_causal": False}),
        ("llama", {"is_causal": False}),
        ("llama", {"is_causal": None}),
        ("gemma3_text", {"use_bidirectional_attention": "vision"}),
        ("gemma4_text", {"use_bidirectional_attention": "all"}),
    ],
)
def test_attention_that_goes_both_ways_is_refused(tmp_path, kind, change):
    with pytest.raises(UserError, match="both ways"):
        config_of(tmp_path, kind, change)
    plain = {key: not value for key, value in change.items()}
    assert config_of(tmp_path, kind, plain)


def test_attention_that_goes_both_ways_in_a_gguf_file(tmp_path, monkeypatch):
    def metadata(writer, config, architecture, plain=decoders._metadata):
        plain(writer, config, architecture)
        writer.add_causal_attention(False)

    monkeypatch.setattr(decoders, "_metadata", metadata)
    with pytest.raises(UserError, match="both ways"):
        load_decoder(write_gguf("llama", tmp_path / "m.gguf"))


@pytest.mark.parametrize("case", ["llama", "glm4", "granite", "phi", "stablelm"])
def test_a_window_in_a_gguf_file_of_a_model_without_windows(case, tmp_path, monkeypatch):
    def metadata(writer, config, architecture, plain=decoders._metadata):
        plain(writer, config | {"sliding_window": None}, architecture)
        writer.add_sliding_window(3)

    monkeypatch.setattr(decoders, "_metadata", metadata)
    found = load_decoder(write_gguf(case, tmp_path / "m.gguf")).config
    assert found.windows == (0,) * found.layers


def of_parts(folder, name):
    """The same model as the text of one that sees as well; tensors named by `name`."""
    path = folder / "model.safetensors"
    tensors = {name(n): array for n, array in load_file(path).items()}
    eye = {"vision_tower.a.weight": np.ones((2, 2), np.float32)}
    save_file(tensors | eye | {"multi_modal_projector.b": np.ones(3, np.float32)}, path)
    text = json.loads((folder / "config.json").read_text())
    tied = {"tie_word_embeddings": text.pop("tie_word_embeddings", False)}
    whole = {"model_type": "seeing", "text_config": text, "vision_config": {"hidden_size": 7}}
    (folder / "config.json").write_text(json.dumps(whole | tied))


@pytest.mark.parametrize("case", ["gemma3", "mistral", "llama", "qwen2"])
@pytest.mark.parametrize(
    "name",
    [
        lambda n: f"language_model.{n}",
        lambda n: n.replace("model.", "model.language_model.", 1),
        lambda n: n,
        lambda n: n.replace("model.", "model.text_model.", 1),
    ],
    ids=["in front", "within", "as they are", "text model"],
)
def test_the_text_of_a_model_with_other_parts(tmp_path, case, name):
    folder = write_folder(case, tmp_path / "model")
    of_parts(folder, name)
    assert_equal(case, logits_of(load_decoder(folder), CASES[case]["tokens"]))


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text"])
def test_positions_of_pictures_are_those_of_text_where_there_are_none(tmp_path, kind):
    """`transformers` computes the same of both model types. Old files have keys of the text and of
    what sees side by side."""
    case = kind.partition("_")[0]
    folder = write_folder(case, tmp_path / "model")
    values = json.loads((folder / "config.json").read_text()) | {"model_type": kind}
    values["rope_theta"] = values.pop("rope_parameters")["rope_theta"]
    values |= {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    if not kind.endswith("text"):
        values["vision_config"] = {"hidden_size": 7}
        path = folder / "model.safetensors"
        save_file(load_file(path) | {"visual.a.weight": np.ones((2, 2), np.float32)}, path)
    (folder / "config.json").write_text(json.dumps(values))
    assert_equal(case, logits_of(load_decoder(folder), CASES[case]["tokens"]))


def test_names_of_a_model_without_a_head(tmp_path):
    """As those that give embeddings are kept; `transformers` reads the head from the table."""
    case = "llama-one-head-of-keys"
    path = write_folder(case, tmp_path / "model") / "model.safetensors"
    tensors = {n.removeprefix("model."): a for n, a in load_file(path).items()}
    save_file({n: a for n, a in tensors.items() if n != "lm_head.weight"}, path)
    assert_equal(case, logits_of(load_decoder(path.parent), CASES[case]["tokens"]))


def test_sizes_that_a_part_leaves_out(tmp_path):
    """As the files of Gemma 3 4B do."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    text |= {"intermediate_size": 10240, "sliding_window": 1024}
    text |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    whole = {"model_type": "gemma3", "text_config": text, "eos_token_id": [1, 106]}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    found = read_config(tmp_path)
    assert (found.heads, found.kv_heads, found.head, found.vocabulary) == (8, 4, 256, 262208)
    assert (found.context, found.epsilon, found.attention_scale) == (131072, 1e-6, 1 / 16)
    assert found.windows[:6] == (1024,) * 5 + (0,) and found.activation == "gelu_tanh"
    ropes = dict(found.ropes)
    assert ropes["all"].frequencies[:2] == pytest.approx((1 / 8, 1e6 ** (-1 / 128) / 8))
    assert ropes["local"].frequencies[1] == pytest.approx(1e4 ** (-1 / 128))


def test_a_part_that_is_not_known_is_named(tmp_path):
    text = {"model_type": "kimi_linear_text"}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": text}))
    with pytest.raises(UserError, match="kimi_linear_text"):
        read_config(tmp_path)


SCALED = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0}
ORIGINAL = "original_max_position_embeddings"
SAID = "original|positions are scaled"


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("llama", {"rope_theta": True}, "rope_theta"),
        ("llama", {"rope_parameters": SCALED | {"factor": True}}, "factor"),
        ("llama", {"rope_parameters": {"rope_type": "foo"}}, "scaled by 'foo', which is not"),
        ("phi3", {"partial_rotary_factor": True}, "partial_rotary_factor"),
        ("llama", {"rms_norm_eps": True}, "rms_norm_eps"),
        ("llama", {"num_hidden_layers": True}, "num_hidden_layers"),
        *(("llama", {"rope_parameters": SCALED | {ORIGINAL: n}}, SAID) for n in (True, 2.5, 0, -8)),
        ("deepseek_v2", {"layer_types": ["full_attention"]}, "layer_types"),
        ("deepseek_v3", {"layer_types": "full_attention"}, "layer_types"),
        ("falcon_h1", {"layer_types": ["junk"] * 4}, "layer_types"),
    ],
)
def test_what_is_no_number_and_no_kind_is_refused(tmp_path, kind, change, said):
    sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
    sizes |= {"num_experts_per_tok": 6}
    with pytest.raises(UserError, match=said):
        config_of(tmp_path, kind, sizes | change)
    plain = {key: ["full_attention"] * 4 for key in change if key == "layer_types"}
    assert config_of(tmp_path, kind, sizes | plain).layers == 4


def test_a_context_that_json_has_as_a_float(tmp_path):
    whole = {"rope_parameters": SCALED | {ORIGINAL: 16.0}}
    ((_, rope),) = config_of(tmp_path, "llama", whole).ropes
    other = {"rope_parameters": SCALED | {ORIGINAL: 16}}
    assert [("all", rope)] == list(config_of(tmp_path, "llama", other).ropes)


def test_a_cap_that_is_null_is_none(tmp_path):
    found = config_of(tmp_path, "gemma2", {"attn_logit_softcapping": None})
    assert (found.attention_cap, found.logit_cap) == (0.0, 30.0)


def logistic(x):
    return 1 / (1 + np.exp(-x))


# By the names that `transformers` has in `ACT2FN`.
FORMULAS = {
    "swish": lambda x: x * logistic(x),
    "quick_gelu": lambda x: x * logistic(1.702 * x),
    "gelu_accurate": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "sigmoid": logistic,
    "tanh": np.tanh,
    "linear": lambda x: x,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_by_their_names(tmp_path, name):
    folder = write_folder("llama", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text()) | {"hidden_act": name}
    (folder / "config.json").write_text(json.dumps(values))
    x = np.linspace(-9, 9, 181, dtype=np.float32)
    found = ACTIVATIONS[read_config(folder).activation](x)
    np.testing.assert_allclose(found, FORMULAS[name](x.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["swishh", ["silu"], 3])
def test_an_activation_that_is_not_known(tmp_path, name):
    folder = write_folder("llama", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text()) | {"hidden_act": name}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match="the activation .* is not known"):
        read_config(folder)


def test_a_head_that_is_not_there_is_refused(tmp_path):
    """One that the config says is apart from the table: `transformers` draws it at random."""
    folder = write_folder("llama-one-head-of-keys", tmp_path / "model")
    values = CASES["llama-one-head-of-keys"]["config"] | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(values))
    path = folder / "model.safetensors"
    save_file({n: a for n, a in load_file(path).items() if n != "lm_head.weight"}, path)
    with pytest.raises(UserError, match="tie_word_embeddings is false"):
        load_decoder(folder)


@pytest.mark.parametrize(("kind", "pairs"), [("dots1", 4), ("solar_open", 2), ("glm4_moe", 2)])
def test_a_part_of_a_head_of_models_with_experts(tmp_path, kind, pairs):
    """Dots.llm1 does not read the key."""
    given = {"num_experts_per_tok": 1, "partial_rotary_factor": 0.5}
    ((_, rope),) = config_of(tmp_path, kind, given).ropes
    assert len(rope.frequencies) == pairs


def test_the_norm_between_blocks_side_by_side_is_not_read(tmp_path):
    folder = write_folder("stablelm", tmp_path / "m")
    values = {**CASES["stablelm"]["config"], "use_parallel_residual": True}
    (folder / "config.json").write_text(json.dumps(values))
    assert "norm" not in load_decoder(folder).params["layers"]["0"]["mlp"]


def test_shares_of_minimax_have_no_factor(tmp_path):
    assert config_of(tmp_path, "minimax_m2", {"routed_scaling_factor": 3.0}).get("share_scale") == 1


UNEVEN = {"rope_type": "longrope", "short_mscale": 1.25, "long_mscale": 1.5}
UNEVEN |= dict.fromkeys(("short_factor", "long_factor"), [1.0] * 4)


@pytest.mark.parametrize(
    ("case", "change", "key"),
    [
        ("qwen3-experts", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("qwen2-experts", {"mlp_only_layers": [1]}, "mlp_only_layers"),
        ("qwen2-experts", {"num_experts": 0}, "num_experts"),
        ("lfm2-experts", {"num_dense_layers": None}, "num_dense_layers"),
        ("deepseek3", {"first_k_dense_replace": None}, "first_k_dense_replace"),
        ("deepseek3", {"q_lora_rank": None}, "q_lora_rank"),
        ("dots1", {"first_k_dense_replace": 0}, "first_k_dense_replace"),
        ("exaone4-experts", {"mlp_layer_types": ["sparse"] * 4}, "mlp_layer_types"),
        ("exaone4-experts", {"mlp_layer_types": None, "first_k_dense_replace": 2}, "first_k_dense"),
        ("glm4-latent", {"mlp_layer_types": ["dense"] * 2}, "mlp_layer_types"),
        (
            "llama4",
            {"moe_layers": None, "interleave_moe_layer_step": 1},
            "interleave_moe_layer_step",
        ),
        ("llama4", {"moe_layers": [0, 1]}, "moe_layers"),
        ("ernie4.5-experts", {"moe_layer_end_index": -1}, "moe_layer_end_index"),
        ("mixtral", {"num_local_experts": 0}, "num_local_experts"),
        ("granite4", {"num_local_experts": 0}, "num_local_experts"),
        ("lfm2", {"layer_types": None}, "layer_types"),
        ("gpt2", {"n_layer": None, "num_hidden_layers": None}, "n_layer"),
        ("solar-open", {"use_qk_norm": True}, "use_qk_norm"),
        (
            "llama",
            {"head_dim": 8},
            "num_attention_heads is 4, num_key_value_heads is 2, head_dim is 8",
        ),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads is 3, of 4 heads"),
        ("llama", {"num_hidden_layers": 1}, "num_hidden_layers is 1"),
        ("mixtral", {"num_hidden_layers": 1}, "num_hidden_layers is 1, num_local_experts is 4"),
        ("glm4-latent", {"v_head_dim": 8}, "v_head_dim is 8"),
        ("granite4", {"mamba_d_conv": 2}, "mamba_d_conv is 2"),
        ("gpt-neo", {"attention_layers": None}, "layer_types are"),
        ("gpt-neo", {"window_size": 0}, "sliding_window is 0"),
        ("falcon", {"new_decoder_architecture": True}, "new_decoder_architecture is True"),
        ("falcon", {"alibi": True}, "alibi is True"),
        ("hyperclovax", {"use_post_norm": False}, "use_post_norm is False"),
        ("phi-experts", {"rope_scaling": UNEVEN}, "short_mscale and long_mscale differ"),
        ("phi-experts", {"num_experts_per_tok": 1}, "num_experts_per_tok is 1"),
        ("mixtral", {"num_local_experts": 5}, "num_local_experts is 5"),
        ("smollm3", {"no_rope_layers": [1, 0, 2, "a"]}, "no_rope_layers are"),
        ("smollm3", {"no_rope_layers": "none"}, "no_rope_layers are 'none'"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers are"),
        ("deepseek3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ("qwen3-experts", {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
        ("deepseek3-groups", {"topk_method": "greedy"}, "topk_method is 'greedy'"),
        ("seed-oss", {"attention_out_bias": True}, "attention_out_bias is True"),
    ],
)
def test_what_the_tensors_contradict_is_refused_by_its_key(tmp_path, case, change, key):
    folder = write_folder(case, tmp_path / "model")
    values = {k: v for k, v in {**CASES[case]["config"], **change}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=key):
        load_decoder(folder)


@pytest.mark.parametrize(("case", "name"), [("gemma4-keys", "value"), ("granite-shared", "shared")])
def test_tensors_that_a_config_has_no_place_for(tmp_path, case, name):
    """Values where keys are the values, and a shared expert of no width: as in `transformers`."""
    folder = write_folder(case, tmp_path / "model")
    path, change = folder / "model.safetensors", {"shared_intermediate_size": 0}
    tensors = load_file(path)
    more = {n.replace("k_proj", "v_proj"): np.zeros_like(a) for n, a in tensors.items()}
    save_file(more | tensors, path)
    if name == "shared":
        (folder / "config.json").write_text(json.dumps(CASES[case]["config"] | change))
    layer = load_decoder(folder).params["layers"]["1"]
    assert name not in layer["attention"] and name not in layer["mlp"]


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({}, (3, 0, 3, 0)),
        ({"max_window_layers": 2}, (3, 0, 0, 0)),
        ({"layer_types": FOUND["keys"]["layer_types"][0]}, (3, 0, 0, 3)),
        ({"use_sliding_window": False}, (0, 0, 0, 0)),
    ],
)
def test_windows_of_qwen2_with_experts(tmp_path, change, windows):
    """As its config class makes `layer_types`. Those with a window of a model that is not to have
    any are no case: there its layers see nothing."""
    given = {"sliding_window": 3, "use_sliding_window": True, "num_experts_per_tok": 1, **change}
    assert config_of(tmp_path, "qwen2_moe", given).windows == windows
