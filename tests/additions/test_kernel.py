"""A new kernel is a description, the body that is registered for it, and a pass that calls it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import jq
from jq.ir import at, shape_of
from jq.ir.build import NAME, replace, string_attr
from jq.kernels import Kernel, TensorType
from jq.kernels.emit.dispatches import emit
from jq.kernels.emit.values import vec
from jq.kernels.schedule.rows import Rows, row_dispatch
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, isa_of
from tests.support.programs import evaluated


def test_a_kernel() -> None:
    class HalvesMadeUp(Kernel):
        """f32 [M, K] -> f32 [M, K / 2]: the sums of the first and the second half of each row."""

        m: int
        k: int

        @property
        def label(self) -> str:
            return f"{self.m}x{self.k}"

        @property
        def operands(self) -> tuple[TensorType, ...]:
            return (TensorType((self.m, self.k), "f32"),)

        @property
        def results(self) -> tuple[TensorType, ...]:
            return (TensorType((self.m, self.k // 2), "f32"),)

    @emit.register
    def emit_halves(kernel: HalvesMadeUp, operands: Sequence[Any]) -> list[Any]:
        def row(b: Any, tensors: Sequence[Any], tiles: Sequence[Any], rows: Rows) -> None:
            (source,), half = tensors, kernel.k // 2
            x, y = (b.load(source, [rows.at[0], i], vec(half, "f32")) for i in (0, half))
            b.store(b.add(x, y), tiles[0], [rows.to[0], 0])

        return row_dispatch(operands, kernel.results, row, block=2)

    @dataclass(frozen=True)
    class KernelHalves(Pass):
        """add (slice %x first half), (slice %x second half)  ->  call @halves(%x)"""

        name, after = "kernel-halves-made-up", "kernel-quantize"

        def run(self, program: jq.ir.Program, cx: PassContext) -> bool:
            isa = isa_of(cx.target)
            for op in list(program.walk()) if isa else []:
                if op.operation.name != "stablehlo.add":
                    continue
                source = op.operands[0].owner.operands[0]
                kernel = HalvesMadeUp(isa=isa, m=shape_of(source)[0], k=shape_of(source)[1])
                with at(op):
                    name = string_attr(op, NAME) or ""
                    results = call_kernel(program, kernel, [source], name)
                replace(op, results)
                return True
            return False

    rng = np.random.default_rng(0)
    weight, x = (rng.standard_normal(s).astype(np.float32) for s in ((24, 16), (5, 24)))

    def fn(p: Any, x: Any) -> Any:
        y = jax.nn.relu(x @ p["w"])
        return y[:, :8] + y[:, 8:]

    model = jq.Model(fn, {"w": weight}, (x,))
    compiled = jq.compile(model, "int8-dynamic", settings={"min_elements": 1})
    assert "jq_halves_made_up_5x16" in compiled.levels["target"].text()
    (want,) = evaluated(compiled.levels["integer"], x)
    np.testing.assert_array_equal(compiled(x), want)
