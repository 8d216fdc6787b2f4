"""The measurements of a search so far, in a file: an interrupted search goes on from there."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base.errors import UserError
from jq.base.system.files import read_text, written_whole
from jq.driver.job import Job

LOG = logging.getLogger("jq")


class State:
    """Numbers by name, in a file of JSON that is written whole or not at all.

    Args:
        path: the file. One that is damaged, or has another key, is as good as none.
        key: stands for all that a measurement depends on, the code of this package among it.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.values = self._read()
        self._kept = True
        if path.is_file() and not self.values:
            LOG.warning("%s: measured with other code, data or settings: measured anew", path)

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(read_text(self.path))
            values = found["values"] if found["key"] == self.key else {}
            return {str(name): float(value) for name, value in values.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def get(self, name: str) -> float | None:
        return self.values.get(name)

    def put(self, name: str, value: float) -> None:
        """Keeps a value; if the file cannot be written, the search goes on and says so once."""
        self.values[name] = value
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(self.path) as temporary:
                document = {"key": self.key, "values": self.values}
                temporary.write_text(json.dumps(document), encoding="utf-8")
        except (OSError, UserError) as error:
            if self._kept:
                LOG.warning("measurements are not kept for a later search: %s", error)
            self._kept = False


def state_of(job: Job, calls: Iterable[Iterable[np.ndarray]], file: str | Path | None) -> State:
    """The state of searching for a job, with the calls that errors are measured on; in the store,
    or in a file that the user names."""
    pipeline = job.pipeline
    path = Cache("search").path(
        [
            pipeline.settings.model_dump(mode="json"),
            [rule.model_dump(mode="json") for rule in pipeline.rules],
            [[level, list(map(repr, passes))] for level, passes in pipeline.passes.items()],
            job.target.model_dump(mode="json"),
            program_digest(job.source.program),
            [list(inputs) for inputs in job.data or ()],
            [list(inputs) for inputs in calls],
        ]
    )
    return State(Path(file) if file else path, path.name)
