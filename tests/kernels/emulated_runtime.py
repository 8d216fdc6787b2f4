"""Runs compiled modules for another process: what a Python of another architecture executes.

It reads pickled requests from its input and answers each on its output. It imports nothing of the
project, for the other Python has NumPy and IREE's runtime alone.
"""

from __future__ import annotations

import pickle
import struct
import sys
from typing import Any, BinaryIO

import iree.runtime as rt
import numpy as np

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


def load(config: Any, module: bytes, parameters: str | None) -> Any:
    """The functions of a module, whose weights may be in a file of their own."""
    context = rt.SystemContext(config=config)
    if parameters:
        index = rt.ParameterIndex()
        index.load(parameters)
        provider = index.create_provider(scope="model")
        context.add_vm_module(rt.create_io_parameters_module(config.vm_instance, provider))
    functions = rt.VmModule.copy_buffer(config.vm_instance, module)
    context.add_vm_module(functions)
    return context.modules[functions.name]


def main() -> None:

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config = rt.Config("local-sync")
    current: tuple[int, Any] = (-1, None)
    while True:
        try:
            number, module, parameters, name, operands = receive(source)
        except EOFError:
            return
        try:
            if number != current[0]:
                current = number, load(config, module, parameters)
            found = current[1][name](*operands)
            found = found if isinstance(found, (tuple, list)) else [found]
            send(sink, [np.array(result.to_host()) for result in found])
        except Exception as error:
            send(sink, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
