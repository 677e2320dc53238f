"""The commands that pages show do what they say: run one after the other, in a folder prepared for
the page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.hub import Hub
from harness.hub.layouts import repository_files
from tests.docs.pages import ROOT, Page
from tests.docs.shown import OPTIONS_EXPECTED_LATER, SHOWN, Run
from tests.kit.commands import SCENARIO, SUBJECT
from tests.tokenizer.formats.conversion import llama_3, of_serialised
from tests.tokenizer.gguf.writing import bpe

# A file that a page shows in a block, named in the sentence before.
FILE = re.compile(r"`(scenarios/[\w./-]+\.(?:yaml|py|sh))`[^`]*```\w+\n(.*?)```", re.DOTALL)
# A run that ends in a second or two, with as many trials as a comparison of two runs needs.
SMALL = SCENARIO.replace("id: meet", "id: small").replace("control: 2", "control: 5")
# What the README's scenarios ask for, and what their runs here do with: a number that `lint` finds
# sufficient.
ASKED, FEW = (
    "trials: {candidate: 59, control: 5}",
    "trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}",
)
MOST = 600


@dataclass
class Place:
    """Where the commands of a page run.

    Attributes:
        work: the current folder: a git repository with one signer that it trusts.
        instead: what stands in a command, to what is meant here.
    """

    root: Path
    work: Path
    environment: dict[str, str]
    instead: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""

    def sh(self, command: str, *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell."""
        return subprocess.run(
            ["bash", "-c", command], cwd=cwd or self.work, env=self.environment, capture_output=True, text=True,
            check=False, timeout=MOST,
        )  # fmt: skip

    def done(self, command: str, *, cwd: Path | None = None) -> str:
        """What a command prints that has to succeed."""
        done = self.sh(command, cwd=cwd)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def filled(self, shown: str) -> str:
        """The command that is meant."""
        for what, meant in self.instead.items():
            shown = shown.replace(what, meant)
        return re.sub(r"\[(--[a-z-]+)\]", r"\1", shown).replace("SHA256:…", self.fingerprint)

    def small_run(self, name: str = "small") -> Path:
        """The folder of a small run."""
        folder = self.work / "scenarios" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario.yaml").write_text(SMALL)
        (folder / "subject.py").write_text(SUBJECT)
        self.done(f"rankproof run scenarios/{name}")
        return (self.work / "results" / "latest").resolve()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / ".rankproof"):
        folder.mkdir(parents=True)
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    made = Place(
        root=tmp_path,
        work=work,
        environment={
            **kept,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(home),
            "CI": "true",
            "RANKPROOF_SIGNING_KEY": str(tmp_path / "key"),
        },
    )
    made.done(f"ssh-keygen -q -t ed25519 -N '' -C me -f {tmp_path / 'key'}")
    made.fingerprint = made.done(f"ssh-keygen -l -f {tmp_path / 'key.pub'}").split()[1]
    public = (tmp_path / "key.pub").read_text().rpartition(" ")[0]
    line = f'ci@example.org namespaces="report@rankproof,attestation@rankproof" {public}\n'
    (work / ".rankproof" / "allowed_signers").write_text(line)
    made.done("git init -q . && git config user.name me && git config user.email me@example.org")
    made.done("git add -A && git commit -q -m begin")
    return made


@contextmanager
def readme(place: Place) -> Iterator[None]:
    """The files that the page shows, written where it says.

    Once linted as they are, with fewer trials.
    """
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    written = dict(FILE.findall(page))
    assert set(written) == {
        *("scenarios/mean/scenario.yaml", "scenarios/mean/subject.py"),
        *("scenarios/share/scenario.yaml", "scenarios/share/rank.sh"),
    }
    for name, text in written.items():
        (place.work / name).parent.mkdir(parents=True, exist_ok=True)
        (place.work / name).write_text(text)
    place.done("rankproof lint scenarios/mean scenarios/share")
    for name in ("scenarios/mean/scenario.yaml", "scenarios/share/scenario.yaml"):
        assert written[name].count(ASKED) == 1
        (place.work / name).write_text(written[name].replace(ASKED, FEW))
    place.instead = {"REPOSITORY_URL": str(ROOT)}
    yield


@contextmanager
def a_clone(place: Place) -> Iterator[None]:
    """A clone of this repository."""
    place.done(f"git clone -q {ROOT} clone")
    place.work /= "clone"
    place.instead = {".nox/env-cpu-3.11/bin/": ""}
    yield


