"""Programs as ranks: what they are told, how they wait for each other, and what is proved of
them.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.events import Event
from harness.forms.digest import fold
from harness.world.control.program import command
from harness.world.control.world import World

READY = 'echo \'{"event": "ready"}\' >&3; read -r answer <&4\n'
SAY = 'echo "{{\\"event\\": \\"{name}\\", \\"values\\": {{\\"{key}\\": \\"{value}\\"}}}}" >&3\n'


@pytest.fixture
def play(live: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run a shell script as every rank."""
    code = tmp_path / "code"
    code.mkdir()

    def run(
        script: str, *, size: int = 2, program: tuple[str, ...] = ("sh", "rank.sh"), **rest: Any
    ) -> Any:
        (code / "rank.sh").write_text(script)
        return live("", program=program, folder=code, backend="none", warm=False, size=size, **rest)

    return run


@pytest.mark.slow
def test_a_program_is_told_what_a_subject_is_told(play: Any, tmp_path: Path) -> None:
    """Rank, size, seed, inputs, arguments and the code come as variables.

    Nothing of the user's shell does.
    """
    script = (
        READY
        + 'printf \'{"event": "told", "values": {"rank": "%s", "size": "%s", "seed": "%s", "input":'
        ' "%s", "loader": "%s", "events": "%s", "gates": "%s", "secret": "%s", "given": "%s",'
        ' "here": "%s"}}\\n\' "$RANKPROOF_RANK" "$RANKPROOF_SIZE" "$RANKPROOF_SEED"'
        ' "$RANKPROOF_INPUT_THE_MODEL" "$RANKPROOF_WITH_LOADER" "$RANKPROOF_EVENTS"'
        ' "$RANKPROOF_GATES" "${SECRET_TOKEN-none}" "$1 $GIVEN" "$(ls)" >&3\nprintf \'{"event":'
        ' "with", "values": %s}\\n\' "$RANKPROOF_WITH" >&3\n[ -f "$RANKPROOF_CODE/rank.sh" ]\n'
    )
    arguments = {"loader": "every rank", "depth": [1, {"a": None}]}
    lived = play(
        script,
        program=("sh", "rank.sh", "{loader}"),
        arguments=arguments,
        inputs={"the-model": "/some/where"},
        env={"GIVEN": "yes"},
    )
    assert lived.passed, lived.findings
    assert lived.said(1, "told")[0].values == {
        "rank": "1",
        "size": "2",
        "seed": "101",
        "input": "/some/where",
        "loader": "every rank",
        "events": "3",
        "gates": "4",
        "secret": "none",
        "given": "every rank yes",
        "here": "",
    }
    assert lived.said(0, "with")[0].values == arguments


