"""Pipelines and ranges that take time or memory out of all proportion."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from jq.base.errors import UserError
from jq.base.guard import patterns
from jq.base.guard.limits import Limits, limited
from jq.cli.calibrate import merged
from jq.passes.pipeline import load_pipeline
from jq.target.rules import Rule, parse_rule

FOREVER = "re:" + ".*" * 25 + "#"  # which no name matches


def test_a_pattern_that_takes_for_ever() -> None:
    rule = Rule(pattern=FOREVER, override={"format": "float"})
    start = time.monotonic()
    with limited(Limits(seconds=1)), pytest.raises(UserError, match=r"took more than 1 s .*#"):
        rule.matches(("layers/0/attention/query/dot_general", "dot_general"))
    assert time.monotonic() - start < 60
    assert rule.matches(("#",))


def test_patterns_that_take_long_on_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", -1.0)
    with pytest.raises(UserError, match="matching names takes more than -1 s"):
        Rule(pattern="re:(a|b)*", override={}).matches(("ab", "c"))


@pytest.mark.parametrize("pattern", ["layers/[0-3]/.*", "(a|b)/c+", "a.c", "(a|b)*", "(?i)A{2}.*"])
def test_simple_patterns_and_others_match_alike(pattern: str) -> None:
    for name in ("layers/2/mlp", "layers/4/mlp", "b/ccc", "b/", "abc", "abab", "aab", "x" * 2000):
        want = re.fullmatch(pattern, name) is not None
        assert Rule(pattern=f"re:{pattern}", override={}).matches(("no", name)) == want


@pytest.mark.parametrize("pattern", ["(" * 5000 + ")" * 5000, "a{99999999999}", "z" * 10_001, "("])
def test_patterns_that_are_none(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="bad regular expression in rule"):
        parse_rule(f"re:{pattern}: float")
    path = tmp_path / "own.toml"
    path.write_text(f'[[rules]]\npattern = "re:{pattern}"\noverride = {{format = "float"}}\n')
    with pytest.raises(UserError, match="bad regular expression in rule") as info:
        load_pipeline(str(path))
    assert len(str(info.value)) < 600


@pytest.mark.parametrize(
    ("arrays", "sites", "reason"),
    [(20_000, 1, "not those of percentile"), (1, 20_000, "statistics of 20000 tensors")],
)
def test_many_zeros_of_few_letters(tmp_path: Path, arrays: int, sites: int, reason: str) -> None:
    array = {"type": "int64", "shape": [2051 if arrays == 1 else 1 << 16], "first": 0, "values": ""}
    found = {f"a{i}:0": [array] * arrays for i in range(sites)}
    document = {"schema": 2, "model": "", "method": "percentile", "samples": 1}
    ranges = {name: [0, 1] for name in found}
    (tmp_path / "r.json").write_text(json.dumps({**document, "sites": ranges, "statistics": found}))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=reason) as info:
            merged([tmp_path / "r.json"])
        assert str(info.value).count("r.json") == 1
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
