"""If, Loop and Scan."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.base.errors import UserError
from jq.base.from_jax import as_function
from jq.frontends.onnx.registry import Array, Call, operator
from jq.frontends.onnx.validate import trip_count
from jq.frontends.onnx.values import as_jax, is_float, known

_UNROLLED, _FEW = 1024, 64  # trips that are unrolled where they have to be, and in any case
_FIX = "fix the input that decides with --value NAME=V, in Python values={...}"
_ENDLESS = np.iinfo(np.int64).max
# The body of a loop: number of the trip, whether to go on and what is carried -> whether to go on,
# and what is carried and collected.
Trip = Callable[[Any, Any, Any], tuple[Any, list[Any]]]


@operator("If", codes=True, fold=False)
def if_else(condition: Array, *, then_branch: Any, else_branch: Any, node: Call) -> Any:
    """One branch when the condition is known; else both, which have to agree in their shapes.

    A branch is walked once: of branches within branches, each of which is walked twice, the
    innermost would be walked 2^depth times."""
    data = known(condition)
    if data is not None:
        return tuple(node.run(then_branch if data.reshape(-1)[0] else else_branch, ()))

    shapes, refused = [], []
    for name, graph in (("then", then_branch), ("else", else_branch)):

        def branch(graph: Any = graph) -> Any:
            return tuple(map(as_jax, node.run(graph, ())))

        try:
            made, of = jax.make_jaxpr(branch, return_shape=True)()
            shapes.append((as_function(made), of))
        except UserError as error:
            refused.append((name, error))
    if len(refused) == 2:
        raise refused[0][1]
    chosen = jnp.asarray(as_jax(condition)).reshape(()).astype(bool)
    if refused:
        return _only(node, *shapes[0], chosen, *refused[0])
    if [(s.shape, s.dtype) for s in shapes[0][1]] != [(s.shape, s.dtype) for s in shapes[1][1]]:
        what = "its branches give different shapes, and which one is taken depends on the inputs"
        raise node.refuse(what, _FIX)
    return tuple(lax.cond(chosen, shapes[0][0], shapes[1][0]))


def _only(
    node: Call, run: Any, shapes: Any, condition: Any, missing: str, error: UserError
) -> tuple[Any, ...]:
    """The one branch that is possible at these sizes; results say NaN where it is not taken."""
    node.note(f"{node.where}: the {missing} branch is left out: {error.message}")
    taken = condition if missing == "else" else ~condition

    def poison(y: Any) -> Any:
        bad = np.nan if is_float(y.dtype) else np.iinfo(y.dtype).min if y.dtype.kind == "i" else 0
        return jnp.where(taken, y, jnp.asarray(bad, y.dtype))

    return tuple(map(poison, run()))


@operator("Loop", codes=True, fold=False)
def loop(
    trips: Array = None, condition: Array = None, *carried: Array, body: Any, node: Call
) -> Any:
    """Unrolled when it is known how many trips there are, and they are few, since shapes may change
    from one to the next; a scan when they are many; a loop of the program when it is not known.
    Without a condition it runs all trips."""
    most = np.asarray(_ENDLESS) if trips is None else known(trips)
    go = np.asarray(True) if condition is None else known(condition)
    if trips is None and condition is None:
        raise node.refuse("it has neither a number of trips nor a condition, and never ends")

    def trip(i: Any, now: Any, values: Any) -> tuple[Any, list[Any]]:
        again, *rest = node.run(body, [i, now, *values])
        return (now if condition is None else again), rest

    collects = len(body.outputs) - 1 - len(carried)
    if most is not None and go is not None:
        count = int(most.reshape(-1)[0])
        counted: int | None = count
        if condition is not None:
            counted = trip_count(node.run, body, count, bool(go.reshape(-1)[0]), carried)
        if counted is not None:
            return _counted(counted, carried, trip, collects, node)
    if collects:
        raise node.refuse("how many results it collects depends on the model's inputs", _FIX)
    return _while(trips, condition, carried, trip)


def _counted(count: int, carried: Any, trip: Trip, collects: int, node: Call) -> Any:
    if count > _FEW:
        try:
            return _scan_trips(count, carried, trip)
        except (TypeError, UserError):  # shapes change from trip to trip, or are to be known
            if count > _UNROLLED:
                raise
    return _unrolled(count, carried, trip, collects, node)


def _scan_trips(count: int, carried: Any, trip: Trip) -> Any:
    def step(state: Any, i: Any) -> Any:
        _, rest = trip(i, np.asarray(True), state)
        results = tuple(map(as_jax, rest))
        return results[: len(carried)], results[len(carried) :]

    state, kept = lax.scan(step, tuple(map(as_jax, carried)), np.arange(count))
    return (*state, *kept)


def _unrolled(count: int, carried: Any, trip: Trip, collects: int, node: Call) -> Any:
    state = list(carried)
    kept: list[list[Any]] = [[] for _ in range(collects)]
    for i in range(count):
        _, rest = trip(np.asarray(i, np.int64), np.asarray(True), state)
        state = rest[: len(state)]
        for seen, value in zip(kept, rest[len(state) :], strict=True):
            seen.append(as_jax(value))
    if any(not seen for seen in kept):
        raise node.refuse("it runs no iteration, and the shape of what it collects is not known")
    return (*state, *(jnp.stack(seen) for seen in kept))


def _while(trips: Array, condition: Array, carried: Any, trip: Trip) -> Any:
    most = _ENDLESS if trips is None else as_jax(trips).reshape(())
    go = jnp.asarray(True if condition is None else as_jax(condition).reshape(()))
    first = (jnp.zeros((), np.int64), go, tuple(map(as_jax, carried)))

    def again(state: Any) -> Any:
        return state[1] & (state[0] < most)

    def step(state: Any) -> Any:
        i, now, values = state
        go, rest = trip(i, now, values)
        return i + 1, jnp.asarray(as_jax(go)).reshape(()), tuple(map(as_jax, rest))

    return lax.while_loop(again, step, first)[2]


@operator("Scan", codes=True, fold=False)
def scan(*xs: Array, body: Any, num_scan_inputs: int, node: Call) -> Any:
    n = num_scan_inputs
    if node.version < 9:
        return _batched(xs, body, n, node)

    def ways(arrays: Any, kind: str) -> Any:
        """Arrays with the axis of each that is gone along, and whether it is from behind."""
        given = (node.attributes.get(f"scan_{kind}_{what}") for what in ("axes", "directions"))
        return zip(arrays, *(list or [0] * len(arrays) for list in given), strict=True)

    series = [
        _ordered(jnp.moveaxis(as_jax(x), axis, 0), back)
        for x, axis, back in ways(xs[len(xs) - n :], "input")
    ]
    state, results = _scanned(list(map(as_jax, xs[: len(xs) - n])), series, body, node)
    moved = [jnp.moveaxis(_ordered(y, b), 0, axis) for y, axis, b in ways(results, "output")]
    return (*state, *moved)


def _scanned(state: list[Any], series: list[Any], body: Any, node: Call) -> tuple[Any, Any]:
    def step(carry: Any, item: Any) -> Any:
        results = list(map(as_jax, node.run(body, [*carry, *item])))
        return tuple(results[: len(carry)]), tuple(results[len(carry) :])

    return lax.scan(step, tuple(state), tuple(series))


def _batched(xs: Any, body: Any, n: int, node: Call) -> Any:
    """Version 8: an optional input of lengths, then all inputs with a leading batch axis."""
    lengths, *rest = xs
    if lengths is not None:
        raise node.refuse("sequence lengths of version 8 are not supported")
    rest = list(map(as_jax, rest))
    ways = zip(rest[len(rest) - n :], node.attributes.get("directions") or [0] * n, strict=True)
    series = [jnp.flip(x, 1) if back else x for x, back in ways]
    state, results = jax.vmap(lambda s, x: _scanned(list(s), list(x), body, node))(
        tuple(rest[: len(rest) - n]), tuple(series)
    )
    return (*state, *results)


def _ordered(x: Any, backwards: int) -> Any:
    return jnp.flip(x, 0) if backwards else x