def test_a_program_finds_what_a_launcher_sets(play: Any) -> None:
    """So that a script for torchrun runs as it is; the port is the same for all and free."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    lived = play(
        READY + SAY.format(name="found", key="values", value=" ".join(f"${name}" for name in names))
    )
    assert lived.passed, lived.findings
    *first, port = lived.said(0, "found")[0].values["values"].split()
    assert first == ["0", "0", "2", "2", "127.0.0.1"]
    assert lived.said(1, "found")[0].values["values"] == f"1 1 2 2 127.0.0.1 {port}"
    with socket.create_server(("127.0.0.1", int(port))):
        pass


def test_a_program_holds_its_five_descriptors_and_no_more(play: Any) -> None:
    """Nothing of the harness or of other ranks leaks into a program."""
    listing = "ls /proc/$$/fd >list\n" + SAY.format(
        name="fds", key="open", value="$(echo $(cat list))"
    )
    lived = play(READY + listing)
    for rank in (0, 1):
        # The script, and its own output meanwhile, at numbers of the shell's choice.
        found = lived.said(rank, "fds")[0].values["open"].split()
        assert sorted(set(found) - {"10", "11", "255"}) == ["0", "1", "2", "3", "4"]
    assert lived.passed


def test_ready_is_the_start_line(play: Any) -> None:
    """The answer to `ready` comes when every rank has said it."""
    lived = play(READY + 'echo \'{"event": "on"}\' >&3\n', size=4)
    assert lived.passed
    moments = {event.name: [] for event in lived.capture.events}  # type: ignore[var-annotated]
    for event in lived.capture.events:
        moments[event.name].append(event.ns)
    assert len(moments["ready"]) == len(moments["on"]) == 4
    assert max(moments["ready"]) < min(moments["world.start"]) < min(moments["on"])


def test_any_event_can_be_a_gate(play: Any) -> None:
    """A program that reads its answer waits at a gate until the harness has done what it had to
    do.
    """
    seen = []

    def on_gate(world: World, event: Event) -> None:
        seen.append(event.rank)
        world.note("struck", rank=event.rank)

    script = (
        READY
        + 'echo \'{"event": "door"}\' >&3; read -r answer <&4\necho \'{"event": "through"}\' >&3\n'
    )
    lived = play(script, gates=("door",), on_gate=on_gate)
    assert lived.passed
    assert sorted(seen) == [0, 1]
    for rank in (0, 1):
        order = [event.name for event in lived.capture.events if event.rank == rank]
        assert order.index("door") < order.index("struck") < order.index("through")


def test_what_was_executed_is_told_by_who_executed_it(play: Any, tmp_path: Path) -> None:
    """File, digest and folder come from the keeper.

    What the program says of itself under that name counts nothing.
    """
    forged = (
        'echo \'{"event": "program.started", "values": {"files": [{"file": "x", "sha256": "y"}]}}\''
        " >&3\n"
    )
    lived = play(READY + forged)
    digest = hashlib.sha256((tmp_path / "code" / "rank.sh").read_bytes()).hexdigest()
    seen = lived.history.executed(1)
    assert seen.event.by == "server"
    assert seen.event.values["program"] == "sh"
    assert seen.event.values["files"] == [{"file": "rank.sh", "sha256": digest}]
    assert seen.event.values["folder"] == fold({"rank.sh": digest})
    assert lived.findings["code-is-the-arms"].passed
    assert "group-is-whole" not in lived.findings


def test_code_that_is_nowhere_in_the_folder_is_found_out(play: Any) -> None:
    """A command line without a file of the arm does not prove anything."""
    lived = play("", program=("sh", "-c", READY))
    assert not lived.findings["code-is-the-arms"].passed


@pytest.mark.parametrize(
    ("end", "seen"), [("exit 3", 3), ("kill -SEGV $$", "SIGSEGV"), ("kill -PIPE $$", "SIGPIPE")]
)
def test_a_program_that_fails_is_seen_from_outside(play: Any, end: str, seen: object) -> None:
    """Exit code and signal come from the process that forked it, and the others get their time to
    end.
    """
    lived = play(READY + f'[ "$RANKPROOF_RANK" = 0 ] || {end}\n')
    assert lived.ended(1) == seen
    finished = lived.findings["finished"]
    assert finished.failed_ranks == (1,)
    assert (
        finished.ranks[1].reason
        == f"it ended with {f'code {seen}' if isinstance(seen, int) else seen}"
    )


@pytest.mark.slow
def test_a_program_that_hangs_is_stopped_without_being_asked_for_stacks(play: Any) -> None:
    """At the deadline its state is noted, and SIGKILL is the only signal that reaches it, whatever
    it claims to be.
    """
    claim = 'echo \'{"event": "rank.begin"}\' >&3\n'
    lived = play(claim + READY + "exec sleep 600\n", deadline=1.0)
    assert lived.ended(0) == lived.ended(1) == "SIGKILL"
    assert lived.capture.stacks == {}
    assert len(lived.history.noted("rank.state", 0)) == 1
    sent = {seen.event.values["signal"] for seen in lived.history.served(None, "world.signalled")}
    assert sent == {"SIGKILL"}
    assert all(
        part.reason == "it was still running at the deadline"
        for part in lived.findings["finished"].ranks
    )


def test_a_program_that_never_gets_ready_holds_the_others_at_the_line(play: Any) -> None:
    """One that ends before it is ready lets the others go on, and fails itself."""
    lived = play('[ "$RANKPROOF_RANK" = 0 ] || exit 1\n' + READY)
    assert lived.ended(0) == 0
    assert lived.findings["finished"].failed_ranks == (1,)


@pytest.mark.slow
def test_what_a_program_leaves_behind_is_counted_and_ended(play: Any) -> None:
    """A background process of a program is a survivor."""
    assert play(READY + "sleep 600 >/dev/null 2>&1 3>&- 4<&- &\n").survivors == 2


def test_lines_that_are_no_events_fail_the_trial(play: Any) -> None:
    """What a program writes to descriptor 3 by mistake is evidence against it, what it prints is a
    log.
    """
    lived = play(READY + "echo printed; echo oops >&3\n")
    assert lived.findings["channel-is-whole"].failed_ranks == (0, 1)
    assert lived.capture.logs[0] == b"printed\n"


# Busy, as a clean-up is, for longer than a channel may be closed as a part of the end.
BUSY = r"""
now() { read -r seconds rest </proc/uptime; echo "${seconds%.*}"; }
begin=$(now)
until [ "$(($(now) - begin))" -ge 2 ]; do :; done
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("end", "deadline", "whole", "passed"),
    [
        (BUSY, 20.0, True, True),
        (BUSY + "exit 3\n", 20.0, True, False),
        (BUSY + "kill -9 $$\n", 20.0, False, False),
        ("sleep 600\n", 1.0, False, False),
    ],
)
def test_a_program_may_close_its_channel_long_before_it_ends(
    play: Any, end: str, deadline: float, whole: bool, passed: bool
) -> None:
    """Silence before it exits is not a failure of the channel, and its exit code is judged.

    Before a signal it is.
    """
    lived = play(READY + "exec 3>&-\n" + end, size=1, deadline=deadline)
    assert lived.history.noted("channel.closed", 0)
    assert lived.findings["channel-is-whole"].passed is whole
    assert lived.passed is passed


