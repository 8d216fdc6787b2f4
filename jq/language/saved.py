"""A language model compiled ahead: `jaxq compile model.gguf -o DIR`, then `jaxq generate DIR`.

    language.json         what the model is, and its options
    1x4096.vmfb, ...      programs and packed weights, as `programs` keeps them
    tokenizer/            the header of a GGUF file, or the files of a folder of Hugging Face
    manifest.sig          a signature of language.json, which has the checksums of all other files

Nothing of it refers to the file that it was made of, and nothing is compiled when it is loaded."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from jq.artifact.keys import StoredFile
from jq.artifact.signature import SIGNATURE, sign, verify
from jq.base.errors import UserError
from jq.base.progress import Progress, silent
from jq.base.system.files import TEXT_LIMIT, check_folder, damaged, read_input
from jq.base.system.folders import replacing
from jq.frontends.gguf import open_gguf
from jq.frontends.gguf.write import write_like
from jq.frontends.sidecars import OF_TOKENIZERS, TEMPLATES, copy_files, sidecars
from jq.iree import cpu
from jq.language.build import build
from jq.language.decoder import Config, Decoder
from jq.language.programs import COSTS, capacities
from jq.language.store import HEADER, MANIFEST, TOKENIZER, Options, Shape, described, parsed

_FOLDERS = (TOKENIZER, f"{TOKENIZER}/{TEMPLATES}")
_PROGRAM = r"[0-9]+x[0-9]+(-every)?(-apart)?\.(vmfb|json|irpa)"
_OF_TOKENIZER = "|".join([*map(re.escape, (HEADER, *OF_TOKENIZERS)), rf"{TEMPLATES}/[^/]+\.jinja"])
_OURS = re.compile(f"{_PROGRAM}|{TOKENIZER}/({_OF_TOKENIZER})")


class Saved(BaseModel):
    """A model that was compiled ahead, as `language.json` describes it."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")

    version: Literal[2] = 2
    config: Config
    options: Options
    files: dict[str, StoredFile]

    @field_validator("config")
    @classmethod
    def _whole(cls, config: Config) -> Config:
        if len(config.mixers) != config.layers:
            raise ValueError(f"mixers are of {len(config.mixers)} layers")
        return config

    def check(self, options: Mapping[str, Any], path: Path) -> None:
        """Raises `UserError` if an option that is given, and not None, is not the model's own."""
        for name, value in options.items():
            if value is not None and value != (own := getattr(self.options, name)):
                told = f"the model was compiled for the {name} {own}, not {value}"
                hint = "give the file that it was compiled from, or compile it again"
                raise UserError(told, location=str(path), hint=hint)


def save(
    decoder: Decoder,
    options: Options,
    folder: Path,
    *,
    force: bool = False,
    key: Path | None = None,
    progress: Progress = silent,
) -> list[Shape]:
    """Compiles all programs that generating needs into a folder, wholly or not at all; their
    shapes. `force` replaces a model that is there, `key` is the file of a private key to sign with.

    Raises:
        UserError: the folder is not empty, or the model cannot be compiled so."""
    check_folder(folder, force=force)
    check_replaceable(folder)
    first, *larger = capacities(options)
    sizes = {first: list(COSTS)} | {size: [1, max(COSTS)] for size in larger}
    shapes = [
        Shape(count, capacity)
        for capacity, counts in sizes.items()
        for count in counts
        if count <= min(options.context, capacity)
    ]
    with replacing(folder) as work:
        for shape in shapes:
            progress(f"compile for {shape.name}", None)
            build(decoder.path, options, shape, work)
        _copy_tokenizer(decoder, work / TOKENIZER)
        made = Saved(config=decoder.config, options=options, files=checksums(work))
        content = f"{made.model_dump_json(indent=1)}\n".encode()
        (work / MANIFEST).write_bytes(content)
        if key is not None:
            (work / SIGNATURE).write_bytes(sign(content, key))
    return shapes


def is_saved(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def load(folder: Path, keys: Sequence[Path] = ()) -> Saved:
    """Loads a folder, its checksums verified, and its signature by one of the `keys` (files of
    public ones) where there are any.

    Raises:
        UserError: it is damaged, of another version, or this processor lacks what it needs."""
    content = read_input(folder / MANIFEST, TEXT_LIMIT)
    if keys:
        verify(folder, content, keys)
    found = parsed(Saved, content, folder / MANIFEST, "a language model")
    check_files(folder, found.files)
    for file in sorted(folder.glob("*.vmfb")):
        architecture, features = described(file.with_suffix(".json")).cpu
        needs = cpu.Cpu(architecture, frozenset(features))
        cpu.check_host(needs, hint="compile the model on this machine")
    return found


def _copy_tokenizer(decoder: Decoder, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if decoder.file is not None:
        data, header = open_gguf(decoder.path)
        write_like(folder / HEADER, data, header, [], {})
        return
    found = sidecars(decoder.path, lambda path: path.name in OF_TOKENIZERS)
    copy_files(found, decoder.path, folder)


def checksums(folder: Path) -> dict[str, StoredFile]:
    """Size and SHA-256 of each file but the manifest, by its path in the folder."""
    return {n: StoredFile.of(folder / n) for n in _names(folder) if _OURS.fullmatch(n)}


def check_files(folder: Path, listed: Mapping[str, StoredFile]) -> None:
    """Holds the files of a folder against sizes and checksums that its manifest lists; `UserError`
    where one is missing, another one, a link, or not listed."""
    present = set(filter(_OURS.fullmatch, _names(folder)))
    present |= {name for name in _FOLDERS if (folder / name).is_symlink()}  # to what nobody lists
    if odd := sorted(present ^ listed.keys()):
        reason = "is missing" if odd[0] in listed else "is not in the manifest"
        raise damaged(folder / MANIFEST, f"{odd[0]!r:.80} {reason}")
    for name, file in listed.items():
        file.check(folder / name)


def check_replaceable(folder: Path) -> None:
    """Refuses a folder that holds something else than such a model: all of it would go."""
    ours = (MANIFEST, SIGNATURE)
    if foreign := [n for n in _names(folder) if n not in ours and not _OURS.fullmatch(n)]:
        what = f"{folder} holds {foreign[0]!r}, which is not part of a language model"
        raise UserError(what, hint="move it away first")


def _names(folder: Path) -> list[str]:
    """Paths of all that is in a folder, but the folders of the tokenizer themselves."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in found if name not in _FOLDERS)
