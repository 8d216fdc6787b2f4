"""Measuring on other machines: an artifact goes there over ssh, and the figures come back.

    ssh HOST python3 -P -m jq.reporting.measuring.hosts

reads one line of JSON and a tar archive of that many bytes from its standard input, measures as
`jaxq bench` does, and writes one JSON document. jaxq is installed there, in the same version. When
the connection ends, so does what was started."""

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
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jq.artifact.load import MANIFEST, load_artifact
from jq.base import JqError, Progress, UserError, check_input, silent, temporary_folder
from jq.base.guard.limits import limits
from jq.base.guard.worker import exchange
from jq.base.system.processor import this_processor
from jq.base.system.signals import held_back
from jq.reporting.measuring.measure import bench

UNREACHABLE = 255  # ssh's own exit code
LARGEST = 1 << 40  # bytes
_ANSWER, _PARTS = 1 << 20, 200  # bytes, and objects and lists in them
ENDING = 5.0  # seconds in which a process ends that says nothing more
STARTING, TIMES = 300.0, 10.0  # what a host has: seconds, and so many times those of measuring
_SILENT = "a shell that starts there must print nothing"


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
        UserError: a host cannot be reached, has no jaxq of this version, or does not answer in time
            (`--timeout`, or five minutes and ten times `seconds`)."""
    options = {"threads": threads, "seconds": seconds, "version": version("jaxq")}
    command = _command(ssh)
    most = limits().seconds or STARTING + TIMES * seconds
    content = _packed(artifact, against, inputs)
    found = {}
    for i, host in enumerate(hosts):
        progress(f"measure on {host}", i / len(hosts))
        found[host] = _asked(host, content, options, command, python, most)
    return {"hosts": found}


def _command(text: str) -> list[str]:
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise UserError(f"no command is {text!r}: {error}") from error
    if not found or "\0" in text:
        raise UserError(f"no command is {text!r}", hint="leave out --ssh")
    return found


def _packed(artifact: Path, against: Path | None, inputs: Path | None) -> bytes:
    """Packs what is measured, and nothing else that lies beside it."""
    parts: dict[str, Path] = {} if inputs is None else {"inputs.npz": inputs}
    for name, folder in (("artifact", artifact), ("against", against)):
        if folder is not None:
            files = (MANIFEST, *load_artifact(folder).manifest.files)
            parts |= {f"{name}/{file}": folder / file for file in files}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in parts.items():
            check_input(path)
            tar.add(path.resolve(), name)
    return buffer.getvalue()


def _asked(
    host: str,
    content: bytes,
    options: dict[str, Any],
    ssh: Sequence[str],
    python: str,
    seconds: float,
) -> dict[str, Any]:
    if not host or host.startswith("-") or not host.isprintable():
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
                answer = exchange(child, head + content, seconds, _ANSWER)
                if answer == b"":  # it has ended, or will not answer
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(ENDING)
            finally:
                child.kill()
        errors.seek(0)
        told = errors.read().decode(errors="replace").strip().splitlines()
    if answer is None:
        what = f"no answer of one line in {seconds:g} s"
        raise UserError(what, location=host, hint="--timeout allows more")
    if child.returncode == UNREACHABLE or not answer:
        reason = told[-1] if told else "it gave no answer"
        hint = "does `ssh HOST` work without a password, and is jaxq installed for --python?"
        raise UserError(f"cannot measure there: {reason}", location=host, hint=hint)
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        document = None
    nested = answer.count(b"{") + answer.count(b"[") > _PARTS
    if nested or not isinstance(document, dict):
        raise UserError(f"this is no answer: {answer[:80]!r}", location=host, hint=_SILENT)
    if "error" in document:
        kind = UserError if document.pop("user", False) else JqError
        raise kind(str(document["error"]), location=host)
    return document


def main() -> None:
    """The entry point on the other machine."""
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
        with temporary_folder() as folder:
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
