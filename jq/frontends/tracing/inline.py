"""Every `func.call` is replaced by the callee's ops, so that only `@main` is left.

JAX makes a function of each nested `jit`, of loop bodies and of custom derivatives. Their
ops carry names relative to the function; inlining joins them with the call's name.
"""

from jq.base.errors import UserError
from jq.base.from_jax import join, scope
from jq.ir import editing, func, ir, run_passes, walk

MOST_OPS, MOST_NESTED = 2_000_000, 400  # with all calls opened; of calls in calls


def inline_calls(module: ir.Module) -> None:
    """Inlines in place, also inside loops and branches, and removes unused functions."""
    functions = {op.name.value: op for op in module.body.operations if isinstance(op, func.FuncOp)}
    flat: set[str] = set()

    def flatten(name: str, callers: tuple[str, ...]) -> None:
        if name in callers:
            raise UserError("the module calls itself recursively", op=name)
        if name in flat:
            return
        calls = [op for op in walk(functions[name].entry_block) if isinstance(op, func.CallOp)]
        for call in calls:
            callee = call.callee.value
            flatten(callee, (*callers, name))
            _splice(call, functions[callee])
        flat.add(name)

    for name, function in functions.items():
        if len(function.regions[0].blocks) > 1:
            raise UserError(
                "the module jumps between blocks instead of using stablehlo.while", op=name
            )
    _check_size(functions)
    for name in functions:
        flatten(name, ())
    with editing():
        for name, function in functions.items():
            function.attributes["sym_visibility"] = ir.StringAttr.get(
                "public" if name == "main" else "private"
            )
    run_passes(module, "symbol-dce")


def _check_size(functions: dict[str, func.FuncOp]) -> None:
    """Refuses a module whose calls multiply: 25 functions that each call the next twice are
    33 million ops."""
    sizes: dict[str, int] = {}

    def size(name: str, callers: tuple[str, ...]) -> int:
        if name in callers:
            raise UserError("the module calls itself recursively", op=name)
        if len(callers) > MOST_NESTED:
            raise UserError(f"functions call each other more than {MOST_NESTED} deep", op=name)
        if name not in sizes:
            ops = list(walk(functions[name].entry_block))
            called = [op.callee.value for op in ops if isinstance(op, func.CallOp)]
            for callee in called:
                if callee not in functions:
                    raise UserError(f"there is no function {callee!r} to call", op=name)
            sizes[name] = len(ops) + sum(size(callee, (*callers, name)) for callee in called)
        return sizes[name]

    for name in functions:
        if (total := size(name, ())) > MOST_OPS:
            raise UserError(f"with its calls opened a function has {total} ops", op=name)


def _splice(call: func.CallOp, callee: func.FuncOp) -> None:
    """Puts a copy of the callee's ops in front of `call` and removes the call."""
    prefix = scope(call.location)
    with editing():
        copy = callee.operation.clone(ip=ir.InsertionPoint(callee.operation))
        block = copy.regions[0].blocks[0]
        for arg, operand in zip(block.arguments, call.operands, strict=True):
            arg.replace_all_uses_with(operand)
        for op in walk(block):
            op.location = join(prefix, scope(op.location))
        *body, terminator = block.operations
        for op in body:
            op.move_before(call)
        for result, value in zip(call.results, terminator.operands, strict=True):
            result.replace_all_uses_with(value)
        call.erase()
        copy.erase()
