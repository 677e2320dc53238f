"""The end of a report: the signature block, the two lines of the body that a verifier reads, and
what transports do to a text, undone.

A report is `body`, then a fixed section that ends with an opening fence, then the signature, then
the closing fence. Signed is every byte before the BEGIN line. There is exactly one such line
anywhere in the file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.forms.digest import sha256
from harness.reason import RefusalWord
from harness.trust.sshsig import BEGIN, END, NAMESPACE_REPORT

HEADING = b"## Signature\n"
SECTION = (
    b"\n"
    + HEADING
    + b"\nThe signature below covers every byte above its first line, in the namespace `"
    + NAMESPACE_REPORT.encode()
    + b"`.\nCheck it with `rankproof verify report.md`, or with awk, ssh-keygen and sha256sum"
    b" alone: see `docs/verify.md`.\n\n```text\n"
)
TAIL = b"```\n"

_MANIFEST = re.compile(rb"^Manifest: .*$", re.MULTILINE)
_MANIFEST_EXACT = re.compile(rb"Manifest: `MANIFEST\.sha256` sha256 `([0-9a-f]{64})`")
_MADE = re.compile(rb"^Made: `(.*)`$", re.MULTILINE)


class FooterError(ValueError):
    """Body that cannot be signed."""


@dataclass(frozen=True)
class Footer:
    """Report taken apart."""

    body: bytes
    """What the renderer wrote."""
    signed: bytes
    """The bytes the signature covers: the body and the signature section."""
    signature: bytes
    """The armoured signature, from its BEGIN line to the newline of its END line."""


@dataclass(frozen=True)
class SignatureRefusal:
    """Why no signature can be checked, as one of the words that `harness.trust.verification`
    explains.
    """

    word: RefusalWord
    message: str


def signed_part(body: bytes) -> bytes:
    """Bytes to sign for a body.

    Raises:
        FooterError: the body does not end with a newline or holds the first or last line of a
            signature.
    """
    if not body.endswith(b"\n"):
        raise FooterError("the body of a report must end with a newline")
    if BEGIN in body or END in body:
        raise FooterError(
            "the body of a report must not contain the first or last line of a signature"
        )
    return body + SECTION


def attach(body: bytes, signature: bytes) -> bytes:
    """Return the whole report. `signature` is over `signed_part(body)`, armoured, with its final
    newline.

    Raises:
        FooterError: the body cannot be signed, or the signature is not one armoured block.
    """
    inner = signature.removeprefix(BEGIN + b"\n").removesuffix(END + b"\n")
    if len(inner) != len(signature) - len(BEGIN) - len(END) - 2 or BEGIN in inner or END in inner:
        raise FooterError("the signature is not a single armoured block")
    return signed_part(body) + signature + TAIL


def unsigned_footer(reason: str) -> bytes:
    """Last section of a report that nobody signed.

    Append it to the body instead of a signature.
    """
    shown = "".join(c if c.isprintable() and c != "`" else "?" for c in reason)
    return (
        b"\n" + HEADING + f"\nUNSIGNED: `{shown or 'no reason given'}`\n".encode(errors="replace")
    )


def split(report: bytes) -> Footer | SignatureRefusal:
    """Take a report apart, or say which word refuses it."""
    begins = report.count(BEGIN)
    if begins == 0:
        return SignatureRefusal(RefusalWord.UNSIGNED, _unsigned(report))
    if begins > 1:
        return SignatureRefusal(
            RefusalWord.TWO_SIGNATURES,
            (
                f"the file contains {begins} signature blocks, but a report has one signature block,"
                " at its end"
            ),
        )
    start = report.index(BEGIN)
    signed = report[:start]
    block = report[start:]
    ends = block.count(END)
    if ends == 0:
        return SignatureRefusal(RefusalWord.TRUNCATED, "the file ends inside the signature")
    if ends > 1 or END in signed:
        return SignatureRefusal(
            RefusalWord.MALFORMED_FOOTER,
            "the last line of a signature is in the file more than once",
        )
    stop = block.index(END) + len(END)
    signature = block[:stop] + b"\n"
    rest = block[stop:]
    if rest != b"\n" + TAIL:
        return _wrong_end(rest)
    if not signed.endswith(SECTION) or not signature.startswith(BEGIN + b"\n"):
        return SignatureRefusal(
            RefusalWord.MALFORMED_FOOTER,
            "the lines before the signature do not have the form of a report",
        )
    return Footer(signed[: -len(SECTION)], signed, signature)


def stated_manifest(body: bytes) -> str | None:
    """Manifest digest a body states, or None if it states none, or more than one."""
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
        return f"the report is unsigned: {said[1].decode(errors='replace')}"
    return "this file has no signature; it was never signed, or its end is missing"


def _wrong_end(rest: bytes) -> SignatureRefusal:
    if (b"\n" + TAIL).startswith(rest):
        return SignatureRefusal(
            RefusalWord.TRUNCATED, "the file ends before the fence that closes the signature block"
        )
    if rest.startswith(b"\r"):
        return SignatureRefusal(
            RefusalWord.MALFORMED_FOOTER, "the lines of the signature end with a carriage return"
        )
    return SignatureRefusal(
        RefusalWord.TEXT_AFTER_SIGNATURE,
        "text follows the signature, which does not cover it",
    )


LARGEST_REPAIRED = 2**20  # an explanation is not worth more time than this takes

# Bytes that cp1252 leaves undefined are passed through as Latin-1 by browsers and most tools.
_CP1252 = {ord(c): b for b in range(0x80, 0xA0) for c in bytes([b]).decode("cp1252", "ignore")}


def _without_carriage_returns(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _without_byte_order_mark(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf")


def _from_utf16(data: bytes) -> bytes:
    return data.decode("utf-16").encode() if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data


def _from_cp1252(data: bytes) -> bytes:
    return data.decode().translate(_CP1252).encode("latin-1")


def _from_latin1(data: bytes) -> bytes:
    return data.decode().encode("latin-1")


def _with_final_newline(data: bytes) -> bytes:
    return data.rstrip(b"\n") + b"\n"


def _composed(data: bytes) -> bytes:
    return unicodedata.normalize("NFC", data.decode()).encode()


REPAIRS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("line endings were changed to CRLF", _without_carriage_returns),
    ("a byte-order mark was added", _without_byte_order_mark),
    ("the text was saved as UTF-16", _from_utf16),
    ("UTF-8 was read as if it were Latin-1 (mojibake)", _from_latin1),
    ("UTF-8 was read as if it were cp1252 (mojibake)", _from_cp1252),
    ("newlines at the end were removed or added", _with_final_newline),
    ("accents were decomposed (Unicode NFD)", _composed),
)


def repaired(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what `data` may have been before one or two of these things happened to it, each with
    what that was.

    A repair is only ever used to explain: a file that would be good after one is still refused.
    """
    if len(data) > LARGEST_REPAIRED:
        return
    seen = {data}
    once: list[bytes] = []
    for name, repair in REPAIRS:
        once.append(_try(repair, data))
        if once[-1] not in seen:
            seen.add(once[-1])
            yield name, once[-1]
    for (outer, _), middle in zip(REPAIRS, once, strict=True):
        for inner, repair in REPAIRS if middle != data else ():
            result = _try(repair, middle)
            if result not in seen:
                seen.add(result)
                yield f"{outer}, and {inner}", result


def repair_of(content: bytes, digest: str) -> str:
    """Return what would give a file its digest back, as the end of a sentence.

    Empty where nothing known does.
    """
    for what, candidate in repaired(content):
        if sha256(candidate) == digest:
            return f"; the file verifies once this is undone: {what}"
    return ""


def first_difference(stated: bytes, rendered: bytes, *, of: str = "the report") -> str:
    """Return the first line in which a text differs from what its record renders to, the place in
    it included.
    """
    texts = stated.split(b"\n"), rendered.split(b"\n")
    number = next(
        i for i in range(max(map(len, texts)) + 1) if texts[0][i : i + 1] != texts[1][i : i + 1]
    )
    lines = [
        text[number].decode(errors="backslashreplace") if number < len(text) else None
        for text in texts
    ]
    pairs = zip(*(line or "" for line in lines), strict=False)
    start = max(0, next((i for i, (left, right) in enumerate(pairs) if left != right), 0) - 40)
    said, record = (
        "nothing" if line is None else repr(line[start : start + 120]) for line in lines
    )
    return f"line {number + 1}: {of} contains {said}, but the record renders to {record}"


def _try(repair: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        return repair(data)
    except UnicodeError:
        return data
