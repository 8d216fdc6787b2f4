"""Files beside the weights in a folder of Hugging Face, and copies of them."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from jq.base.errors import UserError
from jq.base.system.files import check_input, written_whole

# What says which tokens are special, the later files first; and where templates lie.
SETTINGS = [f"{n}.json" for n in ("special_tokens_map", "config", "generation_config")]
SETTINGS += ["tokenizer_config.json"]
ADDED = "added_tokens.json"  # of a folder of old: the numbers of tokens by their text
TEMPLATE, PROCESSORS = "chat_template.jinja", ("chat_template.json", "processor_config.json")
TEMPLATES = "additional_chat_templates"  # a folder of NAME.jinja
PAIRS = ("vocab.json", "merges.txt")  # of GPT 2, where there is no `tokenizer.json`
OF_TOKENIZERS = ("tokenizer.json", *PAIRS, *SETTINGS, ADDED, TEMPLATE, *PROCESSORS)


def sidecars(source: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """The files in a folder that are wanted, and all templates; `UserError` for one that is no
    file, or a link that leads out of the folder of the model."""
    found = [p for p in sorted(source.iterdir()) if wanted(p) and not p.is_dir()]
    found += sorted((source / TEMPLATES).glob("*.jinja"))
    folder = source.resolve()
    for path in found:
        check_input(path)
        whole = path.resolve()
        if not (whole.is_relative_to(folder) or whole.parent == folder.parent.parent / "blobs"):
            what = "a link out of the model's folder is not copied"
            raise UserError(what, location=str(path), hint="copy it")
    return found


def copy_files(files: Iterable[Path], source: Path, out: Path) -> None:
    """Copies files of a folder into another, each whole or not at all."""
    for path in files:
        place = out / path.relative_to(source)
        place.parent.mkdir(exist_ok=True)
        with written_whole(place) as temporary:
            shutil.copyfile(path, temporary)
