"""Regular expressions that come from files: some take longer on a short text than anybody lives."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from jq.base.errors import UserError
from jq.base.guard.worker import WORKER

LONGEST = 10_000  # characters of a pattern
SECONDS = 5.0  # that all texts together may take
_SHORT = 1000  # characters of a text that a simple pattern is quick on
_spent: dict[str, float] = defaultdict(float)  # seconds, by pattern


def check_pattern(pattern: str) -> None:
    """Raises `ValueError` for what is no regular expression, or no sensible one."""
    if len(pattern) > LONGEST:
        raise ValueError(f"it has {len(pattern)} characters, at most {LONGEST} are read")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{error}") from error


@lru_cache(maxsize=1 << 16)
def matches_any(pattern: str, texts: tuple[str, ...]) -> bool:
    """True if a whole one of the texts is a match.

    Only a pattern whose time is known to be short is tried here; others are tried in a process
    that has limits (`jq.base.guard`).

    Raises:
        UserError: it takes too long."""
    if _is_simple(pattern) and max(map(len, texts), default=0) <= _SHORT:
        return _any(pattern, texts)
    data, where = json.dumps(texts).encode(), f"the pattern {pattern!r:.200}"
    found, seconds = WORKER.ask(f"{__name__}:timed", data, where, pattern=pattern)
    _spent[pattern] += seconds
    if _spent[pattern] > SECONDS:
        raise UserError(f"matching names takes more than {SECONDS:g} s", location=where)
    return bool(found)


def timed(data: bytes, pattern: str) -> tuple[bool, float]:
    """True if one of the texts matches, and the seconds of the processor that it took. Runs in a
    process that has limits."""
    start = time.process_time()
    return _any(pattern, json.loads(data)), time.process_time() - start


def _any(pattern: str, texts: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, text) for text in texts)


def _is_simple(pattern: str) -> bool:
    """Few repetitions, none of a group: at most quadratic time."""
    repeats = sum(pattern.count(character) for character in "*+?{")
    return repeats <= 2 and not re.search(r"\)[*+?{]", pattern)
