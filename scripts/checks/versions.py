"""Models and known defects with each minor version of JAX and IREE: docs/internals/versions.md.

    scripts/check.py versions -r build/versions                     # every pair of minor versions
    scripts/check.py versions -r build/versions --jax 0.11.2 --iree 3.13.0 --page page.md

The newest version of each minor one goes to a folder of its own, which Python searches first.
With each pair, the built-in models are compiled at small sizes and compared with their float
programs, and the tests run of what we read of JAX and of the defects that we work around. `-r`
keeps one file for each pair: a pair that has one is not run again. A pair takes 2 minutes of
processor time and 0.8 GB.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Annotated, Any

import typer
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from suites.reported import outcomes
from traps import packages

from jq.base.system.processor import this_processor

ROOT = Path(__file__).resolve().parents[2]
READ = "tests/base/test_from_jax.py"
TESTS = (READ, "tests/traps", "tests/iree/test_iree_defects.py")
LIMIT = 300.0  # seconds of one test, or of a model
MODELS = ("digits_cnn", "mlp", "gpt", "resnet", "mobilenet", "minilm")
NEAR = 10.0  # dB, of a model at all: what other versions differ by is told by their figures
Row = dict[str, Any]

HEAD = """# Versions of JAX and IREE

What works with each version of JAX and IREE, for those who move one ([how](jax.md)).
Written by `scripts/check.py versions`; do not edit.

- **models**: how many of {models} compile to int8, and how far the worst of them is from its
  float program.
- **bits**: names of ops, float programs and integer programs of these models, against the first
  row. Recovery, which looks at data through XLA, is left out.
- **read**: tests of what is read from JAX (`{read}`) that pass.
- **defects**: the tests of `tests/traps` and `tests/iree/test_iree_defects.py`: defects that are
  there, defects that are not, and tests that fail.

"""


def minors(package: str, allowed: str = "") -> list[str]:
    """The newest release of each minor version that pip offers this Python, the newest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed = re.search(r"Available versions: (.*)", said)
    found: dict[tuple[int, ...], str] = {}
    for each in sorted(map(Version, listed[1].split(", ") if listed else ()), reverse=True):
        if each in SpecifierSet(allowed):
            found.setdefault(each.release[:2], str(each))
    return list(found.values())


def allowed(package: str) -> str:
    """The versions of a package that `pyproject.toml` allows: `>=3.13,<3.14`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = next(d for d in project["dependencies"] if re.match(rf"{package}[<>=]", d))
    return found.removeprefix(package)


def judge(name: str) -> None:
    """Prints what becomes of a model, as JSON; runs in a process with the versions in question."""
    import jq
    from tests.models.test_names import built, digest, names

    model = built(name)
    free = jq.rewrite(model, pipeline="int8-dynamic", settings={"recovery": False})["integer"]
    program = jq.trace(model).program
    words = "\n".join(sorted(names(program))).encode()
    bits = [hashlib.sha256(words).hexdigest(), digest(program), digest(free)]
    compiled = jq.compile(model, "int8-dynamic", cache=False)
    worst = min(each.sqnr_db for each in jq.compare(model, compiled).outputs)
    print(json.dumps({"bits": bits, "sqnr_db": worst}))


def judged(name: str, env: dict[str, str]) -> Row:
    """The figures of a model, or its `error` in a line."""
    code = f"from checks.versions import judge; judge({name!r})"
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {LIMIT:.0f} s"}
    lines = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
    said = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return json.loads(done.stdout) if done.returncode == 0 else {"error": (said or lines)[-1]}


def row(jax: str, iree: str) -> Row:
    """Results of models and tests with these versions, as a row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "packages"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        # What is installed as it is asked for needs no copy.
        wanted = packages("" if version("jax") == jax else jax, iree)
        if version("iree-base-compiler") == iree:
            wanted = [each for each in wanted if not each.startswith("iree")]
        if wanted:
            subprocess.run([*pip, *wanted], check=True)
        found = {each.name: each.version for each in distributions(path=[str(folder)])}
        searched = [str(folder), str(ROOT), str(ROOT / "scripts")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(searched), "JAX_PLATFORMS": "cpu"}
        models = {each: judged(each, env) for each in MODELS}
        tests: dict[str, str] = {}
        if any("error" not in each for each in models.values()):
            tests = dict(outcomes(TESTS, env | {"PYTHONPATH": str(folder)}, ROOT, LIMIT))
    return {
        "python": platform.python_version(),
        "jax": found.get("jax", jax),
        "iree": found.get("iree-base-compiler", iree),
        "models": models,
        "tests": tests,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": this_processor().model or platform.machine(),
    }


