"""Verification: an ordered, pure state machine. Files, processes and clocks are somebody else's.

The rules, in the order in which they are applied. Each refusal has its own word.

 1. footer    The report ends with exactly one signature block, and nothing behind it.
              NO REPORT, UNSIGNED, TRUNCATED, TEXT AFTER SIGNATURE, TWO SIGNATURES, MALFORMED FOOTER
 2. signature The signature is over exactly the bytes above it, in the namespace of reports.
              BAD SIGNATURE, WRONG NAMESPACE
 3. signer    The key is one the verifier's own side allows, for reports, at the time asked for.
              UNKNOWN SIGNER, SIGNER NOT ALLOWED HERE, SIGNER EXPIRED, SIGNER REVOKED
 4. manifest  MANIFEST.sha256 is the one whose digest the signed body states, and is written the
              one accepted way.
              MANIFEST MISSING, MANIFEST NOT THE SIGNED ONE, MANIFEST MALFORMED
 5. files     Every file it lists is a regular file inside the folder, with that digest.
              EVIDENCE MISSING, EVIDENCE EDITED, EVIDENCE IS A LINK, EVIDENCE TOO LARGE
 6. unlisted  The folder holds nothing else.
              UNLISTED FILE
 7. judged    The evidence does not contradict itself (`harness.record.witness`), and the verdicts
              follow from it.
              EVENTS SHARED, EVENTS OF ANOTHER TRIAL, EVENTS OUT OF TIME, SECONDS TOO SHORT, TRIALS
              NOT PLANNED, SKIP CONTRADICTED, JUDGED DIFFERENTLY, NOT JUDGED
 8. rendered  The body is what the record renders to, byte for byte, and the record names the key
              that signed it.
              RENDERED DIFFERENTLY, SIGNED BY ANOTHER KEY, NOT RENDERED
 9. statement The statement for machines, where there is one, is signed by the key of the report in
              its own namespace, and is what record and report make, byte for byte.
              STATEMENT UNREADABLE, STATEMENT MALFORMED, STATEMENT BY ANOTHER KEY, STATEMENT WRONG
              NAMESPACE, STATEMENT BADLY SIGNED, STATEMENT OF ANOTHER REPORT, STATEMENT OF ANOTHER
              RESULT, STATEMENT OF ANOTHER COMMIT, STATEMENT DIFFERS, STATEMENT NOT REBUILT
10. views     Every view that is there is what the record renders to, byte for byte.
              VIEW UNREADABLE, VIEW EDITED, VIEW NOT RENDERED

Nothing that a later rule reads is trusted before the earlier ones have passed, so a step refuses to
run out of order (`OutOfOrder`). A refusal ends the verification. The words in `WEAK` are weaker
than the rest: they say that this program could not do the step. They refuse as well, but the steps
after them still run, and a caller who passes `allow_unjudged=True` accepts a report that has no
other fault.

Statement and views may be missing, for the report stands without them; such a step is `absent`, and
the message names what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal

from harness.forms.digest import sha256
from harness.forms.manifest import NAME as MANIFEST
from harness.forms.manifest import ManifestMalformed, parse
from harness.forms.text import plural, visible
from harness.reason import RefusalWord
from harness.trust import statement
from harness.trust.footer import (
    Footer,
    SignatureRefusal,
    first_difference,
    repair_of,
    repaired,
    split,
    stated_manifest,
    stated_time,
)
from harness.trust.replay import CannotJudge, CannotRender, Read, Replay
from harness.trust.signers import SignerPolicy, choose
from harness.trust.sshsig import (
    NAMESPACE_ATTESTATION,
    NAMESPACE_REPORT,
    MalformedSignature,
    Ssh,
    SshSignature,
)
from harness.trust.sshsig import parse as parse_signature

STEPS = (
    "footer",
    "signature",
    "signer",
    "manifest",
    "files",
    "unlisted",
    "judged",
    "rendered",
    "statement",
    "views",
)
WEAK = frozenset(
    {
        RefusalWord.NOT_JUDGED,
        RefusalWord.NOT_RENDERED,
        RefusalWord.STATEMENT_NOT_REBUILT,
        RefusalWord.VIEW_NOT_RENDERED,
    }
)


class Refused(Exception):
    """A rule was broken. `word` is one of those listed above, `message` says what and where."""

    def __init__(self, word: RefusalWord, message: str) -> None:
        super().__init__(word, message)
        self.word = word
        self.message = message


class OutOfOrder(RuntimeError):
    """A step was asked for before the ones it rests on had passed: a mistake in the program, not in
    a report.
    """


@dataclass(frozen=True)
class VerificationStep:
    """One step and what became of it."""

    name: str
    outcome: Literal["passed", "absent", "refused", "not reached"]
    word: str = ""
    message: str = ""


@dataclass(frozen=True)
class Verification:
    """What verification found. `word` is OK or the word of the first refusal.

    Only `ok` says whether to accept.
    """

    steps: tuple[VerificationStep, ...]
    ok: bool
    word: str
    message: str
    signer: str | None
    fingerprint: str | None
    is_mine: bool = False
    """Whether only the policy's own keys accept it, and no list or fingerprint that was given."""
    key: str | None = None
    """Fingerprint of the key that signed: another one than `fingerprint` where that is a
    certificate's.
    """


