"""The tables of TOSA's flatbuffers (`schema.txt`), and the numbers of types and modes."""

import re
from pathlib import Path

from jq.frontends.flatbuffer import Schema

_TEXT = Path(__file__).with_name("schema.txt").read_text(encoding="utf-8")
_, _TABLES, _OPERATORS = re.split(r"^\[.*\n", _TEXT, flags=re.MULTILINE)
OPERATORS = re.findall(r"^(\w+):", _OPERATORS, re.MULTILINE)
SCHEMA = Schema.of(_TABLES + _OPERATORS, {"attribute": OPERATORS}, b"TOSA")
TYPES = {"bool": 1, "int4": 2, "int8": 3, "int16": 4, "int32": 5, "int48": 6, "shape": 10}
PROPAGATE = 1  # NaN mode: of integers it means nothing
ROUNDINGS = {"single": 1, "double": 3}
