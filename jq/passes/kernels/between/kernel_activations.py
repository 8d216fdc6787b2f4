"""Products of two activations of integer-only programs: one of them is packed as a weight.

    composite "jq.integer" %q.codes, %k.codes                        (dot_general, with its rescale)
    ->
    %weights, %init = call @jq_pack_values(%k.codes, zero points)
    call @jq_gemm(%q.codes, %weights, %init, ...)

Fires on int8 x int8 with one scale and zero point each, as attention has them."""

import math
from dataclasses import dataclass

import numpy as np

from jq.formats.blocks import full
from jq.formats.requantize import Rescaling
from jq.ir import OPS, Program, at, evaluate, ir, shape_of
from jq.ir.build import replace as replace_op
from jq.ir.contract import Contract
from jq.ir.ops.dims import Dims
from jq.kernels import Batch, Gemm, PackValues
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._integer import IntegerContraction, contractions, match_contraction
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, call_kernel, isa_of

MOST = 2048  # columns that are packed


class KernelActivations(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = isa_of(cx.target), KernelDecisions()
        for op in contractions(program) if isa else ():
            found = match_contraction(op)
            if isa is None or found is None or not _varying(program, found.contract):
                continue
            try:
                product = _Product.of(program, found.contract)
                kernel = product.lower(program, found, isa, cx.target.device.rescaling)
                decided.kernel(kernel, found.contract.name)
            except NoKernel:
                continue  # the next pass says why
        return decided.write(program)


def _varying(program: Program, c: Contract) -> bool:
    codes = [side[1]["codes"] for side in c.sides if isinstance(side, tuple)]
    plain = Dims.of_contract(c) is not None and len(codes) == 2
    return plain and all(evaluate(program, v) is None for v in codes)


@dataclass(frozen=True)
class _Product:
    """`left [B, M, K] x right [B, K, N]`; zero points are numbers."""

    dims: Dims
    left: ir.Value
    right: ir.Value
    zeros: tuple[int, int]

    @staticmethod
    def of(program: Program, c: Contract) -> "_Product":
        dims, codes, zeros = Dims.of_contract(c), [], []
        if dims is None or 0 in (*c.shapes[0], *c.shapes[1]):
            raise NoKernel("no product of matrices")
        for side in c.sides:
            assert isinstance(side, tuple)
            encoding, parts = side
            if encoding.format != "int8" or math.prod(encoding.grid) != 1:
                raise NoKernel("operands of other types, or with several scales")
            zero = evaluate(program, parts["zero_point"]) if "zero_point" in parts else np.zeros(1)
            if zero is None:
                raise NoKernel("a zero point is found at run time")
            codes.append(parts["codes"])
            zeros.append(int(np.asarray(zero).reshape(-1)[0]))
        return _Product(dims, codes[0], codes[1], (zeros[0], zeros[1]))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, M, K, N."""
        left, right, d = shape_of(self.left), shape_of(self.right), self.dims
        batch, k = (math.prod(left[a] for a, _ in pairs) for pairs in (d.batch, d.contract))
        m, n = (
            math.prod(shape[a] for a in d.free(side, len(shape)))
            for side, shape in enumerate((left, right))
        )
        return batch, m, k, n

    def lower(
        self, program: Program, found: IntegerContraction, isa: str, rescaling: Rescaling
    ) -> str:
        op, (batch, m, k, n) = found.contract.op, self.sizes
        if n > MOST:
            raise NoKernel("too many columns")
        steps, bias, columns = found.rescale(rescaling, [])  # one number each
        rows, zeros = Batch(batch) if batch > 1 else None, self.zeros[1] != 0
        kernel = Gemm(isa=isa, m=m, k=k, n=n, rows=rows, column_zero=zeros, epilogue=steps)
        lead = [batch] * (batch > 1)
        with at(op):
            operands = [self._rows(), *self._packed(program, kernel, int(bias[0]), found)]
            if zeros:
                zero = self.zeros[1] + kernel.weight_offset
                operands.append(full(OPS, zero, [*lead, kernel.columns], np.int32))
            shape = [*lead, kernel.columns]
            operands += [full(OPS, c[0], shape, c.dtype) for c in columns]
            operands.append(full(OPS, found.step.out.zero_point, [batch], np.int32))
            (result,) = call_kernel(program, kernel, operands, found.contract.name)
            replace_op(op, [OPS.reshape(result, shape_of(op.operation.results[0]))])
        return kernel.name

    def _rows(self) -> ir.Value:
        """The left codes, with the batch first and K last."""
        d, rank = self.dims, len(shape_of(self.left))
        order = [*(a for a, _ in d.batch), *d.free(0, rank), *(a for a, _ in d.contract)]
        return OPS.transpose(self.left, order)

    def _packed(
        self, program: Program, kernel: Gemm, bias: int, found: IntegerContraction
    ) -> list[ir.Value]:
        """The right codes as weights, read as they lie where the batch is outside or between."""
        d, shape = self.dims, shape_of(self.right)
        batch, inner = [b for _, b in d.batch], [b for _, b in d.contract]
        free, moved = d.free(1, len(shape)), self.right
        forms = [
            (transposed, outer)
            for transposed, (rows, columns) in enumerate(((inner, free), (free, inner)))
            for outer in range(len(batch), -1, -1)
            if (axes := [*batch[:outer], *rows, *batch[outer:], *columns]) == sorted(axes)
        ]
        if not forms:
            moved = OPS.transpose(self.right, [*batch, *inner, *free])
        transposed, outer = forms[0] if forms else (0, len(batch))
        count = math.prod(shape[a] for a in batch[:outer])
        pack = PackValues(
            isa=kernel.isa,
            gemm=kernel,
            outer=count,
            inner=kernel.batch // count,
            transposed=bool(transposed),
        )
        left, right = self.zeros
        numbers = OPS.constant(np.array([left, bias + kernel.k * left * right], np.int32))
        return call_kernel(program, pack, [moved, numbers], f"{found.contract.name}/pack")
