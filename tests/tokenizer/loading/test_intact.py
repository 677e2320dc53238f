"""A damaged file of a cache is used by nobody, whichever way it is asked for."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cli import FAIL, PASS, main
from harness.cli.tokenizer import ABSENT, DAMAGED, STRICT
from harness.forms.digest import sha256
from harness.tokenizer import Unreadable
from harness.tokenizer.discovery import resolve
from harness.tokenizer.engines import Engine
from harness.tokenizer.engines.generation import continued
from harness.tokenizer.loading import CacheFailed, HubCache, HubFailed, SourceRefused, fetch, load
from harness.tokenizer.loading.cache import cached_snapshots, set_aside, snapshot_harm
from harness.tokenizer.loading.intact import damage, unchanged
from harness.tokenizer.loading.snapshot import SnapshotStore
from tests.tokenizer.formats.conversion import llama_3, of_serialised
from tests.tokenizer.loading.hubs import COMMIT, FakeHub
from tests.tokenizer.loading.test_cache import hub_cache
from tests.tokenizer.making import CONFIG

Change = Callable[[Path], object]


def add_a_key(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["added"] = 1
    (folder / "tokenizer.json").write_text(json.dumps(content))


def rewrite(name: str) -> Change:
    """Other bytes, and as many, with the times that the file had."""

    def change(folder: Path) -> None:
        file = folder / name
        before = file.stat()
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    return change


def swap_for_a_link(folder: Path) -> None:
    """The same bytes for now; whoever owns the other file decides about them from then on."""
    elsewhere = folder.parents[3] / "elsewhere.json"
    shutil.move(folder / "tokenizer.json", elsewhere)
    (folder / "tokenizer.json").symlink_to(elsewhere)


def link_a_folder(folder: Path) -> None:
    elsewhere = folder.parents[3] / "elsewhere"
    shutil.move(folder / "additional_chat_templates", elsewhere)
    (folder / "additional_chat_templates").symlink_to(elsewhere)


def link_the_manifest(folder: Path) -> None:
    elsewhere = folder.parents[3] / "manifest.json"
    shutil.move(folder.parent / "manifest.json", elsewhere)
    (folder.parent / "manifest.json").symlink_to(elsewhere)


def edit_the_manifest(folder: Path) -> None:
    """A file that was added, and is in the manifest of another commit."""
    file = folder.parent / "manifest.json"
    file.write_text(file.read_text().replace(COMMIT, "d" * 40))


DAMAGES: dict[str, Change] = {
    "a key in tokenizer.json": add_a_key,
    "a byte in tokenizer_config.json": rewrite("tokenizer_config.json"),
    "a byte in merges.txt": rewrite("merges.txt"),
    "a byte in special_tokens_map.json": rewrite("special_tokens_map.json"),
    "a byte in chat_template.jinja": rewrite("chat_template.jinja"),
    "a byte in remote code": rewrite("tokenization_own.py"),
    "a template in its folder": rewrite("additional_chat_templates/tool_use.jinja"),
    "a file that ends early": lambda folder: os.truncate(folder / "tokenizer.json", 100),
    "a file without bytes": lambda folder: os.truncate(folder / "merges.txt", 0),
    "a file too many": lambda folder: (folder / "added_tokens.json").write_text("{}"),
    "a hidden file too many": lambda folder: (folder / ".hidden").write_text(""),
    "a folder too many": lambda folder: (folder / "empty").mkdir(),
    "a file too few": lambda folder: (folder / "tokenizer_config.json").unlink(),
    "a link to the same bytes": swap_for_a_link,
    "a folder that is a link": link_a_folder,
    "a pipe too many": lambda folder: os.mkfifo(folder / "added_tokens.json"),
    "a pipe for a file": lambda folder: (
        (folder / "merges.txt").unlink(),
        os.mkfifo(folder / "merges.txt"),
    ),
    "a folder for a file": lambda folder: (
        (folder / "merges.txt").unlink(),
        (folder / "merges.txt").mkdir(),
    ),
    "a vocabulary too many": lambda folder: (folder / "tokenizer.model").write_bytes(b"\x0a"),
    "a manifest that is a link": link_the_manifest,
    "a link too many": lambda folder: (folder / "tekken.json").symlink_to("tokenizer.json"),
    "a manifest without its end": lambda folder: os.truncate(folder.parent / "manifest.json", 50),
    "no manifest": lambda folder: (folder.parent / "manifest.json").unlink(),
    "the manifest of another commit": edit_the_manifest,
}
MORE = {
    "merges.txt": b"#version\nh e\n",
    "special_tokens_map.json": b"{} ",
    "tokenization_own.py": b"# code\n",
}


@pytest.fixture
def served() -> Iterator[FakeHub]:
    """A hub whose org/name has the tokenizer of the models here, and every kind of file beside
    it.
    """
    files = {
        "tokenizer.json": json.dumps(llama_3()).encode(),
        "tokenizer_config.json": json.dumps(CONFIG | {"extra_special_tokens": []}).encode(),
        "chat_template.jinja": b"{{ messages }}",
        "additional_chat_templates/tool_use.jinja": b"tools: {{ messages }}",
    }
    hub = FakeHub(files | MORE)
    yield hub
    hub.close()


def get(hub: FakeHub, tmp_path: Path, **more: object) -> Path:
    made = fetch(
        "org/name",
        revision=COMMIT,
        endpoint=hub.endpoint,
        cache=tmp_path / "cache",
        deadline=5.0,
        **more,
    )  # type: ignore[arg-type]
    return made.folder


def model(tmp_path: Path) -> Path:
    place = tmp_path / "models" / "model.gguf"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(of_serialised(llama_3()).bytes())
    return place


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_cache_verify_sees_every_user_sees(kind: str, served: FakeHub, tmp_path: Path) -> None:
    """Each damage is found where the cache is verified and where its files are used.

    A fetch replaces the snapshot.
    """
    folder = get(served, tmp_path)
    store = SnapshotStore(tmp_path / "cache")
    content = {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
    assert damage(folder) is None
    DAMAGES[kind](folder)
    (one,) = cached_snapshots(store)
    assert snapshot_harm(store, one) is not None
    for path in (folder, folder / "tokenizer.json", folder / "nothing.json"):
        assert "is damaged and is not used" in (damage(path) or ""), path
    with pytest.raises(Unreadable, match="is damaged and is not used"):
        Engine(str(folder), name="tokenizers")
    with pytest.raises(SourceRefused, match="is damaged and is not used"):
        load(folder)
    with pytest.raises(HubFailed, match="was damaged and must be fetched again"):
        get(served, tmp_path, offline=True)
    assert get(served, tmp_path) == folder
    assert {
        file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()
    } == content
    assert damage(folder) is None
    ((aside, why),) = set_aside(store)
    assert str(folder.parent) in why
    assert "where damaged files are kept" in (damage(aside / "files") or "")


@pytest.mark.parametrize(
    "where", ["another commit", "another repository", "a dotted folder", "a partial fetch"]
)
def test_a_snapshot_counts_at_its_own_place_alone(
    where: str, served: FakeHub, tmp_path: Path
) -> None:
    """A copy of a snapshot under another name is nobody's: it would be taken for what the name
    says.
    """
    folder = get(served, tmp_path)
    repository = folder.parents[1]
    copied = {
        "another commit": repository / ("d" * 40),
        "another repository": repository.parent / "org--other-01234567" / COMMIT,
        "a dotted folder": repository.parent / ".org--name" / COMMIT,
        "a partial fetch": repository.parent / ".partial-0123",
    }[where]
    shutil.copytree(folder.parent, copied)
    assert damage(copied / "files") is not None
    assert damage(folder) is None


def test_a_few_files_are_not_the_whole_tokenizer(served: FakeHub, tmp_path: Path) -> None:
    """Files that were fetched by name, and were put where the tokenizer belongs, are not taken for
    all of it.
    """
    few = get(served, tmp_path, names=("tokenizer.json",))
    whole = few.parents[1] / COMMIT
    few.parent.rename(whole)
    assert "which belongs in a different folder" in (damage(whole / "files") or "")
    assert len(list(get(served, tmp_path).iterdir())) > 1


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_link_to_another_snapshot_is_damage(name: str, served: FakeHub, tmp_path: Path) -> None:
    """A snapshot of which a file, or the whole, is a link to that of another commit is not used."""
    folder = get(served, tmp_path)
    other = folder.parents[1] / ("d" * 40)
    other.symlink_to(folder.parent)
    assert damage(other / "files" / name) is not None
    assert [one.place for one in cached_snapshots(SnapshotStore(tmp_path / "cache"))] == [
        folder.parent
    ]
    other.unlink()
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "copy")
    assert "is a link" in (damage(folder / name) or "")


def test_a_copy_outside_of_a_cache_is_held_against_its_manifest(
    served: FakeHub, tmp_path: Path
) -> None:
    """A snapshot that was copied elsewhere whole may be used for as long as it is what its manifest
    says.
    """
    shutil.copytree(get(served, tmp_path).parent, tmp_path / "mine")
    assert damage(tmp_path / "mine/files") is None
    add_a_key(tmp_path / "mine/files")
    assert "has" in (damage(tmp_path / "mine/files") or "")


def test_a_link_into_a_cache_is_followed_to_the_damage(served: FakeHub, tmp_path: Path) -> None:
    """A folder elsewhere that is a link to a snapshot is as damaged as the snapshot."""
    folder = get(served, tmp_path)
    (tmp_path / "link").symlink_to(folder)
    assert damage(tmp_path / "link") is None
    add_a_key(folder)
    assert damage(tmp_path / "link") is not None
    assert damage(tmp_path / "link/tokenizer.json") is not None


def test_a_link_that_leads_through_a_cache_is_followed_step_by_step(
    served: FakeHub, tmp_path: Path
) -> None:
    """A link to a file of a snapshot which is itself a link out of it: neither end lies in the
    cache.
    """
    folder = get(served, tmp_path)
    (tmp_path / "mine.json").symlink_to(tmp_path / "second.json")
    (tmp_path / "second.json").symlink_to(folder / "tokenizer.json")
    assert damage(tmp_path / "mine.json") is None
    swap_for_a_link(folder)
    assert "is a link, which a snapshot must not contain" in (damage(tmp_path / "mine.json") or "")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert damage(tmp_path / "circle") is None


@pytest.mark.parametrize("how", ["absolute", "relative", "by a link", "above and back"])
def test_what_was_put_aside_is_found_however_it_is_named(
    how: str, served: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path, a link and a path through another folder lead to the quarantine as an
    absolute one does.
    """
    store = SnapshotStore(tmp_path / "cache")
    folder = get(served, tmp_path)
    store.put_aside(folder.parent, "for a test")
    ((aside, _),) = set_aside(store)
    (tmp_path / "link").symlink_to(aside)
    monkeypatch.chdir(aside)
    named = {
        "absolute": aside / "files",
        "relative": Path("files"),
        "by a link": tmp_path / "link" / "files",
        "above and back": tmp_path / "link" / ".." / aside.name / "files",
    }
    for path in (named[how], named[how] / "tokenizer.json"):
        assert "where damaged files are kept" in (damage(path) or ""), path


