"""sink-dequantize on every format: what moves has the same bits, and nothing moves that cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, Format, get_format
from jq.formats.affine import Affine
from jq.ir import Program, at, func
from jq.ir.markers import DEQUANTIZE, match
from jq.passes.base import PassContext, make_pass, run_all
from jq.passes.pipeline import load_pipeline
from jq.planning.decisions import QuantPlan
from jq.target.target import load_target
from tests.ir.ops.integers import tensor
from tests.support.programs import evaluated
from tests.support.texts import load

pytestmark = pytest.mark.usefixtures("quick_xla")

SHAPE = (3, 8, 256)


@dataclass(frozen=True)
class Move:
    """An op on a tensor of `SHAPE`, in text and in NumPy. `%i` is an i32 scalar of value 1."""

    text: str
    shape: tuple[int, ...]
    numpy: Callable[[np.ndarray], np.ndarray]
    element: str = "f32"


def _slice(text: str) -> str:
    return f"stablehlo.slice %w {text}"


def _dynamic(sizes: str, *starts: str) -> str:
    return f"stablehlo.dynamic_slice %w, {', '.join(starts)}, sizes = {sizes}"


def _joined(axis: int, shape: tuple[int, ...]) -> str:
    return (
        f'"stablehlo.concatenate"(%w, %w) {{dimension = {axis} : i64}}'
        f" : ({tensor(SHAPE)}, {tensor(SHAPE)}) -> {tensor(shape)} //"
    )


def _twice(axis: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.concatenate([x, x], axis)


MOVES = {
    "transpose the last two": Move(
        "stablehlo.transpose %w, dims = [0, 2, 1]", (3, 256, 8), lambda x: x.transpose(0, 2, 1)
    ),
    "rotate": Move(
        "stablehlo.transpose %w, dims = [2, 0, 1]", (256, 3, 8), lambda x: x.transpose(2, 0, 1)
    ),
    "merge": Move("stablehlo.reshape %w", (24, 256), lambda x: x.reshape(24, 256)),
    "merge the last two": Move("stablehlo.reshape %w", (3, 2048), lambda x: x.reshape(3, 2048)),
    "split": Move("stablehlo.reshape %w", (3, 8, 4, 64), lambda x: x.reshape(3, 8, 4, 64)),
    "split and merge": Move("stablehlo.reshape %w", (6, 4, 256), lambda x: x.reshape(6, 4, 256)),
    "flatten": Move("stablehlo.reshape %w", (6144,), lambda x: x.reshape(-1)),
    "ones in front": Move("stablehlo.reshape %w", (1, 1, *SHAPE), lambda x: x[None, None]),
    "ones between": Move(
        "stablehlo.reshape %w", (3, 1, 8, 256, 1), lambda x: x[:, None, ..., None]
    ),
    "a layer": Move(_slice("[1:2, 0:8, 0:256]"), (1, 8, 256), lambda x: x[1:2]),
    "rows with a stride": Move(_slice("[0:3, 1:8:2, 0:256]"), (3, 4, 256), lambda x: x[:, 1:8:2]),
    "columns": Move(_slice("[0:3, 0:8, 3:131]"), (3, 8, 128), lambda x: x[..., 3:131]),
    "whole blocks": Move(_slice("[0:3, 0:8, 64:256]"), (3, 8, 192), lambda x: x[..., 64:]),
    "a joined axis": Move(_joined(1, (3, 16, 256)), (3, 16, 256), _twice(1)),
    "joined blocks": Move(_joined(2, (3, 8, 512)), (3, 8, 512), _twice(2)),
    "a dynamic layer": Move(
        _dynamic("[1, 8, 256]", "%i", "%z", "%z"), (1, 8, 256), lambda x: x[1:2]
    ),
    "a dynamic layer that is clamped": Move(
        _dynamic("[1, 8, 256]", "%far", "%z", "%z"), (1, 8, 256), lambda x: x[2:]
    ),
    "dynamic columns": Move(
        _dynamic("[3, 8, 100]", "%z", "%z", "%i"), (3, 8, 100), lambda x: x[..., 1:101]
    ),
    "to bf16": Move("stablehlo.convert %w", SHAPE, lambda x: NUMPY.convert(x, "bfloat16"), "bf16"),
}
# Blocks of a format that may have any.
BLOCKS = ((0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 0), (0, 0, 1), (1, 1, 32), (1, 4, 1))


def encodings() -> list[Encoding]:
    """Every format once (its own block along the last axis), int8 and int4 with every block."""
    found = []
    for name, fmt in sorted(Format.registry.items()):
        own = fmt.default_block(SHAPE, 2)
        if own is not None:
            found.append(Encoding(name, SHAPE, own))
        elif isinstance(fmt, Affine) and name in ("int8", "int4"):
            found += [Encoding(name, SHAPE, b, "asymmetric") for b in BLOCKS]
        else:
            found.append(Encoding(name, SHAPE, (1, 0, 1)))
    return found


ENCODINGS = encodings()
RNG = np.random.default_rng(0)
WEIGHT = (RNG.standard_normal(SHAPE) * RNG.uniform(0.1, 10, (3, 8, 1))).astype(np.float32)
CONTEXT = PassContext(QuantPlan((), {}), load_pipeline("float").settings, load_target("llvm-cpu"))


def place(move: Move) -> Program:
    """One result for each encoding: the op on a weight that is stored in it."""
    args = [f'%w{i}: {tensor(SHAPE)} {{jq.weight = "w{i}"}}' for i in range(len(ENCODINGS))]
    kind = tensor(move.shape, move.element)
    scalars = ", tensor<i32>" * move.text.count(", %")
    source = f"({tensor(SHAPE)}{scalars}) -> {kind}"
    body = [
        f"%y{i} = {move.text.replace('%w', f'%w{i}')} : {source}" for i in range(len(ENCODINGS))
    ]
    results = ", ".join(f"%y{i}" for i in range(len(ENCODINGS)))
    kinds = ", ".join([kind] * len(ENCODINGS))
    text = f"""(%i: tensor<i32>, {", ".join(args)}) -> ({kinds}) {{
      %z = stablehlo.constant dense<0> : tensor<i32>
      %far = stablehlo.constant dense<9> : tensor<i32>
      {chr(10).join(body)}
      return {results} : {kinds}
    }}"""
    program = load(text, {f"w{i}": WEIGHT for i in range(len(ENCODINGS))})
    plan = QuantPlan((), {f"w{i}": enc for i, enc in enumerate(ENCODINGS)})
    run_all([make_pass("place-weights", {})], program, replace(CONTEXT, plan=plan))
    return program


def returned(program: Program) -> list:
    return list(program.body.operations[len(program.body.operations) - 1].operands)


@pytest.fixture(scope="module")
def decoded() -> list[np.ndarray]:
    return [
        np.asarray(fmt.decode(NUMPY, fmt.encode(WEIGHT, enc), enc))
        for enc in ENCODINGS
        for fmt in [get_format(enc.format)]
    ]


# Blocks of int8 with which a move must not happen: a scale would be shared and not shared along
# one axis, or a block would be cut.
STAYS = {
    "merge the last two": {(1, 0, 1), (0, 0, 1), (1, 4, 1)},
    "flatten": {(1, 0, 1), (0, 0, 1), (1, 4, 1)},
    "rows with a stride": {(1, 4, 1)},
    "columns": {(1, 1, 32)},
    "dynamic columns": {(1, 1, 32)},
    "a joined axis": {(0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1)},
    "joined blocks": {(0, 0, 0), (1, 0, 0), (1, 1, 0)},
}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_keeps_its_bits(name, decoded):
    move = MOVES[name]
    program = place(move)
    run_all([make_pass("sink-dequantize", {})], program, CONTEXT)
    moved = [i for i, v in enumerate(returned(program)) if match(v, DEQUANTIZE)]
    blocks = {ENCODINGS[i].block for i in moved if ENCODINGS[i].format == "int8"}
    assert set(BLOCKS) - blocks == STAYS.get(name, set())
    _return(program, moved)
    got = evaluated(program, np.int32(1))
    for i, value in zip(moved, got, strict=True):
        want = np.ascontiguousarray(move.numpy(decoded[i]))
        assert (value.dtype, value.shape) == (want.dtype, want.shape)
        assert (value.view(np.uint8) == want.view(np.uint8)).all(), ENCODINGS[i]


def _return(program: Program, which: list[int]) -> None:
    """Only these results; what did not move is as it was."""
    old = program.body.operations[len(program.body.operations) - 1]
    with at(old):
        func.ReturnOp([old.operands[i] for i in which])
    old.operation.erase()
    program.refresh()
    program.drop_dead()


@pytest.mark.parametrize("name", ["columns", "dynamic columns", "transpose the last two"])
def test_packed_bytes_are_not_cut(name):
    program = place(MOVES[name])
    run_all([make_pass("sink-dequantize", {})], program, CONTEXT)
    values = zip(ENCODINGS, returned(program), strict=True)
    packed = [v for enc, v in values if enc.format in ("int4", "int2", "mxfp4", "q4_0", "q4_k")]
    assert len(packed) >= 5 and not any(match(v, DEQUANTIZE) for v in packed)


@pytest.mark.parametrize("name", ["a layer", "a dynamic layer"])
def test_a_layer_of_a_stack_is_read_in_every_format(name):
    """Every layer has scales of its own in some of them."""
    program = place(MOVES[name])
    run_all([make_pass("sink-dequantize", {})], program, CONTEXT)
    for enc, value in zip(ENCODINGS, returned(program), strict=True):
        if enc.block[0] == 1:
            assert match(value, DEQUANTIZE), enc
