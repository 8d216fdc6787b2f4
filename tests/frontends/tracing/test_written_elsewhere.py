"""Files that were written with one JAX are read with every other, or refused with the reason.

`written/` holds the function and the model below as `jax.export` and `jq.calibrate` wrote them with
the JAX in a file's name. Nothing there is written again; a new JAX adds files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.ir.portable import later_version
from tests.support import programs

FOLDER = Path(__file__).with_name("written")
FILES = sorted(path.name for path in FOLDER.glob("*.jaxexport"))
W = (np.arange(32).reshape(8, 4) % 7 - 3).astype(np.float32) / 4
X = (np.arange(24).reshape(3, 8) % 5 - 2).astype(np.float32)


def layer(x: Any, w: Any) -> Any:
    with jax.named_scope("dense"):
        return jnp.tanh(x @ w)


def fn(params: Any, x: Any) -> Any:
    def step(c: Any, _: None) -> Any:
        return jax.checkpoint(lambda v: layer(v, params["w"]))(c) @ params["w"].T, None

    return jax.lax.scan(step, x, None, length=2)[0]


NAMES = {"add", "cond/lt", "constant", "dense/constant", "dense/tanh", "while"}
MODEL = jq.Model(fn, {"w": W}, (X,))


@pytest.mark.parametrize("name", FILES)
def test_an_exported_function(name: str) -> None:
    sizes = {"a": 3} if name.startswith("symbolic") else None
    data = (FOLDER / name).read_bytes()
    if sizes and later_version(data[data.index(b"ML\xefR") :]):  # checks of sizes are newer ops
        with pytest.raises(UserError, match=r"written for StableHLO 1\.18.*reads StableHLO up to"):
            jq.trace(str(FOLDER / name), sizes=sizes)
        return
    program = jq.trace(str(FOLDER / name), sizes=sizes).program
    (found,) = programs.run_xla(program, [X])
    want = X.astype(np.float64)
    for _ in range(2):
        want = np.tanh(want @ W) @ W.T
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    named = {op.attributes["jq.name"].value for op in program.walk() if "jq.name" in op.attributes}
    assert {name.partition("#")[0] for name in named} == NAMES


@pytest.mark.parametrize("path", sorted(FOLDER.glob("ranges-*.json")), ids=lambda p: p.stem)
def test_ranges_are_those_of_every_version(path: Path, tmp_path: Path) -> None:
    """Bit for bit here, where sums are short; so they are of the same program."""
    jq.calibrate(MODEL, [(X,)], pipeline="int8-static").save(tmp_path / "ranges.json")
    assert (tmp_path / "ranges.json").read_bytes() == path.read_bytes()
    rows = jq.plan(MODEL, pipeline="int8-static", ranges=jq.Ranges.load(path)).ops
    assert [op.decision for op in rows] == ["integer", "integer"]