@dataclass
class Verifier:
    """State of one verification. Call the methods in the order of the rules.

    Each raises `Refused` or passes.
    """

    ssh: Ssh
    policy: SignerPolicy
    now: datetime
    signer: str | None = None
    fingerprint: str | None = None
    is_mine: bool = False
    _footer: Footer | None = None
    _signature: SshSignature | None = None
    _digest: str = ""
    _digests: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _steps: list[VerificationStep] = field(default_factory=list)
    _stopped: bool = False

    def take_report(self, report: bytes) -> None:
        """Rule 1."""
        self._begin("footer")
        footer = split(report)
        if not isinstance(footer, Footer):
            raise self._refusal(footer.word, footer.message + self._repair(report))
        self._footer = footer
        self._pass("one signature block, at the end")

    def refuse_report(self, message: str) -> Refused:
        """Rule 1, where no report can be read."""
        self._begin("footer")
        return self._refusal(RefusalWord.NO_REPORT, message)

    def check_signature(self, report: bytes) -> None:
        """Rule 2. `report` is only used to explain a bad signature."""
        self._begin("signature")
        footer = self._the_footer
        try:
            signature = parse_signature(footer.signature)
        except MalformedSignature as problem:
            raise self._refusal(
                RefusalWord.BAD_SIGNATURE, f"{problem}{self._repair(report)}"
            ) from None
        if signature.namespace != NAMESPACE_REPORT:
            message = (
                f"the signature is for {signature.namespace!r}, but a report needs"
                f" {NAMESPACE_REPORT!r}"
            )
            raise self._refusal(RefusalWord.WRONG_NAMESPACE, message)
        if not self.ssh.fits(footer.signed, footer.signature, namespace=NAMESPACE_REPORT):
            message = "the text was changed after it was signed" + self._repair(report)
            raise self._refusal(RefusalWord.BAD_SIGNATURE, message)
        self._signature = signature
        self.fingerprint = signature.fingerprint
        self._pass(f"good signature by {signature.fingerprint}")

    def check_signer(self) -> None:
        """Rule 3."""
        self._begin("signer")
        footer = self._the_footer
        signature = self._the_signature
        when, of_whom = self._when(footer)
        line = choose(signature, self.policy, when)
        if isinstance(line, SignatureRefusal):
            raise self._refusal(line.word, line.message)
        # A name that we read ourselves is only a claim: `verify` asks ssh-keygen whether the line
        # is for it.
        name = line.name or self.ssh.find_principal(footer.signature, allowed=line.text, when=when)
        verify = partial(
            self.ssh.verify,
            footer.signed,
            footer.signature,
            allowed=line.text,
            namespace=NAMESPACE_REPORT,
            when=when,
        )
        if name is None or not verify(principal=name):
            word = (
                RefusalWord.UNKNOWN_SIGNER
                if signature.certifier is None
                else RefusalWord.SIGNER_EXPIRED
            )
            where = f"line {line.number} of {self.policy.allowed_from}"
            what = f"ssh-keygen does not accept {signature.fingerprint} for {where}"
            more = (
                ", because the certificate is not valid at that time, or not for this use"
                if signature.certifier
                else ""
            )
            raise self._refusal(word, f"{what} at {when:%Y-%m-%d %H:%M:%S} UTC{more}")
        if self.policy.revoked is not None and not verify(
            principal=name, revoked=self.policy.revoked
        ):
            message = (
                f"{signature.fingerprint} is revoked, or the list of revoked keys cannot be read"
            )
            raise self._refusal(RefusalWord.SIGNER_REVOKED, message)
        self.signer = name
        self.is_mine = line.is_own
        if line.is_own:
            self._pass(f"MINE: signed by your own key, {signature.fingerprint}")
            return
        self._pass(f"{name} may sign reports, as of {when:%Y-%m-%d %H:%M:%S} UTC{of_whom}")

    def take_manifest(self, data: bytes | None, problem: str = "") -> dict[str, str]:
        """Rule 4. Without `data`, `problem` says why there is none.

        Returns path to digest of every file to check.
        """
        self._begin("manifest")
        if data is None:
            raise self._refusal(RefusalWord.MANIFEST_MISSING, problem or f"{MANIFEST} is missing")
        stated = stated_manifest(self._the_footer.body)
        if stated is None:
            message = "the report does not state exactly one digest of its manifest"
            raise self._refusal(RefusalWord.MANIFEST_NOT_THE_SIGNED_ONE, message)
        self._digest = sha256(data)
        if self._digest != stated:
            message = f"{MANIFEST} has sha256 {self._digest}, but the signed report states {stated}"
            undone = repair_of(data, stated)
            raise self._refusal(RefusalWord.MANIFEST_NOT_THE_SIGNED_ONE, message + undone)
        try:
            self._digests = parse(data)
        except ManifestMalformed as malformed:
            raise self._refusal(RefusalWord.MANIFEST_MALFORMED, str(malformed)) from None
        self._pass(f"{len(self._digests)} files, sha256 {self._digest}")
        return dict(self._digests)

    def take_file(self, path: str, digest: str, content: bytes | None = None) -> None:
        """Rule 5, once for each listed file. `content` is only used to explain an edited file."""
        if self._next() != "files":
            self._begin("files")
        if digest != self._digests[path]:
            message = f"{path!r} has sha256 {digest}, but the manifest lists {self._digests[path]}"
            raise self._refusal(
                RefusalWord.EVIDENCE_EDITED,
                message + repair_of(content or b"", self._digests[path]),
            )
        self._seen.add(path)

    def refuse_file(self, word: RefusalWord, message: str) -> Refused:
        """Rule 5, for a file that could not be taken."""
        if self._next() != "files":
            self._begin("files")
        return self._refusal(word, message)

    def take_names(self, names: Sequence[str], checked_elsewhere: frozenset[str]) -> None:
        """Rules 5 (that no file was left out) and 6. `checked_elsewhere` is what other rules
        check.
        """
        missing = self._digests.keys() - self._seen
        if missing or self._next() != "files":
            raise OutOfOrder(f"never checked: {plural(len(missing), 'listed file')}")
        self._pass("every listed file matches its digest")
        self._begin("unlisted")
        extra = sorted(set(names) - self._digests.keys() - checked_elsewhere)
        if extra:
            more = f" and {len(extra) - 5} more" if len(extra) > 5 else ""
            message = (
                "not in the manifest, so the signature does not cover it:"
                f" {', '.join(map(repr, extra[:5]))}{more}"
            )
            raise self._refusal(RefusalWord.UNLISTED_FILE, message)
        self._pass("the folder has no other files")

    def judge(self, replay: Replay, read: Read) -> None:
        """Rule 7."""
        self._begin("judged")
        with self._replayed(RefusalWord.NOT_JUDGED, "the verdicts could not be judged again"):
            if (difference := replay.judge(read, tuple(self._digests))) is not None:
                raise Refused(RefusalWord.JUDGED_DIFFERENTLY, difference)
            self._pass(
                "; ".join(filter(None, ["the verdicts follow from the evidence", replay.arrays]))
            )

    def render(self, replay: Replay, read: Read) -> None:
        """Rule 8."""
        self._begin("rendered")
        with self._replayed(RefusalWord.NOT_RENDERED, "the report could not be rendered again"):
            if (body := replay.render(read, self._digest)) != self._the_footer.body:
                raise Refused(
                    RefusalWord.RENDERED_DIFFERENTLY, first_difference(self._the_footer.body, body)
                )
            named = replay.signer(read)
            signature = self._the_signature
            if named not in (signature.fingerprint, signature.key_fingerprint):
                message = (
                    f"the record names {named or 'no signer'} as its signer, but"
                    f" {signature.fingerprint} signed it"
                )
                raise Refused(RefusalWord.SIGNED_BY_ANOTHER_KEY, message)
            self._pass("the text matches the record, and names the key that signed it")

    def check_statement(self, data: bytes | None, rebuild: Callable[[str], bytes]) -> None:
        """Rule 9. `data` is the envelope, None where there is none; `rebuild` makes its payload,
        given the manifest.
        """
        self._begin("statement")
        if data is None:
            self._steps.append(
                VerificationStep(
                    "statement", "absent", "", ("the folder has no statement for machines")
                )
            )
            return
        with self._replayed(
            RefusalWord.STATEMENT_NOT_REBUILT, "the statement could not be created again"
        ):
            checked = statement.check(
                data,
                rebuilt=rebuild(self._digest),
                fingerprint=self._the_signature.fingerprint,
                fits=lambda signed, armoured: self.ssh.fits(
                    signed, armoured, namespace=NAMESPACE_ATTESTATION
                ),
            )
            if isinstance(checked, SignatureRefusal):
                raise Refused(checked.word, checked.message)
            self._pass(checked)

    def check_views(
        self, views: Mapping[str, bytes | None], rerender: Callable[[str, str], bytes]
    ) -> None:
        """Rule 10. `views` maps the name of each known view to its content; `rerender` is given
        name and manifest.
        """
        self._begin("views")
        there = {name: content for name, content in views.items() if content is not None}
        for name, content in there.items():
            with self._replayed(
                RefusalWord.VIEW_NOT_RENDERED, f"{name} could not be rendered again"
            ):
                if (drawn := rerender(name, self._digest)) != content:
                    how = f"{name}, {first_difference(content, drawn, of='the view')}"
                    how += repair_of(content, sha256(drawn))
                    raise Refused(RefusalWord.VIEW_EDITED, how)
            if self._steps[-1].name == "views":  # it could not be rendered, which is written down
                return
        missing = sorted(views.keys() - there.keys())
        lacking = f"; missing: {', '.join(missing)}" if missing else ""
        if not there:
            self._steps.append(
                VerificationStep("views", "absent", "", f"the folder has no views{lacking}")
            )
            return
        self._pass(f"{', '.join(there)}: match the record{lacking}")

    def refuse_beside(self, word: RefusalWord, message: str) -> Refused:
        """Rules 9 and 10, for a file that is there and cannot be read."""
        self._begin("statement" if word is RefusalWord.STATEMENT_UNREADABLE else "views")
        return self._refusal(word, message)

    def result(self, *, allow_unjudged: bool = False) -> Verification:
        """Return what was found so far; a verification that has not reached its end is not ok."""
        reached = {step.name: step for step in self._steps}
        steps = tuple(reached.get(name, VerificationStep(name, "not reached")) for name in STEPS)
        refused = [step for step in steps if step.outcome == "refused"]
        strong = [step for step in refused if step.word not in WEAK]
        complete = len(reached) == len(STEPS)
        ok = complete and not strong and (allow_unjudged or not refused)
        first = (
            strong
            or refused
            or [VerificationStep("", "passed", "OK" if complete else "NOT COMPLETE", "")]
        )[0]
        message = first.message or (
            f"signed by {self.signer} ({self.fingerprint})"
            if complete
            else ("some steps did not run")
        )
        key = self._signature.key_fingerprint if self._signature is not None else None
        return Verification(
            steps,
            ok,
            first.word,
            message,
            self.signer,
            self.fingerprint,
            is_mine=self.is_mine,
            key=key,
        )

    @property
    def _the_footer(self) -> Footer:
        if self._footer is None:
            raise OutOfOrder("footer")
        return self._footer

    @property
    def _the_signature(self) -> SshSignature:
        if self._signature is None:
            raise OutOfOrder("signature")
        return self._signature

    def _begin(self, name: str) -> None:
        if self._stopped or self._next() != name:
            why = f"the next step is {self._next()!r}" if self._next() else "no step is left"
            if self._stopped:
                why = "an earlier step was refused"
            raise OutOfOrder(f"step {name!r} was requested, but {why}")

    def _next(self) -> str:
        return (
            STEPS[len(self._steps)] if len(self._steps) < len(STEPS) and not self._stopped else ""
        )

    def _pass(self, message: str) -> None:
        self._steps.append(VerificationStep(self._next(), "passed", "", visible(message)))

    @contextmanager
    def _replayed(self, word: RefusalWord, what: str) -> Iterator[None]:
        """Refuse, in its weak word, a step that could not be done.

        What was refused in it ends the verification.
        """
        try:
            yield
        except (CannotJudge, CannotRender) as problem:
            self._steps.append(
                VerificationStep(self._next(), "refused", word, visible(f"{what}: {problem}"))
            )
        except Refused as refused:
            raise self._refusal(refused.word, refused.message) from None

    def _refusal(self, word: RefusalWord, message: str) -> Refused:
        # Names and lines of a stranger's folder end up on a terminal.
        shown = visible(message)
        self._steps.append(VerificationStep(self._next(), "refused", word, shown))
        self._stopped = True
        return Refused(word, shown)

    def _when(self, footer: Footer) -> tuple[datetime, str]:
        at = self.policy.at
        if at == "now":
            return self.now, ""
        if at != "report":
            return at, ""
        stated = stated_time(footer.body)
        if stated is None:
            message = (
                "the report does not state exactly one time of its creation, so `--at report`"
                " cannot be used"
            )
            raise self._refusal(RefusalWord.SIGNER_EXPIRED, message)
        return stated, " (the signer's own claim)"

    def _repair(self, report: bytes) -> str:
        for what, candidate in repaired(report):
            footer = split(candidate)
            if isinstance(footer, Footer) and self.ssh.fits(
                footer.signed, footer.signature, namespace=NAMESPACE_REPORT
            ):
                return f"; the signature is valid once this is undone: {what}"
        return ""
