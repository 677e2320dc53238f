"""Rooms: what a world leaves in its home, caches and temporary folder is not there for the next
one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.world.below.leftovers import empty, remove
from harness.world.control import room as rooms
from harness.world.control.capture import missed
from harness.world.control.pool import ServerPool, prepare
from harness.world.control.world import World
from tests.kit.launches import changed

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

Live = Callable[..., Any]
ROOT = os.geteuid() == 0
EMPTY = [
    "home",
    "home/.cache",
    "home/.config",
    "home/.local",
    "home/.local/share",
    "home/.local/state",
    "run",
    "tmp",
]


def own(names: list[str]) -> list[str]:
    """Without what MLX compiled in a world that another test had in this room: that is kept on
    purpose.
    """
    return [name for name in names if not name.startswith("tmp/mlx")]


@pytest.mark.parametrize("warm", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_world_finds_nothing_of_the_world_before(live: Live, warm: bool) -> None:
    """What is left in HOME, XDG_*, HF_HOME, TORCH_HOME and TMPDIR is gone.

    The path is the same for every world.
    """
    # New interpreters would import torch for a group: seconds, each.
    size, worlds, backend = (2, 3, "gloo") if warm else (1, 2, "none")
    seen = [live("lodging:cold", warm=warm, size=size, backend=backend) for _ in range(worlds)]
    assert all(lived.passed for lived in seen), seen[0].findings
    told = [lived.said(rank, "found")[0].values for lived in seen for rank in range(size)]
    assert [values["warm"] for values in told] == [[]] * worlds * size
    assert {values["home"] for values in told} == {"~"}
    assert len({values["digest"] for values in told}) == 1


def test_programs_have_a_room_too(live: Live, tmp_path: Path) -> None:
    """A program's HOME and TMPDIR are emptied as well, and it finds the usual folders there."""
    (tmp_path / "rank.sh").write_text(
        'echo \'{"event": "ready"}\' >&3; read -r answer <&4\n'
        'found="$(ls "$HOME/.cache" "$TMPDIR" "$XDG_RUNTIME_DIR" | grep -c left)"\n'
        'touch "$HOME/.cache/left" "$TMPDIR/left" "$XDG_RUNTIME_DIR/left" || exit 1\n'
        'printf \'{"event": "found", "values": {"left": "%s"}}\\n\' "$found" >&3\n'
    )
    for _ in range(2):
        lived = live(
            "", program=("sh", "rank.sh"), folder=tmp_path, backend="none", warm=False, size=1
        )
        assert lived.passed, lived.findings
        assert lived.said(0, "found")[0].values["left"] == "0"


