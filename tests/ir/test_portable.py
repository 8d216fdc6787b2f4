"""The portable artifact of a module on which passes have noted what they decided."""

from __future__ import annotations

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.base.errors import UserError
from jq.ir.mlir_context import context
from jq.ir.portable import newest_version, portable, portable_version

MODULE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32>
  attributes {jq.decisions = {w = {smoothing = array<i32: 1, 2>}}} {
  %y = stablehlo.add %x, %x {jq.name = "sum", jq.scales = array<i32: 1>} : tensor<4xf32>
  return %y : tensor<4xf32>
}"""


def test_notes_are_left_out_and_stay_in_the_module() -> None:
    with context() as known:
        module = ir.Module.parse(MODULE)
        found, _ = portable(module)
        text = str(stablehlo.deserialize_portable_artifact(known, found))
        assert "jq." not in text and "stablehlo.add" in text
        assert "jq.decisions" in str(module)


def written_for(artifact: bytes) -> str:
    """The version in the artifact's own header."""
    return artifact.partition(b"StableHLO_v")[2].partition(b"\0")[0].decode()


@pytest.mark.parametrize(
    ("given", "found"), [("1.13.0", "1.13.0"), ("1.9", "1.9.0"), ("0.9.0", "0.9.0")]
)
def test_an_older_version_is_written(given: str, found: str) -> None:
    with context() as known:
        artifact, version = portable(ir.Module.parse(MODULE), given)
        assert version == written_for(artifact) == found
        assert "stablehlo.add" in str(stablehlo.deserialize_portable_artifact(known, artifact))


def test_without_a_version_it_is_an_older_one_than_the_newest() -> None:
    with context():
        artifact, version = portable(ir.Module.parse(MODULE))
    assert version == written_for(artifact) == portable_version() != newest_version()


@pytest.mark.parametrize(
    "given", ["99.0.0", "0.1.0", "1", "1.2.3.4", "v1.13.0", "", "1.13.0\n", "1." + "9" * 5000]
)
def test_versions_that_there_are_not(given: str) -> None:
    with pytest.raises(UserError) as refused:
        portable_version(given)
    assert newest_version() in str(refused.value) and len(str(refused.value)) < 300


def test_what_a_version_does_not_have_is_refused_by_name() -> None:
    """Floats of 4 bits came with StableHLO 1.8."""
    text = MODULE.replace("4xf32", "4xf4E2M1FN").replace("stablehlo.add %x, %x", "stablehlo.abs %x")
    with context(), pytest.raises(UserError, match=r"written for StableHLO 1\.0\.0"):
        portable(ir.Module.parse(text), "1.0.0")
