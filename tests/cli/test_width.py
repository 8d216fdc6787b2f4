"""At 80 columns and at 60, what every command prints breaks no number, no name and no word."""

import io
import re
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest

from jq.base.tables import SafeConsole
from jq.cli import output
from jq.cli.app import main
from tests.cli.test_commands import SOURCE

pytestmark = pytest.mark.usefixtures("quick_xla")
WIDE, WIDTHS = 100_000, (80, 60)
Shown = dict[int, list[str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """All that is printed, at each width: each thing is printed once for each."""
    found: Shown = {width: [] for width in (WIDE, *WIDTHS)}

    class Recording(SafeConsole):
        def print(self, *things: Any, **options: Any) -> None:
            for width, texts in found.items():
                text = io.StringIO()
                to = SafeConsole(file=text, width=width, force_terminal=True, color_system=None)
                to.print(*things, **options)
                texts.append(text.getvalue())

    def made(stream: TextIO) -> SafeConsole:
        if stream is sys.stdout:
            return Recording(file=stream, force_terminal=True)
        return SafeConsole(file=stream)

    monkeypatch.setattr(output, "console", made)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("w")
    (work / "m.py").write_text(SOURCE)
    command = f"compile {work}/m.py:model -p int8-static --emit integer -o {work}/out"
    assert main(command.split()) == 0
    rng = np.random.default_rng(0)
    np.savez(work / "in.npz", arg0=rng.standard_normal((4, 32), np.float32), arg1=np.ones(1, "f4"))
    return work


COMMANDS = (
    "compile {m} -p int8-static -o {d}/again --force",
    "compile {m} -v -o {d}/again --force",
    "explain {m} -p int8-static",
    "explain {m} --rule 'second*: float' --rule nothing:float",
    "inspect {d}/out",
    "compare {m} {d}/out --layers",
    "run {d}/out --inputs {d}/in.npz --outputs {d}/result.npz",
    "bench {d}/out --seconds 0.1",
    "calibrate {m} -o {d}/ranges.json",
    "check {m} --target ethos-u55",
    "estimate {m} --target ethos-u85",
    "vectors {d}/out -o {d}/vectors",
    "cache list",
    *(f"list {kind}" for kind in ("formats", "pipelines", "targets", "models", "settings")),
    *(f"list {kind}" for kind in ("recovery", "metrics", "ops", "architectures")),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_broken(command: str, folder: Path, shown: Shown) -> None:
    model = f"{folder}/m.py:model"
    parts = [p.strip("'") for p in re.findall(r"'[^']*'|\S+", command)]
    main([p.format(m=model, d=folder) for p in parts])
    whole = words("".join(shown[WIDE]))
    assert whole
    for width in WIDTHS:
        text = "".join(shown[width])
        broken = {w for w in words(text) - whole if w.rstrip(":") not in whole}
        assert not broken, (width, text)
        lines = [line for line in text.splitlines() if not line.startswith("  ")]
        assert all(len(line) <= width or " " not in line.strip() for line in lines)


def words(text: str) -> set[str]:
    """Words, and the parts of paths."""
    return {part for word in text.split() for part in re.findall(r"[^/]*/+|[^/]+", word)}
