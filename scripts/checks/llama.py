"""GGUF files of the tests read by llama.cpp: the likeliest tokens are those of `transformers`.

    npm install --ignore-scripts @node-llama-cpp/linux-x64
    python scripts/check.py llama node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 [CASE...]
        [--time MODEL.gguf]

Each case of `tests/language/decoder/transformers_logits.json` that a GGUF file can say is written
as the tests write it, and its tokens are given to llama.cpp one by one, in a process of its own.
Shown are how many of the likeliest tokens are equal, and the largest difference of a logit,
relative to the largest one; or the last line of what llama.cpp says where it refuses the file.
It has no window in StarCoder 2, which `transformers` has: 8 of 13 tokens of that case are equal
(the first 5, and some), all 13 to our network without windows.

With `--time` a file of one's own is timed by both instead, on one thread: a prompt of 128 tokens,
and tokens after it. Calls alternate; shown are best and median milliseconds of processor time, and
their ratio (llama.cpp's over ours).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
PEER = ROOT / "scripts" / "peers" / "llama_shared.py"
PROMPT, TOKENS, ROUNDS = 128, 16, 8


def read_by_llama(libraries: Path, model: Path, tokens: list[int]) -> np.ndarray | str:
    """Logits f32 [tokens, vocabulary], or why there are none."""
    out = model.with_suffix(".npy")
    command = [sys.executable, str(PEER), str(libraries), str(model), str(out)]
    done = subprocess.run(command, input=json.dumps(tokens), capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        return (said or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
    return np.asarray(np.load(out))


def compare(libraries: Path, names: list[str]) -> int:
    """Number of cases that differ or are refused."""
    sys.path.insert(0, str(ROOT))
    from tests.language.decoder.test_decoder import NO_GGUF
    from tests.support.decoders import CASES, write_gguf

    bad = 0
    with tempfile.TemporaryDirectory() as work:
        for name in names or [case for case in CASES if case not in NO_GGUF]:
            path = write_gguf(name, Path(work) / f"{name}.gguf")
            want = np.array(CASES[name]["logits"], np.float32)
            got = read_by_llama(libraries, path, CASES[name]["tokens"])
            if isinstance(got, str):
                bad += 1
                print(f"{name}: refused: {got[:200]}", flush=True)
                continue
            same = int((got.argmax(-1) == want.argmax(-1)).sum())
            error = np.abs(got - want).max() / np.abs(want).max()
            bad += same < len(want)
            print(f"{name}: {same} of {len(want)} tokens, logits within {error:.1e}", flush=True)
    return bad


def in_thread(apart: ThreadPoolExecutor, theirs: Any, some: list[int]) -> np.ndarray:
    return np.asarray(apart.submit(theirs.take, some).result())


def timed(libraries: Path, model: str) -> None:
    """Times a file by both."""
    import jq

    sys.path.insert(0, str(PEER.parent))
    from llama_shared import Llama  # type: ignore[import-not-found]

    ours, theirs = jq.LanguageModel(model, context=256, threads=1), Llama(libraries, model)
    tokens = [(7919 * i) % 1000 % ours.config.vocabulary for i in range(PROMPT + TOKENS)]
    apart = ThreadPoolExecutor(1)  # llama.cpp sets a thread's tiles once, and our kernels set them
    found: dict[tuple[str, str], list[float]] = {}
    for i in range(ROUNDS + 1):
        for who in ("ours", "llama.cpp"):
            theirs.clear()
            take: Any = ours.session().take
            if who != "ours":
                take = partial(in_thread, apart, theirs)
            parts = [tokens[:PROMPT], *([token] for token in tokens[PROMPT:])]
            for what, some in zip(["prompt", *["token"] * TOKENS], parts, strict=True):
                start = time.process_time()
                take(some)
                if i:  # the first round compiles
                    taken = 1e3 * (time.process_time() - start)
                    found.setdefault((what, who), []).append(taken)
    for what in ("prompt", "token"):
        mine, other = found[what, "ours"], found[what, "llama.cpp"]
        best, middle = min(other) / min(mine), statistics.median(other) / statistics.median(mine)
        print(
            f"{what}: ours {min(mine):.2f} ms (median {statistics.median(mine):.2f}), llama.cpp"
            f" {min(other):.2f} ({statistics.median(other):.2f}), ratio {best:.2f} ({middle:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("libraries", type=Path, help="folder of llama.cpp's shared libraries")
    parser.add_argument("cases", nargs="*", help="of the tests; all by default")
    parser.add_argument("--time", metavar="MODEL.gguf", help="time a file of one's own instead")
    args = parser.parse_args()
    if args.time:
        timed(args.libraries, args.time)
    elif bad := compare(args.libraries, args.cases):
        sys.exit(f"{bad} cases differ or are refused")


if __name__ == "__main__":
    main()
