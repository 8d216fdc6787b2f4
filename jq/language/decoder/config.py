"""What distinguishes one decoder-only language model from another: sizes, and choices as data."""

from __future__ import annotations

from dataclasses import dataclass

from jq.base.errors import UserError
from jq.language.decoder.rope import Rope

ACTIVATIONS = ("silu", "gelu_tanh")


@dataclass(frozen=True)
class Config:
    """One model. Sizes count elements, `context` and windows count tokens.

    Attributes:
        architecture: its name among `architectures`.
        hidden, inner: width of the residual stream, and of the gated feed-forward layer.
        heads, kv_heads, head: query heads, key and value heads, width of each head.
        context: the longest sequence that the model was trained for.
        windows: per layer, how many tokens a query sees, itself included; 0 for all before it.
        ropes: rotary positions by name; `rope_of` names the one of each layer.
        pairs: "halves" rotates element i with i + head / 2, "neighbours" 2 i with 2 i + 1 (the
            order in which GGUF files keep the rows of `llama`'s queries and keys).
        activation: of the gate, "silu" or "gelu_tanh".
        embedding_scale: what rows of the table are multiplied by.
        attention_scale: what scores are multiplied by.
        attention_cap, logit_cap: c of c tanh(x / c), applied to scores and logits; 0 for none.
        experts, experts_used: feed-forward layers to route to, and how many each token takes;
            0 and 0 for one that all tokens take. `inner` is the width of each.
        normal_shares: what a token's experts give is multiplied by shares that add up to 1.
    """

    architecture: str
    vocabulary: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    context: int
    epsilon: float
    windows: tuple[int, ...]
    ropes: tuple[tuple[str, Rope], ...]
    rope_of: tuple[str, ...]
    activation: str
    pairs: str = "halves"
    embedding_scale: float = 1.0
    attention_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    experts: int = 0
    experts_used: int = 0
    normal_shares: bool = True

    def __post_init__(self) -> None:
        turned = max(2 * len(rope.frequencies) for _, rope in self.ropes)
        if turned > self.head:
            raise UserError(f"{turned} elements of heads of {self.head} cannot be turned")
        if not 0 <= self.experts_used <= self.experts:
            raise UserError(f"{self.experts_used} of {self.experts} experts cannot be used")
        if not self.epsilon > 0:
            raise UserError(f"norms need an epsilon above 0, not {self.epsilon}")

    @property
    def layers(self) -> int:
        return len(self.windows)

    def cache_shape(self, batch: int, capacity: int) -> tuple[int, int, int, int]:
        """The shape of the cached keys, and of the cached values, of one layer."""
        return batch, capacity, self.kv_heads, self.head
