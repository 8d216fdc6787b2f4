"""A decoder from a folder of Hugging Face: `config.json` as a `Config`, safetensors as weights."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError, check_known
from jq.frontends.checkpoints import unpacked_tensors
from jq.frontends.safetensors import json_object, read_folder
from jq.language.decoder import rope, text
from jq.language.decoder.architectures import INTERVAL, Architecture
from jq.language.decoder.architectures._base import SWITCHED
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.contradictions import check_experts, with_key
from jq.language.decoder.names import Leaf, add_scales, parameter_tree
from jq.language.decoder.products import ACTIVATIONS
from jq.language.decoder.reading import Reader

_BOTH = "use_bidirectional_attention"
# What old checkpoints hold and the config gives, and parts for multi-token prediction (MTP).
_UNREAD = re.compile(r".*rotary_emb\.inv_freq|(model\.)?mtp[._].*|.*\.att[a-z]+\.(masked_)?bias")
_LOCAL = ("sliding_attention", "chunked_attention", "local")  # kinds of layers with a window
_OFF = ("softcapping", "is_causal", "norm_topk_prob", "rope_interleave")
_ORIGINAL = "original_max_position_embeddings"
_TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh")
# By their names, ours.
_ACTIVATIONS = {"swish": "silu", "gelu_python": "gelu", **dict.fromkeys(_TANH, "gelu_tanh")}


def read_huggingface(folder: str | Path) -> tuple[Config, dict[str, Any]]:
    """The model in a folder: what it is, and its parameters over the mapped files; `UserError` for
    what is damaged, and for an architecture, tensor, shape or choice that is not known."""
    reader = _reader(folder := Path(folder))
    config, known = reader.config(), reader.known
    files = {n: t for n, t in read_folder(folder).items() if not _UNREAD.fullmatch(n)}
    files = reader.without_mtp(files, config)
    held = {ours: files[name] for ours, name in text.names_of_text(reader.values, files).items()}
    held = text.of_heads_together(held, str(folder))
    tensors: Mapping[str, Leaf] = held
    quantized = reader.values.get("quantization_config")
    if quantized is not None and not isinstance(quantized, dict):
        raise reader.wrong(f"quantization_config is {quantized!r:.40}")
    own = reader.values.get("quantization")  # MLX repeats it as `quantization_config`
    if isinstance(own, dict) and "quant_method" not in (quantized or {}):
        quantized = {**own, "quant_method": "mlx"}
    if quantized is not None:
        tensors = unpacked_tensors(quantized, held, str(folder))
    # As in `transformers`: only where the head in the file is the table.
    pair: list[Any] = [tensors.get(n) for n in ("lm_head.weight", "model.embed_tokens.weight")]
    apart = all(isinstance(t, np.ndarray) for t in pair) and not np.array_equal(pair[0], pair[1])
    if (tied := reader.value("tie_word_embeddings")) and not apart:
        bias = "lm_head.bias"
        tensors = {n: t for n, t in tensors.items() if not n.startswith("lm_head.") or n == bias}
    wide = [i for i, names in enumerate(config.mixers) if "wide_attention" in names]
    off = [f"layers/{i}/attention/value/.*" for i in wide if config.get("values_are_keys")]
    off += [of for n, of in SWITCHED.items() if not known.on(n, reader.values)]
    if config.parallel and not config.get("two_norms"):
        off.append("mlp/norm/.*")
    if not config.get("per_layer"):
        off.append("per_layer/.*")
    try:
        tree = parameter_tree(config, reader.form, tensors, str(folder), "|".join(off))
    except UserError as error:
        raise with_key(error, reader, reader.values) from error
    check_experts(reader, reader.values, config, tree)
    if tied is False and "head" not in tree and not any(n.startswith(text.NAKED) for n in files):
        raise reader.wrong("tie_word_embeddings is false, and there is no head in the files")
    if known.scales:
        with numbers(reader.wrong):
            add_scales(tree, known.scales(reader.get), config, str(folder))
    return config, _one_plus(tree) if known.one_plus else tree


def read_config(folder: Path) -> Config:
    """The model in a folder without its weights."""
    return _reader(folder).config()


def _reader(folder: Path) -> "_Reader":
    path = folder / "config.json"
    values = text.with_wide_heads(text.with_later_names(text.text_of(json_object(path))))
    possible = {t: each for each in Architecture.registry.values() for t in each.model_types}
    kind = check_known("model type", values.get("model_type"), sorted(possible), location=str(path))
    known = possible[kind]
    own, local = (known.default(kind, key) for key in ("rope_parameters", "local_base"))
    values = text.with_positions(values, own or {}, bool(local or known.local_base), str(path))
    return _Reader(known, str(path), values)


def _one_plus(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Norms as what they multiply by."""
    found = dict(tree)
    for name, node in tree.items():
        if "norm" in name and name != "inner_norm":
            found[name] = {**node, "weight": 1 + np.asarray(node["weight"], np.float32)}
        elif isinstance(node, Mapping):
            found[name] = _one_plus(node)
    return found


