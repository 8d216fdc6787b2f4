"""The files of a language model that was compiled ahead, and their checksums."""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jq.artifact.signature import SIGNATURE
from jq.base.errors import UserError
from jq.base.system.files import check_input, sha256, written_whole
from jq.language.decoder.safetensors import INDEX
from jq.language.tokenizer import PROCESSORS, SETTINGS, TEMPLATE

MANIFEST, TOKENIZER, HEADER = "language.json", "tokenizer", "header.gguf"
OF_TOKENIZERS = ("tokenizer.json", *SETTINGS, TEMPLATE, *PROCESSORS)
_PROGRAM = re.compile(r"[0-9]+x[0-9]+(-every)?(-apart)?\.(vmfb|json|irpa)")
_TOKENIZER = {f"{TOKENIZER}/{name}" for name in (HEADER, *OF_TOKENIZERS)}


def checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 of each file but the manifest, by its path in the folder."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in _names(folder)
        if _is_ours(name)
    }


def check_files(folder: Path, listed: Mapping[str, tuple[int, str]]) -> None:
    """Holds the files of a folder against sizes and checksums that its manifest lists.

    Raises:
        UserError: one is missing, another one, a link, or not listed.
    """
    present = {name for name in _names(folder) if _is_ours(name)}
    if odd := sorted(present ^ listed.keys()):
        reason = "is missing" if odd[0] in listed else "is not in the manifest"
        raise _damaged(folder / MANIFEST, f"{odd[0]!r:.80} {reason}")
    for name, (bytes_, digest) in listed.items():
        path = folder / name
        if path.is_symlink():
            raise _damaged(path, "it is a link to somewhere else")
        if (size := check_input(path)) != bytes_:
            raise _damaged(path, f"{size} bytes instead of {bytes_!r:.30}")
        if sha256(path) != digest:
            raise _damaged(path, "its checksum differs")


def check_replaceable(folder: Path) -> None:
    """Refuses a folder that holds something else than such a model: all of it would go."""
    if foreign := sorted(name for name in _names(folder) if not _may_go(name)):
        raise UserError(
            f"{folder} holds {foreign[0]!r}, which is not part of a language model",
            hint="move it away first",
        )


def _names(folder: Path) -> list[str]:
    """Paths of all that is in a folder, but the folder of the tokenizer itself."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in found if name != TOKENIZER)


def _is_ours(name: str) -> bool:
    return bool(_PROGRAM.fullmatch(name)) or name in _TOKENIZER


def _may_go(name: str) -> bool:
    return _is_ours(name) or name in (MANIFEST, SIGNATURE)


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is damaged: {reason}", hint="compile the model again")


_KINDS = (".json", ".txt", ".model", ".jinja")
_WRITTEN_ANEW = (INDEX, "config.json")


def files_beside(source: Path) -> list[Path]:
    """The files in a folder that a copy with other weights has as well.

    Raises:
        UserError: one is no file, or leads out of the folder.
    """
    found = [p for p in sorted(source.iterdir()) if p.suffix in _KINDS and not p.is_dir()]
    found = [p for p in found if p.name not in _WRITTEN_ANEW]
    for path in found:
        check_inside(path)
    return found


def check_inside(path: Path) -> None:
    """Refuses what is no file, and a link to a file of another folder."""
    check_input(path)
    folder = path.parent.resolve()
    if path.resolve().parent not in (folder, folder.parent.parent / "blobs"):
        raise UserError(
            "a link out of the model's folder is not copied", location=str(path), hint="copy it"
        )


def copy_files(files: Iterable[Path], out: Path) -> None:
    """Copies files into a folder, each whole or not at all."""
    for path in files:
        with written_whole(out / path.name) as temporary:
            shutil.copyfile(path, temporary)
