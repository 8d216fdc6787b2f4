"""A language model compiled ahead: `jaxq compile model.gguf -o DIR`, then `jaxq generate DIR`.

    language.json         what the model is, and its options
    1x4096.vmfb, ...      programs and packed weights, as `store` keeps them
    tokenizer/            the header of a GGUF file, or the files of a folder of Hugging Face
    manifest.sig          a signature of language.json, which has the checksums of all other files

Nothing of it refers to the file that it was made of, and nothing is compiled when it is loaded.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from jq.artifact.signature import SIGNATURE, sign, verify
from jq.base.errors import UserError
from jq.base.system.files import (
    TEXT_LIMIT,
    check_content,
    check_folder,
    damaged,
    read_input,
    sha256,
)
from jq.base.system.folders import replacing
from jq.frontends.gguf import open_gguf
from jq.frontends.gguf.write import write_like
from jq.iree import cpu
from jq.language.build import build
from jq.language.decoder import Config, Decoder
from jq.language.decoder.safetensors import TEMPLATES, as_object, check_inside, copy_files
from jq.language.programs import COSTS, LONG, capacities
from jq.language.store import HEADER, MANIFEST, TOKENIZER, Options, Shape, Store, as_json, described
from jq.language.tokenizer import PROCESSORS, SETTINGS, TEMPLATE

VERSION = 2
OF_TOKENIZERS = ("tokenizer.json", *SETTINGS, TEMPLATE, *PROCESSORS)
_FOLDERS = (TOKENIZER, f"{TOKENIZER}/{TEMPLATES}")
_PROGRAM = r"[0-9]+x[0-9]+(-every)?(-apart)?\.(vmfb|json|irpa)"
_OF_TOKENIZER = "|".join([*map(re.escape, (HEADER, *OF_TOKENIZERS)), rf"{TEMPLATES}/[^/]+\.jinja"])
_OURS = re.compile(f"{_PROGRAM}|{TOKENIZER}/({_OF_TOKENIZER})")


@dataclass(frozen=True)
class Saved:
    """A model that was compiled ahead, as `LanguageModel` reads it."""

    folder: Path
    config: Config
    options: Options

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """The metadata of the GGUF file that it came from, if any."""
        header = self.folder / TOKENIZER / HEADER
        return open_gguf(header)[1].metadata if header.exists() else None


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)

    bytes: Annotated[int, Field(ge=0, le=1 << 62)]
    sha256: str


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")

    version: int
    config: Config
    options: Options
    files: dict[str, _Part]


def save(
    decoder: Decoder,
    options: Options,
    folder: Path,
    *,
    force: bool = False,
    key: Path | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Shape]:
    """Compiles all programs that generating needs into a folder, wholly or not at all; their
    shapes. `force` replaces a model that is there, `key` is the file of a private key to sign with.

    Raises:
        UserError: the folder is not empty, or the model cannot be compiled so.
    """
    check_folder(folder, force=force)
    check_replaceable(folder)
    first, *larger = capacities(options)
    sizes = {first: sorted({*COSTS, LONG})} | {size: [1, LONG] for size in larger}
    shapes = [
        Shape(count, capacity)
        for capacity, counts in sizes.items()
        for count in counts
        if count <= min(options.context, capacity)
    ]
    with replacing(folder) as work:
        store = Store(work, sealed=True)
        for shape in shapes:
            progress(f"compile for {shape.name}")
            build(decoder.path, options, shape, store)
        _copy_tokenizer(decoder, work / TOKENIZER)
        document = {
            "version": VERSION,
            "config": asdict(decoder.config),
            "options": asdict(options),
            "files": checksums(work),
        }
        content = as_json(document).encode()
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
        UserError: it is damaged, of another version, or this processor lacks what it needs.
    """
    content = read_input(folder / MANIFEST, TEXT_LIMIT)
    if keys:
        verify(folder, content, keys)
    version = as_object(content, folder / MANIFEST).get("version")
    if version != VERSION:
        raise UserError(
            f"version {version!r} of a saved language model is not known",
            location=str(folder / MANIFEST),
            hint="compile it again",
        )
    try:
        found = _Document.model_validate_json(content)
        if len(found.config.mixers) != found.config.layers:
            raise ValueError(f"mixers are of {len(found.config.mixers)} layers")
    except (ValueError, ArithmeticError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:3]) or error
        raise UserError(
            f"not the description of a language model: {reason}", location=str(folder / MANIFEST)
        ) from error
    check_files(folder, {name: (f.bytes, f.sha256) for name, f in found.files.items()})
    for file in sorted(folder.glob("*.vmfb")):
        architecture, features = described(file.with_suffix(".json"))["cpu"]
        needs = cpu.Cpu(architecture, frozenset(features))
        cpu.check_host(needs, hint="compile the model on this machine")
    return Saved(folder, found.config, found.options)


def _copy_tokenizer(decoder: Decoder, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if decoder.file is not None:
        data, header = open_gguf(decoder.path)
        write_like(folder / HEADER, data, header, [], {})
        return
    found = [decoder.path / name for name in OF_TOKENIZERS if (decoder.path / name).exists()]
    found += sorted((decoder.path / TEMPLATES).glob("*.jinja"))
    for path in found:
        check_inside(path, decoder.path)
    copy_files(found, decoder.path, folder)


def checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 of each file but the manifest, by its path in the folder."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in _names(folder)
        if _OURS.fullmatch(name)
    }


def check_files(folder: Path, listed: Mapping[str, tuple[int, str]]) -> None:
    """Holds the files of a folder against sizes and checksums that its manifest lists; `UserError`
    where one is missing, another one, a link, or not listed."""
    present = set(filter(_OURS.fullmatch, _names(folder)))
    present |= {name for name in _FOLDERS if (folder / name).is_symlink()}  # to what nobody lists
    if odd := sorted(present ^ listed.keys()):
        reason = "is missing" if odd[0] in listed else "is not in the manifest"
        raise damaged(folder / MANIFEST, f"{odd[0]!r:.80} {reason}")
    for name, (bytes_, digest) in listed.items():
        check_content(folder / name, bytes_, digest)


def check_replaceable(folder: Path) -> None:
    """Refuses a folder that holds something else than such a model: all of it would go."""
    ours = (MANIFEST, SIGNATURE)
    if foreign := [n for n in _names(folder) if n not in ours and not _OURS.fullmatch(n)]:
        raise UserError(
            f"{folder} holds {foreign[0]!r}, which is not part of a language model",
            hint="move it away first",
        )


def _names(folder: Path) -> list[str]:
    """Paths of all that is in a folder, but the folders of the tokenizer themselves."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in found if name not in _FOLDERS)
