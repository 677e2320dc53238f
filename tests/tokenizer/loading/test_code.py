"""Code that lies beside a tokenizer: when it runs, which bytes of it, and that its identity covers
it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.tokenizer import difference, identify
from harness.tokenizer.loading import BuildFailed, SourceRefused, load
from harness.tokenizer.loading.library import build
from harness.tokenizer.loading.manifest import records
from tests.tokenizer.loading.hubs import CODE, COMMIT, FakeHub, write


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder that transformers copies code into, new for this test."""
    from transformers import dynamic_module_utils

    place = tmp_path / "copies"
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(place))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield place
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
        del sys.modules[name]


@pytest.mark.slow
def test_code_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    """Without trust the folder's code is not run, and the error is transformers' own refusal."""
    folder = write(tmp_path / "own", CODE | {"tokenization_own.py": b"raise SystemExit('ran')"})
    with pytest.raises(BuildFailed):
        load(folder)


@pytest.mark.slow
def test_code_is_imported_from_verified_bytes(tmp_path: Path) -> None:
    """The repository's own class is built, with its relative imports, and neither bytecode nor a
    copy is written.
    """
    folder = write(tmp_path / "own", CODE)
    loaded = load(folder, trust_remote_code=True)
    assert type(loaded.tokenizer).__name__ == "OwnTokenizer"
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("één")) == "één"
    assert sorted(path.name for path in folder.rglob("*")) == sorted(CODE)
    assert not (tmp_path / "hf").exists()
    assert load(folder, trust_remote_code=True).identity == loaded.identity


def test_code_from_a_hub_needs_a_commit(tmp_path: Path) -> None:
    """Code that a branch points to is not run; at a commit, or under a lock, it is."""
    hub = FakeHub(CODE)
    try:
        given = {
            "endpoint": hub.endpoint,
            "cache": tmp_path / "cache",
            "deadline": 5.0,
            "trust_remote_code": True,
        }
        with pytest.raises(SourceRefused, match="pass a commit"):
            load("org/name", **given)  # type: ignore[arg-type]
        assert hub.paths == []
        pinned = load("org/name", revision=COMMIT, **given)  # type: ignore[arg-type]
        assert load("org/name", lock=pinned.lock(), **given).requests == ()  # type: ignore[arg-type]
    finally:
        hub.close()


def test_two_versions_of_code_do_not_meet(tmp_path: Path) -> None:
    """The same module name in two folders stays two modules, each with its own helper."""
    first = write(tmp_path / "first", CODE)
    second = write(tmp_path / "second", CODE | {"alphabet.py": b"OFFSET = 7\n"})
    one, two = load(first, trust_remote_code=True), load(second, trust_remote_code=True)
    assert one.tokenizer.encode("a") == [100]
    assert two.tokenizer.encode("a") == [104]
    assert one.identity.semantic != two.identity.semantic


def test_code_that_changed_is_not_run(tmp_path: Path) -> None:
    """A module is compiled only if its bytes are those that were verified."""
    folder = write(tmp_path / "own", CODE | {"alphabet.py": b"OFFSET = 11\n"})
    files = records(folder, only_tokenizer_files=True)
    (folder / "alphabet.py").write_text("raise SystemExit('ran')")
    with pytest.raises(BuildFailed, match="changed after it was verified"):
        build(folder, files, trust_remote_code=True, options={})


@pytest.mark.parametrize(
    "reference",
    [
        "other/repo--tokenization_own.OwnTokenizer",
        "../x.Y",
        "os.path",
        "tokenization_own",
        "a b.C",
        "alphabet.OFFSET",
    ],
)
def test_a_reference_to_other_code_is_refused(tmp_path: Path, reference: str) -> None:
    """An auto_map that names another repository, a module that is not there or no class runs
    nothing.
    """
    config = json.dumps({"auto_map": {"AutoTokenizer": [reference, None]}}).encode()
    folder = write(tmp_path / "own", CODE | {"tokenizer_config.json": config})
    with pytest.raises(SourceRefused, match="auto_map"):
        load(folder, trust_remote_code=True)


