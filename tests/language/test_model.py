"""A language model from a file generates what plain JAX does with the decoded weights."""

from __future__ import annotations

import sys
from functools import partial

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

import jq
from jq.base.errors import JqError, UserError
from jq.base.progress import Stages
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job, rewrite_job
from jq.language.build import build, own_settings, write
from jq.language.decoder import load_decoder
from jq.language.decoder.network import empty, step
from jq.language.decoder.program import decoder_model
from jq.language.programs import cheapest
from jq.language.store import Options, Shape
from tests.support.checkpoints import write_checkpoint
from tests.support.decoders import weights, write_folder, write_gguf

CONTEXT = 48
Q8 = gguf.GGMLQuantizationType.Q8_0
Q4 = gguf.GGMLQuantizationType.Q4_0


def mixed(name, array):
    """Formats that differ from tensor to tensor."""
    if array.ndim < 2:
        return None
    return Q4 if "ffn" in name else Q8


@pytest.fixture(scope="module", autouse=True)
def cheap_programs():
    """Long programs that fit the context here, compiled in this process: another imports all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jq.language.session.COSTS", {1: 1.0, 16: 2.5})
        patch.setattr("jq.language.programs.build", write)
        yield


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ("os.kill(os.getpid(), 11)", "died of SIGSEGV; run it once more; if it dies again"),
        ("os.kill(os.getpid(), 9)", "died of SIGKILL; the system ends so what takes too much"),
        ("os.kill(os.getpid(), 40)", "died of signal 40; run it once more"),
        ("sys.exit(2)", "I0000 a line of a log"),  # as ours are that `main` prints
        ("sys.exit(1)", "failed: I0000 a line of a log"),
    ],
)
def test_a_child_that_dies_is_told_so(tmp_path, monkeypatch, ends, message):
    """Not by the last line of its log."""
    code = f"import os, sys; print('I0000 a line of a log', file=sys.stderr, flush=True); {ends}"
    command = [sys.executable, "-c", code]
    monkeypatch.setattr("jq.language.build.python_command", lambda *_: command)
    with pytest.raises(JqError) as caught:
        build(tmp_path, Options(), Shape(1, 32), tmp_path)
    assert message in str(caught.value)
    assert ("I0000" in str(caught.value)) == ("exit" in ends)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A layer with a window and one without: more of them compile longer and show no more."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return write_gguf("gemma3", path, mixed, layers=(4, 5))


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def model(file, cache_dir):
    return jq.LanguageModel(file, context=CONTEXT, cache_dir=cache_dir)


def reference(file, tokens):
    """Logits f32[tokens, vocabulary] by plain JAX on decoded weights."""
    decoder = load_decoder(file)
    config = decoder.config
    params = jax.tree.map(np.asarray, decoder.parameters(CONTEXT))
    caches = empty(config, 1, CONTEXT)
    with jax.default_matmul_precision("highest"):
        run = jax.jit(partial(step, config))
        return np.asarray(run(params, jnp.asarray([tokens]), jnp.int32(0), caches)[0][0])


def least_cosine(file):
    """Bound on logits whose products round one side to 254 steps of the largest of 32: noise of
    at most 32 / (3 * 254^2) of the signal for each of seven products a layer; half of it is
    1 - cosine."""
    return 1 - load_decoder(file).config.layers * 7 * 32 / (3 * 254**2) / 2


TOKENS = [1, *np.random.default_rng(3).integers(3, 48, CONTEXT - 1).tolist()]


def test_logits_are_those_of_the_decoded_weights(file, cache_dir):
    """Float activations: equal up to the rounding of float32 sums."""
    model = jq.LanguageModel(file, pipeline="float", context=CONTEXT, cache_dir=cache_dir)
    got, want = model.session().take(TOKENS, every=True)[0], reference(file, TOKENS)
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def test_activations_in_int8_are_close(model, file):
    """An element is off by at most 1 / 254 of the largest of its block."""
    got, want = model.session().take(TOKENS, every=True)[0], reference(file, TOKENS)
    cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    assert np.median(cosine) > least_cosine(file)


def test_keys_and_values_can_be_read(model):
    """Those of every layer, the same however the tokens came in."""
    whole, pieces = model.session(), model.session()
    assert whole.caches() == []
    whole.take(TOKENS[:20])
    pieces.take(TOKENS[:3])
    pieces.take(TOKENS[3:20])
    assert len(whole.caches()) == 2 * model.config.layers
    for a, b in zip(whole.caches(), pieces.caches(), strict=True):
        assert a.shape == (1, CONTEXT, model.config.kv_heads, model.config.head)
        assert a[:, :20].any()
        np.testing.assert_array_equal(a[:, :20], b[:, :20])


def test_logits_stay_as_they_were(model):
    """They are the runtime's own memory, which later tokens do not get."""
    session = model.session()
    rows = [(found, found.copy()) for found in (session.take([t]) for t in TOKENS[:20])]
    assert all(np.array_equal(found, copy) for found, copy in rows)
    assert not np.array_equal(rows[0][0], rows[1][0])


