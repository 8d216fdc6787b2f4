"""The tables of TFLite's flatbuffers, and the numbers of operators and types (`schema.txt`)."""

import re
from pathlib import Path

from jq.frontends.flatbuffer import Schema

_TEXT = Path(__file__).with_name("schema.txt").read_text(encoding="utf-8")
_, _OPERATORS, _ALIKE, _DIFFERENT, _OPTIONS, _TABLES = re.split(
    r"^\[.*\n", _TEXT, flags=re.MULTILINE
)
_ROWS = [line.split() for line in _OPERATORS.splitlines()]
READ = {int(number): name for name, number, *_ in _ROWS}
# Those that are written: number, version and options.
OPERATORS = {name: (int(n), int(more[0]), more[1]) for name, n, *more in _ROWS if more}
ALIKE = dict(line.split() for line in _ALIKE.splitlines())
DIFFERENT = dict(line.split(" ", 1) for line in _DIFFERENT.splitlines())
_NUMBERED = {int(n): name for n, name in re.findall(r"^(\d+) (\w+):", _OPTIONS, re.MULTILINE)}
SCHEMA = Schema.of(
    _TABLES + re.sub(r"^\d+ ", "", _OPTIONS, flags=re.MULTILINE),
    {"builtin_options": [_NUMBERED.get(i + 1, "") for i in range(max(_NUMBERED))]},
    b"TFL3",
)
TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}
VALID = 1  # the other padding, SAME, is not used: what is padded is written out
RELU = 1