def test_what_lies_beside_the_files_of_a_snapshot_is_not_used(
    served: FakeHub, tmp_path: Path
) -> None:
    """A tokenizer.json next to the manifest is not in it, and `cache verify` does not look
    there.
    """
    place = get(served, tmp_path).parent
    (place / "tokenizer.json").write_text(json.dumps(llama_3()))
    for path in (place, place / "tokenizer.json"):
        assert "only files below files/ are used" in (damage(path) or ""), path
    with pytest.raises(Unreadable, match="only files below files/ are used"):
        resolve(model(tmp_path), tokenizer=place, caches=[])


def test_a_snapshot_that_is_a_link_is_fetched_anew(served: FakeHub, tmp_path: Path) -> None:
    """`cache ls` and `cache verify` follow no link, so nobody uses what is behind one.

    Nothing is written there.
    """
    folder = get(served, tmp_path)
    shutil.move(folder.parent, tmp_path / "moved")
    folder.parent.symlink_to(tmp_path / "moved")
    before = sorted(tmp_path.joinpath("moved").iterdir())
    assert "is a link, which a snapshot must not contain" in (damage(folder) or "")
    assert cached_snapshots(SnapshotStore(tmp_path / "cache")) == []
    assert get(served, tmp_path) == folder
    assert damage(folder) is None
    assert sorted(tmp_path.joinpath("moved").iterdir()) == before