def test_pieces_do_not_matter(model):
    """A prompt in one go, in pieces, token by token: equal bits."""
    rows = model.session().take(TOKENS, every=True)[0]
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 31, 33):
        assert np.array_equal(model.session().take(TOKENS[:count])[0], rows[count - 1])
    session = model.session()
    for i, token in enumerate(TOKENS):
        assert np.array_equal(session.take([token])[0], rows[i])
    session = model.session()
    session.take(TOKENS[:5])
    session.take(TOKENS[5:22])
    assert np.array_equal(session.take(TOKENS[22:])[0], rows[-1])


@pytest.mark.parametrize("count", [1, 4])
def test_no_command_of_a_program_waits_for_a_position(file, count):
    stages, (settings, rules) = Stages(), own_settings(Options())
    model = decoder_model(load_decoder(file), count, 16)
    job = prepare_job(model, Request("int8-dynamic", "llvm-cpu", settings, rules, stages=stages))
    program = rewrite_job(job, plan_job(job, stages))["target"]
    names = {op.operation.name for op in program.walk()}
    assert not names & {"stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"}


def test_a_token_needs_no_program_of_its_own(file, tmp_path, monkeypatch):
    """The program that generates takes it in; another process compiles it."""
    monkeypatch.setattr("jq.language.programs.build", build)
    model = jq.LanguageModel(file, context=CONTEXT, cache_dir=tmp_path)
    assert len(list(model.generate(TOKENS[:1], 2))) == 2
    assert [path.stem for path in model.programs.folder.glob("*.vmfb")] == ["1x48"]


@pytest.mark.parametrize(
    ("left", "sizes"),
    [
        (1, [1]),
        (2, [4]),
        (5, [4, 1]),
        (7, [16]),
        (9, [16]),
        (16, [16]),
        (17, [16, 1]),
        (20, [16, 4]),
        (80, [16, 16, 16, 16, 16]),
        (104, [128]),
    ],
)
def test_a_prompt_is_cut_into_what_takes_least_time(left, sizes):
    """Programs of 1, 4, 16 and 128 tokens take 1, 1.7, 3.35 and 22."""
    costs = ((1, 1.0), (4, 1.7), (16, 3.35), (128, 22.0))
    found = []
    while left > 0:
        found.append(cheapest(left, costs))
        left -= found[-1]
    assert found == sizes


def test_caches_are_used_again(model):
    """An earlier session's contents are not seen, and what is not finite is not kept."""
    want = model.session().take(TOKENS[:3])
    used = model.session()
    used.take(TOKENS[:40])
    kept = used._caches
    del used
    again = model.session()
    assert np.array_equal(again.take(TOKENS[:3]), want)
    assert not model.programs.spare and kept
    again._logits = np.array([np.nan])
    del again
    assert not model.programs.spare


def test_a_context_that_is_full_ends_it(model):
    found = model.generate(TOKENS[:30], 1000)
    tokens = list(found)
    assert found.ended == "context"
    assert len(tokens) == CONTEXT - 30 + 1  # the last one is not taken in any more
    assert tokens == greedy(model, TOKENS[:30], len(tokens))
    session = model.session()
    session.take(TOKENS)
    with pytest.raises(UserError, match="do not fit"):
        session.take([3])
    with pytest.raises(UserError, match="does not fit"):
        model.generate([*TOKENS, 3])


def greedy(model, prompt, count):
    """From the logits of whole sequences, which need no cache from step to step."""
    found = []
    for _ in range(count):
        found.append(int(model.session().take([*prompt, *found])[0].argmax()))
    return found


def test_text_goes_in_and_comes_out(model):
    found = model.generate("abc", 5)
    text = "".join(found.pieces())
    assert text == found.text == model.decode(found.tokens)
    assert found.times.prompt_tokens == len(model.encode("abc")) == 5  # <s>, a space, letters
    assert model.chat([{"role": "user", "content": "abc"}]) == model.encode("abc")