def test_worlds_side_by_side_have_rooms_of_their_own(
    pool: ServerPool, order: Callable[..., Any], live: Live
) -> None:
    """Two worlds that live at the same time have two servers and two rooms."""
    both = threading.Barrier(2, timeout=60)
    seen: list[str] = []
    prepare(pool, 2, warm=False, env={})
    assert live("lodging:listing", warm=False, backend="none", size=1).passed

    def lane() -> None:
        launch = order(
            "lodging:spell", warm=False, size=1, backend="none", arguments={"names": ["TMPDIR"]}
        )
        capture = World(
            changed(launch, gates=("spelled",)), pool, on_gate=lambda *_: both.wait()
        ).run()
        seen.extend(
            event.values["values"]["TMPDIR"] for event in capture.events if event.name == "spelled"
        )

    lanes = [threading.Thread(target=lane) for _ in range(2)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    assert len(seen) == len(set(seen)) == 2
    pool.discard(pool.take(warm=False, env={}))


@pytest.mark.parametrize(
    "how",
    [
        "read-only",
        "links",
        "replaced",
        "removed",
        "odd",
        pytest.param("deep", marks=pytest.mark.slow),
    ],
)
def test_hostile_leftovers_go(live: Live, tmp_path: Path, how: str) -> None:
    """Folders without rights, 1200 levels, links, a room that is a link or gone, sockets: the next
    room is empty.

    What links lead to is not touched.
    """
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx/precious").write_text("still here")
    assert live("lodging:wreck", size=1, arguments={"how": how, "outside": str(tmp_path)}).passed
    lived = live("lodging:listing", size=1)
    assert lived.passed, lived.void
    names = lived.said(0, "listing")[0].values["names"]
    assert "tmp/mlx/precious" not in names
    assert own(names) == EMPTY
    assert (tmp_path / "mlx/precious").read_text() == "still here"


@pytest.mark.skipif(
    not ROOT or shutil.which("chattr") is None,
    reason="makes a file immutable: needs root and chattr",
)
def test_what_cannot_be_removed_is_said(
    order: Callable[..., Any], short_tmp: Path, monkeypatch: Any
) -> None:
    """A room that cannot be emptied makes the next trial void, in words.

    The one after it has another room.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(short_tmp))
    try:
        with ServerPool() as pool:
            wrecked, void, again = (
                World(
                    order(entry, warm=False, size=1, backend="none", arguments=arguments), pool
                ).run()
                for entry, arguments in (
                    ("lodging:wreck", {"how": "immutable"}),
                    ("lodging:listing", {}),
                    ("lodging:listing", {}),
                )
            )
        assert "wrecked" in {event.name for event in wrecked.events}
        assert [event.name for event in void.events] == [
            "world.begin",
            "harness.error",
            "world.end",
        ]
        words = void.events[1].values["message"]
        assert "cannot remove files that the previous world left" in words
        assert "home/pinned: Operation not permitted" in words
        assert [event.values["names"] for event in again.events if event.name == "listing"] == [
            EMPTY
        ]
        assert len(pool.left) == 1
        assert "pinned: Operation not permitted" in pool.left[0]
    finally:
        subprocess.run(["chattr", "-R", "-i", short_tmp], check=True)


@pytest.fixture
def small_disk(short_tmp: Path) -> Iterator[Path]:
    """A temporary folder on a file system of 1 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(short_tmp)], check=True)
    try:
        yield short_tmp
    finally:
        subprocess.run(["umount", "-l", str(short_tmp)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(
    not ROOT or not sys.platform.startswith("linux"), reason="mounts a tmpfs: needs root"
)
def test_a_full_disk_is_emptied_or_said(
    order: Callable[..., Any], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world that fills the disk through its room costs the next world nothing.

    A disk that is full is said.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    launch = order("lodging:fill", warm=False, size=1, backend="none")
    with ServerPool() as pool:
        for _ in range(2):
            capture = World(launch, pool).run()
            assert [event.values["full"] for event in capture.events if event.name == "filled"] == [
                True
            ]
        assert "listing" in {
            event.name
            for event in World(changed(launch, entry="lodging:listing"), pool).run().events
        }
        with (small_disk / "more").open("wb") as file:
            free = os.statvfs(small_disk)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
        void = World(launch, pool).run()
    assert [event.name for event in void.events] == ["world.begin", "harness.error", "world.end"]
    assert "No space left" in void.events[1].values["message"]


@pytest.mark.slow
def test_a_keeper_that_is_killed_leaves_nobody_in_the_room(live: Live) -> None:
    """The server is asked before its room is used again: a daemon of the world before writes
    nothing into it.
    """

    def kill(world: World, event: Any) -> None:
        keeper = int(
            Path(f"/proc/{world.pids[event.rank]}/stat").read_text().rpartition(")")[2].split()[1]
        )
        os.kill(keeper, signal.SIGKILL)

    for _ in range(5):
        assert live("lodging:daemon", size=1, gates=("writing",), on_gate=kill).void
        assert own(live("lodging:listing", size=1).said(0, "listing")[0].values["names"]) == EMPTY
        # Its folder goes when nobody writes into it, not while the daemon makes it again.
        assert live("lodging:scribe", size=1, gates=("writing",), on_gate=kill).void


@pytest.mark.slow
def test_compiled_kernels_stay_with_the_lane(live: Live, tmp_path: Path) -> None:
    """MLX compiles a kernel once per lane, not once per world.

    A link in its place is not taken for its cache.
    """
    pytest.importorskip("mlx.core")
    if shutil.which("g++") is None:
        pytest.skip("MLX compiles nothing without a compiler")
    before, after = (
        live("lodging:compiled", size=1).said(0, "compiled")[0].values for _ in range(2)
    )
    assert before["made"]
    assert before["made"] == after["made"]
    assert after["torch"]
    live("lodging:compiled", size=1, arguments={"plant": str(tmp_path)})
    assert not (tmp_path / "left").exists()
    assert own(live("lodging:listing", size=1).said(0, "listing")[0].values["names"]) == EMPTY


def test_a_room_has_a_short_path(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short_tmp: Path
) -> None:
    """A socket of multiprocessing fits below TMPDIR, however long the path of the harness's own
    temporary folder is.
    """
    assert live("lodging:listen", size=1).said(0, "listening")[0].values["length"] < 108
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert len(str(tmp_path)) > rooms.LONGEST_BASE
    assert rooms.base() == short_tmp.parent
    monkeypatch.setattr(tempfile, "tempdir", "/var")
    assert str(rooms.base()) == "/var"


def test_toolchains_keep_what_the_home_folder_implied(
    order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CARGO_HOME and its like are the user's where they are there, and the scenario's where it says
    so.
    """
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".pyenv").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["CARGO_HOME", "PYENV_ROOT", "RUSTUP_HOME"]
    launch = order(
        "lodging:spell",
        warm=False,
        size=1,
        backend="none",
        arguments={"names": names},
        env={"PYENV_ROOT": "/scenario"},
    )
    with ServerPool() as pool:
        capture = World(launch, pool).run()
    (values,) = [event.values["values"] for event in capture.events if event.name == "spelled"]
    assert values == {"CARGO_HOME": "~/.cargo", "PYENV_ROOT": "/scenario", "RUSTUP_HOME": None}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {"HOME": "~", "XDG_CACHE_HOME": "~/.cache", "HF_HOME": "~/.cache/huggingface"}),
        (
            {"HF_HOME": "/models"},
            {"HOME": "~", "HF_HOME": "/models", "TORCH_HOME": "~/.cache/torch"},
        ),
        (
            {"XDG_CACHE_HOME": "/c"},
            {
                "HOME": "~",
                "XDG_CACHE_HOME": "/c",
                "HF_HOME": "/c/huggingface",
                "XDG_DATA_HOME": "~/.local/share",
            },
        ),
        (
            {"HOME": "/h"},
            {"HOME": "/h", "XDG_STATE_HOME": "/h/.local/state", "HF_HOME": "/h/.cache/huggingface"},
        ),
    ],
)
def test_what_the_scenario_sets_goes_first(
    live: Live, env: dict[str, str], expected: dict[str, str]
) -> None:
    """HF_HOME, XDG_CACHE_HOME or HOME of the scenario is what ranks get, with what follows from
    it.
    """
    lived = live(
        "lodging:spell",
        warm=False,
        size=1,
        backend="none",
        env=env,
        arguments={"names": list(expected)},
    )
    assert lived.said(0, "spelled")[0].values["values"] == expected


def test_one_rank_may_have_another_home(live: Live) -> None:
    """What a fault gives one rank takes the caches along that follow from it."""
    names = ["HOME", "HF_HOME"]
    variables = {1: {"HOME": "/other"}}
    lived = live(
        "lodging:spell", warm=False, backend="none", arguments={"names": names}, variables=variables
    )
    told = [lived.said(rank, "spelled")[0].values["values"] for rank in (0, 1)]
    assert told == [
        {"HOME": "~", "HF_HOME": "~/.cache/huggingface"},
        {"HOME": "/other", "HF_HOME": "/other/.cache/huggingface"},
    ]


def test_a_home_may_begin_with_files(live: Live, tmp_path: Path) -> None:
    """Every world finds them as they were given, whatever the world before did to them."""
    (tmp_path / "settings").write_text("one")
    home = {".config/tool/settings": tmp_path / "settings", "top": tmp_path / "settings"}
    for _ in range(2):
        lived = live("lodging:tell", size=1, home=home, arguments={"files": sorted(home)})
        assert (
            lived.said(0, "told")[0].values["text"]
            == '{".config/tool/settings": "one", "top": "one"}'
        )


def test_a_home_may_be_the_users(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a shared home ranks have HOME and TMPDIR of whoever runs them, and no variable of a
    room.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").write_text("kept")
    names = ["HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR"]
    fresh: dict[str, Any] = {"warm": False, "backend": "none", "size": 1, "shared_home": True}
    for _ in range(2):
        values = (
            live("lodging:spell", arguments={"names": names}, **fresh)
            .said(0, "spelled")[0]
            .values["values"]
        )
        assert values == {**dict.fromkeys(names), "HOME": "~", "TMPDIR": os.environ["TMPDIR"]}
        told = (
            live("lodging:tell", arguments={"files": ["mine"]}, **fresh)
            .said(0, "told")[0]
            .values["text"]
        )
        assert told == '{"mine": "kept"}'


@pytest.mark.skipif(
    not ROOT, reason="becomes another user to meet rights that root does not: needs root"
)
def test_removal_needs_no_rights_but_the_owners(short_tmp: Path) -> None:
    """Folders without any right go, for a user who is not root.

    What belongs to others stays and is named.
    """
    room = short_tmp / "room"
    for name in ("a/b/c", "a/d", "others"):
        (room / name).mkdir(parents=True)
        (room / name / "file").touch()
    short_tmp.chmod(0o755)
    for path in (room, *room.rglob("*")):
        if "others" not in path.parts:
            os.chown(path, 65534, 65534)
    for name in ("a/b/c", "a/d", "a/b", "a"):
        (room / name).chmod(0)
    os.seteuid(65534)
    try:
        assert empty(room) == ["others/file: Permission denied"]
        assert [path.name for path in room.iterdir()] == ["others"]
    finally:
        os.seteuid(0)
    assert remove(room) == []
    assert not room.exists()


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    """Neither a link that is to be removed nor one inside; a folder that is a link is refused."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    (tmp_path / "room").mkdir()
    (tmp_path / "room/link").symlink_to(tmp_path / "precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    assert empty(tmp_path / "room") == []
    with pytest.raises(OSError, match="link"):
        empty(tmp_path / "link")
    assert remove(tmp_path / "link") == []
    assert remove(tmp_path / "gone") == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "precious", "room"]


def test_a_model_of_the_users_cache_is_named(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that finds no model offline: where the user's own cache has it, the trial says so, and
    only then.
    """
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    snapshot = tmp_path / "huggingface/hub/models--lab--tiny/snapshots/0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    for model, named in (("lab/tiny", ["lab/tiny"]), ("lab/other", []), ("lab/tiny-2", [])):
        lived = live("lodging:hub", size=1, arguments={"model": model})
        noted = [seen.event.values for seen in lived.history.noted("cache.missed", 0)]
        assert lived.error(0)["type"] == "LocalEntryNotFoundError"
        assert [values["models"] for values in noted] == ([named] if named else [])
        assert all(values["in_home"] is False for values in noted)
    error = {
        "type": "OSError",
        "message": "We couldn't find them in the cached files.",
        "causes": [],
    }
    assert missed(error, given=["lab/tiny"], code=tmp_path) == ["lab/tiny"]
    assert (
        missed({**error, "message": "lab/tiny is broken"}, given=["lab/tiny"], code=tmp_path) == []
    )
