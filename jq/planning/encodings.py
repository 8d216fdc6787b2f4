"""The encoding that an operand gets, and what its integers imply for a product."""

from jq.formats import Affine, Encoding, get_format
from jq.formats.imported import WithMinimum
from jq.ir import Op
from jq.ir.ops import Contraction, Role, contraction
from jq.planning.decisions import Declined, TensorPlan
from jq.planning.operands import WeightUse
from jq.target.settings import TensorSettings, WeightSettings


def stored_plan(use: WeightUse) -> TensorPlan:
    """A weight that came quantized, as it is."""
    assert use.stored is not None
    return TensorPlan("weight", use.stored, weight=use.name, stored=True)


def code_bits(enc: Encoding) -> int:
    """Bits of the integers that a tensor is computed with."""
    bits = get_format(enc.format).integer_bits
    if bits is None:
        raise Declined(f"{enc.format} has no integer product")
    return bits


def summed_terms(rule: Contraction, use: WeightUse, enc: Encoding, terms: int) -> int:
    """Number of products that the integers of one block sum; the blocks are summed in float."""
    shared = [a for a, n in enumerate(enc.shape) if a not in use.contracted and 1 < enc.grid[a] < n]
    blocked = [a for a in use.contracted if enc.grid[a] > 1]
    if shared:
        raise Declined(f"blocks {enc.block} of the weight do not lie along a contracted axis")
    if get_format(enc.format).has_minimum and not rule.splits_blocks:
        raise Declined(f"{rule.op} has no integer form with minima of the weight")
    if blocked and not rule.splits_blocks:
        raise Declined(f"{rule.op} has no integer form with blocks along a contracted axis")
    for axis in blocked:
        length, size = enc.shape[axis], enc.block[axis]
        if length % size:
            raise Declined(f"blocks of {size} do not divide the contracted axis of {length}")
        terms = terms // length * size
    return terms


def weight_block(use: WeightUse, s: TensorSettings) -> tuple[int, ...]:
    """Block sizes of a weight: one scale along contracted axes, blocks along one of them."""
    rank = len(use.shape)
    if use.block_axis is not None:
        own = get_format(s.format).default_block(use.shape, use.block_axis)
        if own is not None:
            return own
    if s.granularity == "per-tensor":
        return (0,) * rank
    if s.granularity == "per-block" and use.block_axis is not None:
        shared = use.contracted - use.beside
        return tuple(
            s.block_size if a == use.block_axis else int(a not in shared) for a in range(rank)
        )
    return tuple(int(a not in use.contracted) for a in range(rank))


def unpacked_rows(s: WeightSettings, shape: tuple[int, ...]) -> WeightSettings:
    """int8 for a weight whose rows have one number each: codes of fewer bits, which are packed
    along rows, would take a byte each as well, or three."""
    fmt = get_format(s.format)
    if not isinstance(fmt, Affine | WithMinimum) or shape[-1:] != (1,) or fmt.bits >= 8:
        return s
    return s.model_copy(update={"format": "int8"})


def activation_block(
    s: TensorSettings, shape: tuple[int, ...], role: Role, run: int | None
) -> tuple[int, ...]:
    """Block sizes of an activation: one scale a tensor, a token, or a block of a token.

    Blocks are `block_size` long, or as long as those of the weight (`run`, see `run_of`) where that
    is no multiple of it. Where the op has no products of blocks (`run` is None), or they do not
    divide the axis, a token has one scale."""
    if s.granularity == "per-tensor":
        return (0,) * len(shape)
    token = [int(a not in role.contracted) for a in range(len(shape))]
    if s.granularity == "per-block" and run is not None and role.block_axis is not None:
        size = s.block_size if run % s.block_size == 0 else run
        if shape[role.block_axis] % size == 0:
            token[role.block_axis] = size
    return tuple(token)


def tied_block(enc: Encoding, shape: tuple[int, ...], role: Role) -> tuple[int, ...] | None:
    """The blocks of an activation in a format that is tied to a size, along what is summed."""
    if role.block_axis is None:
        return None
    return get_format(enc.format).default_block(shape, role.block_axis)


def not_summed(op: Op, enc: Encoding, role: Role) -> str:
    """Reason why no integers of a block of an activation are summed apart; empty where they are."""
    rule = contraction(op.operation.name)
    if rule is None or get_format(enc.format).integer_bits is None:
        return ""  # floats are multiplied whatever their blocks
    for axis in role.contracted:
        if enc.grid[axis] > 1 and not rule.splits_blocks:
            return f"{rule.op} has no integer form with blocks along a contracted axis"
        if enc.grid[axis] > 1 and enc.shape[axis] % enc.block[axis]:
            return (
                f"blocks of {enc.block[axis]} do not divide the {enc.shape[axis]} that are summed"
            )
    return ""


def encoding(s: TensorSettings, shape: tuple[int, ...], block: tuple[int, ...]) -> Encoding:
    options = tuple(sorted(s.options.items()))
    return Encoding(s.format, shape, block, s.scheme, s.scale_type, options)


def run_of(
    rule: Contraction, plans: dict[int, TensorPlan], uses: dict[int, WeightUse]
) -> int | None:
    """Codes of the weight that share a scale; None where activations are not cut into blocks."""
    if not rule.splits_blocks or len(uses) != 1:
        return None
    ((index, use),) = uses.items()
    enc = plans[index].encoding
    single = len(use.contracted) == 1
    return get_format(enc.format).run_along(enc, use.contracted) if single else None
