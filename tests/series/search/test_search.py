"""A search of real runs: made, verified by whoever has its folder, and refused where a word was
changed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.model import PATH
from harness.series.replay import SeriesReplay
from harness.series.search import Search, facts_of, plan
from harness.series.search.record import SearchRecord
from harness.series.search.report import render
from harness.series.series import begin
from harness.trust import footer
from harness.trust.folder import verify_folder
from harness.trust.key import find_signer
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.trust.verification import Verification

pytestmark = pytest.mark.whole
PROMPTS = [[220, 194, 171, 241, 140, 12, 220, 124, 17], [164, 70, 194, 96, 208, 181, 246]]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """A plan of one part: a model whole in one rank, and split by layers over two, with two
    prompts.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "prompts", lambda: PROMPTS)
        patch.setattr(plan, "LIBRARIES", ("hf",))
        patch.setattr(plan, "CELLS", {"hf": (("every", (("single", 1), ("pipeline", 2))),)})
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: Path, small: None) -> Path:
    """A search by that plan, with the digests of logits and weights alone."""
    del small
    results, signer = tmp_path_factory.mktemp("results"), find_signer(explicit=str(key))
    planned = facts_of(models=["llama"], arrays=False)
    return begin(Search(), planned, results=results, signer=signer).folder


def verified(folder: Path, key: Path) -> Verification:
    public = key.with_suffix(".pub").read_text().split()
    allowed = f'me namespaces="report@rankproof" {public[0]} {public[1]}\n'.encode()
    policy = SignerPolicy(allowed=allowed, allowed_from="test")
    return verify_folder(folder / "report.md", policy=policy, replay=SeriesReplay(Search()))


def test_a_search_is_verified_by_whoever_has_its_folder(made: Path, key: Path) -> None:
    """Every cell is near the whole model, and could have shown 1 %."""
    record = SearchRecord.decode((made / PATH).read_bytes())
    assert [(cell.engine, cell.ranks) for cell in record.cells] == [
        ("hf-single", 1),
        ("hf-pipeline", 2),
    ]
    assert {cell.word for cell in record.cells} <= {"IDENTICAL", "EQUIVALENT"}, record.cells
    assert all("would detect a defect of size" in cell.found for cell in record.cells)
    found = verified(made, key)
    assert found.ok, found.steps
    assert "its plan matches this version" in str(found.steps)
    assert "so the distances between them are the signer's own claim" in str(found.steps)


def test_a_part_without_arrays_holds_none_and_says_so(made: Path) -> None:
    """Its scenario limits them, its report names what it lacks, and it is small enough to be
    shipped.
    """
    (part,) = (made / "evidence/parts").iterdir()
    assert part.stat().st_size < 200_000
    with tarfile.open(part) as packed:
        assert not [name for name in packed.getnames() if "evidence/artefacts/" in name]
        report = packed.extractfile("run/report.md")
        assert report is not None
        assert "artefacts of ranks are not in the evidence" in report.read().decode()


def test_a_search_of_less_is_refused_where_this_code_would_ask_more(
    made: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its facts name this very code, which plans other prompts."""
    monkeypatch.setattr(plan, "prompts", lambda: [*PROMPTS, [1]])
    found = verified(made, key)
    assert not found.ok
    assert "for llama-hf-every, the prompts" in str(found.steps)


def test_a_changed_word_is_refused_under_a_good_signature(
    made: Path, tmp_path: Path, key: Path
) -> None:
    """Whoever signs it again, with all that is made of the record: the part's evidence gives
    another word.
    """
    folder = tmp_path / "forged"
    shutil.copytree(made, folder)
    content = json.loads((folder / PATH).read_text())
    content["cells"][1]["word"] = (
        "IDENTICAL" if content["cells"][1]["word"] == "EQUIVALENT" else "EQUIVALENT"
    )
    record = SearchRecord.model_validate(content)
    (folder / PATH).write_bytes(record.encode())
    listed = manifest.parse((folder / manifest.NAME).read_bytes()) | {PATH: sha256(record.encode())}
    (folder / manifest.NAME).write_bytes(manifest.encode(listed))
    body = render(record, manifest_digest=sha256((folder / manifest.NAME).read_bytes()))
    signature = find_signer(explicit=str(key)).sign(footer.signed_part(body), NAMESPACE_REPORT)
    (folder / "report.md").write_bytes(footer.attach(body, signature))
    found = verified(folder, key)
    assert not found.ok
    assert found.word == "JUDGED DIFFERENTLY"
