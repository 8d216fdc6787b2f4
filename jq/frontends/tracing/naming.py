"""Names of ops: the path of the weight they read, else the scope they were traced in.

- `jq.name`: unique in the program; plans, rules and reports use it.
- `jq.scope`: the scope alone (`encoder/layer0/attention/dot_general`), an alias for rules."""

from collections import Counter

from jq.base.from_jax import clean_scope, scope
from jq.ir import CONTROL, Op, Program, editing, ir, maker, walk
from jq.ir.build import NAME, SCOPE
from jq.ir.encodings import match_fake_quant
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import known_ops

# Ops whose first operand is the same tensor in another shape, order, type or part.
_VIEWS = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("convert", "transpose", "reshape", "broadcast_in_dim"),
        *("slice", "dynamic_slice", "reverse", "optimization_barrier"),
    )
)
_UNNAMED = ("stablehlo.constant", "stablehlo.return", "func.return")


def name_ops(program: Program) -> None:
    """Sets both attributes on every op of `@main` but constants.

    Of the locations names stay, and nothing else: who called us from which file is no part of a
    model, and would make every caller's program another."""
    ops = [op for op in _named_level(program.body) if op.operation.name not in _UNNAMED]
    # Contractions come first, mere views last, so that `attn/add` is the addition and
    # `attn/add#2` the broadcast of its operand. The sort is stable: program order within.
    ops.sort(key=lambda op: (_contraction(op) is None, op.operation.name in _VIEWS))
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    with editing():
        for op in walk(program.body):
            found = scope(op.location)
            op.location = ir.Location.name(found) if found else ir.Location.unknown()
        for op in ops:
            where = clean_scope(scope(op.location)) or op.operation.name.partition(".")[2]
            base = weight_of(program, op) or where
            name = base
            while name in taken or not seen[base]:
                seen[base] += 1
                name = base if seen[base] == 1 else f"{base}#{seen[base]}"
            taken.add(name)
            op.attributes[NAME] = ir.StringAttr.get(name)
            op.attributes[SCOPE] = ir.StringAttr.get(where)
            op.location = ir.Location.name(name)


def weight_of(program: Program, op: Op) -> str | None:
    """Name of the weight that a contraction reads, on the right if on both sides."""
    rule = _contraction(op)
    operands = [op.operands[r.index] for r in reversed(rule.roles(op))] if rule else []
    return next(filter(None, (_origin(program, value) for value in operands)), None)


def _contraction(op: Op) -> Contraction | None:
    rule = known_ops().get(op.operation.name.removeprefix("stablehlo."))
    return rule if isinstance(rule, Contraction) else None


def _origin(program: Program, value: ir.Value) -> str | None:
    while maker(value) is not None:
        if stored := match(value, DEQUANTIZE):
            return stored.tensor
        if value.owner.operation.name not in _VIEWS and not match_fake_quant(value.owner):
            return None
        value = value.owner.operands[0]
    return program.weight_name(value)


def _named_level(block: ir.Block) -> list[ir.OpView]:
    """Ops of a block and of loops and branches in it, not of a reduction's body."""
    ops = []
    for op in block.operations:
        ops.append(op)
        if op.operation.name in CONTROL:
            for region in op.regions:
                ops += [inner for b in region.blocks for inner in _named_level(b)]
    return ops
