"""Bundles of real runs: the same bytes each time, nothing missing, and nothing of the machine they
were made on.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.reproduce.archive import Index, unpack
from harness.reproduce.bundle import LeakNeedles
from harness.world.control import names
from tests.kit.people import RANK, SCENARIO, Person, Ran
from tests.kit.repositories import git

pytestmark = pytest.mark.slow  # each makes a run
Project = Callable[..., Path]
WORDS = "scenarios/words"
# Everything that a careless subject says of where it runs.
CHATTY = r"""
import json, os, socket, sys, traceback

def out(event, **values):
    os.write(3, (json.dumps({"event": event, "values": values}) + "\n").encode())

home = os.environ["HOME"]
user = "quentin" + ".quibble"
print("home", home, "file", home + "/project/secret.txt", "user", user, "at", sys.argv[2], dict(os.environ))
print("host", socket.gethostname())
out("ready", home=home + "/models", code=os.path.abspath(__file__))
os.read(4, 100)
if sys.argv[1] != "yes" and os.environ["RANKPROOF_RANK"] != "0":
    message = f"cannot open {home}/models/x of {user} on {socket.gethostname()}"
    out("rank.error", type="NoPrompt", message=message, source="split it")
    try:
        open(home + "/models/x")
    except OSError:
        traceback.print_exc()
    sys.exit(1)
out("prompt", words=2)
"""


def contents(bundle: Path) -> dict[str, bytes]:
    """What a plain tar finds in a bundle."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(bundle.read_bytes()))) as file:
        return {member.name: file.extractfile(member).read() for member in file}  # type: ignore[union-attr]


@pytest.mark.whole
def test_a_bundle_is_the_same_each_time_and_holds_what_the_index_says(
    ann: Person, project: Project
) -> None:
    """Two bundles of one run are byte-equal, wherever it was copied to.

    Every member has its size and sha256.
    """
    place = project()
    ran = ann("run", WORDS, cwd=place)
    one, other = ann.folder / "one", ann.folder / "other"
    assert ann("bundle", str(ran.folder), "--out", str(one), cwd=place).code == 0
    moved = ann.folder / "moved"
    ran.folder.rename(moved)
    for path in moved.rglob("*"):
        path.chmod(0o755)
    done = ann(
        "bundle",
        str(moved / "report.md"),
        "--out",
        str(other),
        env={"TZ": "Asia/Tokyo", "LANG": "C"},
    )
    assert done.code == 0, done.out
    assert one.read_bytes() == other.read_bytes()
    found = contents(one)
    index = Index.model_validate_json(found.pop("index.json"))
    assert {member.path: (member.size, member.sha256) for member in index.members} == {
        path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in found.items()
    }
    for path in (
        "report.md",
        "results.json",
        "MANIFEST.sha256",
        "evidence/run.json",
        "evidence/scenario.yaml",
    ):
        assert found[f"run/{path}"] == (moved / path).read_bytes()
    for arm in ("candidate", "control"):
        assert found[f"run/evidence/source/{arm}/rank.sh"] == RANK.encode()


@pytest.mark.whole
def test_a_bundle_is_verified_and_shown_as_its_run_is(
    usual: tuple[Person, Ran], bob: Person
) -> None:
    """`verify` and `show` take a bundle as they take a run, with the same words and codes, and
    leave nothing.
    """
    ann, ran = usual
    bundle = bob.folder / "run.rankproof.tar.xz"
    assert ann("bundle", str(ran.folder), "--out", str(bundle)).code == 0
    (empty := bob.folder / "tmp").mkdir()

    def told(command: str, what: Path) -> tuple[int, str]:
        done = bob(command, str(what), env={"TMPDIR": str(empty)})
        said = done.out
        for place in (ran.report, ran.folder, bundle):
            said = said.replace(str(place), "IT")
        return done.code, re.sub(r"as of .* UTC", "as of now", said)

    assert told("verify", bundle) == told("verify", ran.folder)
    assert told("verify", bundle)[0] == 3
    bob.trusts = [ann.fingerprint]
    assert told("verify", bundle) == told("verify", ran.folder)
    assert told("verify", bundle)[0] == 0
    assert told("show", bundle) == told("show", ran.folder)
    assert told("show", bundle)[0] == 0
    bundle.write_bytes(bundle.read_bytes()[:-40])
    for command, code in (("verify", 3), ("show", 64)):
        found = told(command, bundle)
        assert found[0] == code, found
        assert "the bundle is not safe to unpack" in found[1]
    assert list(empty.iterdir()) == []


