"""Matrix tiles (x86 AMX): registers of 16 rows x 64 bytes, and the product of two of them.

A tile is loaded from 1 KiB of packed memory, rows after rows: LLVM turns a load of 256 words that
feeds a tile into one `tileloadd`. A process must have asked for them (`processor.permit_tiles`).
"""

from __future__ import annotations

import math

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, memref

from jq.errors import InternalError
from jq.kernels.build.builder import Builder
from jq.kernels.build.values import Index, high, vec
from jq.kernels.machine.tile_cut import ROWS, WORDS


def _i16(b: Builder, value: int) -> ir.Value:
    return b.constant(ir.IntegerType.get_signless(16), value)


def _shape(b: Builder) -> list[ir.Value]:
    return [_i16(b, ROWS), _i16(b, 64)]


def _tile() -> ir.Type:
    return ir.Type.parse("!llvm.x86_amx")


def zero(b: Builder) -> ir.Value:
    """A tile of zeros."""
    return b.intrinsic("llvm.x86.tilezero.internal", _tile(), _shape(b))


def load(b: Builder, source: ir.Value, at: list[Index]) -> ir.Value:
    """The tile whose 256 words lie at `at` of an i32 tensor or scratch."""
    kind = vec(WORDS, "i32")
    scratch = isinstance(source.type, ir.MemRefType)
    words = b.get(source, at, kind) if scratch else b.load(source, at, kind)
    return b.intrinsic("llvm.x86.cast.vector.to.tile.v256i32", _tile(), [words])


def product(b: Builder, acc: ir.Value, lhs: ir.Value, rhs: ir.Value, kind: str) -> ir.Value:
    """`acc + lhs rhs`, [16, 16] words.

    `kind` is `tdpbssd` (i8) or `tdpbusd` (left codes read as u8): i32 sums of [16, 64] and [64, 16]
    in groups of 4 rows, which wrap; or `tdpbf16ps`: f32 sums of [16, 32] and [32, 16] in pairs.
    """
    sizes = [*_shape(b), _i16(b, 64)]
    return b.intrinsic(f"llvm.x86.{kind}.internal", _tile(), [*sizes, acc, lhs, rhs])


def store(b: Builder, tile: ir.Value, scratch: ir.Value, word: Index, stride: int = ROWS) -> None:
    """Writes the tile's rows of 16 words, `stride` words apart, from `word` of a scratch."""
    shape = ir.MemRefType(scratch.type).shape
    if high(word) + (ROWS - 1) * stride + ROWS > math.prod(shape):
        raise InternalError(f"a tile leaves a scratch of {list(shape)}")
    i64 = ir.IntegerType.get_signless(64)
    base = memref.ExtractAlignedPointerAsIndexOp(scratch).aligned_pointer
    address = arith.addi(base, b.index(b.scaled(word, 4)))
    pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.index_cast(i64, address))
    operands = [*_shape(b), pointer, b.constant(i64, 4 * stride), tile]
    llvm.CallIntrinsicOp(None, "llvm.x86.tilestored64.internal", operands, [], [])