@contextmanager
def one_run(place: Place) -> Iterator[None]:
    """A report, under each of the names that pages give one."""
    report = str(place.small_run() / "report.md")
    names = ("results/<scenario>/<run>/report.md", "results/…/report.md", "REPORT")
    place.instead = dict.fromkeys(names, report)
    yield


@contextmanager
def of_reproduction(place: Place) -> Iterator[None]:
    """A report and its bundle."""
    with one_run(place):
        kept = place.root / "kept.rankproof.tar.xz"
        place.done(f"rankproof bundle results/latest --out {kept}")
        place.instead |= {
            "tokenizer-on-every-rank-….rankproof.tar.xz": str(kept),
            "SCENARIO-RUN.rankproof.tar.xz": str(kept),
        }
        yield


@contextmanager
def of_verification(place: Place) -> Iterator[None]:
    """A report, and the list of signers beside its statement.

    What is written there goes when it is read.
    """
    with one_run(place):
        folder = Path(place.instead["REPORT"]).parent
        beside = place.root / "statement"
        beside.mkdir()
        shutil.copy(folder / "attestation.dsse.json", beside)
        shutil.copy(place.work / ".rankproof" / "allowed_signers", beside)
        place.instead |= {"jq -j": f"cd {beside} && jq -j", "{ printf": f"cd {beside} && {{ printf"}
        yield


@contextmanager
def two_runs(place: Place) -> Iterator[None]:
    """Two runs of one scenario."""
    place.instead = {"results/A": str(place.small_run()), "results/B": str(place.small_run())}
    yield


@contextmanager
def two_revisions(place: Place) -> Iterator[None]:
    """A repository with the bug and its fix, and a scenario beside it."""
    repository = place.root / "repository"
    repository.mkdir()
    begin = "git init -q . && git config user.name me && git config user.email me@example.org"
    place.done(begin, cwd=repository)
    for tag, broken in (("bug", "context.rank"), ("fix", "False")):
        (repository / "subject.py").write_text(
            SUBJECT.replace("broken and context.rank", broken).replace(", *, broken", "")
        )
        place.done(f"git add -A && git commit -q -m {tag} && git tag {tag}", cwd=repository)
    folder = place.work / "scenarios" / "two"
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(
        SMALL.replace("id: small", "id: two")
        .replace("{with: {broken: false}}", "{}")
        .replace("with: {broken: true}", "rev: HEAD~1")
    )
    shutil.copy(repository / "subject.py", folder)
    place.instead = {
        "SCENARIO": "scenarios/two",
        "--repo PATH": f"--repo {repository}",
        "--candidate REV": "--candidate fix",
        "--control REV": "--control bug",
    }
    yield


@contextmanager
def tokenizers(place: Place) -> Iterator[None]:
    """Two folders with a tokenizer each, and a hub that has one of them under a tag."""
    for name, layout in (
        ("a", "gpt2"),
        ("b", "qwen"),
        ("folder", "gpt2"),
        ("hub/org/model", "gpt2"),
        ("hub/org/model@v1.0", "gpt2"),
    ):
        for path, data in repository_files(layout).items():
            target = place.work / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    (place.work / "model.gguf").write_bytes(bpe().bytes())
    place.instead = {"PATH": "a", " A B": " a b"}
    with Hub(place.work / "hub") as hub:
        place.environment["HF_ENDPOINT"] = hub.endpoint
        yield


@contextmanager
def model_files(place: Place) -> Iterator[None]:
    """A whole model file, and a folder with it and one without merges."""
    made = bpe()
    (place.work / "models").mkdir()
    for name in ("model.gguf", "models/whole.gguf"):
        (place.work / name).write_bytes(made.bytes())
    del made.keys["tokenizer.ggml.merges"]
    (place.work / "models/wrong.gguf").write_bytes(made.bytes())
    yield


@contextmanager
def a_model_and_its_hub(place: Place) -> Iterator[None]:
    """A model that names the repository that it is from, and a hub that has its tokenizer there."""
    made = of_serialised(llama_3())
    made.keys["general.source.repo_url"] = ("string", "https://huggingface.co/org/model")
    (place.work / "models").mkdir()
    (place.work / "models/model.gguf").write_bytes(made.bytes())
    for name in ("org/model", "org/model@v1.0"):
        (place.work / "hub" / name).mkdir(parents=True)
        (place.work / "hub" / name / "tokenizer.json").write_text(json.dumps(llama_3()))
    with Hub(place.work / "hub") as hub:
        place.environment["HF_ENDPOINT"] = hub.endpoint
        yield


