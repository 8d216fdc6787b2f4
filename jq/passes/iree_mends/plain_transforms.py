"""Fourier transforms become products.

    fft(%x : complex<f32>[3, 12], FFT)
    ->
    dot_general(concatenate(real %x, imag %x), %m : f32[24, 24]), its halves joined to complex

Several axes are taken one by one. A transform is linear in the real and imaginary parts of its
numbers: the rows of the matrix are transforms of unit vectors, by NumPy in double precision."""

import numpy as np

from jq.base.errors import UserError
from jq.ir import OPS, Op, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import NAME, create, i64_array, integers, string_attr
from jq.ir.ops.dims import by_matrix
from jq.passes.iree_mends.mend import Mend

LARGEST = 1024 * 1024  # length of what goes in times what comes out: 16 MiB of matrix
Kind = str  # FFT, IFFT, RFFT or IRFFT, as StableHLO calls them, and NumPy in lower case


class PlainTransforms(Mend):
    """Fourier transforms are refused if the length is no power of two, if there are several axes,
    or if they are inverse real ones.
    Trap: traps/test_transforms.py::test_lengths_that_are_no_power_of_two
    Report: iree-org/iree#12263"""

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.fft":
            return False
        lengths = integers(op, "fft_length")
        return len(lengths) != 1 or not _is_plain(_kind(op), lengths[0])

    def rewritten(self, op: Op) -> list[ir.Value]:
        """The last axis is transformed first, but by the inverse real transform."""
        kind, lengths, x = _kind(op), integers(op, "fft_length"), op.operands[0]
        rank = len(shape_of(x))
        others = "IFFT" if kind.startswith("I") else "FFT"
        steps = [(axis, others, n) for axis, n in enumerate(lengths, rank - len(lengths))]
        steps[-1] = (rank - 1, kind, lengths[-1])
        where = string_attr(op, NAME)
        for axis, each, n in steps if kind == "IRFFT" else reversed(steps):
            order = [a for a in range(rank) if a != axis] + [axis]
            back = [int(a) for a in np.argsort(order)]
            x = OPS.transpose(_along_last(OPS.transpose(x, order), each, n, where), back)
        return [x]


def _kind(op: Op) -> Kind:
    text = str(op.attributes["fft_type"])  # #stablehlo<fft_type RFFT>
    return text.rstrip(">").split()[-1]


def _is_plain(kind: Kind, length: int) -> bool:
    return kind != "IRFFT" and length > 1 and length & (length - 1) == 0


def _along_last(x: ir.Value, kind: Kind, length: int, where: str | None) -> ir.Value:
    *rows, width = shape_of(x)
    if _is_plain(kind, length):
        size = length // 2 + 1 if kind == "RFFT" else length
        return create(
            "stablehlo.fft",
            tensor_type([*rows, size], np.result_type(dtype_of(x), np.complex64)),
            x,
            fft_type=ir.Attribute.parse(f"#stablehlo<fft_type {kind}>"),
            fft_length=i64_array([length]),
        )
    matrix = _matrix(kind, length, width, where)
    if kind != "RFFT":
        x = OPS.concatenate([stablehlo.real(x), stablehlo.imag(x)], len(rows))
    y = by_matrix(x, OPS.constant(matrix.astype(dtype_of(x))))
    if kind == "IRFFT":
        return y
    half, low = matrix.shape[1] // 2, [0] * len(rows)
    parts = [OPS.slice(y, [*low, i * half], [*rows, (i + 1) * half]) for i in (0, 1)]
    return stablehlo.complex(*parts)


def _matrix(kind: Kind, length: int, width: int, where: str | None) -> np.ndarray:
    """f64[real and imaginary parts in, real and imaginary parts out]."""
    if width * length > LARGEST:
        hint = "those of a power of two and of up to 1024 elements are compiled"
        raise UserError(f"a Fourier transform of {length} elements", op=where, hint=hint)
    unit = np.eye(width)
    rows = unit if kind == "RFFT" else np.concatenate([unit, 1j * unit])
    found: np.ndarray = getattr(np.fft, kind.lower())(rows, length)
    return found if kind == "IRFFT" else np.concatenate([found.real, found.imag], 1)
