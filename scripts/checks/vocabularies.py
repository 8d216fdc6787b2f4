"""Tokens of texts against llama.cpp's own: `ggml-vocab-NAME.gguf` with `.inp` and `.out` beside it.

    scripts/check.py vocabularies FOLDER

FOLDER is models/ of llama.cpp, whose vocabularies cover the ways to cut text before pieces are
merged. Shown are the texts of each, and those whose tokens differ.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jq.base.errors import UserError
from jq.frontends.gguf import open_gguf
from jq.language.tokenizer import tokenizer_of_gguf

BETWEEN = "\n__ggml_vocab_test__\n"


def different(file: Path) -> tuple[int, list[str]]:
    """Number of texts, and those of other tokens."""
    codec = tokenizer_of_gguf(open_gguf(file)[1].metadata, str(file)).codec
    texts = Path(f"{file}.inp").read_text(encoding="utf-8").split(BETWEEN)
    wanted = [list(map(int, line.split())) for line in Path(f"{file}.out").read_text().splitlines()]
    pairs = list(zip(texts, wanted, strict=False))
    return len(pairs), [text for text, want in pairs if codec.encode(text) != want]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    wrong = 0
    for file in sorted(parser.parse_args().folder.glob("ggml-vocab-*.gguf")):
        if not Path(f"{file}.inp").exists():
            continue
        try:
            count, odd = different(file)
        except UserError as error:
            print(f"{file.stem}: refused: {error}")
            continue
        wrong += len(odd)
        print(f"{file.stem}: {count} texts, {len(odd)} differ", *map(repr, odd[:3]))
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
