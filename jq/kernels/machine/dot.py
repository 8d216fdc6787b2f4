"""The inner product of every kernel of products, in the form that an instruction set has it.

    acc[lane] += sum_j lhs[j] * weight[lane, j]        j < group

`lhs` is one group of codes in every lane. Where the instruction reads it as unsigned, codes are
kept in their unsigned view (`q + 128`, the same bits as `q ^ 0x80`), and the accumulator starts at
`-128 * sum_k weight[k, lane]`, which takes the 128 out again: exact in wrapping 32-bit arithmetic.

Of floats (`Isa.for_element`), bf16 lies in memory as i16, and is multiplied in pairs or, where no
instruction does that, widened to f32. Products of bf16 are exact in f32; each sum rounds."""

from iree.compiler import ir

from jq.kernels.emit import Builder, Indices, Values, lanes_of, vec
from jq.kernels.machine.isa import Isa

SIGN_BITS = 0x80808080 - (1 << 32)


def codes(
    b: Builder, isa: Isa, source: ir.Value, at: Indices, flip: bool, valid: int | None = None
) -> ir.Value:
    """One group of i8 codes from `at`, in every lane; codes past `valid` are zero. `flip` turns
    them into the other view (signed <-> unsigned)."""
    dot = isa.dot
    if dot.result == "f32":
        if dot.element == "f32":
            return _spread(b, isa, floats(b, source, at, 1))
        return _spread(b, isa, b.load(source, at, vec(dot.group, "i16"), valid))
    group = b.load(source, at, vec(dot.group, "i8"), valid)
    if dot.element == "i8":
        word = b.broadcast(b.bitcast(group, vec(1, "i32")), isa.lanes)
        if flip:
            word = b.xor(word, b.i32(SIGN_BITS, isa.lanes))
        return b.bitcast(word, vec(4 * isa.lanes, "i8"))
    if flip:
        group = b.xor(group, b.constant(group.type, -128))
    return _spread(b, isa, b.extend(group, dot.element))


def several(b: Builder, isa: Isa, source: ir.Value, at: Indices, flip: bool) -> list[ir.Value]:
    """Groups of codes from `at`, as many as a register holds, each in every lane, by one load: for
    products that take a group from any lane (`Dot.by_element`)."""
    loaded = b.load(source, at, vec(isa.lanes * isa.dot.group, "i8"))
    words = b.bitcast(loaded, vec(isa.lanes, "i32"))
    if flip:
        words = b.xor(words, b.i32(SIGN_BITS, isa.lanes))
    kind = vec(isa.lanes * isa.dot.group, "i8")
    return [
        b.bitcast(b.shuffle(words, words, [lane] * isa.lanes), kind) for lane in range(isa.lanes)
    ]


def staged(b: Builder, isa: Isa, scratch: ir.Value, at: Indices) -> ir.Value:
    """A group of codes from `at` of a scratch, held as the product takes it, in every lane."""
    return _spread(b, isa, b.get(scratch, at, vec(isa.dot.group, isa.dot.element)))


def _spread(b: Builder, isa: Isa, group: ir.Value) -> ir.Value:
    """A group of codes as the product takes them, in every lane."""
    if isa.dot.group == 1:
        return b.broadcast(group, isa.lanes)
    word = b.broadcast(b.bitcast(group, vec(1, "i32")), isa.lanes)
    return b.bitcast(word, vec(isa.dot.group * isa.lanes, isa.dot.element))


def weights(
    b: Builder, isa: Isa, source: ir.Value, at: Indices, valid: int | None = None
) -> ir.Value:
    """`lanes x group` packed weights, widened where the product needs it; zeros past `valid`."""
    if isa.dot.element == "f32":
        return floats(b, source, at, isa.lanes, valid)
    stored = _element(source)
    value = b.load(source, at, vec(isa.dot.group * isa.lanes, stored), valid)
    if isa.dot.element == "bf16":
        return b.reinterpret(value, "bf16")
    return value if isa.dot.element == stored else b.extend(value, isa.dot.element)


def _element(source: ir.Value) -> str:
    return str(ir.ShapedType(source.type).element_type)


def floats(
    b: Builder, source: ir.Value, at: Indices, count: int, valid: int | None = None
) -> ir.Value:
    """`count` f32 from `at`, of such or of bf16 in i16; zeros past `valid`."""
    value = b.load(source, at, vec(count, _element(source)), valid)
    if _element(source) == "f32":
        return value
    return b.from_halves(value)


def rounded(b: Builder, isa: Isa, source: ir.Value, at: Indices, size: int, valid: int) -> ir.Value:
    """`size` f32 from `at`, rounded to bf16 (half to even; NaN stays): as pairs are multiplied, in
    i16, and otherwise in f32. Zeros past `valid`. What is stored as bf16 is read as it is."""
    if _element(source) == "i16":
        return b.load(source, at, vec(size, "i16"), valid)
    *lead, column = at
    parts = [
        b.load(source, [*lead, b.offset(column, i)], vec(isa.lanes, "f32"), valid - i)
        if i < valid
        else b.f32(0.0, isa.lanes)
        for i in range(0, size, isa.lanes)
    ]
    if isa.bf16_convert and len(parts) == 2:
        return halves(b, isa, parts)
    return b.join([_rounded(b, part) for part in parts])


