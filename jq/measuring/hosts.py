"""Measuring on other machines: an artifact goes there over ssh, and the figures come back.

    ssh HOST python3 -P -m jq.measuring.hosts

reads one line of JSON and a tar archive of that many bytes from its standard input, measures as
`jaxq bench` does, and writes one JSON document. jaxq is installed there, in the same version. When
the connection ends, so does what was started.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jq.errors import JqError, UserError
from jq.measuring.measure import bench
from jq.progress import Progress, silent
from jq.system.processor import this_processor
from jq.system.signals import held_back

UNREACHABLE = 255  # ssh's own exit code
LARGEST = 1 << 40  # bytes


def bench_on(
    hosts: Sequence[str],
    artifact: Path,
    *,
    against: Path | None = None,
    inputs: Path | None = None,
    threads: int | None = None,
    seconds: float = 5.0,
    ssh: str = "ssh",
    python: str = "python3",
    progress: Progress = silent,
) -> dict[str, Any]:
    """The documents of `jaxq bench` by host, each with the `processor` that it was measured on.

    Args:
        hosts: as ssh takes them: a name, `user@name`, or one in its configuration.
        ssh: the command that connects, with its options.
        python: the interpreter there that jaxq is installed for.

    Raises:
        UserError: a host cannot be reached, or has no jaxq of this version.
    """
    options = {"threads": threads, "seconds": seconds, "version": version("jaxq")}
    content = _packed({"artifact": artifact, "against": against, "inputs.npz": inputs})
    found = {}
    for i, host in enumerate(hosts):
        progress(f"measure on {host}", i / len(hosts))
        found[host] = _asked(host, content, options, shlex.split(ssh), python)
    return {"hosts": found}


def _packed(parts: dict[str, Path | None]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in parts.items():
            if path is not None:
                tar.add(path, name)
    return buffer.getvalue()


def _asked(
    host: str, content: bytes, options: dict[str, Any], ssh: Sequence[str], python: str
) -> dict[str, Any]:
    if not host or host.startswith("-"):
        raise UserError(f"no host is called {host!r}")
    command = [*ssh, "-o", "BatchMode=yes", host, f"{shlex.quote(python)} -P -m {__name__}"]
    head = json.dumps({**options, "bytes": len(content)}).encode() + b"\n"
    with tempfile.TemporaryFile() as errors:
        try:
            with held_back():
                child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
                )
        except OSError as error:
            raise UserError(f"cannot start {ssh[0]}: {error.strerror}") from error
        with child:
            try:
                answer = _exchange(child, head + content)
            finally:
                child.kill()
        errors.seek(0)
        told = errors.read().decode(errors="replace").strip().splitlines()
    if child.returncode == UNREACHABLE or not answer:
        reason = told[-1] if told else "it gave no answer"
        raise UserError(
            f"cannot measure there: {reason}",
            location=host,
            hint="does `ssh HOST` work without a password, and is jaxq installed for --python?",
        )
    document: dict[str, Any] = json.loads(answer)
    if "error" in document:
        kind = UserError if document.pop("user", False) else JqError
        raise kind(document["error"], location=host)
    return document


def _exchange(child: subprocess.Popen[bytes], content: bytes) -> bytes:
    """Writes everything and reads the answer; the pipe stays open, its end would be the end."""
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(content)
        child.stdin.flush()
    except BrokenPipeError:
        return b""
    answer = child.stdout.readline()
    if not answer:
        child.wait()
    return answer


def main() -> None:
    """On the other machine."""
    given, answer = sys.stdin.buffer, sys.stdout
    sys.stdout = sys.stderr  # nothing else goes where the answer goes
    options = json.loads(given.readline())
    count = options.pop("bytes")
    if not 0 <= count <= LARGEST:
        raise SystemExit("more than fits")
    content = given.read(count)
    threading.Thread(target=_end_with, args=(given,), daemon=True).start()
    print(json.dumps(_measured(content, options)), file=answer, flush=True)


def _measured(content: bytes, options: dict[str, Any]) -> dict[str, Any]:
    wanted, installed = options.pop("version"), version("jaxq")
    if wanted != installed:
        return {"error": f"jaxq {installed} is there, {wanted} here", "user": True}
    try:
        with tempfile.TemporaryDirectory(prefix="jaxq-") as name:
            folder = Path(name)
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                tar.extractall(folder, filter="data")
            paths = {k: folder / k for k in ("against", "inputs.npz") if (folder / k).exists()}
            here = this_processor()
            found = bench(
                folder / "artifact",
                against=paths.get("against"),
                inputs=paths.get("inputs.npz"),
                **options,
            )
            return {"processor": here.model or here.machine, **found}
    except JqError as error:
        return {"error": str(error), "user": isinstance(error, UserError)}


def _end_with(given: Any) -> None:
    """The end of the connection interrupts what runs, so that it cleans up; or ends it."""
    given.read(1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
    os._exit(1)


if __name__ == "__main__":
    main()
