"""Turns all that is not plain StableHLO into plain StableHLO.

`erf`, `erfc` and `top_k` stay recognisable, as composites whose decomposition is the
StableHLO form: some fifty ops that a kernel replaces by a few. This is also the form in
which `jax.export` writes `top_k`. Our own markers stay, too. Every other
composite is replaced by its decomposition, so that nothing a user wrapped hides from
quantization.
"""

import math

import numpy as np

from jq.base.errors import FormatError, UserError
from jq.base.from_jax import join, scope
from jq.formats import get_format
from jq.frontends.tracing.custom_calls import alone, left_out, refusal, refuse_op
from jq.frontends.tracing.expressed_types import to_float32
from jq.frontends.tracing.unsigned_types import to_signed
from jq.ir import Op, at, dtype_of, editing, func, ir, run_passes, shape_of, walk
from jq.ir.arrays import StableHloOps
from jq.ir.encodings import FAKE_QUANT, match_fake_quant
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, match

OPS = StableHloOps()
KEPT = ("chlo.erf", "chlo.erfc", "chlo.top_k")
OWN = (DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, FAKE_QUANT)  # what passes take apart

_ANNOTATIONS = ("Sharding", "annotate_device_placement", "LayoutConstraint")


def open_quantized_types(module: ir.Module) -> None:
    """Ops on `!quant.uniform` become float ops between explicit quantize and dequantize.

    In two steps, for StableHLO's own arithmetic on quantized operands truncates and wraps. The
    codes are those that StableHLO defines: the zero point is added before rounding.
    """
    values = (v for op in _all_ops(module) for v in (*op.operation.operands, *op.operation.results))
    if any("!quant.uniform" in str(v.type) for v in values):
        with editing():
            to_signed(module, _all_ops(module))
        run_passes(module, "func.func(stablehlo-legalize-quantized-op-to-qdq,canonicalize)")
        with editing():
            to_float32(_all_ops(module))
        run_passes(module, "func.func(stablehlo-legalize-quant-to-math)")


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
    for op in [op for op in _all_ops(module) if op.operation.name in KEPT]:
        key = str((op.operation.name, [(k, str(a)) for k, a in op.attributes.items()], _types(op)))
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
        for old, new in zip(op.results, composite.results, strict=True):
            old.replace_all_uses_with(new)
        op.operation.erase()


def _scope_composites(module: ir.Module) -> None:
    """A composite's ops are found under its own name, where JAX only says `composite`."""
    for op in _all_ops(module):
        if op.operation.name == "stablehlo.composite":
            parent = scope(op.location).rpartition("/")[0]
            own = ir.StringAttr(op.attributes["name"]).value
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


def _all_ops(module: ir.Module) -> list[ir.OpView]:
    functions = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
    return [op for f in functions for op in walk(f.entry_block)]


def _types(op: Op) -> list[str]:
    return [str(value.type) for value in op.operands]


def _decomposition(module: ir.Module, name: str, op: Op) -> None:
    with editing(), ir.InsertionPoint(module.body):
        kind = ir.FunctionType.get([v.type for v in op.operands], [r.type for r in op.results])
        function = func.FuncOp(name, kind, visibility="private")
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            copy = op.operation.clone()
            for i, arg in enumerate(block.arguments):
                copy.operands[i] = arg
            results = list(copy.results)
            if op.operation.name == "chlo.erf":
                results = [_near_zero(block.arguments[0], results[0])]
            func.ReturnOp(results)


def _near_zero(x: ir.Value, erf: ir.Value) -> ir.Value:
    """2 x / sqrt(pi) next to zero, where the quotient of polynomials is of numbers that vanish."""
    wide = OPS.convert(x, np.float32)

    def full(value: float) -> ir.Value:
        return OPS.broadcast(OPS.constant(np.asarray(value, np.float32)), shape_of(x), [])

    near = OPS.compare(OPS.abs(wide), full(2.0**-13), "LT")
    line = OPS.mul(wide, full(2 / math.sqrt(math.pi)))
    return OPS.select(near, OPS.convert(line, dtype_of(x)), erf)


def drop_annotations(module: ir.Module, block: ir.Block) -> list[str]:
    """Removes what JAX says to devices and compilers, and what is printed while debugging, which
    comes back as notes; a custom call that computes is refused."""
    notes: dict[str, None] = {}  # in order, each once
    _drop_inside(module, block, notes)
    _drop_meshes(module)
    return list(notes)


def _drop_inside(module: ir.Module, block: ir.Block, notes: dict[str, None]) -> None:
    """Block by block, so that what lies in an op that is erased is never looked at."""
    for op in list(block.operations):
        values = alone(module, op)
        if values is None:
            values = _of_annotation(op, notes)
        if values is None:
            for inner in [b for region in op.regions for b in region.blocks]:
                _drop_inside(module, inner, notes)
            continue
        for old, new in zip(op.results, values, strict=True):
            old.replace_all_uses_with(new)
        op.operation.erase()


def _of_annotation(op: Op, notes: dict[str, None]) -> list[ir.Value] | None:
    """Values in the place of an op's results, if it computes nothing; None for others."""
    name = op.operation.name
    refuse_op(name, scope(op.location))
    for key in [k for k in op.attributes if k.startswith(("mhlo.", "sdy.", "jax."))]:
        del op.attributes[key]
    if name == "stablehlo.custom_call":
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        if note := left_out(target, op):
            notes[note] = None
            return []
        if target not in _ANNOTATIONS:
            raise refusal(target, scope(op.location))
    elif name not in ("sdy.sharding_constraint", "stablehlo.optimization_barrier"):
        return None
    return list(op.operands)


def _drop_meshes(module: ir.Module) -> None:
    """Removes meshes of devices, and what arguments and results say about them (a type of JAX that
    says how an array is sharded becomes such an attribute)."""
    for op in list(module.body.operations):
        if op.operation.name == "sdy.mesh":
            op.operation.erase()
            continue
        for key in [k for k in ("arg_attrs", "res_attrs") if k in op.attributes]:
            each = [{named.name: named.attr for named in one} for one in op.attributes[key]]
            plain = [{k: v for k, v in one.items() if not k.startswith("sdy.")} for one in each]
            with editing():
                op.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in plain])
