"""Mistakes in a file: all of them at once, each at its place, each with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.scenario import Problem, ScenarioError, load_scenario

TEN = """\
schema: 1
id: Ten-Mistakes
titel: Ten mistakes in one file
question: Are all of them named?
needs: {memory: 2GB}
subject:
  entry: subject.warm_up
  candidate: {with: {loader: every-rank}}
  control:
    with: {loader: rank-0-only}
    must_fail: {check: tokenizer-redy, ranks: nonzro}
matrix:
  ranks: [2, 3, 4]
  backend: [gloo]
  exclude: [{backend: nccl}]
world: {deadline: 60}
seed: 20260103
checks:
  - {id: tokenizer-ready, kind: evnt, ranks: every, event: tokenizer.ready}
  - {id: all-finished, kind: exit, ranks: every, code: 0}
"""


def places(found: tuple[Problem, ...]) -> list[tuple[int, int, str, str | None]]:
    """Return line, column, key and suggestion of problems."""
    return [(problem.line, problem.column, problem.key, problem.suggestion) for problem in found]


def test_ten_mistakes_are_ten_problems(problems: Any) -> None:
    """A file with ten different mistakes reports all ten at once, with line, column and what was
    meant.
    """
    assert places(problems(TEN)) == [
        (2, 5, "id", None),
        (3, 1, "titel", "title"),
        (5, 17, "needs.memory", "2GiB"),
        (7, 10, "subject.entry", None),
        (11, 24, "subject.control.must_fail.check", "tokenizer-ready"),
        (11, 47, "subject.control.must_fail.ranks", "nonzero"),
        (15, 23, "matrix.exclude[0].backend", None),
        (16, 19, "world.deadline", "60s"),
        (17, 7, "seed", '"20260103"'),
        (19, 33, "checks[0].kind", "event"),
    ]


def test_a_message_says_where_what_and_what_to_do(problems: Any) -> None:
    """A problem reads as one line: place, key, what is allowed, what was found, what was meant."""
    lines = [str(problem) for problem in problems(TEN)]
    assert lines[7] == (
        "s.yaml:16:19: world.deadline: must have a unit (ms, s, min, h or d), for example 60s; found"
        ' 60; did you mean "60s"?'
    )
    assert (
        lines[9]
        == "s.yaml:19:33: checks[0].kind: must be one of event, agree, equal, close, distribution,"
        " at-most, at-least, exit, no-survivors, served, within, progress, detected-within,"
        " survivors-end, host-lost, environment-agrees, requests, ledger-agrees,"
        " collective-correct, transfers-intact, equivalent, influence or shards-cover; found"
        ' "evnt"; did you mean "event"?'
    )


def test_duplicate_keys_do_not_hide_other_mistakes(problems: Any) -> None:
    """Problems of the YAML and problems of the content come in one list, ordered by position."""
    found = problems(TEN.replace("world: {", "world: {start: wrm, start: warm, "))
    assert (16, 9 + 7, "world.start", "warm") in places(found)
    assert (16, 21, "world.start", None) in places(found)
    assert len(found) == 12
    assert [(p.line, p.column) for p in found] == sorted((p.line, p.column) for p in found)


def test_an_alias_is_one_problem(good: str, problems: Any) -> None:
    """What an alias stood for is unknown, so nothing else is said about it."""
    assert [p.key for p in problems(good.replace("deadline: 60s", "deadline: *d"))] == [
        "world.deadline"
    ]


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ("schema: 1", "schema: 2", "schema", "must be 1"),
        ("schema: 1", "schema: true", "schema", "must be 1"),
        ("schema: 1", 'schema: "1"', "schema", "must be 1"),
        ("schema: 1\n", "", "schema", "missing"),
        ("role: claim", "role: claims", "role", "claim, self-test or upstream"),
        ("role: claim", "role: self-test", "expects", "missing"),
        ("role: claim", "role: claim\nexpects: PASS", "expects", "a claim is expected to PASS"),
        ("role: claim", "role: null", "role", "must be claim"),
        ("tags: [release-gate]", "tags: release-gate", "tags", "must be a list"),
        ("tags: [release-gate]", "tags: [Release]", "tags[0]", "lower-case"),
        ("title: Every", 'title: "Every\\n', "", "not valid YAML"),
        ("title: Every rank", 'title: "a\\nb" #', "title", "one line"),
        ("title: Every", "title: " + "E" * 120, "title", "at most 120"),
        ("{memory: 2GiB}", "{memory: 2048}", "needs.memory", "unit"),
        ("{memory: 2GiB}", "{os: [linux, linux]}", "needs.os[1]", "twice"),
        ("{memory: 2GiB}", "{cores: 0}", "needs.cores", "at least 1"),
        ("{memory: 2GiB}", "{cores: 017}", "needs.cores", "whole number"),
        ("{memory: 2GiB}", "{nix: yes}", "needs.nix", "true or false"),
        ("{memory: 2GiB}", "[2GiB]", "needs", "mapping"),
        ("entry: subject:warm_up", "path: .", "subject", "set entry, program or use"),
        (
            "entry: subject:warm_up",
            "entry: a:b\n  use: torch",
            "subject.use",
            "cannot be combined with entry",
        ),
        ("entry: subject:warm_up", "entry: a:b\n  path: /x", "subject.path", "relative"),
        (
            "entry: subject:warm_up",
            "use: torch-pipelin",
            "subject.use",
            "is not a ready-made subject",
        ),
        ("entry: subject:warm_up", "program: [sh]", "matrix.backend[0]", "joins no group"),
        ("entry: subject:warm_up", "program: []", "subject.program", "at least one"),
        ("{with: {loader: every-rank}}", "{rev: -x}", "subject.candidate.rev", "hyphen"),
        (
            "{with: {loader: every-rank}}",
            "{repo: 'a:b'}",
            "subject.candidate.repo",
            "Rankproof does not fetch repositories",
        ),
        ("{with: {loader: every-rank}}", "{repo: /x}", "subject.candidate.repo", "other machines"),
        ("{with: {loader: every-rank}}", "{file: ../x.py}", "subject.candidate.file", "'..'"),
        (
            "{with: {loader: every-rank}}",
            "{with: {a b: 1}}",
            "subject.candidate.with.a b",
            "letters",
        ),
        (
            "source: assert tokenizer",
            "sourc: x",
            "subject.control.must_fail.sourc",
            "not a known key",
        ),
        ("share: every", 'share: ">=0%"', "subject.control.must_fail.share", "more than 0%"),
        (
            "ranks: nonzero",
            "ranks: [1, 2]",
            "subject.control.must_fail.ranks[1]",
            "not a rank of the smallest world",
        ),
        ("ranks: [2, 3, 4]", "ranks: [1, 2]", "subject.control.must_fail.ranks", "selects no rank"),
        ("ranks: [2, 3, 4]", "ranks: [2, 65]", "matrix.ranks[1]", "at most 64"),
        ("ranks: [2, 3, 4]", "ranks: []", "matrix.ranks", "at least one"),
        ("ranks: [2, 3, 4]", "ranks: [2, 2]", "matrix.ranks[1]", "twice"),
        ("ranks: [2, 3, 4]", "rank: [2]", "matrix.ranks", "missing"),
        ("ranks: [2, 3, 4]", "ranks: [4]\n  world: [2]", "matrix.world", ""),
        ("ranks: [2, 3, 4]", "ranks: [4]\n  backends: [2]", "matrix.backends", "too similar"),
        (
            "ranks: [2, 3, 4]",
            "ranks: [4]\n  Bad: [2]",
            "matrix.Bad",
            "not a valid name for an axis",
        ),
        ("ranks: [2, 3, 4]", "ranks: [4]\n  x: [[2]]", "matrix.x[0]", "a string, a number"),
        ("ranks: [2, 3, 4]", "ranks: [4]\n  x: [a, a]", "matrix.x[1]", "twice"),
        (
            "ranks: [2, 3, 4]",
            "ranks: [4]\n  loader: [a]",
            "subject.candidate.with.loader",
            "also an axis of the matrix",
        ),
        (
            "[gloo, mlx-ring]",
            "[glo, mlx-ring]",
            "matrix.backend[0]",
            "gloo, mlx-ring, nccl or none",
        ),
        ("ranks: 4}]", "rank: 4}]", "matrix.exclude[0].rank", "not an axis"),
        ("ranks: 4}]", "ranks: 5}]", "matrix.exclude[0].ranks", "not a value of the axis"),
        ("ranks: 4}]", 'ranks: "4"}]', "matrix.exclude[0].ranks", "not a value of the axis"),
        (
            "ranks: 4}]",
            "ranks: 4}, {backend: gloo}, {backend: mlx-ring}]",
            "matrix.exclude",
            "leaves no cell",
        ),
        ("deadline: 60s", "deadline: 2h", "world.deadline", "at most 1h"),
        (
            "ranks: nonzero",
            "ranks: nonzero\n      ranks_by: {rank: {'2': [1]}}",
            "subject.control.must_fail.ranks_by.rank",
            "is not an axis of the matrix",
        ),
        (
            "ranks: nonzero",
            "ranks: nonzero\n      ranks_by: {ranks: {'7': [1]}}",
            "subject.control.must_fail.ranks_by.ranks.7",
            "is not a value of the axis ranks",
        ),
        (
            "ranks: nonzero",
            "ranks: nonzero\n      ranks_by: {ranks: {'2': [5]}}",
            "subject.control.must_fail.ranks_by.ranks.2[0]",
            "is not a rank of the smallest world",
        ),
        (
            "  control:  ",
            "  reference: {deadline: 2h}\n  control:  ",
            "subject.reference.deadline",
            "at most 1h",
        ),
        (
            "  control:  ",
            "  reference: {deadline: 0s}\n  control:  ",
            "subject.reference.deadline",
            "more than 0s",
        ),
        ("deadline: 60s", "deadline: 1s", "world.after_failure", "shorter"),
        ("deadline: 60s", "deadline: 0s", "world.deadline", "more than 0s"),
        ('{OMP_NUM_THREADS: "1"}', "{OMP_NUM_THREADS: 1}", "world.env.OMP_NUM_THREADS", "quotes"),
        ('{OMP_NUM_THREADS: "1"}', "{A-B: x}", "world.env.A-B", "environment variable"),
        (
            '{OMP_NUM_THREADS: "1"}',
            "{RANKPROOF_EVENTS: x}",
            "world.env.RANKPROOF_EVENTS",
            "reserved",
        ),
        ('{OMP_NUM_THREADS: "1"}', '{A: "x\\0y"}', "world.env.A", "NUL"),
        ('seed: "20260103"', "seed: 20260103", "seed", "quotes"),
        ('seed: "20260103"', "seed: 18446744073709551615", "seed", "quote it"),
        ('seed: "20260103"', 'seed: ""', "seed", "empty"),
        ("candidate: 59", "candidate: 0", "trials.candidate", "at least 1"),
        ("candidate: 59", "candidate: 100001", "trials.candidate", "at most 100000"),
        ("candidate: 59", "candidate: 59.0", "trials.candidate", "whole number"),
        ("candidate: 59", 'candidate: "59"', "trials.candidate", "whole number"),
        (
            "failure_rate_below: 5%",
            "failure_rate_below: 0.05",
            "trials.accept.failure_rate_below",
            "unit",
        ),
        ("id: same-identity", "id: tokenizer-ready", "checks[1].id", "is used twice"),
        ("kind: agree, ", "", "checks[1].kind", "has no kind"),
        (
            "kind: agree",
            "kind: agree, against: 2",
            "checks[1].against",
            "not a rank of the smallest world",
        ),
        ("kind: agree", "kind: agree, empty: forbidden", "checks[1].empty", "must be allowed"),
        ("kind: agree", "knd: agree", "checks[1].knd", "has no kind"),
        ("kind: agree", "kind: 3", "checks[1].kind", "one of event"),
        ("value: decode.text", "value: decode", "checks[2].value", "joined by a dot"),
        ("event: tokenizer.ready}", "event: 5}", "checks[0].event", "must be a string"),
        ("code: 0", "code: 256", "checks[3].code", "at most 255"),
        (
            "kind: exit,  ranks: every",
            "kind: exit,  ranks: [0, 2]",
            "checks[3].ranks[1]",
            "not a rank of the smallest",
        ),
        (
            "check: tokenizer-ready",
            "check: all",
            "subject.control.must_fail.check",
            "id of a check",
        ),
        (
            "kind: event, ranks: every",
            "kind: event, ranks: [0]",
            "subject.control.must_fail.ranks",
            "does not cover",
        ),
        (
            "kind: no-survivors}",
            "kind: within, ranks: every, event: a, limit: 2min}",
            "checks[4].limit",
            "deadline",
        ),
        ("subject:\n", "inputs: {a: {}}\nsubject:\n", "inputs.a", "path, hub, layouts or made"),
        ("subject:\n", "inputs: {a: {made: lama}}\nsubject:\n", "inputs.a.made", "known: llama"),
        (
            "subject:\n",
            "inputs: {a: {path: x, hub: m@v}}\nsubject:\n",
            "inputs.a.hub",
            "cannot be combined with path",
        ),
        ("subject:\n", "inputs: {a: {path: /x}}\nsubject:\n", "inputs.a.path", "relative"),
        ("subject:\n", "inputs: {a: {hub: org/model}}\nsubject:\n", "inputs.a.hub", "revision"),
        ("subject:\n", "inputs: {A: {path: x}}\nsubject:\n", "inputs.A", "lower-case"),
        ("subject:\n", "inputs: {a: {path: x, sha256: 9f2c}}\nsubject:\n", "inputs.a.sha256", "64"),
    ],
)
def test_each_mistake_is_named_at_its_key(
    old: str, new: str, key: str, words: str, good: str, problems: Any
) -> None:
    """One change that makes the example wrong gives a problem with that key, on the line of the
    change.
    """
    assert good.count(old) >= 1
    found = problems(good.replace(old, new, 1))
    if not words:
        assert found == ()
        return
    hits = [problem for problem in found if problem.key == key and words in problem.message]
    assert len(hits) == 1, [str(problem) for problem in found]


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "text", "---\n", "null", "5"])
def test_a_document_that_is_no_mapping_is_one_problem(text: str, problems: Any) -> None:
    """An empty file, a list or a text is refused with what a scenario starts with."""
    (problem,) = problems(text)
    assert "schema: 1" in problem.message


def test_an_empty_mapping_lacks_what_is_required(problems: Any) -> None:
    """All required keys are named."""
    keys = {problem.key for problem in problems("{}")}
    assert keys == {"schema", "id", "title", "question", "subject", "matrix", "checks"}


def test_found_values_are_cut_and_escaped() -> None:
    """A message never carries control characters, bidi marks or more than sixty characters of a
    value.
    """
    problem = Problem(
        "s.yaml", 1, 1, "k\x1b[2J", "\x1b]0;x\x07\u202e" + "a" * 500, "is wrong", "\x9b"
    )
    text = str(problem)
    assert text.isprintable()
    assert "\\x1b]0;x\\x07\\u202e" in text
    assert len(text) < 200


def test_names_of_the_file_in_messages_are_escaped_too(good: str, problems: Any) -> None:
    """A message that lists ids of the file carries no escape sequence of theirs."""
    found = problems(good.replace("id: tokenizer-ready", 'id: "\\e[31mx"'))
    assert len(found) == 2
    assert all(str(problem).isprintable() for problem in found)


def test_joined_emoji_and_directed_text_are_clean(good: str, problems: Any) -> None:
    """Emoji with joiners, Chinese and right-to-left text with marks are fine in a title."""
    title = "\U0001f469\u200d\U0001f4bb 中文 \u200fעברית"
    assert problems(good.replace("title: Every", f"title: {title}")) == ()


def test_a_file_full_of_mistakes_has_a_bounded_report(problems: Any) -> None:
    """After a hundred problems the rest is counted."""
    found = problems(TEN + "".join(f"unknown-{number}: 1\n" for number in range(1000)))
    assert len(found) <= 101


def test_the_error_shows_every_problem(problems: Any) -> None:
    """The text of the exception is the list of problems, one per line."""
    found = problems(TEN)
    assert str(ScenarioError(found)).splitlines() == [str(problem) for problem in found]


def test_checks_that_are_not_a_list_are_one_problem(problems: Any) -> None:
    """Rules that count the checks have nothing to count."""
    for value in ("true", "7", "{}", '"x"'):
        found = [
            str(problem) for problem in problems(f"{TEN[: TEN.index('checks:')]}checks: {value}\n")
        ]
        assert any(".checks" in one or " checks" in one for one in found), found


OBSERVED = """\
schema: 1
id: in-step
title: Ranks are in step
question: Do all ranks make the same calls?
role: upstream
observe: [collectives]
subject: {entry: "subject:steps"}
matrix: {ranks: [2], backend: [gloo]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 59}
checks:
  - {id: in-step, kind: ledger-agrees, ranks: every}
  - {id: ended, kind: exit, ranks: every, code: 0}
