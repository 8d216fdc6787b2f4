"""A `Config` from what a file says: the part that both forms of files have in common."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import UserError
from jq.language.decoder.architectures import KEYS, Architecture, Key
from jq.language.decoder.config import Config, numbers
from jq.language.decoder.rope import Rope

_WINDOW = Key("sliding_window", "attention.sliding_window")
_TURNED = Key("position_embedding_type", "rope.scaling.finetuned")
_LAYERS = Key("num_hidden_layers", "block_count")
_MOST_LAYERS = 4096
_MTP_LAYERS = Key("num_nextn_predict_layers", "nextn_predict_layers")
_HIDDEN = Key("hidden_size", "embedding_length")
_HEADS = Key("num_attention_heads", "attention.head_count")
_KV_HEADS = Key("num_key_value_heads", "attention.head_count_kv")
_HEAD = Key("head_dim", "attention.key_length")
_INNER = Key("intermediate_size", "feed_forward_length")
_EXPERTS_USED = Key("num_experts_per_tok", "expert_used_count")
_EXPERT = Key("moe_intermediate_size", "expert_feed_forward_length")


@dataclass(frozen=True)
class Reader(ABC):
    """Values of a file by their keys; each form of files has its own way to them."""

    form: ClassVar[str]  # as `Key` and `Names` name it

    known: Architecture
    where: str  # the file, for messages

    @abstractmethod
    def value(self, key: str) -> Any:
        """The value that the file states; None where it states none."""

    def key(self, place: Key) -> str:
        return str(getattr(place, self.form))

    def get(self, key: str, default: Any = None) -> Any:
        """A finite number, or a truth or a list of numbers where the default is one."""
        value = default if (value := self.value(key)) is None else value
        if value is None:
            raise self.wrong(f"there is no {key}")
        value = value.tolist() if isinstance(value, np.ndarray) else value
        many = isinstance(value, list) and isinstance(default, list)
        kinds = (int, float, bool) if type(default) is bool else (int, float)
        sound = all(type(v) in kinds for v in (value if many else [value]))
        if not sound or not (many or math.isfinite(value)):
            raise self.wrong(f"{key} is {value!r:.40}")
        return value

    def size(self, place: str | Key, default: int | None = None, least: int = 1) -> int:
        """A whole number, not below `least`, or the default; JSON may have it as 24.0."""
        key = self.key(place) if isinstance(place, Key) else place
        value = self.get(key, default)
        if value != int(value) or (not least <= value < 1 << 31 and value != default):
            raise self.wrong(f"{key} is {value!r:.40}")
        return int(value)

    def wrong(self, reason: str) -> UserError:
        return UserError(f"the file describes no known model: {reason}", location=self.where)

    def without_mtp(self, tensors: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """Tensors but those of layers for multi-token prediction, which stand behind the others."""
        there = {name: re.search(r"\b(?:blk|layers)\.(\d+)\.", name) for name in tensors}
        more = range(config.layers, config.layers + self.size(_MTP_LAYERS, 0, least=0))
        return {n: tensors[n] for n, at in there.items() if not at or int(at[1]) not in more}

    def causal(self) -> bool:
        """True where a token sees those before it alone."""
        return bool(self.get(self.key(Key("is_causal", "attention.causal")), True))

    @abstractmethod
    def layers(self, count: int, sharing: int) -> tuple[Sequence[str], tuple[int, ...]]:
        """The kind of each layer, as `Architecture.mixers` names them, and its window."""

    def listed(self, count: int, every: int = 4) -> list[bool]:
        """Layers that turn queries and keys by "listed": all but each `every`th."""
        return [(i + 1) % every != 0 for i in range(count)]

    @abstractmethod
    def ropes(self, dims: int, wide: int) -> dict[str, Rope]:
        """Positions by name, of heads of `dims` elements, or `wide` in layers without a window."""

    def config(self) -> Config:
        """The model; `UserError` where the file does not describe one."""
        with numbers(self.wrong):
            return self._config()

    def _config(self) -> Config:
        known = self.known
        if not self.causal():
            raise self.wrong("its attention goes both ways, as that of embeddings")
        layers, hidden, heads = (self.size(key) for key in (_LAYERS, _HIDDEN, _HEADS))
        if layers > _MOST_LAYERS:
            raise self.wrong(f"it has {layers} layers")
        found, own = self._keys()
        own_inner = found.get("inner") or self.value(self.key(_EXPERT))
        kv_heads, inner = self.size(_KV_HEADS, heads), self.size(_INNER, own_inner)
        if heads % kv_heads:
            raise self.wrong(f"{self.key(_KV_HEADS)} is {kv_heads}, of {heads} heads")
        experts = self.size(Key("num_experts", "expert_count"), 0)
        head = found.get("head") or self.size(_HEAD, max(hidden // heads, 1))
        found |= {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head": head}
        found["inner"] = self.size(_EXPERT, inner) if experts else inner
        found["experts"] = experts
        found["experts_used"] = self.size(_EXPERTS_USED) if experts else 0
        found["attention_scale"] = found.get("attention_scale") or head**-0.5
        found.setdefault("activation", known.activation)
        weight, size = float(own.pop("heat", 0)), float(own.pop("heat_every", 1))
        heat, sharing = (weight, size, float(own.pop("heat_first", 0))), own.get("sharing", 0)
        kinds, windows = self.layers(layers, sharing)
        wide = own.get("wide_head") or head
        ropes = {} if known.positions == "none" else self.ropes(own.get("turned") or head, wide)
        still = ""
        if weight and known.positions == "listed":
            still, ropes = "heat", {**ropes, "heat": Rope((), heat=heat)}
        elif weight:
            ropes = {name: replace(rope, heat=heat) for name, rope in ropes.items()}
        local = "local" if "local" in ropes else "all"
        rope_of = tuple(
            (local if window else "all") if turns else still
            for window, turns in zip(windows, self._turned(windows), strict=True)
        )
        return Config(
            architecture=known.name,
            vocabulary=self.size(Key("vocab_size", "token_embd.weight")),
            windows=windows,
            ropes=tuple((name, rope) for name, rope in ropes.items() if name in rope_of),
            rope_of=rope_of,
            mixers=self._mixers(kinds, windows, sharing),
            own=tuple(own.items()),
            **found,
        )

    def _keys(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of the architecture's keys: fields of `Config`, and those of its `own`."""
        keys = KEYS | self.known.keys
        found = self.known.own | {name: key.read(self.form, self.get) for name, key in keys.items()}
        types = {f.name: f.type for f in fields(Config)}
        for name, value in found.items():
            kind = types.get(name)
            if kind in (float, bool):
                found[name] = kind(value)
            elif type(value) is list:
                found[name] = tuple(value)
            elif type(value) is float and value.is_integer() and not name.endswith("scale"):
                found[name] = int(value)  # sizes that JSON has as 24.0
        own = [name for name in found if name not in types]  # in the same order in every process
        return found, {name: found.pop(name) for name in own}

    def _turned(self, windows: Sequence[int]) -> list[bool]:
        """True for each layer that turns queries and keys."""
        positions = self.known.positions
        sized = any(windows) or self.value(self.key(_WINDOW)) is not None
        if positions == "windows" or (positions == "windowed" and sized):
            return [window > 0 for window in windows]
        if positions == "listed":
            return self.listed(len(windows))
        asked = self.value(self.key(_TURNED)) in ("rope", True)
        return [positions != "none" and (positions != "asked" or asked)] * len(windows)

    def _mixers(self, kinds: Any, windows: Any, sharing: int) -> tuple[tuple[str, ...], ...]:
        """Mixers of layers by their kinds; the last `sharing` of them read what others hold."""
        found = [self.known.mixers.get(kind, ("attention",)) for kind in kinds]
        first = len(found) - sharing
        own, others = found[:first], found[first:]
        alike = [(kind, window > 0) for kind, window in zip(kinds, windows, strict=True)]
        if not 0 <= sharing <= len(found) or not set(alike[first:]) <= set(alike[:first]):
            raise self.wrong(f"no layer holds what the last {sharing} of {len(found)} read")
        return (*own, *(tuple(f"shared_{name}" for name in names) for names in others))
