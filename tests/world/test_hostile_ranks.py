"""Ranks that hang, die, lie and flood: the right outcome each time, within bounds, and nobody
left.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.world.below.preload import Preload
from harness.world.control.hang import Hang

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

Live = Callable[..., Any]
Prompt = Callable[..., bool]


@pytest.mark.parametrize(
    "entry", ["stuck_in_import:go", "stuck:missing_partner", "stuck:deaf", "stuck:busy"]
)
def test_a_rank_that_hangs_is_a_failure_with_stacks(live: Live, prompt: Prompt, entry: str) -> None:
    """A hang in load or in the check ends at the deadline, and every rank's stack says where it
    stood.
    """
    lived = live(entry, deadline=0.7)
    assert not lived.void
    assert prompt(lived, after=0.7)
    assert lived.findings["finished"].failed_ranks == (0, 1)
    assert lived.findings["finished"].reason == "the world was still running after 0.7 s"
    stopped = lived.history.noted("world.stopped")[0].event.values
    assert stopped == {"ranks": [0, 1], "why": "deadline", "failed": []}
    assert sorted(lived.capture.stacks) == [0, 1]
    for text in lived.capture.stacks.values():
        assert f'File "{entry.partition(":")[0]}.py", line'.encode() in text
    assert [lived.ended(rank) for rank in (0, 1)] == ["SIGKILL", "SIGKILL"]


def test_stacks_name_no_folder_of_the_machine(live: Live) -> None:
    """Stacks are evidence: files are named relative to the arm, the project or the import path."""
    lived = live("stuck:deaf", deadline=0.5)
    for text in lived.capture.stacks.values():
        assert b'File "harness/rank/lifecycle.py"' in text
        assert b'File "/' not in text
        assert str(Path.home()).encode() not in text


def test_a_rank_that_never_joins_is_told_from_one_that_waits_for_it(live: Live) -> None:
    """A rank stopped in its import is in state T at the deadline.

    The one that waits for it shows its stack.
    """
    lived = live("stuck:stop_itself", deadline=0.7)
    states = {
        rank: lived.history.noted("rank.state", rank)[0].event.values["state"] for rank in (0, 1)
    }
    assert states[1] == "T"
    assert states[0] in {"S", "R"}
    assert sorted(lived.capture.stacks) == [0]
    assert lived.findings["finished"].failed_ranks == (0, 1)


def test_ranks_stopped_in_import_are_ended(live: Live) -> None:
    """SIGSTOP before the subject's first line does not keep a rank alive."""
    lived = live("stopped_in_import:go", deadline=0.5)
    assert lived.findings["code-is-the-arms"].failed_ranks == (0, 1)
    assert [lived.ended(rank) for rank in (0, 1)] == ["SIGKILL", "SIGKILL"]


def test_a_rank_that_hangs_in_init_is_a_failure(live: Live) -> None:
    """A rank stopped before it joins, and one that waits for it in the rendezvous, are found at the
    deadline.
    """

    def stop(world: Any, event: Any) -> None:
        if event.rank == 1:
            world.signal(signal.SIGSTOP, rank=1)

    lived = live("calm:gather", gates=("rank.begin",), on_gate=stop, deadline=0.8)
    assert lived.history.noted("rank.state", 1)[0].event.values["state"] == "T"
    assert (
        b"init_process_group" in lived.capture.stacks[0] or b"TCPStore" in lived.capture.stacks[0]
    )
    assert lived.findings["group-is-whole"].failed_ranks == (0, 1)
    assert lived.findings["finished"].failed_ranks == (0, 1)


def test_a_rank_that_dies_in_init_does_not_hold_the_others(live: Live, prompt: Prompt) -> None:
    """After a rank was killed before it joined, the others are stopped long before the deadline."""

    def kill(world: Any, event: Any) -> None:
        if event.rank == 0:
            world.signal(signal.SIGKILL, rank=0)

    lived = live("calm:gather", size=3, gates=("rank.begin",), on_gate=kill, after_failure=0.3)
    assert lived.ended(0) == "SIGKILL"
    assert prompt(lived, after=0.3)
    assert lived.findings["finished"].failed_ranks == (0, 1, 2)
    assert not lived.history.noted("world.deadline")


def test_a_file_that_cannot_be_read_is_told(live: Live, tmp_path: Path) -> None:
    """A syntax error has no frame of its own, and still names file and line."""
    (tmp_path / "broken.py").write_text("def go(context)\n    return\n")
    lived = live("broken:go", folder=tmp_path)
    assert (lived.error(1)["type"], lived.error(1)["source"]) == ("SyntaxError", "def go(context)")
    assert lived.findings["code-is-the-arms"].failed_ranks == (0, 1)


