"""One decoder-only language model as data: its sizes, and its choices."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from jq.base.errors import UserError
from jq.language.decoder.rope import Rope

Shape = tuple[int, ...]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]  # of elements, tokens or parts
Value = bool | int | float | str


@contextmanager
def numbers(wrong: Callable[[str], UserError]) -> Iterator[None]:
    """Errors of values that are not there, are no numbers, not as many as there should be, or of no
    model, as the error that `wrong` makes of a reason."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise wrong(f"{error}".partition("\n")[0][:100]) from error


@dataclass(frozen=True)
class Config:
    """One model. Sizes count elements, `context` and windows count tokens.

    Attributes:
        hidden, inner: width of the residual stream, and of the gated feed-forward layer.
        heads, kv_heads, head: query heads, key and value heads, width of each head.
        ropes: rotary positions by name; `rope_of` names the one of each layer, "" for none.
        pairs: "halves" rotates element i with i + head / 2, "neighbours" 2 i with 2 i + 1 (the
            order in which GGUF files keep the rows of `llama`'s queries and keys).
        attention_cap, logit_cap: c of c tanh(x / c), applied to scores and logits; 0 for none.
        experts, experts_used: feed-forward layers to route to, and how many each token takes;
            0 and 0 for one that all tokens take. `inner` is the width of each.
        own: what one mixer or kind of experts alone asks for, by `get`."""

    architecture: str  # its name among `architectures`
    vocabulary: Count
    hidden: Count
    inner: Count
    heads: Count
    kv_heads: Count
    head: Count
    context: Count  # the longest sequence that the model was trained for
    epsilon: float
    windows: tuple[Count, ...]  # per layer, how many tokens a query sees with itself; 0: all
    ropes: tuple[tuple[str, Rope], ...]
    rope_of: tuple[str, ...]
    activation: str  # of the gate, one of `feed_forward.GATES`
    mixers: tuple[tuple[str, ...], ...]  # names, by layer, of what mixes tokens; added
    norm: str = "rms"  # "rms", or "layer", which takes the mean away as well
    parallel: bool = False  # the feed-forward layer of a block takes what its mixers take
    chunks: bool = False  # a window is the part, cut at multiples of its size, of the query
    residual_scale: float = 1.0  # what each block's result is multiplied by before it is added
    pairs: str = "halves"
    embedding_scale: float = 1.0  # what rows of the table are multiplied by
    attention_scale: float = 1.0  # what scores are multiplied by
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    experts: Count = 0
    experts_used: Count = 0
    normal_shares: bool = True  # of what a token's experts give: shares that add up to 1
    own: tuple[tuple[str, Value | tuple[Value, ...]], ...] = ()

    def __post_init__(self) -> None:
        turned = max([2 * len(rope.frequencies) for _, rope in self.ropes], default=0)
        if turned > max(self.head, self.get("wide_head")):
            raise UserError(f"{turned} elements of heads of {self.head} cannot be turned")
        if not 0 <= self.experts_used <= self.experts:
            raise UserError(f"{self.experts_used} of {self.experts} experts cannot be used")
        groups, used = self.get("groups", 1), self.get("groups_used", 1)
        size = self.experts // max(groups, 1)
        fits = groups * size == self.experts and size > 1 and self.experts_used <= used * size
        if self.experts and (used < 1 or (groups != 1 and not (fits and used <= groups))):
            what = f"{self.experts_used} experts are not in {used} of {groups} groups"
            raise UserError(what, hint="see n_group, or expert_group_count of a GGUF file")
        if not self.epsilon > 0:
            raise UserError(f"norms need an epsilon above 0, not {self.epsilon}")

    @property
    def layers(self) -> int:
        return len(self.windows)

    def get(self, name: str, default: Any = 0) -> Any:
        """A value of `own`."""
        return dict[str, Any](self.own).get(name, default)

    def sizes(self, names: str) -> list[int]:
        """Values of `own` by names that spaces part."""
        return [self.get(name) for name in names.split()]
