"""A failing program made smaller, op by op, for as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from jq.ir import Program, TensorSpec, at, dtype_of, editing, ir, shape_of, stablehlo
from suites.differential.modules import Module

Fails = Callable[[Module], bool]
ENDS = {"func.return", "stablehlo.return"}


def shrunk(module: Module, fails: Fails, most: int = 200) -> Module:
    """The smallest that was found with `most` tries; `fails` is true of `module`."""
    changed = True
    while changed and most > 0:
        changed = False
        for candidate in smaller(module):
            most -= 1
            if _is(fails, candidate):
                module, changed = candidate, True
                break
            if most <= 0:
                break
    return module


def _is(fails: Fails, module: Module) -> bool:
    try:
        module.program.verify()
        return fails(module)
    except Exception:
        return False


def smaller(module: Module) -> Iterator[Module]:
    """Modules with fewer ops, those that lose most of them first."""
    program = module.program
    returned = len(program.returned)
    for i in range(returned if returned > 1 else 0):
        yield _with(module, lambda p, i=i: p.return_values([p.returned[i]]))
    ops = sum(1 for _ in program.body.operations)
    for i in reversed(range(ops)):
        op = list(program.body.operations)[i]
        if op.operation.name in ENDS or not len(op.results):
            continue
        for way in (_operand, _input, _zeros):
            if (found := _with(module, lambda p, i=i, way=way: way(p, i))) is not None:
                yield found
    for i in range(ops):  # the result is what is in the middle
        op = list(program.body.operations)[i]
        inside = op.operation.name not in {*ENDS, "stablehlo.constant"} and len(op.results) == 1
        if inside and op.results[0] not in program.returned:
            yield _with(module, lambda p, i=i: p.return_values([_op(p, i).results[0]]))


def _op(program: Program, i: int) -> ir.OpView:
    return list(program.body.operations)[i]


def _with(module: Module, edit: Callable[[Program], object]) -> Module | None:
    """A copy that `edit` has changed, without what nobody reads; None where it could not."""
    copy = module.program.clone()
    inputs = [list(arrays) for arrays in module.inputs]
    if (added := edit(copy)) is False:
        return None
    if isinstance(added, ir.Type):
        inputs = [[*arrays, _numbers(added, i)] for i, arrays in enumerate(inputs)]
    if any(dtype_of(v).kind == "c" for v in copy.returned):
        return None  # the interpreter ends the process on complex results
    copy.drop_dead()
    unread = [i for i, a in enumerate(copy.body.arguments) if i < len(copy.inputs) and _unread(a)]
    for i in reversed(unread):
        copy.body.erase_argument(i)
    kept = [i for i in range(len(copy.inputs)) if i not in unread]
    copy = replace(
        copy,
        inputs=tuple(copy.inputs[i] for i in kept),
        outputs=tuple(_spec(f"result{i}", v) for i, v in enumerate(copy.returned)),
    )
    copy.refresh()
    return Module(copy, [[a[i] for i in kept] for a in inputs], (len(copy.outputs),))


def _unread(value: ir.Value) -> bool:
    return not any(True for _ in value.uses)


def _spec(name: str, value: ir.Value) -> TensorSpec:
    return TensorSpec(name, shape_of(value), dtype_of(value).name)


def _numbers(kind: ir.Type, seed: int) -> np.ndarray:
    with editing():
        value = ir.RankedTensorType(kind)
    rng = np.random.default_rng(seed)
    from jq.ir import to_dtype

    dtype = to_dtype(value.element_type)
    low, high = (0, 2) if dtype.kind == "b" else (0, 9) if dtype.kind == "u" else (-8, 9)
    return rng.integers(low, high, value.shape).astype(dtype)


def _operand(program: Program, i: int) -> object:
    """The op's place is taken by one of its operands."""
    op = _op(program, i)
    if len(op.results) != 1:
        return False
    for value in op.operands:
        if value.type == op.results[0].type:
            op.results[0].replace_all_uses_with(value)
            return None
    return False


def _input(program: Program, i: int) -> object:
    """The op's place is taken by a new input, after the others and in front of the weights."""
    op, block, n = _op(program, i), program.body, len(program.inputs)
    if len(op.results) != 1 or op.operation.name == "stablehlo.constant":
        return False
    kind, weights = op.results[0].type, list(block.arguments)[n:]
    with editing():
        new = block.add_argument(kind, ir.Location.unknown())
        program.inputs = (*program.inputs, _spec(f"in{n}", new))
        op.results[0].replace_all_uses_with(new)
        for name, old in zip(program.weights, weights, strict=True):
            old.replace_all_uses_with(block.add_argument(old.type, ir.Location.name(name)))
    for at_ in reversed(range(n, n + len(weights))):
        block.erase_argument(at_)
    return kind


def _zeros(program: Program, i: int) -> object:
    op = _op(program, i)
    if len(op.results) != 1 or op.operation.name in ("stablehlo.constant", "stablehlo.iota"):
        return False
    value = op.results[0]
    array = np.zeros(shape_of(value), dtype_of(value))
    with at(op):
        value.replace_all_uses_with(
            stablehlo.constant(ir.DenseElementsAttr.get(array, type=value.type))
        )
    return None
