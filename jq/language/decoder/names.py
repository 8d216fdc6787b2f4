"""From the names of a file's tensors to the tree of parameters, whose shapes the config gives."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats.base import Encoding
from jq.formats.tensor import QuantizedTensor
from jq.language.decoder.architectures import Architecture
from jq.language.decoder.config import Config
from jq.language.decoder.mixers import Mixer
from jq.models._tree import nest

Leaf = np.ndarray | QuantizedTensor


def tensor_tree(
    names: Mapping[str, str],
    tensors: Mapping[str, Leaf],
    config: Config,
    where: str,
    split: Callable[[Leaf], list[Leaf]] | None = None,
    swapped: Collection[str] = (),
) -> dict[str, Any]:
    """The tree of parameters, named as `architectures` says.

    Args:
        names: our name -> the file's, with `{i}` for layers and `{e}` for experts; a `*` in ours
            is for a tensor that `split` cuts into those of the experts.
        swapped: names of ours whose matrices the file holds as [in, out].
        where: the file, for messages.

    Raises:
        UserError: a tensor has a name that is not known.
    """
    apart = any("{e}" in theirs for theirs in names.values())
    if apart and config.layers * config.experts > len(tensors):  # before all are named
        raise UserError(
            f"{config.layers} layers of {config.experts} experts are not in {len(tensors)} tensors",
            location=where,
        )
    ours = dict(expanded(names, config))
    turned = {theirs for theirs, _ in expanded({n: names[n] for n in swapped}, config)}
    flat: dict[str, Leaf] = {}
    for theirs, leaf in tensors.items():
        name = ours.get(theirs)
        if name is None:
            raise UserError(
                f"the tensor {theirs!r} has no place in the architecture {config.architecture}",
                location=where,
                hint=f"the model has {config.layers} layers",
            )
        if "*" in name and split:
            if len(leaf.shape) < 2 or leaf.shape[0] != config.experts:
                raise _misshapen(theirs, leaf.shape, f"a stack of {config.experts} experts", where)
            for e, part in enumerate(split(leaf)):
                if theirs in turned and isinstance(part, np.ndarray):
                    part = part.T
                flat[name.replace("*", str(e))] = part
        else:
            flat[name] = leaf
    return nest(flat)


def expanded(names: Mapping[str, str], config: Config) -> Iterator[tuple[str, str]]:
    """The file's name of every tensor that could be there, and ours."""
    for ours, theirs in names.items():
        layers = range(config.layers) if "{i}" in theirs else (0,)
        experts = range(config.experts) if "{e}" in theirs else (0,)
        for i in layers:
            for e in experts:
                yield theirs.format(i=i, e=e), ours.format(i=i, e=e)


def stacked(leaf: Leaf) -> list[Leaf]:
    """A stack [experts, ...] as its parts, over the same memory."""
    if not isinstance(leaf, QuantizedTensor):
        return list(leaf)
    enc = leaf.encoding
    one = Encoding(enc.format, enc.shape[1:], enc.block[1:])
    return [
        QuantizedTensor(one, {name: part[i] for name, part in leaf.parts.items()}, leaf.name)
        for i in range(enc.shape[0])
    ]


def add_scales(tree: dict[str, Any], scales: Mapping[str, Any], config: Config, where: str) -> None:
    """Puts what results of products are multiplied by beside their weights; names as in
    `architectures`."""
    for name, scale in scales.items():
        for i in range(config.layers) if "{i}" in name else (0,):
            node = tree
            for part in name.format(i=i).split("/"):
                node = node.setdefault(part, {})
            node["scale"] = np.asarray(scale, np.float32)
            if node["scale"].shape not in ((), tuple(node["weight"].shape[:1])):
                raise _misshapen(f"{name}, scale", node["scale"].shape, "one a row", where)


# What a layer must have where the architecture names it, and the field of the config that is its
# size; 1 without one.
_NAMED = {"attention/norm_after": "hidden", "mlp/norm_after": "hidden", "scalar": ""}


