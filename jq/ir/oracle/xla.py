"""XLA on the CPU: the float reference, the calibration runner, and an oracle for IREE."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.base.errors import InternalError, UserError
from jq.ir import Op, Program, at, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import attributes_of, create
from jq.ir.memory import DISABLED, xla_options
from jq.ir.oracle.loaded import load

# By default XLA may keep bfloat16 intermediates in float32, and loses a NaN on the right of a
# maximum.
_OPTIONS = {"xla_allow_excess_precision": "False", "xla_cpu_enable_fast_min_max": "False"}
# Its simplifier turns a / c into a * (1 / c) and a / (b / c) into (a * c) / b, which rounds
# otherwise. Without it, though, XLA computes wrong sums after the convolutions of some networks.
# LLVM makes one instruction, which rounds once, of a multiply and an add only where it optimizes.
_STRICT = {DISABLED: "algsimp", "xla_backend_optimization_level": "0"}
# XLA 0.10 with fusion emitters crashes on transposes that the simplifier would have taken away;
# without them it refuses negative padding.
_PLAIN = {DISABLED: "fusion", "xla_backend_optimization_level": "0"}
_EMITTERS = ({**_STRICT, "xla_cpu_use_fusion_emitters": "False"}, _STRICT)


class XlaExecutable:
    """A program compiled by XLA, called like `jq.iree.runtime.Executable`.

    Denormals are flushed to zero, and a multiply that feeds an add may be fused (XLA's defaults).

    Args:
        strict: divisions, and a multiply and the add that reads it, are computed as they are
            written, for programs whose bits are compared. Not for whole networks: see `_STRICT`.
        optimized: false for ops one by one, by slow code."""

    def __init__(self, program: Program, *, strict: bool = False, optimized: bool = True) -> None:
        copy = program.clone()
        if any(not len(op.regions[0].blocks) for op in copy.module.body.operations):
            raise InternalError("XLA has no kernels of ours, which the program calls")
        copy.run_passes("func.func(stablehlo-legalize-composite-to-call)")
        if "arg_attrs" in copy.main.attributes:
            del copy.main.attributes["arg_attrs"]  # donation and sharding are not for us
        widen_narrow_products(copy)
        chosen = _EMITTERS if strict else ({} if optimized else _PLAIN,)
        plain = {**_PLAIN, DISABLED: "fusion,algsimp"} if strict else _PLAIN  # after a crash
        options, again = (
            [_OPTIONS | xla_options(copy.module, **o) for o in each] for each in (chosen, (plain,))
        )
        self._loaded = load(copy.bytecode(), options, list(program.weights.values()), again)
        self._inputs = program.inputs
        self._names = {name: i for i, name in enumerate(program.weights)}

    def bind(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Gives weights other values, for the calls that follow."""
        self._loaded.bind({self._names[name]: array for name, array in arrays.items()})

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Results as fresh arrays. Shapes and types must be the program's: `UserError` if not."""
        if len(inputs) != len(self._inputs):
            raise UserError(f"the program takes {len(self._inputs)} inputs, not {len(inputs)}")
        arrays = []
        for value, spec in zip(inputs, self._inputs, strict=True):
            array = np.asarray(value)
            if array.shape != spec.shape or array.dtype.name != spec.dtype:
                raise UserError(
                    f"input is {array.dtype.name}{list(array.shape)}, "
                    f"the program takes {spec.dtype}{list(spec.shape)}",
                    op=spec.name,
                )
            arrays.append(array)
        return self._loaded.run(arrays)


PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
INTEGERS, FLOATS = np.dtype(np.int32), np.dtype(np.float32)


def widen_narrow_products(program: Program) -> None:
    """All operands become int32 or float32 first, in which every product of theirs is exact, and
    what is asked for in fewer bits is made of the sum."""
    for op in list(program.walk()):
        if op.operation.name in PRODUCTS and any(_narrow(v) for v in op.operands):
            _widen(op)


def _narrow(value: ir.Value) -> bool:
    name = str(ir.RankedTensorType(value.type).element_type)
    return name.startswith(("i4", "ui4", "i2", "ui2", "f4", "f6"))


def _widen(op: Op) -> None:
    result, own = op.results[0], dtype_of(op.results[0])
    whole = isinstance(ir.RankedTensorType(result.type).element_type, ir.IntegerType)
    wide = own if own.itemsize >= INTEGERS.itemsize else INTEGERS if whole else FLOATS  # of the sum
    with at(op):
        operands = [stablehlo.convert(tensor_type(shape_of(v), wide), v) for v in op.operands]
        kept = {k: v for k, v in attributes_of(op).items() if k != "algorithm"}
        kind = tensor_type(shape_of(result), wide)
        made = create(op.operation.name, kind, *operands, **kept)
        result.replace_all_uses_with(stablehlo.convert(result.type, made))
    op.operation.erase()
