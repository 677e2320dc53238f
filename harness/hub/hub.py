"""Hub in this process: its server runs in a thread of its own, so that a blocked test or command
cannot stop it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from harness.hub import HubError
from harness.hub.access import Access, AccessLog
from harness.hub.place import ListeningPlace, OwnAddress
from harness.hub.repository import ServedRepository, read_folder
from harness.hub.request import CLIENT, Limits
from harness.hub.rules import Rules, load_rules
from harness.hub.server import Server

T = TypeVar("T")


class Hub:
    """Serves a folder of repositories in the hub's protocol, on this machine only unless `host`
    says otherwise.

        with Hub(folder, rules=Path("rules.yaml"), log=Path("access.jsonl")) as hub:
            environment = {"HF_ENDPOINT": hub.endpoint_for("rank-0")}
            …
            hub.counts()

    Args:
        folder: ``ORG/NAME/files``; see `harness.hub.repository`.
        rules: fault rules, as a file or as read; none: a healthy hub.
        log: file to which one JSON line for each request is appended.
        host: address to listen on.
        port: 0 takes a free one.
        limits: what a client may cost.
        keep: keep requests in memory for `requests`; a hub that serves for days should not.

    Raises:
        HubError: the folder, the rules, the log or the port cannot be used (from ``start`` or
            ``with``).
    """

    # Each of them is an option of the command too.
    def __init__(
        self,
        folder: Path,
        *,
        rules: Rules | Path | None = None,
        log: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        keep: bool = True,
    ) -> None:
        self.folder = folder
        self._rules = rules
        self._host = host
        self._port = port
        self._log_path = log
        self._keep = keep
        self._limits = limits or Limits()
        self.repositories: Mapping[str, ServedRepository] = {}
        self._log: AccessLog | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._failure: HubError | None = None
        self._done = threading.Event()

    def start(self, places: Sequence[ListeningPlace] = ()) -> Self:
        """Read the folder and serve it; returns when connections are accepted.

        Args:
            places: where to listen, instead of `host` and `port`; they are closed when the hub
                stops.
        """
        if self._thread is not None:
            raise HubError("this hub was already started; create another Hub")
        rules = self._rules or Rules(schema=1)
        if isinstance(rules, Path):
            rules = load_rules(rules)
        self.repositories = read_folder(self.folder)
        self._log = AccessLog(self._log_path, keep=self._keep)
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that ends without `stop` is not kept from ending.
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
        self._thread.start()
        try:
            self._server = self._call(self._begin(rules, self._log, places))
        except BaseException:
            # Also on Ctrl-C: nobody has the hub yet who could stop it.
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Stop serving and close the log. Calling it twice does nothing.

        Raises:
            HubError: the hub failed while it served.
        """
        if self._loop is None or self._loop.is_closed():
            return
        if self._server is not None:
            self._call(self._server.stop())
        self._end_thread()
        self.check()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except HubError as failed:
            # What went wrong inside the block explains more than that the hub failed too.
            if error is None:
                raise
            error.add_note(f"the hub failed too: {failed}")

    @property
    def endpoint(self) -> str:
        """Value for HF_ENDPOINT."""
        if self._server is None:
            raise HubError("this hub was not started")
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        return f"http://{host}:{self._server.port}"

    def endpoint_for(self, client: str) -> str:
        """Return the value for HF_ENDPOINT of one client, which then goes by this name in rules and
        in the log.
        """
        if not CLIENT.fullmatch(client):
            raise HubError(
                f"{client!r}: a client's name must have 1 to 64 letters, digits, '.', '_' or '-'"
            )
        return f"{self.endpoint}/client/{client}"

    def requests(self) -> tuple[Access, ...]:
        """Return all requests so far, in the order in which they were logged.

        Every answer that arrived is among them.

        Raises:
            HubError: the hub failed, or keeps no requests.
        """
        self.check()
        if not self._keep:
            raise HubError("this hub does not keep requests in memory; read its access log")
        return tuple(self._log.kept) if self._log is not None else ()

    def counts(self) -> Mapping[str, int]:
        """Return the requests so far by kind, as ``GET model_info``, and their ``total``.

        See `harness.hub.access.count`.
        """
        self.check()
        return dict(sorted(self._log.counted.items())) if self._log is not None else {}

    def open_connections(self) -> int:
        """Return how many connections are open now."""
        return self._counted(Server.open_connections)

    def busy(self) -> int:
        """Return how many requests are being answered now."""
        return self._counted(Server.busy)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the hub fails or is stopped; returns whether it did within the time."""
        return self._done.wait(seconds)

    def check(self) -> None:
        """Raise what made the hub fail, if something did.

        Raises:
            HubError: the log could not be written, or the port was lost.
        """
        if self._failure is not None:
            raise self._failure

    # --- the thread

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _begin(
        self, rules: Rules, log: AccessLog, places: Sequence[ListeningPlace]
    ) -> Server:
        server = Server(self.repositories, rules, log, self._limits)
        server.failed.add_done_callback(self._failed)
        await server.start(places or [self._own_address()])
        return server

    def _own_address(self) -> OwnAddress:
        try:
            return OwnAddress(self._host, self._port)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise HubError(
                f"cannot listen on {where}: {error.strerror}; choose another --port"
            ) from error

    def _failed(self, failed: asyncio.Future[None]) -> None:
        error = failed.exception() if not failed.cancelled() else None
        if isinstance(error, HubError):
            self._failure = error
            self._done.set()

    def _counted(self, count: Callable[[Server], int]) -> int:
        # In the loop's thread: what is counted changes there.
        async def counted(server: Server) -> int:
            return count(server)

        if self._server is None or self._loop is None or not self._loop.is_running():
            return 0
        return self._call(counted(self._server))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._log is not None:
            self._log.close()
        self._done.set()
