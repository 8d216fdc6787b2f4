"""Programs from MLIR text: arguments with `{jq.weight = "name"}` are weights with seeded data."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from jq.frontends.tracing.naming import name_ops
from jq.ir import Program, TensorSpec, dtype_of, ir, parse_module, shape_of
from jq.ir.build import NAME
from jq.ir.program import WEIGHT
from jq.iree.compiler import HOST_FLAGS
from jq.iree.handover import handover
from jq.iree.runtime import Executable
from tests.support.programs import compiled_by_iree

Arrays = Mapping[str, np.ndarray]


def load(text: str, weights: Arrays | None = None) -> Program:
    """The program of a module's text; weights come after the inputs.

    A weight's data is the one given, else random and the same for the same name. Ops that have
    no `jq.name` of their own get the one that tracing would give.
    """
    if "func.func" not in text:
        text = f"func.func @main{text}"
    module = parse_module(text)
    main = Program(module, {}, (), ()).main
    arguments = list(main.entry_block.arguments)
    names = [_weight_name(main, i) for i in range(len(arguments))]
    data = {
        name: (weights or {}).get(name, random(name, arg))
        for name, arg in zip(names, arguments, strict=True)
        if name is not None
    }
    inputs = arguments[: len(arguments) - len(data)]
    assert all(name is None for name in names[: len(inputs)]), "weights come last"
    results = main.entry_block.operations[len(main.entry_block.operations) - 1].operands
    program = Program(module, data, _specs("arg", inputs), _specs("output", list(results)))
    program.refresh()
    keep = [(op, op.operation.attributes[NAME]) for op in program.walk() if _is_named(op)]
    name_ops(program)
    for op, name in keep:
        op.operation.attributes[NAME] = name
    program.verify()
    return program


def _is_named(op) -> bool:
    return NAME in op.operation.attributes


def _weight_name(main, index: int) -> str | None:
    if "arg_attrs" not in main.attributes:
        return None
    attrs = ir.DictAttr(ir.ArrayAttr(main.attributes["arg_attrs"])[index])
    return ir.StringAttr(attrs[WEIGHT]).value if WEIGHT in attrs else None


def random(name: str, value: ir.Value) -> np.ndarray:
    """Standard normal floats, or small integers, that depend on the name alone."""
    rng, dtype = np.random.default_rng(zlib.crc32(name.encode())), dtype_of(value)
    if dtype.kind in "iub":
        return rng.integers(0, 2 if dtype.kind == "b" else 100, shape_of(value)).astype(dtype)
    return rng.standard_normal(shape_of(value)).astype(dtype)


def _specs(prefix: str, values: list[ir.Value]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(f"{prefix}{i}", shape_of(v), dtype_of(v).name) for i, v in enumerate(values)
    )


def inputs_of(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Standard normal inputs; integer ones are small."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.integers(0, 4, s.shape)
            if s.dtype.startswith(("int", "uint"))
            else rng.standard_normal(s.shape)
        ).astype(s.dtype)
        for s in program.inputs
    ]


def run_iree(program: Program, *inputs: np.ndarray, flags=HOST_FLAGS) -> list[np.ndarray]:
    """Compiled for this machine with weights as constants, and run once."""
    return run_module(*built_for_iree(program, flags=flags), *inputs)


def built_for_iree(program: Program, *, flags=HOST_FLAGS) -> tuple[bytes, Arrays, list[str]]:
    """Arguments of `run_module`: the module, its parameters, the types of its results."""
    given = handover(program)
    vmfb = compiled_by_iree(given.bytecode, tuple(flags))
    return vmfb, given.parameters, [spec.dtype for spec in program.outputs]


def run_module(
    vmfb: bytes, parameters: Arrays, dtypes: list[str], *inputs: np.ndarray
) -> list[np.ndarray]:
    return Executable.load(vmfb, parameters or None, dtypes=dtypes)(*inputs)