@pytest.mark.whole
def test_nothing_planted_leaves_the_machine(ann: Person, project: Project) -> None:
    """Values of variables, a token in the remote's address, user, host and home folder are in no
    file of a bundle.
    """
    text = SCENARIO.replace('[sh, rank.sh, "{fixed}"]', '[python3, rank.py, "{fixed}", "{rest}"]')
    text = text.replace('fixed: "yes"', 'fixed: "yes", rest: somewhere').replace(
        'fixed: "no"', 'fixed: "no", rest: elsewhere'
    )
    place = project(
        {f"{WORDS}/scenario.yaml": text, f"{WORDS}/rank.py": CHATTY, f"{WORDS}/rank.sh": ""}
    )
    git(
        place,
        "remote",
        "add",
        "origin",
        "https://quentin.quibble:tok3n-in-url@example.org/~quentin.quibble/x.git?key=tok3n-in-query",
    )
    (place / WORDS / "rank.py").write_text(CHATTY + "# changed\n")
    planted = {
        "AWS_SECRET_ACCESS_KEY": "planted-secret-value",
        "HF_TOKEN": "hf_planted_token",
        "MY_OWN": "planted-own-value",
        "USER": "quentin.quibble",
        "LOGNAME": "quentin.quibble",
        "HOSTNAME": "planted-host-name",
        "MLX_HOSTFILE": f"{ann.folder / 'home'}/hosts.json",
        "NCCL_DEBUG_FILE": "quentin.quibble/nccl",
    }
    ran = ann("run", WORDS, cwd=place, env=planted)
    assert ran.record.judgement.verdict == "PASS", ran.out
    assert ran.record.run.source.origin == "https://example.org/~/x.git"
    assert ran.record.run.environment.variables["MLX_HOSTFILE"] == "~/hosts.json"
    bundle = ann.folder / "bundle"
    done = ann("bundle", str(ran.folder), "--out", str(bundle), cwd=place, env=planted)
    assert done.code == 0, done.out
    needles = [
        *(
            "planted-secret-value",
            "hf_planted_token",
            "planted-own-value",
            "planted-host-name",
            "tok3n",
            "quentin.quibble",
        ),
        str(ann.folder / "home"),
        str(place),
    ]
    needles += sorted(names.hosts() | names.users())
    found = contents(bundle)
    for path, data in found.items():
        for needle in needles:
            assert needle.encode() not in data, (path, needle)
    log = next(data for path, data in found.items() if path.endswith("control-00000/rank-1.log"))
    assert b"<user>" in log
    assert b"~/models/x" in log


def test_a_leak_that_is_the_authors_own_is_found(ann: Person, project: Project) -> None:
    """A secret or a name in the code itself stops the bundle with the place.

    A kind can be let out by name.
    """
    home = ann.folder / "home"
    place = project(
        {f"{WORDS}/rank.sh": RANK + f"# ask mary.jane\n# see {home}/notes\n# hf_planted_token\n"}
    )
    env = {"HF_TOKEN": "hf_planted_token", "USER": "mary.jane", "LOGNAME": "mary.jane"}
    ran = ann("run", WORDS, cwd=place, env=env)
    out = ann.folder / "bundle"
    stopped = ann("bundle", str(ran.folder), "--out", str(out), cwd=place, env=env)
    assert stopped.code == 2
    for words in (
        "the value of HF_TOKEN (secret)",
        "the user's name (user)",
        "the path of the home folder (home)",
    ):
        assert words in stopped.out
    assert "run/evidence/source/candidate/rank.sh:" in stopped.out
    assert "hf_planted_token" not in stopped.out
    assert not out.exists()
    allowed = [word for kind in ("home", "secret", "user") for word in ("--allow", kind)]
    assert ann("bundle", str(ran.folder), "--out", str(out), *allowed, cwd=place, env=env).code == 0


@pytest.mark.whole
def test_only_a_finished_run_as_it_was_signed_is_bundled(ann: Person, project: Project) -> None:
    """An edited, an added, a missing file, an unfinished folder, a link and a file in the way are
    refused by name.
    """
    place = project()
    ran = ann("run", WORDS, cwd=place)
    out = ann.folder / "bundle"
    events = next(ran.folder.rglob("events.jsonl"))
    data = events.read_bytes()

    def refused(words: str, *more: str) -> None:
        done = ann("bundle", str(ran.folder), "--out", str(out), *more, cwd=place)
        assert (done.code, words in done.out) == (64, True), done.out
        assert not out.exists() or out.read_text() == "mine"

    events.write_bytes(data + b"\n")
    refused(
        "was changed after it was signed; restore the run as it was signed, and bundle it again"
    )
    events.unlink()
    refused("is missing")
    events.symlink_to("/etc/passwd")
    refused("is a link")
    events.unlink()
    events.write_bytes(data)
    (ran.folder / "evidence" / "notes.txt").write_text("mine")
    refused("is not part of the run")
    (ran.folder / "evidence" / "notes.txt").unlink()
    refused("the run has no input nothing", "--input", "nothing=/etc/passwd")
    out.write_text("mine")
    refused("already exists; remove it, or choose another file with --out")
    (ran.folder / "report.md").unlink()
    refused("is not a finished run")