def test_text_to_stop_at_is_held_back(model):
    """A possible beginning of it comes with the text that shows it is none, or never."""
    draws = [partial(model.generate, "abc", 8, temperature=3.0, seed=seed) for seed in range(9)]
    texts = ["".join(draw().pieces()) for draw in draws]
    draw, whole = next(pair for pair in zip(draws, texts, strict=True) if len(set(pair[1])) > 6)
    stop = whole[3:6]
    found = draw(stop=["#", stop])
    pieces = list(found.pieces())
    assert found.ended == "stop" and "".join(pieces) == found.text == whole[: whole.index(stop)]
    almost = draw(stop=stop[:-1] + "#")
    pieces = list(almost.pieces())
    assert "".join(pieces) == whole and almost.ended == "length"
    assert pieces[3:6] == ["", "", stop]  # a letter is a token here
    assert list(draw(stop="#")) == almost.tokens


def test_a_sequence_goes_on_where_two_prompts_part(model):
    """Only what is new is taken in, and nothing that was there is seen."""
    session = model.session()
    for prompt in (TOKENS[:9], TOKENS[:12], [*TOKENS[:7], *TOKENS[20:24]], TOKENS[:4]):
        alone = model.generate(prompt, 5)
        again = model.generate(prompt, 5, session=session)
        assert list(again) == list(alone)
        assert again.times.prompt_tokens < len(prompt) or prompt == TOKENS[:9]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.6, "seed": 3}, {"repeat_penalty": 1.3}])
def test_tokens_that_are_looked_up_change_nothing(model, options):
    """Those that are chosen anyway are computed together with others: the same tokens and chances,
    bit for bit, to the end of the context, and in a session that goes on."""
    prompt = [*TOKENS[:6], *TOKENS[:6], *TOKENS[:5]]
    plain = model.generate(prompt, 1000, logprobs=2, **options)
    session, tokens = model.session(), list(plain)
    for lookup in (1, 3, 20):
        found = model.generate(prompt, 1000, logprobs=2, lookup=lookup, session=session, **options)
        assert list(found) == tokens
        assert found.ended == plain.ended and found.chances == plain.chances
    assert len(plain.chances) == len(tokens)
    for token, (chance, most) in zip(tokens, plain.chances, strict=True):
        assert len(most) == 2 and chance <= max(most.values()) <= 0
        assert options or most[token] == chance == max(most.values())


def test_tokens_that_are_looked_up_take_fewer_steps(model, monkeypatch):
    """Guesses that are all right: a model's own answer in front of the prompt that it answers."""
    answer = list(model.generate(TOKENS[:3], 8))
    monkeypatch.setattr("jq.language.generation.looked_up", lambda whole, most: ahead(whole)[:most])

    def ahead(whole):
        return answer[len(whole) - 3 :]

    session, counts = model.session(), []
    take = session.take
    monkeypatch.setattr(
        session, "take", lambda t, every=False: counts.append(len(t)) or take(t, every)
    )
    found = model.generate(TOKENS[:3], 8, lookup=4, session=session)
    assert list(found) == answer and len(counts) < 4


def test_a_second_model_compiles_nothing(file, cache_dir, monkeypatch):
    monkeypatch.setattr("jq.language.programs.build", None)
    again = jq.LanguageModel(file, context=CONTEXT, cache_dir=cache_dir)
    assert len(list(again.generate(TOKENS[:4], 2))) <= 2


def test_weights_are_stored_once(model):
    """Programs of all lengths read the same archives, in which no data occur twice."""
    from jq.artifact.parameters import read_index

    keys = [key for archive in model.programs.folder.glob("*.irpa") for key in read_index(archive)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"context": 10**9}, "context"), ({"cache": "int3"}, "int3"), ({"context": 0}, "context")],
)
def test_wrong_options_are_refused(file, options, reason):
    with pytest.raises(UserError, match=reason):
        jq.LanguageModel(file, **options)


@pytest.mark.parametrize("cache", ["int8", "bfloat16"])
def test_a_cache_that_grows_changes_nothing(file, cache_dir, monkeypatch, cache):
    """It begins with 16 tokens here and doubles; equal bits, and nothing is written over."""
    model = jq.LanguageModel(file, context=CONTEXT, cache=cache, cache_dir=cache_dir)
    whole = model.session()
    rows = whole.take(TOKENS[:40], every=True)[0]
    assert whole.capacity == CONTEXT
    monkeypatch.setattr("jq.language.programs.SMALLEST", 24)
    grows = model.session()
    assert grows.capacity == 24
    parts = [grows.take(TOKENS[:16], every=True)[0], grows.take(TOKENS[16:40], every=True)[0]]
    assert grows.capacity == CONTEXT
    assert np.array_equal(np.concatenate(parts), rows)
    # Codes of keys and values have 254 steps; bfloat16 has 8 bits of mantissa.
    want = reference(file, TOKENS[:40])
    cosine = (rows * want).sum(-1) / np.linalg.norm(rows, axis=-1) / np.linalg.norm(want, axis=-1)
    assert np.median(cosine) > least_cosine(file)


