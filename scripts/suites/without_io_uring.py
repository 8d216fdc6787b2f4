"""Runs the command after it in a system that has no `io_uring`: without_io_uring.py COMMAND ..."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # of prctl
_IO_URING_SETUP, _LACKING = 425, 0x00050000 | 38  # x86-64; SECCOMP_RET_ERRNO | ENOSYS
# Load the call's number; where it is that one, give the error; else allow it. (BPF)
_LINES = (
    (0x20, 0, 0, 0),
    (0x15, 0, 1, _IO_URING_SETUP),
    (0x06, 0, 0, _LACKING),
    (0x06, 0, 0, 0x7FFF0000),
)


def main() -> None:
    program = b"".join(struct.pack("<HBBI", *line) for line in _LINES)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(_LINES), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, header, 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