@contextmanager
def the_sample(place: Place) -> Iterator[None]:
    """The sample, the matrix, the search and the findings, where they lie in the repository."""
    for name in ("sample", "matrix-report", "findings", "search-report"):
        shutil.copytree(ROOT / "docs" / name, place.work / "docs" / name)
    yield


@contextmanager
def nothing(_: Place) -> Iterator[None]:
    """Nothing is needed."""
    yield


PREPARED: Mapping[str, Callable[[Place], object]] = {
    "README.md": readme,
    "CONTRIBUTING.md": a_clone,
    "docs/discovery.md": a_model_and_its_hub,
    "docs/gguf.md": model_files,
    "docs/hub.md": nothing,
    "docs/reading.md": two_runs,
    "docs/reproduce.md": of_reproduction,
    "docs/findings/README.md": the_sample,
    "docs/matrix-report/README.md": the_sample,
    "docs/search-report/README.md": the_sample,
    "docs/sample/README.md": the_sample,
    "docs/scenarios.md": two_revisions,
    "docs/tokenizer.md": tokenizers,
    "docs/verify.md": of_verification,
}
RUNNING = sorted(
    name
    for name, commands in SHOWN.items()
    if any(isinstance(how, Run) for how in commands.values())
)


def is_later(command: str) -> bool:
    """Whether a command has an option that is not there yet."""
    words = command.split()
    return any(
        (words[1], word) in OPTIONS_EXPECTED_LATER for word in words if words[0] == "rankproof"
    )


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("name", RUNNING)
def test_the_commands_of_a_page_run(place: Place, name: str) -> None:
    """Each ends with an exit code that the page tells of."""
    page = Page(name, (ROOT / name).read_text(encoding="utf-8"))
    with PREPARED[name](place):  # type: ignore[attr-defined]
        for shown, _ in page.commands:
            how = SHOWN[name].get(shown)
            if not isinstance(how, Run) or is_later(shown):
                continue
            if how.needs and shutil.which(how.needs) is None:
                pytest.skip(f"{how.needs} is not on this machine")
            done = place.sh(place.filled(shown))
            assert done.returncode in how.codes, f"{shown}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_a_command_that_fails_is_seen(place: Place) -> None:
    """A command of a page that ends otherwise than expected fails its test: here the report is
    damaged.
    """
    with readme(place):
        (place.work / "scenarios/mean/scenario.yaml").write_text("schema: 2\n")
        assert place.sh(place.filled("rankproof lint scenarios/mean")).returncode == 64
        assert (
            place.sh(place.filled("rankproof verify README.md --signer SHA256:…")).returncode == 3
        )


@pytest.mark.slow
@pytest.mark.whole
def test_the_form_for_a_repository_runs(place: Place) -> None:
    """What the README shows for a package in a repository tells a fix that is not committed from
    the commit before.
    """
    with readme(place):
        pass
    whole = (place.work / "scenarios/mean/scenario.yaml").read_text()
    blocks = Page("README.md", (ROOT / "README.md").read_text(encoding="utf-8")).blocks
    (subject,) = (
        one.text for one in blocks if one.info == "yaml" and one.text.startswith("subject:")
    )
    (code,) = (
        one.text for one in blocks if one.info == "python" and "from stats import mean" in one.text
    )
    (place.work / "scenarios/mean/scenario.yaml").write_text(
        re.sub(r"subject:\n.*?(?=matrix:)", lambda _: subject, whole, flags=re.DOTALL)
    )
    (place.work / "scenarios/mean/subject.py").write_text(code)
    package = place.work / "src" / "stats" / "__init__.py"
    package.parent.mkdir(parents=True)
    mean = (
        "import torch.distributed as dist\n\ndef mean(x):\n    dist.all_reduce(x)\n    {}\n   "
        " return x\n"
    )
    package.write_text(mean.format("if dist.get_rank() == 0: x /= dist.get_world_size()"))
    place.done("git add -A && git commit -q -m bug")
    broken = place.done("git rev-parse HEAD").strip()
    stated = place.work / "scenarios/mean/scenario.yaml"
    assert stated.read_text().count("rev: COMMIT ") == 1
    stated.write_text(stated.read_text().replace("rev: COMMIT ", f"rev: {broken} "))
    package.write_text(mean.format("x /= dist.get_world_size()"))
    said = place.done("rankproof run scenarios/mean --try")
    assert "failed as required" in said
    place.done("git add -A && git commit -q -m fix")
    assert "failed as required" in place.done("rankproof run scenarios/mean --try")


def test_every_page_with_commands_is_prepared() -> None:
    """A page whose commands are run says in what folder."""
    assert sorted(PREPARED) == RUNNING
