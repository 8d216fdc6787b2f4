"""The store: keys that nothing shares, entries that are whole or none, one limit for all kinds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jq.artifact import keys as own
from jq.artifact import store
from jq.artifact import store as large
from jq.artifact.keys import digest
from jq.artifact.store import KINDS, Cache, entries, file_digest, shrink
from jq.base.errors import UserError
from jq.cli.app import main

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "a", "ab", "1;", b"", b"a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)


def typed(value: Any) -> Any:
    """A text that tells values apart, types and order of keys among it."""
    if isinstance(value, list):
        return f"[{', '.join(map(typed, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {typed(v)}' for k, v in value.items())}}}"
    return repr(value)


@given(VALUES, VALUES)
def test_values_that_differ_have_other_digests(a: Any, b: Any) -> None:
    assert (digest(a) == digest(b)) == (typed(a) == typed(b))


def test_arrays_are_known_by_type_shape_and_content() -> None:
    x = np.arange(6, dtype=np.float32)
    others = (x[::-1], x.reshape(2, 3), x.astype(np.int32), x.view(np.int32), x[:0], [*x])
    assert len({digest(x), *map(digest, others)}) == 7
    assert digest(x) == digest(x.copy()) == digest(np.repeat(x, 2)[::2])
    assert digest({"b", "a"}) == digest({"a", "b"})


def put(root: Path, kind: str, size: int = 1000, used: float = 0) -> Path:
    cache = Cache(kind, root=root)
    cache.put("x", {"x": np.zeros(size, np.uint8)})
    os.utime(path := cache.path("x"), (used, used))
    return path


def test_what_a_key_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        return Cache("job", "a work").path(1).name

    keys = [key(), Cache("job", "a work").path(2).name, Cache("job", "another").path(1).name]
    monkeypatch.setenv("JAXQ_MAX_ISA", "sse2")  # another processor
    keys.append(key())
    found = store.versions()
    for i in range(len(found)):  # packages, and our own code in the end
        monkeypatch.setattr(store, "versions", lambda i=i: [*found[:i], "9.9", *found[i + 1 :]])
        keys.append(key())
    assert len({*keys}) == len(keys) == 4 + len(found)


def test_a_change_of_our_code_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jq" / "artifact").mkdir(parents=True)
    file = tmp_path / "jq" / "pipelines.toml"
    monkeypatch.setattr(own, "__file__", str(tmp_path / "jq" / "artifact" / "keys.py"))
    found = set()
    for text in ("a", "b", "a"):
        file.write_text(text)
        os.utime(file, (0, 0))
        own.versions.cache_clear()
        found.add(own.versions()[-1])
    monkeypatch.undo()
    own.versions.cache_clear()
    assert len(found) == 2


def test_one_limit_for_all_kinds(tmp_path: Path) -> None:
    paths = [put(tmp_path, kind, used=i) for i, kind in enumerate(KINDS)]
    folder = Cache("language", root=tmp_path).path("a model")
    (folder / "sub").mkdir(parents=True)
    (folder / "1x1.irpa").write_bytes(bytes(1500))
    os.utime(folder, (0.5, 0.5))
    mine = tmp_path / "mine"  # not ours, though it lies there
    mine.mkdir()
    (mine / "thesis").write_bytes(bytes(10**6))
    size = sum(e.bytes for e in entries(tmp_path))
    shrink(tmp_path, size - 1100, spared=paths[0])
    assert [p.exists() for p in (folder, *paths)] == [False, *[True] * len(paths)]
    shrink(tmp_path, 2500, spared=paths[0])
    assert [p.exists() for p in paths] == [True, *[False] * (len(paths) - 2), True]
    assert (mine / "thesis").exists()


def test_the_folder_is_read_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it takes longer the more entries there are."""
    looks: list[object] = []
    look = store.shrink
    monkeypatch.setattr(store, "shrink", lambda *given: (looks.append(given), look(*given)))
    cache = Cache("job", root=tmp_path, limit=64 * 10_000)
    for i in range(25):
        cache.put(i, {"y": np.zeros(1000, np.uint8)})
    assert len(looks) == 3 and all(cache.get(i) for i in range(25))


def test_what_was_left_half_written_goes(tmp_path: Path) -> None:
    for name, age in (("old.part", 2 * store.ABANDONED), ("new.part", 0.0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (os.stat(tmp_path).st_mtime - age,) * 2)
    shrink(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["new.part"]


def test_a_store_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = Cache("model", root=tmp_path / "file")
    cache.put("x", {"x": np.zeros(1)})
    assert cache.get("x") is None and not list(entries(tmp_path / "file"))


class TestFileDigest:
    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Names of the files that are read as a whole."""
        names: list[str] = []
        read = large.sha256
        monkeypatch.setattr(large, "sha256", lambda p: (names.append(p.name), read(p))[1])
        return names

    def test_a_file_that_nobody_wrote_to_is_read_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
    ) -> None:
        (file := tmp_path / "m.gguf").write_bytes(b"one")
        first = file_digest([file], tmp_path)
        assert file_digest([file], tmp_path) == first and len(reads) == 2  # it is too new
        monkeypatch.setattr(large, "_TICK", -1.0)
        for _ in range(3):
            assert file_digest([file], tmp_path) == first
        assert len(reads) == 3

    def test_size_and_times_that_are_those_of_another_content(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(large, "_TICK", -1.0)
        (file := tmp_path / "m.gguf").write_bytes(b"one")
        os.utime(file, (1, 1))
        first = file_digest([file], tmp_path)
        file.write_bytes(b"two")  # in place, with the time of the last change put back
        os.utime(file, (1, 1))
        second = file_digest([file], tmp_path)
        (other := tmp_path / "other").write_bytes(b"six")  # and put in its place
        os.utime(other, (1, 1))
        other.rename(file)
        assert len({first, second, file_digest([file], tmp_path)}) == 3

    def test_a_digest_that_was_cut_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two models whose digests were both cut off would share programs and weights."""
        monkeypatch.setattr(large, "_TICK", -1.0)
        (file := tmp_path / "m.gguf").write_bytes(b"one")
        first = file_digest([file], tmp_path / "root")
        (memo,) = (tmp_path / "root").iterdir()
        memo.write_bytes(b"")
        assert file_digest([file], tmp_path / "root") == first

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="cannot read"):
            file_digest([tmp_path / "m.gguf"], tmp_path)


def test_listed_measured_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def document(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["cache", *arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    root = tmp_path / "jaxq" / "store"
    job, model = put(root, "job"), put(root, "model")
    folder = Cache("language").path("a model")
    folder.mkdir()
    (folder / "1x1.vmfb").write_bytes(bytes(50))
    sizes = {"job": job.stat().st_size, "model": model.stat().st_size, "language": 50}
    rows = document("list")["kinds"]
    assert {r["kind"]: (r["entries"], r["bytes"]) for r in rows} == {
        kind: (int(kind in sizes), sizes.get(kind, 0)) for kind in KINDS
    }
    whole = {"entries": 3, "bytes": sum(sizes.values())}
    place = {"folder": str(root), "limit_bytes": store.LIMIT}
    assert document("size") == whole | place
    cleared = document("clear", "--kind", "job")
    assert cleared == {"entries": 1, "bytes": sizes["job"]} and model.exists()
    assert main(["cache", "clear", "--kind", "jobs"]) == 2
    assert document("clear")["entries"] == 2 and not list(root.iterdir())
