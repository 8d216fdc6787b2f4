"""Dask's and Ray's workers, as joblib's backends."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from joblib import delayed

from jq.artifact.jobs.work import Payload, run_job
from jq.base.errors import UserError
from jq.base.registry import need


@dataclass(frozen=True)
class Executor:
    """Attributes:
    options: of `joblib.parallel_config`.
    task: what joblib runs for a job's number and item (`joblib.delayed`).
    alive: whether it still answers.
    together: how many jobs are given at once where the backend returns none before all are done."""

    options: dict[str, Any]
    task: Callable[[int, Any], Any]
    alive: Callable[[], bool]
    together: int = 0


LOGS = "distributed"
TOGETHER = 32  # of Ray's jobs
ANSWER = 10  # seconds until a scheduler has to answer, or have a worker
GRACE = 5  # more seconds, in which Dask itself may say what is wrong


@contextmanager
def dask(address: str, payload: Payload) -> Iterator[Executor]:
    """The workers of the scheduler at `address`.

    Raises:
        UserError: Dask is not installed, nothing answers there, or there is no worker."""
    distributed = need("distributed", "dask", "jobs on Dask need")
    logs = [logging.getLogger(n) for n in logging.root.manager.loggerDict if n.startswith(LOGS)]
    levels = [log.level for log in logs]
    for log in logs:  # what is lost is said by us, once
        log.setLevel(logging.CRITICAL + 1)
    client: Any = None
    try:
        client = _client(distributed, address)
        client.run(_threads, on_error="ignore")
        yield Executor(
            {"backend": _backend()(client=client, scatter=[payload])},
            lambda number, item: delayed(run_job)(payload, number, item),
            lambda: bool(client.status == "running"),
        )
    finally:
        if client is not None:
            client.close(timeout=ANSWER)
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _backend() -> Any:
    """joblib's backend, for which one worker of one thread are workers too: jobs of a single one
    would be done by this process, which they may end."""
    from joblib._dask import DaskDistributedBackend

    class Backend(DaskDistributedBackend):
        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, super().effective_n_jobs(n_jobs))

    return Backend


def _threads(dask_worker: Any) -> None:
    """XLA computes with as many threads as the worker was given, where it has not started yet."""
    os.environ.setdefault("NPROC", str(dask_worker.state.nthreads))


def _client(distributed: Any, address: str) -> Any:
    client: Any = None
    try:
        client = _connected(distributed, address)
        client.wait_for_workers(1, timeout=ANSWER)
    except (OSError, ValueError, TypeError, MemoryError) as error:  # a TimeoutError is an OSError
        if client is None:
            raise _no_scheduler(address, error) from None
        client.close(timeout=ANSWER)
        hint = f"start some: `dask worker {address} --nthreads 1`"
        raise UserError("the Dask scheduler has no worker", location=address, hint=hint) from None
    return client


def check_address(address: str) -> None:
    """Refuses the address of a scheduler where nothing takes a connection, before any work."""
    try:
        found = urlsplit(address)
        socket.create_connection((found.hostname or "", found.port or 0), ANSWER).close()
    except (OSError, ValueError) as error:
        raise _no_scheduler(address, error) from None


def _no_scheduler(address: str, error: Exception) -> UserError:
    what = f"no Dask scheduler answers: {error}".partition("\n")[0]
    hint = "start one: `dask scheduler`; and `dask worker ADDRESS --nthreads 1`"
    return UserError(what, location=address, hint=hint)


def _connected(distributed: Any, address: str) -> Any:
    """A client. It is made in a thread, since Dask itself waits without an end for a server that
    takes the connection and says nothing.

    Raises:
        TimeoutError: no answer in time. What Dask raises is raised here as well."""
    answers = SimpleQueue[Any]()

    def connect() -> None:
        try:
            answers.put(distributed.Client(address, timeout=ANSWER, set_as_default=False))
        except Exception as error:
            answers.put(error)

    Thread(target=connect, daemon=True).start()
    try:
        found = answers.get(timeout=ANSWER + GRACE)
    except Empty:
        raise TimeoutError("it takes the connection, and then says nothing") from None
    if isinstance(found, Exception):
        raise found
    return found


@contextmanager
def ray(address: str, payload: Payload) -> Iterator[Executor]:
    """The workers of a Ray cluster; `auto`: of one on this machine, started if there is none.

    Raises:
        UserError: Ray is not installed, nothing answers there, or there is one processor alone."""
    cluster, backend = (need(m, "ray", "jobs on Ray need") for m in ("ray", "ray.util.joblib"))
    try:
        try:
            cluster.init(address=address, log_to_driver=False)
        except ConnectionError:
            if address != "auto":
                raise
            cluster.init(log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = f"no Ray cluster answers: {error}".partition("\n")[0]
        raise UserError(reason, location=address) from None
    backend.register_ray()
    try:
        if cluster.cluster_resources().get("CPU", 0) < 2:  # joblib would not leave this process
            what = "the Ray cluster has one processor: its jobs would run in this process"
            hint = "a cluster of two (`ray start --num-cpus 2`), or --jobs"
            raise UserError(what, location=address, hint=hint)
        kept = cluster.put(payload)
        yield Executor(
            {"backend": "ray", "n_jobs": -1},
            lambda number, item: delayed(_of_ray)([kept], number, item),
            cluster.is_initialized,
            together=TOGETHER,
        )
    finally:
        cluster.shutdown()


def _of_ray(kept: list[Any], number: int, item: Any) -> Any:
    """`run_job` with what Ray keeps on each machine."""
    import ray as cluster

    return run_job(cluster.get(kept[0]), number, item)