def check_shapes(
    config: Config, tree: Mapping[str, Any], names: Mapping[str, str], where: str
) -> None:
    """Raises `UserError` when a tensor is missing or has a shape that the config does not give.
    `names` of the file say which norms a block begins with."""
    known = Architecture.registry[config.architecture].hugging_face
    _need(tree, "embed", (config.vocabulary, config.hidden), where)
    _need(tree, "norm", (config.hidden,), where)
    if "head" in tree:
        _need(tree, "head", (config.vocabulary, config.hidden), where)
    if width := config.get("per_layer"):
        wide, rows = config.layers * width, config.get("per_layer_vocabulary") or config.vocabulary
        shapes = {"table": (rows, wide), "projection": (wide, config.hidden), "norm": (width,)}
        _need_all(tree, "per_layer", shapes, where)
    count, square = config.get("streams"), (config.hidden, config.hidden)
    for name in [f"{node}/{i}" for node in ("spread", "gather") for i in range(count - 1)]:
        _need(_at(tree, name.partition("/")[0], where), name.partition("/")[2], square, where)
    for i in range(config.layers):
        layer = _at(tree, f"layers/{i}", where)
        if count:
            _check_streams(config, layer, count, where)
        if width:
            shapes = {"gate": (width, config.hidden), "projection": (config.hidden, width)}
            _need_all(layer, "per_layer", {**shapes, "norm": (config.hidden,)}, where)
        for block in ("attention", "mlp"):
            node = _at(layer, block, where)
            needed = f"layers/{{i}}/{block}/norm/weight" in names
            if "norm" in node or (needed and not (config.parallel and block == "mlp")):
                _need(node, "norm", (config.hidden,), where)
        for name, size in _NAMED.items():
            if f"layers/{{i}}/{name}/weight" in known:
                _need(layer, name, (getattr(config, size) if size else 1,), where)
        for name in config.mixers[i]:
            node = layer.get(name, layer["attention"])
            for tensor, shape in Mixer.registry[name].shapes(config, node).items():
                if tensor.endswith("/bias"):
                    name = tensor.removesuffix("/bias")
                    _need_part(_at(node, name, where), "bias", shape, name, where)
                else:
                    _need(node, tensor, shape, where)
        _check_feed_forward(config, _at(layer, "mlp", where), known, where)


def _check_streams(config: Config, layer: Mapping[str, Any], count: int, where: str) -> None:
    hidden, rank = config.hidden, config.get("rank")
    shapes = {"predict": (count**2, count), "correct": (count, count), "router": (count, hidden)}
    _need_all(layer, "streams", {**shapes, "norm": (hidden,), "scale": (hidden,)}, where)
    beside = {"left": (rank, hidden), "right": (hidden, rank), "norm": (hidden,)}
    _need_all(layer, "beside", beside, where)


def _check_feed_forward(
    config: Config, p: Mapping[str, Any], known: Mapping[str, str], where: str
) -> None:
    if "experts" in p or "router" in p:
        _need(p, "router", (config.experts, config.hidden), where)
        if "layers/{i}/mlp/router/preference" in known:
            _need_part(p["router"], "preference", (config.experts,), "router", where)
        if "layers/{i}/mlp/shared/up/weight" in known:
            _at(p, "shared", where)
        for e in range(config.experts):
            _check_gated(config, _at(p, f"experts/{e}", where), where)
    if "shared" in p:
        _check_gated(config, p["shared"], where)
        if "layers/{i}/mlp/shared/router/weight" in known:
            _need(p["shared"], "router", (1, config.hidden), where)
    if not {"experts", "shared"} & p.keys():
        _check_gated(config, p, where)


def _check_gated(config: Config, p: Mapping[str, Any], where: str) -> None:
    """Their width is that of what comes behind the gate: files of some models name no width."""
    inner = _at(p, "down", where).get("weight", np.zeros((0, 0))).shape[-1]
    if "gate_up" in p:
        _need(p, "gate_up", (2 * inner, config.hidden), where)
    else:
        for name in ("gate", "up") if "gate" in p or config.get("gated", True) else ("up",):
            _need(p, name, (inner, config.hidden), where)
    _need(p, "down", (config.hidden, inner), where)


def _at(tree: Mapping[str, Any], path: str, where: str) -> Mapping[str, Any]:
    node: Any = tree
    for name in path.split("/"):
        node = node.get(name)
        if node is None:
            raise UserError(f"the tensors of {path} are missing", location=where)
    found: Mapping[str, Any] = node
    return found


def _need_all(
    tree: Mapping[str, Any], path: str, shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    node = _at(tree, path, where)
    for name, shape in shapes.items():
        _need(node, name, shape, where)


def _need(tree: Mapping[str, Any], name: str, shape: tuple[int, ...], where: str) -> None:
    node = _at(tree, name, where)
    leaf = node.get("weight")
    if leaf is None:
        raise UserError(f"the weight of {name} is missing", location=where)
    held = tuple(leaf.shape)
    flat = len(shape) == 1 or isinstance(leaf, np.ndarray)  # GGUF files have columns of one number
    if held != shape and not (flat and _plain(held, shape) == _plain(shape, shape)):
        raise _misshapen(name, leaf.shape, f"{list(shape)}", where)
    if node.get("bias") is not None:
        _need_part(node, "bias", shape[:1], name, where)


def _need_part(
    node: Mapping[str, Any], part: str, shape: tuple[int, ...], name: str, where: str
) -> None:
    leaf = node.get(part)
    if leaf is None:
        raise UserError(f"the {part} of {name} is missing", location=where)
    if tuple(leaf.shape) != shape:
        raise _misshapen(f"{name}, {part}", leaf.shape, f"{list(shape)}", where)


def _plain(held: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of size 1; of what should be a row, its size."""
    if len(wanted) == 1:
        return (math.prod(held),)
    return tuple(n for n in held if n != 1)


def _misshapen(name: str, shape: tuple[int, ...], wanted: str, where: str) -> UserError:
    return UserError(
        f"the tensor of {name} has shape {list(shape)}, the model needs {wanted}", location=where
    )
