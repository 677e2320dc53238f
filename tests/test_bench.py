"""The benchmark still runs: what only a person starts by hand breaks without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.world.control.pool import ServerPool
from tests.bench import commands, integrity, ledger, ranks, runs_page, scale, verifying


@pytest.mark.long
def test_verify_and_gate_are_measured_on_a_report_that_both_accept(tmp_path: Path) -> None:
    """A report that the bench makes of itself, smaller: verified, and let through the gate by the
    bench's policy.
    """
    figures = verifying.measure(tmp_path, rounds=1, candidate=59, control=3)
    assert figures["files"] > 5
    assert all(figures[f"{command}_wall_seconds"][1] > 0 for command in ("verify", "gate"))


@pytest.mark.long
def test_commands_are_measured_beside_an_import(tmp_path: Path) -> None:
    """Verify of a smaller report, lint and list end well, and each takes longer than the import in
    the same run.
    """
    figures = commands.measure(tmp_path, rounds=1, candidate=59, control=3)
    assert figures["trials"] == 62
    assert figures["peer_ratio"] == 1
    assert all(figures[f"{command}_ratio"] > 1 for command in ("verify", "lint", "list"))


@pytest.mark.long
def test_the_page_over_many_runs_is_measured(tmp_path: Path) -> None:
    """Every run of it is verified, and it takes time."""
    figures = runs_page.measure(tmp_path, rounds=1, runs=3)
    assert figures["files"] > 3 * 30
    assert figures["page"] > 0


@pytest.mark.long
def test_the_ledger_is_measured_in_a_world_that_calls(tmp_path: Path) -> None:
    """Every call of a short ping-pong is timed, and the time in the hook is less than that of the
    calls.
    """
    with ServerPool() as pool:
        small = {"layers": 2, "words": 1000}
        measured = ledger.measure(pool, tmp_path, rounds=20, steps=2, sizes=small)
    assert {case: figures["calls"] >= 2 for case, figures in measured.items()} == dict.fromkeys(
        ledger.CASES, True
    )
    for figures in measured.values():
        assert 0 < figures["call_seconds"] < figures["round_seconds"]
        assert 0 < figures["share"] < 1


@pytest.mark.long
def test_a_rank_is_measured_beside_a_bare_fork(tmp_path: Path) -> None:
    """A rank of the tokenizer scenario costs more than a fork that ends at once.

    Its page faults do not depend on the load, so they have a limit here.
    """
    with ServerPool() as pool:
        figures = ranks.measure(pool, tmp_path, rounds=1)
    assert figures["ms_ratio"] > 1
    assert figures["peer_faults"] < figures["rank_faults"] < 3850


@pytest.mark.long
def test_the_validators_are_measured_on_streams_that_they_find_valid(tmp_path: Path) -> None:
    """Each level costs something, more where more is checked, and far less than the decode step
    beside it.
    """
    with ServerPool() as pool:
        measured = integrity.measure(pool, tmp_path, rounds=3, steps=2)
    cost = measured["token_nanoseconds"]
    assert cost["checked, off"] < cost["checked, light"] < cost["checked, full"]
    assert all(share < 0.02 for share in measured["share"].values())


@pytest.mark.long
def test_recorded_keepers_say_what_a_node_said(tmp_path: Path) -> None:
    """The channel of a real node, said by three at once: every event of every rank arrives, and no
    machine is lost.
    """
    (tmp_path / "subject.py").write_text(scale.SUBJECT)
    recording = scale.record(tmp_path, events=10)
    row = scale.row(tmp_path, recording, hosts=3, events=10, idle=0.1)
    assert (row["ranks"], row["lost"]) == (3, 0)
    assert row["descriptors"] >= 9
    assert row["world_cpu"] > 0
