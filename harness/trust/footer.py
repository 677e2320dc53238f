"""The end of a report: the signature block, and the two lines of the body that a verifier reads.

A report is `body`, then a fixed section that ends with an opening fence, then the signature, then
the closing fence. Signed is every byte before the BEGIN line. There is exactly one such line
anywhere in the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.reason import RefusalWord
from harness.trust.sshsig import BEGIN, END, NAMESPACE_REPORT

HEADING = b"## Signature\n"
SECTION = (
    b"\n"
    + HEADING
    + b"\nThe block below signs every byte above its first line, in the namespace `"
    + NAMESPACE_REPORT.encode()
    + b"`.\nCheck it with `rankproof verify report.md`, or with awk, ssh-keygen and sha256sum"
    b" alone: see `docs/verify.md`.\n\n```text\n"
)
TAIL = b"```\n"

_MANIFEST = re.compile(rb"^Manifest: .*$", re.MULTILINE)
_MANIFEST_EXACT = re.compile(rb"Manifest: `MANIFEST\.sha256` sha256 `([0-9a-f]{64})`")
_MADE = re.compile(rb"^Made: `(.*)`$", re.MULTILINE)


class FooterError(ValueError):
    """A body that cannot be signed."""


@dataclass(frozen=True)
class Footer:
    """A report taken apart."""

    body: bytes
    """What the renderer wrote."""
    signed: bytes
    """The bytes the signature covers: the body and the signature section."""
    signature: bytes
    """The armoured signature, from its BEGIN line to the newline of its END line."""


@dataclass(frozen=True)
class Refusal:
    """Why no signature can be checked, as one of the words that `harness.trust.verification`
    explains.
    """

    word: RefusalWord
    message: str


def signed_part(body: bytes) -> bytes:
    """The bytes to sign for a body.

    Raises:
        FooterError: the body does not end with a newline or holds the first or last line of a
            signature.
    """
    if not body.endswith(b"\n"):
        raise FooterError("the body of a report must end with a newline")
    if BEGIN in body or END in body:
        raise FooterError(
            "the body of a report must not hold the first or last line of a signature"
        )
    return body + SECTION


def attach(body: bytes, signature: bytes) -> bytes:
    """The whole report. `signature` is over `signed_part(body)`, armoured, with its final newline.

    Raises:
        FooterError: the body cannot be signed, or the signature is not one armoured block.
    """
    inner = signature.removeprefix(BEGIN + b"\n").removesuffix(END + b"\n")
    if len(inner) != len(signature) - len(BEGIN) - len(END) - 2 or BEGIN in inner or END in inner:
        raise FooterError("the signature is not one armoured block")
    return signed_part(body) + signature + TAIL


def unsigned_footer(reason: str) -> bytes:
    """The last section of a report that nobody signed.

    Append it to the body instead of a signature.
    """
    shown = "".join(c if c.isprintable() and c != "`" else "?" for c in reason)
    return (
        b"\n" + HEADING + f"\nUNSIGNED: `{shown or 'no reason given'}`\n".encode(errors="replace")
    )


def split(report: bytes) -> Footer | Refusal:
    """Take a report apart, or say which word refuses it."""
    begins = report.count(BEGIN)
    if begins == 0:
        return Refusal(RefusalWord.UNSIGNED, _unsigned(report))
    if begins > 1:
        return Refusal(
            RefusalWord.TWO_SIGNATURES,
            f"the file holds {begins} signature blocks; a report holds one, at its end",
        )
    start = report.index(BEGIN)
    signed, block = report[:start], report[start:]
    ends = block.count(END)
    if ends == 0:
        return Refusal(RefusalWord.TRUNCATED, "the file ends inside the signature")
    if ends > 1 or END in signed:
        return Refusal(
            RefusalWord.MALFORMED_FOOTER,
            "the last line of a signature stands in the file more than once",
        )
    stop = block.index(END) + len(END)
    signature, rest = block[:stop] + b"\n", block[stop:]
    if rest != b"\n" + TAIL:
        return _wrong_end(rest)
    if not signed.endswith(SECTION) or not signature.startswith(BEGIN + b"\n"):
        return Refusal(
            RefusalWord.MALFORMED_FOOTER,
            "the lines that introduce the signature are not the ones a report has",
        )
    return Footer(signed[: -len(SECTION)], signed, signature)


def stated_manifest(body: bytes) -> str | None:
    """The manifest digest a body states, or None if it states none, or more than one."""
    lines = _MANIFEST.findall(body)
    match = _MANIFEST_EXACT.fullmatch(lines[0]) if len(lines) == 1 else None
    return match[1].decode() if match else None


def stated_time(body: bytes) -> datetime | None:
    """The time a body says it was made at, which is the signer's own claim; None if it says none,
    or more than one.
    """
    times = _MADE.findall(body)
    try:
        return (
            datetime.strptime(times[0].decode(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            if len(times) == 1
            else None
        )
    except ValueError:
        return None


def _unsigned(report: bytes) -> str:
    said = re.search(rb"\n## Signature\n\nUNSIGNED: `([^`\n]*)`\n\Z", report)
    if said:
        return f"the report says that nobody signed it: {said[1].decode(errors='replace')}"
    return "this file holds no signature; it was never signed, or its end is missing"


def _wrong_end(rest: bytes) -> Refusal:
    if (b"\n" + TAIL).startswith(rest):
        return Refusal(
            RefusalWord.TRUNCATED, "the file ends before the fence that closes the signature block"
        )
    if rest.startswith(b"\r"):
        return Refusal(
            RefusalWord.MALFORMED_FOOTER, "the lines of the signature end with a carriage return"
        )
    return Refusal(
        RefusalWord.TEXT_AFTER_SIGNATURE,
        "nothing may stand behind the signature: it is not covered by it",
    )
