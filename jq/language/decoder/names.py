"""From the names of a file's tensors to the tree of parameters, whose shapes the config gives."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats import Encoding, Leaf, QuantizedTensor
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.architectures.names import CURVE
from jq.language.decoder.config import Config, Shape
from jq.language.decoder.mixers import Mixer
from jq.models._tree import nest


def parameter_tree(
    config: Config, form: str, tensors: Mapping[str, Leaf], where: str, off: str = ""
) -> dict[str, Any]:
    """The tree of parameters, named as `architectures` says of a form of files ("gguf" or
    "hugging_face"), without what matches `off`; `UserError` for a tensor that is missing, or has no
    name or another shape."""
    known = Architecture.registry[config.architecture]
    names: Mapping[str, str] = getattr(known.names, form)
    of_layer = known.swapped if form == "hugging_face" else ()
    swapped = [f"layers/{{i}}/{name}/weight" for name in of_layer]
    apart = any("{e}" in theirs for theirs in names.values())
    if apart and config.layers * config.experts > len(tensors):  # before all are named
        what = (
            f"{config.layers} layers of {config.experts} experts are not in {len(tensors)} tensors"
        )
        raise UserError(what, location=where)
    ours = dict(expanded(names, config))
    turned = {theirs for theirs, _ in expanded({n: names[n] for n in swapped}, config)}
    flat: dict[str, Leaf] = {}
    for theirs, leaf in tensors.items():
        name = ours.get(theirs)
        if name is None:
            what = f"the tensor {theirs!r} has no place in the architecture {config.architecture}"
            raise UserError(what, location=where, hint=f"the model has {config.layers} layers")
        if re.fullmatch(rf"(layers/\d+/)?({off})", name):
            continue  # by the config, as in `transformers`
        if "*" in name:
            count = stack_size(name, config)
            if len(leaf.shape) < 2 or leaf.shape[0] != count:
                raise _misshapen(theirs, leaf.shape, f"a stack of {count}", where)
            for e, part in enumerate(_unstacked(leaf)):
                upright = known.swapped_or_not and part.shape["down" not in name] == config.hidden
                if theirs in turned and isinstance(part, np.ndarray) and not upright:
                    part = part.T
                flat[name.replace("*", str(e))] = part
        else:
            flat[name] = leaf.T if theirs in turned and isinstance(leaf, np.ndarray) else leaf
    if config.get("plain_norms"):  # no file has their weights
        blocks = [f"layers/{i}/{block}/" for i in range(config.layers) for block in _BLOCKS]
        ones = np.ones(config.hidden, np.float32)
        flat |= {f"{block}norm/weight": ones for block in ("", *blocks)}
    tree = nest(flat)
    if tree.get("head", {}).keys() == {"bias"}:  # whose matrix is the table
        tree.setdefault("embed", {}).update(tree.pop("head"))
    _check_shapes(config, tree, names, where)
    return tree


def stack_size(name: str, config: Config) -> int:
    """Number of tensors that a file has as one: of experts, or of streams but the first."""
    count: int = config.experts if "/experts/" in name else config.get("streams") - 1
    return count


def expanded(names: Mapping[str, str], config: Config) -> Iterator[tuple[str, str]]:
    """The file's name of every tensor that could be there, and ours."""
    for ours, theirs in names.items():
        layers = range(config.layers) if "{i}" in theirs else (0,)
        experts = range(config.experts) if "{e}" in theirs else (0,)
        for i in layers:
            for e in experts:
                yield theirs.format(i=i, e=e), ours.format(i=i, e=e)


def _unstacked(leaf: Leaf) -> list[Leaf]:
    """A stack [experts, ...] as its parts, over the same memory."""
    if not isinstance(leaf, QuantizedTensor):
        return list(leaf)
    enc = leaf.encoding
    one = Encoding(enc.format, enc.shape[1:], enc.block[1:])
    parts = ({name: part[i] for name, part in leaf.parts.items()} for i in range(enc.shape[0]))
    return [QuantizedTensor(one, own, leaf.name) for own in parts]


