"""Where a peer listens: asked in a thread of its own, for a store or a name server may take long,
or never answer.

The thread that attends to all lines must not wait for either: meanwhile no line would be
acknowledged or kept alive.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from .wire import Address, address_of

THREAD = "integrity-lookup"
PATIENCE = 0.01
"""Seconds that are waited for an answer: most come in less.

A later one is taken at the next try to connect.
"""


class Lookup:
    """One peer's address.

    Args:
        address: what it is, or what is asked at each try. Whatever that raises is said, and it is
            asked again.
    """

    def __init__(self, address: Address | Callable[[], Address]) -> None:
        self._address = address
        self._thread: threading.Thread | None = None
        self._found: Address | None = None
        self._trouble = ""
        self._turn = 0

    def found(self) -> Address:
        """Where it listens; a host is a number then.

        Raises:
            ConnectionError: nobody knows, or nobody has said so yet.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._ask, name=THREAD, daemon=True)
            self._thread.start()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise ConnectionError("where the peer listens was asked, and nobody has answered yet")
        self._thread = None
        if self._found is None:
            raise ConnectionError(self._trouble)
        return self._found

    def _ask(self) -> None:
        self._found = None
        try:
            said = address_of(self._address() if callable(self._address) else self._address)
            if not isinstance(said, str):
                # A host may have several, of which the peer listens at one: each has its turn.
                several = socket.getaddrinfo(*said, type=socket.SOCK_STREAM)
                said = several[self._turn % len(several)][4][:2]  # type: ignore[assignment]
                self._turn += 1
            self._found = said
        except OSError as error:
            self._trouble = error.strerror or str(error)
        # A store of somebody else's raises what it likes; it is said and asked again.
        except Exception as error:  # noqa: BLE001
            self._trouble = f"where the peer listens is not known: {type(error).__name__}: {error}"
