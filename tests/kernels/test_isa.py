"""Instruction sets: what a machine has, and that every family compiles for each one."""

from __future__ import annotations

from typing import Any

import pytest

from jq.base.errors import InternalError, UserError
from jq.base.system.processor import this_processor
from jq.kernels import (
    ISAS,
    Attention,
    Convolution,
    DecodeDot,
    Depthwise,
    Dequantize,
    DigitConvolution,
    DigitDepthwise,
    DigitGemm,
    Gemm,
    Gemv,
    HalfResidual,
    IntegerAttention,
    Kernel,
    Line,
    Normalize,
    PackValues,
    PairConvolution,
    PairGemm,
    Quantize,
    QuantizeBlocks,
    QuantizedResidual,
    QuantizeRows,
    Residual,
    RoundToHalves,
    RowProgram,
    RowQuantization,
    RowRanges,
    Source,
    SplitRows,
    UpdateRows,
    WideQuantize,
    WideResidual,
    Winograd,
    available,
    detect,
    get_isa,
)
from jq.kernels.emit.dispatches import link
from jq.kernels.rowwise.row_chain import Added, Coded, Digits, Normalized, RowChain
from tests.kernels.harness import compile_text, linked
from tests.kernels.strategies import HERE

ROW_SOURCES = (Source("i16", 3, 37), Source("i8", 1, 99), Source("i64", 1, 1))
ROW_LINES = (
    Line("source", element="i16", number=0),
    Line("convert", (0,), "i64"),
    Line("number", element="i64", number=0),
    Line("multiply", (1, 2), "i64"),
    Line("reduce_maximum", (3,), "i64"),
    Line("subtract", (4, 3), "i64"),
    Line("divide", (5, 2), "i64"),
    Line("count_leading_zeros", (6,), "i64"),
    Line("take", (7,), "i8", 1),
)


def every_family(isa: str) -> list[Kernel]:
    """Kernels of every family that is registered, in each of the forms that its bodies have."""
    steps = (Dequantize(), Quantize())
    image = {"batch": 1, "height": 6, "width": 6, "window": (3, 3), "epilogue": steps}
    floats = image | {"epilogue": (Quantize(),)}
    digits = {"unsigned": True, "epilogue": (Dequantize(), WideResidual(), WideQuantize())}
    sums = (Dequantize(), Residual(), QuantizedResidual())
    heads = {"batch": 1, "keys": 7, "heads": 2, "kv_heads": 2, "dim": 8}
    heads |= {"widths": (16, 16, 16), "starts": (0, 0, 0)}
    attention = {"isa": isa, "queries": 9, "scale": 0.3, **heads}
    precisions = ["f32", "bf16"] if get_isa(isa).multiplies_bf16 else ["f32"]
    pairs = (
        [
            PairGemm(isa=isa, m=17, k=70, n=49, chains=12, epilogue=steps),
            PairConvolution(isa=isa, filters=20, channels=8, chains=5, **image),
        ]
        if get_isa(isa).pairs
        else []
    )
    packed = Gemm(isa=isa, m=17, k=70, n=49)
    halves = image | {"epilogue": (RoundToHalves(),)}
    even = floats | {"height": 8, "width": 10}
    halved = get_isa(isa).bf16_dot and not get_isa(isa).tiles
    bits: list[tuple[type[Gemm | Convolution | Depthwise], dict[str, Any]]] = [
        (Gemm, {"m": 17, "k": 70, "n": 49, "epilogue": (HalfResidual(), RoundToHalves())}),
        (Convolution, {"filters": 20, "channels": 8, **halves}),
        (Depthwise, {"channels": 20, "padding": ((1, 1), (1, 1)), **halves}),
    ]
    return [
        *pairs,
        Gemm(isa=isa, m=65, k=20, n=37, epilogue=sums),
        Gemm(isa=isa, m=17, k=70, n=49, unsigned=True, epilogue=steps),
        Gemm(isa=isa, m=17, k=70, n=49, element="bf16", epilogue=(Residual(),)),
        Gemm(isa=isa, m=3, k=71, n=49, element="bf16"),  # not on tiles
        Gemm(isa=isa, m=3, k=71, n=49, element="f32"),
        Convolution(isa=isa, filters=20, channels=8, element="bf16", **floats),
        *(kernel(isa=isa, element="bf16_bits", **more) for kernel, more in bits),
        Depthwise(isa=isa, channels=20, element="f32", **floats),
        Winograd(isa=isa, filters=40, channels=20, element="f32", **even),
        *([Winograd(isa=isa, filters=40, channels=20, element="bf16", **even)] if halved else []),
        Gemv(isa=isa, m=1, k=64, n=40),
        Gemv(isa=isa, m=16, k=64, n=40),  # decoded once for all rows
        Gemv(isa=isa, m=32, k=64, n=40, stack=3, tiles=2),
        DecodeDot(isa=isa, m=1, k=64, n=5, format="nf4", block=(1, 32)),
        DecodeDot(isa=isa, m=6, k=70, n=5, format="float8_e4m3fn", block=(1, 0)),
        QuantizeRows(isa=isa, m=3, k=37),
        QuantizeBlocks(isa=isa, m=3, k=144, format="mxfp8_e5m2", size=32, coded=False),
        QuantizeBlocks(isa=isa, m=3, k=64, format="nvfp4", size=16),
        RowChain(isa=isa, m=3, k=48, steps=(Normalized(), Added(), Coded(16), Digits(32, 2))),
        RowRanges(isa=isa, m=3, k=37),
        PackValues(isa=isa, gemm=packed, outer=1, inner=1),
        PackValues(isa=isa, gemm=packed, outer=1, inner=1, transposed=True),
        RowProgram(isa=isa, m=3, k=37, sources=ROW_SOURCES, lines=ROW_LINES),
        SplitRows(isa=isa, m=3, k=70),
        UpdateRows(isa=isa, batch=2, rows=9, count=2, width=70),
        Normalize(isa=isa, m=3, k=37, scheme=RowQuantization("asymmetric")),
        Convolution(isa=isa, filters=20, channels=8, **image),
        Depthwise(isa=isa, channels=20, **image),
        DigitGemm(isa=isa, m=17, k=40, n=49, **digits),  # not on tiles
        DigitConvolution(isa=isa, filters=20, channels=2, **image | digits),
        DigitDepthwise(isa=isa, channels=20, padding=((1, 1), (1, 1)), **image | digits),
        IntegerAttention(isa=isa, queries=5, epilogue=steps, **heads),
        *(Attention(precision=precision, **attention) for precision in precisions),
        Attention(**attention | {"queries": 1, "keys": 16}, mask="full"),  # few rows, in place
        Attention(**attention | {"keys": 16}, mask="full"),  # what the mask hides is left out
    ]


