"""Tiny decoders with seeded random weights, as the files that hold models: safetensors and GGUF."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from jq.language.decoder.architectures.names import CURVE
from tests.support import gguf_models

FOLDER = Path(__file__).parents[1]
sys.path.insert(0, str(FOLDER.parent / "scripts"))
from oracles.write_transformers_logits import draw, neutral  # noqa: E402

CASES: dict[str, dict[str, Any]] = json.loads(
    (FOLDER / "language/decoder/transformers_logits.json").read_text()
)["cases"]


def weights(case: str) -> dict[str, np.ndarray]:
    """The weights of a case under the names that its checkpoint has."""
    found = CASES[case]
    kind, seed = found["config"]["model_type"], found["seed"]
    state = {
        name: np.asarray(draw(name, tuple(shape), seed) + np.float32(neutral(name, kind)))
        for name, shape in found["shapes"].items()
    }
    return state if "saved" in found else dict(_experts(state, kind))


def _experts(state, kind):
    """`transformers` holds a layer's experts as two stacks, and writes them one by one."""
    names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    for name, array in state.items():
        stem = name.replace(".mlp.", ".block_sparse_moe.") if kind == "mixtral" else name
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(array):
                for which, part in zip(names, np.split(both, 2), strict=False):
                    yield f"{stem.removesuffix('gate_up_proj')}{e}.{which}.weight", part.copy()
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(array):
                yield f"{stem.removesuffix('down_proj')}{e}.{names[2]}.weight", down.copy()
        elif name.endswith("mlp.gate.weight"):
            yield stem, array
        else:
            yield name, array


def write_folder(case: str, folder: Path, shards: int = 1) -> Path:
    """The case as a folder of Hugging Face."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CASES[case]["config"]))
    state = weights(case)
    if shards == 1:
        save_file(state, folder / "model.safetensors")
        return folder
    files = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(state)}
    for file in set(files.values()):
        save_file({n: state[n] for n, f in files.items() if f == file}, folder / file)
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_gguf(case: str, path: Path, quantize=lambda name, array: None, layers=()) -> Path:
    """The case as a GGUF file, converted as llama.cpp converts it; `quantize(name, array)` gives
    the type of a tensor, None for F32. Names and keys are those of the `gguf` package. `layers`
    of it alone where it is given, one after the other."""
    config, state = CASES[case]["config"], weights(case)
    if layers:
        config, state = _only(layers, config, state)
    config = {gguf_models.LATER.get(key, key): value for key, value in config.items()}
    config["intermediate_size"] = config["intermediate_size"] or 4 * config["hidden_size"]
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    kind = config["model_type"]
    architecture = gguf_models.ARCHITECTURES.get(kind, kind)
    writer = gguf.GGUFWriter(path, architecture)
    _metadata(writer, config, architecture)
    number = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    for which in CURVE:  # what `transformers` has as tensors and llama.cpp as metadata
        learned = [state.pop(n) for n in list(state) if n.endswith(f"act_fn.{which}")]
        if learned:
            writer.add_array(f"{architecture}.xielu.{which}", [float(a.item()) for a in learned])
    for name, array in _converted(state, config).items():
        theirs = gguf_name(names, name)
        assert theirs is not None, name
        which = quantize(theirs, array)
        if which is None:
            writer.add_tensor(theirs, array)
        else:
            writer.add_tensor(theirs, gguf.quantize(array, which), raw_dtype=which)
    _tokenizer(writer, config["vocab_size"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(names, name):
    """The `gguf` package's name of a tensor."""
    if name.endswith("dt_bias"):
        return names.get_name(name.removesuffix("_bias") + "_proj") + ".bias"
    if name.startswith("altup"):
        return name
    if name.endswith(("sinks", "layer_scalar", "correct_output_scale")):
        return names.get_name(name) + ".weight"
    name = name.replace("correction_bias", "correction.bias").replace(
        "expert_bias", "expert_bias.bias"
    )
    name = name.removeprefix("model." if "feed_forward.experts.w" in name else "")
    shared = re.sub(r"(\d\.)shared_mlp\.(gate|up)_", r"\1mlp.shared_expert.\2_", name)
    shared = shared.replace("block_sparse_moe.gate_proj", "mlp.experts.gate_proj")
    shared = shared.replace("block_sparse_moe.up_proj", "mlp.experts.up_proj")
    return names.get_name(shared, try_suffixes=(".weight", ".bias"))


def _only(layers, config, state):
    """Some layers, numbered anew."""
    kinds = [config["layer_types"][i] for i in layers]
    found = {name: array for name, array in state.items() if ".layers." not in name}
    for new, old in enumerate(layers):
        stem = f".layers.{old}."
        mine = {name: array for name, array in state.items() if stem in name}
        found |= {name.replace(stem, f".layers.{new}."): array for name, array in mine.items()}
    return {**config, "num_hidden_layers": len(layers), "layer_types": kinds}, found


def _tokenizer(writer, count):
    """Control tokens, then a space and letters."""
    letters = ["\u2581", *map(chr, range(ord("a"), ord("a") + count - 4))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *letters])
    writer.add_token_scores([0.0] * count)
    writer.add_token_types([2, 3, 3] + [1] * (count - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def _metadata(writer, config, architecture):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(gguf_models.widths(config))
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(gguf_models.heads_of_keys(config))
    if "kv_lora_rank" not in config:
        writer.add_key_length(gguf_models.wide_head(config))
        writer.add_value_length(gguf_models.wide_head(config))
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    gguf_models.add(writer, architecture, gguf_models.keys(config))
    rope = config.get("rope_parameters", {})
    rope = rope.get("full_attention", rope)
    if rope:
        stretch = rope.get("alpha", 1.0) ** (config["head_dim"] / (config["head_dim"] - 2))
        writer.add_rope_freq_base(rope["rope_theta"] * stretch)
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        writer.add_sliding_window(config["sliding_window"])
        if architecture in ("gemma3", "gemma4", "gemma3n", "dots1"):
            kinds = config["layer_types"]
            writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for which in ("long", "short"):
            values = np.array(rope[f"{which}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", values)
    if config.get("num_local_experts"):
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size"):
        width = config["moe_intermediate_size"]
        writer.add_expert_feed_forward_length(width[0] if isinstance(width, list) else width)
    if (factors := gguf_models.rope_factors(config)) is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _converted(state, config):
    """As llama.cpp's converter changes weights: rows of llama's queries and keys in the order of
    neighbouring pairs, 1 added to Gemma's norms, experts stacked."""
    found: dict[str, np.ndarray] = {}
    kind = config["model_type"]
    for name, array in gguf_models.converted(state, config).items():
        paired = "q_proj" in name or "k_proj" in name
        if kind in gguf_models.NEIGHBOURS and paired:
            heads = len(array) // config["head_dim"]
            array = array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2)
            array = array.reshape(state[name].shape)
        scales = "norm" in name and not name.endswith("bias") and "linear_attn" not in name
        if kind in gguf_models.FROM_ONE and scales:
            array = array + 1
        if re.search(r"experts\.[0-9]", name):
            stem, _, which = name.removesuffix(".weight").rpartition(".")
            stem = stem.rpartition(".")[0]
            found.setdefault(f"{stem}.{which}.weight", []).append(array)
        else:
            found[name] = array
    return {
        name: np.stack(a) if isinstance(a, list) else np.ascontiguousarray(a)
        for name, a in found.items()
    }
