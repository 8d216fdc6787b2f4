"""Matrix tiles (x86 AMX): registers of 16 rows x 64 bytes, and the product of two of them.

A tile is loaded from 1 KiB of packed memory, rows after rows: LLVM turns a load of 256 words that
feeds a tile into one `tileloadd`. A process must have asked Linux for them: `jaxq` does before it
loads a program (`processor.permit_tiles`), and a kernel does before its first tile, since IREE's
own tools do not."""

import math

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, memref

from jq.base.errors import InternalError
from jq.kernels.emit import Builder, Index, high, vec
from jq.kernels.machine.tile_cut import ROWS, WORDS

# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) at a kernel's first call in a process, which
# the byte remembers: a call of the system takes longer than a small workgroup may.
_REQUEST = """
cmpb $$0, 1f(%rip)
jne 2f
movl $$158, %eax
movl $$0x1023, %edi
movl $$18, %esi
syscall
movb $$1, 1f(%rip)
2:
.pushsection .data
1: .byte 0
.popsection
"""
_CLOBBERS = ",".join(f"~{{{r}}}" for r in ("rax", "rcx", "rdi", "rsi", "r11", "memory", "flags"))


def _i16(b: Builder, value: int) -> ir.Value:
    return b.constant(ir.IntegerType.get_signless(16), value)


def _shape(b: Builder, rows: int = ROWS) -> list[ir.Value]:
    return [_i16(b, rows), _i16(b, 64)]


def _tile() -> ir.Type:
    return ir.Type.parse("!llvm.x86_amx")


def zero(b: Builder, rows: int = ROWS) -> ir.Value:
    """A tile of zeros, as which every sum of products begins."""
    b.at_start(_REQUEST, _CLOBBERS)
    return b.intrinsic("llvm.x86.tilezero.internal", _tile(), _shape(b, rows))


def load(b: Builder, source: ir.Value, at: list[Index], words: int = WORDS) -> ir.Value:
    """The tile whose words lie at `at` of an i32 tensor or scratch, row after row."""
    kind = vec(words, "i32")
    scratch = isinstance(source.type, ir.MemRefType)
    loaded = b.get(source, at, kind) if scratch else b.load(source, at, kind)
    return b.intrinsic(f"llvm.x86.cast.vector.to.tile.v{words}i32", _tile(), [loaded])


def strided(b: Builder, base: ir.Value, at: Index, stride: int, rows: int) -> ir.Value:
    """The tile whose rows of 64 bytes lie `stride` bytes apart, from a byte on after `base`."""
    i64 = ir.IntegerType.get_signless(64)
    first = arith.addi(base, arith.index_cast(i64, b.index(at)))
    pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), first)
    operands = [*_shape(b, rows), pointer, b.constant(i64, stride)]
    return b.intrinsic("llvm.x86.tileloadd64.internal", _tile(), operands)


def repeat(b: Builder, scratch: ir.Value, word: Index, depth: int) -> ir.Value:
    """A right tile for `depth` codes whose rows are all the 16 words from `word` of a scratch."""
    if high(word) + ROWS > math.prod(ir.MemRefType(scratch.type).shape):
        raise InternalError("a tile leaves a scratch")
    sizes = [_i16(b, depth // 4), _i16(b, 64)]
    operands = [*sizes, *_pointer(b, scratch, word, 0)]
    return b.intrinsic("llvm.x86.tileloadd64.internal", _tile(), operands)


def product(
    b: Builder,
    acc: ir.Value,
    lhs: ir.Value,
    rhs: ir.Value,
    kind: str,
    depth: int = 64,
    rows: int = ROWS,
) -> ir.Value:
    """`acc + lhs rhs`, [16, 16] words. `kind` is `tdpbssd` (i8) or `tdpbusd` (left codes read as
    u8): i32 sums of [16, 64] and [64, 16] in groups of 4 rows, which wrap; or `tdpbf16ps`: f32 sums
    of [16, 32] and [32, 16] in pairs. `depth`: bytes of a row of the left one, 64 or fewer; `rows`:
    of the left one and the sums."""
    sizes = [*_shape(b, rows), _i16(b, depth)]
    return b.intrinsic(f"llvm.x86.{kind}.internal", _tile(), [*sizes, acc, lhs, rhs])


def store(
    b: Builder, tile: ir.Value, scratch: ir.Value, word: Index, stride: int = ROWS, rows: int = ROWS
) -> None:
    """Writes the tile's rows of 16 words, `stride` words apart, from `word` of a scratch."""
    shape = ir.MemRefType(scratch.type).shape
    if high(word) + (rows - 1) * stride + ROWS > math.prod(shape):
        raise InternalError(f"a tile leaves a scratch of {list(shape)}")
    operands = [*_shape(b, rows), *_pointer(b, scratch, word, stride), tile]
    llvm.CallIntrinsicOp(None, "llvm.x86.tilestored64.internal", operands, [], [])


def _pointer(b: Builder, scratch: ir.Value, word: Index, stride: int) -> list[ir.Value]:
    """Address of a tile's first word, and the bytes between its rows."""
    i64 = ir.IntegerType.get_signless(64)
    base = memref.ExtractAlignedPointerAsIndexOp(scratch).aligned_pointer
    address = arith.addi(base, b.index(b.scaled(word, 4)))
    pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.index_cast(i64, address))
    return [pointer, b.constant(i64, 4 * stride)]
