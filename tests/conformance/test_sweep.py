"""A sweep over servers: made of real servers, grouped by what they break, verified, and refused where
something was changed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cli.reports import replay_of
from harness.conformance.correct import serving
from harness.conformance.defects import removes
from harness.conformance.engine import ENGINES, EngineError, EngineRelease, ServedEngine
from harness.conformance.proxy import ProxyDefect, proxied
from harness.conformance.rows import ROWS as ALL_ROWS
from harness.conformance.sweep.judged import ServedSweep
from harness.conformance.sweep.making import MakingSweep, facts_of
from harness.conformance.sweep.record import ServedRecord, plan
from harness.conformance.sweep.report import first_screen
from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.model import PATH, RecordError
from harness.report.terminal import render_terminal
from harness.series.series import FinishedSeries, Nothing, begin, resume
from harness.trust import footer
from harness.trust.folder import verify_folder
from harness.trust.key import find_signer
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.trust.verification import Verification
from tests.kit.commands import Ran, rankproof  # noqa: F401 - a fixture

ROWS = ("max-tokens", "n")
DYING = ServedEngine(
    library="json",
    arguments=("-c", "raise ValueError('no device')"),
    distributions=(),
    package="json",
    modes={"other": ("--other",)},
)


@pytest.fixture(scope="module")
def correct() -> Iterator[str]:
    with serving() as base:
        yield base


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, correct: str, key: Path
) -> Iterator[FinishedSeries[ServedRecord]]:
    """A correct server, one that ignores `n`, and an engine that does not start, in two modes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "dying", DYING)
        with proxied(correct, ProxyDefect(does="", ask=removes("n"))) as broken:
            planned = facts_of(
                targets=(correct, broken, "dying"), modes=("all",), rows=ROWS, seed=1, timeout=10.0
            )
            signer = find_signer(explicit=str(key))
            results = tmp_path_factory.mktemp("results")
            yield begin(MakingSweep(), planned, results=results, signer=signer)


def verified(folder: Path, key: Path) -> Verification:
    public = key.with_suffix(".pub").read_text().split()
    allowed = f'me namespaces="report@rankproof" {public[0]} {public[1]}\n'.encode()
    policy = SignerPolicy(allowed=allowed, allowed_from="test")
    report = folder / "report.md"
    return verify_folder(report, policy=policy, replay=replay_of(report))


@pytest.mark.slow
def test_what_servers_break_is_grouped_and_verified(
    finished: FinishedSeries[ServedRecord],
    key: Path,
    rankproof: Callable[..., Ran],  # noqa: F811
) -> None:
    """Each server has its verdict, an engine that does not start has its reason, and nothing is
    said of it.
    """
    record = finished.record
    good, broken, plain, other = record.servers
    assert (good.verdict, broken.verdict) == (
        "INCONCLUSIVE",
        "FAIL",
    )  # not every core row was asked
    assert (good.words["n"], broken.words["n"]) == ("CONFORMS", "VIOLATES")
    for server in (plain, other):
        assert server.verdict == "INCONCLUSIVE"
        assert "exit code 1" in server.unasked
        assert "ValueError: no device" in server.unasked
        assert set(server.words.values()) == {"NOT ASKED"}
    [group] = record.groups
    assert (group.row, group.violates, group.others) == ("n", [broken.name], {})
    assert any('"n": 2' in line for line in group.curls)
    text = (finished.folder / "report.md").read_text()
    assert "1 kind of violation on 1 of 2 tested servers; 2 servers could not be tested." in text
    assert "http:\\//" not in text
    assert text.count("`http://127.0.0.1:") >= 3
    assert verified(finished.folder, key).ok
    part = finished.folder / "evidence/parts/server-2-plain.rankproof.tar.xz"
    public = key.with_suffix(".pub").read_text().split()
    signers = finished.folder.parent / "signers"
    signers.write_text(f'me namespaces="report@rankproof" {public[0]} {public[1]}\n')
    done = rankproof("verify", str(part), "--allowed-signers", str(signers))
    assert done.code == 0, done.out
    again = rankproof("reproduce", str(part), "--allowed-signers", str(signers))
    assert again.code == 3
    assert "it is not the report of a scenario run" in again.out + again.err
    shown = rankproof("show", str(finished.folder), "--allowed-signers", str(signers))
    assert shown.code == 0
    assert "1 kind of violation on 1 of 2 tested servers" in shown.out
    assert "dying (other)" in shown.out
    assert "* n on B: whole: 1 choice although 2 were requested" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("what", ["words", "group", "part", "other-part", "plan", "every", "rows"])
def test_a_changed_sweep_is_refused(
    finished: FinishedSeries[ServedRecord], key: Path, tmp_path: Path, what: str
) -> None:
    """Also where everything was listed and signed anew."""
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    listed = manifest.parse((folder / manifest.NAME).read_bytes())
    record = finished.record
    first = folder / "evidence/parts/server-1-plain.rankproof.tar.xz"
    second = folder / "evidence/parts/server-2-plain.rankproof.tar.xz"
    facts = folder / "evidence/served.json"
    if what == "words":
        good = record.servers[0].model_copy(update={"verdict": "PASS"})
        record = record.model_copy(update={"servers": [good, *record.servers[1:]]})
    elif what == "group":
        record = record.model_copy(update={"groups": []})
    elif what == "part":
        first.write_bytes(first.read_bytes()[:-8])
    elif what == "other-part":
        second.write_bytes(first.read_bytes())
    else:
        before, after = {
            "plan": (b'"seed": 1,', b'"seed": 2,'),
            "every": (b'"rows": [\n  "max-tokens",\n  "n"\n ]', b'"rows": []'),
            "rows": (b'"max-tokens",\n  "n"', b'"n"'),
        }[what]
        assert before in facts.read_bytes()
        facts.write_bytes(facts.read_bytes().replace(before, after))
        record = record.model_copy(update={"facts": ServedSweep().read(facts.read_bytes())})
    (folder / PATH).write_bytes(record.encode())
    for name in listed:
        listed[name] = sha256((folder / name).read_bytes())
    listing = manifest.encode(listed)
    (folder / manifest.NAME).write_bytes(listing)
    body = ServedSweep().render(record, manifest_digest=sha256(listing))
    signature = find_signer(explicit=str(key)).sign(footer.signed_part(body), NAMESPACE_REPORT)
    (folder / "report.md").write_bytes(footer.attach(body, signature))
    found = verified(folder, key)
    assert not found.ok
    assert "JUDGED DIFFERENTLY" in str(found.word)


