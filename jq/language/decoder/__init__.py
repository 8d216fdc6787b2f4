"""Decoder-only language models from their files: GGUF, or a folder of Hugging Face."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.frontends.gguf import GgufFile, is_gguf
from jq.language.decoder.config import Config
from jq.language.decoder.gguf import read_gguf
from jq.language.decoder.huggingface import read_huggingface


@dataclass(frozen=True)
class Decoder:
    """A model as its file has it; `params` is the tree that `network.step` takes, over the mapped
    files and without the tables of rotary positions."""

    path: Path
    config: Config
    params: dict[str, Any] = field(repr=False)
    file: GgufFile | None = field(default=None, repr=False)  # where it is a GGUF file

    def parameters(self, count: int, context: int | None = None) -> dict[str, Any]:
        """All that `network.step` reads in the first `count` positions of a `context`."""
        tables = {n: rope.tables(count, context or count) for n, rope in self.config.ropes}
        params = dict(self.params)
        if learned := params.pop("positions", None):  # beyond its rows nothing is asked for
            rows = np.asarray(learned["weight"], np.float32)[self.config.get("unused_positions") :]
            tables["positions"] = {"rows": np.resize(rows, (count, self.config.hidden))}
        return {**params, "rope": tables}


def check_folder_of(model: Path) -> None:
    """Refuses a folder that is none of a language model."""
    if not (model / "config.json").is_file():
        what = "this folder is no language model: it has no config.json"
        hint = "give a .gguf file, a folder of Hugging Face, or what compile made of either"
        raise UserError(what, location=str(model), hint=hint)


def load_decoder(path: str | Path) -> Decoder:
    """The model of a `.gguf` file, or of a folder with `config.json` and safetensors."""
    path = Path(path)
    if path.is_dir():
        check_folder_of(path)
        return Decoder(path, *read_huggingface(path))
    if not is_gguf(path):
        what = "not a language model"
        raise UserError(what, location=str(path), hint="give a .gguf file or a folder")
    config, params, file = read_gguf(path)
    return Decoder(file.path, config, params, file)
