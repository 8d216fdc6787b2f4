"""Artifacts that are called from several threads, and processes that share a cache; 100,000 calls
are `scripts/suite.py calls`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jq.driver.loading import load
from tests.trust.artifacts import SAVED


def test_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    models = [load(SAVED) for _ in range(3)]
    inputs = np.random.default_rng(0).integers(-128, 128, (16, 2, 8)).astype(np.int8)
    right = [models[0](x)[0].tobytes() for x in inputs]

    def work(thread: int) -> int:
        draw = np.random.default_rng(thread)
        picks = draw.integers((3, len(inputs)), size=(500, 2))
        return sum(models[m](inputs[i])[0].tobytes() != right[i] for m, i in picks)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0


@pytest.mark.parametrize("state", ["empty", "damaged"])
def test_processes_that_share_a_cache(state: str, tmp_path: Path) -> None:
    """Each finds nothing, or what is damaged, compiles, and writes the same entry."""
    code = (
        "import sys, hashlib\n"
        "from jq.artifact.modules import compile_cached\n"
        "from jq.artifact.store import Cache\n"
        "from jq.iree.compiler import BASE_FLAGS, HOST_FLAGS\n"
        "text = open('m.mlir', 'rb').read()\n"
        "if sys.argv[1] == 'damaged':\n"
        "    path = Cache('module').path([text, [*BASE_FLAGS, *HOST_FLAGS]])\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        "    path.write_bytes(b'{')\n"
        "for _ in range(2):\n"
        "    print(hashlib.sha256(compile_cached(text).vmfb).hexdigest())\n"
    )
    (tmp_path / "m.mlir").write_text(
        "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = stablehlo.add %x, %x : tensor<4xf32>\n  return %y : tensor<4xf32>\n}"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, state],
            cwd=tmp_path,
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0].split() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert len(said[0]) == len(said[1]) == 2 and len({*said[0], *said[1]}) == 1
