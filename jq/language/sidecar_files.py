"""Files beside the weights in a folder of Hugging Face, as tokenizers and templates, which are
copied along.

The folder may come from anybody, and its copy may go to anybody: a link in it must not bring a file
of ours along. Links are followed within the folder, and into the `blobs` of Hugging Face's own
cache, whose snapshots are links.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from jq.base.errors import UserError
from jq.base.system.files import check_input, written_whole
from jq.language.decoder.safetensors import INDEX

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
