"""Places where jobs run, as users name them."""

from dataclasses import dataclass

from jq.base.errors import UserError

DASK = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
RAY = ("ray", "ray://")


@dataclass(frozen=True)
class Workers:
    """This process alone (`processes=1`), several here, or those of a Dask or Ray cluster.

    Attributes:
        processes: on this machine.
        dask: address of a scheduler, `tcp://host:8786`.
        ray: address of a cluster: `ray://host:10001`, or `auto`: the one that runs here already,
            else one that is started.
    """

    processes: int = 1
    dask: str = ""
    ray: str = ""

    @property
    def inside(self) -> bool:
        """True if jobs run in this process."""
        return self.processes == 1 and not self.dask and not self.ray

    def __str__(self) -> str:
        return self.dask or (self.ray and f"ray ({self.ray})") or f"{self.processes} processes"


HERE = Workers()


def as_workers(given: Workers | int | str) -> Workers:
    """A number of processes, or the address of a cluster: `"tcp://host:8786"` of Dask's scheduler,
    `"ray"` or `"ray://host:10001"`.

    Raises:
        UserError: it is neither.
    """
    if isinstance(given, Workers):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise UserError(f"jobs need at least one process, got {given}")
        return Workers(given)
    if isinstance(given, str) and given.startswith(DASK):
        return Workers(dask=given)
    if isinstance(given, str) and (given == RAY[0] or given.startswith(RAY[1])):
        return Workers(ray="auto" if given == RAY[0] else given)
    raise UserError(
        f"no workers are {given!r}",
        hint="a number of processes, tcp://HOST:PORT of a Dask scheduler, ray or ray://HOST:PORT",
    )
