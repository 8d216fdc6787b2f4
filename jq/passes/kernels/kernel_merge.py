"""Products of the same codes become one: q, k and v of an attention, or gate and up of an MLP.

    %q = call @jq_gemm_128x384x384(%x, %wq, ...)        %y = call @jq_gemm_128x384x1152(%x, %w, ...)
    %k = call @jq_gemm_128x384x384(%x, %wk, ...)   ->   %q = slice %y [0:128, 0:384]
    %v = call @jq_gemm_128x384x384(%x, %wv, ...)        ...

Any number of products, of any widths, with the same steps after them; what is one number for a
whole result (its scale, its zero point) becomes one a column. What is found at run time by column
has to be there at the first of them. An attention reads its columns of the whole. Not where a part
would have to be copied: for another kernel, or as a result of the program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.base.deep import Steps, deep
from jq.ir import OPS, Op, Program, at, evaluate, ir, maker, shape_of
from jq.ir.build import NAME, attributes_of, string_attr
from jq.ir.decisions import decide
from jq.kernels import Attention, Gemm, IntegerAttention, Quantize, Streams
from jq.kernels.epilogue.step import COLUMN, ELEMENT, ROW, SCALAR
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_instead, call_kernel, described, renamed

_VIEWS = ("reshape", "broadcast_in_dim", "transpose", "xor", "constant")


class KernelMerge(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        groups: dict[Any, list[_GemmCall]] = {}
        for op in program.walk():
            product = _GemmCall.of(program, op)
            if product is not None:
                groups.setdefault(product.key, []).append(product)
        found = [group for group in groups.values() if len(group) > 1 and _bring(group)]
        for group in found:
            _merge(program, group)
        return renamed(program, found)


@dataclass(frozen=True)
class _Operand:
    """An operand of a product: the way it is indexed, its value, and the array if that is known."""

    how: str
    value: ir.Value
    array: np.ndarray | None


@dataclass(frozen=True)
class _GemmCall:
    """A call of a `Gemm` whose columns can stand beside others."""

    op: Op
    kernel: Gemm
    operands: tuple[_Operand, ...]

    @staticmethod
    def of(program: Program, op: Op) -> "_GemmCall | None":
        kernel = described(program, op)
        if type(kernel) is not Gemm or kernel.batch > 1:
            return None
        how = kernel.accesses
        if kernel.n < kernel.target.lanes or ELEMENT in how:
            return None
        operands = tuple(
            _Operand(kind, value, None if kind in ("codes", ROW) else evaluate(program, value))
            for kind, value in zip(how, op.operation.operands, strict=True)
        )
        known = ("codes", ROW, COLUMN)  # by row they are shared, by column put beside each other
        if any(o.array is None for o in operands if o.how not in known):
            return None
        if not _stays(program, op.operation.results[0], kernel.n):
            return None
        return _GemmCall(op, kernel, operands)

    @property
    def key(self) -> Any:
        """Equal for products that can be one."""
        shared = [_identity(o.value) for o in self.operands if o.how in ("codes", ROW)]
        steps, numbers = self.kernel.epilogue, []
        behind = list(self.operands[len(self.operands) - sum(len(s.operands) for s in steps) :])
        for step in steps:
            for operand in [behind.pop(0) for _ in step.operands]:
                if operand.how == SCALAR and not isinstance(step, Quantize):
                    assert operand.array is not None
                    numbers.append(operand.array.tobytes())
        alike = replace(self.kernel, n=self.kernel.target.lanes, cut=None)
        return hash(self.op.operation.block), alike, tuple(shared), tuple(numbers)

    @property
    def name(self) -> str:
        return string_attr(self.op, NAME) or ""


def _identity(value: ir.Value, depth: int = 16) -> Any:
    """Equal for values that are equal: the same one, or moved alike."""
    owner = maker(value)
    if owner is None or not depth or owner.operation.name.partition(".")[2] not in _VIEWS:
        return value
    attributes = {key: str(a) for key, a in attributes_of(owner).items() if key[:3] != "jq."}
    sources = tuple(_identity(v, depth - 1) for v in owner.operation.operands)
    return owner.operation.name, str(value.type), tuple(sorted(attributes.items())), sources


@deep
def _stays(program: Program, result: ir.Value, n: int) -> Steps[bool]:
    """True if every reader takes `n` columns of a wider result without a copy."""
    for use in result.uses:
        op = use.owner.operation
        if op.name == "stablehlo.reshape":
            if not (yield program, op.results[0], n):
                return False
        elif op.name == "func.call":
            if _attention(program, use, n) is None:
                return False
        elif op.name.endswith("return"):
            return False
    return True


def _attention(program: Program, use: Any, n: int) -> Attention | IntegerAttention | None:
    """The attention that reads all `n` columns as its q, k or v."""
    kernel = described(program, use.owner)
    if not isinstance(kernel, Attention | IntegerAttention) or use.operand_number > 2:
        return None
    return kernel if kernel.widths[use.operand_number] == n else None


def _merge(program: Program, group: Sequence[_GemmCall]) -> None:
    first, names = group[0], [product.name for product in group]
    with at(first.op):
        kernel, operands = _merged(program, group)
        (whole,) = call_kernel(program, kernel, operands, first.name)
        start = 0
        for product in group:
            end = start + product.kernel.n
            part = OPS.slice(whole, [0, start], [kernel.m, end])
            product.op.operation.results[0].replace_all_uses_with(part)
            _read_columns(program, part, whole, start)
            start = end
    for product in group:
        product.op.operation.erase()
    others = {name: [other for other in names if other != name] for name in names}
    decide(program, {n: {"kernel": kernel.name, "merged": others[n]} for n in names})


def _merged(program: Program, group: Sequence[_GemmCall]) -> tuple[Gemm, list[ir.Value]]:
    """The kernel of all columns, and its operands."""
    first, sizes = group[0], [product.kernel.n for product in group]
    rows = list(zip(*(product.operands for product in group), strict=True))
    arrays = [[o.array for o in row if o.array is not None] for row in rows]
    different = [len({a.tobytes() for a in known}) > 1 for known in arrays]
    steps, position = [], len(rows) - sum(len(s.operands) for s in first.kernel.epilogue)
    wide: set[int] = set()  # operands that were one number
    for step in first.kernel.epilogue:
        own = range(position, position + len(step.operands))
        if isinstance(step, Quantize) and any(different[i] for i in own):
            step, wide = replace(step, per_column=True), wide | set(own)
        steps.append(step)
        position = own.stop
    streams = max(product.kernel.streams for product in group)
    cut = Streams(streams) if streams > 1 else None
    kernel = replace(first.kernel, n=sum(sizes), epilogue=tuple(steps), cut=cut)
    operands = []
    for i, (row, known) in enumerate(zip(rows, arrays, strict=True)):
        if row[0].how == "weights":
            pairs = zip(group, known, strict=True)
            weight = np.concatenate([p.kernel.unpack(a) for p, a in pairs], axis=1)
            array = kernel.pack(weight)["weights"]
        elif row[0].how == COLUMN and len(known) < len(row):
            operands.append(_beside(kernel, [o.value for o in row], sizes))
            continue
        elif row[0].how == COLUMN:
            pieces = [a.reshape(-1)[:n] for a, n in zip(known, sizes, strict=True)]
            array = kernel.pad_columns(np.concatenate(pieces))
        elif i in wide:
            pieces = [np.repeat(a.reshape(-1), n) for a, n in zip(known, sizes, strict=True)]
            array = kernel.pad_columns(np.concatenate(pieces))
        else:
            operands.append(row[0].value)
            continue
        name = program.weight_name(row[0].value) or f"{first.name}:columns"
        operands.append(program.add_weight(name, array))
    return kernel, operands


def _beside(kernel: Gemm, values: Sequence[ir.Value], sizes: Sequence[int]) -> ir.Value:
    """Numbers by column that are found at run time, one after the other, padded."""
    parts = [OPS.slice(v, [0], [n]) for v, n in zip(values, sizes, strict=True)]
    width = len(kernel.pad_columns(np.zeros(kernel.n, np.float32)))
    return OPS.pad(OPS.concatenate(parts, 0), 0, [0], [width - kernel.n])


def _bring(group: Sequence[_GemmCall]) -> bool:
    """True if all that is found at run time by column can be there at the first product; what
    makes it is moved in front of it. Not what reads a product of the group, and no loop or branch,
    whose insides may."""
    values = [o.value for p in group for o in p.operands if o.how == COLUMN and o.array is None]
    if not values:
        return True
    first, members = group[0].op.operation, {p.op.operation for p in group}
    ops = [op.operation for op in first.block.operations]
    late, wanted = set(ops[ops.index(first) :]), set[Any]()
    while values:
        op = maker(values.pop())
        if op is None or op.operation not in late or op.operation in wanted:
            continue
        if op.operation in members or len(op.operation.regions):
            return False
        wanted.add(op.operation)
        values += op.operation.operands
    for operation in ops:
        if operation in wanted:
            operation.move_before(first)
    return True


def _read_columns(program: Program, part: ir.Value, whole: ir.Value, start: int) -> None:
    """Attentions that read `part`, the columns of `whole` from `start`, read them there."""
    n = shape_of(part)[1]
    while (use := _reading(program, part, n)) is not None:
        op, i = use.owner, use.operand_number
        kernel = _attention(program, use, n)
        assert kernel is not None
        widths, starts = list(kernel.widths), list(kernel.starts)
        widths[i], starts[i] = shape_of(whole)[1], starts[i] + start
        kernel = replace(kernel, widths=tuple(widths), starts=tuple(starts))
        operands = list(op.operation.operands)
        operands[i] = whole
        call_instead(program, kernel, op, operands)


@deep
def _reading(program: Program, value: ir.Value, n: int) -> Steps[Any]:
    """An attention's use of a value, perhaps reshaped."""
    for use in value.uses:
        op = use.owner.operation
        if op.name == "func.call" and _attention(program, use, n):
            return use
        if op.name == "stablehlo.reshape" and (found := (yield program, op.results[0], n)):
            return found
    return None
