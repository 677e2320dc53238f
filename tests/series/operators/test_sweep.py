"""A sweep of real ranks: what it finds, what it accuses nobody of, and what a verifier refuses."""

from __future__ import annotations

import json
import lzma
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.model import PATH as RECORD
from harness.series.operators.cells import OperatorCell
from harness.series.operators.inquiry import Ask, needle
from harness.series.operators.judge import Outcome
from harness.series.operators.record import (
    PATH,
    OperatorsFacts,
    OperatorsPart,
    OperatorsRecord,
    judged,
)
from harness.series.operators.report import render
from harness.series.operators.sweep import OperatorsSeries, facts_of
from harness.series.operators.worlds import OperatorWorlds
from harness.series.replay import SeriesReplay
from harness.series.series import begin
from harness.trust import footer
from harness.trust.folder import verify_folder
from harness.trust.key import find_signer
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.trust.verification import Verification

pytestmark = pytest.mark.whole
pytest.importorskip("torch")

PLAIN = {
    "shape": "3x4",
    "dtype": "float32",
    "layout": "contiguous",
    "values": "plain",
    "op": "sum",
    "call": "sync",
    "out": "contiguous",
    "root": "first",
}


@pytest.fixture(scope="module")
def worlds() -> Iterator[OperatorWorlds]:
    with OperatorWorlds.opened() as opened:
        yield opened


@pytest.fixture
def ask(worlds: OperatorWorlds) -> Callable[..., list[Outcome]]:
    """Ask cells of real ranks, and judge what they say."""

    def asked(*cells: OperatorCell, ranks: int = 2) -> list[Outcome]:
        part = OperatorsPart(
            name="x",
            library=cells[0].library,
            ranks=ranks,
            operators=[],
            depth=1,
            scenario="0" * 64,
        )
        evidence = worlds.ask(Ask("sweep", cells), part)
        return judged(evidence, cells, size=ranks)

    return asked


def cell(operator: str = "all_reduce", **axes: str) -> OperatorCell:
    return OperatorCell(library="collectives", operator=operator, axes={**PLAIN, **axes})


def dtensor(expression: str, **axes: str) -> OperatorCell:
    usual = {
        "shape": "4x6",
        "dtype": "float32",
        "placement": "S0",
        "then": "{}",
        "gradient": "no",
        "other": "S0",
    }
    return OperatorCell(library="dtensors", operator=expression, axes={**usual, **axes})


@pytest.mark.long
def test_a_needle_in_the_result_of_one_rank_is_seen(ask: Callable[..., list[Outcome]]) -> None:
    """The same call without it is right: the eye sees one element, and nothing else."""
    found = ask(cell(), needle(cell()), dtensor("x.sum(0)"), needle(dtensor("x.sum(0)")))[:2]
    assert [outcome.word for outcome in found] == ["RIGHT", "DEFECT"]
    assert found[1].ranks == [0]