def test_inputs_are_carried_up_to_a_limit(ann: Person, project: Project, tmp_path: Path) -> None:
    """Inputs are carried as they were given to the run, or named by digest with the reason."""
    text = SCENARIO.replace(
        "matrix:", "inputs: {small: {path: data}, large: {path: large.bin}}\nmatrix:"
    )
    large = "x" * (2 * 2**20)
    place = project(
        {f"{WORDS}/scenario.yaml": text, f"{WORDS}/data/a/b": "b", f"{WORDS}/large.bin": large}
    )
    ran = ann("run", WORDS, cwd=place)
    out = ann.folder / "bundle"
    done = ann("bundle", str(ran.folder), "--out", str(out), "--inputs-limit", "1", cwd=place)
    assert done.code == 0, done.out
    assert "input large is not included, only its digest" in done.out
    with out.open("rb") as file:
        index = unpack(file, tmp_path / "unpacked")
    assert [(one.name, one.carried) for one in index.inputs] == [("small", True), ("large", False)]
    assert (tmp_path / "unpacked" / "inputs" / "small" / "a" / "b").read_text() == "b"
    (place / WORDS / "data" / "a" / "b").write_text("c")
    changed = ann("bundle", str(ran.folder), "--out", str(ann.folder / "more"), cwd=place)
    assert (
        "input small is not included, only its digest: the files at that path differ from the"
        " files that the run used" in changed.out
    )


@pytest.mark.whole
def test_inputs_are_carried_of_a_scenario_outside_a_repository(ann: Person, tmp_path: Path) -> None:
    """They are found where the run had them, whoever calls from where, and taken only if they are
    still the same.
    """
    place, elsewhere = ann.folder / "loose", ann.folder / "elsewhere" / "other.txt"
    given = (
        "{words: {path: words.txt}, own: {path: data}, far: {path: x}, made: {layouts:"
        " [gpt2-files]}}"
    )
    files = {
        "scenario.yaml": SCENARIO.replace("matrix:", f"inputs: {given}\nmatrix:"),
        "rank.sh": RANK,
    }
    for path, text in {**files, "words.txt": "two words\n", "data/a/b": "b"}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    elsewhere.parent.mkdir()
    elsewhere.write_text("far")
    ran = ann("run", str(place), "--set", f"inputs.far={elsewhere}")
    assert ran.record.run.source.commit is None, ran.out

    def carried(name: str, **env: str) -> tuple[dict[str, str], Path]:
        done = ann("bundle", str(ran.folder), "--out", str(ann.folder / name), env=env)
        assert done.code == 0, done.out
        with (ann.folder / name).open("rb") as file:
            index = unpack(file, tmp_path / name)
        return {one.name: one.why_not for one in index.inputs}, tmp_path / name / "inputs"

    found, folder = carried("whole")
    assert found == {"words": "", "own": "", "far": "", "made": ""}
    assert (folder / "words" / "words.txt").read_text() == "two words\n"
    assert (folder / "own" / "a" / "b").read_text() == "b"
    assert (folder / "far" / "other.txt").read_text() == "far"
    assert [*(folder / "made").rglob("vocab.json")] != []
    elsewhere.write_text("changed")
    (place / "words.txt").unlink()
    found, _ = carried("less")
    assert found["far"] == "the files at that path differ from the files that the run used"
    assert (
        "it was not found on this machine; pass its path with --input NAME=PATH" in found["words"]
    )
    assert (found["own"], found["made"]) == ("", "")
    found, _ = carried("another-user", XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert all("it was not found on this machine" in why for why in found.values())


def test_secrets_are_told_by_the_names_of_variables() -> None:
    """Values are looked for where a name speaks of a secret.

    Short ones, people and paths that exist are not.
    """
    environ = {
        "API_KEY": "0123456789",
        "TOKEN": "short",
        "GIT_AUTHOR_NAME": "Mary Jane",
        "SSH_AUTH_SOCK": "/etc/passwd",
    }
    needles = LeakNeedles(environ=environ)
    assert [
        leak.what for leak in needles.look("a", b"x\n0123456789 short Mary Jane /etc/passwd")
    ] == ["the value of API_KEY"]
    assert needles.look("a", b"x\n0123456789")[0].line == 2
    assert not LeakNeedles(environ=environ, allowed=["secret"]).look("a", b"0123456789")


def test_a_private_key_among_the_code_is_found(tmp_path: Path) -> None:
    """A key lies in the copy where `subject.path` took in more than was meant.

    Talk of one is none.
    """
    key = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    needles = LeakNeedles(environ={})
    assert [(leak.kind, leak.what) for leak in needles.look("a", key.read_bytes())] == [
        ("secret", "a private key")
    ]
    patch = b"".join(b"+" + line for line in key.read_bytes().splitlines(keepends=True))
    assert [leak.line for leak in needles.look("a.patch", b"@@ -0,0 @@\n" + patch)] == [2]
    assert not needles.look("a", key.with_suffix(".pub").read_bytes())
    assert not needles.look("a", b'if text.startswith("-----BEGIN PRIVATE KEY-----\\n"):\n')
    assert not LeakNeedles(environ={}, allowed=["secret"]).look("a", key.read_bytes())