def halves(b: Builder, isa: Isa, parts: Values) -> ir.Value:
    """Two vectors of f32, rounded to bf16, as one of i16."""
    if isa.bf16_convert:
        pair = b.intrinsic(isa.bf16_convert, vec(2 * isa.lanes, "bf16"), parts[::-1])
        return b.reinterpret(pair, "i16")
    bits = b.reinterpret(b.join([_rounded(b, part) for part in parts]), "i32")
    return b.truncate(b.shift_right(bits, 16), "i16")


def _rounded(b: Builder, x: ir.Value) -> ir.Value:
    """f32 that bf16 holds."""
    one, half, upper = (b.i32(v, lanes_of(x)) for v in (1, 0x7FFF, -0x10000))
    bits = b.reinterpret(x, "i32")
    up = b.add(bits, b.add(b.bit_and(b.shift_right(bits, 16), one), half))
    return b.select_equal(x, x, b.reinterpret(b.bit_and(up, upper), "f32"), x)


def dot(b: Builder, isa: Isa, acc: ir.Value, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """The accumulator after one group."""
    kind = vec(isa.lanes, isa.dot.result)
    if isa.dot.result == "f32" and not isa.dot.intrinsic:
        return b.fma(lhs, rhs, acc)
    if not isa.dot.intrinsic:
        return b.add(acc, b.mul(lhs, rhs))
    if isa.dot.sums:
        return b.add(acc, _widened(b, isa, _pairs(b, isa, lhs, rhs)))
    if isa.dot.by_element and not isa.dot.lhs_unsigned:
        lhs, rhs = rhs, lhs  # both are signed, and LLVM takes the second one by element
    if isa.dot.accumulates:
        return b.intrinsic(isa.dot.intrinsic, kind, [acc, lhs, rhs])
    return b.add(acc, b.intrinsic(isa.dot.intrinsic, kind, [lhs, rhs]))


def _pairs(b: Builder, isa: Isa, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Sums of two products each, in 16 bits."""
    return b.intrinsic(isa.dot.pairs, vec(2 * isa.lanes, "i16"), [lhs, rhs])


def _widened(b: Builder, isa: Isa, pairs: ir.Value) -> ir.Value:
    """Sums in 16 bits, two by two in 32 bits."""
    ones = b.constant(pairs.type, 1)
    return b.intrinsic(isa.dot.intrinsic, vec(isa.lanes, "i32"), [pairs, ones])


class Sums:
    """Sums of products from 0 or a start, by steps; in 16 bits for as many steps as fit."""

    def __init__(self, b: Builder, isa: Isa, count: int, start: Values = ()) -> None:
        self.b, self.isa, self.steps = b, isa, 0
        self.wide: list[ir.Value | None] = [*start] or [None] * count
        self.pairs: list[ir.Value | None] = [None] * count

    def add(self, to: int, lhs: ir.Value, rhs: ir.Value) -> None:
        """A product, to sum `to`: one for each in a step."""
        b, isa = self.b, self.isa
        if not isa.dot.sums:
            before = self.wide[to]
            self.wide[to] = dot(b, isa, b.i32(0, isa.lanes) if before is None else before, lhs, rhs)
            return
        sofar, product = self.pairs[to], _pairs(b, isa, lhs, rhs)
        self.pairs[to] = product if sofar is None else b.add(sofar, product)

    def end_step(self) -> None:
        self.steps += 1
        if self.isa.dot.sums and self.steps % self.isa.dot.sums == 0:
            self._widen()

    def result(self) -> list[ir.Value]:
        """The sums in 32 bits."""
        self._widen()
        zero = self.b.i32(0, self.isa.lanes)
        return [zero if v is None else v for v in self.wide]

    def _widen(self) -> None:
        for to, pairs in enumerate(self.pairs):
            if pairs is not None:
                wide, before = _widened(self.b, self.isa, pairs), self.wide[to]
                self.wide[to] = wide if before is None else self.b.add(before, wide)
        self.pairs = [None] * len(self.pairs)


def add_codes(
    b: Builder, isa: Isa, sums: ir.Value, codes: ir.Value, unsigned: bool = False
) -> ir.Value:
    """The sums of groups of codes added to lanes; unsigned ones where the product reads such."""
    ones, codes = splat(b, isa, 1), operand(b, isa, codes)
    return dot(b, isa, sums, *((codes, ones) if unsigned else (ones, codes)))


def splat(b: Builder, isa: Isa, value: int) -> ir.Value:
    """The same code in every place of an operand; -128..255, by the bits that i8 gives it."""
    byte = isa.dot.element == "i8"
    wrapped = (value + 128) % 256 - 128 if byte else value
    return b.constant(vec(isa.dot.group * isa.lanes, isa.dot.element), wrapped)


def operand(b: Builder, isa: Isa, codes: ir.Value, flip: bool = False) -> ir.Value:
    """Codes by lane and group as the product takes them; `flip` turns them into the other view."""
    if flip:
        codes = b.xor(codes, b.constant(codes.type, -128))
    return codes if isa.dot.element == "i8" else b.extend(codes, isa.dot.element)


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
    Seven operations where truncation takes twelve."""
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
    packed, parts = b.intrinsic(name, byte, pairs), lanes // 4
    if parts == 1:
        return packed
    # Packs work in parts of 128 bits, operand by operand inside: all of the first operand go first.
    words_of = b.bitcast(packed, vec(lanes, "i32"))
    order = [part * PACKED + operand for operand in range(PACKED) for part in range(parts)]
    return b.bitcast(b.shuffle(words_of, words_of, order), byte)
