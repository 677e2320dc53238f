"""The cache as a whole: listed, checked, pruned and repaired beside those who use it."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.forms.digest import git_blob, sha256
from harness.tokenizer.loading import CacheFailed, Fetched, HubCache, HubFailed, Lock, fetch, load
from harness.tokenizer.loading.cache import (
    CachedSnapshot,
    cached_snapshots,
    prune,
    put_aside,
    set_aside,
    snapshot_harm,
)
from harness.tokenizer.loading.locks import Lease
from harness.tokenizer.loading.snapshot import SnapshotStore
from harness.tokenizer.loading.wire import Deadline, HubClient
from tests.tokenizer.loading.hubs import COMMIT, FakeHub

DAY = 86_400


def get(fake: FakeHub, cache: Path, commit: str = COMMIT, **more: object) -> Fetched:
    return fetch(
        "org/name", revision=commit, endpoint=fake.endpoint, cache=cache, deadline=5.0, **more
    )  # type: ignore[arg-type]


def made(
    fake: FakeHub, cache: Path, *, days: int = 0, names: tuple[str, ...] = ()
) -> CachedSnapshot:
    """A snapshot that was fetched so many days ago, and nobody uses."""
    folder = get(fake, cache, names=names).folder
    gc.collect()
    stamp = (folder.parent / "manifest.json").stat().st_mtime - days * DAY
    os.utime(folder.parent / "manifest.json", (stamp, stamp))
    return next(one for one in cached_snapshots(SnapshotStore(cache)) if one.place == folder.parent)


def test_files_by_name_have_a_snapshot_of_their_own(fake: FakeHub, tmp_path: Path) -> None:
    """A model file that is named is fetched and kept beside the tokenizer.

    A name that is not there is refused.
    """
    from harness.tokenizer.loading import SourceRefused

    model = get(fake, tmp_path, names=("model.safetensors",))
    tokenizer = get(fake, tmp_path)
    assert [file.path for file in model.files] == ["model.safetensors"]
    assert "model.safetensors" not in [file.path for file in tokenizer.files]
    assert get(fake, tmp_path, names=("model.safetensors",)).requests == ()
    with pytest.raises(
        SourceRefused, match=r"no file 'modle\.safetensors'.*it has model\.safetensors"
    ):
        get(fake, tmp_path, names=("modle.safetensors",))
    with pytest.raises(SourceRefused, match="points outside its folder"):
        get(fake, tmp_path, names=("../x",))


def test_pruning_goes_by_age_and_keeps_the_newest(fake: FakeHub, tmp_path: Path) -> None:
    """What is older goes, unless it is among the newest.

    A dry run says the same and removes nothing.
    """
    old = made(fake, tmp_path, days=40)
    older = made(fake, tmp_path, days=50, names=("model.safetensors",))
    new = made(fake, tmp_path, days=1, names=("README.md",))
    store = SnapshotStore(tmp_path)
    assert [one.place for one in cached_snapshots(store)] == [new.place, old.place, older.place]
    for dry in (True, False):
        went = prune(store, older_than=30 * DAY, keep_newest=2, dry=dry)
        assert [(one.place, one.why_not) for one in went] == [(older.place, None)]
        assert older.place.exists() == dry
    assert [one.place for one in prune(store, older_than=30 * DAY, keep_newest=0)] == [old.place]
    assert [one.place for one in cached_snapshots(store)] == [new.place]


@pytest.mark.slow
def test_what_is_in_use_is_passed_over(fake: FakeHub, tmp_path: Path) -> None:
    """A snapshot that another process holds stays, with the reason.

    When that process is killed, it goes.
    """
    one = made(fake, tmp_path, days=40)
    hold = (
        "import sys; from pathlib import Path; from harness.tokenizer.loading.locks import Lease\n"
        "lease = Lease(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", hold, str(one.place / "files")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        went = prune(SnapshotStore(tmp_path), older_than=DAY, keep_newest=0)
        assert [removed.why_not for removed in went] == ["a process is using it"]
        assert snapshot_harm(SnapshotStore(tmp_path), one) is None
    finally:
        child.kill()
        child.communicate()
    assert [
        removed.why_not for removed in prune(SnapshotStore(tmp_path), older_than=DAY, keep_newest=0)
    ] == [None]
    assert not one.place.exists()


def test_what_is_being_fetched_is_passed_over(fake: FakeHub, tmp_path: Path) -> None:
    """A snapshot whose lock somebody holds, as to repair it, is not pruned under their hands."""
    from harness.tokenizer.loading.source import HubRepository

    one, store = made(fake, tmp_path, days=40), SnapshotStore(tmp_path)
    with store.fetching(HubRepository(endpoint=fake.endpoint, name="org/name"), COMMIT, seconds=1):
        went = prune(store, older_than=DAY, keep_newest=0)
    assert went[0].why_not is not None
    assert f"process {os.getpid()}" in went[0].why_not
    assert one.place.exists()


def test_a_lease_knows_that_its_snapshot_went(fake: FakeHub, tmp_path: Path) -> None:
    """Where locks do nothing a snapshot may be taken from under a load: it finds out, even if a new
    one lies there.
    """
    folder = get(fake, tmp_path).folder
    lease = Lease(folder)
    assert lease.holds()
    SnapshotStore(tmp_path).take_away(folder.parent)
    assert not lease.holds()
    assert get(fake, tmp_path).folder == folder
    assert not lease.holds()


@pytest.mark.whole
@pytest.mark.slow
def test_a_load_from_a_snapshot_that_went_is_an_error(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer that was built while its files were taken away is never handed back: it may lack
    one of them.
    """
    loading = importlib.import_module("harness.tokenizer.loading.load")
    plain = loading.build

    def robbed(folder: Path, *arguments: object, **options: object) -> object:
        built = plain(folder, *arguments, **options)  # type: ignore[arg-type]
        SnapshotStore(tmp_path).take_away(folder.parent)
        return built

    monkeypatch.setattr(loading, "build", robbed)
    with pytest.raises(CacheFailed, match="removed while it was being loaded"):
        load("org/name", revision=COMMIT, endpoint=fake.endpoint, cache=tmp_path, deadline=5)


