"""Everything a signer can do to a run's folder, one change at a time and several together."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.record.witness import CONTRADICTIONS
from harness.run.replay import RecordReplay
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy
from harness.trust.verification import Verification
from tests.kit import command_server, forge
from tests.kit.commands import environment
from tests.run.mutations import (
    DIFFERENT,
    OLD,
    OPERATORS,
    SCENARIO,
    SUBJECT,
    Copy,
    Operator,
    read,
    write,
)

pytestmark = pytest.mark.slow
TOGETHER = 3
several = st.lists(
    st.sampled_from(OPERATORS), min_size=1, max_size=TOGETHER, unique_by=lambda one: one.name
)


EXAMPLES = 25
NAMED = b'ci namespaces="report@rankproof,attestation@rankproof" '


class Place:
    """A real run, its key, and room for a copy."""

    def __init__(self, root: Path, room: Path) -> None:
        self._key, self._room = root / "key", room
        folder = root / "scenario"
        folder.mkdir()
        files = {
            "scenario.yaml": SCENARIO,
            "subject.py": SUBJECT,
            "old.py": OLD,
            "words.txt": "meet\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._key], check=True)
        given = (
            "--results",
            str(root / "results"),
            "--key",
            str(self._key),
            "--set",
            "trials.accept.confidence=90%",
        )
        given = ("run", str(folder), *given, "--jobs", "1")
        done = command_server.run(*given, cwd=root, env=environment(root / "home"))
        assert done.returncode == 0, done.stdout + done.stderr
        self._original = (root / "results/latest").resolve()
        self._policy = SignerPolicy(allowed=NAMED + self._key.with_suffix(".pub").read_bytes())

    def copy(self, seed: int = 0) -> Copy:
        shutil.rmtree(self._room / "copy", ignore_errors=True)
        shutil.copytree(self._original, self._room / "copy")
        return Copy(self._room / "copy", random.Random(seed))

    def verify(self, copy: Copy) -> Verification:
        return verify_folder(copy.folder / forge.REPORT, policy=self._policy, replay=RecordReplay())

    def sign(self, copy: Copy) -> Verification:
        forge.sign(copy.folder, self._key, views=False)
        return self.verify(copy)

    def refuse(self, operators: Sequence[Operator], *, seed: int = 0) -> Verification:
        """What verification finds once the changes are signed.

        Unsigned they must have been refused.
        """
        copy = self.copy(seed)
        # What is consistent goes first, so that it mends nothing of the rest; what removes trials
        # goes last.
        for one in sorted(operators, key=lambda one: (bool(one.words), one.removes)):
            one.change(copy)
        unsigned = self.verify(copy)
        assert not unsigned.ok
        assert unsigned.word not in {*CONTRADICTIONS, DIFFERENT}
        forge.work_out(copy.folder)
        for one in operators:
            if one.on_record:
                one.change(copy)
        return self.sign(copy)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    # Hundreds of copies of small files: in memory, where the system has such a folder.
    memory = Path("/dev/shm")  # noqa: S108 - only a folder of our own in it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as room:
        yield Place(tmp_path_factory.mktemp("mutations"), Path(room))


def test_there_are_enough_operators_and_each_word_has_some() -> None:
    """At least forty ways to change a run, and every word of the closed list is somebody's."""
    assert len({one.name for one in OPERATORS}) == len(OPERATORS) >= 40
    assert {word for one in OPERATORS for word in one.words} == {*CONTRADICTIONS, DIFFERENT}


def test_the_forger_writes_what_verifies(place: Place) -> None:
    """The run verifies, and so does what the forger signs without a change: nothing is refused for
    the pen.
    """
    copy = place.copy()
    assert place.verify(copy).ok
    forge.rebind(copy.folder)
    forge.work_out(copy.folder)
    found = place.sign(copy)
    assert found.ok, found


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_each_change_alone(place: Place, operator: Operator) -> None:
    """Unsigned, every change is refused.

    Signed again, by the words of the closed list, and the rest verifies.
    """
    found = place.refuse([operator])
    if operator.words:
        assert found.word in operator.words, found
    else:
        assert found.ok, found


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(operators=several, seed=st.integers(0, 1000))
def test_changes_together(place: Place, operators: list[Operator], seed: int) -> None:
    """However changes are put together: unsigned all are refused, signed again all with one of the
    closed list.
    """
    found = place.refuse(operators, seed=seed)
    words = {word for one in operators for word in one.words}
    assert found.ok is not bool(words)
    assert found.ok or found.word in {*words, DIFFERENT}, found


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("kind: no-survivors", "kind: telepathy", "check 'telepathy'"),
        (
            "checks:",
            "faults:\n  - {id: x, kind: gremlin, ranks: every}\nchecks:",
            "fault 'gremlin'",
        ),
        ("backend: [none]", "backend: [none, carrier-pigeon]", "backend 'carrier-pigeon'"),
        ("entry: subject:meet", "use: torch-oracle", "subject 'torch-oracle'"),
        ("schema: 1", "schema: 2", "schema 2"),
    ],
)
def test_a_kind_that_is_not_known_is_not_judged(
    place: Place, old: str, new: str, what: str
) -> None:
    """A check, fault, backend or subject of another version or plug-in accuses nobody: NOT JUDGED,
    and which it is.
    """
    copy = place.copy()
    copy.scenario(old, new)
    forge.work_out(copy.folder)
    found = place.sign(copy)
    assert (found.word, found.ok) == ("NOT JUDGED", False)
    assert what in found.message


def test_a_trial_that_says_nothing_of_what_it_is_made_of_is_refused(place: Place) -> None:
    """No run writes such a trial: it is refused like one that is made of something else."""
    copy = place.copy()
    for path in copy.every:
        first, *rest = read(path)
        first["values"].pop("recipe")
        write(path, [first, *rest])
    forge.work_out(copy.folder)
    assert place.sign(copy).word == "EVENTS OF ANOTHER TRIAL"
