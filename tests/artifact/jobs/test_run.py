"""Jobs in processes and on a Dask cluster: equal results, and what a killed worker costs."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from joblib.externals.loky import process_executor

from jq.artifact.jobs import HERE, Workers, as_workers, run_jobs
from jq.artifact.jobs.processes import LEAK
from jq.artifact.store import Cache
from jq.base.errors import JqError, UserError
from tests.support.jobs import ROOT, Squares, begun, cluster

ITEMS = list(range(12))
ALL = {i: i * i for i in ITEMS}


def squares(work: Squares, workers: Workers, kept: Cache | None = None) -> dict[int, int]:
    return {i: int(r["square"]) for i, r in run_jobs(work, ITEMS, workers, kept=kept)}


def test_who_may_work() -> None:
    assert as_workers(3) == Workers(3) and as_workers(1) == HERE
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert as_workers(there).dask == there
    for nowhere in (there, "tcp://", "tcp://a:b", "tls://none.invalid:1"):
        with pytest.raises(UserError, match="no Dask scheduler answers"):
            as_workers(nowhere)
    assert as_workers("ray").ray == "auto" and as_workers("ray://a:1").ray == "ray://a:1"
    for wrong in (0, "a:1", True):
        with pytest.raises(UserError):
            as_workers(wrong)


def test_a_process_that_ends_loses_its_job_alone(tmp_path: Path) -> None:
    told: list[float | None] = []
    work = Squares(tmp_path, fatal=(3, 7), seconds=0.02)
    found = run_jobs(work, ITEMS, Workers(2), progress=lambda stage, share: told.append(share))
    assert {i: int(r["square"]) for i, r in found} == ALL
    assert begun(tmp_path) == {i: 2 if i in (3, 7) else 1 for i in ITEMS}
    pids = {p.read_text() for p in tmp_path.iterdir()}
    assert len(pids) == 4 and str(os.getpid()) not in pids  # two, and those in their place
    assert told == sorted(told) and told[0] == 0 and told[-1] == 1


def test_a_job_that_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):  # its error is the caller's
        squares(Squares(tmp_path / "not there"), Workers(2))
    with pytest.raises(JqError, match="job 2 cannot be done: its process ended 3 times"):
        squares(Squares(tmp_path, fatal=(2,), deaths=9), Workers(2))


def test_what_was_found_is_kept(tmp_path: Path) -> None:
    (jobs := tmp_path / "jobs").mkdir()
    kept = Cache("job", "a work", tmp_path / "kept")
    first = dict(zip(range(5), run_jobs(Squares(jobs), ITEMS, HERE, kept=kept), strict=False))
    assert len(first) == 5
    assert squares(Squares(jobs), Workers(2), kept) == ALL
    # The fifth was given before the generator was left, and is kept as well.
    assert begun(jobs) == dict.fromkeys(ITEMS, 1)
    assert squares(Squares(tmp_path / "nowhere"), HERE, kept) == ALL
    assert Cache("job", "another", tmp_path / "kept").get(3) is None


SCRIPT = """
import signal
import sys
from pathlib import Path
from jq.artifact.jobs import Workers, run_jobs
from tests.support.jobs import Squares

# Whoever is started in the background of a shell ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
work = Squares(Path(sys.argv[1]), seconds=60)
for _ in run_jobs(work, list(range(4)), Workers(2)):
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_when_the_first_process_ends_so_do_all(tmp_path: Path, number: int) -> None:
    (jobs := tmp_path / "jobs").mkdir()
    command = [sys.executable, "-c", SCRIPT, str(jobs)]
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    while len(begun(jobs)) < 2:
        assert child.poll() is None
        time.sleep(0.05)
    workers = [int(p.read_text() or 0) for p in jobs.iterdir()]
    if number == signal.SIGINT:
        os.killpg(child.pid, number)  # as a terminal does
    else:
        os.kill(child.pid, number)
    assert child.wait(30) != 0
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


SAMPLED = """
import numpy as np
import jq

x = np.ones((4, 4), np.float32)
model = jq.Model(lambda p, x: x @ p, x, (x,), calibration=[(x,)] * 2)
"""


