"""Float attention is computed by one kernel: the scores never leave the processor's caches.

    %s = dot_general %q, %k                      // heads as batch dimensions
    %p = softmax(%s * scale + mask)              // recognised by what it computes
    %y = dot_general %p, %v
    ->
    call @jq_attention(%q, %k, %v, %mask)

Fires on float32 products with one or two batch dimensions, a mask that is the same for every
head, and softmax over the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.errors import InternalError
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.build import NAME, integers, string_attr
from jq.ir.cone import cuts
from jq.ir.constants import evaluate
from jq.kernels import Attention, get_isa
from jq.ops.dot_general import Dims
from jq.passes._kernel import OPS, NoKernel, call_kernel, isa_of, only_user
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class KernelAttention(Pass):
    name = "kernel-attention"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        dots = [op for op in program.walk() if op.operation.name == "stablehlo.dot_general"]
        hashes = [hash(op.operation) for op in dots]
        gone: set[int] = set()  # an attention erases its second product
        for op, key in zip(dots, hashes, strict=True) if isa else ():
            found = None if key in gone else _match(program, op)
            if isa is None or found is None:
                continue
            second = hash(found.second.operation)
            names = [string_attr(o, NAME) or "attention" for o in (op, found.second)]
            try:
                kernel = _lower(program, found, isa, cx.settings.attention_precision)
            except (NoKernel, InternalError) as reason:
                cx.without_kernel.update(dict.fromkeys(names, str(reason)))
                continue
            gone.add(second)
            cx.kernels.update(dict.fromkeys(names, kernel))
            changed = True
        return changed


@dataclass(frozen=True)
class Found:
    """An attention: its two products, and what lies between them.

    Attributes:
        ops: everything that goes, in program order.
        side: which operand of the second product the probabilities are.
        mask: what is added to the scaled scores, of their shape.
    """

    first: Any
    second: Any
    side: int
    scale: float
    mask: ir.Value | None
    ops: tuple[Any, ...]


def _match(program: Program, first: Any) -> Found | None:
    scores = first.operation.results[0]
    if dtype_of(scores) != np.float32 or len(shape_of(scores)) not in (3, 4):
        return None
    ops: list[Any] = []
    scale, value = _scaled(program, scores, ops)
    mask, value = _masked(program, value, ops)
    if mask is None and scale == 1.0:
        scale, value = _scaled(program, value, ops)
    softmax = next((c for c in _softmaxes(program, value)), None)
    if softmax is None:
        return None
    second = only_user(softmax.result)
    if second is None or second.operation.name != "stablehlo.dot_general":
        return None
    side = 0 if second.operation.operands[0] == softmax.result else 1
    return Found(first, second, side, scale, mask, (first, *ops, *softmax.ops, second))


def _scaled(program: Program, value: ir.Value, ops: list[Any]) -> tuple[float, ir.Value]:
    """A multiplication or division by one number behind `value`."""
    op = only_user(value)
    if op is None or op.operation.name not in ("stablehlo.multiply", "stablehlo.divide"):
        return 1.0, value
    operands = list(op.operation.operands)
    if op.operation.name == "stablehlo.divide" and operands[0] != value:
        return 1.0, value
    array = evaluate(program, operands[1] if operands[0] == value else operands[0])
    if array is None or not (array == array.flat[0]).all():
        return 1.0, value
    ops.append(op)
    number = float(array.flat[0])
    scale = number if op.operation.name == "stablehlo.multiply" else 1.0 / number
    return scale, op.operation.results[0]


def _masked(program: Program, value: ir.Value, ops: list[Any]) -> tuple[ir.Value | None, ir.Value]:
    """Something added behind `value`."""
    op = only_user(value)
    if op is None or op.operation.name != "stablehlo.add":
        return None, value
    operands = list(op.operation.operands)
    ops.append(op)
    return (operands[1] if operands[0] == value else operands[0]), op.operation.results[0]


def _softmaxes(program: Program, value: ir.Value) -> Any:
    """Cuts behind `value` that are its softmax over the last axis."""
    shape = shape_of(value)
    x = np.random.default_rng(0).uniform(-30, 30, shape).astype(np.float32)
    y = np.exp((x - x.max(-1, keepdims=True)).astype(np.float64))
    y /= y.sum(-1, keepdims=True)
    for cut in cuts(program, value):
        if shape_of(cut.result) == shape and np.allclose(cut(x), y, rtol=1e-5, atol=1e-7):
            yield cut


def _lower(program: Program, f: Found, isa: str, precision: str) -> str:
    dims, last = Dims.of(f.first), Dims.of(f.second)
    heads = len(dims.batch)
    if heads not in (1, 2) or len(dims.contract) != 1 or len(last.contract) != 1:
        raise NoKernel("no attention kernel for these dimensions")
    rank = heads + 2
    if [pair[f.side] for pair in last.batch] != list(range(heads)):
        raise NoKernel("the heads of the scores are not those of the values")
    if last.contract[0][f.side] != rank - 1:
        raise NoKernel("the softmax is not over the keys")
    q, k = f.first.operation.operands
    v = f.second.operation.operands[1 - f.side]
    with at(f.second):
        parts = [
            _rows(q, [a for a, _ in dims.batch], dims.contract[0][0]),
            _rows(k, [b for _, b in dims.batch], dims.contract[0][1]),
            _rows(v, [p[1 - f.side] for p in last.batch], None, last.contract[0][1 - f.side]),
        ]
        (batch, queries, count, dim), keys = parts[0][1], parts[1][1][1]
        if parts[2][1][3] != dim:
            raise NoKernel("values of another width than keys")
        kind, mask = _mask(f.mask, heads)
        bf16 = precision == "bfloat16" and bool(get_isa(isa).bf16_dot)
        kernel = Attention(
            isa=isa,
            batch=batch,
            queries=queries,
            keys=keys,
            heads=count,
            kv_heads=count,
            dim=dim,
            widths=(count * dim,) * 3,
            starts=(0, 0, 0),
            scale=f.scale,
            mask=kind,
            precision="bf16" if bf16 else "f32",
        )
        operands = [p[0] for p in parts] + mask
        name = string_attr(f.first, NAME) or "attention"
        (result,) = call_kernel(program, kernel, operands, name)
        wide = OPS.reshape(result, (batch, queries, count, dim))
        value = _result(wide, f, heads)
    f.second.operation.results[0].replace_all_uses_with(value)
    for op in reversed(f.ops):
        op.operation.erase()
    return kernel.name


def _rows(
    x: ir.Value, batch: list[int], inner: int | None, rows: int | None = None
) -> tuple[ir.Value, tuple[int, int, int, int]]:
    """`x` as [B, rows, heads, dim], and its sizes; one of `inner` (dim) and `rows` is given."""
    rest = [a for a in range(len(shape_of(x))) if a not in batch and a not in (inner, rows)]
    if len(rest) != 1:
        raise NoKernel("several free dimensions")
    inner = rest[0] if inner is None else inner
    rows = rest[0] if rows is None else rows
    if dtype_of(x) != np.float32:
        raise NoKernel("not float32")
    order = [*batch[:-1], rows, batch[-1], inner]
    moved = OPS.transpose(x, order) if order != sorted(order) else x
    sizes = (1,) * (4 - len(order)) + tuple(shape_of(moved))
    return moved, sizes  # type: ignore[return-value]


def _mask(mask: ir.Value | None, heads: int) -> tuple[str, list[ir.Value]]:
    """The kernel's kind of mask: one number a key, or one a query and key."""
    if mask is None:
        return "none", []
    shape = shape_of(mask)
    varies = _varies(mask)
    if heads - 1 in varies and shape[heads - 1] > 1:
        raise NoKernel("a mask of its own for every head")
    kind = "full" if heads in varies and shape[heads] > 1 else "keys"
    limit = list(shape)
    limit[heads - 1] = 1
    if kind == "keys":
        limit[heads] = 1
    return kind, [OPS.slice(mask, [0] * len(shape), limit)]


def _varies(value: ir.Value) -> set[int]:
    """Axes along which a value is not plainly repeated."""
    shape, owner = shape_of(value), value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.broadcast_in_dim":
        return {a for a, n in enumerate(shape) if n > 1}
    source = owner.operation.operands[0]
    inner, dims = _varies(source), integers(owner, "broadcast_dimensions")
    return {dims[a] for a in inner}


def _result(y: ir.Value, f: Found, heads: int) -> ir.Value:
    """[B, queries, heads, dim] as the second product has it."""
    shape = shape_of(f.second.operation.results[0])
    lead = [0, 2][2 - heads :]  # axes of y: batch, heads
    order = [*lead, 1, 3] if f.side == 0 else [*lead, 3, 1]
    moved = OPS.transpose(y, [*([0] if heads == 1 else []), *order])
    return OPS.reshape(moved, shape)
