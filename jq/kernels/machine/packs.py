"""Four vectors of numbers become one of bytes by saturating packs, where the processor has them."""

from iree.compiler import ir

from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import Values, vec
from jq.kernels.machine.isa import Isa

PACKED = 4  # vectors of int32 that fill one of bytes


def pack_bytes(
    b: Builder,
    isa: Isa,
    steps: Values,
    zeros: Values,
    unsigned: bool,
    bounds: tuple[int, int] = (-128, 127),
) -> ir.Value:
    """`saturate(round_half_even(steps) + zeros)` of four vectors one after the other, as i8 bits.

    Steps are no NaN and below 2^30; `zeros` are i32, one a vector; `unsigned` stores code + 128.
    Seven operations where truncation takes twelve.
    """
    to_words = isa.packs.format("packssdw")
    lanes, shift = isa.lanes, 128 if unsigned else 0
    words, byte = vec(2 * lanes, "i16"), vec(4 * lanes, "i8")
    low, high = (b.constant(words, bound + shift) for bound in bounds)
    pairs = []
    for two in (slice(0, 2), slice(2, 4)):
        pair = b.intrinsic(to_words, words, [b.round_to_int(step) for step in steps[two]])
        shifted = [b.add(zero, b.i32(shift, lanes)) for zero in zeros[two]]
        offset = b.intrinsic(to_words, words, shifted)  # the same in every row
        pair = b.intrinsic(f"llvm.sadd.sat.v{2 * lanes}i16", words, [pair, offset])
        pair = b.max_int(pair, low) if bounds[0] > -128 else pair
        pairs.append(b.min_int(pair, high) if bounds[1] < 127 else pair)
    name = isa.packs.format("packuswb" if unsigned else "packsswb")
    return _by_operand(b, b.intrinsic(name, byte, pairs), lanes)


def _by_operand(b: Builder, packed: ir.Value, lanes: int) -> ir.Value:
    """Packs work in parts of 128 bits: words of 4 bytes part by part, operand by operand inside.

    Puts all words of the first operand first.
    """
    parts = lanes // 4
    if parts == 1:
        return packed
    words = b.bitcast(packed, vec(lanes, "i32"))
    order = [part * PACKED + operand for operand in range(PACKED) for part in range(parts)]
    return b.bitcast(b.shuffle(words, words, order), vec(4 * lanes, "i8"))
