"""A decoder from a folder of Hugging Face: `config.json` as a `Config`, safetensors as weights."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.language.decoder import rope
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.checkpoints import unpacked_tensors
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.names import Leaf, add_scales, check_shapes, stacked, tensor_tree
from jq.language.decoder.safetensors import json_object, read_folder
from jq.language.decoder.windows import KINDS, names_of_text, text_of, windows, with_wide_heads

_BOTH = "use_bidirectional_attention"
_OF_HEAD = re.compile(r"(.+)\.norms\.(\d+)\.(\w+)")
_COMPUTED = "rotary_emb.inv_freq"  # which old checkpoints hold and the config gives
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
}


def read_huggingface(folder: str | Path) -> tuple[Config, dict[str, Any]]:
    """The model in a folder: what it is, and its parameters over the mapped files; `UserError` for
    what is damaged, and for an architecture, tensor, shape or choice that is not known."""
    folder = Path(folder)
    config, reader = _read_config(folder)
    known = reader.known
    files = {n: t for n, t in read_folder(folder).items() if not n.endswith(_COMPUTED)}
    held = {ours: files[name] for ours, name in names_of_text(reader.values, files).items()}
    held = _of_heads_together(held, str(folder))
    tensors: Mapping[str, Leaf] = held
    quantized = reader.values.get("quantization_config")
    if quantized is not None and not isinstance(quantized, dict):
        raise reader.wrong(f"quantization_config is {quantized!r:.40}")
    own = reader.values.get("quantization")  # MLX repeats it as `quantization_config`
    if isinstance(own, dict) and "quant_method" not in (quantized or {}):
        quantized = {**own, "quant_method": "mlx"}
    if quantized is not None:
        tensors = unpacked_tensors(quantized, held, str(folder))
    tied = known.one_plus if known.tied is None else known.tied
    if reader.values.get("tie_word_embeddings", tied):
        bias = "lm_head.bias"
        tensors = {n: t for n, t in tensors.items() if not n.startswith("lm_head.") or n == bias}
    tree = tensor_tree(known.hugging_face, tensors, config, str(folder), stacked, known.swapped)
    check_shapes(config, tree, known.hugging_face, str(folder))
    if known.scales:
        with numbers(reader.wrong):
            add_scales(tree, known.scales(reader.get), config, str(folder))
    return config, _one_plus(tree) if known.one_plus else tree


def _of_heads_together(held: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Norms of each head, `norms.0.weight` and so on, as one tensor [heads, head]."""
    found: dict[str, np.ndarray] = {}
    parts: dict[str, dict[int, np.ndarray]] = {}
    for name, array in held.items():
        if head := _OF_HEAD.fullmatch(name):
            parts.setdefault(f"{head[1]}.{head[3]}", {})[int(head[2])] = array
        else:
            found[name] = array
    for name, heads in parts.items():
        if len({array.shape for array in heads.values()}) > 1:
            raise UserError(f"the norms of {name} have several shapes", location=where)
        found[name] = np.stack([heads[i] for i in sorted(heads)])
    return found


def read_config(folder: Path) -> Config:
    """The model in a folder without its weights."""
    return _read_config(folder)[0]


def _read_config(folder: Path) -> "tuple[Config, _Reader]":
    path = folder / "config.json"
    reader = _Reader(with_wide_heads(text_of(json_object(path))), str(path))
    with numbers(reader.wrong):
        return reader.config(), reader