def _summary(row: Row, first: Row) -> str:
    models = row["models"]
    right = [m for m in models.values() if m.get("sqnr_db", -1) >= NEAR]
    worst = f", {min(m['sqnr_db'] for m in right):.1f} dB" if right else ""
    differ = [m for m in models if models[m].get("bits") != first["models"][m].get("bits")]
    read = [o for t, o in row["tests"].items() if t.startswith(READ)]
    of_defects = [o for t, o in row["tests"].items() if not t.startswith(READ)]
    count = {word: of_defects.count(word) for word in ("there", "mended", "passed")}
    failed = len(of_defects) - sum(count.values()) - of_defects.count("skipped")
    cells = [row["jax"], row["iree"], f"{len(right)} of {len(models)}{worst}"]
    cells += ["differ: " + ", ".join(differ) if differ else "equal"]
    cells += [f"{read.count('passed')} of {len(read)}"] if read else ["-"]
    cells += [f"{count['there']} there, {count['mended']} not, {failed} fail"] if read else ["-"]
    return "| " + " | ".join(cells) + " |"


def _differences(row: Row) -> Iterable[str]:
    """Results that differ from those with the pinned versions."""
    for name, found in row["models"].items():
        if "error" in found:
            yield f"{name}: `{found['error'][:160]}`"
        elif found["sqnr_db"] < NEAR:
            yield f"{name}: {found['sqnr_db']:.1f} dB"
    words = {"mended": "not there", "failed": "fails", "crashed": "crashes", "endless": "no end"}
    for word, said in words.items():
        named = [test for test, outcome in row["tests"].items() if outcome == word]
        short = [re.sub(r"^tests/(\w+/)?test_", "", test) for test in named]
        if named:
            yield f"{said}: " + ", ".join(f"`{each}`" for each in short)


def page(rows: Sequence[Row]) -> str:
    """The table, and under it what differs."""
    first = rows[0]
    head = HEAD.format(models=", ".join(MODELS), read=READ)
    lines = ["| JAX | IREE | models | bits | read | defects |", "|---|---|---|---|---|---|"]
    lines += [_summary(each, first) for each in rows]
    dates = sorted({each["date"] for each in rows})
    where = f"{', '.join(sorted({r['processor'] for r in rows}))}, Python {first['python']}"
    lines += ["", f"Run on {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}: {where}."]
    for each in rows:
        if found := list(_differences(each)):
            lines += ["", f"## JAX {each['jax']}, IREE {each['iree']}"]
            lines += [f"- {line}" for line in found]
    return head + "\n".join(lines) + "\n"


def main(
    results: Annotated[Path, typer.Option("-r", "--results", help="Where results are kept.")],
    jax: Annotated[list[str] | None, typer.Option(help="Versions of JAX.")] = None,
    iree: Annotated[list[str] | None, typer.Option(help="Versions of IREE.")] = None,
    output: Annotated[Path | None, typer.Option("--page", help="The page to write.")] = None,
) -> None:
    results.mkdir(parents=True, exist_ok=True)
    of_jax = jax or minors("jax", allowed("jax"))
    of_iree = iree or minors("iree-base-compiler", ">=3.11")
    rows = []
    for pair in [(a, b) for b in of_iree for a in of_jax]:
        file = results / f"jax-{pair[0]}-iree-{pair[1]}.json"
        if not file.exists():
            file.write_text(json.dumps(row(*pair), indent=1) + "\n")
        rows.append(json.loads(file.read_text()))
        print(_summary(rows[-1], rows[0]), flush=True)
    text = page(rows)
    if output:
        output.write_text(text)
    else:
        print(text)
