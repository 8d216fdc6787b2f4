"""Verifies what was written, in its form's own reference, against the integer program's bits."""

from collections.abc import Iterator, Sequence

import numpy as np

from jq.base.errors import CompilerError
from jq.device.ends import input_codes
from jq.device.forms.table import Form
from jq.device.network import Network, Tensor
from jq.frontends.source import Calls
from jq.ir import Op, Program, dtype_of, ir, shape_of
from jq.ir.oracle.xla import XlaExecutable
from jq.reporting.benchmark.session import random_inputs

RECORDED, DRAWN = 4, 2  # samples of the calibration data; of random codes


def verified(
    integer: Program,
    whole: Network,
    written: Network,
    marked: Program,
    form: Form,
    data: bytes,
    recorded: Calls | None,
) -> dict[str, list[int]]:
    """Elements of the same bits, and all, by the name of the reference that runs the file; XLA runs
    the program that it was written of on the same codes: recorded, random, ends of the types.

    Args:
        integer: the plain integer program, with its float ends.
        whole: its network, of the program with markers; `written` is what the file holds of it."""
    ops = list(written.host.values())
    host = computing(marked, ops) if ops else None
    behind, names = _behind(marked, ops) if ops else (integer, [])
    run, wanted, calls = XlaExecutable(behind), list[list[np.ndarray]](), list[list[np.ndarray]]()
    scales = input_codes(whole) | {t.name: t for t in written.inputs if t.scale is not None}
    at = [scales.get(t.name) if t.dtype == "float32" else None for t in whole.inputs]
    for inputs in _inputs(integer, at, recorded):
        given = host(*inputs) if host else []
        run.bind(dict(zip(names, given, strict=True)))
        wanted.append([_codes(*y) for y in zip(run(*inputs), written.outputs, strict=True)])
        known = dict(zip([t.name for t in whole.inputs], inputs, strict=True))
        known |= dict(zip(written.host, given, strict=True))
        calls.append([_codes(np.asarray(known[t.name]), t) for t in written.inputs])
    return {name: _count(wanted, read(data, calls)) for name, read in form.readers.items()}


def _count(wanted: list[list[np.ndarray]], found: list[list[np.ndarray]]) -> list[int]:
    outputs = same = 0
    for want, got in zip(wanted, found, strict=True):
        if len(got) != len(want):
            raise CompilerError(f"the reference gives {len(got)} outputs of {len(want)}")
        for w, g in zip(want, got, strict=True):
            same += int((np.asarray(g).reshape(w.shape) == w).sum())
            outputs += w.size
    return [same, outputs]


def computing(program: Program, ops: list[Op]) -> XlaExecutable:
    """Computes what ops of a program give."""
    copy, values = _copied_with(program, ops)
    copy.return_values(values)
    return XlaExecutable(copy)


def _behind(marked: Program, ops: list[Op]) -> tuple[Program, list[str]]:
    """The program with what these ops give as weights, and their names: XLA rounds the floats in
    front of codes as it fuses them, which is not alike in two programs."""
    copy, values = _copied_with(marked, ops)
    for value in values:
        value.replace_all_uses_with(
            copy.add_weight("host", np.zeros(shape_of(value), dtype_of(value)))
        )
    return copy, list(copy.weights)[-len(values) :]


def _copied_with(program: Program, ops: list[Op]) -> tuple[Program, list[ir.Value]]:
    """A copy of a program, and the results in it of some ops."""
    at = {op: i for i, op in enumerate(program.body.operations)}
    copy = program.clone()
    made = list(copy.body.operations)
    return copy, [made[at[op]].results[0] for op in ops]


def _inputs(
    program: Program, at: Sequence[Tensor | None], recorded: Calls | None
) -> Iterator[list[np.ndarray]]:
    """Inputs that are numbers of codes exactly, so that nobody has to round them."""
    for sample in list(recorded or ())[:RECORDED]:
        yield [x if t is None else _real(_codes(x, t), t) for x, t in zip(sample, at, strict=True)]
    for seed in range(DRAWN + 2):
        rng = np.random.default_rng(seed)
        pairs = zip(random_inputs(program.inputs, seed), at, strict=True)
        yield [x if t is None else _real(_drawn(rng, t, seed), t) for x, t in pairs]


def _drawn(rng: np.random.Generator, codes: Tensor, seed: int) -> np.ndarray:
    """Random codes, and the lowest and the highest alone: of 16 bits around 0 not -32768."""
    ends = np.iinfo(codes.dtype)
    low = ends.min + (codes.dtype == "int16" and codes.zero == 0)
    if seed >= DRAWN:
        return np.full(codes.shape, low if seed == DRAWN else ends.max, codes.dtype)
    return rng.integers(low, ends.max, codes.shape, codes.dtype, endpoint=True)


def _codes(x: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The codes of floats that are codes exactly (else the nearest), by the tensor's scale; what
    has the tensor's type as it is."""
    if x.dtype.name == tensor.dtype:
        return x
    scale, zero = _grid(tensor)
    ends = np.iinfo(tensor.dtype)
    rounded = np.rint(x.astype(np.float64) / scale) + zero
    return np.asarray(np.clip(rounded, ends.min, ends.max), tensor.dtype)


def _real(codes: np.ndarray, tensor: Tensor) -> np.ndarray:
    scale, zero = _grid(tensor)
    return np.asarray((codes.astype(np.int32) - zero).astype(np.float32) * scale, np.float32)


def _grid(tensor: Tensor) -> list[np.ndarray]:
    """Scale and zero point of codes."""
    scale = np.ones(1, np.float32) if tensor.scale is None else tensor.scale
    zero = np.zeros(1, np.int32) if tensor.zero_point is None else tensor.zero_point
    return [v.reshape(()) if v.size == 1 else v for v in (scale, zero)]