def _one_plus(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Norms as what they multiply by."""
    return {
        name: (
            {"weight": 1 + np.asarray(node["weight"], np.float32)}
            if "norm" in name and name != "inner_norm"
            else _one_plus(node)
        )
        if isinstance(node, Mapping)
        else node
        for name, node in tree.items()
    }


@dataclass(frozen=True)
class _Reader:
    values: Mapping[str, Any]
    where: str

    @property
    def known(self) -> Architecture:
        kind = self.values.get("model_type")
        for known in Architecture.registry.values():
            if kind in known.model_types:
                return known
        types = sorted(t for a in Architecture.registry.values() for t in a.model_types)
        raise UserError(
            f"the model type {kind!r} is not known",
            location=self.where,
            hint="known: " + ", ".join(types),
        )

    def number(self, key: str, default: float | None = None) -> float:
        value: Any = self.values.get(key)
        if value is None:
            value = self.known.defaults.get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.wrong(f"{key} is {value!r:.40}")
        return float(value)

    def size(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value) or not 0 < value < 1 << 31:
            raise self.wrong(f"{key} is {value}")
        return int(value)

    def wrong(self, reason: str) -> UserError:
        return UserError(f"the config describes no known model: {reason}", location=self.where)

    def config(self) -> Config:
        known = self.known
        both = self.values.get(_BOTH) and self.values[_BOTH] not in known.only.get(_BOTH, ())
        if both or not self.values.get("is_causal", True):
            raise self.wrong("its attention goes both ways, as that of embeddings")
        for key, possible in known.only.items():
            if self.values.get(key) is not None and self.values[key] not in possible:
                raise self.wrong(f"{key} is {self.values[key]!r:.40}, which is not supported")
        layers, hidden = self.size("num_hidden_layers"), self.size("hidden_size")
        if layers > 4096:
            raise self.wrong(f"num_hidden_layers is {layers}")
        heads = self.size("num_attention_heads")
        kv_heads = self.size("num_key_value_heads", heads)
        fields, own = known.read(0, self.get)
        head = fields.pop("head", 0) or self.size("head_dim", max(hidden // heads, 1))
        if heads % kv_heads:
            raise self.wrong(f"{heads} heads do not share {kv_heads} of keys")
        kinds, values = self._kinds(known, layers)
        rule, default = known.windows.get(self.values["model_type"], ("none", None))
        listed, every = self.values.get("no_rope_layers"), self.values.get("no_rope_layer_interval")
        if not isinstance(listed, list) or not listed:
            every = 4 if every is None else self.size("no_rope_layer_interval")
            listed = [(i + 1) % every != 0 for i in range(layers)]
        values = {**values, "no_rope_layers": listed}
        sizes = windows(rule, known.global_every, values, layers, default)
        asked = self.values.get("position_embedding_type") == "rope"
        turned = known.turned(sizes, listed, asked)
        if len(turned) != layers:
            raise self.wrong(f"no_rope_layers are {len(turned)} of {layers} layers")
        ropes = self._ropes(known, own.get("turned") or head, own.get("wide_head") or head)
        scaled = "query_pre_attn_scalar" in known.defaults
        scalar = self.number("query_pre_attn_scalar") if scaled else head
        experts, inner = self._experts()
        said = self.values if known.shares_are_said else {}
        found: dict[str, Any] = {
            "hidden": hidden,
            "inner": inner,
            "heads": heads,
            "kv_heads": kv_heads,
            "head": head,
            "context": self.size("max_position_embeddings"),
            "windows": sizes,
            "mixers": known.mixers_of(kinds, own.get("sharing", 0)),
            "vocabulary": self.size("vocab_size"),
            "activation": self._activation(known),
            "attention_scale": scalar**-0.5,
            "attention_cap": self._cap("attn_logit_softcapping", known.caps[0]),
            "logit_cap": self._cap("final_logit_softcapping", known.caps[1]),
            "experts": experts,
            "experts_used": self.size("num_experts_per_tok") if experts else 0,
            "normal_shares": bool(said.get("norm_topk_prob", known.normal_shares)),
        }
        return known.config(0, self.get, ropes, turned, own, **found | fields)

    def get(self, key: str, default: Any = None) -> Any:
        """A number, truth or list of numbers, of the whole or of its positions."""
        value: Any = self.values.get(key)
        for place in ("rope_parameters", "rope_scaling"):
            given = self.values.get(place)
            value = given.get(key) if value is None and isinstance(given, dict) else value
        if value is None:
            value = self.known.defaults.get(key, default)
        flat = value if isinstance(value, list) else [value]
        if not all(type(v) in (int, float, bool) and math.isfinite(v) for v in flat):
            raise self.wrong(f"{key} is {value!r:.40}")
        return value

    def _kinds(self, known: Architecture, layers: int) -> tuple[list[str], Mapping[str, Any]]:
        """The kind of each layer, and the values with `layer_types` that `windows` knows."""
        kinds = self.values.get("layer_types") or self.values.get("layers_block_type")
        every, some = (self.values.get(k) for k in ("full_attention_interval", "full_attn_idxs"))
        other = next(iter(known.mixers), "")
        if kinds is None and other and isinstance(some, list):
            kinds = ["full_attention" if i in some else other for i in range(layers)]
        if kinds is None and known.recurrent_but:
            every = known.recurrent_but if every is None else self.size("full_attention_interval")
            kinds = [other if (i + 1) % every else "full_attention" for i in range(layers)]
        values = self.values
        if "chunks" in known.own and "attention_chunk_size" in values:
            values = {**values, "sliding_window": values["attention_chunk_size"]}
        if kinds is None or "" in known.mixers:
            return [""] * layers, values
        sound = isinstance(kinds, list) and all(isinstance(k, str) for k in kinds)
        if not sound or len(kinds) != layers:
            raise self.wrong(f"layer_types are {kinds!r:.80}")
        same = {"attention": "full_attention", "chunked_attention": "sliding_attention"}
        same |= {k: "full_attention" for k in known.mixers if k not in KINDS}
        plain = [same.get(kind, kind) for kind in kinds]
        return kinds, {**values, "layer_types": plain}

    def _experts(self) -> tuple[int, int]:
        """Their count, and the width of each feed-forward layer."""
        widths = self.values.get("intermediate_size")
        width = (
            max(widths) if isinstance(widths, list) and widths else self.size("intermediate_size")
        )
        for key in ("num_experts", "num_local_experts", "n_routed_experts"):
            if self.values.get(key):
                return self.size(key), self.size("moe_intermediate_size", width)
        return 0, width

    def _cap(self, key: str, default: float | None) -> float:
        """An explicit null turns it off."""
        return 0.0 if default is None else float(self.values.get(key, default) or 0.0)

    def _activation(self, known: Architecture) -> str:
        name = self.values.get(known.activation_key)
        if name is None or (known.name == "gemma" and name == "gelu"):
            return known.activation  # Gemma's first configs named the wrong one
        if name not in _ACTIVATIONS:
            raise self.wrong(f"the activation {name!r} is not known")
        return _ACTIVATIONS[name]

    def _ropes(self, known: Architecture, head: int, wide: int) -> dict[str, rope.Rope]:
        """Positions by name; heads of layers without a window are `wide`."""
        given = self.values.get("rope_parameters") or {}
        scaling = self.values.get("rope_scaling") or {}
        nested = [v for v in given.values() if v is not None] if isinstance(given, dict) else []
        full = isinstance(given, dict) and "full_attention" in given
        sound = not full or (
            "sliding_attention" in given and all(isinstance(v, dict) for v in nested)
        )
        if not isinstance(given, dict) or not isinstance(scaling, dict) or not sound:
            raise self.wrong("rope_parameters or rope_scaling are not as they should be")
        base = self.number("rope_theta", 10000.0)
        if "full_attention" in given:
            return {
                "all": self._rope(given["full_attention"], base, wide),
                "local": self._rope(given["sliding_attention"], base, head),
            }
        found = {"all": self._rope(given or scaling, base, head)}
        if known.local_base:
            local = self.number("rope_local_base_freq", known.local_base)
            found["local"] = rope.plain(local, head)
        if known.plain_windows:
            found["local"] = self._rope({**given, "rope_type": "default"}, base, head)
        return found

    def _rope(self, given: Mapping[str, Any], base: float, head: int) -> rope.Rope:
        inner = _Reader({**self.values, **given}, self.where)
        base = inner.number("rope_theta", base)
        kind = given.get("rope_type") or given.get("type") or "default"
        whole = kind == "default" and "partial_rotary_factor" not in self.known.defaults
        dims = head if whole else int(head * inner.number("partial_rotary_factor", 1.0))
        # "dynamic" changes what is longer than the model's context, "mrope" positions of pictures.
        if kind in ("default", "dynamic", "mrope"):
            return rope.plain(base, dims)
        if kind == "proportional":  # the first pairs of the whole head; the others stay
            whole = rope.plain(base, head).frequencies
            return rope.Rope((*whole[: dims // 2], *[0.0] * (len(whole) - dims // 2)))
        if kind in ("longrope", "su"):
            return inner.longrope(base, dims)
        longest = self.size("max_position_embeddings")
        original = inner.size("original_max_position_embeddings", longest)
        factor = inner.number("factor", longest / original if kind == "yarn" else None)
        if kind == "linear":
            return rope.plain(base, dims, factor)
        if kind == "llama3":
            low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
            return rope.llama3(base, dims, factor, low, high, original)
        if kind == "yarn":
            return inner.yarn(base, dims, factor, original)
        raise self.wrong(f"rotary positions are scaled by {kind!r}, which is not known")

    def yarn(self, base: float, dims: int, factor: float, original: int) -> rope.Rope:
        """The factor of cosines and sines is the ratio of two scales where the file has
        both, `mscale` and `mscale_all_dim`."""
        fast = self.number("beta_fast", 32.0) or 32.0
        slow = self.number("beta_slow", 1.0) or 1.0
        own, whole = self.values.get("attention_factor"), self.values.get("truncate", True)
        upper, lower = (self.number(key, 0.0) for key in ("mscale", "mscale_all_dim"))
        if own is not None:
            scale = self.number("attention_factor")
        elif upper and lower:
            scale = rope.yarn_scale(factor, upper) / rope.yarn_scale(factor, lower)
        else:
            scale = rope.yarn_scale(factor)
        return rope.yarn(base, dims, factor, original, fast, slow, scale, truncate=bool(whole))

    def longrope(self, base: float, dims: int) -> rope.Rope:
        original = self.size("original_max_position_embeddings")
        context = self.size("max_position_embeddings")
        scale = self.values.get("attention_factor")
        scale = rope.longrope_scale(context, original) if scale is None else float(scale)
        short, long = lists = [self.values.get(key) for key in ("short_factor", "long_factor")]
        if any(not isinstance(f, list) or len(f) != dims // 2 for f in lists):
            raise self.wrong(f"short_factor and long_factor do not hold {dims // 2} numbers each")
        return rope.longrope(base, dims, short or (), long or (), scale, original)
