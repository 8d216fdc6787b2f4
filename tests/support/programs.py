"""Runs one definition over `ArrayOps` on NumPy, the StableHLO interpreter, XLA CPU and IREE.

A definition is a function `f(ops, *arrays)` that returns one array or a sequence of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from jq.formats import NUMPY
from jq.ir import Program, TensorSpec, dtype_of, editing, func, ir, shape_of, tensor_type
from jq.ir.arrays import StableHloOps
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable
from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.iree.handover import handover
from jq.iree.runtime import Executable
from jq.reporting.measuring.glance import numbers_of

Arrays = list[np.ndarray]
QUICK = 100_000  # numbers that the interpreter computes in less time than XLA compiles


@dataclass(frozen=True)
class Case:
    """A definition with its arguments; `constant` ones become weights of the program."""

    f: Callable
    args: Sequence[np.ndarray]
    constant: bool = False

    def expected(self) -> Arrays:
        """The result in NumPy, which is the specification."""
        return [np.asarray(r) for r in _results(self.f(NUMPY, *self.args))]


def _results(value) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def build(*cases: Case) -> Program:
    """One program for all cases: inputs and results one after the other."""
    ordered = [
        (c, i)
        for kind in (False, True)
        for c in cases
        for i in range(len(c.args))
        if c.constant is kind
    ]
    arrays = [np.ascontiguousarray(c.args[i]).reshape(np.shape(c.args[i])) for c, i in ordered]
    with editing():
        module = ir.Module.create()
        types = [tensor_type(a.shape, a.dtype) for a in arrays]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", (types, []))
        block = main.add_entry_block()
        values = {(id(c), i): v for (c, i), v in zip(ordered, block.arguments, strict=True)}
        with ir.InsertionPoint(block):
            results = []
            for case in cases:
                args = [values[id(case), i] for i in range(len(case.args))]
                results += _results(case.f(StableHloOps(), *args))
            func.ReturnOp(results)
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(types, [r.type for r in results])
        )
        inputs = sum(len(c.args) for c in cases if not c.constant)
        specs = [
            TensorSpec(f"arg{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays[:inputs])
        ]
        outputs = [
            TensorSpec(f"out{i}", shape_of(r), dtype_of(r).name) for i, r in enumerate(results)
        ]
        weights = {f"w{i}": a for i, a in enumerate(arrays[inputs:])}
        program = Program(module, weights, tuple(specs), tuple(outputs))
        program.refresh()
        program.verify()
    return program


def run_interpreter(program: Program, inputs: Arrays) -> Arrays:
    return interpret(program, *inputs)


def run_xla(program: Program, inputs: Arrays) -> Arrays:
    return XlaExecutable(program, strict=True)(*inputs)


def run_iree(program: Program, inputs: Arrays) -> Arrays:
    given = handover(program)
    dtypes = [spec.dtype for spec in program.outputs]
    vmfb = compiled_by_iree(given.bytecode)
    return Executable.load(vmfb, given.parameters or None, dtypes=dtypes)(*inputs)


@lru_cache(maxsize=8)  # a test runs its program on several inputs
def compiled_by_iree(bytecode: bytes, flags: Sequence[str] = HOST_FLAGS) -> bytes:
    """The module, compiled as users' programs are: with a dump, which says that it is valid."""
    return compile_module(bytecode, flags=flags).vmfb


RUNNERS = {"interpreter": run_interpreter, "xla": run_xla, "iree": run_iree}


def check(cases: Sequence[Case], runner: str) -> None:
    """Every result of every case has NumPy's bits (any NaN equals any NaN)."""
    program = build(*cases)
    inputs = [np.asarray(a) for c in cases if not c.constant for a in c.args]
    got = RUNNERS[runner](program, inputs)
    expected = [(n, r) for n, c in enumerate(cases) for r in c.expected()]
    assert len(got) == len(expected)
    for value, (case, want) in zip(got, expected, strict=True):
        assert_same_bits(value, want, f"{runner}, case {case}")


def assert_same_bits(got: np.ndarray, want: np.ndarray, what: str = "") -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if want.dtype.kind not in "biu":
        nan = np.isnan(want)
        assert np.array_equal(np.isnan(got), nan), f"{what}: NaN differ"
        zero = np.zeros((), want.dtype)
        got, want = np.where(nan, zero, got), np.where(nan, zero, want)
        bits = f"i{want.dtype.itemsize}"
        got, want = got.view(bits), want.view(bits)
    bad = np.argwhere(got != want)
    assert not len(bad), (
        f"{what}: {len(bad)} differ, first at {bad[0]}: {got[tuple(bad[0])]} {want[tuple(bad[0])]}"
    )


def evaluated(program: Program, *inputs: Any) -> Arrays:
    """The results of a program of any level, by StableHLO's interpreter, or, where that takes long,
    by XLA, which compiles for seconds what has hundreds of ops."""
    if numbers_of(program) <= QUICK:
        return interpret(program, *inputs)
    return XlaExecutable(program)(*inputs)
