"""Gives every kernel declaration of a module its body."""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import func

from jq.errors import InternalError
from jq.kernels.kernel import ATTRIBUTE, Kernel


def link(module: ir.Module) -> None:
    """Fills `func.func private @k(...) attributes {jq.kernel = "..."}` declarations in place.

    `module` lives in IREE's own context. Raises `InternalError` when a declaration's type is not
    the kernel's.
    """
    with module.context, ir.Location.unknown():
        for op in list(module.body.operations):
            if isinstance(op.opview, func.FuncOp) and ATTRIBUTE in op.attributes:
                _define(op.opview)


def _define(declaration: func.FuncOp) -> None:
    kernel = Kernel.from_json(ir.StringAttr(declaration.attributes[ATTRIBUTE]).value)
    expected = ir.FunctionType.get(
        [t.mlir() for t in kernel.operands], [t.mlir() for t in kernel.results]
    )
    if declaration.type != expected:
        raise InternalError(
            f"kernel is {expected} but declared {declaration.type}",
            op=declaration.name.value,
        )
    entry = declaration.add_entry_block()
    with ir.InsertionPoint(entry):
        func.ReturnOp(kernel.emit(list(entry.arguments)))
    del declaration.attributes[ATTRIBUTE]
