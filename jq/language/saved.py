"""A language model compiled ahead: `jaxq compile model.gguf -o DIR`, then `jaxq generate DIR`.

    language.json         what the model is, and its options
    1x4096.vmfb, ...      programs and packed weights, as `store` keeps them
    tokenizer/            the header of a GGUF file, or the files of a folder of Hugging Face

Nothing of it refers to the file that it was made of, and nothing is compiled when it is loaded.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jq.errors import UserError
from jq.gguf import open_gguf
from jq.gguf.write import write_like
from jq.iree import cpu
from jq.language.build import build
from jq.language.session import COSTS, LONG, capacities
from jq.language.store import Options, Shape, Store, as_json
from jq.models.decoder import Config, Decoder
from jq.models.decoder.rope import Rope
from jq.models.decoder.safetensors import json_object
from jq.system.files import check_folder

MANIFEST, TOKENIZER, HEADER = "language.json", "tokenizer", "header.gguf"
_VERSION = 1
_OF_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
    "generation_config.json",
    "chat_template.jinja",
)


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


def save(
    decoder: Decoder,
    options: Options,
    folder: Path,
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Shape]:
    """Compiles all programs that generating needs into a folder; their shapes.

    Raises:
        UserError: the folder is not empty, or the model cannot be compiled so.
    """
    check_folder(folder, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    for old in _own_files(folder):
        old.unlink()
    first, *larger = capacities(options)
    sizes = {first: sorted({*COSTS, LONG})} | {key: [1, LONG] for key in larger}
    shapes = [
        Shape(count, capacity)
        for capacity, counts in sizes.items()
        for count in counts
        if count <= min(options.context, capacity)
    ]
    store = Store(folder, sealed=True)
    for shape in shapes:
        progress(f"compile for {shape.name}")
        build(decoder.path, options, shape, store)
    _copy_tokenizer(decoder, folder / TOKENIZER)
    document = {
        "version": _VERSION,
        "config": asdict(decoder.config),
        "options": asdict(options),
    }
    (folder / MANIFEST).write_text(
        as_json(document), encoding="utf-8"
    )  # last: without it there is no model
    return shapes


def is_saved(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def load(folder: Path) -> Saved:
    """What a folder holds.

    Raises:
        UserError: it is damaged, of another version, or this processor lacks what it needs.
    """
    document = json_object(folder / MANIFEST)
    if document.get("version") != _VERSION:
        raise UserError(
            f"version {document.get('version')!r} of a saved language model is not known",
            location=str(folder / MANIFEST),
            hint="compile it again",
        )
    try:
        config = _config(document["config"])
        options = Options(**document["options"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"not the description of a language model: {error}", location=str(folder / MANIFEST)
        ) from error
    store = Store(folder, sealed=True)
    for file in sorted(folder.glob("*.vmfb")):
        described = _described(store, file)
        needs = cpu.Cpu(described["cpu"][0], frozenset(described["cpu"][1]))
        cpu.check_host(needs, hint="compile the model on this machine")
    return Saved(folder, config, options)


def _described(store: Store, file: Path) -> dict[str, Any]:
    path = store.folder / f"{file.stem}.json"
    found = json_object(path)
    needs = found.get("cpu")
    if not isinstance(needs, list) or len(needs) != 2 or not isinstance(needs[1], list):
        raise UserError("not the description of a language model's program", location=str(path))
    return found


def _config(values: Mapping[str, Any]) -> Config:
    ropes = tuple(
        (name, Rope(tuple(r["frequencies"]), r["scale"], tuple(r["long"]), r["original"]))
        for name, r in values["ropes"]
    )
    lists = {key: tuple(v) for key, v in values.items() if isinstance(v, list)}
    return Config(**{**values, **lists, "ropes": ropes})


def _copy_tokenizer(decoder: Decoder, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if decoder.file is not None:
        data, header = open_gguf(decoder.path)
        write_like(folder / HEADER, data, header, [], {})
        return
    for name in _OF_TOKENIZERS:
        if (decoder.path / name).is_file():
            shutil.copyfile(decoder.path / name, folder / name)


def _own_files(folder: Path) -> list[Path]:
    """What an earlier model left there; nothing else is removed."""
    if not is_saved(folder):
        return []
    own = [p for kind in ("vmfb", "json", "irpa") for p in folder.glob(f"*.{kind}")]
    return own + [p for p in (folder / TOKENIZER).glob("*") if p.is_file()]
