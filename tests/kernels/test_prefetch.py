"""Weights are fetched a panel ahead where that pays, from where they are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import iree.runtime as rt
import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import arith, func, llvm

from jq.kernels import Batch, Bias, Convolution, Gemm, Gemv, Isa, RegisterTile, Residual, TensorType
from jq.kernels.emit.builder import Builder
from jq.kernels.emit.dispatches import Output, dispatch
from jq.kernels.emit.values import Index, high, mlir_type, vec
from jq.kernels.gemm import panel
from jq.kernels.machine.tiling import LINE
from jq.kernels.schedule import prefetch
from jq.kernels.schedule.prefetch import Prefetch, address
from tests.kernels.harness import compile_text, linked

GEMM = Gemm(isa="avx512_vnni", m=49, k=512, n=256)
CONVOLUTION = Convolution(
    isa="avx512_vnni", batch=1, height=9, width=9, channels=64, filters=128, window=(3, 3)
)


@pytest.mark.parametrize("isa", ["avx512_vnni", "aarch64_i8mm", "portable"])
def test_few_rows_fetch(isa: str) -> None:
    for kernel in (replace(GEMM, isa=isa), replace(CONVOLUTION, isa=isa)):
        assert "llvm.intr.prefetch" in linked([kernel])


@pytest.mark.parametrize(
    "changed",
    [
        {"m": 1024},  # products take much longer than weights
        {"m": 3},  # one tile
        {"k": 40},  # a panel of 1,280 bytes
        {"k": 1 << 15},  # a panel fills the cache
        {"rows": Batch(2)},
    ],
    ids=str,
)
def test_others_do_not(changed: dict[str, Any]) -> None:
    assert "prefetch" not in linked([replace(GEMM, **changed)])


@pytest.mark.parametrize(
    ("kernel", "block"),
    [
        (GEMM, 49),
        (
            replace(GEMM, m=8, cut=RegisterTile(5, 4)),
            8,
        ),  # two tiles, the second one begins ahead of its place
        (replace(GEMM, k=384, n=24), 49),  # a panel of fewer bytes a step than a line has
        (CONVOLUTION, 49),
    ],
    ids=lambda v: getattr(v, "label", ""),
)
def test_the_tiles_of_a_panel_fetch_all_of_the_next(
    kernel: Gemm | Convolution, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line of it once, but for the last one; from the byte where the panel's own end."""
    made: list[Prefetch] = []
    seen: list[tuple[int, int]] = []
    of = Prefetch.of

    def recorded(
        b: Builder, isa: Isa, weights: ir.Value, panel: Index, *rest: int
    ) -> Prefetch | None:
        assert rest[1] == block
        found = of(b, isa, weights, panel, *rest)
        assert found is not None
        size = int(np.prod(ir.RankedTensorType(weights.type).shape[1:]))
        assert (
            high(found.first) == (high(panel) + 1) * size == (high(panel) + 1) * found.lines * LINE
        )
        made.append(found)
        return found

    monkeypatch.setattr(Prefetch, "of", staticmethod(recorded))
    monkeypatch.setattr(Prefetch, "fetch", lambda _, *at: seen.append((high(at[0]), high(at[1]))))
    linked([kernel])
    monkeypatch.undo()
    tiles = math.ceil(block / made[0].tall)
    assert max(seen) == (tiles - 1, made[0].steps - 1)

    found: list[int] = []
    monkeypatch.setattr(prefetch, "fetch", lambda b, address, offset: found.append(offset))
    ahead = replace(made[0], b=Builder(None), address=None, first=0)
    starts = [min(t * ahead.tall, block - ahead.tall) for t in range(tiles)]
    for first in starts:
        for step in range(ahead.steps):
            ahead.fetch(ahead.tile(first), step)
    lines = range(0, ahead.lines * LINE, LINE)
    assert sorted(set(found)) == list(lines)
    assert len(found) - found.count(lines[-1]) == len(lines) - 1


def test_a_residual_is_fetched_where_its_rows_are_far_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line for each row of a tile, up to the last row's last panel."""
    far = Gemm(isa="avx2", m=1200, k=64, n=512, element="f32", epilogue=(Bias(), Residual()))
    for other in (replace(far, n=496), replace(far, isa="avx512_vnni"), replace(far, epilogue=())):
        assert "prefetch" not in linked([other])
    seen: list[Index] = []
    monkeypatch.setattr(panel, "fetch", lambda b, address, offset, locality: seen.append(offset))
    linked([far])
    width = far.tiling.vectors * far.target.lanes
    assert len(seen) == far.tiling.rows + far.tiling.block % far.tiling.rows
    assert max(map(high, seen)) == 4 * (1200 * 512 - width)


def test_a_token_fetches_a_record_of_every_panel() -> None:
    """While it reads one; a tile of many rows fetches its part of the next run."""
    one = Gemv(isa="avx512_vnni", m=1, k=256, n=256, scale="f16")
    lines = math.ceil(one.layout.record / LINE)
    assert linked([one]).count("llvm.intr.prefetch") == one.streams * lines > 4
    many = replace(one, m=40)
    tiles = math.ceil(many.row_block / many.rows)
    share = math.ceil(many.decoded_run * many.layout.bytes / LINE / tiles)
    calls = linked([many]).count("llvm.intr.prefetch")
    assert calls == share * (1 + (many.row_block % many.rows > 0)) > 1  # in a loop, and after it
    assert "prefetch" not in linked([replace(one, m=12)])


def read_at_addresses() -> str:
    """A function of two tensors that gives 16 bytes of the second, read at its address."""
    kind, result = TensorType((4, 2, 64), "i8"), TensorType((16,), "i8")

    def body(b: Builder, ids: object, tensors: list, tiles: list) -> None:
        i64 = ir.IntegerType.get_signless(64)
        offset = arith.ConstantOp(i64, 2 * 64 + 3).result
        pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.addi(address(tensors[1]), offset))
        b.store(llvm.load(vec(16, "i8"), pointer, alignment=1), tiles[0], [0])

    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ([mlir_type(kind)] * 2, [mlir_type(result)]))
        with ir.InsertionPoint(function.add_entry_block()):
            inputs = [(value, kind) for value in function.arguments]
            output = Output(result, (16,), lambda b, ids: [0])
            func.ReturnOp(dispatch(inputs, [output], [1], body))
        return str(module)


def test_the_address_is_that_of_the_buffer() -> None:
    config = rt.Config("local-sync")
    context = rt.SystemContext(config=config)
    data = compile_text(read_at_addresses())
    context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, data))
    one, two = np.random.default_rng(0).integers(-128, 128, (2, 4, 2, 64), dtype=np.int8)
    found = context.modules.module["f"](one, two).to_host()
    np.testing.assert_array_equal(found, two.reshape(-1)[131:147])
