"""Compiled programs and packed weights of a language model, kept between runs.

A folder holds what one model file and one set of options gave with this compiler on this processor:

    1x512.vmfb, 1x512.json   a program for 1 token and a cache of 512, and what it takes and gives
    1x512.irpa               the weights that no program before it had stored

Weights are found by their content, so that programs of all lengths share them."""

import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jq.artifact.store import Cache, file_digest
from jq.base.errors import UserError, check_known
from jq.base.system.files import TEXT_LIMIT, read_input, read_text
from jq.frontends.gguf import parts_of
from jq.language.decoder import Decoder
from jq.language.decoder.config import Count

# Files of a folder that is compiled ahead.
MANIFEST, TOKENIZER, HEADER = "language.json", "tokenizer", "header.gguf"


@dataclass(frozen=True)
class Options:
    """Options that change the programs of a model."""

    pipeline: str = "int8-dynamic"  # products of weights in blocks of a file keep those
    cache: str = "float32"  # type of keys and values that are kept: "float32", "bfloat16" or "int8"
    context: Count = 4096  # the largest number of tokens, prompt included
    batch: Count = 1  # sequences that go side by side


CACHES = ("float32", "bfloat16", "int8")


def options_for(
    decoder: Decoder, pipeline: str | None, cache: str | None, context: int | None, batch: int = 1
) -> Options:
    """Options with what is not given as it is by default; `UserError` for what is not possible."""
    if batch < 1:
        raise UserError(f"a batch of {batch} sequences is not possible")
    plain, most = Options(), decoder.config.context
    if pipeline not in (None, "float", plain.pipeline):  # importing the compiler takes a second
        _check_pipeline(pipeline)
    cache = check_known("type of a cache", plain.cache if cache is None else cache, CACHES)
    chosen = min(plain.context, most) if context is None else context
    if not 1 <= chosen <= most:
        where, hint = str(decoder.path), f"the model takes 1 to {most}"
        raise UserError(f"a context of {chosen} tokens is not possible", location=where, hint=hint)
    return Options(plain.pipeline if pipeline is None else pipeline, cache, chosen, batch)


def _check_pipeline(name: str) -> None:
    """Refuses a pipeline that there is not, or that needs data, before anything is compiled."""
    from jq.passes.pipeline import load_pipeline

    found = load_pipeline(name)
    if found.open or found.settings.activations.calibrated:
        hint = "use int8-dynamic, or one of weights alone"
        raise UserError(f"pipeline {name} needs calibration, which is of other models", hint=hint)


_Size = Annotated[int, Field(ge=0, lt=1 << 31)]
_Type = Literal["float32", "bfloat16", "float16", "int8", "int32"]
_Tensor = tuple[tuple[_Size, ...], _Type]  # shape and type


class Described(BaseModel):
    """Description of a program: what it takes and gives, whether each state among that `grows`, and
    the `cpu` that it needs, as architecture and features."""

    model_config = ConfigDict(strict=True)

    inputs: list[_Tensor]
    outputs: list[_Tensor]
    grows: list[bool]
    cpu: tuple[str, list[str]]

    @property
    def states(self) -> list[_Tensor]:
        """The inputs that are states; outputs have them behind the logits."""
        return self.inputs[1 - len(self.outputs) :]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not len(self.grows) + 1 == len(self.outputs) <= len(self.inputs):
            raise ValueError("states are as many as outputs but one")
        return self


Document = TypeVar("Document", bound=BaseModel)


def parsed(kind: type[Document], content: bytes, path: Path, what: str) -> Document:
    """The content of a file of JSON; `UserError` where it is not the description of `what`."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    except ArithmeticError as error:  # of what is computed of it
        reason = str(error)
    hint = "compile the model again"
    raise UserError(f"not the description of {what}: {reason}", location=str(path), hint=hint)


@dataclass(frozen=True)
class Shape:
    """Sizes of a program: tokens taken in at once, the cache's capacity, whether it gives the
    logits of every token, not one, and whether sequences are `apart`, each at its position."""

    count: int
    capacity: int
    every: bool = False
    apart: bool = False

    @property
    def name(self) -> str:
        more = "-every" * self.every + "-apart" * self.apart
        return f"{self.count}x{self.capacity}{more}"


def folder_of(model: Path, options: Options, root: Path | None = None) -> Path:
    """The folder for a model with options; `root` instead of the user's cache directory."""
    kinds = (".gguf", ".safetensors", ".json")
    held = sorted(model.iterdir()) if model.is_dir() else []
    files = [p for p in held if p.is_file() and p.suffix in kinds] or parts_of(model)
    inputs = [asdict(options), list(_own_pipeline(options.pipeline)), file_digest(files, root)]
    return Cache("language", root=root).path(inputs)


def _own_pipeline(name: str) -> Iterator[str]:
    """The texts of a pipeline that is a file, and of those that it is based on."""
    file = Path(name)
    while file.suffix == ".toml":
        yield (text := read_text(file))
        try:
            base = str(tomllib.loads(text).get("base", ""))
        except tomllib.TOMLDecodeError:
            return  # refused where it is compiled
        file = file.parent / base


def described(path: Path) -> Described:
    """The description of a program in a file; `UserError` where it is none."""
    return parsed(Described, read_input(path, TEXT_LIMIT), path, "a language model's program")
