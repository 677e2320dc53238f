"""Snapshots: complete, verified, never half-written."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tokenizer.loading import CacheFailed, DeadlineExceeded, HubFailed
from harness.tokenizer.loading.locks import hold_lock
from harness.tokenizer.loading.manifest import changes, records
from harness.tokenizer.loading.snapshot import Damaged, Snapshot, SnapshotStore
from harness.tokenizer.loading.source import HubRepository, SourceLimits, promises, resolve
from harness.tokenizer.loading.wire import Deadline, HubClient
from tests.tokenizer.loading.hubs import COMMIT, FakeHub, hang_up


def fetch(fake: FakeHub, root: Path, *, seconds: float = 5.0) -> Snapshot:
    """What `load` does before it builds."""
    repository = HubRepository(endpoint=fake.endpoint, name="org/name")
    store = SnapshotStore(root)
    wire = HubClient(endpoint=fake.endpoint, token=None, deadline=Deadline(seconds))
    with store.fetching(repository, COMMIT, seconds=seconds):
        listing = promises(
            wire, repository, resolve(wire, repository, COMMIT), limits=SourceLimits()
        )
        return store.fill(repository, COMMIT, listing, wire=wire)


def room(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_bsize


def find(fake: FakeHub, root: Path) -> Snapshot | None:
    return SnapshotStore(root).find(HubRepository(endpoint=fake.endpoint, name="org/name"), COMMIT)


def test_a_snapshot_is_found_again(fake: FakeHub, tmp_path: Path) -> None:
    """What was fetched is what is found: the tokenizer's files and no others, each with its
    digest.
    """
    made = fetch(fake, tmp_path)
    assert find(fake, tmp_path) == made
    assert [file.path for file in made.files] == [
        "additional_chat_templates/tool_use.jinja",
        "chat_template.jinja",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert all(
        (made.folder / file.path).read_bytes() == fake.files[file.path] for file in made.files
    )
    assert {path.name for path in tmp_path.iterdir()} == {".locks", made.folder.parent.parent.name}


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (
            lambda folder: (folder / "tokenizer.json").write_bytes(b"{}"),
            "tokenizer.json has 2 bytes",
        ),
        (
            lambda folder: (folder / "chat_template.jinja").unlink(),
            "chat_template.jinja is missing",
        ),
        (
            lambda folder: (folder / "added_tokens.json").write_text("{}"),
            "added_tokens.json is new",
        ),
        (
            lambda folder: (folder.parent / "manifest.json").write_text("{"),
            "manifest.json cannot be read",
        ),
        (lambda folder: (folder.parent / "manifest.json").unlink(), "has no manifest.json"),
        (
            lambda folder: (folder / "listed.txt").symlink_to("gone"),
            "is a link, which a snapshot must not contain",
        ),
    ],
)
def test_a_damaged_snapshot_is_not_used(
    fake: FakeHub, tmp_path: Path, harm: object, words: str
) -> None:
    """A byte, a file less or a file more makes a snapshot unusable.

    Fetching it again replaces it.
    """
    made = fetch(fake, tmp_path)
    harm(made.folder)  # type: ignore[operator]
    with pytest.raises(Damaged, match=words):
        find(fake, tmp_path)
    assert fetch(fake, tmp_path) == made
    assert find(fake, tmp_path) == made


def test_a_snapshot_of_one_hub_is_not_another_hubs(
    fake: FakeHub, tmp_path: Path, small_files: dict[str, bytes]
) -> None:
    """The same name and commit on another hub is another snapshot, and a copied one is noticed."""
    other = FakeHub(small_files)
    other.close()
    made = fetch(fake, tmp_path)
    assert find(other, tmp_path) is None
    theirs = SnapshotStore(tmp_path).place(
        HubRepository(endpoint=other.endpoint, name="org/name"), COMMIT
    )
    shutil.copytree(made.folder.parent, theirs)
    with pytest.raises(Damaged, match="from http"):
        find(other, tmp_path)


def test_a_failed_fetch_is_gone_on_from(fake: FakeHub, tmp_path: Path) -> None:
    """After an error there is no snapshot, and the next fetch asks for nothing that came whole
    before.
    """
    fake.replace["/tokenizer_config.json"] = hang_up
    with pytest.raises(DeadlineExceeded):
        fetch(fake, tmp_path, seconds=0.5)
    assert sorted(path.name[:16] for path in tmp_path.iterdir()) == [".locks", ".partial-nobody-"]
    assert find(fake, tmp_path) is None
    fake.replace.clear()
    fake.paths.clear()
    assert fetch(fake, tmp_path) == find(fake, tmp_path)
    assert [path.rpartition("/")[2] for path in fake.paths if "/resolve/" in path] == [
        "tokenizer_config.json"
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".partial-")] == []


def test_who_comes_second_without_a_lock_takes_the_firsts(fake: FakeHub, tmp_path: Path) -> None:
    """Two that fetch side by side, as without flock, end with one snapshot, which is whole."""
    repository = HubRepository(endpoint=fake.endpoint, name="org/name")
    wire = HubClient(endpoint=fake.endpoint, token=None, deadline=Deadline(5))
    listing = promises(wire, repository, resolve(wire, repository, COMMIT), limits=SourceLimits())
    first = SnapshotStore(tmp_path).fill(repository, COMMIT, listing, wire=wire)
    changed = first.folder.stat().st_mtime_ns
    assert SnapshotStore(tmp_path).fill(repository, COMMIT, listing, wire=wire) == first
    assert first.folder.stat().st_mtime_ns == changed


def test_what_a_killed_process_left_is_swept(fake: FakeHub, tmp_path: Path) -> None:
    """A partial folder of a process that has ended is removed; one of a living process stays."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    from harness.tokenizer.loading.snapshot import _pid_space

    dead = tmp_path / f".partial-{_pid_space()}-{gone.pid}-00000000"
    alive = tmp_path / f".partial-{_pid_space()}-{os.getppid()}-00000000"
    elsewhere = tmp_path / f".partial-{'0' * 12}-{gone.pid}-00000000"
    for folder in (dead, alive, elsewhere):
        (folder / "files").mkdir(parents=True)
    fetch(fake, tmp_path)
    assert (dead.exists(), alive.exists(), elsewhere.exists()) == (False, True, True)


