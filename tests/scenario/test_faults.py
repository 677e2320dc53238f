"""Faults that could never land are told before a run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.scenario.matrix import hosts_of


def with_faults(good: str, *faults: str) -> str:
    """The example with these faults instead of its own."""
    without = re.sub(r"(?m)^faults:.*\n(  - .*\n)+", "", good)
    return without + "faults:\n" + "".join(f"  - {{{fault}}}\n" for fault in faults)


@pytest.mark.parametrize(
    "fault",
    [
        "id: f, kind: pause, ranks: [1], at: tokenizer.load.begin, for: 200ms",
        "id: f, kind: kill, ranks: nonzero, at: rank.begin, signal: TERM",
        "id: f, kind: delay, ranks: every, at: backend.ready, for: 1s",
        "id: f, kind: env, ranks: [0], set: {A: b}",
        "id: f, kind: start-late, ranks: nonzero, for: 1s",
        "id: f, kind: raise, ranks: [1], at: a.b, error: TimeoutError, message: too late",
        "id: f, kind: exit, ranks: [1], at: a.b, code: 3",
        "id: f, kind: starve, ranks: [1], at: a.b, for: 2s, burners: 2",
        "id: f, kind: open-files, ranks: [1], at: a.b, to: 0",
        "id: f, kind: file-size, ranks: [1], at: a.b, to: 64KiB, for: 1s",
        "id: f, kind: address-space, ranks: [1], at: a.b, more: 1MiB",
        "id: f, kind: monotonic-skew, ranks: [1], by: 5min",
        "id: f, kind: memory, ranks: [1], at: a.b, more: 1MiB",
        "id: f, kind: start-order, ranks: every, order: rank-0-last, gap: 10s",
        "id: f, kind: read-only, ranks: [1], at: a.b, folder: home/.cache",
        "id: f, kind: no-space, ranks: [1], at: a.b, folder: shared, left: 4KiB",
        "id: f, kind: permission-denied, ranks: [1], at: a.b, folder: temporary",
        "id: f, kind: truncated, ranks: [1], at: a.b, file: shared/a/b.bin",
        "id: f, kind: replaced, ranks: [1], at: a.b, file: work/b.bin, offset: 4KiB",
        "id: f, kind: clock-skew, ranks: [1], at: subject.loaded, by: 5min, way: back",
        "id: f, kind: torch-settings, ranks: [1], at: subject.loaded, dtype: bfloat16",
        "id: f, kind: perturb, ranks: [1], value: a.b, one: token",
        "id: f, kind: perturb, ranks: [1], artefact: logits, at: a.b, relative: 1e-3",
    ],
)
def test_every_kind_is_in_this_version(good: str, problems: Any, fault: str) -> None:
    """A fault of every kind is read without a problem."""
    assert problems(with_faults(good, fault)) == ()


CALLS = (
    *(
        "skip-call",
        "repeat-call",
        "reorder-calls",
        "stale-payload",
        "swapped-halves",
        "other-shape",
        "other-dtype",
    ),
    *("lost-contribution", "doubled-contribution"),
)


@pytest.mark.parametrize("kind", CALLS)
def test_every_fault_of_a_call_takes_a_ledger(good: str, problems: Any, kind: str) -> None:
    """Such a fault is read where calls are observed.

    Without that, or for no such operation, lint says what to do.
    """
    fault = f"id: f, ranks: [1], kind: {kind}, operation: all_reduce, line: 'subject.py:7', nth: 3"
    good = good.replace("[gloo, mlx-ring]", "[gloo]").replace(
        "  exclude: [{backend: mlx-ring, ranks: 4}]\n", ""
    )
    observed = good.replace("world: {", "observe: [collectives]\nworld: {")
    assert problems(with_faults(observed, fault)) == ()
    (problem,) = problems(with_faults(good, fault))
    assert (problem.key, "add observe: [collectives]" in problem.message) == (
        "faults[0].kind",
        True,
    )
    (problem,) = problems(with_faults(observed, fault.replace("all_reduce", "all_reduces")))
    assert (problem.key, problem.suggestion) == ("faults[0].operation", "all_reduce")


def test_calls_that_run_later_do_not_change_places(good: str, problems: Any) -> None:
    """MLX runs calls in an order of its own: the fault is refused there, with the reason."""
    observed = good.replace("world: {", "observe: [collectives]\nworld: {")
    (problem,) = problems(with_faults(observed, "id: f, ranks: [1], kind: reorder-calls"))
    assert problem.key == "faults[0].kind"
    assert (
        "cannot act on calls of mlx-ring, because MLX runs a call when its result is evaluated"
        in problem.message
    )


LINKS = (
    "kind: latency, by: 20ms, jitter: 5ms",
    "kind: bandwidth, per_second: 1MiB",
    "kind: loss, share: 1%",
    "kind: duplicate, share: 99%, way: in",
    "kind: reorder, share: 5%, by: 1ms, for: 2s",
    "kind: flip, message: 3, byte: 17, mask: 1, way: out",
    "kind: flip-frame, to: [0, 2]",
    "kind: partition, for: 1s",
    "kind: half-open, way: out",
    "kind: reset",
)


@pytest.mark.parametrize("link", LINKS)
def test_every_link_fault_takes_test_hosts(good: str, problems: Any, link: str) -> None:
    """A link fault of every kind is read where there are hosts, and without them says what to
    add.
    """
    fault = f"id: f, ranks: [1], at: tokenizer.load.begin, {link}"
    hosted = good.replace("world: {", "world: {hosts: 3, ")
    assert problems(with_faults(hosted, fault)) == ()
    (problem,) = problems(with_faults(good, fault))
    assert (problem.key, "add world: {hosts: 2}" in problem.message) == ("faults[0].kind", True)
    assert problems(with_faults(hosted, fault, fault.replace("id: f", "id: g"))) == ()


@pytest.mark.parametrize(
    ("link", "key", "words"),
    [
        ("kind: latency, by: 0s", "by", "more than 0"),
        ("kind: bandwidth, per_second: 0B", "per_second", "at least 1"),
        ("kind: reset, to: [3]", "to[0]", "is not a host; the hosts are 0 to 2"),
        ("kind: reset, to: [1]", "to", "has no link to host 1 for this rank in a world of 2"),
        ("kind: reset, to: []", "to", "is empty"),
        ("kind: partition, way: out", "way", "both"),
        ("kind: half-open, way: both", "way", "out"),
        ("kind: flip, mask: 0", "mask", "1"),
        ("kind: flip, byte: 4096", "byte", "4096"),
    ],
)
def test_a_link_fault_that_could_do_nothing_is_told(
    good: str, problems: Any, link: str, key: str, words: str
) -> None:
    """No link, no time, no bit: said at its place."""
    hosted = good.replace("world: {", "world: {hosts: 3, ")
    (problem,) = problems(with_faults(hosted, f"id: f, ranks: [1], at: a, {link}"))
    assert problem.key == f"faults[0].{key}"
    assert words in problem.message


@pytest.mark.parametrize(
    ("world", "key", "words"),
    [
        ("hosts: 0", "world.hosts", "1"),
        ("hosts: 65", "world.hosts", "64"),
        ("placement: blocks", "world.placement", "the scenario has none; add hosts"),
        ("hosts: 2, placement: block", "world.placement", "must be round-robin, blocks, or a list"),
        (
            "hosts: 2, placement: [0, 1, 2, 0]",
            "world.placement",
            "contains host 2, but the hosts are numbered 0 to 1",
        ),
        (
            "hosts: 2, placement: [0, 1, 1]",
            "world.placement",
            "has no host for rank 3 in a world of 4",
        ),
        ("hosts: 2, placement: [0, one]", "world.placement[1]", "must be a host number"),
    ],
)
def test_a_rank_without_a_host_is_told(
    good: str, problems: Any, world: str, key: str, words: str
) -> None:
    """Hosts that are not there, and ranks that have none: said at their place."""
    (problem,) = problems(good.replace("world: {", f"world: {{{world}, "))
    assert problem.key == key
    assert words in problem.message


def test_ranks_are_placed_as_it_is_written() -> None:
    """Round and round, in blocks as equal as can be, or one by one."""
    assert hosts_of("round-robin", hosts=3, size=5) == (0, 1, 2, 0, 1)
    assert hosts_of("blocks", hosts=3, size=5) == (0, 0, 1, 1, 2)
    assert hosts_of("blocks", hosts=3, size=2) == (0, 1)
    assert hosts_of((1, 0, 1), hosts=2, size=2) == (1, 0)


@pytest.mark.parametrize(
    ("faults", "key", "words"),
    [
        (
            ["id: f, kind: kill, ranks: [1], at: Tokenizer.Load"],
            "at",
            "is not a valid name of an event",
        ),
        (
            ["id: f, kind: kill, ranks: [1], at: a, arm: control"],
            "arm",
            "a claim's control must fail because of its code",
        ),
        (
            ["id: f, kind: kill, ranks: [1], at: rank.exited"],
            "at",
            "is emitted by the harness, not by a rank",
        ),
        (
            ["id: f, kind: kill, ranks: [1], at: world.start"],
            "at",
            "rank.begin, which comes before the rank joins",
        ),
        (
            ["id: f, kind: kill, ranks: [7], at: a"],
            "ranks[0]",
            "is not a rank of the smallest world",
        ),
        (["id: f, kind: pause, ranks: [1], at: a, for: 2min"], "for", "less than world.deadline"),
        (["id: f, kind: pause, ranks: [1], at: a"], "for", "is missing"),
        (
            ["id: f, kind: pause, ranks: [1], at: a, for: 1s, signal: KILL"],
            "signal",
            "is not a known key",
        ),
        (
            ["id: f, kind: raise, ranks: [1], at: a, error: NoSuchError"],
            "error",
            "must be a built-in exception",
        ),
        (
            ["id: f, kind: raise, ranks: [1], at: a, error: SystemExit"],
            "error",
            "must be a built-in exception",
        ),
        (
            ["id: f, kind: raise, ranks: [1], at: a, error: UnicodeDecodeError"],
            "error",
            "takes a message",
        ),
        (
            ["id: f, kind: raise, ranks: [1], at: a, message: " + "x" * 1001],
            "message",
            "at most 1000 characters",
        ),
        (
            ["id: f, kind: start-late, ranks: every, for: 1s"],
            "ranks",
            "makes every rank late",
        ),
        (
            [
                "id: f, kind: start-late, ranks: [0], for: 1s",
                "id: g, kind: start-late, ranks: nonzero, for: 1s",
            ],
            "ranks",
            "makes every rank late",
        ),
        (
            [
                "id: f, kind: kill, ranks: [1], at: a",
                "id: g, kind: pause, ranks: every, at: a, for: 1s",
            ],
            "at",
            "conflicts with the fault f",
        ),
        (
            [
                "id: f, kind: env, ranks: [1], set: {A: b}",
                "id: g, kind: env, ranks: [1], set: {A: c}",
            ],
            "set",
            "sets the same variable",
        ),
        (
            ["id: f, kind: kill, ranks: [0], at: a", "id: f, kind: kill, ranks: [1], at: a"],
            "id",
            "is used twice",
        ),
        (
            [
                "id: f, kind: perturb, ranks: [1], value: a.b, ulp: 1",
                "id: g, kind: perturb, ranks: every, value: a.b, ulp: 2",
            ],
            "value",
            "changes the same",
        ),
        (
            ["id: f, kind: perturb, ranks: [1], value: a.b, ulp: 1, one: token"],
            "one",
            "cannot be combined with ulp",
        ),
        (["id: f, kind: env, ranks: [1], set: {RANKPROOF_X: a}"], "set.RANKPROOF_X", "is reserved"),
        (["id: f, kind: starve, ranks: [1], at: a, for: 1s, burners: 1"], "burners", "at least 2"),
        (["id: f, kind: starve, ranks: [1], at: a"], "for", "is missing"),
        (
            ["id: f, kind: open-files, ranks: [1], at: a, to: 0, for: 2min"],
            "for",
            "less than world.deadline",
        ),
        (["id: f, kind: start-order, ranks: [0, 1], gap: 1s"], "ranks", 'must be "every"'),
        (["id: f, kind: start-order, ranks: every, gap: 30s"], "gap", "before world.deadline"),
        (
            ["id: f, kind: read-only, ranks: [1], at: a, folder: /tmp"],
            "folder",
            "must be shared, home, temporary",
        ),
        (
            ["id: f, kind: read-only, ranks: [1], at: a, folder: home/../x"],
            "folder",
            "must be shared, home, temporary",
        ),
        (
            ["id: f, kind: read-only, ranks: [1], at: a, folder: inputs/none"],
            "folder",
            "is not an input",
        ),
        (
            ["id: f, kind: no-space, ranks: [1], at: a, folder: home, left: 1KiB"],
            "left",
            "at least 4096B",
        ),
        (
            ["id: f, kind: permission-denied, ranks: [1], at: a, folder: inputs/tokenizer"],
            "folder",
            "your own",
        ),
        (
            ["id: f, kind: truncated, ranks: [1], at: a, file: inputs/tokenizer/a"],
            "file",
            "your own",
        ),
        (
            ["id: f, kind: replaced, ranks: [1], at: a, file: inputs/tokenizer/a"],
            "file",
            "your own",
        ),
    ],
)
def test_a_fault_that_could_not_land_is_an_error(
    good: str, problems: Any, faults: list[str], key: str, words: str
) -> None:
    """Each mistake is named at its key, and it is the only one."""
    found = problems(with_faults(good, *faults))
    assert len(found) == 1, found
    assert found[0].key == f"faults[{len(faults) - 1}].{key}"
    assert words in found[0].message


def test_faults_on_other_ranks_or_at_other_events_do_not_meet(good: str, problems: Any) -> None:
    """The same event on two ranks, and two events on one, are no conflict."""
    text = with_faults(
        good,
        "id: f, kind: kill, ranks: [0], at: a",
        "id: g, kind: pause, ranks: [1], at: a, for: 1s",
        "id: h, kind: pause, ranks: [1], at: b, for: 1s",
    )
    assert problems(text) == ()


def test_two_faults_of_the_hub_with_one_id_are_a_mistake_of_the_file(
    good: str, problems: Any
) -> None:
    """Rules of the hub never meet, and two with one id are refused like any two faults, at the
    second one's id.
    """
    hub = "\ninputs: {files: {layouts: [gpt2]}}\nhub: {serve: files}\n"
    fault = "kind: hub, ranks: [1], answer: {kind: reset}"
    assert problems(with_faults(good, f"id: f, {fault}", f"id: g, {fault}") + hub) == ()
    (found,) = problems(with_faults(good, f"id: f, {fault}", f"id: f, {fault}") + hub)
    assert (found.key, found.kind) == ("faults[1].id", "error")
    assert "is used twice" in found.message


def test_a_program_is_struck_at_an_event_of_its_own(good: str, problems: Any) -> None:
    """What the runtime of a rank of Python tells, no program does: a fault there could never
    land.
    """
    text = good.replace("entry: subject:warm_up", "program: [sh]").replace(
        "backend: [gloo, mlx-ring]", "backend: [none]"
    )
    at = [
        [
            one.message
            for one in problems(with_faults(text, f"id: f, kind: kill, ranks: [1], at: {event}"))
            if one.key == "faults[0].at"
        ]
        for event in ("ready", "rank.begin")
    ]
    assert at[0] == []
    assert "but this subject is a program" in at[1][0]
