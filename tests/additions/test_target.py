"""A new target is one TOML file."""

import pytest

import jq

TARGET = """description = "Made up: dynamic activations only, per-tensor weights."
driver = "local-task"
kernels = "portable"
flags = [
  "--iree-hal-target-device=local",
  "--iree-hal-local-target-device-backends=llvm-cpu",
  "--iree-llvmcpu-target-cpu=generic",
]

[device]
products = ["int8 x int8"]
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "made-up.toml"
    path.write_text(TARGET)
    return str(path)


def test_a_target(dense, target):
    compiled = jq.compile(dense, "int8-dynamic", target)
    assert compiled.manifest.target == "made-up"
    assert jq.compare(dense, compiled).outputs[0].sqnr_db > 30
    (op,) = jq.plan(dense, pipeline="int4-dynamic", target=target).ops
    assert op.decision != "integer" and op.reason  # it has no product of int8 and int4
