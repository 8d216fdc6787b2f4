"""A KV cache is stored as int8 codes with one scale for each token and head.

    @main(%cache: f32[.., d]) { dynamic_update_slice %cache, %new, ...; return %updated }
    ->
    @main(%cache:codes: i8[.., d], %cache:scale: f32[.., 1]) { two updates; return both }

A cache is an input that flows through cuts, reshapes and loops into a dynamic_update_slice and from
there to an output. What comes in is quantized once, with the range of its last axis; what is there
is moved as codes, never quantized again. Whoever computes with it reads a dequantize."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.tree import WithParts
from jq.formats import Encoding
from jq.ir import Op, Program, TensorSpec, at, context, dtype_of, editing, ir, shape_of, tensor_type
from jq.ir.build import i64_array, like
from jq.ir.hoist import end_with, rebuilt
from jq.ir.markers import dequantize, quantize_dynamic
from jq.ir.values import last_of, maker
from jq.passes.base import Pass, PassContext
from jq.target.settings import FLOAT

UPDATE, LOOP = "stablehlo.dynamic_update_slice", "stablehlo.while"
MOVES = ("stablehlo.dynamic_slice", "stablehlo.reshape", "stablehlo.broadcast_in_dim", UPDATE)
PARTS = ("codes", "scale")


def cache_web(program: Program, index: int) -> set[Any] | None:
    """All values that hold the content of an input, when it is a cache."""
    start = program.body.arguments[index]
    if len(shape_of(start)) < 2 or dtype_of(start).kind not in "fV":
        return None
    web: set[Any] = set()
    pending, updated, returned = [start], False, False
    while pending:
        value = pending.pop()
        if value in web:
            continue
        web.add(value)
        for use in value.uses:
            op, name = use.owner, use.owner.operation.name
            returned |= name == "func.return"
            if name in MOVES and _keeps_rows(op, use.operand_number):
                updated |= name == UPDATE and use.operand_number == 0
                pending.append(op.results[0])
                if name == UPDATE:
                    pending += _carry_of(op.operands[0])
            elif name == LOOP:
                pending += _carry(op, use.operand_number)
            elif name == "stablehlo.return" and (loop := _loop_of(op)) is not None:
                pending += _carry(loop, use.operand_number)
    return web if updated and returned else None


def _keeps_rows(op: Op, operand: int) -> bool:
    """True if the op moves whole rows (indices of the last axis) of this operand."""
    op = op.operation
    before, after = shape_of(op.operands[operand]), shape_of(op.results[0])
    if operand > 1 or (operand == 1 and op.name != UPDATE) or before[-1:] != after[-1:]:
        return False
    if op.name == "stablehlo.broadcast_in_dim":
        dims = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        ordered = dims == sorted(dims) and dims[-1] == len(after) - 1
        return ordered and np.prod(before) == np.prod(after)
    return True


def _loop_of(op: Op) -> Any | None:
    """The loop whose body an op ends."""
    owner = op.operation.block.owner
    body = owner.operation.name == LOOP and owner.regions[1].blocks[0] == op.operation.block
    return owner if body else None


def _carry(loop: Op, index: int) -> list[Any]:
    """The values of one carry of a loop: its arguments and its result."""
    return [*(r.blocks[0].arguments[index] for r in loop.regions), loop.results[index]]


def _carry_of(value: ir.Value) -> list[Any]:
    """The carry that a value is the argument of."""
    if maker(value) is not None or value.owner.owner.operation.name != LOOP:
        return []
    return _carry(value.owner.owner, ir.BlockArgument(value).arg_number)


class QuantizeCache(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        wanted = cx.settings.kv_cache.format
        if wanted == FLOAT:
            return False
        if wanted != "int8":
            raise UserError(f"a KV cache cannot be {wanted}", hint="kv_cache.format=int8")
        webs = {i: web for i in range(len(program.inputs)) if (web := cache_web(program, i))}
        if not webs:
            what = "kv_cache.format is set, but no input is updated in place and returned"
            raise UserError(what, hint="leave kv_cache.format=float for this model")
        _Rewrite(program, set().union(*webs.values())).run(sorted(webs))
        program.drop_dead()
        return True


@dataclass
class _Rewrite:
    """Gives every value of the web its parts; the float values are left to those who compute."""

    program: Program
    web: set[Any]
    parts: dict[Any, dict[str, ir.Value]] = field(default_factory=dict)

    def run(self, inputs: list[int]) -> None:
        self._inputs(inputs)
        self._block(self.program.body)
        old = self.program.returned
        held = [i for i, value in enumerate(old) if value in self.parts]
        values = [v for value in old for v in self.parts.get(value, {"": value}).values()]
        program = self.program
        program.return_values(values)
        program.outputs = tuple(_specs(program.outputs, held))
        program.out_tree = WithParts(program.out_tree, len(old), tuple(held), PARTS)

    def _inputs(self, indices: list[int]) -> None:
        """New arguments in the old order, for arguments can only be appended."""
        program, body = self.program, self.program.body
        old = list(body.arguments)
        for i, arg in enumerate(old):
            with editing():
                codes = tensor_type(shape_of(arg), np.int8)
                scale = tensor_type((*shape_of(arg)[:-1], 1), np.float32)
                types = [codes, scale] if i in indices else [arg.type]
                new = [body.add_argument(t, arg.location) for t in types]
            if i in indices:
                self._holds(arg, dict(zip(PARTS, new, strict=True)), at(body.operations[0]))
            else:
                arg.replace_all_uses_with(new[0])
        for i in reversed(range(len(old))):
            body.erase_argument(i)
        program.in_tree = WithParts(program.in_tree, len(program.inputs), tuple(indices), PARTS)
        program.inputs = tuple(_specs(program.inputs, indices))
        program.refresh()

    def _holds(self, value: ir.Value, parts: dict[str, ir.Value], place: Any) -> None:
        """`value` is `parts` from `place` on (see `at`); who reads it reads a dequantize."""
        with place:
            read = dequantize(self.program, _encoding(value), parts, dtype_of(value))
        value.replace_all_uses_with(read)
        self.web.discard(value)
        self.parts[read] = parts

    def _parts_of(self, value: ir.Value) -> dict[str, ir.Value]:
        """Parts of a value at the current insertion point, quantized when it is a float one."""
        return self.parts.get(value) or quantize_dynamic(self.program, value, _encoding(value))

    def _block(self, block: ir.Block) -> None:
        ops = list(block.operations)
        for op, following in zip(ops, [*ops[1:], None], strict=True):
            results = [r for r in op.results if r in self.web]
            if op.operation.name == LOOP:
                self._loop(op, [r.result_number for r in map(ir.OpResult, results)])
            elif results:
                with at(op):
                    parts = dict(zip(PARTS, self._moved(op), strict=True))
                self._holds(results[0], parts, at(following))

    def _moved(self, op: Op) -> Iterator[ir.Value]:
        tensors = 2 if op.operation.name == UPDATE else 1
        given = [self._parts_of(v) for v in list(op.operands)[:tensors]]
        rest = list(op.operands)[tensors:]
        result = shape_of(op.results[0])
        for part in PARTS:
            sources = [g[part] for g in given]
            shape = (*result[:-1], shape_of(sources[0])[-1])
            sizes = {"slice_sizes": i64_array(shape)} if "slice_sizes" in op.attributes else {}
            yield like(op, [*sources, *rest], shape, dtype_of(sources[0]), **sizes)

    def _loop(self, op: Op, held: list[int]) -> None:
        """The same loop that carries parts, after its other carries, instead of the float."""
        old = op.operation
        kept = [i for i in range(len(old.results)) if i not in held]
        with at(op):
            extra = [v for i in held for v in self._parts_of(old.operands[i]).values()]
        operands = [*(old.operands[i] for i in kept), *extra]
        new = rebuilt(old, operands, [v.type for v in operands])
        for region in new.regions:
            self._carried(region.blocks[0], held, extra)
        body = new.regions[1].blocks[0]
        self._block(body)
        last = last_of(body)
        with at(last):
            values = [v for i in held for v in self._parts_of(last.operands[i]).values()]
        end_with(body, [*(last.operands[i] for i in kept), *values])
        for region in new.regions:
            for i in reversed(held):
                region.blocks[0].erase_argument(i)
        self._results(old, new, kept, held)

    def _carried(self, block: ir.Block, held: list[int], extra: list[ir.Value]) -> None:
        with context():
            added = [block.add_argument(v.type, v.location) for v in extra]
        for n, i in enumerate(held):
            parts = dict(zip(PARTS, added[2 * n : 2 * n + 2], strict=True))
            self._holds(block.arguments[i], parts, at(block.operations[0]))

    def _results(
        self, old: ir.Operation, new: ir.Operation, kept: list[int], held: list[int]
    ) -> None:
        for n, i in enumerate(kept):
            old.results[i].replace_all_uses_with(new.results[n])
        for n, i in enumerate(held):
            first = len(kept) + 2 * n
            parts = dict(zip(PARTS, list(new.results)[first : first + 2], strict=True))
            self._holds(old.results[i], parts, at(new, after=True))
        old.erase()


def _encoding(value: ir.Value) -> Encoding:
    shape = shape_of(value)
    return Encoding("int8", shape, (1,) * (len(shape) - 1) + (0,))


def _specs(specs: tuple[TensorSpec, ...], held: list[int]) -> Iterator[TensorSpec]:
    for i, spec in enumerate(specs):
        if i in held:
            scale = (*spec.shape[:-1], 1)
            yield replace(spec, name=f"{spec.name}:codes", dtype="int8")
            yield replace(spec, name=f"{spec.name}:scale", shape=scale, dtype="float32")
        else:
            yield spec
