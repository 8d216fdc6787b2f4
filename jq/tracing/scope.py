"""The path that an op was traced under, read from its location."""

from __future__ import annotations

import re

from jq.ir import ir

# What JAX's own machinery adds to a path and says nothing about the model.
_NOISE = frozenset(
    [
        *("while", "body", "scan", "closed_call", "core_call", "jit", "pjit", "checkpoint"),
        *("remat", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    ]
)
_WRAPPER = re.compile(r"^[\w.]+\((.*)\)$")


def scope(location: ir.Location) -> str:
    """The name in a location (`jit(f)/layer1/dot_general`), empty when it has none."""
    if isinstance(location, ir.NameLoc):
        return str(location.name_str)
    if isinstance(location, ir.FusedLoc):
        return next(filter(None, map(scope, location.locations)), "")
    if isinstance(location, ir.CallSiteLoc):
        return scope(location.callee)
    return ""


def join(*parts: str) -> ir.Location:
    """A location under the joined path; needs a current context."""
    return ir.Location.name("/".join(filter(None, parts)))


def clean_scope(path: str) -> str:
    """`jit(f)/while/body/jit(block)/attn/dot_general` -> `block/attn/dot_general`."""
    parts = [part for part in _split(path) if part]
    if parts and _WRAPPER.match(parts[0]):
        parts = parts[1:]  # the function that was traced
    cleaned = []
    for part in parts:
        while match := _WRAPPER.match(part):
            part = match.group(1)
        if part and part not in _NOISE:
            cleaned.append(part)
    return "/".join(cleaned)


def _split(path: str) -> list[str]:
    """At slashes outside of parentheses."""
    return re.split(r"/(?![^()]*\))", path)
