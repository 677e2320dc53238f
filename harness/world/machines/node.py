"""Node: a machine of a run. It holds the fork server whose ranks are here, and keeps them no longer
than control is heard.

It is what the agent becomes, so its channel is that of the agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from os import _exit
from pathlib import Path
from typing import Any, TypedDict, cast

import psutil

from harness.world.below.preload import Preload
from harness.world.control import names
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.server_handle import ServerFailed, ServerHandle
from harness.world.machines import node_channel
from harness.world.machines.agent import MAGIC, TREES, cache
from harness.world.machines.node_channel import Inbox, Outbox
from harness.world.machines.share import MachineShare
from harness.world.machines.store import ENVIRONMENTS, BadTree, TreeStore, Uses


class NodeOrder(TypedDict):
    """Order of an agent that becomes a node.

    Attributes:
        reads, writes: descriptors of the channel to control.
        nonce: what control knows this node by.
        lease: seconds without a heartbeat after which it ends its ranks.
        run: names the run.
        machine: its place in the hostfile.
    """

    reads: int
    writes: int
    nonce: str
    lease: float
    run: str
    machine: int


class MachineNode:
    """Does what control asks, one thing after the other."""

    def __init__(self, order: NodeOrder) -> None:
        self._outbox = Outbox(order["writes"])
        self._inbox = Inbox(order["reads"], self._outbox, lease=order["lease"])
        self._run = str(order["run"])
        self._machine = int(order["machine"])
        self._store = TreeStore(cache() / TREES)
        environments = Uses(cache() / ENVIRONMENTS)
        self._store.hold(names.ROOT)
        if Path(sys.prefix).parent.resolve() == (cache() / ENVIRONMENTS).resolve():
            environments.hold(Path(sys.prefix).name)
        for uses in (Uses(cache() / TREES), environments):
            threading.Thread(target=uses.clean, daemon=True, name="cleaning").start()
        self._pool = ServerPool()
        self._ports = PortLease()
        self._server: ServerHandle | None = None
        self._kept: dict[str, node_channel.Journal] = {}

    def serve(self) -> None:
        """Serve until control is gone."""
        with self._pool, self._ports:
            while not self._inbox.lost:
                self._inbox.await_some()
                for asked, content in self._inbox.take():
                    try:
                        self._do(asked, content)
                    except (OSError, ServerFailed, BadTree, KeyError, ValueError) as error:
                        self._outbox.send({"error": f"{type(error).__name__}: {error}"})

    def _do(self, asked: dict[str, Any], content: bytes) -> None:
        match asked["ask"]:
            case "lacks":
                with self._inbox.waits():
                    lacks = [digest for digest in asked["trees"] if not self._store.has(digest)]
                self._outbox.send({"lacks": lacks})
            case "put":
                self._store.put(asked["tree"], asked["parts"], content)
                self._outbox.send({"put": len(content)})
            case "keep":
                with self._inbox.waits():
                    self._store.keep(asked["tree"])
                self._outbox.send({"place": str(self._store.place(asked["tree"]))})
            case "server":
                self._outbox.send(self._ready(asked))
            case "world":
                self._live(cast("node_channel.ShareOrder", asked))
            case "done":
                self._forget(asked["world"])
            case "collect":
                self._give(asked)
            case _:
                pass  # of a world that is over

    def _ready(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Have the fork server that worlds of this run need."""
        files = tuple(Path(names.ROOT, name) for name in asked["files"])
        preload = Preload(modules=tuple(asked["modules"]), files=files)
        with self._inbox.waits():
            if self._server is not None:
                self._pool.discard(self._server)
            self._server = self._pool.take(
                warm=asked["warm"],
                env=asked["env"],
                shared_home=asked["shared_home"],
                preload=preload,
            )
        interface = next(
            (
                name
                for name, addresses in psutil.net_if_addrs().items()
                if any(
                    address.address.partition("%")[0] == asked["address"] for address in addresses
                )
            ),
            "",
        )
        return {
            "pid": self._server.pid,
            "seconds": self._server.seconds,
            "interface": interface,
            "ports": self._ports.take(asked["ports"]),
        }

    def _live(self, asked: node_channel.ShareOrder) -> None:
        """Have a share of a world, to its end."""
        if self._server is None:
            raise ServerFailed("no fork server was requested")
        journal = node_channel.Journal(self._run, asked["world"], machine=self._machine)
        share = MachineShare(
            asked,
            server=self._server,
            store=self._store,
            inbox=self._inbox,
            outbox=self._outbox,
            journal=journal,
        )
        left = share.run()
        if self._inbox.lost:
            share.say({"is": "left"})
            journal.close(keep=True)
            return
        self._ports.release()
        well = left or self._server.is_well()
        share.say(
            {
                "is": "over",
                "well": well,
                "ports": self._ports.take(asked["ports"]),
                "journal": journal.lacks,
            }
        )
        self._kept[asked["world"]] = journal

    def _forget(self, world: str) -> None:
        """Remove the journal of a world of which control has all, also one that a node before this
        one kept.
        """
        if (kept := self._kept.pop(world, None)) is not None:
            kept.close(keep=False)
        else:
            with contextlib.suppress(OSError):
                (
                    path := node_channel.journal_path(self._run, world, machine=self._machine)
                ).unlink()
                path.parent.rmdir()

    def _give(self, asked: dict[str, Any]) -> None:
        """Send what control has not heard of a world whose lease was lost; then nobody needs it
        here.
        """
        path = node_channel.journal_path(self._run, asked["world"], machine=self._machine)
        last = b""
        if there := path.exists():
            with self._inbox.waits():
                for last in node_channel.read_journal(path, after=asked["after"]):
                    self._outbox.await_room()
                    self._outbox.send_raw(last)
        whole = there and (b'"is": "left"' in last[:200] or b'"is": "over"' in last[:200])
        self._outbox.send({"is": "given", "there": there, "whole": whole})


def main(order: str) -> None:
    """Be a node; never returns."""
    arguments: NodeOrder = json.loads(order)
    sys.stdout = sys.stderr
    os.set_inheritable(arguments["reads"], False)
    os.set_inheritable(arguments["writes"], False)
    os.write(arguments["writes"], MAGIC + arguments["nonce"].encode() + b"\n")
    node_channel.forget_journals()
    code = 0
    try:
        MachineNode(arguments).serve()
    except BaseException:  # noqa: BLE001 - it stands in what ssh brings back
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        _exit(code)
