"""What engines do with requests: whose answer each gets, where it ends, which ids come to the
model.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from harness.engines.models.recall import prompt_of, value_of
from harness.engines.models.vocabulary import BEGIN, END, tokenizer_files
from harness.scenario import Scenario, ScenarioError, load_scenario, parse_scenario, scenario_files
from tests.kit.commands import ROOT, Ran

FOLDERS = ("chunk-boundary-prefill", "kv-isolation", "prompt-ids", "stop-and-finish")


def subject_of(folder: str) -> ModuleType:
    """A scenario's own code."""
    path = ROOT / "scenarios" / folder / "subject.py"
    spec = importlib.util.spec_from_file_location(folder.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the module that they are in
    spec.loader.exec_module(module)
    return module


def test_they_run_on_demand_over_two_and_three_ranks() -> None:
    """All stay out of a run of everything.

    One is a finding about a library, and holds whole models.
    """
    found = {
        one.id: one
        for folder in FOLDERS
        for one in map(scenario_of, scenario_files(ROOT / "scenarios" / folder))
    }
    assert len(found) == 7
    assert {one.tags for one in found.values()} == {("on-demand",)}
    roles = {name for name, one in found.items() if one.role == "upstream"}
    assert roles == {"stop-and-finish-in-parts-of-tokens"}
    for name in found.keys() - roles:
        assert found[name].matrix.ranks == (2, 3), name
        assert "nobody-has-all" in {check.id for check in found[name].checks}, name


def scenario_of(file: Path) -> Scenario:
    return load_scenario(file).scenario


def test_requests_ask_what_the_recall_model_was_trained_on() -> None:
    """Prompts and answers are the table's, no two keys have one answer, and every situation has
    what it needs.
    """
    subject = subject_of("kv-isolation")
    for situation, rounds in subject.SITUATIONS.items():
        kept = subject.kept(situation)
        for request in kept:
            assert request.prompt[-4:] == prompt_of(request.key)[-4:]
            assert (request.prompt[0], len(request.prompt)) == (BEGIN, 5 + request.filler)
            assert request.answer == value_of(request.key)[: request.tokens]
        assert len({tuple(request.answer) for request in kept}) == len(
            {request.key for request in kept}
        )
        assert any(request.cancelled for requests in rounds for request in requests) == (
            situation == "cancel"
        )


@pytest.mark.parametrize(
    ("ids", "eos", "stops", "limit", "end"),
    [
        ([40, 41, 42], {END}, [], 3, (3, "length")),
        ([40, END, 42], {END}, [], 3, (2, "stop")),
        ([40, 41, 42], {41, 42}, [], 3, (2, "stop")),
        ([40, 41, 42], {42}, [], 2, (2, "length")),
        ([40, 41, 42], {42}, [], 3, (3, "stop")),  # at the limit too it is the id that ends it
        ("say hello world", {END}, ["o w"], 9, ("say hello w", "stop")),
        ("say hello world", {END}, ["never", "lo"], 9, ("say hello", "stop")),
    ],
)
def test_the_oracle_ends_an_answer_by_the_rule(
    ids: list[int] | str, eos: set[int], stops: list[str], limit: int, end: tuple[int | str, str]
) -> None:
    """At the first EOS id or stop string, or at the limit, whichever comes first, wherever tokens
    end.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_files()["tokenizer.json"].decode())
    given = tokenizer.encode(ids).ids if isinstance(ids, str) else ids
    length, reason = subject_of("stop-and-finish").end_of(
        given, tokenizer, eos, stops, min(limit, len(given))
    )
    if isinstance(end[0], str):
        assert tokenizer.decode(given[:length]).startswith(end[0])
        assert not any(stop in tokenizer.decode(given[: length - 1]) for stop in stops)
    else:
        assert length == end[0]
    assert reason == end[1]


def test_noise_without_chunks_is_not_measured_in_chunks() -> None:
    """A reference that reads in chunks what it calls unchunked is refused before anything runs."""
    file = ROOT / "scenarios" / "chunk-boundary-prefill" / "scenario.yaml"
    text = file.read_bytes()
    parse_scenario(text, name=str(file))
    with pytest.raises(ScenarioError, match="unchunked cannot be combined with a prefill_chunk"):
        parse_scenario(
            text.replace(b"envelope: unchunked", b"envelope: unchunked, prefill_chunk: 8"),
            name=str(file),
        )


@pytest.mark.long
def test_an_answer_of_another_request_is_seen(rankproof: Callable[..., Ran]) -> None:
    """Behind a prefix that is in the cache each gets its own answer.

    A prefix that is too long gives others.
    """
    few = ("--unsigned", "--set", "trials.candidate=4", "--set", "trials.control=4", "--set")
    cell = ("matrix.ranks=[2]", "matrix.backend=[gloo]", "matrix.situation=[hit]")
    given = [word for one in cell for word in ("--set", one)]
    folder = str(ROOT / "scenarios" / "kv-isolation")
    ran = rankproof("run", folder, *few, "trials.accept.failure_rate_below=60%", *given)
    assert (ran.code, ran.record.judgement.verdict) == (0, "PASS"), ran.out + ran.err
