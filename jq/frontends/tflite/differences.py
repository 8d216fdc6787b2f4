"""Differences from LiteRT in the program of a TFLite file, which are told when it is read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jq.base.errors import LOG
from jq.frontends.tflite.graph import Graph
from jq.frontends.tflite.schema import DIFFERENT

Operators = Sequence[tuple[str, Mapping[str, Any]]]
COMPARED = {"EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
_PRODUCTS = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
# Operators of floats whose results have codes between them, or that kernels spell otherwise; the
# pass `lower-regions` tells of others.
_SUMS = {"AVERAGE_POOL_2D", "BATCH_MATMUL", "CONV_3D", "CUMSUM", "L2_NORMALIZATION"}
_SUMS |= {"LOG_SOFTMAX", "MEAN", "REDUCE_PROD", "RESIZE_BILINEAR", "SOFTMAX", "SUM", *_PRODUCTS}
_SUMS.add("TRANSPOSE_CONV")


def tell(g: Graph, operators: Operators) -> None:
    """Names the operators whose codes may differ, and the subgraphs that are not read."""
    parts = [(k, _ends(fields, "inputs"), _ends(fields, "outputs")) for k, fields in operators]
    floats = _between(g, parts)
    whys = ((kind, _why(g, kind, x, y, floats)) for kind, x, y in parts if x and y)
    found = Counter(pair for pair in whys if pair[1])
    if said := ", ".join(f"{count} {kind} ({why})" for (kind, why), count in found.items()):
        _warn(f"{g.path}: codes may differ from LiteRT's of {said}")
    options = [fields.get("builtin_options", (None, {}))[1] for _, fields in operators]
    read = {0, *(o.get("init_subgraph_index") for o in options)}
    graphs = enumerate(g.model["subgraphs"])
    if left := [graph.get("name") or str(i) for i, graph in graphs if i not in read]:
        _warn(f"{g.path}: its first subgraph is read, not {', '.join(left):.200}")


def _ends(fields: Mapping[str, Any], key: str) -> list[int]:
    return [int(i) for i in fields.get(key, ())]


def _why(g: Graph, kind: str, x: list[int], y: list[int], floats: set[int]) -> str:
    """The reason why the results of an operator may differ; nothing of others."""
    codes = [found[0] for i in x if i >= 0 and (found := g.scales(i))]
    if kind in COMPARED:
        return "scales of 1 and more" if any(scale.max() >= 1 for scale in codes) else ""
    if not g.domain(y[0]):
        if kind in _PRODUCTS and codes:
            return "it rounds its input to codes when it runs"
        return "floats between codes" if kind in _SUMS and y[0] in floats else ""
    if kind == "PRELU" and g.dtype(x[1]).itemsize > 1:
        return "it reads slopes of 16 bits as of 8"
    if g.dtype(y[0]).itemsize > 1:
        known = DIFFERENT | {"SQUARED_DIFFERENCE": DIFFERENT["SQUARE"]}
        return "" if kind == "RESIZE_BILINEAR" else known.get(kind, "")
    if kind in _PRODUCTS and x[2:] and x[2] >= 0 and not g.domain(x[2]):
        return "by default, of a bias without a scale"
    return DIFFERENT.get(kind, "")


def _between(g: Graph, parts: Sequence[tuple[str, list[int], list[int]]]) -> set[int]:
    """Floats that are computed of codes, and whose results are codes."""
    behind, front = set[int](), set[int]()
    for kind, x, y in parts:
        if kind == "DEQUANTIZE" or behind & {*x}:
            behind |= {i for i in y if not g.domain(i)}
    for kind, x, y in parts[::-1]:
        if kind != "DEQUANTIZE" and (kind == "QUANTIZE" or front & {*y}):
            front |= {i for i in x if i >= 0 and not g.domain(i)}
    made = {i for kind, x, y in parts for i in y if kind != "DEQUANTIZE"}
    return behind & front & made


@cache
def _warn(said: str) -> None:
    """Once a process: a compilation reads its file several times."""
    LOG.warning("%s", said)
