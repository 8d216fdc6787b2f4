"""A decoder from a GGUF file: its metadata as a `Config`, its blocks as the parameters."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import check_known
from jq.frontends.gguf import GgufFile, load_parts
from jq.language.decoder import rope
from jq.language.decoder.architectures import FULL, INTERVAL, Architecture
from jq.language.decoder.architectures.names import CURVE
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.names import expanded, parameter_tree, stack_size
from jq.language.decoder.reading import Reader

_SPANS = ("short", "long")
# Tensors that hold no parameter: factors of the rotary frequencies.
_FACTORS = ("rope_freqs.weight", *(f"rope_factors_{name}.weight" for name in _SPANS))
_KINDS = {"none": "default", "linear": "linear", "yarn": "yarn", "longrope": "longrope"}
# What `rope.scaled` asks for, behind `rope.scaling.`.
_SCALING = {"factor": "factor", "original_max_position_embeddings": "original_context_length"}
_SCALING |= {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
_SCALING |= {"mscale_all_dim": "yarn_log_multiplier"}
_TABLE = "token_embd.weight"
_BY_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


def read_gguf(path: str | Path) -> tuple[Config, dict[str, Any], GgufFile]:
    """The model in a file: what it is, its parameters in the file's own formats, and the file;
    `UserError` for what is damaged, and for an unknown architecture, tensor, shape or choice."""
    file = load_parts(Path(path))
    possible = {name: each for name, each in Architecture.registry.items() if each.names.gguf}
    name, where = file.metadata.get("general.architecture"), str(file.path)
    known = possible[check_known("architecture", name, sorted(possible), location=where)]
    reader = _Reader(known, where, file)
    config = reader.config()
    tensors = {name: t for name, t in file.tensors.items() if name not in _FACTORS}
    tensors = reader.without_mtp(tensors, config)
    if config.activation == "xielu":
        tensors |= reader.curves(config.layers)
    return config, parameter_tree(config, reader.form, tensors, str(path)), file


@dataclass(frozen=True)
class _Reader(Reader):
    """Metadata under the architecture's name."""

    form = "gguf"

    file: GgufFile

    def value(self, key: str) -> Any:
        default = self.known.defaults.get(key)
        value: Any = self.file.metadata.get(f"{self.known.name}.{key}", default)
        if key == "block_count" and value is not None:
            return value - self.size("nextn_predict_layers", 0, least=0)
        if key == _TABLE:  # its rows are the vocabulary
            table = self.file.tensors.get(key)
            return table.shape[0] if table is not None and len(table.shape) == 2 else None
        if key in _BY_LAYER and isinstance(value, np.ndarray):
            return self._of_all_layers(key, value)
        return value

    def _of_all_layers(self, key: str, values: np.ndarray) -> int:
        """The one number of all layers but recurrent ones, which have 0; widths may differ."""
        found = values[values > 0] if values.dtype.kind in "iu" else values[:0]
        if not found.size or (found.min() != found.max() and key != "feed_forward_length"):
            raise self.wrong(f"{key} is not one whole number for all layers")
        return int(found.max())

    def curves(self, layers: int) -> dict[str, np.ndarray]:
        """Numbers that activations have learned, metadata here: one for each layer, or for all."""
        found = {}
        with numbers(self.wrong):
            for name in CURVE:
                held = np.asarray(self.file.metadata[f"{self.known.name}.xielu.{name}"], np.float32)
                for i, value in enumerate(np.broadcast_to(held, layers)):
                    found[f"blk.{i}.xielu.{name}"] = np.full(1, value)
        return found

    def layers(self, count: int, sharing: int) -> tuple[list[str], tuple[int, ...]]:
        """Kinds by windows where these tell them; else layers without keys are of the first kind of
        the architecture's mixers, or all but each `full_attention_interval`th."""
        known, windows = self.known, self._windows(count)
        other = "sliding_attention" if sharing else next(iter(known.mixers), "")
        held = self.file.metadata.get(f"{known.name}.attention.head_count_kv")
        if other in ("", "sliding_attention"):
            full = [bool(other) and not window for window in windows]
        elif INTERVAL in known.defaults:
            every = self.size(INTERVAL)
            full = [(i + 1) % every == 0 for i in range(count)]
        elif isinstance(held, np.ndarray) and len(held) == count:
            full = [bool(heads) for heads in held]
        else:
            raise self.wrong("attention.head_count_kv has no number for each layer")
        return ["full_attention" if each else other for each in full], windows

    def _windows(self, layers: int) -> tuple[int, ...]:
        # Files of `llama`, and of models without windows, may name one that no reader knows.
        known, key = self.known, "attention.sliding_window_pattern"
        some = known.name != "llama" and set(known.model_types.values()) - {FULL}
        window = self.size("attention.sliding_window", 0) if some else 0
        pattern = self.value(key)
        if isinstance(pattern, np.ndarray):
            if len(pattern) != layers:
                raise self.wrong(f"{key} has {len(pattern)} entries for {layers} layers")
            return tuple(window if local else 0 for local in pattern)
        every = self.size(key, known.global_every, least=0)
        return tuple(0 if every and (i + 1) % every == 0 else window for i in range(layers))

    def ropes(self, dims: int, wide: int) -> dict[str, rope.Rope]:
        """One table of frequencies; whole heads turn but for `rope.dimension_count` elements."""
        base = self.get("rope.freq_base", 10000.0)
        dims = self.size("rope.dimension_count", dims)
        found = {"all": self._rope(base, dims)}
        local = self.get("rope.freq_base_swa", self.known.local_base)
        if self.known.local_base:
            plain = rope.plain(local, self.size("rope.dimension_count_swa", dims))
            found["local"] = replace(plain, scale=self.get("rope.scaling.attn_factor", 1.0))
        elif local:
            found["local"] = self._rope(local, dims)
        elif self.known.plain_windows:
            found["local"] = rope.plain(base, dims)
        return found

    def _rope(self, base: float, dims: int) -> rope.Rope:
        """Scaled by kind, each frequency divided by a factor of its own where a tensor says so, and
        cosines and sines multiplied by `attn_factor`; files of 2023 call the factor otherwise."""
        factor = self.get("rope.scaling.factor", self.get("rope.scale_linear", 1.0))
        kind = self.value("rope.scaling.type") or ("none" if factor == 1 else "linear")
        kind = "longrope" if "rope_factors_short.weight" in self.file.tensors else kind
        if kind not in _KINDS:
            raise self.wrong(f"rotary positions are scaled by {kind!r}, which is not known")
        given = {"factor": factor, "mscale": 1.0, "truncate": self.known.truncates}
        given["attention_factor"] = self.known.yarn_scale or 0.0
        scale = self.get("rope.scaling.attn_factor", 0.0)
        if kind == "longrope":
            given |= {f"{name}_factor": self._factors(f"factors_{name}") for name in _SPANS}
            given |= dict.fromkeys(("short_mscale", "long_mscale"), 0.0)
            del given["factor"]  # without one, the ratio of the contexts
            given["attention_factor"], scale = scale, 1.0

        def get(key: str, default: Any = None) -> Any:
            there = key in given
            return given[key] if there else self.get(f"rope.scaling.{_SCALING[key]}", default)

        found = rope.scaled(_KINDS[kind], base, dims, self.size("context_length"), get)
        if "rope_freqs.weight" in self.file.tensors:
            found = found.divided(self._factors("freqs"))
        return replace(found, scale=found.scale * (scale or 1.0))

    def _factors(self, name: str) -> list[float]:
        factors = self.file.tensors.get(f"rope_{name}.weight")
        if not isinstance(factors, np.ndarray):
            raise self.wrong(f"there are no rope_{name}.weight")
        return [float(f) for f in factors.reshape(-1)]


def file_names(config: Config) -> dict[str, str]:
    """Our name of every tensor that a file could have, and the file's; experts share a tensor."""
    known = Architecture.registry[config.architecture]
    found = {}
    for theirs, ours in expanded(known.names.gguf, config):
        for e in range(stack_size(ours, config)) if "*" in ours else (0,):
            found[ours.replace("*", str(e))] = theirs
    return found
