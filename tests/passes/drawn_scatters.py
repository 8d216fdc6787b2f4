"""Scatters of every kind as text: order of axes, batches, windows, functions, types, indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from jq.ir import dtype_name

FUNCTIONS = {
    "set": "stablehlo.return %b : T",
    "add": "%c = stablehlo.add %a, %b : T\n stablehlo.return %c : T",
    "multiply": "%c = stablehlo.multiply %b, %a : T\n stablehlo.return %c : T",
    "maximum": "%c = stablehlo.maximum %a, %b : T\n stablehlo.return %c : T",
    "minimum": "%c = stablehlo.minimum %a, %b : T\n stablehlo.return %c : T",
    "difference": "%c = stablehlo.subtract %b, %a : T\n stablehlo.return %c : T",
    "twice": "%c = stablehlo.add %a, %a : T\n %d = stablehlo.add %c, %b : T\n"
    " stablehlo.return %d : T",
}
LOGIC = ("set", "add", "multiply", "maximum", "minimum")  # of bools
KINDS = [
    np.dtype(kind)
    for kind in (np.float32, ml_dtypes.bfloat16, np.float16, np.bool_, np.int8, np.uint8, np.int32)
]
INDICES = [np.dtype(kind) for kind in (np.int32, np.int64, np.int8, np.uint8, np.uint32)]


@dataclass(frozen=True)
class Drawn:
    """One scatter: the text of its op, with `%x`, `%i`, `%u` for what it takes, and their data."""

    text: str = field(repr=False)
    arrays: tuple[np.ndarray, ...] = field(repr=False)  # operands, indices, updates
    what: str

    @property
    def results(self) -> int:
        return len(self.arrays) // 2


@st.composite
def scatters(draw: st.DrawFn, operands: int = 1) -> Drawn:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    roles = [draw(st.sampled_from(["batch", "inserted", "window", "window"])) for _ in shape[1:]]
    roles.append("window")
    batch = draw(st.permutations([a for a, role in enumerate(roles) if role == "batch"]))
    mapped = [a for a, r in enumerate(roles) if r != "batch" and draw(st.integers(0, 3))]
    mapped = draw(st.permutations(mapped or [len(shape) - 1]))  # XLA fails on empty indices
    windows = [draw(st.integers(1, n)) for n in shape]
    windows = [n if draw(st.booleans()) else w for n, w in zip(shape, windows, strict=True)]
    places = [(a, shape[a]) for a in batch]
    places += [(None, draw(st.integers(0, 7))) for _ in range(draw(st.integers(0, 2)))]
    if math.prod(n for _, n in places) == 1 and all(
        w == shape[a] for a, w in enumerate(windows) if roles[a] == "window"
    ):
        places.append((None, 2))  # XLA fails on one window that is all of the operand
    places = draw(st.permutations(places))
    vector = len(places) if len(mapped) == 1 and draw(st.booleans()) else None
    sizes = [n for _, n in places]
    if vector is None:
        vector = draw(st.integers(0, len(places)))
        sizes.insert(vector, len(mapped))
    counted = {a: k + (k >= vector) for k, (a, _) in enumerate(places) if a is not None}
    kept = [a for a, role in enumerate(roles) if role == "window"]
    rank = len(places) + len(kept)
    window_axes = sorted(draw(st.permutations(range(rank)))[: len(kept)])
    spare, within = iter(n for _, n in places), iter(windows[a] for a in kept)
    update = [next(within) if a in window_axes else next(spare) for a in range(rank)]
    kind, index = draw(st.sampled_from(KINDS)), draw(st.sampled_from(INDICES))
    name = draw(st.sampled_from(sorted(LOGIC if kind == np.bool_ else FUNCTIONS)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    far = draw(st.booleans())
    low, high = (np.iinfo(index).min, np.iinfo(index).max) if far else (-2, 7)
    picked = rng.integers(max(low, np.iinfo(index).min), high, sizes, np.int64).astype(index)
    inserted = [a for a, role in enumerate(roles) if role == "inserted"]
    begin = sorted(batch)
    numbers = (
        f"update_window_dims = {window_axes}, inserted_window_dims = {inserted},"
        f" input_batching_dims = {begin},"
        f" scatter_indices_batching_dims = {[counted[a] for a in begin]},"
        f" scatter_dims_to_operand_dims = {list(mapped)}, index_vector_dim = {vector}"
    )
    data = [_values(rng, kind, s) for s in [shape] * operands + [update] * operands]
    arrays = (*data[:operands], picked, *data[operands:])
    return Drawn(_text(numbers, name, kind, arrays), arrays, f"{kind} {name} {shape} {numbers}")


def _values(rng: np.random.Generator, kind: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Small integers, whose sums and products are exact in every type."""
    return rng.integers(0, 2 if kind == np.bool_ else 4, shape).astype(kind)


def _text(numbers: str, name: str, kind: np.dtype, arrays: Sequence[np.ndarray]) -> str:
    n, scalar = len(arrays) // 2, f"tensor<{dtype_name(kind)}>"
    values = ", ".join(f"%v{k}" for k in range(len(arrays)))
    types = ", ".join(type_of(a) for a in arrays)
    if n == 1:
        arguments = f"%a: {scalar}, %b: {scalar}"
        body = FUNCTIONS[name].replace("T", scalar)
    else:  # the operands' functions: what is written, and a sum of the second's
        arguments = ", ".join(f"%{k}: {scalar}" for k in ("a", "c", "b", "d"))
        body = f"%e = stablehlo.maximum %c, %b : {scalar}\n"
        body += f"stablehlo.return %d, %e : {scalar}, {scalar}"
    results = ", ".join(type_of(a) for a in arrays[:n])
    return f""""stablehlo.scatter"({values}) <{{
      scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, indices_are_sorted = false,
      unique_indices = false}}> ({{
      ^bb0({arguments}):
        {body}
      }}) : ({types}) -> ({results})"""


def type_of(array: np.ndarray) -> str:
    return f"tensor<{'x'.join([*map(str, array.shape), dtype_name(array.dtype)])}>"


def program_text(cases: Sequence[Drawn]) -> str:
    """One function of all of them."""
    arguments, lines, results, types = [], [], [], []
    for k, case in enumerate(cases):
        names = [f"%x{k}_{j}" for j in range(len(case.arrays))]
        arguments += [f"{v}: {type_of(a)}" for v, a in zip(names, case.arrays, strict=True)]
        text = case.text
        for j in reversed(range(len(names))):
            text = text.replace(f"%v{j}", names[j])
        n = case.results
        lines.append(f"%y{k}:{n} = {text}" if n > 1 else f"%y{k} = {text}")
        results += [f"%y{k}#{j}" for j in range(n)] if n > 1 else [f"%y{k}"]
        types += [type_of(a) for a in case.arrays[:n]]
    body = "\n".join(lines)
    returned = f"return {', '.join(results)} : {', '.join(types)}"
    return f"({', '.join(arguments)}) -> ({', '.join(types)}) {{\n{body}\n{returned}\n}}"
