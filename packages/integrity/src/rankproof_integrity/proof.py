"""Proof that both ends of a connection have the key of the group, before either says who it is.

    initiator                                     listener
    NONCE  32 random bytes             ──▶
                                       ◀──        NONCE  32 random bytes
    PROOF  HMAC(key, "initiator", …)   ──▶        closes, unless it is right
                                       ◀──        PROOF  HMAC(key, "listener", …)
    HELLO  names, epochs, their seal   ──▶

The tags are HMAC-SHA256 over the side's label, the version of this protocol and both nonces, each
with its length before it. So neither end can be answered with its own tag, and no tag is of use on
another connection. Names and epochs follow under a seal of the same making (`Session.seal`), which
holds them to this connection.

What this proves is who was there when the connection began. Frames after it carry a checksum
against accidents and no tag: whoever can alter the bytes on their way can alter messages. Against
that there is TLS.
"""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from . import frame
from .digest import digest
from .frame import Header, Kind
from .problem import Misused

VERSION = b"rankproof-integrity 1"
NONCE = 32
TAG = 32
PATIENCE = 5.0
"""Seconds in which each end has to prove the key, and the initiator to say who it is."""
UNPROVED = 4096 - frame.SIZE
"""Payload bytes of one frame of somebody who has proved nothing, at most."""
INITIATOR = b"initiator"
LISTENER = b"listener"
SHORTEST = 16
"""Bytes of a key, at least: fewer can be tried out."""
VARIABLE = "RANKPROOF_INTEGRITY_KEY"
WORDS = 200
"""Characters that are shown of what somebody said who has proved nothing."""


class Unproved(Exception):
    """Raised where the other end cannot prove the key.

    Attributes:
        answer: what it may be told, which says nothing of names or epochs; empty for nothing.
    """

    def __init__(self, words: str, *, answer: str = "") -> None:
        super().__init__(words)
        self.answer = answer


class Session(NamedTuple):
    """What the two ends of one connection proved.

    Attributes:
        key: of the group.
        ours, theirs: labels of this end and of the other.
        nonces: of the initiator and of the listener, 32 bytes each.
    """

    key: bytes
    ours: bytes
    theirs: bytes
    nonces: tuple[bytes, bytes]

    def seal(self, *parts: bytes) -> bytes:
        """Return the 32 bytes that hold parts of a greeting of ours to this connection."""
        return self._tag(self.ours, parts)

    def holds(self, seal: Any, *parts: bytes) -> bool:
        """Return whether a seal is the other end's over these parts."""
        return hmac.compare_digest(bytes(seal), self._tag(self.theirs, parts))

    def _tag(self, label: bytes, parts: tuple[bytes, ...]) -> bytes:
        made = hmac.new(self.key, digestmod="sha256")
        for part in (label, VERSION, *self.nonces, *parts):
            # With its length before it: no two lists of parts are the same bytes.
            made.update(len(part).to_bytes(8, "big"))
            made.update(part)
        return made.digest()


def opened(session: Session | None, header: Header, payload: Any) -> Any:
    """Return the words of a greeting; None where its seal is not the other end's.

    Args:
        session: of the connection it came on; None where greetings have no seal.
        header: of the greeting.
        payload: of the greeting.
    """
    if session is None:
        return payload
    words = bytes(payload[:-TAG])
    return words if session.holds(payload[-TAG:], frame.said(header), words) else None


class Introduction:
    """One end's part in the proof, on one connection. No clock, no socket.

    Attributes:
        session: what was proved; None until both ends have.
    """

    def __init__(self, key: bytes, *, initiator: bool) -> None:
        self._key = key
        self._initiator = initiator
        self._nonce = os.urandom(NONCE)
        self._theirs: bytes | None = None
        self._answered = False
        self._said: list[tuple[bytes, bytes]] = []
        self.session: Session | None = None
        if initiator:
            self._say(Kind.NONCE, self._nonce)

    @property
    def begun(self) -> bool:
        """Return whether the other end has sent its nonce."""
        return self._theirs is not None

    def next_frame(self) -> tuple[bytes, bytes] | None:
        """Header and payload of what is to be sent now; None where nothing is."""
        return self._said.pop(0) if self._said else None

    def came(self, header: Header, payload: Any) -> None:
        """Take a frame of the other end.

        Raises:
            Unproved: it is not what is due, or its tag is not right.
        """
        if header.kind is Kind.FAIL:
            words = bytes(payload).decode(errors="replace")[:WORDS]
            raise Unproved(f"the peer refused the connection: {words!r}")
        due = Kind.NONCE if self._theirs is None else Kind.PROOF
        if header.kind is not due or len(payload) != NONCE:
            raise Unproved(
                "a peer did not begin with a proof of the group's key",
                answer="a key is required here; give both nodes the key of the group",
            )
        if self._theirs is None:
            self._theirs = bytes(payload)
            if self._initiator:
                self._say(Kind.PROOF, self._session().seal())
            else:
                self._say(Kind.NONCE, self._nonce)
            return
        session = self._session()
        if not session.holds(payload):
            raise Unproved(
                "a peer does not have the group's key",
                answer="the keys differ; give both nodes the same key",
            )
        if not self._initiator:
            self._say(Kind.PROOF, session.seal())
        self.session = session

    def _session(self) -> Session:
        assert self._theirs is not None
        if self._initiator:
            return Session(self._key, INITIATOR, LISTENER, (self._nonce, self._theirs))
        return Session(self._key, LISTENER, INITIATOR, (self._theirs, self._nonce))

    def _say(self, kind: Kind, payload: bytes) -> None:
        # Of epoch 0 towards epoch 0: a header says nothing of either node.
        header = frame.packed(
            kind=kind, epoch=0, toward=0, length=len(payload), payload_digest=digest(payload)
        )
        self._said.append((header, payload))


def demand_key(key: bytes | None) -> bytes | None:
    """Return a key as it is used.

    Raises:
        Misused: it is no bytes, or so few that they can be tried out.
    """
    if key is None:
        return None
    if not isinstance(key, bytes):
        raise Misused(f"a key must be bytes, not {type(key).__name__}")
    if len(key) < SHORTEST:
        raise Misused(
            f"a key must have at least {SHORTEST} bytes, not {len(key)};"
            " secrets.token_bytes(32) makes one"
        )
    return key


def key_from_file(path: str | os.PathLike[str]) -> bytes:
    """Return the key of a group: all bytes of a file, without the line break at its end.

    Args:
        path: of a file that its owner alone may read.

    Raises:
        Misused: it cannot be read, others may read it, or it is too short.
    """
    try:
        # Opened once: what is looked at is what is read.
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(2**16)
    except OSError as error:
        raise Misused(f"the key file {path} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Misused(
            f"the key file {path} can be accessed by other users (mode {stat.S_IMODE(mode):o});"
            f" run chmod 600 {path}"
        )
    key = demand_key(data.rstrip(b"\r\n"))
    assert key is not None
    return key


def key_from_environment(variable: str = VARIABLE) -> bytes:
    """Return the key of a group: the text of an environment variable, in UTF-8.

    Raises:
        Misused: it is not set, or is too short.
    """
    text = os.environ.get(variable)
    if not text:
        raise Misused(
            f"{variable} is not set; set it to the same secret text on every node, such as the"
            " output of python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    key = demand_key(text.encode(errors="surrogateescape"))
    assert key is not None
    return key
