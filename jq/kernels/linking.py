"""Gives every kernel declaration of a module its body."""

import importlib
import pkgutil
from functools import cache

from iree.compiler import ir
from iree.compiler.dialects import func

import jq.kernels
from jq.base.errors import InternalError
from jq.kernels.emit.dispatch import emit
from jq.kernels.emit.values import mlir_type
from jq.kernels.kernel import ATTRIBUTE, Kernel


def link(module: ir.Module) -> None:
    """Fills `func.func private @k(...) attributes {jq.kernel = "..."}` declarations in place, in
    IREE's own context. Raises `InternalError` when a declaration's type is not the kernel's."""
    register_bodies()
    with module.context, module.operation.location:
        for op in list(module.body.operations):
            if isinstance(op.opview, func.FuncOp) and ATTRIBUTE in op.attributes:
                _define(op.opview)


@cache
def register_bodies() -> None:
    """Imports every module under `jq.kernels`: a body registers itself by being there."""
    for found in pkgutil.walk_packages(jq.kernels.__path__, "jq.kernels."):
        importlib.import_module(found.name)


def _define(declaration: func.FuncOp) -> None:
    kernel = Kernel.from_json(ir.StringAttr(declaration.attributes[ATTRIBUTE]).value)
    expected = ir.FunctionType.get(
        [mlir_type(t) for t in kernel.operands], [mlir_type(t) for t in kernel.results]
    )
    if declaration.type != expected:
        raise InternalError(
            f"kernel is {expected} but declared {declaration.type}", op=declaration.name.value
        )
    entry = declaration.add_entry_block()
    with ir.InsertionPoint(entry):
        operands = zip(entry.arguments, kernel.operands, strict=True)
        func.ReturnOp(emit(kernel, list(operands)))
    del declaration.attributes[ATTRIBUTE]