@pytest.mark.parametrize(("rights", "code"), [(0o755, 0), (0o644, 70)])
def test_a_script_of_the_folder_can_be_the_program(
    play: Any, tmp_path: Path, rights: int, code: int
) -> None:
    """The program itself may be a file of the arm.

    One that cannot be executed ends with its reason in the log.
    """
    (tmp_path / "code" / "own").write_text("#!/bin/sh\n" + READY)
    (tmp_path / "code" / "own").chmod(rights)
    lived = play("", program=("own",))
    assert lived.ended(0) == code
    assert (code == 0) or b"Permission denied" in lived.capture.logs[0]


def test_a_program_that_is_not_there_is_an_error_of_the_harness(play: Any) -> None:
    """No rank was started, so the trial is void and says what was looked for."""
    lived = play(READY, program=("no-such-program", "rank.sh"))
    assert "no-such-program is neither a file" in lived.void[0]


def test_what_a_rank_changes_in_its_folder_is_gone_with_its_world(play: Any) -> None:
    """The digest of the folder is taken before the first rank is executed, and every world has a
    copy of its own.
    """
    script = READY + 'echo "# changed" >>"$RANKPROOF_CODE/lib.sh"\n'
    first, second = play(script), play(script)
    folders = {
        lived.history.executed(rank).event.values["folder"]
        for lived in (first, second)
        for rank in (0, 1)
    }
    assert len(folders) == 1


def test_words_of_a_command_line(tmp_path: Path) -> None:
    """Files of the code become full paths, known names are filled in, all other braces stay as they
    are.
    """
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.awk").write_text("")
    (tmp_path / "own").write_text("")
    (tmp_path / "own").chmod(0o755)

    def words(*given: str, **arguments: Any) -> list[str]:
        return command(given, code=tmp_path, arguments=arguments, path="/usr/bin:/bin")[1:]

    assert words("sh", "-f", "sub/x.awk", "./own") == [
        "-f",
        f"{tmp_path}/sub/x.awk",
        f"{tmp_path}/own",
    ]
    assert words("sh", "{print}", "{a}", "n={n}", a="b c", n=[1]) == ["{print}", "b c", "n=[1]"]
    assert words("sh", "../x", "/etc/hostname", "sub", "gone") == [
        "../x",
        "/etc/hostname",
        "sub",
        "gone",
    ]
    assert command(["own"], code=tmp_path, arguments={}, path="")[0] == f"{tmp_path}/own"
    with pytest.raises(FileNotFoundError, match="neither a file"):
        command(["nothing-of-the-kind"], code=tmp_path, arguments={}, path="/usr/bin")