def test_code_in_eight_threads(tmp_path: Path) -> None:
    """Eight threads that load a repository's own class for the first time all get it."""
    folder = write(tmp_path / "own", CODE | {"alphabet.py": b"OFFSET = 13\n"})
    with ThreadPoolExecutor(8) as threads:
        loads = list(threads.map(lambda _: load(folder, trust_remote_code=True), range(16)))
    assert {loaded.identity.full for loaded in loads} == {loads[0].identity.full}
    assert {tuple(loaded.tokenizer.encode("a")) for loaded in loads} == {(110,)}


def test_a_configurations_code_is_not_copied(tmp_path: Path, copies: Path) -> None:
    """A repository whose configuration is code too, with or without a tokenizer of its own, leaves
    no copy.
    """
    config = json.dumps(
        {"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    ).encode()
    code = (
        b"from transformers import PretrainedConfig\nclass OwnConfig(PretrainedConfig):\n   "
        b" model_type = 'own'\n"
    )
    more = {"config.json": config, "configuration_own.py": code}
    loaded = load(write(tmp_path / "own", CODE | more), trust_remote_code=True)
    assert type(loaded.tokenizer).__name__ == "OwnTokenizer"
    assert not copies.exists()


def test_identity_does_not_depend_on_who_imported_the_code(tmp_path: Path, copies: Path) -> None:
    """Copied by transformers or compiled in place, and whatever else lies there, it is the same
    tokenizer.
    """
    from transformers import AutoTokenizer

    folder = write(
        tmp_path / "own", CODE | {"modeling_own.py": b"# for the model, not for the tokenizer\n"}
    )
    copied = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=True)  # type: ignore[no-untyped-call]
    assert [path.name for path in copies.rglob("tokenization_own.py")] == ["tokenization_own.py"]
    assert identify(copied).semantic == load(folder, trust_remote_code=True).identity.semantic
    assert (
        load(write(tmp_path / "without", CODE), trust_remote_code=True).identity.semantic
        == identify(copied).semantic
    )


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("alphabet.py", b"OFFSET = 3\nLIMIT = 512\n"),
        ("deep/inside.py", b"x = 2\n"),
        ("__init__.py", b"import os\n"),
    ],
)
def test_a_change_of_code_that_no_probe_shows_is_another_tokenizer(
    tmp_path: Path, file: str, text: bytes
) -> None:
    """What the class's file imports from beside it, in a function or through another file, is part
    of what it is.
    """
    far = {
        "alphabet.py": (
            b"OFFSET = 3\n\ndef later():\n    from .deep import (\n        inside,\n    )\n"
        ),
        "deep/inside.py": b"x = 1\n",
    }
    one = load(write(tmp_path / "one", CODE | far), trust_remote_code=True)
    two = load(write(tmp_path / "two", CODE | far | {file: text}), trust_remote_code=True)
    assert one.tokenizer.get_vocab() == two.tokenizer.get_vocab()
    assert one.identity.semantic != two.identity.semantic
    assert difference(one.identity, two.identity)


def test_a_class_made_from_half_of_its_file_is_another_tokenizer(
    tmp_path: Path, copies: Path
) -> None:
    """A copy that was not finished when it was imported has another identity, although it is whole
    by now.
    """
    from transformers import AutoTokenizer

    folder = write(tmp_path / "own", CODE)
    code = CODE["tokenization_own.py"]
    half = code[: code.index(b"    def convert_tokens_to_string")]
    loads = []
    for text in (half, code):
        (folder / "tokenization_own.py").write_bytes(text)
        loads.append(AutoTokenizer.from_pretrained(str(folder), trust_remote_code=True))  # type: ignore[no-untyped-call]
        for copy in copies.rglob("tokenization_own.py"):
            copy.write_bytes(code)
    first, whole = loads
    assert first.encode("een") == whole.encode("een")
    assert first.decode(first.encode("een")) != whole.decode(whole.encode("een"))
    assert identify(first).semantic != identify(whole).semantic
