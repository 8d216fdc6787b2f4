"""Every reader of files on mutated ones: an error of one line, or what was meant; nothing else.

    scripts/suite.py fuzz                                  # 2,000 mutations of each reader
    scripts/suite.py fuzz --count 100000 --reader gguf --seed 7
    scripts/suite.py fuzz --seconds 3600 --count 10000000
    scripts/suite.py fuzz --engine atheris --reader npz    # guided by coverage, until interrupted

A failure is any exception but `UserError`, a crash, more than 5 s of the processor, or more memory
than 4 times the file and 256 MiB; for readers behind a process, the same once it has read the file.
What crashes or takes longer over there is refused, and counted. What fails is kept in `--keep`, by
reader; `tests/trust/corpus` has what failed once, and seeds of the mutations are there too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from suites import fuzz
from suites.readers import READERS

CORPUS = Path(__file__).resolve().parents[3] / "tests/trust/corpus"


def main(
    reader: Annotated[list[str] | None, typer.Option(help="Readers to run; all of them.")] = None,
    count: Annotated[int, typer.Option(help="Mutations of each.")] = 2000,
    guarded: Annotated[int, typer.Option(help="Of each behind a process.")] = 200,
    seconds: Annotated[float, typer.Option(help="For all together, in equal parts.")] = 3600.0,
    start: Annotated[int, typer.Option(help="The first mutation.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the mutations.")] = 0,
    engine: Annotated[str, typer.Option(help="own or atheris.")] = "own",
    keep: Annotated[Path | None, typer.Option(help="A folder for what fails.")] = None,
) -> None:
    names = reader or list(READERS)
    if engine == "atheris":
        guided(names[0])
        return
    last, failed, untried = time.monotonic() + seconds, 0, []
    for i, name in enumerate(names):
        counted, began = fuzz.Count(), time.monotonic()
        end = began + (last - began) / (len(names) - i)  # what one leaves goes to those after it
        most = guarded if READERS[name].guarded else count
        for failure in fuzz.fuzz(name, seed, range(start, start + most), CORPUS, counted, end):
            failed += 1
            print(f"{name} {failure.index}: {failure.reason}", flush=True)
            if keep is not None:
                (keep / name).mkdir(parents=True, exist_ok=True)
                data = fuzz.mutation(name, fuzz.apart(name, CORPUS), seed, failure.index)
                (keep / name / f"{seed}-{failure.index}").write_bytes(data)
        if not counted.tried:
            untried.append(name)
        spent = time.monotonic() - began
        print(f"{name}: {counted.tried} tried, {counted.read} read, {spent:.1f} s", flush=True)
        for index, reason in counted.guarded.items():
            print(f"  the guard refused {index}: {reason}", flush=True)
    print(f"{failed} failures")
    if untried:
        print(f"{seconds:g} s were not enough to try {', '.join(untried)}")
    raise typer.Exit(1 if failed or untried else 0)


def guided(name: str) -> None:
    """Atheris draws what reaches new lines of the reader, and stops at the first failure."""
    import tempfile

    import atheris

    folder = Path(tempfile.mkdtemp())
    (folder / "seeds").mkdir()
    for i, data in enumerate(fuzz.seeds_of(name, CORPUS)):
        (folder / "seeds" / str(i)).write_bytes(data)
    path = folder / READERS[name].file
    atheris.instrument_all()

    def one(data: bytes) -> None:
        _, reason = fuzz.judge(READERS[name], path, data)
        if reason:
            raise RuntimeError(reason)

    atheris.Setup([sys.argv[0], str(folder / "seeds"), "-max_len=65536"], one)
    atheris.Fuzz()
