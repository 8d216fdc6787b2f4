"""A signature is of the whole artifact, by a key that the user names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec

from jq.base.errors import UserError
from jq.cli.app import main
from jq.driver.loading import load
from tests.support.keys import keys
from tests.trust.artifacts import copy_of, rehashed


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """An artifact and the public key of who signed it."""
    private, public = keys(tmp_path, "me")
    return load(copy_of(tmp_path)).save(tmp_path / "signed", sign=private), public


@pytest.mark.parametrize("ssh", [False, True])
def test_both_kinds_of_key_files(ssh: bool, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "me", ssh=ssh)
    folder = load(copy_of(tmp_path)).save(tmp_path / "signed", sign=private)
    assert load(folder, verify=public).audit().verified
    assert load(folder).audit().verified


def test_who_did_not_sign(signed: tuple[Path, Path], tmp_path: Path) -> None:
    folder, public = signed
    other = keys(tmp_path, "other")[1]
    with pytest.raises(UserError, match="with none of the 1 keys"):
        load(folder, verify=other)
    assert load(folder, verify=[other, public]).inputs
    with pytest.raises(UserError, match="is not signed"):
        load(tmp_path / "artifact", verify=public)


def test_a_forger_who_rehashes(signed: tuple[Path, Path]) -> None:
    """A change that the checksums in the manifest do not notice."""
    folder, public = signed
    path = folder / "program.mlir"
    path.write_text(path.read_text() + "// changed\n")
    rehashed(folder)
    assert load(folder).inputs
    with pytest.raises(UserError, match="or it changed"):
        load(folder, verify=public)


@pytest.mark.parametrize("name", ["model.vmfb", "program.mlir", "weights.irpa"])
def test_any_file(name: str, signed: tuple[Path, Path]) -> None:
    folder, public = signed
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match="its checksum differs"):
        load(folder, verify=public)


@pytest.mark.parametrize("change", ["", "[]", "{}", "[" * 60_000, '{"signature": "zz"}'])
def test_no_signature(change: str, signed: tuple[Path, Path]) -> None:
    folder, public = signed
    (folder / "manifest.sig").write_text(change)
    with pytest.raises(UserError, match="this is no signature"):
        load(folder, verify=public)


def test_another_algorithm_and_a_signature_of_zeros(signed: tuple[Path, Path]) -> None:
    folder, public = signed
    path = folder / "manifest.sig"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "algorithm": "none"}))
    with pytest.raises(UserError, match="not 'none'"):
        load(folder, verify=public)
    for signature in ("", "00" * 64, said["signature"][:-2]):
        path.write_text(json.dumps({**said, "signature": signature}))
        with pytest.raises(UserError, match="or it changed"):
            load(folder, verify=public)


def test_keys_that_are_none(tmp_path: Path, signed: tuple[Path, Path]) -> None:
    folder, public = signed
    other = tmp_path / "ec.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    other.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
    compiled = load(folder)
    for path in (public, other, tmp_path / "missing", folder):
        with pytest.raises(UserError) as info:
            compiled.save(tmp_path / "new", sign=path)
        assert str(path) in str(info.value)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError, match="no public key"):
        load(folder, verify=other)


def test_on_the_command_line(
    signed: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, public = signed
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    np.savez(tmp_path / "in.npz", arg0=np.zeros((2, 8), np.int8))
    inputs = ["--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"), "-q"]
    assert main(["run", str(folder), *inputs, "--verify", str(public)]) == 0
    assert main(["run", str(tmp_path / "artifact"), *inputs, "--verify", str(public)]) == 2
    assert main(["run", str(folder), *inputs, "--trust", "verify"]) == 2
    assert "there is no trusted key in" in capsys.readouterr().err
    trusted = tmp_path / "config/jaxq/trusted"
    trusted.mkdir(parents=True)
    (trusted / "me.pem").write_bytes(public.read_bytes())
    assert main(["run", str(folder), *inputs, "--trust", "verify"]) == 0
    assert main(["run", str(tmp_path / "artifact"), *inputs, "--trust", "verify"]) == 2
    assert main(["run", str(folder), *inputs, "--trust", "maybe"]) == 2


def test_force_deletes_nothing_foreign(tmp_path: Path) -> None:
    """Whatever a forged manifest lists."""
    folder = copy_of(tmp_path)
    (folder / "thesis.txt").write_text("years of work")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["thesis.txt"] = {"bytes": 0, "sha256": ""}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    rehashed(folder)
    with pytest.raises(UserError, match=r"holds 'thesis\.txt', which is not part"):
        load(folder).save(folder, force=True)


def test_files_that_are_links(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    (folder / "weights.irpa").rename(tmp_path / "elsewhere")
    (folder / "weights.irpa").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="it is a link to somewhere else"):
        load(folder)
