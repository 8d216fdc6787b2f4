"""Speed of a language model beside llama.cpp's, on the same file, in turns.

    scripts/benchmark.py language model.gguf --peer VENV/bin/python [--threads 1 2] [--rounds 7]
    scripts/benchmark.py language shape.gguf --write q4_k      # the 1.1-billion-parameter llama

`--peer` is an interpreter that has `llama-cpp-python`. Each side is a process of its own for every
number of threads; they take turns with the same tokens in the same context. Shown is the median of
tokens per second by the clock, and by the time of the processor (of all threads, per thread), which
says more while others are busy. The rate at which memory is read is measured in the same turns.
Programs are compiled before, and not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CONTEXT, FIRST, STEPS = 1024, 16, 32  # tokens: of a context; in front of and among those decoded
LENGTHS = (128, 512)
TOKENS = [(7919 * i) % 30000 + 100 for i in range(CONTEXT)]
Take = Callable[[list[int]], Any]
SCRIPT = Path(__file__).resolve().parents[1] / "benchmark.py"


def ours(model: str, threads: int) -> Callable[[], Take]:
    """Begins a sequence with each call; one takes in tokens and gives the logits after the last."""
    from jq.language.model import LanguageModel

    loaded = LanguageModel(model, context=CONTEXT, threads=threads)
    return lambda: loaded.session().take


def llama(model: str, threads: int) -> Callable[[], Take]:
    import llama_cpp  # type: ignore[import-not-found]

    loaded = llama_cpp.Llama(
        model, n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False
    )

    def begin() -> Take:
        loaded.reset()
        return loaded.eval  # type: ignore[no-any-return]

    return begin


def memory(model: str, threads: int) -> Callable[[], Take]:
    """Reads 256 MiB whatever it takes in."""
    from peers import peaks

    from jq.iree.runtime import Executable

    peak = next(p for p in peaks.peaks() if p.what == "memory")
    with tempfile.TemporaryDirectory() as folder:
        peaks.build(peak, Path(folder) / "memory.vmfb")
        run = Executable.load(Path(folder) / "memory.vmfb", threads=threads)
    placed = [run.place(x) for x in peaks.inputs(peak)]
    return lambda: lambda tokens: run.fetch(run.call_placed(*placed)[0])


SIDES = {"jaxq": ours, "llama.cpp": llama, "memory": memory}


def serve(side: str, model: str, threads: int) -> None:
    """One line of JSON for each line: seconds, and those of the processor."""
    begin = SIDES[side](model, threads)
    for line in sys.stdin:
        take, count = begin(), int(line)
        if count == 1:
            take(TOKENS[:FIRST])
        parts = [[t] for t in TOKENS[:STEPS]] if count == 1 else [TOKENS[:count]]
        start, busy = time.perf_counter(), time.process_time()
        for part in parts:
            take(part)
        seconds, own = time.perf_counter() - start, time.process_time() - busy
        print(json.dumps([seconds, own / threads, sum(map(len, parts))]), flush=True)


def measure(
    model: str, peer: str | None, threads: int, rounds: int, lengths: Sequence[int] = LENGTHS
) -> dict[str, Any]:
    """Tokens per second: side -> what -> (by the clock, by the processor's time)."""
    interpreters = {"jaxq": sys.executable, "memory": sys.executable}
    if peer:
        interpreters["llama.cpp"] = peer
    sides = {
        name: subprocess.Popen(
            [python, str(SCRIPT), "language", model, "--serve", name, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name, python in interpreters.items()
    }
    found: dict[str, Any] = {name: {} for name in sides}
    for turn in range(rounds + 1):
        for count in (1, *lengths):
            for name, side in sides.items():
                assert side.stdin and side.stdout
                print(count, file=side.stdin, flush=True)
                answer = side.stdout.readline()
                if not answer:
                    raise SystemExit(f"{name} has ended; run it with --serve to see why")
                if turn:  # the first one loads
                    found[name].setdefault(count, []).append(json.loads(answer))
    for side in sides.values():
        side.communicate()
    return {
        name: {
            count: [statistics.median(row[2] / row[i] for row in rows) for i in (0, 1)]
            for count, rows in each.items()
        }
        for name, each in found.items()
    }


def write_shape(path: Path, kind: str) -> None:
    """A llama of 22 layers with random codes: 2048, 5632, 32 heads, 4 of keys, 32,000 tokens.
    With `q4_k` every other layer's values and feed-forward output are Q6_K, and so is the head."""
    import gguf
    import numpy as np

    from jq.formats.base import Encoding, get_format

    layers, hidden, inner, tokens, shared = 22, 2048, 5632, 32000, 256
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(32)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, tokens))])
    writer.add_token_scores([0.0] * tokens)
    writer.add_token_types([2, 3, 3] + [1] * (tokens - 3))
    drawn: dict[tuple[str, int, int], Any] = {}

    def matrix(name: str, out: int, size: int, kind: str) -> None:
        if (kind, out, size) not in drawn:
            values = rng.standard_normal((256, size), np.float32) * size**-0.5
            fmt = get_format(kind)
            block = fmt.default_block(values.shape, -1)
            assert block is not None
            rows = fmt.encode(values, Encoding(kind, values.shape, block))["blocks"]
            drawn[kind, out, size] = rows.reshape(256, -1).view(np.uint8)
        some = drawn[kind, out, size]
        array = some[rng.integers(0, 256, out)]
        writer.add_tensor(name, array, raw_dtype=gguf.GGMLQuantizationType[kind.upper()])

    better = "q6_k" if kind == "q4_k" else kind
    for name in ("token_embd", "output"):
        matrix(f"{name}.weight", tokens, hidden, better if name == "output" else kind)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    for i in range(layers):
        best = better if i % 2 else kind
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{norm}.weight", np.ones(hidden, np.float32))
        for name, out, size, chosen in (
            ("attn_q", hidden, hidden, kind),
            ("attn_k", shared, hidden, kind),
            ("attn_v", shared, hidden, best),
            ("attn_output", hidden, hidden, kind),
            ("ffn_gate", inner, hidden, kind),
            ("ffn_up", inner, hidden, kind),
            ("ffn_down", hidden, inner, best),
        ):
            matrix(f"blk.{i}.{name}.weight", out, size, chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--peer", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="of prompts")
    parser.add_argument("--write", metavar="TYPE", choices=("q4_k", "q8_0"))
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        return write_shape(Path(given.model), given.write)
    if given.serve:
        return serve(given.serve, given.model, given.threads[0])
    size = Path(given.model).stat().st_size
    print(f"{platform.processor() or platform.machine()}, {given.model}, {size / 1e6:.0f} MB")
    for threads in given.threads:
        found = measure(given.model, given.peer, threads, given.rounds, given.lengths)
        rates = found.pop("memory")
        # A turn of it takes in tokens, too: one reading for each part.
        reading = max(rate[0] / count * (256 << 20) for count, rate in rates.items() if count > 1)
        for count in (1, *given.lengths):
            what = f"prefill of {count}" if count > 1 else "decode"
            line = f"{threads} threads, {what}:"
            for name, each in found.items():
                line += f"  {name} {each[count][0]:.1f} ({each[count][1]:.1f}) tokens/s"
            if "llama.cpp" in found:
                ratio = [found["jaxq"][count][i] / found["llama.cpp"][count][i] for i in (0, 1)]
                line += f"  ratio {ratio[0]:.2f} ({ratio[1]:.2f})"
            if count == 1:
                line += (
                    f"  of reading the file once a token {found['jaxq'][1][0] * size / reading:.0%}"
                )
            print(line, flush=True)
        print(f"{threads} threads, memory read: {reading / 1e9:.1f} GB/s")
    return None
