"""Turns all that is not plain StableHLO into plain StableHLO.

`erf`, `erfc` and `top_k` stay recognisable, as composites whose decomposition is the StableHLO
form: some fifty ops that a kernel replaces by a few. `jax.export` writes `top_k` so, too. Our own
markers stay, too. Every other composite is replaced by its decomposition, so that nothing a user
wrapped hides from quantization.

And every `func.call` is replaced by the callee's ops, so that only `@main` is left. JAX makes a
function of each nested `jit`, of loop bodies and of custom derivatives. Their ops carry names
relative to the function; inlining joins them with the call's name."""

import math

import numpy as np

from jq.base.errors import FormatError, UserError
from jq.base.from_jax import join, scope
from jq.formats import get_format
from jq.frontends.tracing.quantized_types import all_ops
from jq.ir import Op, at, dtype_of, editing, func, ir, run_passes, walk
from jq.ir.arrays import OPS
from jq.ir.build import copied, replace, string_attr
from jq.ir.encodings import FAKE_QUANT, match_fake_quant
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, match
from jq.ir.values import functions_of

KEPT = ("chlo.erf", "chlo.erfc", "chlo.top_k")
OWN = (DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, FAKE_QUANT)  # what passes take apart


def legalize(module: ir.Module) -> None:
    """Leaves StableHLO and the `KEPT` composites; run before calls are inlined."""
    _wrap_kept(module)
    _scope_composites(module)
    kept = ",".join(KEPT + OWN)
    run_passes(
        module,
        "func.func(chlo-legalize-to-stablehlo)",
        f"func.func(stablehlo-legalize-composite-to-call{{except={kept}}})",
    )


def _wrap_kept(module: ir.Module) -> None:
    """Moves each kept op into a private function and calls that as a composite."""
    made: dict[str, str] = {}
    for op in [op for op in all_ops(module) if op.operation.name in KEPT]:
        types = [str(value.type) for value in op.operands]
        key = str((op.operation.name, [(k, str(a)) for k, a in op.attributes.items()], *types))
        if key not in made:
            made[key] = f"{op.operation.name}.impl{len(made)}"
            _decomposition(module, made[key], op)
        with at(op):
            composite = ir.Operation.create(
                "stablehlo.composite",
                results=[r.type for r in op.results],
                operands=list(op.operands),
                attributes={
                    "name": ir.StringAttr.get(op.operation.name),
                    "decomposition": ir.FlatSymbolRefAttr.get(made[key]),
                    "composite_attributes": ir.DictAttr.get(dict(op.attributes.items())),
                    "version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
                },
            )
        replace(op, composite.results)


def _scope_composites(module: ir.Module) -> None:
    """A composite's ops are found under its own name, where JAX only says `composite`."""
    for op in all_ops(module):
        if op.operation.name == "stablehlo.composite":
            parent = scope(op.location).rpartition("/")[0]
            own = string_attr(op, "name") or ""
            with editing():
                op.operation.location = join(parent, own)
            if own in OWN:
                _check_own(op, own)


def _check_own(op: Op, kind: str) -> None:
    """Refuses a marker of ours that somebody else wrote: passes rely on what it says."""
    try:
        found = match_fake_quant(op) or match(op)
        assert found is not None
        get_format(found.encoding.format)
    except (KeyError, ValueError, TypeError, FormatError) as error:
        reason = f"composite {kind} does not say what it is: {error}"
        raise UserError(reason, op=scope(op.location) or None) from error


def _decomposition(module: ir.Module, name: str, op: Op) -> None:
    with editing(), ir.InsertionPoint(module.body):
        kind = ir.FunctionType.get([v.type for v in op.operands], [r.type for r in op.results])
        function = func.FuncOp(name, kind, visibility="private")
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            results = list(copied(op, list(block.arguments)).results)
            if op.operation.name == "chlo.erf":
                results = [_near_zero(block.arguments[0], results[0])]
            func.ReturnOp(results)


def _near_zero(x: ir.Value, erf: ir.Value) -> ir.Value:
    """2 x / sqrt(pi) next to zero, where the quotient of polynomials is of numbers that vanish."""
    wide = OPS.convert(x, np.float32)
    near = OPS.compare(OPS.abs(wide), 2.0**-13, "LT")
    line = OPS.mul(wide, 2 / math.sqrt(math.pi))
    return OPS.select(near, OPS.convert(line, dtype_of(x)), erf)


MOST_OPS, MOST_NESTED = 2_000_000, 400  # with all calls opened; of calls in calls


def inline_calls(module: ir.Module) -> None:
    """Inlines in place, also inside loops and branches, and removes unused functions."""
    functions = functions_of(module)
    flat: set[str] = set()

    def flatten(name: str) -> None:
        if name not in flat:
            flat.add(name)
            calls = [op for op in walk(functions[name].entry_block) if isinstance(op, func.CallOp)]
            for call in calls:
                flatten(call.callee.value)
                _splice(call, functions[call.callee.value])

    for name, function in functions.items():
        if len(function.regions[0].blocks) > 1:
            reason = "the module jumps between blocks instead of using stablehlo.while"
            raise UserError(reason, op=name)
    _check_size(functions)
    for name in functions:
        flatten(name)
    with editing():
        for name, function in functions.items():
            visible = "public" if name == "main" else "private"
            function.attributes["sym_visibility"] = ir.StringAttr.get(visible)
    run_passes(module, "symbol-dce")


def _check_size(functions: dict[str, func.FuncOp]) -> None:
    """Refuses calls that multiply: 25 functions that each call the next twice are 33 M ops."""
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
        replace(call, terminator.operands)
        copy.erase()
