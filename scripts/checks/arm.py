"""The tests of kernels on 64-bit Arm, by emulation.

    ./scripts/check.py arm [--parts FOLDER] [PYTEST ARGUMENTS ...]

They are compiled for `aarch64_i8mm`, `aarch64_dotprod` and `portable`, run under qemu in one
process, and compared with NumPy as on this machine.

Debian's packages (qemu-user-static, Python 3.11 for arm64) and the wheels of NumPy and IREE's
runtime for arm64 are fetched into FOLDER once and installed nowhere. Where they cannot be had it
says why, and that nothing was tested; the exit code is 0 then, and pytest's otherwise.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "jaxq" / "arm64"
QEMU = "qemu-aarch64-static"
PYTHON = "usr/bin/python3.11"
# Python, and the libraries that it, NumPy and IREE's runtime are linked with.
PACKAGES = (
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    *("libc6", "libstdc++6", "libgcc-s1", "zlib1g"),
    *("libexpat1", "libffi8", "libbz2-1.0", "liblzma5"),
)
WHEELS = ("iree-base-runtime", "numpy", "ml-dtypes")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
# Not of what kernels compute: they look at text, at this machine, or at memory of this process.
OTHERS = ("test_builder", "test_guard", "test_isa", "test_prefetch")


class Missing(Exception):
    """A part that cannot be had, and why."""


def run(command: list[str], folder: Path, what: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it failed"]
        raise Missing(f"{what}: {lines[-1]}")


def apt(folder: Path) -> list[str]:
    """apt-get for arm64 with a state of its own: the system's is neither read nor changed."""
    state, cache = folder / "state", folder / "cache"
    for part in (state / "lists/partial", cache / "archives/partial"):
        part.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State": str(state),
        "Dir::State::status": str(state / "status"),
        "Dir::Cache": str(cache),
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]


def unpack(folder: Path, root: Path) -> None:
    for package in folder.glob("*.deb"):
        run(["dpkg", "-x", str(package), str(root)], folder, package.name)


def fetch(folder: Path) -> None:
    """All parts, into `folder`."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise Missing(f"{tool} is not there: parts are Debian's packages")
    folder.mkdir(parents=True, exist_ok=True)
    arm, here = folder / "arm64", folder / "here"
    arm.mkdir(exist_ok=True)
    here.mkdir(exist_ok=True)
    if not shutil.which(QEMU):
        run(["apt-get", "-q", "download", "qemu-user-static"], here, "qemu-user-static")
        unpack(here, folder / "tools")
    run([*apt(folder), "update"], folder, "Debian's list of packages for arm64")
    run([*apt(folder), "download", *PACKAGES], arm, "Debian's packages for arm64")
    unpack(arm, folder / "root")
    wanted = [f"{name}=={version(name)}" for name in WHEELS]
    platforms = [f"--platform={name}" for name in PLATFORMS]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    where = ["--only-binary=:all:", "--python-version=3.11", f"--target={folder / 'site'}"]
    run([*pip, *where, *platforms, *wanted], folder, "wheels for arm64")


def emulator(folder: Path, cpu: str = "max") -> list[str]:
    """The command that starts the Python of arm64 on one of qemu's processors; `max` has all
    instructions."""
    root = folder / "root"
    qemu = shutil.which(QEMU) or str(folder / "tools/usr/bin" / QEMU)
    command = [qemu, "-cpu", cpu, "-L", str(root), "-E", f"PYTHONPATH={folder / 'site'}"]
    return [*command, "-U", "PYTHONHOME", str(root / PYTHON)]


def prepare(folder: Path) -> None:
    """All parts in `folder`, and tried.

    Raises:
        Missing: what cannot be had.
    """
    try:
        if not (folder / "root" / PYTHON).exists() or not (folder / "site").exists():
            fetch(folder)
        run([*emulator(folder), "-c", "import iree.runtime, numpy"], ROOT, "Python of arm64")
    except OSError as error:
        raise Missing(str(error)) from error


def main() -> int:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--parts", type=Path, default=FOLDER, help="where the parts are kept")
    options, arguments = parser.parse_known_args()
    folder = options.parts.absolute()
    try:
        prepare(folder)
    except Missing as missing:
        print(f"skipped, nothing was tested: {missing}")
        return 0
    tests = [] if any(a.startswith("tests/") for a in arguments) else ["tests/kernels"]
    ignored = [f"--ignore=tests/kernels/{name}.py" for name in OTHERS]
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, *tests]
    environment = os.environ | {"JAXQ_EMULATOR": shlex.join(emulator(folder))}
    return subprocess.run([*pytest, *arguments], cwd=ROOT, env=environment).returncode