@pytest.mark.whole
def test_a_sweep_goes_on_with_the_servers_that_are_missing(
    tmp_path: Path, correct: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was tested before an interruption is kept, and not tested again."""
    with proxied(correct, ProxyDefect(does="")) as second:
        asked: list[str] = []

        class Interrupting(MakingSweep):
            def make(self, part, facts, folder, **how):  # type: ignore[no-untyped-def]
                asked.append(part.name)
                if asked == ["server-1-plain", "server-2-plain"]:
                    raise KeyboardInterrupt
                return super().make(part, facts, folder, **how)

        planned = facts_of(targets=(correct, second), rows=("max-tokens",), seed=1)
        with pytest.raises(KeyboardInterrupt):
            begin(Interrupting(), planned, results=tmp_path, signer=None)
        [left] = (tmp_path / "served").glob("*.unfinished")
        done = resume(Interrupting(), left, signer=None)
    assert asked == ["server-1-plain", "server-2-plain", "server-2-plain"]
    assert [server.words["max-tokens"] for server in done.record.servers] == ["CONFORMS"] * 2


@pytest.mark.parametrize(
    ("targets", "modes", "rows", "problem"),
    [
        (("llama.cpp",), (), (), "neither an engine"),
        (("mlx_lm.server==",), (), (), "exact versions"),
        (("mlx_lm.server==>1",), (), (), "exact versions"),
        (("mlx_lm.server,mlx==0.31.0",), (), (), "exact versions"),
        (("mlx_lm.server==1.0,mlx==1.0,mlx==2.0",), (), (), "names mlx twice"),
        (("mlx_lm.server",), ("fast",), (), "none of these servers has the mode 'fast'"),
        (("http://127.0.0.1:9", "http://127.0.0.1:9"), (), (), "is listed twice"),
        (("http://me:secret@a",), (), (), "--api-key-env"),
        (("http://127.0.0.1:9",), (), ("completions",), "is not a row"),
    ],
)
def test_what_cannot_be_tested_is_refused_before_anything_is_made(
    targets: tuple[str, ...], modes: tuple[str, ...], rows: tuple[str, ...], problem: str
) -> None:
    """With what there is instead."""
    with pytest.raises(Nothing, match=problem):
        facts_of(targets=targets, modes=modes, rows=rows)


def test_a_release_is_read_as_it_is_typed() -> None:
    """With its companions, and in a mode that the engine has."""
    for text in ("mlx_lm.server", "mlx_lm.server==0.31.1", "mlx_lm.server==0.31.1,mlx==0.31.0"):
        assert str(EngineRelease.parse(text)) == text
    assert EngineRelease.parse("mlx_lm.server", "speculative").mode == "speculative"
    with pytest.raises(EngineError, match=r"has no mode 'fast'; its modes are plain, small-chunks"):
        EngineRelease.parse("mlx_lm.server", "fast")


def test_parts_have_names_of_their_own() -> None:
    """By number and mode, whatever the servers are called."""
    parts = plan(["http://a", "http://b", "mlx_lm.server"], [["plain"], ["plain"], ["plain", "x"]])
    names = [part.name for part in parts]
    assert names == ["server-1-plain", "server-2-plain", "server-3-plain", "server-3-x"]
    assert len({part.scenario for part in parts}) == 4


@pytest.mark.slow
def test_violations_that_say_the_same_share_a_line(
    finished: FinishedSeries[ServedRecord],
) -> None:
    """And where the facts are too long, or too many, the kind of difference is told instead."""
    [group] = finished.record.groups
    more = [
        group.model_copy(update={"row": row, "fact": fact, "about": "ignored"})
        for row, fact in (("tools", "x" * 300), ("json-object", "cut ... here"), ("n", "short"))
    ]
    screen = render_terminal(
        first_screen(finished.record.model_copy(update={"groups": more})), 80
    ).plain
    assert "* tools, json-object on B: a parameter is accepted and ignored" in screen
    assert "* n on B: short" in screen
    many = [
        group.model_copy(update={"row": row, "fact": f"{row} is not kept {'so ' * 20}"})
        for row in ALL_ROWS
    ]
    screen = render_terminal(
        first_screen(finished.record.model_copy(update={"groups": many})), 80
    ).plain
    assert "is not kept" not in screen
    assert screen.count("* ") == 1


@pytest.mark.slow
def test_a_part_that_is_missing_is_told(finished: FinishedSeries[ServedRecord]) -> None:
    """And one that the plan does not name."""
    names = ["evidence/served.json", "evidence/parts/server-1-plain.rankproof.tar.xz"]
    read = {name: (finished.folder / name).read_bytes() for name in names}
    with pytest.raises(RecordError, match="is missing"):
        ServedSweep().assemble(read.__getitem__, names)
