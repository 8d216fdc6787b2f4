"""Small programs, compiled and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.ir import Program, TensorSpec, dtype_of, parse_module, shape_of
from jq.iree.compiler import HOST_FLAGS
from jq.iree.handover import INLINE_LIMIT, handover
from jq.iree.runtime import Executable
from tests.support.programs import compiled_by_iree


def make_program(text: str, weights: Mapping[str, np.ndarray] | None = None) -> Program:
    """A program whose trailing arguments are `weights`."""
    program = Program(parse_module(text), dict(weights or {}), (), ())
    values = list(program.body.arguments)
    values = values[: len(values) - len(program.weights)]
    inputs = tuple(
        TensorSpec(f"arg{i}", shape_of(v), dtype_of(v).name) for i, v in enumerate(values)
    )
    results = list(program.body.operations)[-1].operands
    outputs = tuple(
        TensorSpec(f"output{i}", shape_of(v), dtype_of(v).name) for i, v in enumerate(results)
    )
    program = Program(program.module, program.weights, inputs, outputs)
    program.verify()
    return program


def compiled(program: Program, *, inline: bool = True, flags: Any = HOST_FLAGS) -> Executable:
    """Compiled for this machine and loaded."""
    given = handover(program, inline_limit=INLINE_LIMIT if inline else 0)
    vmfb = compiled_by_iree(given.bytecode, tuple(flags))
    dtypes = [spec.dtype for spec in program.outputs]
    return Executable.load(vmfb, given.parameters or None, dtypes=dtypes)


def run(text: str, *inputs: Any, flags: Any = HOST_FLAGS) -> list[np.ndarray]:
    return compiled(make_program(text), flags=flags)(*inputs)
