"""What a gate asks of the environments that arms ran in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from harness.gate.basis import read_basis
from harness.gate.discrepancies import differs
from harness.gate.objects import Objects
from harness.gate.rules import RULES
from harness.record.facts import ArmEnvironmentFacts, CheckoutFacts, StartFile
from harness.record.model import Record
from harness.scenario.environment import Checkout, Environment
from tests.kit.pull_requests import POLICY, Copy, Place

Make = Callable[[], Copy]


def test_what_an_environment_is_made_from(place: Place, copy: Make) -> None:
    """A file of requirements is the trusted one, and a checkout is named by its whole commit, in
    either arm.
    """
    text = f"own==1.0 --hash=sha256:{'1' * 64}\n"
    file = {"scenarios/words/requirements.txt": text}
    place.trust(file)
    place.propose(file)
    basis = read_basis(
        Objects(place.repo),
        commit="HEAD",
        path=".rankproof/policy.yaml",
        ref="origin/main",
        now=datetime.now(UTC),
    )
    record = Record.decode(
        (copy().facts(source={"commit": place.commit}).sign().folder / "results.json").read_bytes()
    )
    trusted = basis.scenarios["words"]
    asked = Environment(
        requirements="requirements.txt", packages={"other": Checkout(path="../other")}
    )
    subject = trusted.scenario.subject.model_copy(update={"environment": asked})
    known = replace(trusted, scenario=trusted.scenario.model_copy(update={"subject": subject}))

    def ran(kept: str, *, rev: str, commit: str) -> tuple[str, ...]:
        built = CheckoutFacts(
            repo="./other",
            rev=rev,
            commit=commit,
            tree="2" * 40,
            folder="",
            changed=False,
            wheel="other.whl",
            files={},
        )
        own = ArmEnvironmentFacts(
            python="3.13.0",
            implementation="cpython",
            packages=[],
            requirements=hashlib.sha256(kept.encode()).hexdigest(),
            checkouts={"other": built},
        )
        made = record.model_copy(
            update={"run": record.run.model_copy(update={"environments": {"candidate": own}})}
        )
        return differs(made, known, basis, lambda _name: kept.encode())

    whole = "3" * 40
    assert ran(text, rev=whole, commit=whole) == ()
    assert ran(text, rev="HEAD", commit=place.commit) == (), "the commit under test"
    assert ran(text, rev="HEAD", commit=whole) == (
        (
            "the candidate's other from HEAD of ./other may be any commit; write the full id of"
            " the commit in the scenario"
        ),
    )
    assert ran(f"{text}# more\n", rev=whole, commit=whole) == (
        "the candidate's requirements file differs from the trusted file",
    )


def test_what_python_reads_at_the_start_of_an_arm(place: Place, copy: Make) -> None:
    """A `.pth` file of an arm's own environment is held against the policy.

    Of other machines nothing is known.
    """
    place.policy(base=POLICY + "environment: {start_files: []}\n")
    basis = read_basis(
        Objects(place.repo),
        commit="HEAD",
        path=".rankproof/policy.yaml",
        ref="origin/main",
        now=datetime.now(UTC),
    )
    record = Record.decode(
        (copy().facts(environment={"start_files": []}).sign().folder / "results.json").read_bytes()
    )
    evil = StartFile(name="evil.pth", sha256="0" * 64)
    own = ArmEnvironmentFacts(
        python="3.13.0", implementation="cpython", packages=[], start_files=[evil]
    )

    def ruled(**changed: Any) -> str:
        report: Any = SimpleNamespace(
            record=record.model_copy(update={"run": record.run.model_copy(update=changed)})
        )
        required: Any = None
        return RULES["start_files"](basis, required, report)[0]

    assert ruled() == "MET"
    assert ruled(environments={"control": own}) == "REFUSED"
    assert ruled(machines=SimpleNamespace()) == "CANNOT TELL"
    assert ruled(farm=SimpleNamespace()) == "CANNOT TELL"
