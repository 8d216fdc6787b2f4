"""Gives every kernel declaration of a module its body."""

from iree.compiler import ir
from iree.compiler.dialects import func

from jq.base.errors import InternalError
from jq.base.registry import import_all
from jq.kernels.emit import emit, mlir_type
from jq.kernels.kernel import ATTRIBUTE, Kernel


def link(module: ir.Module) -> None:
    """Fills `func.func private @k(...) attributes {jq.kernel = "..."}` declarations in place, in
    IREE's own context. Raises `InternalError` when a declaration's type is not the kernel's."""
    import_all("jq.kernels")  # a body registers itself by being there
    with module.context, module.operation.location:
        for op in list(module.body.operations):
            if isinstance(op.opview, func.FuncOp) and ATTRIBUTE in op.attributes:
                _define(op.opview)


def _define(declaration: func.FuncOp) -> None:
    kernel = Kernel.from_json(ir.StringAttr(declaration.attributes[ATTRIBUTE]).value)
    expected = ir.FunctionType.get(
        [mlir_type(t) for t in kernel.operands], [mlir_type(t) for t in kernel.results]
    )
    if declaration.type != expected:
        what = f"kernel is {expected} but declared {declaration.type}"
        raise InternalError(what, op=declaration.name.value)
    entry = declaration.add_entry_block()
    with ir.InsertionPoint(entry):
        operands = zip(entry.arguments, kernel.operands, strict=True)
        func.ReturnOp(emit(kernel, list(operands)))
    del declaration.attributes[ATTRIBUTE]