@pytest.mark.parametrize("what", ["files", "the snapshot", "a link on the way"])
def test_what_is_exchanged_and_put_back_is_found(
    what: str, served: FakeHub, tmp_path: Path
) -> None:
    """A folder, or a link that leads there, which is replaced while it is used and back in its
    place afterwards.
    """
    folder = get(served, tmp_path)
    shutil.copytree(folder.parent, tmp_path / "evil")
    add_a_key(tmp_path / "evil/files")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    (tmp_path / "second").symlink_to(folder)
    exchanged, by, used = {
        "files": (folder, tmp_path / "evil/files", folder / "tokenizer.json"),
        "the snapshot": (folder.parent, tmp_path / "evil", folder),
        "a link on the way": (tmp_path / "second", tmp_path / "third", tmp_path / "first"),
    }[what]
    (tmp_path / "third").symlink_to(tmp_path / "evil/files")

    def use() -> None:
        with unchanged(used):
            exchanged.rename(tmp_path / "aside")
            by.rename(exchanged)
            exchanged.rename(by)
            (tmp_path / "aside").rename(exchanged)

    with pytest.raises(Unreadable, match="changed while it was being read"):
        use()


@pytest.mark.slow
def test_what_is_described_is_said_to_be_damaged(
    served: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`identity` and `diff` describe a damaged snapshot, which shows what is wrong with it, and say
    that it is one.
    """
    folder = get(served, tmp_path)
    shutil.copytree(folder, tmp_path / "whole")
    assert main(["tokenizer", "identity", str(folder)]) == PASS
    assert main(["tokenizer", "diff", str(folder), str(tmp_path / "whole")]) == PASS
    assert capsys.readouterr().err == ""
    rewrite("merges.txt")(folder)
    for command in (["identity", str(folder)], ["diff", str(tmp_path / "whole"), str(folder)]):
        assert main(["tokenizer", *command]) == PASS
        assert f"{folder}: is damaged and is not used" in capsys.readouterr().err, command


def test_verify_claims_no_more_than_it_compared(
    served: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest that was edited to fit is what the files are compared with offline.

    The hub's list tells.
    """
    folder = get(served, tmp_path)
    before = (folder / "merges.txt").read_bytes()
    rewrite("merges.txt")(folder)
    manifest = folder.parent / "manifest.json"
    after = sha256((folder / "merges.txt").read_bytes())
    manifest.write_text(manifest.read_text().replace(sha256(before), after))
    command = ["tokenizer", "cache", "verify", "--cache", str(tmp_path / "cache")]
    assert main([*command, "--offline"]) == PASS
    assert "every byte matches its manifest" in capsys.readouterr().out
    assert main([*command, "--endpoint", served.endpoint]) == FAIL
    assert "merges.txt differs from the hub's listing" in capsys.readouterr().out


@pytest.mark.parametrize("back", [False, True])
def test_what_changes_while_it_is_used_is_found(
    back: bool, served: FakeHub, tmp_path: Path
) -> None:
    """Damage between the comparison and the use is an error, also where the right bytes are put
    back in time.
    """
    folder = get(served, tmp_path)
    content = (folder / "tokenizer.json").read_bytes()

    def use() -> None:
        with unchanged(folder):
            add_a_key(folder)
            if back:
                (folder / "tokenizer.json").write_bytes(content)

    with pytest.raises(
        Unreadable,
        match="changed while it was being read" if back else "was damaged while it was being read",
    ):
        use()


def test_what_is_beside_a_model_may_not_change_either(tmp_path: Path) -> None:
    """A folder of no cache has no manifest; a change while it is used is found all the same."""
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with unchanged(tmp_path):
        pass
    with (
        pytest.raises(Unreadable, match=r"changed while it was being read \(added_tokens.json\)"),
        unchanged(tmp_path),
    ):
        (tmp_path / "added_tokens.json").write_text("{}")
    with pytest.raises(Unreadable, match="changed while it was being read"), unchanged(file):
        file.write_text("[]")


def test_a_load_that_is_overtaken_by_damage_is_an_error(
    served: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer built from a snapshot that was damaged after it was compared is never handed
    back.
    """
    import importlib

    loading = importlib.import_module("harness.tokenizer.loading.load")
    plain = loading.build

    def late(folder: Path, *arguments: object, **options: object) -> object:
        add_a_key(folder)
        return plain(folder, *arguments, **options)

    monkeypatch.setattr(loading, "build", late)
    with pytest.raises(CacheFailed, match="was damaged while it was being read"):
        load(
            "org/name",
            revision=COMMIT,
            endpoint=served.endpoint,
            cache=tmp_path / "cache",
            deadline=5,
        )


@pytest.mark.parametrize("kind", ["flipped", "replaced", "led away"])
def test_a_blob_of_the_hubs_cache_is_held_against_its_name(
    kind: str, served: FakeHub, tmp_path: Path
) -> None:
    """In huggingface_hub's cache a file has to be a link to a blob, and the blob what its name
    says.
    """
    cache: HubCache = hub_cache(tmp_path / "hub", served)
    folder = cache.root / "models--org--name" / "snapshots" / COMMIT
    file = folder / "tokenizer.json"
    assert damage(folder) is None
    assert damage(file) is None
    if kind == "flipped":
        add_a_key(folder)
    elif kind == "replaced":
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
    else:
        (tmp_path / "elsewhere").write_bytes(file.read_bytes())
        file.unlink()
        file.symlink_to(tmp_path / "elsewhere")
    assert damage(folder) is not None
    assert damage(file) is not None
    assert damage(folder / "merges.txt") is None


@pytest.mark.parametrize(
    "way", ["a link of one's own", "the blob itself", "a folder of the repository", "weights"]
)
def test_a_blob_is_compared_whichever_way_leads_to_it(
    way: str, served: FakeHub, tmp_path: Path
) -> None:
    """Named by a link elsewhere, by its digest, in a folder of the repository's own, or as a model
    file.
    """
    cache: HubCache = hub_cache(tmp_path / "hub", served)
    snapshot = cache.root / "models--org--name" / "snapshots" / COMMIT
    blob = Path(os.path.realpath(snapshot / "tokenizer.json"))
    (tmp_path / "own.json").symlink_to(snapshot / "tokenizer.json")
    (snapshot / "files").mkdir()
    (snapshot / "files/tokenizer.json").symlink_to(blob)
    (snapshot / "model.gguf").symlink_to(blob)
    path = {
        "a link of one's own": tmp_path / "own.json",
        "the blob itself": blob,
        "a folder of the repository": snapshot / "files",
        "weights": snapshot / "model.gguf",
    }[way]
    assert damage(path) is None
    add_a_key(snapshot)
    assert "is damaged and is not used" in (damage(path) or "")


def test_tokens_that_other_files_add_are_used_as_they_were_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is proven with the tokens that its configuration adds, and without truncation: so it
    is used.
    """
    import importlib

    generation = importlib.import_module("harness.tokenizer.engines.generation")
    whole = llama_3()
    (tmp_path / "own").mkdir()
    (gone,) = (one for one in whole["added_tokens"] if one["content"] == "<|pad|>")
    kept_back = [one for one in whole["added_tokens"] if one is not gone]
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    own = whole | {"added_tokens": kept_back, "truncation": cut}
    (tmp_path / "own/tokenizer.json").write_text(json.dumps(own))
    added = {
        str(one["id"]): {key: value for key, value in one.items() if key != "id"}
        for one in whole["added_tokens"]
    }
    config = CONFIG | {"extra_special_tokens": [], "added_tokens_decoder": added}
    (tmp_path / "own/tokenizer_config.json").write_text(json.dumps(config))
    found = resolve(model(tmp_path), tokenizer=tmp_path / "own", caches=[])
    assert found.proven
    assert found.chosen is not None
    given: list[list[int]] = []

    def run(_: Path, ids: list[int], **__: object) -> object:
        given.append(ids)
        raise generation.EngineRefused("enough")

    monkeypatch.setattr(generation, "_run", run)
    with pytest.raises(generation.EngineRefused, match="enough"):
        continued(
            found.model,
            tokenizer=found.chosen.path,
            read=found.chosen.read,
            prompt="a <|pad|> b c",
            most=1,
        )
    assert gone["id"] in given[0]
    assert len(given[0]) > cut["max_length"]


def test_a_model_that_is_exchanged_before_it_runs_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a tokenizer was proven for, and what ran, are one file.

    Else nothing is said to be proven.
    """
    import importlib

    generation = importlib.import_module("harness.tokenizer.engines.generation")
    file = model(tmp_path)
    (file.parent / "tokenizer.json").write_text(json.dumps(llama_3()))

    def run(path: Path, ids: list[int], **_: object) -> object:
        path.with_name("other").write_bytes(path.read_bytes() + b"\0")
        path.with_name("other").rename(path)
        return generation._Ran(
            ids=ids, engine="", device="cpu", why="", load_seconds=0.0, run_seconds=0.0, remarks=()
        )

    monkeypatch.setattr(generation, "_run", run)
    assert main(["tokenizer", "infer", "--model", str(file), "--prompt", "hello"]) == DAMAGED
    said = capsys.readouterr()
    assert "changed while it was being read" in said.err
    assert "proven" not in said.out + said.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    "taken", ["files/merges.txt", "files", "manifest.json", ".", "..", "../.."]
)
def test_what_may_not_be_read_is_said_and_not_passed_over(taken: str, served: FakeHub) -> None:
    """A file, a snapshot or a whole cache without permissions is a candidate that is refused, and
    no crash.
    """
    # Which, unlike that of a test, another user can get to.
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        top.chmod(0o755)
        folder, file = get(served, top), model(top)
        locked = Path(os.path.normpath(folder.parent / taken))
        locked.chmod(0)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.setuid(65534)
                found = resolve(file, caches=[top / "cache"])
                told = [
                    f"{one.origin} {one.standing}: {one.reasons[0]}" for one in found.candidates
                ]
                try:
                    load(folder)
                except SourceRefused as error:
                    told.append(f"load: {error}")
                os.write(write, "\n".join(told).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            inside, candidate, loaded = answer.read().splitlines()
        os.waitpid(child, 0)
        locked.chmod(0o755)
    assert inside.startswith("inside usable")
    assert candidate.startswith("cache refused: cannot be")
    assert "Permission denied" in loaded


def test_only_the_bytes_that_were_proven_are_used(tmp_path: Path) -> None:
    """An engine is given ids by the very bytes that were compared with the model, and by no
    others.
    """
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(llama_3()))
    for read in ({}, {str(file): "0" * 64}):
        with pytest.raises(Unreadable, match="changed after the tokenizer was proven"):
            continued(tmp_path / "no.gguf", tokenizer=tmp_path, read=read, prompt="x", most=1)


@pytest.mark.slow
@pytest.mark.whole
def test_nothing_damaged_is_proven_or_runs(
    served: FakeHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After one added key nothing resolves to the snapshot, infers with it or records it.

    Nor from the quarantine.
    """
    monkeypatch.setenv("RANKPROOF_TOKENIZERS", str(tmp_path / "cache"))
    folder = get(served, tmp_path)
    file = model(tmp_path)
    golden = ["--golden", str(tmp_path / "golden.json"), "--record", "--texts", "1"]
    commands = {
        ("tokenizer", "resolve", str(file), "--strict"): STRICT,
        ("infer", "--model", str(file), "--prompt", "x"): STRICT,
        ("tokenizer", "resolve", str(file), "--tokenizer", str(folder)): DAMAGED,
        ("infer", "--model", str(file), "--prompt", "x", "--tokenizer", str(folder)): DAMAGED,
        ("tokenizer", "contract", str(folder), *golden): DAMAGED,
        ("tokenizer", "parity", str(folder), str(folder)): DAMAGED,
    }
    assert main(["tokenizer", "resolve", str(file), "--strict"]) == PASS
    add_a_key(folder)
    for command, code in commands.items():
        assert main(list(command)) == code, command
        said = capsys.readouterr()
        assert "is damaged and is not used" in said.out + said.err, command
    assert not (tmp_path / "golden.json").exists()
    assert main(["tokenizer", "cache", "quarantine"]) == PASS
    ((aside, _),) = set_aside(SnapshotStore(tmp_path / "cache"))
    assert [one.origin for one in resolve(file).candidates] == ["inside"]
    assert main(["tokenizer", "resolve", str(file), "--strict"]) == STRICT
    assert main(["tokenizer", "resolve", str(file), "--tokenizer", str(aside / "files")]) == DAMAGED
    assert main(["tokenizer", "contract", str(aside / "files"), *golden]) == DAMAGED
    (aside / "files/model.gguf").write_bytes(file.read_bytes())
    assert main(["tokenizer", "resolve", str(aside / "files/model.gguf")]) == DAMAGED
    assert main(["tokenizer", "resolve", str(tmp_path / "none.gguf")]) == ABSENT
