"""The tile choice's model of processors, and inner loops, against llvm-mca."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from jq.kernels import Dequantize, Gemm, Quantize, RegisterTile, get_isa
from scripts import model_loops as model

MCA = model.find_mca()
needs_mca = pytest.mark.skipif(MCA is None, reason="there is no llvm-mca of LLVM 16 or newer")

# Where the table of instruction sets (`Isa`) and LLVM's model of a processor differ, and why. A
# product of 16 bits is added by an instruction of its own: the model sees one cycle of latency, the
# table holds what keeps two multipliers busy.
ADDED_APART = {(cpu, "dot_latency"): 1.0 for cpu in ("haswell", "znver2", "znver3")}
ADDED_APART |= {("skylake-avx512", "dot_latency"): 1.0}
KNOWN = {
    **ADDED_APART,
    ("haswell", "dot_rate"): 1.0,  # one multiplier of integers; the table is of Zen 3
    ("znver2", "dot_rate"): 1.0,  # LLVM gives it Zen 1's single one
    ("skylake-avx512", "dot_rate"): 1.5,  # two units of 512 bits, which share an adder
    ("znver4", "dot_rate"): 0.5,  # 470 Gop/s were measured, which takes twice that at least
    ("znver4", "dot_latency"): 4.0,
    ("neoverse-v2", "dot_rate"): 4.0,  # four units, as its manual says; the table is of N1
    ("neoverse-n1", "dot_latency"): 2.0,  # an accumulator is passed on early
    ("neoverse-n2", "dot_latency"): 3.0,
    ("neoverse-v2", "dot_latency"): 1.0,
    **{(cpu, "load_rate"): 3.0 for cpu in ("znver2", "alderlake", "neoverse-n2", "neoverse-v2")},
}


@needs_mca
@pytest.mark.parametrize("cpu", model.PROCESSORS)
def test_rates_of_the_tile_choice(cpu: str) -> None:
    assert MCA is not None
    isa = get_isa(model.PROCESSORS[cpu])
    for name, found in model.rates(MCA, cpu).items():
        want = KNOWN.get((cpu, name), getattr(isa, name))
        assert found == pytest.approx(want, rel=0.06), (name, "mend the table, or KNOWN")


@needs_mca
@pytest.mark.parametrize("cpu", ["alderlake", "neoverse-n1", "neoverse-n2", "neoverse-v2"])
def test_inner_loops_cost_their_products(cpu: str) -> None:
    assert MCA is not None
    rows = model.rows(MCA, cpu)
    assert {row.kernel for row in rows} == set(model.NAMES)
    assert all(row.share >= 0.85 for row in rows), rows


@needs_mca
@pytest.mark.parametrize("cpu", ["haswell", "znver2"])
def test_pairs_do_more_than_products_of_16_bits(cpu: str) -> None:
    """At least what the choice of formats believes; on processors with one multiplier."""
    assert MCA is not None
    (row,) = [row for row in model.rows(MCA, cpu) if row.kernel == model.PAIRS]
    assert row.share >= get_isa("avx2").pair_gain


@needs_mca
def test_a_broadcast_has_products_enough() -> None:
    """The model of Zen 4 gives it a slot of those that multiply: three vectors share one."""
    assert MCA is not None
    rows = model.rows(MCA, "znver4")
    assert {row.kernel for row in rows} == set(model.NAMES)
    assert all(row.share >= 0.85 for row in rows), rows


def test_arm_takes_codes_by_element() -> None:
    """Without a broadcast, which takes a slot of the units that multiply."""
    for loop in model.busiest(model.assembly("aarch64_i8mm", "neoverse-n2")):
        assert len(loop.products) >= 64
        assert all(".4b[" in line for line in loop.products)
        assert not [line for line in loop.body if line.startswith(("ld1r", "dup"))]


@pytest.mark.parametrize(
    ("cpu", "flags"),
    [("x86-64-v3", []), ("x86-64", ["--iree-llvmcpu-target-cpu-features=+avx,+avx2,+fma"])],
)
def test_sums_stay_in_registers(cpu: str, flags: list[str]) -> None:
    """AVX2 has 16: codes that were read for all rows at once pushed sums out of them."""
    gemm = Gemm(isa="avx2", m=196, k=96, n=576, epilogue=(Dequantize(), Quantize()))
    tiles = (gemm, replace(gemm, cut=RegisterTile(6, 2)))
    loops = model.busiest(model.assembly("avx2", cpu, tiles, flags))
    assert [len(loop.products) for loop in loops] == [10, 12]
    for loop in loops:
        assert not [line for line in loop.body if re.search(r"%ymm\d+, .*\(%rsp", line)]


def test_loops_are_found_in_text() -> None:
    text = """f: # @f
\tmovq %rax, %rbx # a comment
.LBB0_1: # =>This Inner Loop
\tvpdpbusd %zmm1, %zmm2, %zmm3
\tjne .LBB0_1
.LBB0_2:
\taddq $1, %rax
\tjne .LBB0_1
g:
.LBB1_1:
\tsdot v0.4s, v1.16b, v2.4b[1] // a comment
\tadd x1, x1, #4
\tb.ne .LBB1_1
"""
    f, g = model.innermost(text)
    assert (f.kernel, f.body) == ("f", ("vpdpbusd %zmm1, %zmm2, %zmm3", "jne .LBB0_1"))
    assert g.body[1] == "add x1, x1, #4"
    assert len(g.products) == 1 == len(f.products)