@pytest.mark.parametrize(
    "kind", ["flipped", "truncated", "gone", "one more", "link", "loop", "dangling", "manifest"]
)
def test_damage_is_found_offline_and_put_aside(fake: FakeHub, tmp_path: Path, kind: str) -> None:
    """A flipped byte, a shorter, a missing or a further file is found without a request.

    It is kept, and replaced.
    """
    one, store = made(fake, tmp_path), SnapshotStore(tmp_path)
    file = one.place / "files" / "tokenizer.json"
    content = file.read_bytes()
    if kind == "flipped":
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif kind == "truncated":
        file.write_bytes(content[:-1])
    elif kind == "gone":
        file.unlink()
    elif kind == "one more":
        (one.place / "files" / "added_tokens.json").write_text("{}")
    elif kind in {"link", "loop", "dangling"}:
        file.unlink()
        file.symlink_to(
            {"link": "/etc/passwd", "loop": "tokenizer.json", "dangling": "nowhere"}[kind]
        )
    else:
        (one.place / "manifest.json").write_text("{}")
    (damaged,) = cached_snapshots(store)
    why = snapshot_harm(store, damaged)
    assert why is not None
    assert str(one.place) in why
    assert put_aside(store, damaged, why).why_not is None
    assert cached_snapshots(store) == []
    ((place, said),) = set_aside(store)
    assert (said, place.is_dir()) == (why, True)
    assert (get(fake, tmp_path).folder / "tokenizer.json").read_bytes() == content


def test_a_snapshot_is_held_against_its_hub(fake: FakeHub, tmp_path: Path) -> None:
    """A snapshot that its own manifest agrees with, but not the hub's listing, is damaged."""
    one, store = made(fake, tmp_path), SnapshotStore(tmp_path)

    def asked() -> str | None:
        return snapshot_harm(
            store, one, wire=HubClient(endpoint=fake.endpoint, token=None, deadline=Deadline(5))
        )

    assert asked() is None
    fake.files["chat_template.jinja"] = b"{{ another }}!"
    said = asked()
    assert said is not None
    assert "chat_template.jinja differs from the hub's listing" in said
    assert snapshot_harm(store, one) is None


def hub_cache(root: Path, fake: FakeHub) -> HubCache:
    """huggingface_hub's cache with every file of the repository, as it lays them out."""
    blobs = root / "models--org--name" / "blobs"
    snapshot = root / "models--org--name" / "snapshots" / COMMIT
    blobs.mkdir(parents=True)
    for path, content in fake.files.items():
        made = git_blob(len(content))
        made.update(content)
        (blobs / made.hexdigest()).write_bytes(content)
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).symlink_to(blobs / made.hexdigest())
    return HubCache(root=root)


def test_the_hubs_own_cache_saves_requests_and_is_not_believed(
    fake: FakeHub, tmp_path: Path
) -> None:
    """A blob with the promised digest is copied.

    One whose bytes are not its name is fetched, and named.
    """
    cache = hub_cache(tmp_path / "hub", fake)
    content = fake.files["tokenizer.json"]
    blob = next(path for path in cache.blobs() if path.read_bytes() == content)
    blob.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    got = get(fake, tmp_path / "ours", hub_cache=cache)
    assert [
        request.path.rpartition("/")[2] for request in got.requests if "/resolve/" in request.path
    ] == ["tokenizer.json"]
    assert (got.folder / "tokenizer.json").read_bytes() == content
    assert any(
        str(blob) in remark and "does not have the bytes" in remark for remark in got.remarks
    )


def test_a_lock_is_enough_to_fetch_offline_from_the_hubs_cache(
    fake: FakeHub, tmp_path: Path
) -> None:
    """What a lock pins and the other cache has needs no request.

    What it has not is an error, and no request either.
    """
    first = get(fake, tmp_path / "first")
    lock = Lock.model_construct(
        schema_=2,
        repository="org/name",
        commit=COMMIT,
        files=first.files,
        models=(),
        options={},
        made_with={},
    )
    # git's ids name most of its blobs, and a lock knows sha256 alone; one is named by that, as in
    # large-file storage.
    cache, before = hub_cache(tmp_path / "hub", fake), len(fake.paths)
    blobs = cache.root / "models--org--name" / "blobs"
    large = fake.files["tokenizer.json"]
    (blobs / sha256(large)).write_bytes(large)
    (cache.root / "models--org--name" / "snapshots" / COMMIT / "tokenizer.json").unlink()
    got = fetch(
        "org/name",
        lock=lock,
        endpoint=fake.endpoint,
        cache=tmp_path / "a",
        offline=True,
        hub_cache=cache,
    )
    assert (got.requests, got.files) == ((), first.files)
    # A link out of the cache is not followed, whatever it leads to.
    outside = tmp_path / "outside.json"
    outside.write_bytes(fake.files["config.json"])
    link = cache.root / "models--org--name" / "snapshots" / COMMIT / "config.json"
    link.unlink()
    link.symlink_to(outside)
    with pytest.raises(HubFailed, match="offline forbids requests"):
        fetch(
            "org/name",
            lock=lock,
            endpoint=fake.endpoint,
            cache=tmp_path / "b",
            offline=True,
            hub_cache=cache,
        )
    assert len(fake.paths) == before
