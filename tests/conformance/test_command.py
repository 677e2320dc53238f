"""The command itself, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.conformance.correct import MODEL, serving
from harness.conformance.defects import removes
from harness.conformance.proxy import ProxyDefect, proxied
from tests.kit.commands import Ran, rankproof  # noqa: F401 - a fixture

KEY = "sk-secret-0123456789"
CORE = ("--rows", "stream-is-whole,max-tokens,greedy-repeat")


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


@pytest.mark.slow
def test_a_report_is_made_shown_and_verified(
    correct: str,
    rankproof: Callable[..., Ran],  # noqa: F811
) -> None:
    """An address is enough where one model is listed: exit code 0, and a line that verifies."""
    done = rankproof("conformance", correct, *CORE, env={"OPENAI_API_KEY": KEY})
    assert done.code == 0, done.err
    assert "PASS: 4 promises tested: 0 REFUSES, 4 CONFORMS." in done.out
    assert KEY not in done.out + done.err
    line = next(one for one in done.out.splitlines() if one.startswith("  verify: "))
    signer = line.split()[-1]
    latest = str(done.results / "conformance/latest")
    shown = rankproof("show", latest, "--signer", signer)
    assert shown.code == 0
    assert "PASS: 4 promises tested" in shown.out
    assert "Not shown" not in shown.out
    assert "Not shown" in rankproof("show", latest, "--all").out
    assert rankproof("verify", latest, "--signer", signer).code == 0
    page = rankproof("view", str(done.results), "--signer", signer)
    assert page.out.endswith("index.html: 1 run\n")
    report = (done.results / "conformance/latest/report.md").resolve()
    report.write_text(report.read_text().replace("4 CONFORMS", "5 CONFORMS"))
    assert rankproof("verify", latest, "--signer", signer).code == 3


@pytest.mark.whole
def test_exit_codes_are_those_of_run(
    correct: str,
    rankproof: Callable[..., Ran],  # noqa: F811
) -> None:
    """1 with a violation, 2 where nothing can be told, 64 for what cannot be asked."""
    with proxied(correct, ProxyDefect(does="", ask=removes("max_tokens"))) as broken:
        assert rankproof("conformance", broken, "--rows", "max-tokens", "--unsigned").code == 1
    nobody = ("conformance", "http://127.0.0.1:9", "--model", MODEL, "--unsigned")
    assert rankproof(*nobody).code == 2
    for odd in (("llama.cpp",), (correct, "--rows", "completions"), ("http://127.0.0.1:9",)):
        done = rankproof("conformance", *odd, "--unsigned")
        assert done.code == 64
        assert "Traceback" not in done.err
