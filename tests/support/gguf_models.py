"""llama.cpp's conversion of models beyond llama and Gemma: keys, and changed weights."""

from __future__ import annotations

import math
import re
from statistics import NormalDist

import gguf
import numpy as np

ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3"}
ARCHITECTURES |= {"qwen3_moe": "qwen3moe", "qwen2_moe": "qwen2moe", "olmo3": "olmo2"}
ARCHITECTURES |= {"ministral3": "mistral3", "phi": "phi2", "gpt_oss": "gpt-oss"}
ARCHITECTURES |= {"llama4_text": "llama4", "granitemoehybrid": "granitehybrid"}
ARCHITECTURES |= {"gemma4_text": "gemma4", "gemma3n_text": "gemma3n"}
ARCHITECTURES |= {"qwen3_next": "qwen3next", "qwen3_5_text": "qwen35"}
ARCHITECTURES |= {"falcon_h1": "falcon-h1", "deepseek_v2": "deepseek2"}
ARCHITECTURES |= {"lfm2_moe": "lfm2moe", "cohere": "command-r"}
ARCHITECTURES |= {"granitemoeshared": "granitemoe"}
ARCHITECTURES |= {"glm4_moe": "glm4moe", "ernie4_5_moe": "ernie4_5-moe"}
ARCHITECTURES |= {"hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe"}
ARCHITECTURES |= {"exaone_moe": "exaone-moe", "minimax_m2": "minimax-m2"}
ARCHITECTURES |= {"gpt_bigcode": "starcoder", "gpt_neox": "gptneox"}
# Keys of GPT 2 by their later names.
LATER = {"n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings"}
LATER |= {"n_embd": "hidden_size", "n_inner": "intermediate_size", "n_head": "num_attention_heads"}
LATER |= {"layer_norm_epsilon": "layer_norm_eps"}
SOFTMAX, SIGMOID = 1, 2  # how chances of experts are computed
NEIGHBOURS = ("llama", "mistral", "mixtral", "ministral3", "smollm3", "minicpm", "arcee")
NEIGHBOURS += ("olmo", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared")
# Of norms.
FROM_ONE = ("gemma", "gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text", "nemotron")
PATTERN = "activation_sparsity_pattern"
LLM, ATTENTION, SSM, ROPE = gguf.Keys.LLM, gguf.Keys.Attention, gguf.Keys.SSM, gguf.Keys.Rope


def keys(config):
    """Keys of the metadata by the constants of the `gguf` package, with the architecture left out;
    whole numbers stay whole."""
    kind, found = config["model_type"], {}
    if "layer_norm_eps" in config or "norm_epsilon" in config:
        found[ATTENTION.LAYERNORM_EPS] = config.get("layer_norm_eps", config.get("norm_epsilon"))
    if "norm_eps" in config:
        taken = ATTENTION.LAYERNORM_EPS if kind == "nemotron" else ATTENTION.LAYERNORM_RMS_EPS
        found[taken] = config["norm_eps"]
    if kind.startswith("cohere"):
        found[LLM.LOGIT_SCALE] = config["logit_scale"]
    if kind.startswith("granite"):
        found |= {
            LLM.EMBEDDING_SCALE: config["embedding_multiplier"],
            LLM.RESIDUAL_SCALE: config["residual_multiplier"],
            ATTENTION.SCALE: config["attention_multiplier"],
            LLM.LOGIT_SCALE: config["logits_scaling"],
        }
    rope = config.get("rope_parameters", {})
    if kind in ("gpt_neox", "stablelm"):
        found[LLM.USE_PARALLEL_RESIDUAL] = config["use_parallel_residual"]
    if "partial_rotary_factor" in rope:
        turned = int(rope["partial_rotary_factor"] * config["head_dim"])
        found[ROPE.DIMENSION_COUNT] = turned
    if "llama_4_scaling_beta" in rope:
        found[ATTENTION.TEMPERATURE_SCALE] = rope["llama_4_scaling_beta"]
        found[ROPE.SCALING_YARN_LOG_MUL] = rope["mscale_all_dim"]
    if "mamba_n_heads" in config:
        found |= {
            SSM.CONV_KERNEL: config["mamba_d_conv"],
            SSM.STATE_SIZE: config["mamba_d_state"],
            SSM.GROUP_COUNT: config["mamba_n_groups"],
            SSM.INNER_SIZE: config["mamba_n_heads"] * config["mamba_d_head"],
            SSM.TIME_STEP_RANK: config["mamba_n_heads"],
            ROPE.SCALING_FINETUNED: config.get("position_embedding_type") == "rope",
        }
    if kind.startswith("lfm2"):
        found["{arch}.shortconv.l_cache"] = config["conv_L_cache"]
    if "kv_lora_rank" in config:
        head = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
        found |= {
            ATTENTION.KV_LORA_RANK: config["kv_lora_rank"],
            ATTENTION.KEY_LENGTH: head,
            ATTENTION.VALUE_LENGTH: config["v_head_dim"],
            ROPE.DIMENSION_COUNT: config["qk_rope_head_dim"],
        }
        if config["q_lora_rank"]:
            found[ATTENTION.Q_LORA_RANK] = config["q_lora_rank"]
    if "n_routed_experts" in config:
        found |= {
            LLM.EXPERT_COUNT: config["n_routed_experts"],
            LLM.EXPERT_USED_COUNT: config["num_experts_per_tok"],
            LLM.EXPERT_WEIGHTS_SCALE: config["routed_scaling_factor"],
            LLM.EXPERT_GATING_FUNC: SOFTMAX if kind == "deepseek_v2" else SIGMOID,
        }
    if kind in ("glm4_moe", "dots1"):
        found |= {LLM.EXPERT_WEIGHTS_NORM: config["norm_topk_prob"]}
    if kind == "exaone_moe":
        found |= {
            LLM.EXPERT_COUNT: config["num_experts"],
            LLM.EXPERT_USED_COUNT: config["num_experts_per_tok"],
            LLM.EXPERT_WEIGHTS_SCALE: config["routed_scaling_factor"],
            LLM.EXPERT_GROUP_COUNT: config["n_group"],
            LLM.EXPERT_GROUP_USED_COUNT: config["topk_group"],
        }
    if kind == "ernie4_5_moe":
        found |= {
            LLM.EXPERT_COUNT: config["moe_num_experts"],
            LLM.EXPERT_USED_COUNT: config["moe_k"],
            LLM.EXPERT_SHARED_COUNT: config["moe_num_shared_experts"],
        }
    if kind == "hunyuan_v1_moe":
        found |= {
            LLM.EXPERT_COUNT: config["num_experts"],
            LLM.EXPERT_USED_COUNT: config["moe_topk"][0],
            LLM.EXPERT_SHARED_COUNT: 1,
        }
    if kind == "lfm2_moe":
        found[LLM.EXPERT_WEIGHTS_NORM] = config["norm_topk_prob"]
        found[LLM.EXPERT_WEIGHTS_SCALE] = config["routed_scaling_factor"]
    if "linear_num_key_heads" in config:
        heads = config["linear_num_value_heads"]
        found |= {
            SSM.CONV_KERNEL: config["linear_conv_kernel_dim"],
            SSM.STATE_SIZE: config["linear_key_head_dim"],
            SSM.GROUP_COUNT: config["linear_num_key_heads"],
            SSM.TIME_STEP_RANK: heads,
            SSM.INNER_SIZE: heads * config["linear_value_head_dim"],
            LLM.FULL_ATTENTION_INTERVAL: 1 + config["layer_types"].index("full_attention"),
            ROPE.DIMENSION_SECTIONS: [found[ROPE.DIMENSION_COUNT] // 2, 0, 0, 0],
        }
    if "hidden_size_per_layer_input" in config:
        found |= {
            LLM.EMBD_LENGTH_PER_LAYER_INP: config["hidden_size_per_layer_input"],
            ATTENTION.SHARED_KV_LAYERS: config["num_kv_shared_layers"],
        }
    if kind == "gemma4_text":
        found |= {
            ATTENTION.KEY_LENGTH_SWA: config["head_dim"],
            ATTENTION.VALUE_LENGTH_SWA: config["head_dim"],
            ROPE.DIMENSION_COUNT: wide_head(config),
            ROPE.DIMENSION_COUNT_SWA: config["head_dim"],
        }
    if kind in ("gemma4_text", "gemma3n_text"):
        found[ROPE.FREQ_BASE_SWA] = rope["sliding_attention"]["rope_theta"]
    if "activation_sparsity_pattern" in config:
        cuts = [NormalDist().inv_cdf(p) if p else -math.inf for p in config[PATTERN]]
        found |= {LLM.ACTIVATION_SPARSITY_SCALE: cuts, LLM.ALTUP_ACTIVE_IDX: 0}
        found[LLM.ALTUP_NUM_INPUTS] = config["altup_num_inputs"]
    if kind in ("gpt_oss", "llama4_text"):
        found[LLM.EXPERT_FEED_FORWARD_LENGTH] = config["intermediate_size"]
    if config.get("clip_qkv"):
        found[ATTENTION.CLAMP_KQV] = config["clip_qkv"]
    if kind == "llama4_text":
        found[LLM.INTERLEAVE_MOE_LAYER_STEP] = config["interleave_moe_layer_step"]
    for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        if key in config and not dense_granite(config):
            found[LLM.EXPERT_SHARED_FEED_FORWARD_LENGTH] = config[key]
    if kind in ("qwen2_moe", "qwen3_next", "lfm2_moe", "olmoe"):
        found |= {LLM.EXPERT_COUNT: config["num_experts"]}
        found |= {LLM.EXPERT_USED_COUNT: config["num_experts_per_tok"]}
    return found


def dense_granite(config):
    """True if the shared layer is the only one, which files then name as other models do."""
    return "shared_intermediate_size" in config and not config["num_local_experts"]


def wide_head(config):
    """Width of heads of layers without a window."""
    own = config.get("per_layer_config") or {}
    return next(iter(own.values()), {}).get("head_dim", config.get("head_dim"))


def widths(config):
    """Widths of the feed-forward layers: one number, or one for each."""
    if dense_granite(config):
        return config["shared_intermediate_size"]
    if not config.get("use_double_wide_mlp"):
        return config["intermediate_size"]
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    return [config["intermediate_size"] * (1 + (i >= layers - shared)) for i in range(layers)]


def rope_factors(config):
    """Divisors of frequencies, where some pairs of a head stay."""
    rope = config.get("rope_parameters", {})
    if rope.get("rope_type") == "llama3":
        return _llama3(rope, config["head_dim"])
    rope = rope.get("full_attention", {})
    if rope.get("rope_type") != "proportional":
        return None
    pairs = wide_head(config) // 2
    turned = int(wide_head(config) * rope["partial_rotary_factor"]) // 2
    return np.array([1.0] * turned + [1e30] * (pairs - turned), np.float32)


def _llama3(rope, head):
    """Those of Llama 3.1, as the converter computes them."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["rope_theta"] ** -(np.arange(0, head, 2) / head) / (2 * math.pi)
    turns *= rope["original_max_position_embeddings"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return np.float32(1 / ((1 - smooth) / rope["factor"] + smooth))


def add(writer, architecture, values):
    for key, value in values.items():
        name = key.format(arch=architecture)
        kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        kinds[list] = writer.add_array
        kinds[type(value)](name, value)


def heads_of_keys(config):
    """Their count, or one for each layer where some have none."""
    mixed = {"conv", "linear_attention"} & set(config.get("layer_types") or ())
    if "linear_num_key_heads" in config:
        mixed = set()
    count = 1 if config.get("multi_query") else config["num_key_value_heads"]
    if not mixed:
        return count
    return [0 if kind in mixed else count for kind in config["layer_types"]]


def heads_tiled(state, config):
    """Heads of values of Qwen 3.5: those that share a key are no longer neighbours."""
    groups, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys = 2 * groups * config["linear_key_head_dim"]
    order = np.arange(heads).reshape(groups, -1).T.reshape(-1)

    def tiled(array):
        return array.reshape(heads, -1, *array.shape[1:])[order].reshape(array.shape)

    for name, array in state.items():
        if "in_proj_qkv" in name or "conv1d" in name:
            state[name] = np.concatenate([array[:keys], tiled(array[keys:])])
        elif "linear_attn.out_proj" in name:
            state[name] = tiled(array.T).T
        elif "linear_attn" in name and "linear_attn.norm" not in name:
            state[name] = tiled(array)
    return state


def converted(state, config):
    """Stacks apart and turned round, rates as what is multiplied by, factors in the weights."""
    kind, found = config["model_type"], {}
    state = heads_tiled(dict(state), config) if kind == "qwen3_5_text" else state
    for name, array in state.items():
        if "altup_projections" in name or "altup_unembed_projections" in name:
            which = "altup_unembd_proj" if "unembed" in name else "altup_proj"
            found.setdefault(f"{which}.weight", []).append(array)
        elif name.endswith(("input_linear.weight", "experts.gate_up_proj", "gate_up_proj_bias")):
            found |= _halves(name, array, kind)
        elif kind in ("gpt_oss", "llama4_text") and "experts.down_proj" in name:
            turned = array if name.endswith("bias") else array.swapaxes(1, 2)
            found[_weight(name)] = np.ascontiguousarray(turned)
        elif kind == "gpt_neox" and "query_key_value" in name:
            by_head = array.reshape(config["num_attention_heads"], 3, -1)
            found[name] = by_head.swapaxes(0, 1).reshape(array.shape)
        elif kind == "gpt2" and re.search(r"\.c_\w+\.weight", name):
            found[name] = array.T
        elif "moe_statics" in name:
            found[name] = array.reshape(-1)
        elif name.endswith("A_log"):
            found[name] = -np.exp(array).reshape((-1,) if "linear_attn" in name else (-1, 1))
        elif name.endswith("mamba.D"):
            found[name] = array.reshape(-1, 1)
        elif "mamba.norm" in name:
            found[name] = array.reshape(config["mamba_n_groups"], -1)
        elif ".conv" in name and array.ndim == 3:
            found[name] = array[:, 0]
        else:
            found[name] = array
    if dense_granite(config):
        plain = {n: n.replace("output_linear", "down_proj") for n in found if "shared_mlp" in n}
        names = {n: m.replace("shared_mlp", "mlp") for n, m in plain.items()}
        return {names.get(name, name): array for name, array in found.items()}
    return _multiplied(found, config) if kind == "falcon_h1" else found


def _weight(name):
    """`..._bias` is of the tensor in front of it; what has no suffix is a weight."""
    if name.endswith("_bias"):
        return f"{name.removesuffix('_bias')}.bias"
    return name if name.endswith("weight") else f"{name}.weight"


def _halves(name, array, kind):
    parts = (array[..., 0::2], array[..., 1::2])
    if kind == "llama4_text":
        parts = np.split(array, 2, axis=-1)
    elif kind != "gpt_oss":
        parts = np.split(array, 2, axis=-2)
    elif not name.endswith("bias"):
        parts = (array[..., 0::2], array[..., 1::2])
    if kind in ("gpt_oss", "llama4_text") and not name.endswith("bias"):
        parts = [part.swapaxes(1, 2) for part in parts]
    stem = _weight(name)
    names = [
        stem.replace("input_linear", f"{which}_proj").replace("gate_up_proj", f"{which}_proj")
        for which in ("gate", "up")
    ]
    return {n: np.ascontiguousarray(part) for n, part in zip(names, parts, strict=True)}


def _multiplied(state, config):
    """Falcon H1 as its converter writes it."""
    gate, down = config["mlp_multipliers"]
    within, sizes = config["attention_in_multiplier"], config["mamba_n_groups"]
    wide, size = config["mamba_d_ssm"], sizes * config["mamba_d_state"]
    counts = [wide, wide, size, size, config["mamba_n_heads"]]
    ssm = np.repeat(config["ssm_multipliers"], counts) * config["ssm_in_multiplier"]
    factors = {
        "embed_tokens": config["embedding_multiplier"],
        "lm_head": config["lm_head_multiplier"],
        "q_proj": within,
        "k_proj": within * config["key_multiplier"],
        "v_proj": within,
        "o_proj": config["attention_out_multiplier"],
        "mamba.in_proj": ssm[:, None],
        "mamba.out_proj": config["ssm_out_multiplier"],
        "gate_proj": gate,
        "down_proj": down,
    }
    for name in state:
        for part, factor in factors.items():
            if part in name:
                state[name] = np.float32(state[name] * factor)
    return state
