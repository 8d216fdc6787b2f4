"""Keys that a mask shows: the others have the probability 0, and are not read."""

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import Index, Position, vec
from jq.kernels.machine.isa import CHAINS

LOWEST = -3.4028234663852886e38  # of the finite numbers


def shown(
    kernel: Attention,
    b: Builder,
    mask: ir.Value | None,
    batch: Index,
    row: Index,
    rows: Index,
    key: Index = 0,
    keys: int | None = None,
) -> tuple[Index, Index]:
    """The first of `keys` keys from `key` that the mask shows to one of some rows, and the end of
    the last, both counted from `key` as whole chains of a sum: of a key that is hidden to all the
    mask is -inf. (NaN is shown.)
    """
    keys = kernel.padded_keys if keys is None else keys
    if mask is None or not kernel.skips:
        return 0, keys
    lanes, full = kernel.target.lanes, kernel.mask == "full"
    lowest = b.f32(LOWEST, lanes)
    none = [b.index(keys), b.index(0)]
    with b.loop(0, rows if full else 1, carry=none) as each:
        at = [batch, *([b.at_most(b.offset(row, each.index), kernel.queries - 1)] if full else [])]
        with b.loop(0, keys, lanes, carry=each.carried) as loop:
            place = b.at_most(b.offset(key, loop.index), kernel.keys - lanes)
            some = b.any_not_below(b.load(mask, [*at, place], vec(lanes, "f32")), lowest)
            first, reach = (Position(x, keys) for x in loop.carried)
            end = b.offset(loop.index, lanes)
            loop.carried = [
                b.select_index(some, b.smaller(first, loop.index), first.value),
                b.select_index(some, b.larger(reach, end), reach.value),
            ]
        each.carried = loop.carried
    first, reach = (Position(x, keys) for x in each.carried)
    whole = b.scaled(b.divided(first, CHAINS), CHAINS)
    end = b.scaled(b.divided(b.offset(reach, CHAINS - 1), CHAINS), CHAINS)
    return whole, b.at_most(end, keys)
