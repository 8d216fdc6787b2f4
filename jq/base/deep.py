"""Recursion over values, as deep as programs are long.

    @deep
    def is_stored(value):
        ...
        for operand in operands:
            if (yield (operand,)):  # what `is_stored(operand)` gives
                return True
        return False

A model whose loops are unrolled is a chain of thousands of ops, and Python's stack ends at a
thousand calls. A function that calls itself is therefore written as a generator: it yields the
arguments of each call and is sent the result. Each call is made once, so that a value which two ops
read is not followed twice, and forty additions of a value to itself take forty steps."""

from collections.abc import Callable, Generator, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Steps = Generator[tuple[Any, ...], Any, R]  # yields arguments, is sent results, returns its own


def deep(body: Callable[P, Steps[R]]) -> Callable[P, R]:
    """The function that `body` describes; all arguments are positional and can be hashed."""

    start: Callable[..., Steps[R]] = body

    @wraps(body)
    def call(*args: Any, **kwargs: Any) -> R:
        known: dict[tuple[Any, ...], Any] = {}
        open_calls = [(args, start(*args, **kwargs))]
        result: Any = None
        while open_calls:
            asked, steps = open_calls[-1]
            try:
                wanted = steps.send(result)
            except StopIteration as end:
                open_calls.pop()
                known[asked] = result = end.value
                continue
            result = known.get(wanted)
            if wanted not in known:
                open_calls.append((wanted, start(*wanted)))
        return result

    return call


def every(calls: Iterable[tuple[Any, ...]]) -> Steps[list[Any] | None]:
    """The results of all calls, by `yield from` in such a body; None as soon as one gives None."""
    results = []
    for arguments in calls:
        if (result := (yield arguments)) is None:
            return None
        results.append(result)
    return results