def test_an_endless_thread_is_a_hang(live: Live) -> None:
    """A subject that returns and leaves a thread running did not end: the deadline finds it, and
    its stack names it.
    """
    lived = live("stuck:endless_thread", deadline=0.7)
    reasons = {found.rank: found.reason for found in lived.findings["finished"].ranks}
    assert reasons == dict.fromkeys((0, 1), "it was stopped after it had returned")
    assert b"waiting_for_nobody" in lived.capture.stacks[0]


def test_the_others_are_stopped_after_the_first_failure(live: Live) -> None:
    """When one rank raises, the others get their time, then their stacks are taken and they are
    stopped.
    """
    lived = live("stuck:one_raises", after_failure=0.3)
    stopped = lived.history.noted("world.stopped")[0].event.values
    assert stopped == {"ranks": [0], "why": "after-failure", "failed": [1]}
    assert (
        lived.findings["finished"].ranks[0].reason
        == "it did not exit in time after another rank had failed"
    )
    assert b"waiting_for_nobody" in lived.capture.stacks[0]
    assert lived.error(1)["message"] == "broken"
    assert not lived.history.noted("world.deadline")
    first = next(
        event for event in lived.capture.events if event.name in {"rank.error", "rank.exited"}
    )
    assert first.rank == 1


@pytest.mark.parametrize("entry", ["leaving:exit_zero", "leaving:exit_at_once", "leaving:no_exit"])
def test_leaving_early_with_code_0_is_a_failure(live: Live, entry: str) -> None:
    """Exit code 0 without the subject's return is not an end."""
    lived = live(entry)
    # It returned, and the process ended although os._exit had been replaced.
    if entry.endswith("no_exit"):
        assert lived.passed
        return
    assert [lived.ended(rank) for rank in (0, 1)] == [0, 0]
    assert [found.reason for found in lived.findings["finished"].ranks] == [
        "it ended before the subject returned"
    ] * 2


@pytest.mark.parametrize(
    ("entry", "end"),
    [
        ("leaving:killed", "SIGKILL"),
        ("leaving:segfault", "SIGSEGV"),
        ("leaving:abort", "SIGABRT"),
        ("wrecking:own_group", "SIGKILL"),
        ("leaving:exit_with_text", 1),
    ],
)
def test_how_a_rank_died_comes_from_who_forked_it(live: Live, entry: str, end: object) -> None:
    """The signal or code of a dead rank is what its keeper reaped, and no core file is left."""
    lived = live(entry)
    assert lived.ended(1) == end
    assert 1 in lived.findings["finished"].failed_ranks
    assert not lived.void


