"""The outcome of a case, and the tables of many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RIGHT = "right"
REFUSED = "refused"  # by a `UserError`
WRONG = "wrong"
FAILED = "failed"  # any other error: a compiler's message, or a bug of ours
CRASHED = "crashed"  # the process died, or hung
SKIPPED = "skipped"  # JAX itself does not run it
# How the error begins of a program that was compiled and did not run: no refusal.
DID_NOT_RUN = "the compiled module failed"
VERDICTS = (RIGHT, REFUSED, WRONG, FAILED, CRASHED, SKIPPED)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        group, name: of the case.
        verdict: one of `VERDICTS`.
        reason: the error's message, or where the results differ.
    """

    group: str
    name: str
    verdict: str
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by group, those that are all right in one line."""
    by_group: dict[str, Counter[str]] = defaultdict(Counter)
    for found in outcomes:
        by_group[found.group][found.verdict] += 1
    lines = [
        f"{group:32}" + ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
        for group, counts in sorted(by_group.items())
        if set(counts) - {RIGHT}
    ]
    whole = sum(set(counts) <= {RIGHT} for counts in by_group.values())
    total = Counter(found.verdict for found in outcomes)
    lines.append(f"{whole} other groups are right")
    lines.append(f"{len(outcomes)} cases: " + ", ".join(f"{total[v]} {v}" for v in VERDICTS))
    return "\n".join(lines)


def reasons(outcomes: Iterable[Outcome]) -> list[tuple[str, str, int, str]]:
    """Verdict, reason, how many cases, and one of them; of those that are not right."""
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.verdict not in (RIGHT, SKIPPED):
            key = outcome.group if outcome.verdict == WRONG else outcome.reason
            found[outcome.verdict, key].append(outcome)
    return [
        (verdict, cases[0].reason, len(cases), f"{cases[0].group}: {cases[0].name}")
        for (verdict, _), cases in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
