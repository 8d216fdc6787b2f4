"""From the names of a file's tensors to the tree of parameters, whose shapes the config gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats.tensor import QuantizedTensor
from jq.language.decoder.config import Config
from jq.models._tree import nest

Leaf = np.ndarray | QuantizedTensor


def tensor_tree(
    names: Mapping[str, str],
    tensors: Mapping[str, Leaf],
    config: Config,
    where: str,
    split: Callable[[Leaf], list[Leaf]] | None = None,
) -> dict[str, Any]:
    """The tree of parameters, named as `architectures` says.

    Args:
        names: our name -> the file's, with `{i}` for layers and `{e}` for experts; a `*` in ours
            is for a tensor that `split` cuts into those of the experts.
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
            if len(leaf.shape) != 3 or leaf.shape[0] != config.experts:
                raise _misshapen(theirs, leaf.shape, f"a stack of {config.experts} experts", where)
            for e, part in enumerate(split(leaf)):
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


def check_shapes(config: Config, tree: Mapping[str, Any], where: str) -> None:
    """Raises `UserError` when a tensor is missing or has a shape that the config does not give."""
    _need(tree, "embed", (config.vocabulary, config.hidden), where)
    _need(tree, "norm", (config.hidden,), where)
    if "head" in tree:
        _need(tree, "head", (config.vocabulary, config.hidden), where)
    for i in range(config.layers):
        layer = _at(tree, f"layers/{i}", where)
        _check_attention(config, _at(layer, "attention", where), where)
        mlp = _at(layer, "mlp", where)
        _need(mlp, "norm", (config.hidden,), where)
        if config.experts:
            _need(mlp, "router", (config.experts, config.hidden), where)
            for e in range(config.experts):
                _check_gated(config, _at(mlp, f"experts/{e}", where), where)
        else:
            _check_gated(config, mlp, where)


def _check_attention(config: Config, p: Mapping[str, Any], where: str) -> None:
    wide, shared = config.heads * config.head, config.kv_heads * config.head
    _need(p, "norm", (config.hidden,), where)
    if "qkv" in p:
        _need(p, "qkv", (wide + 2 * shared, config.hidden), where)
    else:
        for name, size in (("query", wide), ("key", shared), ("value", shared)):
            _need(p, name, (size, config.hidden), where)
    _need(p, "output", (config.hidden, wide), where)
    for name in ("query_norm", "key_norm"):
        if name in p:
            _need(p, name, (config.head,), where)
    if ("query_norm" in p) != ("key_norm" in p):
        raise UserError("a norm of queries or of keys is missing", location=where)


def _check_gated(config: Config, p: Mapping[str, Any], where: str) -> None:
    if "gate_up" in p:
        _need(p, "gate_up", (2 * config.inner, config.hidden), where)
    else:
        _need(p, "gate", (config.inner, config.hidden), where)
        _need(p, "up", (config.inner, config.hidden), where)
    _need(p, "down", (config.hidden, config.inner), where)


def _at(tree: Mapping[str, Any], path: str, where: str) -> Mapping[str, Any]:
    node: Any = tree
    for name in path.split("/"):
        node = node.get(name)
        if node is None:
            raise UserError(f"the tensors of {path} are missing", location=where)
    found: Mapping[str, Any] = node
    return found


def _need(tree: Mapping[str, Any], name: str, shape: tuple[int, ...], where: str) -> None:
    node = _at(tree, name, where)
    leaf = node.get("weight")
    if leaf is None:
        raise UserError(f"the weight of {name} is missing", location=where)
    if tuple(leaf.shape) != shape:
        raise _misshapen(name, leaf.shape, f"{list(shape)}", where)
    bias = node.get("bias")
    if bias is not None and tuple(bias.shape) != shape[:1]:
        raise _misshapen(f"{name}, bias", bias.shape, f"{list(shape[:1])}", where)


def _misshapen(name: str, shape: tuple[int, ...], wanted: str, where: str) -> UserError:
    return UserError(
        f"the tensor of {name} has shape {list(shape)}, the model needs {wanted}", location=where
    )
