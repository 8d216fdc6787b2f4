"""A language model compiled ahead: `jaxq compile model.gguf -o DIR`, then `jaxq generate DIR`.

    language.json         what the model is, and its options
    1x4096.vmfb, ...      programs and packed weights, as `store` keeps them
    tokenizer/            the header of a GGUF file, or the files of a folder of Hugging Face

Nothing of it refers to the file that it was made of, and nothing is compiled when it is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from jq.errors import UserError
from jq.gguf import open_gguf
from jq.gguf.write import write_like
from jq.iree import cpu
from jq.language.beside import check_inside, copy_files
from jq.language.build import build
from jq.language.session import COSTS, LONG, capacities
from jq.language.store import Options, Shape, Store, as_json, described
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
        for given in (config, *(rope for _, rope in config.ropes), options):
            check_types(given)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UserError(
            f"not the description of a language model: {error}", location=str(folder / MANIFEST)
        ) from error
    store = Store(folder, sealed=True)
    for file in sorted(folder.glob("*.vmfb")):
        architecture, features = described(store.folder / f"{file.stem}.json")["cpu"]
        needs = cpu.Cpu(architecture, frozenset(features))
        cpu.check_host(needs, hint="compile the model on this machine")
    return Saved(folder, config, options)


def _config(values: Mapping[str, Any]) -> Config:
    ropes = tuple(
        (name, Rope(tuple(r["frequencies"]), r["scale"], tuple(r["long"]), r["original"]))
        for name, r in values["ropes"]
    )
    lists = {key: tuple(v) for key, v in values.items() if isinstance(v, list)}
    return Config(**{**values, **lists, "ropes": ropes})


def check_types(given: Any) -> None:
    """Raises `TypeError` where a field of a dataclass holds something else than its class says."""
    for name, kind in get_type_hints(type(given)).items():
        if not _is(value := getattr(given, name), kind):
            raise TypeError(f"{name} is {value!r:.40}")


def _is(value: Any, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if not isinstance(value, tuple):
            return False
        each = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(each) == len(value) and all(map(_is, value, each))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind is int:
        return type(value) is int and 0 <= value < 1 << 31
    return isinstance(value, kind)


def _copy_tokenizer(decoder: Decoder, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if decoder.file is not None:
        data, header = open_gguf(decoder.path)
        write_like(folder / HEADER, data, header, [], {})
        return
    found = [decoder.path / name for name in _OF_TOKENIZERS if (decoder.path / name).exists()]
    for path in found:
        check_inside(path)
    copy_files(found, folder)


def _own_files(folder: Path) -> list[Path]:
    """What an earlier model left there; nothing else is removed."""
    if not is_saved(folder):
        return []
    own = [p for kind in ("vmfb", "json", "irpa") for p in folder.glob(f"*.{kind}")]
    return own + [p for p in (folder / TOKENIZER).glob("*") if p.is_file()]
