"""Drawn networks of integers as TOSA, TFLite and ONNX, in their own references: the same bits?

    scripts/suite.py exports                      # 300 networks in six forms
    scripts/suite.py exports --count 10 --seed 300

What is refused is counted by its reason. The exit code is 1 where a bit differs. Needs the extra
`export` and tosa-tools. Whole networks: `scripts/check.py exports`.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from suites.exported import Outcome, outcomes, quickly


def main(
    count: Annotated[int, typer.Option(help="Networks that are drawn.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the first of them.")] = 0,
) -> None:
    quickly()
    equal, refused, wrong = Counter[str](), Counter[str](), list[Outcome]()
    for number in range(seed, seed + count):
        every = list(outcomes(number))
        counts = Counter("refused" if o.refused else "WRONG" if o.wrong else "equal" for o in every)
        print(f"{number}: {', '.join(f'{n} {what}' for what, n in counts.items())}", flush=True)
        for found in every:
            form = f"{found.suffix} {found.target} {found.codes}"
            equal[form] += not found.refused and not found.wrong
            if found.refused:
                refused[f"{form}: {found.refused.partition(' [')[0]}"] += 1
            if found.wrong:
                wrong.append(found)
                print(f"WRONG {found}", flush=True)
    for form, times in equal.items():
        print(f"{form}: {times} of {count} equal")
    for reason, times in refused.most_common():
        print(f"  refused {times} times: {reason}")
    print(f"{len(wrong)} wrong")
    raise typer.Exit(int(bool(wrong)))
