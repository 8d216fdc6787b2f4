"""Where inside a model the error comes from: every contraction's result, quantized against float.

The quantized side is the `qdq` level: the same ops on tensors that went through their formats.
Both run on XLA. A loop's body has no single result an op, so ops inside loops have no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jq.backend.xla import XlaExecutable
from jq.compare import ErrorSum, LayerError
from jq.ir import Program, dtype_of
from jq.ir.build import NAME, string_attr
from jq.ops.base import Contraction, rule_of


def compare_layers(
    reference: Program,
    quantized: Program,
    calls: Sequence[Sequence[np.ndarray]],
    progress: Callable[[str, float | None], None] = lambda stage, share: None,
) -> tuple[LayerError, ...]:
    """The error of every contraction that both programs have, in program order.

    Args:
        reference, quantized: the `float` and the `qdq` level of one model.
        calls: flat inputs, one list a call.
    """
    kinds = {name: rule.op for name, _, rule in _contractions(reference)}
    there = {name for name, _, _ in _contractions(quantized)}
    names = [name for name in kinds if name in there]
    programs = [XlaExecutable(_returning(p, names)) for p in (reference, quantized)]
    errors = {name: ErrorSum() for name in names}
    for i, arrays in enumerate(calls):
        progress("compare layers", i / len(calls))
        for name, *pair in zip(names, *(run(*arrays) for run in programs), strict=True):
            errors[name].add(*pair)
    return tuple(
        LayerError(name, kinds[name], error.sqnr_db, error.cosine) for name, error in errors.items()
    )


def _contractions(program: Program) -> Iterator[tuple[str, Any, Contraction]]:
    """Name, op and rule of every contraction outside loops whose result is float."""
    for op in program.body.operations:
        rule, name = rule_of(op), string_attr(op, NAME)
        if isinstance(rule, Contraction) and name and dtype_of(op.results[0]).kind in "fV":
            yield name, op, rule


def _returning(program: Program, names: Sequence[str]) -> Program:
    """A copy whose results are those of the named ops."""
    copy = program.clone()
    results = {name: op.results[0] for name, op, _ in _contractions(copy)}
    copy.return_values([results[name] for name in names])
    return copy