def test_a_cache_that_cannot_be_made_is_an_error(fake: FakeHub, tmp_path: Path) -> None:
    """A file where the cache should be is named, with what to do; it is left as it is."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CacheFailed, match=r"cannot write .*file.*cache="):
        fetch(fake, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_warm_cache_may_be_read_only(fake: FakeHub, tmp_path: Path) -> None:
    """Finding a snapshot writes nothing: no lock, no timestamp, no marker."""
    made = fetch(fake, tmp_path)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
    try:
        assert find(fake, tmp_path) == made
    finally:
        for path in [tmp_path, *tmp_path.rglob("*")]:
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o200)
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_write_that_fails_half_way_leaves_nothing(fake: FakeHub, tmp_path: Path) -> None:
    """Where the system refuses more bytes in the middle of a file, the error says so and nothing is
    left.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
    try:
        with pytest.raises(CacheFailed, match=r"cannot write .*tokenizer\.json.*too large"):
            fetch(fake, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == [".locks"]
    assert fetch(fake, tmp_path) == find(fake, tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.getuid() != 0 or sys.platform != "linux":
        pytest.skip("only root mounts a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_an_error_and_harms_nothing(fake: FakeHub, small_disk: Path) -> None:
    """On a file system without room the error names it, what was there stays, and with room the
    fetch works.
    """
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        while room(small_disk):
            stream.write(b"x" * 4096)
    os.truncate(filler, filler.stat().st_size - 12 * 1024)
    with pytest.raises(CacheFailed, match="No space left"):
        fetch(fake, small_disk / "cache")
    assert not list(small_disk.rglob("manifest.json"))
    filler.unlink()
    assert fetch(fake, small_disk / "cache") == find(fake, small_disk / "cache")


def test_a_read_only_disk_serves_what_it_has(fake: FakeHub, small_disk: Path) -> None:
    """A read-only cache gives the snapshots it has.

    Another cold one is an error that says what to do.
    """
    made = fetch(fake, small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert find(fake, small_disk) == made
    other = FakeHub(fake.files)
    try:
        with pytest.raises(CacheFailed, match=r"Read-only file system.*cache="):
            fetch(other, small_disk)
    finally:
        other.close()


def test_a_file_system_without_locks_is_worked_on_without(fake: FakeHub, tmp_path: Path) -> None:
    """Where flock is refused, the fetch goes on: only requests are lost, never a half-written
    snapshot.
    """
    script = f"""
import errno, fcntl
def refused(descriptor, operation):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refused
from pathlib import Path
from tests.tokenizer.loading.test_snapshot import fetch
class Fake: endpoint = {fake.endpoint!r}
print(len(fetch(Fake, Path({str(tmp_path)!r})).files))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "5"), ended.stderr
    assert find(fake, tmp_path) is not None


def test_the_lock_names_nobody_it_does_not_know(tmp_path: Path) -> None:
    """A lock whose holder left no word, or rubbish, is waited for all the same, and the error says
    what is known.
    """
    from harness.tokenizer.loading import LockTimeout

    path = tmp_path / "x.lock"
    with hold_lock(path, what="x", seconds=1):
        assert f'"pid": {os.getpid()}' in path.with_suffix(".holder").read_text()
        path.with_suffix(".holder").write_text("rubbish")
        with (
            pytest.raises(LockTimeout, match="did not record its pid") as caught,
            hold_lock(path, what="x", seconds=0.1),
        ):
            pass
    assert caught.value.pid is None
    assert not path.with_suffix(".holder").exists()


def test_changes_are_said_in_words(tmp_path: Path) -> None:
    """Missing, additional, longer and different files are distinguished."""
    for name, content in {"a.json": b"1", "b.json": b"2", "c.json": b"3"}.items():
        (tmp_path / name).write_bytes(content)
    before = records(tmp_path, only_tokenizer_files=True)
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_bytes(b"22")
    (tmp_path / "c.json").write_bytes(b"4")
    (tmp_path / "d.json").write_bytes(b"4")
    assert changes(before, records(tmp_path, only_tokenizer_files=True)) == [
        "a.json is missing",
        "d.json is new",
        "b.json has 2 bytes, not 1",
        "c.json has different bytes",
    ]
    assert changes(before, before) == []


def test_offline_mode_asks_nothing(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With HF_HUB_OFFLINE a cold load is an error and no request."""
    from harness.tokenizer.loading import load

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for revision in (None, COMMIT):
        with pytest.raises(HubFailed, match="HF_HUB_OFFLINE forbids"):
            load("org/name", revision=revision, endpoint=fake.endpoint, cache=tmp_path)
    assert fake.paths == []
