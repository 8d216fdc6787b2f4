"""Processes of ours that answer requests: started when they are first needed, ended with us."""

import atexit
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jq.base.system.signals import held_back


class Child:
    """A process, or none yet. After a fork there is none: that process is our parent's."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[Any] | None = None
        self._owner = 0  # the process that has started it

    @property
    def pid(self) -> int:
        """0 where it was not started."""
        return self._process.pid if self._process and self._owner == os.getpid() else 0

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts it in a session of its own: an interrupt from the keyboard reaches us alone."""
        with held_back():
            self._process = subprocess.Popen(command, start_new_session=True, **options)
        if self._owner != os.getpid():
            self._owner = os.getpid()
            atexit.register(self.stop)
        return self._process

    def stop(self) -> int:
        """Ends the process, if it is ours; its exit code, negative for a signal."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        process.kill()  # nothing to one that has ended
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return code