@pytest.mark.long
def test_a_rank_that_dies_or_stands_still_costs_a_world_and_is_named(
    ask: Callable[..., list[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells after it are asked all the same, in another world."""
    monkeypatch.setattr("harness.series.operators.worlds.STANDS_STILL", 4.0)
    dies = dtensor("__import__('os').abort() if hasattr(x, 'device_mesh') else x")
    stands = dtensor("__import__('time').sleep(60) or x if hasattr(x, 'device_mesh') else x")
    found = ask(dtensor("x.sum()"), dies, dtensor("x.sum(1)"), stands, dtensor("x.mean()"))
    assert [outcome.word for outcome in found] == ["RIGHT", "CRASH", "RIGHT", "HANG", "RIGHT"]
    assert "SIGABRT" in found[1].fact


def test_a_rank_that_alone_raises_does_not_keep_the_others(
    ask: Callable[..., list[Outcome]],
) -> None:
    """It is refused, not hung, and the next cell is asked in another world."""
    alone = dtensor("x.sum().full_tensor() if getattr(x, 'device_mesh', x).size() else x")
    one = "x.sum().full_tensor() if not x.is_leaf or x.device_mesh.get_rank() else x.no"
    begun = time.monotonic()
    found = ask(alone, dtensor(one), dtensor("x.sum()"))
    assert [outcome.word for outcome in found][1:] == ["REFUSES", "RIGHT"]
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("ranks", [2, 3])
def test_healthy_calls_are_right_over_two_and_three_ranks(
    ask: Callable[..., list[Outcome]], ranks: int
) -> None:
    """Every collective on plain tensors of every dtype that gloo takes."""
    names = (
        *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor"),
        *("reduce_scatter", "reduce_scatter_tensor", "scatter", "gather", "send_recv"),
    )
    cells = [
        cell(name, dtype=dtype, shape=shape)
        for name in names
        for dtype in ("float32", "bfloat16", "int64", "uint8", "complex64")
        for shape in ("1", "3x4", "65")
    ]
    wrong = {
        one.key: outcome
        for one, outcome in zip(cells, ask(*cells, ranks=ranks), strict=True)
        if outcome.word not in ("RIGHT", "REFUSES")
    }
    assert not wrong


# -- a whole sweep ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    """A sweep of one file format and one collective."""
    results = tmp_path_factory.mktemp("results")
    planned = facts_of(names=["safetensors.numpy.save_file", "broadcast"], ranks=[1, 2], depth=40)
    signer = find_signer(explicit=str(key))
    return begin(OperatorsSeries(), planned, results=results, signer=signer).folder


def verified(folder: Path, key: Path) -> Verification:
    public = key.with_suffix(".pub").read_text().split()
    allowed = f'me namespaces="report@rankproof" {public[0]} {public[1]}\n'.encode()
    policy = SignerPolicy(allowed=allowed, allowed_from="test")
    replay = SeriesReplay(OperatorsSeries())
    return verify_folder(folder / "report.md", policy=policy, replay=replay)


def test_a_sweep_shows_what_is_wrong_with_its_control_and_is_verified(
    made: Path, key: Path
) -> None:
    """What it shows was repeated three times, beside a control that was right and a needle."""
    record = OperatorsRecord.decode((made / RECORD).read_bytes())
    assert record.needles[0] == record.needles[1] == 2
    assert sum(record.words.values()) >= 80
    for group in record.accused:
        cause = group.smallest
        assert (cause.times, cause.control_times, cause.needle_times) == (3, 3, 3)
        assert cause.control is not None
        assert cause.control.axes != cause.cell.axes
    found = verified(made, key)
    assert found.ok, found.steps


@pytest.mark.parametrize("forged", ["a value", "an ask", "the plan", "the record"])
def test_a_forged_sweep_is_refused(made: Path, key: Path, tmp_path: Path, forged: str) -> None:
    """Whoever has the key cannot sign what the evidence does not give."""
    folder = tmp_path / made.name
    shutil.copytree(made, folder)
    part = min((folder / "evidence/parts").iterdir())
    kept = json.loads(lzma.decompress(part.read_bytes()))
    if forged == "a value":
        lines = kept["asks"][0]["worlds"][0]["events"]
        place = next(
            at for at, line in enumerate(lines) if '"cell.done"' in line and '"got"' in line
        )
        event = json.loads(lines[place])
        name = next(name for name in event["values"]["got"] if name.startswith("result"))
        event["values"]["got"][name]["values"][0] = 12345.0
        lines[place] = json.dumps(event, separators=(",", ":"))
    elif forged == "an ask":
        del kept["asks"][-1]
    elif forged == "the plan":
        facts = json.loads((folder / PATH).read_text())
        facts["parts"][0]["operators"][0]["usual"] = {"shape": "65"}
        (folder / PATH).write_text(json.dumps(facts, indent=1) + "\n")
    part.write_bytes(lzma.compress(json.dumps(kept).encode()))
    record = OperatorsRecord.decode((folder / RECORD).read_bytes())
    if forged == "the record":
        record = record.model_copy(update={"groups": []})
        (folder / RECORD).write_bytes(record.encode())
    _sign_again(folder, record, key)
    found = verified(folder, key)
    assert not found.ok
    assert found.word in ("JUDGED DIFFERENTLY", "NOT JUDGED"), found.steps


def _sign_again(folder: Path, record: OperatorsRecord, key: Path) -> None:
    listed = manifest.parse((folder / manifest.NAME).read_bytes())
    digests = {name: sha256((folder / name).read_bytes()) for name in listed}
    listing = manifest.encode(digests)
    (folder / manifest.NAME).write_bytes(listing)
    body = render(record, manifest_digest=sha256(listing))
    signer = find_signer(explicit=str(key))
    assert signer is not None
    signature = signer.sign(footer.signed_part(body), NAMESPACE_REPORT)
    (folder / "report.md").write_bytes(footer.attach(body, signature))


@pytest.mark.long
def test_a_sweep_that_was_killed_goes_on_with_the_parts_that_are_missing(
    key: Path, tmp_path: Path
) -> None:
    """SIGKILL costs the part that was being made; the ranks end with the harness."""
    results = tmp_path / "results"
    words = [
        *(sys.executable, "-m", "harness.cli", "lab", "operators", "--results", str(results)),
        *("--key", str(key)),
    ]
    asked = ["--library", "files", "--operators", "numpy>", "--depth", "80"]
    with subprocess.Popen([*words, *asked], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "kept" in line:
                process.send_signal(signal.SIGKILL)
                break
    (unfinished,) = results.glob("operators/*.unfinished")
    facts = OperatorsFacts.model_validate_json((unfinished / PATH).read_bytes())
    there = {path.name: path.stat().st_mtime_ns for path in unfinished.glob("evidence/parts/*")}
    assert 1 <= len(there) < len(facts.parts)
    done = subprocess.run(
        [*words, "--resume", str(unfinished)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    (folder,) = results.glob("operators/2*")
    for name, changed in there.items():
        assert (folder / "evidence/parts" / name).stat().st_mtime_ns == changed
    assert verified(folder, key).ok
