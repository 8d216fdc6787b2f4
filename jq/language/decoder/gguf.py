"""A decoder from a GGUF file: its metadata as a `Config`, its blocks as the parameters."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.frontends.gguf import GgufFile, load_parts
from jq.language.decoder import rope
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.names import check_shapes, expanded, stack_size, stacked, tensor_tree

# Tensors that hold no parameter: factors of the rotary frequencies.
_LONGROPE = ("rope_factors_short.weight", "rope_factors_long.weight")
_FACTORS = ("rope_freqs.weight", *_LONGROPE)


def read_gguf(path: str | Path) -> tuple[Config, dict[str, Any], GgufFile]:
    """The model in a file: what it is, its parameters in the file's own formats, and the file;
    `UserError` for what is damaged, and for an architecture, tensor, shape or choice that is not
    known."""
    file = load_parts(Path(path))
    reader = _Reader(file)
    with numbers(reader.wrong):
        config = reader.config()
    names = reader.known.gguf
    tensors = {name: t for name, t in file.tensors.items() if name not in _FACTORS}
    tree = tensor_tree(names, tensors, config, str(path), stacked)
    check_shapes(config, tree, names, str(path))
    return config, tree, file


@dataclass(frozen=True)
class _Reader:
    """Metadata under the architecture's name."""

    file: GgufFile

    @cached_property
    def known(self) -> Architecture:
        name = self.file.metadata.get("general.architecture")
        possible = {n: known for n, known in Architecture.registry.items() if known.gguf}
        if isinstance(name, str) and name in possible:
            return possible[name]
        raise UserError(
            f"the architecture {name!r} is not known",
            location=str(self.file.path),
            hint="known: " + ", ".join(sorted(possible)),
        )

    def value(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        name = f"{self.known.name}.{key}"
        value: Any = self.file.metadata.get(name, default)
        if value is None:
            raise self.wrong(f"there is no {name}")
        return value

    def number(self, key: str, default: Any = None) -> Any:
        """A number or truth, or a list of numbers where the default is one."""
        value = self.value(key, default)
        if type(default) is list and isinstance(value, np.ndarray | list):
            return [float(v) for v in value]
        if type(value) not in (int, float, bool) or not math.isfinite(value):
            raise self.wrong(f"{key} is {value!r:.40}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.value(key, default)
        if type(value) is not int:
            raise self.wrong(f"{key} is {value!r:.40}, not int")
        if not 0 <= value < 1 << 31 or (value == 0 and default != 0):
            raise self.wrong(f"{key} is {value}")
        return value

    def wrong(self, reason: str) -> UserError:
        return UserError(f"the metadata describe no model: {reason}", location=str(self.file.path))

    def config(self) -> Config:
        known = self.known
        if not self.number("attention.causal", True):
            raise self.wrong("its attention goes both ways, as that of embeddings")
        layers, hidden = self.size("block_count"), self.size("embedding_length")
        experts = self.size("expert_count", 0)
        inner = self._of_all_layers("feed_forward_length", widest=True)
        if experts:
            inner = self.size("expert_feed_forward_length", inner)
        if layers > 4096:
            raise self.wrong(f"block_count is {layers}")
        heads = self._of_all_layers("attention.head_count")
        fields, own = known.read(1, self.number)
        kv_heads = self._of_all_layers("attention.head_count_kv", heads)
        head = fields.pop("head", 0) or self.size("attention.key_length", max(hidden // heads, 1))
        alike = own.get("rank") or own.get("wide_head")
        if heads % kv_heads or not (alike or self.size("attention.value_length", head) == head):
            raise self.wrong(f"{heads} heads of {head} do not share {kv_heads} of values")
        wide = layers == known.wide_scale_layers
        windows = self._windows(layers)
        turned = known.turned(windows, None, bool(self.number("rope.scaling.finetuned", 0)))
        dims = own.get("turned") or self.size("rope.dimension_count", head)
        table = self.file.tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise self.wrong("there is no table token_embd.weight")
        found: dict[str, Any] = {
            "hidden": hidden,
            "inner": inner,
            "heads": heads,
            "kv_heads": kv_heads,
            "head": head,
            "context": self.size("context_length"),
            "windows": windows,
            "mixers": self._mixers(windows, own),
            "vocabulary": int(table.shape[0]),
            "attention_scale": 1 / math.sqrt(hidden / heads if wide else head),
            "attention_cap": self._cap("attn_logit_softcapping", known.caps[0]),
            "logit_cap": self._cap("final_logit_softcapping", known.caps[1]),
            "experts": experts,
            "experts_used": self.size("expert_used_count") if experts else 0,
            "normal_shares": bool(self.number("expert_weights_norm", known.gguf_normal_shares)),
        }
        ropes = self._ropes(dims)
        return known.config(1, self.number, ropes, turned, own, **found | fields)

    def _cap(self, key: str, default: float | None) -> float:
        return 0.0 if default is None else self.number(key, default)

    def _mixers(self, windows: tuple[int, ...], own: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
        """Mixers by windows where these tell kinds of layers; else layers without keys have the
        first of the architecture's mixers, or all but each `full_attention_interval`th."""
        known, layers = self.known, len(windows)
        if "sliding_attention" in known.mixers or own.get("sharing"):
            kinds = ["sliding_attention" if window else "full_attention" for window in windows]
            return known.mixers_of(kinds, own.get("sharing", 0))
        others = next(iter(known.mixers.values()), ("attention",))
        if known.recurrent_but:
            every = self.size("full_attention_interval", known.recurrent_but)
            return tuple(others if (i + 1) % every else ("attention",) for i in range(layers))
        shared = self.file.metadata.get(f"{known.name}.attention.head_count_kv")
        if "" in known.mixers or not known.mixers:
            return (others,) * layers
        if not isinstance(shared, np.ndarray) or len(shared) != layers:
            raise self.wrong("attention.head_count_kv has no number for each layer")
        return tuple(("attention",) if count else others for count in shared)

    def _of_all_layers(self, key: str, default: int | None = None, widest: bool = False) -> int:
        """One number; files may give one for each layer when all are equal, or the `widest` is
        asked for."""
        name = f"{self.known.name}.{key}"
        value = self.file.metadata.get(name)
        if isinstance(value, np.ndarray):
            value = value[value > 0] if value.dtype.kind in "iu" else value  # recurrent ones: 0
            alike = len(set(value.tolist())) == 1 or (widest and value.size)
            if value.dtype.kind not in "iu" or not alike:
                raise self.wrong(f"{key} is not one whole number for all layers")
            value = int(value.max())
            if value < 1:
                raise self.wrong(f"{key} is {value}")
            return value
        return self.size(key, default)

    def _windows(self, layers: int) -> tuple[int, ...]:
        # Files of `llama`, and of models without windows, may name one that no reader knows.
        known = self.known
        some = known.windows and known.name != "llama"
        window = self.size("attention.sliding_window", known.window) if some else 0
        name = f"{known.name}.attention.sliding_window_pattern"
        pattern = self.file.metadata.get(name, known.global_every)
        if isinstance(pattern, np.ndarray):
            if len(pattern) != layers:
                raise self.wrong(f"{name} has {len(pattern)} entries for {layers} layers")
            return tuple(window if local else 0 for local in pattern)
        if type(pattern) is not int or pattern < 0:
            raise self.wrong(f"{name} is {pattern!r:.40}")
        return tuple(0 if pattern and (i + 1) % pattern == 0 else window for i in range(layers))

    def _ropes(self, dims: int) -> dict[str, rope.Rope]:
        base = self.number("rope.freq_base", 10000.0)
        if not base > 1 or dims % 2:
            raise self.wrong(f"rotary positions of base {base} on {dims} elements")
        found = {"all": self._rope(base, dims)}
        local = self.number("rope.freq_base_swa", self.known.local_base)
        if self.known.local_base:
            plain = rope.plain(local, self.size("rope.dimension_count_swa", dims))
            found["local"] = replace(plain, scale=self._turn_scale())
        elif local:
            found["local"] = self._rope(local, dims)
        elif self.known.plain_windows:
            found["local"] = rope.plain(base, dims)
        return found

    def _rope(self, base: float, dims: int) -> rope.Rope:
        """Scaled by kind, each frequency divided by a factor of its own where a tensor says so, and
        cosines and sines multiplied by `attn_factor`; files of 2023 call the factor otherwise."""
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
        kind = self.value("rope.scaling.type", "none" if factor == 1 else "linear")
        context = self.size("context_length")
        if _LONGROPE[0] in self.file.tensors or kind == "longrope":
            original = self.size("rope.scaling.original_context_length")
            scale = self._turn_scale(rope.longrope_scale(context, original))
            short, long = (self._factors(name, dims) for name in _LONGROPE)
            return rope.longrope(base, dims, short, long, scale, original)
        if kind in ("none", "linear"):
            found = rope.plain(base, dims, factor if kind == "linear" else 1.0)
        elif kind == "yarn":
            original = self.size("rope.scaling.original_context_length", context)
            fast = self.number("rope.scaling.yarn_beta_fast", 32.0)
            slow = self.number("rope.scaling.yarn_beta_slow", 1.0)
            weight = self.number("rope.scaling.yarn_log_multiplier", 0.0)
            scale = rope.yarn_scale(factor) / rope.yarn_scale(factor, weight)
            scale = scale if self.known.yarn_scale is None else self.known.yarn_scale
            whole = self.known.truncates
            found = rope.yarn(base, dims, factor, original, fast, slow, scale, truncate=whole)
        else:
            raise self.wrong(f"rotary positions are scaled by {kind!r}, which is not known")
        if "rope_freqs.weight" in self.file.tensors:
            found = found.divided(self._factors("rope_freqs.weight", dims))
        return replace(found, scale=found.scale * self._turn_scale())

    def _turn_scale(self, default: float = 1.0) -> float:
        return float(self.number("rope.scaling.attn_factor", default))

    def _factors(self, name: str, dims: int) -> list[float]:
        factors = self.file.tensors.get(name)
        if not isinstance(factors, np.ndarray) or factors.size != dims // 2:
            raise self.wrong(f"{name} does not hold {dims // 2} numbers")
        return [float(f) for f in factors.reshape(-1)]


def file_names(config: Config) -> dict[str, str]:
    """Our name of every tensor that a file could have, and the file's; experts share a tensor."""
    known = Architecture.registry[config.architecture]
    found = {}
    for theirs, ours in expanded(known.gguf, config):
        for e in range(stack_size(ours, config)) if "*" in ours else (0,):
            found[ours.replace("*", str(e))] = theirs
    return found