@dataclass(frozen=True)
class _Reader(Reader):
    """A `config.json`."""

    form = "hugging_face"

    values: Mapping[str, Any]

    def value(self, key: str) -> Any:
        """The value of the whole, its positions, or the architecture; where there is one for each
        layer, the widest, or what is the same in all of them."""
        places = [self.values, self.values["rope_parameters"]]
        names = (key,) if key != "num_experts" else self.known.experts
        stated = [place[name] for place in places for name in names if name in place]
        found = [value for value in stated if value not in (None, "auto")]
        if stated and not found and key.endswith(_OFF):
            return 0  # an explicit null turns it off
        kind = self.values["model_type"]
        value: Any = found[0] if found else self.known.default(kind, key, not stated)
        if isinstance(value, list) and key == "num_experts_per_tok" and len({*value}) == 1:
            return value[0]
        widest = isinstance(value, list) and key.endswith("intermediate_size")
        return max(value) if widest else value

    def _config(self) -> Config:
        found = super()._config()
        if self.known.on("norms", self.values):
            found = replace(found, own=(*found.own, ("normed_heads", True)))
        router = (found.get("router") or "softmax", "noaux_tc")  # as dots.llm1 names its own
        for key, possible in {"scoring_func": router, **self.known.only}.items():
            value, alone = self.values.get(key), self.values.get("n_group") == 1
            alone = alone and key == "topk_method"  # all choose from one group alike
            if not alone and value is not None and value not in possible:
                raise self.wrong(f"{key} is {value!r:.40}, which is not supported")
        return replace(found, activation=self._activation())

    def causal(self) -> bool:
        both = self.values.get(_BOTH)
        return super().causal() and (not both or both in self.known.only.get(_BOTH, ()))

    def listed(self, count: int, every: int = 4) -> list[bool]:
        if found := self.values.get("no_rope_layers"):
            sound = isinstance(found, list) and all(turns in (0, 1) for turns in found)
            if not sound or len(found) != count:
                raise self.wrong(f"no_rope_layers are {found!r:.60}, not 0 or 1 for {count} layers")
            return [bool(turns) for turns in found]
        return super().listed(count, self.size("no_rope_layer_interval", every))

    def layers(self, count: int, sharing: int) -> tuple[list[str], tuple[int, ...]]:
        kinds = self._kinds(count)
        return kinds or [""] * count, self._windows(kinds, count)

    def _kinds(self, count: int) -> list[str] | None:
        """The kind of each layer; None where no file says it."""
        known, some = self.known, self.value("full_attn_idxs")
        other = next(iter(known.mixers), "")
        alike = known.mixers and not other  # all have the same mixers
        kinds = self.values.get("layer_types") if alike else self.value("layer_types")
        if kinds is None and other and isinstance(some, list):
            kinds = ["full_attention" if i in some else other for i in range(count)]
        elif kinds is None and INTERVAL in known.defaults:
            every = self.size(INTERVAL)
            kinds = [other if (i + 1) % every else "full_attention" for i in range(count)]
        possible = ("attention", "full_attention", *_LOCAL, *known.mixers)
        fits = kinds is None or (isinstance(kinds, list) and len(kinds) == count)
        if not fits or not all(kind in possible for kind in kinds or ()):
            raise self.wrong(f"layer_types are {kinds!r:.60}, num_hidden_layers is {count}")
        if kinds and other == "sliding_attention":  # Gemma 4, whatever its file says
            kinds = [*kinds[:-1], "full_attention"]
        return None if alike else kinds

    def _windows(self, kinds: list[str] | None, count: int) -> tuple[int, ...]:
        """Number of tokens that each layer sees, 0 for all, by the rule of the model type: each
        ignores keys that others read.

        By the rule "none" no layer has a window; "all": every one; "asked": every one where
        `use_sliding_window` is set; "from": likewise, from layer `max_window_layers` on; "odd":
        likewise, of those before it the first and each second; "behind": as "from", asked or not;
        others by `layer_types`, and so are these three where they are there.
        Else "types": every one but each `global_every`th, 0: every one; "fixed": likewise, whatever
        `sliding_window_pattern` says; "turned": those that turn; "still": those that do not, where
        they are asked for."""
        every, asked = self.known.global_every, bool(self.values.get("use_sliding_window"))
        rule, default = self.known.model_types[self.values["model_type"]]
        chunks = "chunks" in self.known.own and "attention_chunk_size" in self.values
        size = self.values.get("attention_chunk_size" if chunks else "sliding_window", default)
        if rule == "none" or (rule in ("asked", "from", "odd") and not asked):
            size = None
        there = size is not None
        if rule in ("none", "all", "asked") or (kinds is None and not every and rule == "types"):
            local = [there] * count
        elif kinds is not None:
            local = [kind in _LOCAL for kind in kinds]
        elif rule in ("still", "turned"):
            there = there and (asked or rule == "turned")
            local = [there and turns == (rule == "turned") for turns in self.listed(count)]
        elif rule in ("from", "behind", "odd"):
            first = self.size("max_window_layers", 28, least=0)
            odd = rule == "odd"
            local = [there and (i < first) == odd and not (odd and i % 2) for i in range(count)]
        else:
            every = every if rule == "fixed" else self.size("sliding_window_pattern", every)
            local = [(i + 1) % every != 0 for i in range(count)]
        if not any(local):
            return (0,) * count
        if size is None:
            raise self.wrong("layer_types have a window, and sliding_window has no size for it")
        if type(size) is not int or not 0 < size < 1 << 31:
            raise self.wrong(f"sliding_window is {size!r:.40}")
        return tuple(size if one else 0 for one in local)

    def _activation(self) -> str:
        name = self.values.get(self.known.activation_key)
        if name is None or (self.known.name == "gemma" and name == "gelu"):
            return self.known.activation  # Gemma's first configs named the wrong one
        ours = _ACTIVATIONS.get(str(name), str(name))
        if ours not in (*ACTIVATIONS, self.known.activation):
            raise self.wrong(f"the activation {name!r} is not known")
        return ours

    def ropes(self, dims: int, wide: int) -> dict[str, rope.Rope]:
        given, base = self.values["rope_parameters"], self.get("rope_theta", 10000.0)
        if local := self.known.local_base or self.value("local_base"):
            own = self.get("rope_local_base_freq", local)
            full, local = given["full_attention"], given["sliding_attention"]
            return {"all": self._rope(full, base, wide), "local": self._rope(local, own, dims)}
        own = self.values.get(_ORIGINAL, self.known.defaults.get(_ORIGINAL))
        said = {} if own is None else {_ORIGINAL: own}  # it counts before that of the positions
        return {"all": self._rope({**given, **said}, base, dims)}

    def _rope(self, given: Mapping[str, Any], base: float, head: int) -> rope.Rope:
        inner = replace(self, values={**self.values, **given})
        kind = given.get("rope_type") or given.get("type") or "default"
        kind = "longrope" if kind == "yarn" and "long_factor" in given else kind  # early Phi 3
        partial = self.known.default(self.values["model_type"], "partial_rotary_factor")
        whole = kind == "default" and partial is None
        dims = head if whole else int(head * inner.get("partial_rotary_factor", 1.0))
        if "rotary_dim" in self.known.defaults:
            dims = inner.size("rotary_dim", least=0) or dims
        base = inner.get("rope_theta", base) if given.get("rope_theta") else base
        if kind == "dynamic" and "alpha" in self.known.defaults and (alpha := inner.get("alpha")):
            base *= alpha ** (dims / (dims - 2))  # whatever the context is (Hunyuan)
        if kind == "proportional":  # the first pairs of the whole head; the others stay
            every = rope.plain(base, head, inner.get("factor", 1.0)).frequencies
            return rope.Rope((*every[: dims // 2], *[0.0] * (len(every) - dims // 2)))
        return rope.scaled(kind, base, dims, self.size("max_position_embeddings"), inner.get)