def test_a_folder_of_hugging_face(tmp_path, cache_dir):
    folder = write_folder("qwen3", tmp_path / "model")
    letters = {chr(ord("a") + i): 3 + i for i in range(26)}
    names = {"<unk>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(names | letters, [], unk_token="<unk>"))
    made.decoder = tokenizers.decoders.Fuse()
    made.add_special_tokens(list(names))
    made.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("<|im_start|>{{ messages[0].content }}<|im_end|>")
    model = jq.LanguageModel(folder, context=16, cache_dir=cache_dir)
    assert model.encode("abc") == [3, 4, 5]
    assert model.chat([{"role": "user", "content": "ab"}]) == [1, 3, 4, 2]
    assert 2 in model.tokenizer.ends
    session = model.session()
    got = np.stack([session.take([t])[0] for t in (3, 4, 5)])
    want = reference(folder, [3, 4, 5])
    # Weights too have int8 steps here, 1 / 254 of the largest of a row.
    cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    assert cosine.min() > 0.99
    assert len(list(model.generate("abc", 2))) <= 2


def test_a_quantized_checkpoint_is_compiled_with_its_codes(tmp_path, cache_dir):
    """Columns in GPTQ's own order, whose activations follow them."""
    write_checkpoint("llama", "gptq-act-order-32", tmp_path)
    model = jq.LanguageModel(tmp_path, context=16, cache_dir=cache_dir)
    session = model.session()
    got = np.stack([session.take([t])[0] for t in TOKENS[:6]])
    want = reference(tmp_path, TOKENS[:6])
    cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    assert np.median(cosine) > least_cosine(tmp_path)
    stored = sum(path.stat().st_size for path in model.programs.folder.glob("*.irpa"))
    floats = sum(a.nbytes for n, a in weights("llama").items() if "_proj" in n)
    assert stored < floats  # 4 bits, and tables of 8 bits beside them


@pytest.fixture(scope="module")
def three(file, cache_dir):
    return jq.LanguageModel(file, context=CONTEXT, batch=3, cache_dir=cache_dir)


def test_sequences_go_side_by_side(model, three):
    """Prompts of the same length and of different ones: each continues as it does alone; one that
    has ended does not hold up the others."""
    for ends in ((3, 8, 12), (3, 6, 40), (CONTEXT, 1, 20)):
        prompts = [TOKENS[i : i + n] for i, n in zip((0, 5, 9), ends, strict=True)]
        prompts = [p + TOKENS[: n - len(p)] for p, n in zip(prompts, ends, strict=True)]
        alone = [list(model.generate(prompt, 6)) for prompt in prompts]
        assert three.generate_batch(prompts, 6) == alone
    with pytest.raises(UserError, match="generate_batch"):
        three.generate(TOKENS[:3])
    with pytest.raises(UserError, match="3 at once"):
        three.generate_batch([TOKENS[:3]])
    with pytest.raises(UserError, match="batch of 0"):
        jq.LanguageModel(model.path, batch=0)


def test_sequences_of_any_lengths_have_equal_bits(model, three):
    """Also where some wait, and where what is padded would reach past the end of a cache."""
    together, alone = three.session(), [model.session() for _ in range(3)]
    for ends in ((2, 20, 5), (0, 1, 1), (18, 0, 9), (5, CONTEXT - 21, 0), (3, 0, 3)):
        parts = [TOKENS[s.position : s.position + n] for s, n in zip(alone, ends, strict=True)]
        got = together.take(parts)
        for i, (own, part) in enumerate(zip(alone, parts, strict=True)):
            if part:
                assert np.array_equal(got[i], own.take(part)[0]), (ends, i)
            else:
                assert np.isnan(got[i]).all()
    assert together.positions.tolist() == [s.position for s in alone]
    with pytest.raises(UserError, match="do not fit"):
        together.take([[1], [1], []])
    with pytest.raises(UserError, match="same length"):
        together.take([[1], [], [1, 2]], every=True)
    with pytest.raises(UserError, match="2 sequences are given"):
        together.take([[1], [2]])