def test_a_limit_on_memory_is_a_memory_error(live: Live) -> None:
    """A rank that asks for more than its limit raises MemoryError, and says so."""
    lived = live("leaving:out_of_address_space")
    assert lived.error(0)["type"] == "MemoryError"
    assert lived.error(0)["source"] == "held = bytearray(1 << 30)"


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A memory control group of 64 MiB, where this machine lets us make one."""
    root = Path("/sys/fs/cgroup")
    parent, limit = (
        (root / "memory", "memory.limit_in_bytes")
        if (root / "memory").is_dir()
        else (root, "memory.max")
    )
    folder = parent / f"rankproof-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    yield folder
    folder.rmdir()


def test_the_kernels_oom_killer_is_seen(live: Live, control_group: Path) -> None:
    """A rank that the kernel ends for its memory is a failure with SIGKILL.

    The keeper lives to tell.
    """
    lived = live("leaving:out_of_memory", arguments={"group": str(control_group)})
    assert lived.ended(1) == "SIGKILL"
    assert not lived.void
    assert 1 in lived.findings["finished"].failed_ranks


def test_a_flooded_log_costs_no_memory(live: Live) -> None:
    """100 MB of log grow the harness by less than 20 MB.

    Beginning and end are kept, and what is missing is said.
    """
    live("calm:alone")
    before = psutil.Process().memory_info().rss
    lived = live("writing:log")
    assert lived.passed
    assert psutil.Process().memory_info().rss - before < 20 << 20
    assert len(lived.capture.logs[1]) < 300 << 10
    cut = lived.history.noted("log.cut", 1)[0].event.values
    assert cut["bytes"] == 100 << 20
    assert cut["dropped"] == (100 << 20) - (256 << 10)


def test_a_binary_log_is_kept_as_it_is(live: Live) -> None:
    """Bytes that are no text arrive as they were written."""
    lived = live("writing:binary")
    assert lived.passed
    assert lived.capture.logs[0] == bytes(range(256)) * 16


@pytest.mark.parametrize(
    "text",
    [
        "garbage\n",
        '{"event":"a"',
        "\xff\xfe\n",
        '{"event":"a","values":{"x":NaN}}\n',
        '{"event":"a","values":{"x":1e999}}\n',
        '{"event":"a","values":{"x":1,"x":2}}\n',
        '{"event":"A B"}\n',
        '{"event":"a","ns":1}\n',
        '{"event":"a","rank":0}\n',
        '{"event":"a","values":[]}\n',
        '{"event":"a","values":{"x":' + "[" * 500 + "]" * 500 + "}}\n",
        '{"event":"a","values":{"x":' + "9" * 5000 + "}}\n",
    ],
)
def test_garbage_on_the_event_channel_is_evidence_against_its_rank(live: Live, text: str) -> None:
    """A line that is not an event fails that rank alone, with a sample of it."""
    lived = live("writing:raw", arguments={"text": text})
    assert lived.findings["channel-is-whole"].failed_ranks == (1,)
    if text.endswith("\n"):
        assert len(lived.history.noted("channel.garbage", 1)) == 1
        assert lived.said(1, "subject.end")
    assert not lived.void


def test_a_line_of_ten_megabytes_is_skipped(live: Live) -> None:
    """A huge line is garbage, bounded; it floods the channel, so nothing after it counts."""
    lived = live("writing:long_line")
    assert lived.findings["channel-is-whole"].failed_ranks == (1,)
    assert len(lived.said(0, "afterwards")) == 1
    assert sum(len(event.line()) for event in lived.capture.events) < 100_000


def test_a_million_events_are_cut(live: Live, prompt: Prompt) -> None:
    """A flood of events ends in `channel.overflow`, in bounded memory and time."""
    before = psutil.Process().memory_info().rss
    lived = live("writing:flood")
    assert lived.findings["channel-is-whole"].failed_ranks == (1,)
    assert len(lived.history.noted("channel.overflow", 1)) == 1
    assert len(lived.said(1, "a")) <= 10_000
    assert psutil.Process().memory_info().rss - before < 40 << 20
    assert prompt(lived, after=5.0)


def test_a_rank_cannot_speak_for_anybody_else(live: Live) -> None:
    """Forged server events stay the rank's own words, and a forged end does not undo the missing
    one.
    """
    lived = live("writing:forge")
    assert len(lived.history.served(1, "rank.exited")) == 1
    assert lived.history.served(None, "world.survivors")[0].event.values["count"] == 0
    assert {
        event.by
        for event in lived.capture.events
        if event.name == "rank.exited" and event.rank == 1
    } == {
        "rank",
        "server",
    }
    assert lived.findings["channel-is-whole"].failed_ranks == (1,)
    assert not lived.said(0, "there")


@pytest.mark.parametrize(
    "entry", ["breeding:plain", "breeding:stopped", "breeding:daemon", "breeding:writing_child"]
)
def test_children_are_found_named_and_ended(live: Live, prompt: Prompt, entry: str) -> None:
    """What a rank leaves behind is counted and killed, and the next trial is whole."""
    lived = live(entry, after_failure=0.2)
    child = lived.said(1, "child")[0].values["pid"]
    found = lived.history.served(None, "world.survivors")[0].event.values
    assert found["count"] == 1
    assert [process["pid"] for process in found["processes"]] == [child]
    assert not psutil.pid_exists(child)
    assert prompt(lived, after=0.2)
    after = live("calm:gather")
    assert after.passed
    assert after.survivors == 0


def test_a_forked_child_does_not_speak_for_its_rank(live: Live) -> None:
    """A child that returns from the subject neither ends nor fails the rank."""
    lived = live("breeding:returning_child")
    assert not lived.said(1, "subject.end")
    assert lived.ended(1) == "SIGKILL"
    well = live("breeding:raising_child")
    assert well.passed
    assert well.error(1) is None
    assert b"RuntimeError: in the child" in well.capture.logs[1]


def test_closed_descriptors_do_not_silence_a_rank(live: Live) -> None:
    """A rank that closes everything is heard through its error file, and is not a pass."""
    # Without a group: a thread of gloo's aborts the process when its descriptors go, now and then
    # before it is heard.
    returned = live("wrecking:close_and_return", backend="none")
    assert returned.error(1)["type"] == "OSError"
    assert 1 in returned.findings["finished"].failed_ranks
    raised = live("wrecking:close_and_raise", backend="none")
    assert raised.error(1)["message"] == "heard all the same"
    assert raised.error(1)["source"] == 'raise ValueError("heard all the same")'


@pytest.mark.slow
def test_closed_descriptors_and_a_hang_end_at_the_deadline(live: Live, prompt: Prompt) -> None:
    """A silent rank is stopped like any other, and its channel is known to have closed early."""
    lived = live("wrecking:close_and_hang", deadline=1.0)
    assert lived.history.noted("channel.closed", 1)
    assert 1 in lived.findings["finished"].failed_ranks
    assert prompt(lived, after=1.0)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "huge", "garbage"])
def test_a_forged_error_file_is_read_as_nothing(live: Live, kind: str) -> None:
    """What a rank puts in its error's place is never followed, waited for or believed.

    A real error wins.
    """
    lived = live("wrecking:error_file", arguments={"kind": kind})
    assert lived.passed
    assert lived.error(1) is None
    told = live("wrecking:error_file_and_raise", arguments={"kind": kind})
    assert told.error(1)["message"] == "heard all the same"


def test_a_deleted_scratch_folder_harms_nobody(live: Live) -> None:
    """A rank that deletes its folder is judged like any other."""
    assert live("wrecking:delete_scratch").passed


@pytest.mark.parametrize(
    "entry", ["wrecking:kill_parent", "wrecking:kill_server", "wrecking:kill_warden"]
)
@pytest.mark.slow
def test_a_rank_that_kills_what_watches_it_makes_the_trial_void(
    live: Live, prompt: Prompt, entry: str
) -> None:
    """Keeper, server or warden killed by a rank: the harness says so, nobody survives, and the next
    trial works.
    """
    # The servers that are killed hold nothing: another one that imports torch takes seconds.
    own = (
        {"backend": "none", "preload": Preload(modules=())}
        if entry != "wrecking:kill_parent"
        else {}
    )
    lived = live(entry, **own)
    assert len(lived.void) == 1
    assert live("calm:alone", **own).passed
    assert prompt(lived, after=6.0)


@pytest.mark.long
def test_a_keeper_that_was_stopped_does_not_hold_the_harness(
    live: Live, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that stops its keeper makes the trial void within a bound."""
    monkeypatch.setattr("harness.world.control.ending.KILL_WITHIN", 1.0)
    monkeypatch.setattr("harness.world.control.server_handle.GONE_WITHIN", 1.0)
    lived = live("wrecking:kill_parent", arguments={"number": 19}, deadline=1.0)
    assert "did not end within" in lived.void[0]
    assert live("calm:gather").passed
    # Every wait for it has its bound: the deadline, stacks, grace and kill, and the time to see it
    # give up (5 s).
    assert prompt(lived, after=8.5)


