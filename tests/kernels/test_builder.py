"""Accesses are proven in bounds while they are emitted; register tiles fit and pay."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir

from jq.base.errors import InternalError
from jq.kernels import ISAS, Gemm, TensorType, get_isa
from jq.kernels.emit.builder import Builder
from jq.kernels.emit.dispatches import Output, dispatch
from jq.kernels.emit.values import mlir_type, vec
from jq.kernels.machine.tile_cut import TiledCut
from jq.kernels.machine.tiling import choose, parts, unevenness
from tests.kernels.harness import compile_text, linked
from tests.kernels.references import reference


def emit_load(first: int, trips: int, step: int, lanes: int) -> None:
    """A loop of loads from 32 elements."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        kind = TensorType((32,), "f32")

        def body(b: Builder, ids: object, tensors: list, tiles: list) -> None:
            with b.loop(0, trips * step, step) as loop:
                b.load(tensors[0], [b.offset(loop.index, first)], vec(lanes, "f32"))

        from iree.compiler.dialects import func

        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ([mlir_type(kind)], [mlir_type(kind)]))
        with ir.InsertionPoint(function.add_entry_block()):
            output = Output(kind, (32,), lambda b, ids: [0])
            results = dispatch([(function.arguments[0], kind)], [output], [1], body)
            func.ReturnOp(results)
        assert module.operation.verify()


@pytest.mark.parametrize(("first", "trips", "step", "lanes"), [(0, 4, 8, 8), (3, 5, 5, 8)])
def test_accesses_inside_are_emitted(first: int, trips: int, step: int, lanes: int) -> None:
    emit_load(first, trips, step, lanes)


@pytest.mark.parametrize(("first", "trips", "step", "lanes"), [(1, 4, 8, 8), (0, 5, 8, 4)])
def test_accesses_outside_are_refused(first: int, trips: int, step: int, lanes: int) -> None:
    with pytest.raises(InternalError, match="access up to"):
        emit_load(first, trips, step, lanes)


@pytest.mark.parametrize("isa", ISAS)
def test_tiles_fit_registers_and_cover(isa: str) -> None:
    target = get_isa(isa)
    for m, k, n in itertools.product([1, 5, 33, 128], [64, 768], [1, 17, 100, 1536]):
        cut = choose(target, m, k, n)
        assert cut.rows * cut.vectors + cut.vectors + 1 <= target.registers
        assert cut.block * cut.blocks >= m
        assert cut.panels * cut.vectors * target.lanes >= n
        assert (cut.blocks - 1) * cut.block < m


def test_matrix_tiles_cover_and_compute_no_panel_twice() -> None:
    for m, n in itertools.product([5, 49, 3136, 12544, 100_000], [8, 32, 64, 100, 1536]):
        cut = TiledCut(m, 64, n)
        assert cut.block * cut.blocks >= m and cut.rows * cut.row_tiles >= cut.block
        assert cut.range * cut.ranges >= n
        assert (cut.panels - 1) * cut.width < cut.range <= cut.panels * cut.width


def test_the_chosen_tile_is_among_the_fastest() -> None:
    """Against what `scripts/benchmark.py kernels --family tiles --write` measured."""
    tables = json.loads(Path(__file__).with_name("measured_tiles.json").read_text())
    lost = []
    for where, table in tables.items():
        isa = get_isa(where.partition(",")[0])
        for shape, times in table.items():
            m, k, n = map(int, shape.split("x"))
            cut = choose(isa, m, k, n)
            lost.append(_time(times, cut.rows, cut.vectors) / min(times.values()))
    assert len(lost) >= 20 and max(lost) < 1.1 and np.mean(lost) < 1.02


def _time(times: dict[str, float], rows: int, vectors: int) -> float:
    """Time of a tile; one that was not measured takes as long as the slower of its neighbours."""
    sizes = [tuple(map(int, size.split("x"))) for size in times]
    known = [(abs(r - rows), times[f"{r}x{v}"]) for r, v in sizes if v == vectors]
    nearest = min(distance for distance, _ in known)
    return max(time for distance, time in known if distance == nearest)


def test_weights_from_memory_make_wider_tiles() -> None:
    """Few rows wait for them; and no tile has so few rows that the second cache is too slow."""
    isa = get_isa("avx512_bf16")
    # 992 columns are divided by panels of two vectors, not of three or four.
    assert choose(isa, 16, 1024, 4096).vectors > choose(isa, 16, 1024, 992).vectors
    assert choose(isa, 256, 2048, 1000).rows >= 4
    assert choose(isa, 20, 4096, 256).rows <= 8  # rows of 4096 codes meet in one set of the first


def test_the_addresses_of_rows_fit_general_registers() -> None:
    """Narrow products do not take tiles of 26 rows, whose addresses would be read at every step."""
    isa = get_isa("avx512_vnni")
    for m, k, n in [(1024, 144, 16), (750, 8, 8), (750, 8, 48), (59, 96, 32)]:
        cut = choose(isa, m, k, n, 1)
        assert cut.rows <= 12 <= cut.rows * cut.vectors


def test_work_is_shared_evenly() -> None:
    """Products of real models: two threads get parts that differ by at most a tenth."""
    for m, k, n in [(128, 384, 1152), (128, 1536, 384), (197, 768, 3072), (3136, 576, 64)]:
        for isa in ("avx512_vnni", "avx2"):
            cut = choose(get_isa(isa), m, k, n)
            assert cut.panels * cut.blocks >= 8
            assert unevenness(cut.panels * cut.blocks) <= 0.1


def test_shares_of_threads() -> None:
    """One workgroup at a time where there are few, eight at a time where there are many."""
    assert [unevenness(n) for n in (1, 2, 12, 16, 48)] == [1, 0, 0, 0, 0]
    assert unevenness(24) == pytest.approx(1 / 3)
    assert [parts(n, 9) for n in (1, 3, 12, 24, 48)] == [8, 4, 1, 2, 1]
    assert parts(1, 3) == 3


def test_neighbours_of_a_small_result_stay() -> None:
    """Results lie side by side in a larger tensor: none writes over another."""
    kernel = Gemm(isa="portable", m=3, k=5, n=5)
    text = linked([kernel]).replace("func.func public @f0", "func.func private @f0")
    ins = ", ".join(f"%a{i}: {t}" for i, t in enumerate(kernel.operands))
    names = ", ".join(f"%a{i}" for i in range(len(kernel.operands)))
    types = ", ".join(map(str, kernel.operands))
    main = f"""
  func.func public @main(%c: tensor<9x5xi32>, {ins}) -> tensor<9x5xi32> {{
    %r = func.call @f0({names}) : ({types}) -> tensor<3x5xi32>
    %o = tensor.insert_slice %r into %c[3, 0] [3, 5] [1, 1] : tensor<3x5xi32> into tensor<9x5xi32>
    return %o : tensor<9x5xi32>
  }}
}}"""
    vmfb = compile_text(text.rstrip().removesuffix("}") + main)
    from jq.iree.runtime import Executable

    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (3, 5), dtype=np.int8)
    weight = rng.integers(-128, 128, (5, 5), dtype=np.int8)
    parts = kernel.pack(weight)
    canary = np.full((9, 5), 0x5A5A5A5A, np.int32)
    (result,) = Executable.load(vmfb)(canary, codes, parts["weights"], parts["init"])
    expected = canary.copy()
    expected[3:6] = reference(kernel, codes, weight)
    np.testing.assert_array_equal(result, expected)