def add_scales(tree: dict[str, Any], scales: Mapping[str, Any], config: Config, where: str) -> None:
    """Puts factors of products beside their weights: that of what comes in, which a bias does not
    get, times that of what goes out. Names as in `architectures`."""
    for name, (within, behind) in scales.items():
        for i in range(config.layers) if "{i}" in name else (0,):
            node = tree
            for part in name.format(i=i).split("/"):
                node = node.setdefault(part, {})
            node["scale"] = np.asarray(within * behind, np.float32)
            if "bias" in node and within != 1:
                node["bias"] = np.asarray(node["bias"], np.float32) / np.float32(within)
            if node["scale"].shape not in ((), tuple(node["weight"].shape[:1])):
                raise _misshapen(f"{name}, scale", node["scale"].shape, "one a row", where)


# What a layer must have where the architecture names it, and the field of the config that is its
# size; 1 without one.
_NAMED = {"attention/norm_after": "hidden", "mlp/norm_after": "hidden", "scalar": ""}
_BLOCKS = ("attention", "mlp")
_PARTS = ("bias", "preference")  # of a tensor that is no matrix of its own


def _check_shapes(
    config: Config, tree: Mapping[str, Any], names: Mapping[str, str], where: str
) -> None:
    """`names` of the file say which norms a block begins with."""
    for path, shape in _of_model(config, tree):
        _need(tree, path, shape, where)
    for i in range(config.layers):
        layer = _at(tree, f"layers/{i}", where)
        for block in _BLOCKS:
            _at(tree, f"layers/{i}/{block}", where)
        for path, shape in (*_of_layer(config, i, layer, names), *_of_mlp(config, layer["mlp"])):
            _need(tree, f"layers/{i}/{path}", shape, where)


