"""Products of floats with a constant weight are computed by the kernels of codes.

    dot_general (convert %x : bf16), %w : bf16 -> f32
    [add bias] [activation] [add residual]
    ->
    call @jq_gemm_128x384x1536(%x, %w.packed, %bias, %residual)

Convolutions likewise, and float32 numbers. The kernel rounds its rows to bfloat16 itself. Sums are
float32 in another order than those of a plain product. Behind products of bfloat16, an activation
function is within the bound that its step states; float32 takes the exact steps alone."""

from functools import partial

import numpy as np

from jq.formats import Deferred, Encoding
from jq.ir import NAME, OPS, Op, Program, at, dtype_of, evaluate, ir, shape_of, string_attr
from jq.ir.build import attributes_of
from jq.ir.contract import Contract
from jq.ir.ops import CONVOLUTION, Dims, Layout, contraction, groups_of
from jq.ir.ops.geometry import NotMatrices, WeightProduct
from jq.kernels import Gemm, get_isa
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._convolution import Convolved, hwio, window_of
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, isa_of, unrounded
from jq.passes.kernels._tail import Tail
from jq.passes.kernels.kernel_convolution import Lower

HALF = "bfloat16"


class KernelFloats(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = isa_of(cx.target), KernelDecisions()
        stored = {op.name for op in cx.plan.ops if op.halves}  # left to `kernel-decode`
        found = [op for op in program.walk() if Dims.match(op) or Layout.match(op)]
        for op in found if isa else ():
            name, element = string_attr(op, NAME) or "product", element_of(program, op)
            if name in stored or element is None:
                continue
            fewer = cx.settings.winograd
            lower = _product if Dims.match(op) else partial(_convolution, winograd=fewer)
            try:
                if not get_isa(isa or "").rounds:
                    raise NoKernel(f"no fused multiplication and addition of {isa}")
                kernel = lower(program, op, name, isa or "", element)
                decided.kernel(kernel, name, types=(element, element, "f32"))
            except (NoKernel, NotMatrices) as reason:
                decided.none(str(reason), name)
        program.drop_dead()
        return decided.write(program)


def of_halves(op: Op) -> bool:
    """True if an op sums products of bfloat16 numbers in float32."""
    return [dtype_of(v).name for v in (*op.operands, op.results[0])] == [HALF, HALF, "float32"]


def element_of(program: Program, op: Op) -> str | None:
    """`bf16` of such products, `f32` of those with a constant weight."""
    if of_halves(op):
        return "bf16"
    floats = all(dtype_of(v) == np.float32 for v in (*op.operands, op.results[0]))
    names = [program.weight_name(v) or "" for v in op.operands]
    if not floats or any(isinstance(program.weights.get(n), Deferred) for n in names):
        return None  # one that is larger than memory is not packed
    return "f32" if any(evaluate(program, v) is not None for v in op.operands) else None


def _product(program: Program, op: Op, name: str, isa: str, element: str) -> str:
    """Replaces a product and what follows it by a call; the kernel's name."""
    weights = [evaluate(program, v) for v in op.operands]
    side = 0 if weights[1] is None else 1
    weight, rule = weights[side], contraction(op.operation.name)
    if weight is None or rule is None:
        raise NoKernel("no operand is a constant weight")
    result, shape = op.results[0], weight.shape
    if 0 in (*shape, *shape_of(result)):
        raise NoKernel("an empty product")
    x, plain = unrounded(op.operands[1 - side]), Encoding("float", shape, (1,) * len(shape))
    product = WeightProduct(attributes_of(op), side, x, plain, shape_of(result))
    columns = Dims.of(op).free(side, len(shape))
    n = int(np.prod([shape[a] for a in columns]))
    exact = element == "f32"
    tail = Tail.behind(program, op, n, exact=exact) if side == 1 else Tail((), (), (op,))
    with at(tail.last):
        view = rule.matrices(product)
        m, k = shape_of(view.rows)
        kernel = Gemm(isa=isa, m=m, k=k, n=n, element=element, epilogue=tail.steps)
        order = [*view.contracted, *view.free]
        packed = kernel.pack(np.asarray(weight).transpose(order).reshape(k, n))["weights"]
        first = f"{name.partition('#')[0]}:packed"  # of another product with this weight
        known = np.asarray(program.weights.get(first, ()))
        same = known.dtype == packed.dtype and np.array_equal(known, packed)
        stored = program.weight(first) if same else program.add_weight(f"{name}:packed", packed)
        return tail.lower(
            program, name, kernel, [view.rows, stored], lambda value, _: view.result(value)
        )


def _convolution(
    program: Program, op: Op, name: str, isa: str, element: str, winograd: bool
) -> str:
    """Replaces a convolution and what follows it by a call; the kernel's name."""
    value, filter = op.operands[0], evaluate(program, op.operands[1])
    if filter is None:
        raise NoKernel("the filter is no constant")
    if groups_of(op, "batch_group_count") != 1:
        raise NoKernel("no kernel for groups of the batch")
    shapes, given = tuple(map(shape_of, op.operands)), tuple(op.operands)
    c = Contract(op, name, CONVOLUTION, attributes_of(op), shapes, given, ("", ""))
    with at(op):
        x = OPS.convert(unrounded(value), np.float32)
    return convolution(program, c, x, filter, None, isa, element, winograd)


def convolution(
    program: Program,
    c: Contract,
    x: ir.Value,
    filter: np.ndarray,
    decoded: ir.Value | None,
    isa: str,
    element: str,
    winograd: bool = False,
) -> str:
    """Replaces a convolution of `x` and what follows it by a call; the kernel's name. Of a filter
    that each call decodes, `filter` has the shape alone."""
    window = window_of(c)
    none = np.ones(0, np.float32)  # scales
    conv = Convolved(c, x, 0, window, hwio(filter, window), none, None, decoded=decoded)
    tail = Tail((), (), (c.op,))
    if conv.layout.channels_last:
        tail = Tail.behind(program, c.op, conv.filters, exact=element == "f32")
    lower = Lower(program, conv, isa, element, winograd)
    with at(tail.last):
        kernel, operands = lower.kernel(tail.steps, [])
        return tail.lower(program, c.name, kernel, operands, conv.layout.result)