def test_every_family_is_compiled() -> None:
    ours = {name for name, cls in Kernel.registry.items() if cls.__module__.startswith("jq.")}
    assert {kernel.family for kernel in every_family("avx2")} == ours


# What this machine has is compiled and run by the other tests.
OTHERS = [name for name in ISAS if name not in HERE or name == "avx_vnni"]


@pytest.mark.parametrize("isa", OTHERS)
def test_compiles_for_a_processor_that_has_it(isa: str) -> None:
    """An intrinsic that the target lacks would abort the compiler."""
    target = get_isa(isa)
    triple = f"{target.machine or 'x86_64'}-unknown-linux-gnu"
    cpu_flags = [
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-triple={triple}",
        f"--iree-llvmcpu-target-cpu={target.compile_cpu}",
    ]
    assert compile_text(linked(every_family(isa)), cpu_flags)


def test_detection_takes_the_best() -> None:
    zen4 = frozenset(
        ["sse2", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"]
    )
    assert [i.name for i in available(zen4, "x86_64")] == [
        "avx512_bf16",
        "avx512_vnni",
        "avx512",
        "avx2",
        "sse2",
        "portable",
    ]
    arm = frozenset(["asimddp"])
    assert [i.name for i in available(arm, "aarch64")] == ["aarch64_dotprod", "portable"]
    assert [i.name for i in available(frozenset(), "riscv64")] == ["portable"]


def test_this_machine() -> None:
    assert detect() in available()
    assert this_processor().flags.issuperset(detect().cpu_flags)


def test_unknown_names_are_errors_that_help() -> None:
    with pytest.raises(UserError, match="known: amx_int8, avx512_bf16"):
        get_isa("mmx")
    with pytest.raises(UserError, match="not a kernel description"):
        Kernel.from_json('{"kernel": "gemm", "colour": 1}')
    with pytest.raises(UserError, match="not a kernel description"):
        Kernel.from_json("[]")


@pytest.mark.parametrize("isa", ["avx512_vnni", "avx2", "portable"])
def test_descriptions_round_trip(isa: str) -> None:
    for kernel in every_family(isa):
        assert Kernel.from_json(kernel.to_json()) == kernel


def test_a_declaration_of_another_type_is_refused() -> None:
    from iree.compiler import ir

    json = QuantizeRows(isa="portable", m=2, k=3).to_json().replace('"', '\\"')
    text = (
        "func.func private @k(tensor<2x4xf32>) -> (tensor<2x4xi8>, tensor<2xf32>) "
        f'attributes {{jq.kernel = "{json}"}}'
    )
    with ir.Context(), pytest.raises(InternalError, match="kernel is"):
        link(ir.Module.parse(text))