@pytest.mark.slow
def test_twenty_trials_leak_no_descriptor(live: Live) -> None:
    """The harness has as many descriptors after twenty worlds, failing ones among them, as after
    one.
    """
    live("calm:alone")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for turn in range(20):
        live(
            ("calm:alone", "raising:bare", "leaving:killed", "wrecking:close_and_return")[turn % 4],
            after_failure=0.1,
        )
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_rank_that_is_reaped_late_has_not_closed_its_channel(live: Live) -> None:
    """A busy machine may reap a rank a second after the kernel closed its channel: nothing is wrong
    with the rank.
    """
    lived = live("leaving:reaped_late", backend="none")
    assert not lived.history.noted("channel.closed")
    assert lived.findings["channel-is-whole"].passed
    assert lived.findings["finished"].passed


def test_a_channel_that_is_closed_after_the_last_word_is_whole(live: Live) -> None:
    """What a rank does when it has said everything takes no word away, however long it takes."""
    lived = live("leaving:closes_at_exit", backend="none")
    assert lived.history.noted("channel.closed", 1)
    assert lived.passed


def test_a_channel_that_is_closed_before_the_last_word_is_not(live: Live) -> None:
    """A rank that closes its channel at the very end of its work is no pass, however soon it
    ends.
    """
    lived = live("leaving:closes_and_returns", backend="none")
    assert 1 in lived.findings["finished"].failed_ranks
    assert not lived.passed


@pytest.mark.parametrize(
    ("entry", "hang", "reason"),
    [
        (
            "hanging:silent_socket",
            Hang(window=0.6, within=6.0),
            "it was stopped because its world made no progress",
        ),
        (
            "hanging:computes",
            Hang(window=0.6, within=1.4),
            "it was stopped because a hang could no longer be proved",
        ),
    ],
)
def test_no_rank_is_said_to_have_failed_where_none_had(
    live: Live, entry: str, hang: Hang, reason: str
) -> None:
    """A world that is stopped for its hang, or because it does not hang, is not one in which
    another rank failed.
    """
    lived = live(entry, backend="none", warm=False, deadline=60.0, hang=hang)
    assert lived.history.noted("world.stopped")[0].event.values["failed"] == []
    assert {part.reason for part in lived.findings["finished"].ranks} == {reason}