def calibrated(folder: Path, address: str) -> str:
    """The line with which a calibration on a cluster is refused."""
    command = ["calibrate", f"{folder}/m.py:model", "-o", f"{folder}/r.json", "--dask", address]
    done = subprocess.run(
        [sys.executable, "-m", "jq", *command, "-q"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


class TestDask:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("distributed")

    def test_a_worker_that_ends_loses_its_job_alone(self, tmp_path: Path) -> None:
        (jobs := tmp_path / "jobs").mkdir()
        with cluster(tmp_path / "dask") as (address, running):
            work = Squares(jobs, fatal=(3,), seconds=0.1)
            assert squares(work, Workers(dask=address)) == ALL
            assert sum(p.poll() is not None for p in running) == 1
        assert begun(jobs)[3] == 2
        # And perhaps one that was done, whose result only the worker had as yet.
        assert sum(begun(jobs).values()) - len(ITEMS) in (1, 2)

    def test_a_single_worker_does_the_jobs(self, tmp_path: Path) -> None:
        (jobs := tmp_path / "jobs").mkdir()
        with cluster(tmp_path / "dask", workers=1) as (address, running):
            assert squares(Squares(jobs), Workers(dask=address)) == ALL
            assert {int(path.read_text()) for path in jobs.iterdir()} == {running[1].pid}

    def test_a_scheduler_that_ends(self, tmp_path: Path) -> None:
        (jobs := tmp_path / "jobs").mkdir()
        kept, done = Cache("job", "a work", tmp_path / "kept"), []
        gone = pytest.raises(JqError, match=r"is gone: \d+ of 12 .* goes on")
        with cluster(tmp_path / "dask") as (address, running), gone:
            work = Squares(jobs, seconds=0.1)
            for i, _ in run_jobs(work, ITEMS, Workers(dask=address), kept=kept):
                done.append(i)
                if len(done) == 4:
                    running[0].kill()
        assert 4 <= len(done) < len(ITEMS)
        assert squares(Squares(jobs), HERE, kept) == ALL
        assert set(begun(jobs)) == set(ITEMS)

    def test_nobody_there(self) -> None:
        with pytest.raises(UserError, match="no Dask scheduler answers"):
            squares(Squares(Path()), Workers(dask="tcp://127.0.0.1:9"))

    def test_a_server_of_something_else(self, tmp_path: Path) -> None:
        """Its answer is taken for the sizes of messages, for which there is no memory."""
        (tmp_path / "m.py").write_text(SAMPLED)

        class Answers(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            told = calibrated(tmp_path, f"tcp://127.0.0.1:{server.server_address[1]}")
            server.shutdown()
        assert "no Dask scheduler answers" in told

    def test_a_server_that_says_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "m.py").write_text(SAMPLED)
        with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel takes connections
            told = calibrated(tmp_path, f"tcp://127.0.0.1:{server.getsockname()[1]}")
        assert "no Dask scheduler answers: it takes the connection" in told

    def test_an_address_that_needs_certificates(self, tmp_path: Path) -> None:
        """In a process of its own: Dask's client complains where it is thrown away."""
        (tmp_path / "m.py").write_text(SAMPLED)
        for address in ("tls://127.0.0.1:9", "tcp://[", "tcp://"):
            told = calibrated(tmp_path, address)
            assert "no Dask scheduler answers" in told and address in told


def test_a_ray_cluster_of_one_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With modules in the place of Ray, which the tests do not install."""
    made, joblib = ModuleType("ray"), ModuleType("ray.util.joblib")
    ended: list[bool] = []
    members = {
        "init": lambda **options: None,
        "cluster_resources": lambda: {"CPU": 1.0},
        "shutdown": lambda: ended.append(True),
    }
    vars(made).update(members)
    vars(joblib)["register_ray"] = lambda: None
    for name, module in (("ray", made), ("ray.util", ModuleType("ray.util"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "ray.util.joblib", joblib)
    with pytest.raises(UserError, match="one processor"):
        squares(Squares(Path()), Workers(ray="auto"))
    assert ended


def test_loky_has_the_limit_that_is_lifted() -> None:
    """A private name: without it, a process that has grown is ended and opens its work again."""
    assert hasattr(process_executor, LEAK)


def test_an_item_of_arrays_is_known_by_what_it_holds(tmp_path: Path) -> None:
    kept, x = Cache("job", "a work", tmp_path), np.arange(6, dtype=np.float32)
    kept.put((1, x), {"y": x})
    assert np.array_equal((kept.get((1, x.copy())) or {})["y"], x)
    for other in ((2, x), (1, x.reshape(2, 3)), (1, x + 1), (1.0, x), ((1, x),)):
        assert kept.get(other) is None
