"""Artifacts in memory that is watched: no byte is touched that is not theirs.

Compiled with a buffer of ours for each result, and with every constant beside the module:

    func @main(%x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32>     =>
    func @main(%x: tensor<4xf32>, %y: !hal.buffer {iree.abi.output = 0}) -> tensor<4xf32>

`guard_pages` and `valgrind` run it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from iree.compiler import ir

import jq
from jq.ir import Program, TensorSpec
from jq.iree.compiler import compile_module
from jq.iree.handover import handover
from jq.target.target import load_target
from suites.program import Case, calibration, model_of

TARGET = "x86-64-v3"  # Valgrind knows no AVX-512
_OUTPUT = "iree.abi.output"


class StrayAccess(Exception):
    """Memory was touched that is not the program's."""


@dataclass(frozen=True)
class Built:
    """A compiled module, and what it is called with.

    Attributes:
        vmfb: of `@main(inputs...)` or `@main(inputs..., buffers of results...)`.
        parameters: the constants.
        inputs: the arrays to call it with.
        outputs: what it gives.
    """

    vmfb: bytes
    parameters: dict[str, np.ndarray]
    inputs: Sequence[np.ndarray]
    outputs: Sequence[TensorSpec]


def build(program: Program, inputs: Sequence[np.ndarray], *, storage: bool) -> Built:
    """A program of the `target` level, compiled; with `storage` it takes buffers for results."""
    handed = handover(program, inline_limit=0)
    text = with_storage(handed.bytecode) if storage else handed.bytecode
    module = compile_module(text, flags=load_target(TARGET).flags, keep_dump=False)
    return Built(module.vmfb, handed.parameters, inputs, program.outputs)


def with_storage(bytecode: bytes) -> bytes:
    """A module whose `@main` takes a buffer for each result."""
    with ir.Context(), ir.Location.unknown() as location:
        module = ir.Module.parse(bytecode)
        (main,) = (
            op
            for op in module.body.operations
            if op.operation.name == "func.func" and op.name.value == "main"
        )
        kind, taken, results = ir.Type.parse("!hal.buffer"), len(main.arguments), main.type.results
        for _ in results:
            main.entry_block.add_argument(kind, location)
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get([a.type for a in main.entry_block.arguments], results)
        )
        index = ir.IndexType.get()
        marks = [{_OUTPUT: ir.IntegerAttr.get(index, i)} for i in range(len(results))]
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get(mark) for mark in [{}] * taken + marks]
        )
        module.operation.verify()
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def read(spec: TensorSpec, data: np.ndarray) -> np.ndarray:
    """A result of its bytes."""
    return np.array(data).view(spec.dtype).reshape(spec.shape)


def watched(
    cases: Sequence[Case], pipeline: str, call: Callable[[Built], list[np.ndarray]], storage: bool
) -> list[list[np.ndarray]]:
    """The cases' results, of one program that `call` runs."""
    model = model_of(cases)
    source = jq.trace(model)
    levels = jq.rewrite(
        source, pipeline=pipeline, target=TARGET, calibration=calibration(model, pipeline)
    )
    (inputs,) = source.calls([model.example_inputs])
    left = iter(call(build(levels["target"], inputs, storage=storage)))
    shapes = jax.eval_shape(model.fn, model.params, *model.example_inputs)
    return [[next(left) for _ in jax.tree.leaves(shape)] for shape in shapes]
