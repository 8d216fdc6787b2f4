"""The windows of convolutions, of any geometry: times the kernel they are the convolution, and they
are the same in NumPy."""

import numpy as np
import pytest

from jq.ir import at, shape_of
from jq.ir.ops.layout import Layout, groups_of
from jq.planning.calibration.histogram import NUMPY_STATS
from jq.planning.moments.inputs import Wanted, rows_of
from tests.ir.ops.collect import collect
from tests.ir.ops.test_convolution import convolutions
from tests.support.programs import evaluated
from tests.support.texts import load

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(0)


def tensor(shape):
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def program_of(cases):
    arguments, body = [], []
    for i, case in enumerate(cases):
        x, w, y = map(tensor, case.shapes)
        arguments += [f"%x{i}: {x}", f"%w{i}: {w}"]
        op = case.op.replace("LHS", f"%x{i}").replace("RHS", f"%w{i}").replace(", ATTRS", "")
        body.append(f"%y{i} = {op} : ({x}, {w}) -> {y}")
    text = f"func.func public @main({', '.join(arguments)}) -> {y} {{"
    return load("\n".join([text, *body, f"return %y{i} : {y}", "}"]))


def test_rows_times_kernel():
    cases = collect(convolutions(), 24)
    program = program_of(cases)
    ops = [op for op in program.body.operations if "convolution" in op.operation.name]
    wanted, rows, handed = [], [], []
    for op in ops:
        d = Layout.of(op)
        inner = [a for a in range(len(shape_of(op.operands[1]))) if a != d.kernel_out]
        wanted.append((d, groups_of(op), RNG.permutation(inner).tolist()))
        with at(op):
            rows.append(rows_of(op, asked := Wanted("", 0, tuple(wanted[-1][2])))(op.operands[0]))
        handed.append(rows_of(op, asked, NUMPY_STATS))
    program.return_values(rows)
    inputs = [RNG.integers(-9, 10, s).astype(np.float32) for c in cases for s in c.shapes[:2]]
    found = evaluated(program, *inputs)
    for i, (case, (d, groups, inner)) in enumerate(zip(cases, wanted, strict=True)):
        x, w = inputs[2 * i : 2 * i + 2]
        np.testing.assert_array_equal(handed[i](x), found[i], err_msg=case.op)
        matrix = np.transpose(w, [*inner, d.kernel_out]).reshape(-1, w.shape[d.kernel_out])
        parts = np.split(matrix, groups, axis=1)
        got = np.concatenate([r @ m for r, m in zip(found[i], parts, strict=True)], axis=1)
        want = np.moveaxis(case.reference(x.astype(int), w.astype(int)), d.output_feature, -1)
        np.testing.assert_array_equal(got, want.reshape(got.shape), err_msg=case.op)