def _of_model(config: Config, tree: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """Paths and shapes of what a model needs beside its layers."""
    hidden, table = config.hidden, (config.vocabulary, config.hidden)
    yield from (("embed", table), ("norm", (hidden,)), *[("head", table)] * ("head" in tree))
    if "positions/weight" in Architecture.registry[config.architecture].names.hugging_face:
        yield "positions", (config.context + config.get("unused_positions"), hidden)
    if width := config.get("per_layer"):
        wide, rows = config.layers * width, config.get("per_layer_vocabulary")
        rows = rows or _rows(tree, "per_layer", "table")  # of files that do not say
        yield from (("per_layer/table", (rows, wide)), ("per_layer/projection", (wide, hidden)))
        yield "per_layer/norm", (width,)
    for node in ("spread", "gather"):
        yield from ((f"{node}/{i}", (hidden, hidden)) for i in range(config.get("streams") - 1))


def _of_layer(
    config: Config, i: int, layer: Mapping[str, Any], names: Mapping[str, str]
) -> Iterator[tuple[str, Shape]]:
    """The same of a layer, but for its feed-forward layer."""
    hidden, known = config.hidden, Architecture.registry[config.architecture].names.hugging_face
    if count := config.get("streams"):
        shapes: dict[str, Shape] = {"predict": (count**2, count), "correct": (count, count)}
        shapes |= {"router": (count, hidden), "norm": (hidden,), "scale": (hidden,)}
        yield from ((f"streams/{name}", shape) for name, shape in shapes.items())
        rank = config.get("rank") or _rows(layer, "beside", "left")
        yield from (("beside/left", (rank, hidden)), ("beside/right", (hidden, rank)))
        yield "beside/norm", (hidden,)
    if width := config.get("per_layer"):
        yield from (("per_layer/gate", (width, hidden)), ("per_layer/projection", (hidden, width)))
        yield "per_layer/norm", (hidden,)
    for block in _BLOCKS:
        spared = config.parallel and block == "mlp" and not config.get("two_norms")
        if "norm" in layer[block] or (f"layers/{{i}}/{block}/norm/weight" in names and not spared):
            yield f"{block}/norm", (hidden,)
    for name, size in _NAMED.items():
        if f"layers/{{i}}/{name}/weight" in known:
            yield name, (getattr(config, size) if size else 1,)
    for name in config.mixers[i]:
        node = name if name in layer else "attention"
        shapes = Mixer.registry[name].shapes(config, layer[node])
        yield from ((f"{node}/{tensor}", shape) for tensor, shape in shapes.items())


def _of_mlp(config: Config, p: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """The same of a feed-forward layer. Its width is that of what comes behind the gate: files of
    some models name no width."""
    known = Architecture.registry[config.architecture].names.hugging_face
    gated = {"": p} if not {"experts", "shared"} & p.keys() else {}
    if "experts" in p or "router" in p:
        yield "mlp/router", (config.experts, config.hidden)
        if "layers/{i}/mlp/router/preference" in known:
            yield "mlp/router/preference", (config.experts,)
        found = p.get("experts", {})
        gated = {f"experts/{e}/": found.get(str(e), {}) for e in range(config.experts)}
    shared = any(name in known for name in _SHARED) and config.get("shared_experts", 1)
    if "shared" in p or (gated and "" not in gated and shared):
        gated["shared/"] = p.get("shared", {})
        if "layers/{i}/mlp/shared/router/weight" in known:
            yield "mlp/shared/router", (1, config.hidden)
    if config.activation == "xielu":
        yield from ((f"mlp/curve/{name}", (1,)) for name in CURVE)
    for name, own in gated.items():
        inner = own.get("down", {}).get("weight", np.zeros((0, 0))).shape[-1]
        gates = ("gate", "up") if "gate" in own or config.get("gated", True) else ("up",)
        sizes = {"gate_up": 2 * inner} if "gate_up" in own else dict.fromkeys(gates, inner)
        yield from ((f"mlp/{name}{part}", (size, config.hidden)) for part, size in sizes.items())
        yield f"mlp/{name}down", (config.hidden, inner)


_SHARED = tuple(f"layers/{{i}}/mlp/shared/{name}/weight" for name in ("up", "gate_up"))


def _rows(tree: Mapping[str, Any], node: str, name: str) -> int:
    """Rows of a weight, 0 of one that is not there."""
    return int(tree.get(node, {}).get(name, {}).get("weight", np.zeros(0)).shape[0])


def _at(tree: Mapping[str, Any], path: str, where: str) -> Mapping[str, Any]:
    node: Any = tree
    for name in path.split("/"):
        node = node.get(name)
        if node is None:
            raise UserError(f"the tensors of {path} are missing", location=where)
    found: Mapping[str, Any] = node
    return found


def _need(tree: Mapping[str, Any], path: str, shape: Shape, where: str) -> None:
    name, _, part = path.rpartition("/")
    name, part = (name, part) if part in _PARTS else (path, "weight")
    node = _at(tree, name, where)
    leaf = node.get(part)
    if leaf is None:
        raise UserError(f"the {part} of {name} is missing", location=where)
    held, is_weight = tuple(leaf.shape), part == "weight"
    # GGUF files have columns of one number.
    flat = part != "bias" and (len(shape) == 1 or isinstance(leaf, np.ndarray))
    if held != shape and not (flat and _plain(held, shape) == _plain(shape, shape)):
        raise _misshapen(name if is_weight else f"{name}, {part}", held, f"{list(shape)}", where)
    if is_weight and node.get("bias") is not None:
        _need(tree, f"{name}/bias", shape[:1], where)


def _plain(held: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of size 1; of what should be a row, its size."""
    return (math.prod(held),) if len(wanted) == 1 else tuple(n for n in held if n != 1)


def _misshapen(name: str, shape: tuple[int, ...], wanted: str, where: str) -> UserError:
    what = f"the tensor of {name} has shape {list(shape)}, the model needs {wanted}"
    return UserError(what, location=where)
