"""Measuring over ssh: a real sshd of the test's own, on the loopback interface."""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.base.guard.limits import Limits, limited
from jq.cli.app import main
from jq.reporting.measuring import hosts

Captured = pytest.CaptureFixture[str]
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
CONFIG = """
Host board other
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
"""
SERVER = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weight = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    example = (np.zeros((2, 16), np.float32),)
    model = jq.Model(lambda params, x: jnp.maximum(x @ params["w"], 0), {"w": weight}, example)
    return jq.compile(model, "int8-dynamic").save(tmp_path_factory.mktemp("made") / "out")


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that this module starts, with the options to connect to it."""
    if not (SSHD and shutil.which("ssh") and shutil.which("ssh-keygen")):
        pytest.skip("OpenSSH's server is not installed")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, text in (("config", CONFIG), ("sshd", SERVER)):
        (folder / name).write_text(text.format(port=port, folder=folder))
    log = folder / "log"
    if Path("/run").is_dir():
        Path("/run/sshd").mkdir(exist_ok=True)  # where a server of root's confines itself
    command = [str(SSHD), "-D", "-f", str(folder / "sshd"), "-E", str(log)]
    with subprocess.Popen(command) as server:
        try:
            for _ in range(200):
                if server.poll() is not None:
                    pytest.skip(f"sshd does not start: {log.read_text()}")
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"ssh -F {folder / 'config'}"
        finally:
            server.kill()


def test_two_hosts(artifact: Path, ssh: str, capsys: Captured) -> None:
    options = ["--on", "board,other", "--ssh", ssh, "--python", sys.executable]
    assert main(["bench", str(artifact), *options, "--seconds", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["hosts"]
    assert list(found) == ["board", "other"]
    for figures in found.values():
        assert figures["processor"] and figures["runs"] >= 10 and figures["median_ms"] > 0


def test_what_goes_wrong_there(artifact: Path, ssh: str, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, arg0=np.zeros((3, 3), np.float32))
    with pytest.raises(UserError, match=r"the model wants .2, 16.*board") as failure:
        hosts.bench_on(["board"], artifact, inputs=inputs, ssh=ssh, python=sys.executable)
    assert failure.value.location == "board"
    with pytest.raises(UserError, match="is jaxq installed"):
        hosts.bench_on(["board"], artifact, ssh=ssh, python="/nowhere/python")


def test_hosts_that_are_none(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "-oProxyCommand=touch x", "a\nb", "\x1b[31m"):
        with pytest.raises(UserError, match="no host"):
            hosts.bench_on([name], artifact)
    with pytest.raises(UserError, match="cannot start"):
        hosts.bench_on(["board"], artifact, ssh="/nowhere/ssh")
    with pytest.raises(UserError, match="cannot measure there: .* does `ssh HOST`"):
        hosts.bench_on(["board"], artifact, ssh="false")
    assert " is there, x here" in hosts._measured(b"", {"version": "x"})["error"]


def _answers(folder: Path, script: str) -> str:
    """A command in the place of ssh, which takes in what is sent and says what a script says."""
    path = folder / "ssh"
    path.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "script",
    [
        "print('welcome')",
        "print('welcome'); print('{}')",
        "print('[]')",
        "print('[' * 100_000)",
        "print('1' * 10_000)",
        "print('{\"a\":' * 900 + '1' + '}' * 900)",
        "sys.stdout.buffer.write(bytes(range(128, 256)) + b'\\n')",
    ],
)
def test_answers_that_are_none(artifact: Path, tmp_path: Path, script: str) -> None:
    with pytest.raises(UserError, match="this is no answer") as failure:
        hosts.bench_on(["board"], artifact, ssh=_answers(tmp_path, script))
    assert failure.value.location == "board" and len(str(failure.value)) < 500


def test_an_answer_that_never_ends(artifact: Path, tmp_path: Path) -> None:
    endless = "while True: sys.stdout.write('x' * 10_000)"
    for script, seconds in ((endless, 60.0), ("sys.stdin.read()", 0.5)):
        with limited(Limits(seconds)), pytest.raises(UserError, match="no answer of one line"):
            hosts.bench_on(["board"], artifact, ssh=_answers(tmp_path, script))


def test_nothing_but_an_artifact_is_sent(artifact: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep = f"open({str(kept)!r}, 'wb').write(sys.stdin.buffer.read(2_000_000)); sys.exit(255)"
    with pytest.raises(UserError, match="not an artifact"):
        hosts.bench_on(["board"], tmp_path, ssh=_answers(tmp_path, keep))
    assert not kept.exists()
    beside = Path(shutil.copytree(artifact, tmp_path / "out")) / "notes"
    beside.write_text("mine")
    packed = hosts._packed(beside.parent, None, None)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        names = {Path(name).name for name in tar.getnames()}
    assert names == {p.name for p in artifact.iterdir()}


@pytest.mark.parametrize("command", ["", "'", "a\0b"])
def test_commands_that_are_none(artifact: Path, command: str) -> None:
    with pytest.raises(UserError, match="no command is"):
        hosts.bench_on(["board"], artifact, ssh=command)
