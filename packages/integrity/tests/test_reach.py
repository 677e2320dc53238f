"""Who can reach a transport: nobody beyond this machine who has nothing to prove."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from pathlib import Path

import pytest

from rankproof_integrity import ReliableMessageTransport
from rankproof_integrity.devices import DeviceCommunicationManager
from rankproof_integrity.problem import Misused
from rankproof_integrity.store import MemoryStore
from rankproof_integrity.wire import demand_trusted

# Refused, which is what is tested.
EVERYWHERE = ["0.0.0.0", "0", "::", "::ffff:0.0.0.0"]  # noqa: S104
HERE = ["127.0.0.1", "localhost", "127.8.9.10", "::1", "::ffff:127.0.0.1"]


@pytest.mark.parametrize("host", EVERYWHERE)
def test_an_address_that_others_reach_is_refused(host: str) -> None:
    """Before anybody could connect; the error says what to do."""
    with ReliableMessageTransport(node="a") as transport:
        with pytest.raises(Misused, match=r"pass the same key=key_from_file\(PATH\) to all nodes"):
            transport.listen((host, 0))
        # A context that asks for no certificate proves nothing.
        with pytest.raises(Misused, match="or a TLS context that requires certificates"):
            transport.listen((host, 0), tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        assert not transport._attendant._listeners


@pytest.mark.parametrize("host", EVERYWHERE)
def test_who_has_a_key_may_be_reached_by_others(host: str) -> None:
    """For they have to prove that they have it too; or they have to show a certificate."""
    with ReliableMessageTransport(node="a", key=bytes(32)) as transport:
        transport.listen((host, 0))
    demanding = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    demanding.verify_mode = ssl.CERT_REQUIRED
    with ReliableMessageTransport(node="a") as transport:
        transport.listen((host, 0), tls=demanding)


@pytest.mark.parametrize("host", HERE)
def test_loopback_is_silent(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """However it is written, and without an address at all."""
    with ReliableMessageTransport(node="a") as transport:
        transport.listen((host, 0))
        assert transport.listen()[0] == "127.0.0.1"
    assert caplog.text == ""


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_a_socket_in_the_file_system_is_its_users_alone(
    tmp_path: Path, mask: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the mask of the process is: only this user may connect."""
    before = os.umask(mask)
    try:
        with ReliableMessageTransport(node="a") as transport:
            transport.listen(str(tmp_path / "a"))
            assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert caplog.text == ""


def test_the_lines_of_a_rank_ask_too() -> None:
    """What is bound decides, not the text: a name that means every address is no local one."""
    with pytest.raises(Misused, match="can be reached from other machines"):
        DeviceCommunicationManager(store=MemoryStore(), rank=0, world_size=1, address=("0", 0))


@pytest.mark.parametrize("family", ["AF_NETLINK", "AF_PACKET"])
def test_a_socket_of_a_family_that_is_not_known_is_refused(family: str) -> None:
    """Whether others reach it is not known, so nothing is said of it but that."""
    try:
        made = socket.socket(getattr(socket, family), socket.SOCK_RAW)
    except (AttributeError, OSError):
        pytest.skip(f"no {family} here")
    words = f"cannot determine which machines can reach a socket of address family {family}"
    with made, pytest.raises(Misused, match=words):
        demand_trusted(made, proves=False)


@pytest.mark.parametrize("address", ["", (), None, (None, 0), ("127.0.0.1", -1), b"x", "host:80"])
def test_what_is_no_address_of_a_rank_is_refused(address: object) -> None:
    """In words, and before anything is opened."""
    with pytest.raises(Misused, match="an address must be a host and a port"):
        DeviceCommunicationManager(store=MemoryStore(), rank=0, world_size=1, address=address)  # type: ignore[arg-type]


def test_localhost_that_is_mapped_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What decides is the address that is bound, whatever a name says."""
    plain = socket.socket.bind
    elsewhere = ("0.0.0.0", 0)  # noqa: S104 - refused, which is what is tested

    class Mapped(socket.socket):
        def bind(self, address: object) -> None:
            plain(self, elsewhere if address == ("localhost", 0) else address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "socket", Mapped)
    with ReliableMessageTransport(node="a") as transport:
        with pytest.raises(Misused, match="can be reached from other machines"):
            transport.listen(("localhost", 0))
        assert transport.listen(("127.0.0.1", 0))[0] == "127.0.0.1"