"""


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        (
            "observe: [collectives]",
            "tags: [a]",
            "checks[0].kind",
            "needs the ranks' ledgers; add observe: [collectives]",
        ),
        ("observe: [collectives]", "observe: [colectives]", "observe[0]", "must be collectives"),
        (
            "observe: [collectives]",
            "observe: [digests]",
            "observe",
            "which need a ledger; add collectives",
        ),
        (
            "[collectives]",
            "[collectives, digests, eager-digests]",
            "observe",
            "has both digests and eager-digests",
        ),
        (
            "ledger-agrees",
            "transfers-intact",
            "checks[0].kind",
            "add observe: [collectives, digests]",
        ),
        ("[gloo]", "[gloo, nccl]", "matrix.backend[1]", "was not tested on GPUs"),
        (
            '{entry: "subject:steps"}',
            "{program: [sh, rank.sh]}",
            "observe",
            "works only inside Python ranks",
        ),
        (
            "ledger-agrees, ranks: every",
            "ledger-agrees, ranks: [1]",
            "checks[0].ranks",
            "covers only one rank",
        ),
        ("ranks: [2]", "ranks: [1]", "checks[0].ranks", "covers only one rank"),
    ],
)
def test_what_cannot_be_observed_is_refused_with_the_reason(
    problems: Any, old: str, new: str, key: str, words: str
) -> None:
    """A check without ledgers, programs, a backend that was not tried, a rank that agrees with
    itself.
    """
    assert problems(OBSERVED) == ()
    assert not [
        one
        for one in problems(OBSERVED.replace("ranks: [2]", "ranks: [1, 2]"))
        if "checks" in one.key
    ]
    found = [str(problem) for problem in problems(OBSERVED.replace(old, new)) if problem.key == key]
    assert any(words in text for text in found), problems(OBSERVED.replace(old, new))


def test_digests_of_a_lazy_library_are_asked_for_by_name(problems: Any) -> None:
    """With MLX among the backends `digests` alone is refused, and `eager-digests` is what both are
    given by.
    """
    both = OBSERVED.replace("[gloo]", "[gloo, mlx-ring]").replace(
        "ledger-agrees", "transfers-intact"
    )
    (problem,) = problems(both.replace("[collectives]", "[collectives, digests]"))
    assert "needs eager-digests, because MLX runs a call when" in problem.message
    assert problems(both.replace("[collectives]", "[collectives, eager-digests]")) == ()


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ("share: every", "share: 0.3", "subject.control.must_fail.share", 'did you mean ">=30%"'),
        ("share: every", "share: 30", "subject.control.must_fail.share", 'did you mean ">=30%"'),
        (
            "failure_rate_below: 5%",
            "failure_rate_below: 0.05",
            "trials.accept.failure_rate_below",
            'did you mean "5%"',
        ),
        ("confidence: 95%", "confidence: 95", "trials.accept.confidence", 'did you mean "95%"'),
        (
            "{memory: 2GiB}",
            "[2GiB]",
            "needs",
            "must be a mapping of keys to values, like {os: …, cores: …}",
        ),
    ],
)
def test_a_hint_is_what_was_meant(
    good: str, problems: Any, old: str, new: str, key: str, said: str
) -> None:
    """A number without a unit and a list for a mapping are answered with what would be right."""
    found = [str(problem) for problem in problems(good.replace(old, new, 1)) if problem.key == key]
    assert any(said in text for text in found), problems(good.replace(old, new, 1))


@pytest.mark.parametrize(
    ("hosts", "said"),
    [("hosts: 5,", "leaves host 4"), ("hosts: 3, placement: [0, 0, 1, 1],", "leaves host 2")],
)
def test_a_host_without_a_rank_is_noted(good: str, tmp_path: Path, hosts: str, said: str) -> None:
    """A note and no error: whoever narrows a run to fewer ranks has such hosts on purpose."""
    path = tmp_path / "s.yaml"
    path.write_text(good.replace("world: {start: warm,", f"world: {{start: warm, {hosts}", 1))
    found = [str(note) for note in load_scenario(path).notes]
    assert any("without ranks" in text and said in text for text in found), found


def test_a_place_without_keys_says_so(good: str, problems: Any) -> None:
    """No list of allowed keys is shown where there is none."""
    found = [
        str(one)
        for one in problems(good.replace("kind: no-survivors}", "kind: no-survivors, x: {y: 1}}"))
    ]
    assert not [text for text in found if "allowed: ;" in text or text.endswith("allowed: ")]
