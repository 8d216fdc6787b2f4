"""Parts of JAX beyond its ordinary, documented functions, all in one place.

Each release of JAX may move a private or experimental module, the options of its compiler, or the
words of the paths that it writes into locations. All of these are read here and nowhere else, and
`tests/base/test_from_jax.py` has a test for each: where a new JAX differs, this file is what
changes (docs/internals/jax.md)."""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import export
from jax.extend.backend import get_compile_options
from jax.extend.core import jaxpr_as_fun
from jaxlib.mlir import ir

from jq.base.errors import UserError
from jq.base.system.threads import never_released

# Words that JAX's own transformations add to a path and that say nothing about the model. JAX 0.10
# writes the body of a scan as `closed_call`, JAX 0.11 and 0.12 as `eval_jaxpr`.
_OWN_WORDS = frozenset(
    [
        *("while", "body", "scan", "closed_call", "core_call", "eval_jaxpr", "jit", "pjit", "pmap"),
        *("checkpoint", "remat", "remat2", "rematted_computation", "shard_map", "call_exported"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call"),
    ]
)
_WRAPPER = re.compile(r"^[\w.]+\((.*)\)$")
ONE_DEVICE = (
    "trace it under a mesh of one device, or give the function of one, without shard_map or pmap"
)
TASKS = "/proc/self/task"  # on Linux: the threads of this process
_VALUE = jax.tree_util.GetAttrKey("value")


def new_context() -> ir.Context:
    """An MLIR context with the dialects that JAX lowers to."""
    from jax._src.interpreters import mlir

    return mlir.make_ir_context()


def load_by_xla(module: bytes, device: Any, options: Mapping[str, str] | None = None) -> Any:
    """The executable that XLA compiles a module's bytecode to, for one device.

    Raises:
        jax.errors.JaxRuntimeError: XLA refuses the module."""
    given = get_compile_options(1, 1, env_options_overrides=dict(options or {}))
    return device.client.compile_and_load(module, [device], given)


def clients() -> list[Any]:
    """XLA's clients, each with threads of its own, that JAX has started in this process."""
    from jax._src import xla_bridge

    return list(xla_bridge._backends.values())


_lost = False  # in a forked child: JAX ran in the parent, whose threads it would wait for


def _in_a_child() -> None:
    """JAX lowers with threads of its own again; what its parent has started is never released."""
    global _lost
    from jax._src.interpreters import mlir

    _lost = _lost or bool(clients())
    never_released([*clients(), mlir.global_thread_pool])
    mlir.global_thread_pool = ir.ThreadPool()


os.register_at_fork(after_in_child=_in_a_child)
if clients() and os.path.isdir(TASKS) and len(os.listdir(TASKS)) <= threading.active_count():
    _in_a_child()  # of a fork before this was imported: XLA's clients have threads


def check_threads() -> None:
    """Raises `UserError` where XLA would wait for ever for threads that only the parent has."""
    if _lost:
        what = "this process was forked from one in which JAX ran, whose threads it has not"
        hint = "start it with multiprocessing's `spawn` or `forkserver`, or before that"
        raise UserError(what, hint=hint)


def with_shapes(module: bytes) -> bytes:
    """A module's bytecode whose `@main` has arguments of fixed shapes, with the shapes of all its
    values that follow from them, and without checks of shapes.

    Raises:
        ValueError: a check of shapes fails, or shapes are not compatible."""
    from jaxlib import _jax

    refined: bytes = _jax.mlir.refine_polymorphic_shapes(
        module, enable_shape_assertions=True, validate_static_shapes=False, enable_shardy=True
    )
    return refined


def calling_conventions() -> tuple[int, int]:
    """The oldest and the newest convention of files of `jax.export` that this JAX reads."""
    return (
        export.minimum_supported_calling_convention_version,
        export.maximum_supported_calling_convention_version,
    )


def as_function(jaxpr: Any) -> Callable[..., list[Any]]:
    """Turns the result of `jax.make_jaxpr` into a function of flat arguments."""
    return jaxpr_as_fun(jaxpr)


def said(**facts: str) -> Any:
    """A context in which what is traced says this of itself (`mhlo.frontend_attributes`)."""
    from jax.experimental.xla_metadata import set_xla_metadata  # rarely needed

    return set_xla_metadata(**facts)


def without_errors(program: Callable[..., Any]) -> Callable[..., Any]:
    """`program` with its checks (`checkify.check`) dropped."""
    from jax.experimental import checkify  # rarely needed

    checked = checkify.checkify(program, errors=frozenset())
    return lambda *args: checked(*args)[1]


def of_mesh(error: BaseException) -> str | None:
    """A hint for what JAX says of a mesh that has more devices than there are."""
    told = isinstance(error, ValueError) and "mesh_shape" in str(error)
    return f"a compiled program runs on one device: {ONE_DEVICE}" if told else None


def reads_escaped(traced: Any) -> bool:
    """True of what reads a traced value which left the function that computed it."""
    return any(isinstance(x, jax.core.Tracer) for x in getattr(traced, "_consts", ()))


def leaf_name(path: Sequence[Any]) -> str:
    """`layer1/0/kernel` for the path of a leaf, in UTF-8; empty for a tree that is a leaf."""
    name = jax.tree_util.keystr(tuple(path), simple=True, separator="/")
    return name.encode("utf-8", "backslashreplace").decode()


def position(key: Any) -> int | None:
    """The index of a part of a leaf's path in a tuple or list; None for a key of other kind."""
    return key.idx if isinstance(key, jax.tree_util.SequenceKey) else None


def is_value(key: Any) -> bool:
    """True if a part of a leaf's path is the attribute `value`, as of a box around one array."""
    return bool(key == _VALUE)


def scope(location: ir.Location) -> str:
    """The name in a location (`jit(f)/layer1/dot_general`), empty when it has none."""
    if isinstance(location, ir.NameLoc):
        return str(location.name_str)
    if isinstance(location, ir.FusedLoc):
        return next(filter(None, map(scope, location.locations)), "")
    return scope(location.callee) if isinstance(location, ir.CallSiteLoc) else ""


def join(*parts: str) -> ir.Location:
    """A location under the joined path; needs a current context."""
    return ir.Location.name("/".join(filter(None, parts)))


def clean_scope(path: str) -> str:
    """The path of a model's own scopes, without what JAX adds for its transformations.

    `jit(f)/while/body/eval_jaxpr/jit(block)/vmap(attn)/dot_general` -> `block/attn/dot_general`."""
    parts = _split(path)
    if parts and _WRAPPER.match(parts[0]):
        parts = parts[1:]  # the function that was traced
    cleaned = []
    for part in parts:
        inside = part
        while match := _WRAPPER.match(inside):
            inside = match.group(1)
        cleaned += [inside] if inside == part else _split(inside)
    return "/".join(part for part in cleaned if part not in _OWN_WORDS)


def _split(path: str) -> list[str]:
    """The parts that are not empty, at slashes outside of parentheses."""
    parts, depth = [""], 0
    for char in path:
        depth += (char == "(") - (char == ")")
        if char == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]
