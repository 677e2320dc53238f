"""What a statement for machines says of a record, and each word against one that is not that of the
report.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.reason import RefusalWord
from harness.trust import sshsig, statement
from harness.trust.footer import SignatureRefusal
from harness.trust.sshsig import NAMESPACE_ATTESTATION, armour
from harness.trust.statement import PAYLOAD_TYPE
from tests.kit.records import cell, record
from tests.trust.test_edges import blob

NIX = {
    **dict.fromkeys(("shell", "flake_lock_sha256", "wheels_sha256", "nixpkgs", "source")),
    "environment": "/nix/store/x-rankproof",
    "as_locked": True,
    **{name: [] for name in ("stale", "changed", "untracked", "driver")},
}
OWN, OTHER = (sshsig.parse(armour(blob(key=letter * 32))).fingerprint for letter in (b"k", b"o"))


def built(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = statement.build(
        record(*cells, **more), report="1" * 64, manifest="2" * 64, source_files="3" * 64
    )
    found: dict[str, Any] = json.loads(made)
    return found


def checked(
    payload: bytes,
    *keys: bytes,
    kind: str = PAYLOAD_TYPE,
    namespace: str = NAMESPACE_ATTESTATION,
    fits: bool = True,
    rebuilt: bytes = b"{}",
) -> SignatureRefusal | str:
    signed = [
        ("x", armour(blob(key=key * 32, namespace=namespace.encode()))) for key in keys or (b"k",)
    ]
    envelope = statement.encode_envelope(payload, payload_type=kind, signatures=signed)
    return statement.check(envelope, rebuilt=rebuilt, fingerprint=OWN, fits=lambda *_: fits)


def test_a_statement_of_the_report_is_accepted_and_others_may_sign_beside() -> None:
    """Whoever signs beside the key of the report is named, and counts for nothing."""
    assert checked(b"{}") == "the statement belongs to this report and has the same key"
    both = checked(b"{}", b"k", b"o")
    assert isinstance(both, str)
    assert both.endswith(f"; also signed by {OTHER}, which was not checked")


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (
            statement.check(b"x", rebuilt=b"{}", fingerprint=OWN, fits=lambda *_: True),
            "STATEMENT MALFORMED",
        ),
        (checked(b"{}", kind="text/plain"), "STATEMENT MALFORMED"),
        (checked(b"{}", b"o"), "STATEMENT BY ANOTHER KEY"),
        (checked(b"{}", namespace="report@rankproof"), "STATEMENT WRONG NAMESPACE"),
        (checked(b"{}", fits=False), "STATEMENT BADLY SIGNED"),
        (checked(b"{ }"), "STATEMENT DIFFERS"),
        (checked(b"{"), "STATEMENT MALFORMED"),
    ],
)
def test_a_statement_that_is_not_the_reports(found: SignatureRefusal | str, word: str) -> None:
    """Each fault has its own word."""
    assert isinstance(found, SignatureRefusal)
    assert found.word == RefusalWord(word)


@pytest.mark.parametrize(
    ("place", "word"),
    [
        (("_type",), "STATEMENT MALFORMED"),
        (("predicateType",), "STATEMENT MALFORMED"),
        (("subject",), "STATEMENT OF ANOTHER REPORT"),
        (("predicate", "result"), "STATEMENT OF ANOTHER RESULT"),
        (("predicate", "passedTests"), "STATEMENT OF ANOTHER RESULT"),
        (("predicate", "failedTests"), "STATEMENT OF ANOTHER RESULT"),
        (("predicate", "configuration"), "STATEMENT OF ANOTHER COMMIT"),
    ],
)
def test_where_a_statement_differs(place: tuple[str, ...], word: str) -> None:
    """The first difference decides the word, and the message has the place and both values."""
    own = built()
    said = json.loads(json.dumps(own))
    holder = said
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = "x" * 300
    difference = statement.disagreement(json.dumps(said).encode(), json.dumps(own).encode())
    assert difference is not None
    assert difference[0] == RefusalWord(word)
    if place[-1] != "configuration":
        assert f"its {'.'.join(place)} is " in difference[1]
        assert f'"{"x" * 199}...,' in difference[1]


def test_a_statement_differs_from_itself_in_nothing() -> None:
    """Equal bytes agree, whatever they are.

    A long value is cut at 200 characters and no earlier.
    """
    assert statement.disagreement(b"x", b"x") is None
    for size, is_cut in ((198, False), (199, True)):
        said = json.dumps({"_type": "x" * size}).encode()
        difference = statement.disagreement(said, b"{}")
        assert difference is not None
        assert ("..." in difference[1]) is is_cut


@pytest.mark.parametrize(
    "listed", ["x", [1], [{"digest": 1}], [{"name": "other", "digest": {"sha256": "0"}}]]
)
def test_only_commits_and_trees_are_compared_as_commits(listed: Any) -> None:
    """Anything else in the configuration is no commit.

    Where the commits agree the rest only differs.
    """
    nothing = {"predicate": {"configuration": []}}
    said = {"predicate": {"configuration": listed}}
    difference = statement.disagreement(json.dumps(said).encode(), json.dumps(nothing).encode())
    assert difference is not None
    assert difference[0] == RefusalWord.STATEMENT_DIFFERS


def test_tests_that_passed_and_failed() -> None:
    """A cell is passed, failed or neither: what is open failed, what was skipped is not there."""
    skipped = {**cell("s"), "verdict": "SKIPPED", "candidate": None, "control": None}
    found = built(
        cell("p"), cell("f", candidate=("fail",) * 5), cell("i", verdict="INCONCLUSIVE"), skipped
    )
    predicate = found["predicate"]
    assert (predicate["result"], predicate["passedTests"]) == ("FAILED", ["meet[p]"])
    assert predicate["failedTests"] == ["meet[f]", "meet[i]"]
    rows = {row["name"]: row for row in predicate[statement.EXTENSION]["cells"]}
    assert rows["meet[f]"]["candidate"]["failed"] == 5
    assert rows["meet[f]"]["control"]["asStated"] == 5
    assert rows["meet[s]"].keys().isdisjoint({"candidate", "control"})
    assert built(cell("p"))["predicate"]["result"] == "PASSED"


def test_what_a_run_was_made_with() -> None:
    """Commit, tree and lock where they are known, and where not, no word of them."""

    def names(**more: Any) -> list[str]:
        return [one["name"] for one in built(**more)["predicate"]["configuration"]]

    assert names() == ["commit", "tree", "evidence/scenario.yaml", "rankproof"]
    assert names(source={"commit": None, "tree": None}) == ["evidence/scenario.yaml", "rankproof"]
    locked = {"lock": "cpu.txt", "lock_sha256": "4" * 64}
    assert "lock cpu.txt" in names(environment=locked)
    assert "lock unnamed" in names(environment={**locked, "lock": None})
    assert built()["predicate"][statement.EXTENSION]["nix"] is None
    assert (
        built(environment={"nix": NIX})["predicate"][statement.EXTENSION]["nix"]
        == "/nix/store/x-rankproof"
    )
