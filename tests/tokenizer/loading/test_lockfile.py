"""The lock file: closed, strict, and binding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tokenizer.loading import (
    BytesDiffer,
    CacheFailed,
    IdentityDiffers,
    Lock,
    SourceRefused,
    load,
    read_lock,
    verify,
    write_lock,
)
from harness.tokenizer.loading.manifest import lockable
from tests.tokenizer.loading.hubs import CODE, COMMIT, FakeHub, send, write


@pytest.fixture
def locked(fake: FakeHub, tmp_path: Path) -> Lock:
    return load("org/name", endpoint=fake.endpoint, cache=tmp_path / "first", deadline=5).lock()


def test_a_lock_file_is_read_as_it_was_written(locked: Lock, tmp_path: Path) -> None:
    """What is written is read back equal; it names commit, files, class, versions and identity."""
    path = tmp_path / "tokenizer.lock.json"
    write_lock(locked, path)
    assert read_lock(path) == locked
    written = json.loads(path.read_text())
    assert written["repository"] == "org/name"
    assert written["commit"] == COMMIT
    assert [file["path"] for file in written["files"]] == sorted(
        file["path"] for file in written["files"]
    )
    assert written["class"].endswith("TokenizersBackend")
    assert {"transformers", "tokenizers"} <= written["made_with"].keys()
    assert {"semantic", "full"} <= written["identity"].keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra": 1}, "extra"),
        ({"schema": 2}, "schema"),
        ({"schema": "1"}, "schema"),
        ({"schema_": 1, "schema": None}, "schema"),
        ({"commit": "main"}, "commit"),
        ({"commit": None}, "must contain both repository and commit"),
        ({"files": []}, "files"),
        ({"repository": "../x"}, "is neither"),
        ({"class": 1}, "class"),
        ({"identity": {}}, "identity"),
    ],
)
def test_a_lock_file_that_is_none_is_refused(
    locked: Lock, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    """An unknown key, a wrong type or a value that fits nothing is an error that names the
    place.
    """
    path = tmp_path / "tokenizer.lock.json"
    given = json.loads(locked.text()) | change
    path.write_text(
        json.dumps(
            {key: value for key, value in given.items() if key != "schema" or value is not None}
        )
    )
    with pytest.raises(SourceRefused, match=words):
        read_lock(path)


def test_an_edited_identity_is_refused(locked: Lock, tmp_path: Path) -> None:
    """Digests in a lock follow from the parts beside them, so an edited one is noticed."""
    path = tmp_path / "tokenizer.lock.json"
    given = json.loads(locked.text())
    given["identity"]["semantic"] = "0" * 64
    path.write_text(json.dumps(given))
    with pytest.raises(SourceRefused, match="the semantic digest does not match the rest"):
        read_lock(path)


@pytest.mark.parametrize("name", ["../tokenizer.json", "/etc/passwd", "a\\b"])
def test_a_lock_with_a_name_that_leaves_is_refused(locked: Lock, tmp_path: Path, name: str) -> None:
    """A lock file from a stranger cannot make the loader write elsewhere."""
    path = tmp_path / "tokenizer.lock.json"
    given = json.loads(locked.text())
    given["files"][0]["path"] = name
    path.write_text(json.dumps(given))
    with pytest.raises(SourceRefused, match="lists a file"):
        read_lock(path)


def test_text_with_two_meanings_is_refused(locked: Lock, tmp_path: Path) -> None:
    """A doubled key, a truncated file and a file of a gigabyte are not lock files.

    Memory stays bounded.
    """
    path = tmp_path / "tokenizer.lock.json"
    text = locked.text()
    for broken in (
        text.replace('"schema": 1,', '"schema": 1, "schema": 1,', 1),
        text[:-20],
        "",
        "\0" * 100,
    ):
        path.write_text(broken)
        with pytest.raises(SourceRefused, match="lock file"):
            read_lock(path)
    with path.open("wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(SourceRefused, match="more than"):
        read_lock(path)
    with pytest.raises(SourceRefused, match="cannot read"):
        read_lock(tmp_path / "none")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_text_gets_past_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """Whatever bytes a lock file holds, it is refused with a reason."""
    path = tmp_path_factory.getbasetemp() / "any.lock.json"
    path.write_bytes(content)
    with pytest.raises(SourceRefused):
        read_lock(path)


def test_a_lock_file_is_written_whole_or_not_at_all(locked: Lock, tmp_path: Path) -> None:
    """Where it cannot be written the error says so, and nothing is left beside it."""
    with pytest.raises(CacheFailed, match="cannot write the lock file"):
        write_lock(locked, tmp_path / "nowhere" / "tokenizer.lock.json")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(CacheFailed, match="cannot write the lock file"):
        write_lock(locked, tmp_path / "taken")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".taken")]


def test_options_that_no_file_can_hold_are_refused() -> None:
    """A lock holds JSON values only."""
    assert lockable({"fix_mistral_regex": True, "pad_token": "</s>"}) == {
        "fix_mistral_regex": True,
        "pad_token": "</s>",
    }
    with pytest.raises(SourceRefused, match="pad_token"):
        lockable({"pad_token": object()})


def test_a_cold_load_under_a_lock_asks_for_files_only(
    locked: Lock, fake: FakeHub, tmp_path: Path
) -> None:
    """With a lock there is nothing to resolve or to list; warm, there is nothing to ask at all."""
    fake.paths.clear()
    cold = load(
        "org/name", lock=locked, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=5
    )
    assert len(fake.paths) == len(locked.files)
    assert all("/resolve/" in path for path in fake.paths)
    fake.paths.clear()
    warm = load(
        "org/name", lock=locked, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=5
    )
    assert (fake.paths, warm.requests) == ([], ())
    assert warm.identity == cold.identity == locked.identified()


@pytest.mark.slow
def test_a_lock_binds_the_bytes_of_the_hub(locked: Lock, fake: FakeHub, tmp_path: Path) -> None:
    """A hub that has other bytes at the locked commit, listing and all, is found out."""
    fake.files["chat_template.jinja"] = b"{{ other }}!"
    with pytest.raises(BytesDiffer, match=r"chat_template\.jinja"):
        load("org/name", lock=locked, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=5)
    found = verify(
        "org/name", lock=locked, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=5
    )
    assert "chat_template.jinja" in found.differences[0]


def test_a_lock_binds_a_snapshot(locked: Lock, fake: FakeHub, tmp_path: Path) -> None:
    """A snapshot that was fetched without the lock, from a hub that lied, does not pass under
    it.
    """
    fake.files["chat_template.jinja"] = b"{{ other }}!"
    load("org/name", revision=COMMIT, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=5)
    with pytest.raises(IdentityDiffers, match=r"chat_template\.jinja has"):
        load("org/name", lock=locked, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=5)


def test_a_lock_is_for_one_repository_and_commit(
    locked: Lock, fake: FakeHub, tmp_path: Path
) -> None:
    """Another repository or revision under a lock is a contradiction, not a choice."""
    with pytest.raises(SourceRefused, match="not for org/other"):
        load("org/other", lock=locked, endpoint=fake.endpoint, cache=tmp_path)
    with pytest.raises(SourceRefused, match="do not pass a revision"):
        load("org/name", revision="main", lock=locked, endpoint=fake.endpoint, cache=tmp_path)


def test_a_lock_carries_its_options(fake: FakeHub, tmp_path: Path) -> None:
    """Options belong to the tokenizer: the lock has them, and others than the lock's are another
    tokenizer.
    """
    given = {"endpoint": fake.endpoint, "cache": tmp_path, "deadline": 5.0}
    lock = load("org/name", options={"pad_token": "</s>"}, **given).lock()  # type: ignore[arg-type]
    again = load("org/name", lock=lock, **given)  # type: ignore[arg-type]
    assert again.tokenizer.special_tokens_map["pad_token"] == "</s>"  # noqa: S105 - no password
    with pytest.raises(IdentityDiffers, match="pad"):
        load("org/name", lock=lock, options={}, **given)  # type: ignore[arg-type]


def test_a_folder_is_verified_in_words(
    locked: Lock, small_files: dict[str, bytes], tmp_path: Path
) -> None:
    """The same files are the same.

    A template that differs is named as a file and as what it changes.
    """
    same = write(tmp_path / "same", small_files)
    assert verify(same, lock=locked).differences == ()
    assert load(same, lock=locked).commit is None
    other = write(tmp_path / "other", small_files | {"chat_template.jinja": b"{{ other }}"})
    said = verify(other, lock=locked).differences
    assert said[0].startswith("chat_template.jinja has")
    assert "template" in said[1]
    broken = write(tmp_path / "broken", small_files | {"tokenizer.json": b"{"})
    assert any("not JSON" in words for words in verify(broken, lock=locked).differences)


def test_other_bytes_with_the_same_meaning_are_a_difference(
    locked: Lock, small_files: dict[str, bytes], tmp_path: Path
) -> None:
    """A lock is about bytes too: a reformatted file is named although nothing it means has
    changed.
    """
    compact = json.dumps(json.loads(small_files["tokenizer.json"])).encode()
    other = write(tmp_path / "other", small_files | {"tokenizer.json": compact})
    assert len(verify(other, lock=locked).differences) == 1


def test_another_version_is_a_remark_only_if_the_meaning_is_the_same(
    locked: Lock, fake: FakeHub, tmp_path: Path
) -> None:
    """A full digest that differs under other library versions is a remark.

    A semantic one never is.
    """
    from harness.tokenizer import Identity

    def with_part(lock: Lock, **parts: str) -> Lock:
        old = lock.identified()
        new = Identity.of({**old.parts, **parts}, depth=old.depth)
        return lock.model_copy(
            update={
                "identity": json.loads(new.to_json()),
                "made_with": {**lock.made_with, "transformers": "5.0.0"},
            }
        )

    given = {"endpoint": fake.endpoint, "cache": tmp_path, "deadline": 5.0}
    renamed = load("org/name", lock=with_part(locked, **{"class": "old.Name"}), **given)  # type: ignore[arg-type]
    assert "transformers 5.0.0, here" in renamed.remarks[0]
    with pytest.raises(IdentityDiffers):
        load("org/name", lock=with_part(locked, **{"chat templates": "none"}), **given)  # type: ignore[arg-type]


def test_code_that_differs_from_the_lock_is_not_run(tmp_path: Path) -> None:
    """Verifying a folder with other code than the locked one says so without running it."""
    lock = load(write(tmp_path / "own", CODE), trust_remote_code=True).lock()
    assert lock.repository is None
    ran = tmp_path / "ran"
    other = write(
        tmp_path / "other",
        CODE | {"alphabet.py": f"open({str(ran)!r}, 'w').close()\nOFFSET = 3\n".encode()},
    )
    assert (
        verify(other, lock=lock, trust_remote_code=True).differences[-1].endswith("it was not run")
    )
    assert not ran.exists()
    assert verify(tmp_path / "own", lock=lock, trust_remote_code=True).differences == ()


def test_a_hub_that_is_down_is_no_difference(locked: Lock, fake: FakeHub, tmp_path: Path) -> None:
    """What could not be found out is an error, not a verdict."""
    from harness.tokenizer.loading import HubFailed

    fake.replace["/tokenizer.json"] = lambda handler: send(handler, b"", status=503)
    with pytest.raises(HubFailed):
        verify(
            "org/name", lock=locked, endpoint=fake.endpoint, cache=tmp_path / "second", deadline=0.5
        )
