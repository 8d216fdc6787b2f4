"""Flags of IREE's compiler: those that a file may bring, and the form of any.

A flag is power: some start programs (`--iree-llvmcpu-embedded-linker-path`, through a shell),
others write files or read them. So a target file has the flags below, which choose code and nothing
else; the person at the command line may give any other with `--iree-flag`. No flag of either kind
has characters that mean something to a shell."""

import re
from collections.abc import Sequence

from jq.base.errors import UserError

_NAMES = """
    codegen-mmt4d-use-intrinsics
    dispatch-creation-data-tiling dispatch-creation-enable-aggressive-fusion
    dispatch-creation-enable-aggressive-reshape-movement dispatch-creation-enable-split-reduction
    dispatch-creation-fuse-multi-use dispatch-creation-opt-level
    dispatch-creation-set-encoding-strategy dispatch-creation-split-matmul-reduction
    flow-inline-constants-max-byte-length flow-zero-fill-empty-tensors
    global-opt-data-tiling global-opt-enable-qdq-to-integer-math
    global-opt-enable-quantized-matmul-reassociation global-opt-enable-sink-transpose-through-pad
    global-opt-propagate-transposes global-opt-propagate-transposes-through-conv
    global-opt-set-encoding-strategy global-opt-use-im2col-for-convs global-optimization-opt-level
    hal-default-device hal-indirect-command-buffers hal-link-executables
    hal-local-target-device-backends hal-memoization hal-target-backends hal-target-device
    input-demote-f32-to-f16 input-demote-f64-to-f32 input-demote-i64-to-i32
    input-promote-bf16-to-f32 input-promote-f16-to-f32 input-type
    llvmcpu-debug-symbols llvmcpu-disable-arm-sme-tiling llvmcpu-disable-distribution
    llvmcpu-disable-vector-peeling llvmcpu-distribution-size llvmcpu-enable-inner-tiled
    llvmcpu-enable-llvm-ukernels llvmcpu-enable-scalable-vectorization llvmcpu-enable-ukernels
    llvmcpu-force-arm-streaming llvmcpu-link-ukernel-bitcode llvmcpu-loop-interleaving
    llvmcpu-loop-unrolling llvmcpu-loop-vectorization llvmcpu-matmul-tile-bytes
    llvmcpu-max-allowed-number-of-native-vectors llvmcpu-mlir-opt-level llvmcpu-number-of-threads
    llvmcpu-reassociate-fp-reductions llvmcpu-skip-intermediate-roundings
    llvmcpu-slp-vectorization llvmcpu-stack-allocation-limit llvmcpu-target-abi llvmcpu-target-cpu
    llvmcpu-target-cpu-features llvmcpu-target-float-abi llvmcpu-target-triple
    llvmcpu-target-vector-width-in-bytes llvmcpu-use-decompose-softmax-fuse
    llvmcpu-use-fast-min-max-ops llvmcpu-vector-pproc-strategy llvmcpu-vscale-range
    opt-aggressively-propagate-transposes opt-const-eval opt-const-expr-hoisting
    opt-const-expr-max-size-increase-threshold opt-data-tiling opt-generalize-matmul opt-level
    opt-numeric-precision-reduction opt-outer-dim-concat opt-strip-assertions
    scheduling-optimize-bindings
    stream-partitioning-favor stream-resource-index-bits stream-resource-max-allocation-size
    stream-resource-min-offset-alignment
    vm-target-extension-f32 vm-target-extension-f64 vm-target-index-bits
    vm-target-optimize-for-stack-size
"""
FROM_FILES = frozenset(f"--iree-{name}" for name in _NAMES.split())

# No spaces, quotes, `;`, `|`, `&`, `$`, backquotes, `<`, `>`, brackets, `*`, `?`, `#`, `~`, `!`.
_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*(=[A-Za-z0-9_./,:+=@%^-]*)?")


def check_file_flags(flags: Sequence[str]) -> None:
    """Refuses, with a `ValueError`, flags that a file may not bring."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise ValueError(f"{flag!r} is no flag: write --name=value in plain characters")
        name, _, value = flag.partition("=")
        if name not in FROM_FILES or "/" in value:
            raise ValueError(
                f"{flag!r} is no flag that a file may bring, for it can start programs or write"
                f" files: give it on the command line, --iree-flag={flag}"
            )


def check_user_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags that a person gave, any of the compiler's, in characters that no shell reads."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            hint = "write --iree-flag=--name=value, in letters, digits and ./,:+=@%^_-"
            raise UserError(f"{flag!r} is no flag of IREE's compiler", hint=hint)
    return tuple(flags)


def combined(first: Sequence[str], then: Sequence[str]) -> tuple[str, ...]:
    """Both, where a flag of the second takes the place of those of its name in the first: the
    compiler takes most flags once."""
    taken = {flag.partition("=")[0] for flag in then}
    return (*(flag for flag in first if flag.partition("=")[0] not in taken), *then)
