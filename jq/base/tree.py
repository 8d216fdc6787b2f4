"""Pytree structures as plain JSON, so that a saved program gives back what the function gave.

A structure is `{"leaf": i}`, `{"none": true}`, `{"tuple": [...]}`, `{"list": [...]}`, `{"dict":
[[key, structure], ...]}` or, for other containers and dicts whose keys are no strings or numbers,
`{"leaves": [i, ...]}`: given as they are, or as any with as many leaves; come back as tuples."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jq.base.errors import UserError

Structure = Mapping[str, Any]
_DEEPEST = 80  # of a structure: JSON has up to three levels for each, and readers allow 255


def leaves_of(value: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    return jax.tree.leaves(value)


def describe(value: Any) -> Structure:
    """The structure of a tree whose leaves are their own positions (integers)."""
    if isinstance(value, int):
        return {"leaf": value}
    if value is None:
        return {"none": True}
    if isinstance(value, Mapping) and all(map(_in_json, value)):
        return {"dict": [[key, describe(child)] for key, child in value.items()]}
    if isinstance(value, list):
        return {"list": [describe(child) for child in value]}
    if isinstance(value, tuple):
        return {"tuple": [describe(child) for child in value]}
    leaves = jax.tree.leaves(value)
    if not all(isinstance(leaf, int) for leaf in leaves):
        raise TypeError(type(value).__name__)
    return {"leaves": leaves}


def _in_json(key: Any) -> bool:
    """True of a text or number that JSON gives back: no lone surrogate, no NaN."""
    try:
        text = json.dumps(key, ensure_ascii=False, allow_nan=False).encode()
        return isinstance(key, str | int | float) and bool(json.loads(text) == key)
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True)
class WithParts:
    """A tree definition some of whose leaves became dicts of `parts`.

    Attributes:
        tree: the definition it was, of `count` leaves; None for a flat tuple.
        held: which leaves."""

    tree: Any
    count: int
    held: tuple[int, ...]
    parts: tuple[str, ...]

    @property
    def num_leaves(self) -> int:
        return self.count + len(self.held) * (len(self.parts) - 1)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        rest: Iterator[Any] = iter(leaves)
        whole = [
            {part: next(rest) for part in self.parts} if i in self.held else next(rest)
            for i in range(self.count)
        ]
        return tuple(whole) if self.tree is None else self.tree.unflatten(whole)


def check_depth(treedef: Any, what: str) -> None:
    """Raises `UserError` for a JAX tree definition that is too deep to be saved."""
    level = [treedef] if treedef is not None else []
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.children()]
        if not level:
            return
    raise _too_deep(what)


def check_nesting(value: Any, what: str) -> None:
    """Raises `UserError` for a tree that is too deep to be saved, or that JAX cannot read."""
    check_depth(treedef_of(value, what), what)


def treedef_of(value: Any, what: str) -> Any:
    """JAX's definition of a tree; `UserError` for one that it cannot read.

    Older versions of JAX raise a `SystemError` where they run out of stack."""
    try:
        return jax.tree.structure(value)
    except (RecursionError, SystemError) as error:
        raise _too_deep(what) from error
    except (TypeError, ValueError) as error:  # dicts are sorted by their keys
        reason = str(error).partition("\n")[0]
        hint = "the keys of a dict are all texts, or all numbers"
        raise UserError(f"{what} cannot be flattened: {reason}", hint=hint) from error


def _too_deep(what: str) -> UserError:
    return UserError(
        f"{what} are nested more than {_DEEPEST} containers deep",
        hint="give them as a tuple or a dict of arrays",
    )


def structure_of(treedef: Any, count: int = 0) -> Structure:
    """The structure of a JAX tree definition.

    A flat tuple where a container refuses integers as leaves, and of `count` leaves where there is
    no tree (a program that came from a file)."""
    if treedef is None:
        return {"tuple": [{"leaf": i} for i in range(count)]}
    count = treedef.num_leaves
    try:
        return describe(treedef.unflatten(list(range(count))))
    except Exception:  # each container in its own way
        return {"tuple": [{"leaf": i} for i in range(count)]}


def check_structure(structure: Any, count: int) -> None:
    """Raises `ValueError` for anything but a structure of `count` leaves: a file may hold more."""
    leaves: list[int] = []
    _check(structure, leaves, _DEEPEST)
    if sorted(leaves) != list(range(count)):
        raise ValueError(f"a structure of {len(leaves)} leaves for {count} tensors")


def _check(structure: Any, leaves: list[int], depth: int) -> None:
    if not isinstance(structure, Mapping) or len(structure) != 1 or not depth:
        raise ValueError("it is no structure, or a very deep one")
    ((kind, content),) = structure.items()
    if kind == "leaf":
        content, kind = [content], "leaves"
    children: list[Any] = []
    if kind == "dict" and isinstance(content, Sequence):
        for pair in content:
            whole = isinstance(pair, Sequence) and len(pair) == 2
            if not whole or not isinstance(pair[0], str | int | float):
                raise ValueError("a dict of a structure has pairs of a key and a structure")
        children = [child for _, child in content]
    elif kind in ("list", "tuple") and isinstance(content, list):
        children = content
    elif kind == "leaves" and isinstance(content, list) and all(type(i) is int for i in content):
        leaves.extend(content)
    elif kind != "none":
        raise ValueError(f"{str(kind)!r:.40} is no structure")
    for child in children:
        _check(child, leaves, depth - 1)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The tree of `structure` with these leaves."""
    ((kind, content),) = structure.items()
    if kind == "leaf":
        return leaves[content]
    if kind == "none":
        return None
    if kind == "dict":
        return {key: unflatten(child, leaves) for key, child in content}
    if kind == "leaves":
        return tuple(leaves[i] for i in content)
    children = [unflatten(child, leaves) for child in content]
    return children if kind == "list" else tuple(children)


def flatten(structure: Structure, value: Any) -> list[Any]:
    """The leaves of `value`, which must have this structure; `ValueError` says where it has not."""
    leaves: dict[int, Any] = {}
    _collect(structure, value, "", leaves)
    return [leaves[i] for i in sorted(leaves)]


def _collect(structure: Structure, value: Any, path: str, leaves: dict[int, Any]) -> None:
    ((kind, content),) = structure.items()
    if kind == "leaf":
        leaves[content] = value
    elif kind == "dict":
        if not isinstance(value, Mapping) or set(value) != {key for key, _ in content}:
            raise ValueError(f"{path or 'input'} must be a dict of {[k for k, _ in content]}")
        for key, child in content:
            _collect(child, value[key], f"{path}/{key}", leaves)
    elif kind == "leaves":
        arrays = jax.tree.leaves(value)
        if len(arrays) != len(content):
            raise ValueError(f"{path or 'input'} must be {len(content)} arrays, not {len(arrays)}")
        leaves.update(zip(content, arrays, strict=True))
    elif kind in ("list", "tuple"):
        if not isinstance(value, Sequence) or len(value) != len(content):
            raise ValueError(f"{path or 'input'} must be a {kind} of {len(content)}")
        for i, child in enumerate(content):
            _collect(child, value[i], f"{path}/{i}", leaves)
