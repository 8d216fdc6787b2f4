"""The dump reader against what iree-compile itself writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.tools.binaries import find_tool

from jq.base.errors import UserError
from jq.iree.compiler import linker_flags
from jq.iree.dump.products import MultiplyAdd
from jq.iree.dump.reader import Dump, dump_flags, read_dump, read_phases
from jq.iree.dump.stored import bit_width, compiler_context, location_names, stored_bytes
from jq.kernels import Gemm, QuantizeRows
from tests.kernels.harness import linked

I8 = ("i8", "i8", "i32")
F32 = ("f32", "f32", "f32")


def resource(name: str, shape: tuple[int, ...], dtype: str) -> str:
    data = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    return f'"{name}": "0x04000000{data.tobytes().hex()}"'


def compiled_dump(body: str, directory: Path, resources: list[str] | None = None) -> Dump:
    source = directory / "m.mlir"
    blob = ", ".join(resources or [])
    tail = f"{{-# dialect_resources: {{ builtin: {{ {blob} }} }} #-}}" if blob else ""
    source.write_text(f"module {{ {body} }}\n{tail}\n")
    phases = directory / "phases"
    command = [
        find_tool("iree-compile"),
        str(source),
        "-o",
        str(directory / "m.vmfb"),
        "--iree-input-type=auto",
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=generic",
        *linker_flags(directory),
        *dump_flags(phases),
    ]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return read_dump(read_phases(phases))


def types(dump: Dump, name: str) -> list[tuple[str, str, str]]:
    return [c.types for c in dump.contractions if name in c.names]


MIXED = """
util.global private @p = #flow.parameter.named<"model"::"outside/w:codes"> : tensor<64x32xi8>
func.func public @main(%x: tensor<4x64xf32>, %i: tensor<4x64xi8>, %img: tensor<1x8x8x4xi8>) -> (
    tensor<4x32xf32>, tensor<4x32xi32>, tensor<1x8x8x8xi32>, tensor<1x8x8x4xi32>,
    tensor<4x32xf32>, tensor<4xf32>, tensor<4x32xi32>) {
  %w = stablehlo.constant dense_resource<"folded/w:codes"> : tensor<64x32xi8> loc("folded/w:codes")
  %s = stablehlo.constant dense<0.5> : tensor<64x32xf32> loc("folded/w:scale")
  %wc = stablehlo.convert %w : (tensor<64x32xi8>) -> tensor<64x32xf32> loc("folded/w")
  %wf = stablehlo.multiply %wc, %s : tensor<64x32xf32> loc("folded/w")
  %a = stablehlo.dot_general %x, %wf, contracting_dims = [1] x [0]
    : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32> loc("folded/w")

  %v = stablehlo.constant dense_resource<"int/w:codes"> : tensor<64x32xi8> loc("int/w:codes")
  %b = stablehlo.dot_general %i, %v, contracting_dims = [1] x [0]
    : (tensor<4x64xi8>, tensor<64x32xi8>) -> tensor<4x32xi32> loc("int/w")

  %k = stablehlo.constant dense_resource<"conv/k:codes"> : tensor<3x3x4x8xi8> loc("conv/k:codes")
  %c = stablehlo.convolution(%img, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1,1],[1,1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xi8>, tensor<3x3x4x8xi8>) -> tensor<1x8x8x8xi32> loc("conv/k")

  %d = stablehlo.constant dense_resource<"depth/k:codes"> : tensor<3x3x1x4xi8> loc("depth/k:codes")
  %dk = stablehlo.convert %d : (tensor<3x3x1x4xi8>) -> tensor<3x3x1x4xi32> loc("depth/k")
  %di = stablehlo.convert %img : (tensor<1x8x8x4xi8>) -> tensor<1x8x8x4xi32> loc("depth/k")
  %db = stablehlo.optimization_barrier %di : tensor<1x8x8x4xi32> loc("depth/k")
  %dd = stablehlo.convolution(%db, %dk) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1,1],[1,1]]} {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
    : (tensor<1x8x8x4xi32>, tensor<3x3x1x4xi32>) -> tensor<1x8x8x4xi32> loc("depth/k")

  %p = util.global.load @p : tensor<64x32xi8>
  %pf = stablehlo.convert %p : (tensor<64x32xi8>) -> tensor<64x32xf32> loc("outside/w")
  %e0 = stablehlo.exponential %x : tensor<4x64xf32> loc("act")
  %e = stablehlo.dot_general %e0, %pf, contracting_dims = [1] x [0]
    : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32> loc(fused["dot", "outside/w"])

  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sq = stablehlo.multiply %x, %x : tensor<4x64xf32> loc("variance")
  %var = stablehlo.reduce(%sq init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32> loc("variance")

  %ones = stablehlo.constant dense<1> : tensor<64x32xi8> loc("splat/w:codes")
  %n = stablehlo.dot_general %i, %ones, contracting_dims = [1] x [0]
    : (tensor<4x64xi8>, tensor<64x32xi8>) -> tensor<4x32xi32> loc("splat/w")
  return %a, %b, %c, %dd, %e, %var, %n : tensor<4x32xf32>, tensor<4x32xi32>,
    tensor<1x8x8x8xi32>, tensor<1x8x8x4xi32>, tensor<4x32xf32>, tensor<4xf32>, tensor<4x32xi32>
}
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    resources = [
        resource("folded/w:codes", (64, 32), "i1"),
        resource("int/w:codes", (64, 32), "i1"),
        resource("conv/k:codes", (3, 3, 4, 8), "i1"),
        resource("depth/k:codes", (3, 3, 1, 4), "i1"),
    ]
    return compiled_dump(MIXED, tmp_path_factory.mktemp("mixed"), resources)


def test_a_weight_that_was_folded_shows_as_float(mixed: Dump) -> None:
    """Trap: an expression over constants is stored evaluated, here four times as large."""
    by_name = {c.names[0]: c for c in mixed.constants}
    assert "folded/w:codes" not in by_name
    stored = by_name["folded/w"]
    assert (stored.dtype, stored.bytes, stored.kind) == ("f32", 64 * 32 * 4, "global")


def test_constants_have_names_types_and_kinds(mixed: Dump) -> None:
    found = {c.names[0]: (c.shape, c.dtype, c.bytes, c.kind) for c in mixed.constants}
    assert found["int/w:codes"] == ((64, 32), "i8", 2048, "inline")
    assert found["conv/k:codes"] == ((3, 3, 4, 8), "i8", 288, "inline")
    assert found["outside/w:codes"] == ((64, 32), "i8", 2048, "parameter")


def test_splat_constants_take_no_room(mixed: Dump) -> None:
    assert not [c for c in mixed.constants if c.names[0].startswith(("splat/", "folded/w:scale"))]
    (codes,) = (c for c in mixed.splats if c.names[0] == "splat/w:codes")
    assert (codes.shape, codes.dtype, codes.kind) == ((64, 32), "i8", "splat")
    assert (codes.bytes, codes.extent) == (0, 64 * 32)


def test_contraction_types(mixed: Dump) -> None:
    assert types(mixed, "int/w") == [I8]
    assert types(mixed, "conv/k") == [I8]
    assert types(mixed, "splat/w") == [I8]
    assert types(mixed, "folded/w") == [F32]


def test_types_are_seen_through_widening_behind_a_barrier(mixed: Dump) -> None:
    assert types(mixed, "depth/k") == [I8]


def test_conversion_to_float_is_not_widening(mixed: Dump) -> None:
    assert types(mixed, "outside/w") == [F32]


def test_sum_of_squares_is_no_contraction(mixed: Dump) -> None:
    assert types(mixed, "variance") == []
    assert len(mixed.contractions) == 6


KERNEL = """
func.func private @jq_gemm(%a: tensor<8x64xi8>, %b: tensor<64xi8>) -> tensor<8x16xi32> {
  %r = flow.dispatch.workgroups(%a, %b) : (tensor<8x64xi8>, tensor<64xi8>) -> tensor<8x16xi32> =
    (%ai: !iree_tensor_ext.dispatch.tensor<readonly:tensor<8x64xi8>>,
     %bi: !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xi8>>,
     %ro: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8x16xi32>>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %z = arith.constant 0 : i8
    %at = iree_tensor_ext.dispatch.tensor.load %ai, offsets=[0,0], sizes=[8,64], strides=[1,1]
      : !iree_tensor_ext.dispatch.tensor<readonly:tensor<8x64xi8>> -> tensor<8x64xi8>
    %bt = iree_tensor_ext.dispatch.tensor.load %bi, offsets=[0], sizes=[64], strides=[1]
      : !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xi8>> -> tensor<64xi8>
    %e = tensor.empty() : tensor<8x16xi32>
    %o = scf.for %m = %c0 to %c8 step %c1 iter_args(%acc = %e) -> tensor<8x16xi32> {
      %x = vector.transfer_read %at[%m, %c0], %z {in_bounds=[true]} : tensor<8x64xi8>, vector<16xi8>
      %w = vector.transfer_read %bt[%c0], %z {in_bounds=[true]} : tensor<64xi8>, vector<16xi8>
      PRODUCT
      %t = vector.transfer_write %n, %acc[%m, %c0] {in_bounds=[true]}
        : vector<16xi32>, tensor<8x16xi32>
      scf.yield %t : tensor<8x16xi32>
    }
    iree_tensor_ext.dispatch.tensor.store %o, %ro, offsets=[0,0], sizes=[8,16], strides=[1,1]
      : tensor<8x16xi32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8x16xi32>>
    flow.return
  } count() -> (index, index, index) {
    %c1 = arith.constant 1 : index
    flow.return %c1, %c1, %c1 : index, index, index
  } loc("jq_gemm")
  return %r : tensor<8x16xi32>
}
func.func public @main(%a: tensor<8x64xi8>, %b: tensor<64xi8>, %c: tensor<64xi8>)
    -> (tensor<8x16xi32>, tensor<8x16xi32>) {
  %0 = func.call @jq_gemm(%a, %b)
    : (tensor<8x64xi8>, tensor<64xi8>) -> tensor<8x16xi32> loc("one/w")
  %1 = func.call @jq_gemm(%a, %c)
    : (tensor<8x64xi8>, tensor<64xi8>) -> tensor<8x16xi32> loc("two/w")
  return %0, %1 : tensor<8x16xi32>, tensor<8x16xi32>
}
"""
WIDENED = """
      %xw = arith.extui %x : vector<16xi8> to vector<16xi32>
      %ww = arith.extsi %w : vector<16xi8> to vector<16xi32>
      %p = arith.muli %xw, %ww : vector<16xi32>
      %n = arith.addi %p, %xw : vector<16xi32>
"""


def test_kernels_keep_their_names_and_show_their_products(tmp_path: Path) -> None:
    dump = compiled_dump(KERNEL.replace("PRODUCT", WIDENED), tmp_path)
    assert [k.names for k in dump.kernels] == [("jq_gemm", "one/w"), ("jq_gemm", "two/w")]
    assert [k.products for k in dump.kernels] == [(MultiplyAdd(*I8),)] * 2
    assert not dump.contractions


def test_dot_instructions_are_known() -> None:
    call = (
        'llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"(%a, %b, %c)'
        " : (vector<16xi32>, vector<64xi8>, vector<64xi8>) -> vector<16xi32>"
    )
    text = f"""
    func.func @main(%x: tensor<16xi32>, %a: vector<16xi32>, %b: vector<64xi8>, %c: vector<64xi8>) {{
      %y = flow.dispatch.workgroups(%x) : (tensor<16xi32>) -> %x =
        (%xi: !iree_tensor_ext.dispatch.tensor<readwrite:tensor<16xi32>>) {{
        %a = arith.constant dense<0> : vector<16xi32>
        %b = arith.constant dense<0> : vector<64xi8>
        %c = arith.constant dense<1> : vector<64xi8>
        %r = {call}
        flow.return
      }}
      return
    }}"""
    assert read_dump(text).kernels[0].products == (MultiplyAdd(*I8),)


def test_bodies_apart_are_found_by_name(tmp_path: Path) -> None:
    """Kernels of ours stand in executables from the start; a call shows the body's products."""
    kernels = [Gemm(isa="portable", m=4, k=64, n=16), QuantizeRows(isa="portable", m=4, k=8)]
    body = linked(kernels).partition("{")[2].rpartition("}")[0]
    dump = compiled_dump(body, tmp_path)
    assert [k.products for k in dump.kernels] == [(MultiplyAdd(*I8),), ()]


def rows(body: str) -> Dump:
    """A sum along rows of two i8 matrices; `body` ends in `%r`, what is added up."""
    return read_dump(f"""
    #map = affine_map<(d0, d1) -> (d0, d1)>
    #row = affine_map<(d0, d1) -> (d0)>
    func.func @f(%x: tensor<4x8xi8>, %y: tensor<4x8xi8>, %s: tensor<4xi32>) -> tensor<4xi32> {{
      %0 = linalg.generic {{indexing_maps = [#map, #map, #row],
        iterator_types = ["parallel", "reduction"]}}
        ins(%x, %y : tensor<4x8xi8>, tensor<4x8xi8>) outs(%s : tensor<4xi32>) {{
      ^bb0(%a: i8, %b: i8, %acc: i32):
        %u = arith.extui %a : i8 to i32
        %v = arith.extsi %b : i8 to i32
        {body}
        %n = arith.addi %r, %acc : i32
        linalg.yield %n : i32
      }} -> tensor<4xi32>
      return %0 : tensor<4xi32>
    }}""")


def test_bodies_of_reductions() -> None:
    assert types(rows("%r = arith.muli %u, %v : i32"), "") == []  # it has no name
    (unsigned,) = rows("%r = arith.muli %u, %v : i32").contractions
    assert unsigned.types == I8
    assert rows("%r = arith.muli %u, %u : i32").contractions == ()  # a sum of squares
    assert rows("%r = arith.subi %u, %v : i32").contractions == ()
    centred = "%c = arith.subi %u, %v : i32\n %r = arith.muli %c, %v : i32"
    assert [c.types[:2] for c in rows(centred).contractions] == [("i32", "i8")]


def test_foreign_text_is_refused() -> None:
    with pytest.raises(UserError, match=r"program\.mlir"):
        read_dump("this is no module")


def test_sizes() -> None:
    assert stored_bytes((3, 3), "i4") == 5
    assert [bit_width(t) for t in ("i1", "f8E4M3FN", "bf16", "complex<f32>")] == [8, 8, 16, 64]


def test_names_of_any_script_are_read_from_locations() -> None:
    """MLIR prints the bytes of UTF-8 as one escape each."""
    with compiler_context():
        for name in ("ä ö/ü", "日本語", 'a "b"\n\\c', "emb\u00e9d#2:codes"):
            assert location_names(ir.Location.name(name)) == (name,)
