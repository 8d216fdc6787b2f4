"""The one MLIR context of the process, and module parsing that reports errors kindly."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager as pm
from jaxlib.mlir.dialects import stablehlo

from jq.base.errors import UserError
from jq.base.from_jax import new_context


@cache
def context() -> ir.Context:
    """StableHLO, CHLO, func and `quant` in one context, shared by every module we hold."""
    stablehlo.register_stablehlo_passes()
    ctx = new_context()
    with ctx, ir.Location.unknown():
        # Nothing registers `quant` from Python; this pass loads it as a dependency.
        run_passes(ir.Module.create(), "vhlo-legalize-to-stablehlo")
    # A forked child would wait for threads of its parent.
    os.register_at_fork(after_in_child=lambda: ctx.enable_multithreading(False))
    return ctx


@contextmanager
def editing(loc: ir.Location | None = None) -> Iterator[None]:
    """Makes the context and a location current, for code that creates types or attributes."""
    with context(), loc or ir.Location.unknown():
        yield


@contextmanager
def at(op: ir.OpView | ir.Operation, *, after: bool = False) -> Iterator[None]:
    """Ops created inside are inserted before (or after) `op` and carry its location."""
    point = ir.InsertionPoint.after(op) if after else ir.InsertionPoint(op)
    with context(), op.location, point:
        yield


def parse_module(source: str | bytes, *, what: str = "module") -> ir.Module:
    """Parses MLIR text or bytecode (StableHLO or a portable VHLO artifact)."""
    try:
        with editing():
            return ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        lines = str(error).strip().splitlines() or [""]
        detail = next((line for line in lines if "error:" in line), lines[0])
        detail = re.sub(r'^error: (?:"-":(?:0:0|(\d+:\d+)): )?', r"\1 ", detail).strip()
        raise UserError(f"cannot parse {what}: {detail}") from error


def bytecode_of(module: ir.Module) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def run_passes(module: ir.Module, *passes: str) -> None:
    """Runs MLIR's own passes, given in pipeline syntax, on a module in place."""
    with module.context:
        pm.PassManager.parse(f"builtin.module({','.join(passes)})").run(module.operation)
