"""One start of a service: a world of its own in a thread, when it is ready, and how it ended."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from typing import Final

import psutil

from harness.events import Event
from harness.faults.strikes import Strikes
from harness.forms.text import visible
from harness.history import SERVICE_STOPPING, ended
from harness.scenario.service import Service
from harness.world.control.capture import Capture
from harness.world.control.launch import Launch
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.world import World
from harness.world.hosts.door import Door

HOST: Final = "127.0.0.1"
POLL: Final = 0.05
HEALTH_WITHIN: Final = 2.0
"""Seconds in which a service answers whether it is ready."""
LINE_LIMIT: Final = 256
STATUS: Final = re.compile(rb"HTTP/1\.[01] 200[ \r\n]")
ENDS_WITHIN: Final = 5.0
"""Seconds between asking a service to end and killing it."""
JOINED_WITHIN: Final = 60.0
SHOWN: Final = 200


class ServiceWorld:
    """One start of a service.

    Attributes:
        name: of the service.
        start: number of the start, within an arm of a cell.
        address: where it serves.
        why: why it is not ready; empty where it is.
        seconds: until it was ready, or was seen not to be.
        world: of its processes.
        strikes: the trial's faults on them.
    """

    # Eight arguments: a start is made at one place, from what its cell and its trial have.
    def __init__(
        self,
        name: str,
        service: Service,
        launch: Launch,
        strikes: Strikes,
        *,
        start: int,
        ports: PortLease,
        port: int,
        door: Door | None = None,
    ) -> None:
        self._ports = ports
        self._door = door
        self.name = name
        self.strikes = strikes
        self.start = start
        self.address = f"http://{HOST}:{port}"
        self.why = ""
        self.seconds = 0.0
        self.world: World
        self._service = service
        self._launch = launch
        self._port = port
        self._capture: Capture | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"service {name}")

    def begin(self, pool: ServerPool, *, cancel: int) -> None:
        """Start it, and wait until it is ready, has ended, or the time for that is over."""
        self.world = World(
            self._launch,
            pool,
            cancel=cancel,
            on_begin=self.strikes.begin,
            on_end=self.strikes.end,
        )
        begun = time.monotonic()
        self._thread.start()
        within = self._service.ready.within
        while not (self.is_healthy() and self.is_its_own()) or self.exits():
            self.seconds = self._since(begun)
            gone = self.exits()
            if gone or not self._thread.is_alive():
                how = ended(gone[0].values) if gone else "its processes were not started"
                self.why = f"it ended before it was ready: {how}{self._last_words()}"
                return
            if self.seconds > within:
                self.why = f"it did not answer GET {self._service.ready.http} within {within:g} s"
                if self.is_healthy():
                    self.why = f"another program answers on its port {self._port}"
                return
            time.sleep(POLL)
        self.seconds = self._since(begun)

    def _since(self, begun: float) -> float:
        """Return the seconds since its world began, or since it was to begin.

        On a busy machine the thread of the world begins later, and its events would contradict us.
        """
        events = list(self.world.events)
        if events:
            begun = min(event.ns for event in events) / 1e9
        return round(time.monotonic() - begun, 3)

    def _last_words(self) -> str:
        """Return what a service that ended printed last, or why it could not be started."""
        self._thread.join(HEALTH_WITHIN)
        if self._capture is None:
            return ""
        for event in self._capture.events:
            if event.name == "harness.error":
                return f": {event.values.get('message')}"
        for _, log in sorted(self._capture.logs.items()):
            lines = log.decode("utf-8", "replace").strip().splitlines()
            if lines:
                return f": {visible(lines[-1].strip(), SHOWN)}"
        return ""

    def exits(self) -> list[Event]:
        """List the ends of its processes so far."""
        events = list(self.world.events)
        return [event for event in events if (event.by, event.name) == ("server", "rank.exited")]

    def own_ends(self) -> list[Event]:
        """List the ends of processes before they were asked to end."""
        # What the harness ended, at our request or because another process had failed, is not its
        # own end.
        ending = (SERVICE_STOPPING, "world.stopped")
        asked = [event.ns for event in list(self.world.events) if event.name in ending]
        until = asked[0] if asked else time.monotonic_ns()
        return [event for event in self.exits() if event.ns < until]

    def is_healthy(self, *, within: float = HEALTH_WITHIN) -> bool:
        """Ask it, and read the first line that it answers.

        The time is for all of that: who drips bytes is not healthy.
        """
        until = time.monotonic() + within
        request = f"GET {self._service.ready.http} HTTP/1.1\r\nHost: {HOST}\r\n"
        request += "Connection: close\r\n\r\n"
        line = b""
        try:
            with socket.create_connection((HOST, self._port), timeout=within) as connection:
                connection.sendall(request.encode())
                while b"\n" not in line and len(line) < LINE_LIMIT:
                    connection.settimeout(max(until - time.monotonic(), 0.001))
                    data = connection.recv(LINE_LIMIT)
                    if not data:
                        break
                    line += data
        except OSError:
            return False
        return STATUS.match(line) is not None

    def is_its_own(self) -> bool:
        """Return whether a process of the service listens on its port.

        Another server may have the port by chance. Where the system does not tell, and behind a
        door, nobody else can be told from it.
        """
        if self._door is not None:
            return True
        for pid in self.pids():
            try:
                process = psutil.Process(pid)
                for one in (process, *process.children(recursive=True)):
                    for connection in one.net_connections(kind="tcp"):
                        is_here = bool(connection.laddr) and connection.laddr.port == self._port
                        if connection.status == psutil.CONN_LISTEN and is_here:
                            return True
            except psutil.NoSuchProcess:
                continue
            except (psutil.AccessDenied, NotImplementedError):
                return True
        return False

    def pids(self) -> list[int]:
        """Pids of its processes, by their numbers."""
        return [pid for _, pid in sorted(self.world.pids.items())]

    def stop(self) -> Capture:
        """End it: all its processes are asked to, and killed some seconds later.

        Raises:
            Cancelled: the run was interrupted.
        """
        if self._thread.is_alive():
            self.world.call(self._end)
        self._thread.join(JOINED_WITHIN)
        if self._door is not None:
            self._door.close()
            self._door = None
        self._ports.release()
        if self._error is not None:
            raise self._error
        if self._capture is None:
            raise RuntimeError(f"the service {self.name} could not be stopped")
        return self._capture

    def _end(self) -> None:
        world = self.world
        world.note(SERVICE_STOPPING)
        for process in range(self._launch.size):
            world.expect_end(process)
        world.signal(signal.SIGTERM)
        world.after(ENDS_WITHIN, lambda: world.signal(signal.SIGKILL))

    def _run(self) -> None:
        try:
            self._capture = self.world.run()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever stops it
            self._error = error
