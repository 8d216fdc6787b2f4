"""GGUF files that hold a part of a model each: NAME-00001-of-00003.gguf and those beside it."""

import re
from dataclasses import replace
from pathlib import Path

from jq.base.errors import UserError
from jq.frontends.gguf import GgufFile, load_gguf

_NAME = re.compile(r"(.*-)([0-9]{5})-of-([0-9]{5})(\.gguf)", re.IGNORECASE)
_MOST = 1000  # parts
MAGIC = b"GGUF"


def is_gguf(path: Path) -> bool:
    """True if a file is one by its name, or begins as one: some tools name them by digest."""
    if path.suffix.lower() == ".gguf":
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def parts_of(path: Path) -> list[Path]:
    """All files of a model that one of them names, the first one first; the file alone where its
    name is no part's."""
    match = _NAME.fullmatch(path.name)
    count = int(match[3]) if match else 0
    if match is None or not 1 <= int(match[2]) <= count <= _MOST:
        return [path]
    before, _, _, after = match.groups()
    return [path.with_name(f"{before}{i:05}-of-{count:05}{after}") for i in range(1, count + 1)]


def load_parts(path: Path) -> GgufFile:
    """A model of one file, or of those that its name tells of: the metadata of the first, the
    tensors of all.

    Raises:
        UserError: a part is missing, or is no part of this model; and as `load_gguf`.
    """
    paths = parts_of(path)
    first = load_gguf(paths[0])
    count = first.metadata.get("split.count", 1)
    if type(count) is not int or count not in (1, len(paths)):
        raise UserError(
            f"this is one of {count!r:.20} parts of a model",
            location=str(path),
            hint="name them NAME-00001-of-00003.gguf and so on, or join them: "
            "llama-gguf-split --merge FIRST_PART JOINED.gguf",
        )
    if count == 1:
        return load_gguf(path)
    tensors = dict(first.tensors)
    for number, part in enumerate(paths):
        file = first if number == 0 else load_gguf(part)
        said = (file.metadata.get("split.no"), file.metadata.get("split.count"))
        if said != (number, count):
            raise UserError(f"this is no part {number + 1} of {count}", location=str(part))
        if number and (twice := tensors.keys() & file.tensors.keys()):
            raise UserError(f"tensor {min(twice)!r} is in two parts", location=str(part))
        tensors |= file.tensors
    total = first.metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise UserError(f"the parts hold {len(tensors)} of {total} tensors", location=str(path))
    return replace(first, tensors=tensors)


__all__ = ["is_gguf", "load_parts", "parts_of"]
