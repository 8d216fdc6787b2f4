"""`shard_map` over one device runs; over two, and files exported for two, one line says why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jq
from jq.ir.oracle.xla import XlaExecutable

X = np.arange(8, dtype=np.float32).reshape(2, 4)
ALONE = {
    "psum": (lambda x: jax.lax.psum(2 * x, "d"), P()),
    "pmax": (lambda x: jax.lax.pmax(2 * x, "d"), P()),
    "pmean": (lambda x: jax.lax.pmean(2 * x, "d"), P()),
    "all_gather": (lambda x: 2 * jax.lax.all_gather(x, "d", tiled=True), P("d")),
    "psum_scatter": (lambda x: jax.lax.psum_scatter(2 * x, "d", tiled=True), P("d")),
    "all_to_all": (lambda x: jax.lax.all_to_all(2 * x, "d", 0, 0, tiled=True), P("d")),
    "ppermute": (lambda x: jax.lax.ppermute(2 * x, "d", [(0, 0)]), P("d")),
    "axis_index": (lambda x: 2 * x + jax.lax.axis_index("d"), P("d")),
}
TWO = """
import jax, numpy as np, jq
from jax import export
from jax.sharding import Mesh, PartitionSpec as P

g = jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=Mesh(np.array(jax.devices()), ("d",)),
                  in_specs=P("d"), out_specs=P())
x = np.ones((2, 4), np.float32)
with open(FILE, "wb") as file:
    file.write(export.export(jax.jit(g))(x).serialize())
for model in (jq.Model(lambda p, x: g(x), {}, (x,)), FILE):
    try:
        jq.trace(model)
    except jq.UserError as error:
        print("refused:", error)
"""


@pytest.mark.parametrize("name", ALONE)
def test_one_device_has_nobody_to_speak_to(name: str) -> None:
    fn, out = ALONE[name]
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    mapped = jax.shard_map(fn, mesh=mesh, in_specs=P("d"), out_specs=out, check_vma=False)
    program = jq.trace(jq.Model(lambda p, x: mapped(x), {}, (X,))).program
    np.testing.assert_array_equal(XlaExecutable(program)(X)[0], mapped(X))
    np.testing.assert_array_equal(XlaExecutable(program)(X)[0], 2 * X)


def test_nobody_sends_zeros() -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    fn = lambda x: jax.lax.ppermute(x, "d", [])  # noqa: E731
    mapped = jax.shard_map(fn, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    program = jq.trace(jq.Model(lambda p, x: mapped(x), {}, (X,))).program
    np.testing.assert_array_equal(XlaExecutable(program)(X)[0], mapped(X))


def test_an_abstract_mesh_has_devices_too() -> None:
    """JAX counts one for the module, and XLA's own passes end the process over it."""
    mesh = jax.sharding.AbstractMesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(
        lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P()
    )
    x = np.ones((4, 4), np.float32)
    with pytest.raises(jq.UserError, match="among 4 devices.*mesh of one device"):
        jq.trace(jq.Model(lambda p, x: mapped(x), {}, (x,)))


def test_a_mesh_of_more_devices_than_there_are(tmp_path: Path) -> None:
    def model(p, x):
        with jax.set_mesh(jax.make_mesh((4096,), ("d",))):
            return 2 * x

    with pytest.raises(jq.UserError, match="runs on one device.*mesh of one device"):
        jq.trace(jq.Model(model, {}, (X,)))
    file = tmp_path / "meshed.py"
    file.write_text('import jax\nMESH = jax.make_mesh((4096,), ("d",))\n')
    with pytest.raises(jq.UserError, match=r"cannot import.*meshed.py:2.*mesh of one device"):
        jq.trace(f"{file}:model")


def test_two_devices_are_refused_in_a_line(tmp_path: Path) -> None:
    code = TWO.replace("FILE", repr(str(tmp_path / "two.jaxexport")))
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("refused:")]
    assert len(lines) == 2, done.stdout
    assert "among 2 devices, and a compiled program runs on one" in lines[0]
    assert "exported for 2 devices, and a program runs on one" in lines[1]
    assert all("mesh of one device" in line for line in lines)
