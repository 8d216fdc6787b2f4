"""Runs compiled modules for another process: what a Python of another architecture executes.

It reads pickled requests from its input and answers each on its output. It imports nothing of the
project, for the other Python has NumPy and IREE's runtime alone.
"""

from __future__ import annotations

import pickle
import struct
import sys
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


def send(stream: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value, protocol=5)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next value; EOFError at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(_LENGTH.unpack(head)[0]))


def main() -> None:
    import iree.runtime as rt
    import numpy as np

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config = rt.Config("local-sync")
    current: tuple[int, Any] = (-1, None)
    while True:
        try:
            number, module, name, operands = receive(source)
        except EOFError:
            return
        try:
            if number != current[0]:
                context = rt.SystemContext(config=config)
                context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, module))
                current = number, context.modules.module
            found = current[1][name](*operands)
            found = found if isinstance(found, (tuple, list)) else [found]
            send(sink, [np.array(result.to_host()) for result in found])
        except Exception as error:
            send(sink, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
