"""Ray as it is set up: an actor on each node of a cluster that is there starts our process and
hands its bytes on.

Ray is not asked what became of a process: who waited for it says so. Of Ray counts only which nodes
there are, and which of them it has lost.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from harness.forms.text import printable
from harness.world.starters import ray_relay
from harness.world.starters.ray_relay import ActorGone, NodeLost, Piped

PREFIX = "ray://"
STARTS_WITHIN = 60.0
# Ray's own word comes 63 s after a link was cut. Control waits for a node's answer no longer than
# this.
SILENT = 15.0
# Ray tells of a node's end when it has missed its heartbeats, long after that of its actors.
TOLD_WITHIN = 90.0


class NoCluster(Exception):
    """There is no cluster to use; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """Node of the cluster.

    Attributes:
        id: by which Ray knows it.
        name: of its host, as Ray tells.
        cores: processors that Ray deals out there.
        address: at which the other nodes reach it.
    """

    id: str
    name: str
    cores: int
    address: str = ""


class Cluster:
    """Cluster of Ray; a context manager, which leaves it."""

    def __init__(self, where: str) -> None:
        """Join it.

        Args:
            where: `ray` for the cluster that RAY_ADDRESS names or this machine is a node of, else
                `ray://HEAD:PORT` of a head's client server.

        Raises:
            NoCluster: it is not there, or Ray is not installed here.
        """
        if importlib.util.find_spec("ray") is None:
            todo = "install the same version as the cluster: pip install 'ray[client]==VERSION'"
            raise NoCluster(f"Ray is not installed; {todo}")
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Its client advises whoever sends more than 10 MiB, as code and inputs are, to send less.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"ray\.util\.client")
        before = [*sys.path]
        # By its name: whoever has no Ray checks the types here too.
        self._ray: Any = importlib.import_module("ray")
        self._strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        # It brings packages of its own, which would be taken for those of this environment once it
        # is left.
        self._paths = [path for path in sys.path if path not in before]
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            address = where if where.startswith(PREFIX) else "auto"
            self._ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        # Ray raises ConnectionError, RuntimeError and its own here.
        except Exception as error:  # noqa: BLE001
            why = printable(" ".join(str(error).split()), limit=200)
            todo = (
                "start a cluster with `ray start --head`, or pass the address of its head node"
                " with --on ray://HEAD:10001"
            )
            raise NoCluster(f"cannot connect to a Ray cluster ({why}); {todo}") from None
        finally:
            # Ray puts its own in their place, and who is interrupted has worlds to end first.
            for number, handler in handlers.items():
                with contextlib.suppress(ValueError):  # not in the main thread
                    signal.signal(number, handler)
        self._ray.cloudpickle.register_pickle_by_value(ray_relay)
        self.version: str = self._ray.__version__
        self._actor = self._ray.remote(ray_relay.RayRelay)
        self._code: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()
        sys.path[:] = [path for path in sys.path if path not in self._paths]

    def places(self) -> list[ClusterNode]:
        """Return the nodes that live and have a processor to deal out, in the order of their ids.

        Raises:
            NoCluster: it does not answer any more.
        """
        try:
            nodes = self._ray.nodes()
        except (ConnectionError, RuntimeError) as error:
            why = printable(" ".join(str(error).split()), limit=200)
            raise NoCluster(
                f"the Ray cluster no longer responds ({why}); check that its head node is running"
            ) from None
        living = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        return [
            ClusterNode(
                id=node["NodeID"],
                name=node["NodeManagerHostname"],
                cores=int(node["Resources"]["CPU"]),
                address=node["NodeManagerAddress"],
            )
            for node in sorted(living, key=lambda node: str(node["NodeID"]))
        ]

    def start(
        self,
        place: ClusterNode,
        program: str,
        *,
        arguments: Sequence[str],
        code: bytes,
        interpreter: str,
        beat: bytes,
    ) -> Actor:
        """Start our process on a node, without waiting for it.

        The arguments are those of `RayRelay`.
        """
        if self._code is None:
            self._code = self._ray.put(code)
        return self._relay(
            place, program, arguments=arguments, code=self._code, interpreter=interpreter, beat=beat
        )

    def pipe(self, place: ClusterNode, program: str, *, interpreter: str) -> Piped:
        """Start a program of ours on a node, whose standard streams are pipes here."""
        return Piped(self._relay(place, program, interpreter=interpreter, told_within=0.0))

    def _relay(
        self, place: ClusterNode, program: str, *, told_within: float = TOLD_WITHIN, **more: object
    ) -> Actor:
        # One on each node, and never on another one instead: what a placement group with
        # STRICT_SPREAD moves when a node is lost has to stay where it is here.
        strategy = self._strategies.NodeAffinitySchedulingStrategy(place.id, soft=False)
        actor = self._actor.options(
            num_cpus=place.cores, max_concurrency=4, max_restarts=0, scheduling_strategy=strategy
        ).remote(program, alone=True, **more)
        return Actor(self._ray, actor, place, told_within=told_within)


class Actor:
    """One of our relays. Every method raises NodeLost or ActorGone."""

    def __init__(self, ray: Any, actor: Any, place: ClusterNode, *, told_within: float) -> None:
        self._ray = ray
        self._actor = actor
        self._place = place
        self._told_within = told_within
        self._numbers = itertools.count()
        self._writing = threading.Lock()
        self._is_there = False

    def read(self, wait: float) -> bytes | None:
        """As `RayRelay.read`."""
        within = (SILENT if self._is_there else STARTS_WITHIN) + wait
        part = self._get(self._actor.read.remote(wait), within=within)
        self._is_there = True
        if part is not None and (not isinstance(part, bytes) or len(part) > ray_relay.CHUNK):
            raise ActorGone("its relay sent an invalid message")
        return part

    def write(self, content: bytes) -> None:
        """As `RayRelay.write`, without waiting for it: what becomes of it is told by `read`."""
        with self._writing:
            self._actor.write.remote(content, next(self._numbers))

    def said(self) -> str:
        """As `RayRelay.said`."""
        text = self._get(self._actor.said.remote(), within=SILENT)
        return text if isinstance(text, str) else ""

    def kill(self) -> None:
        """End the actor. What it started hears that its channel is closed."""
        self._ray.kill(self._actor)

    def _get(self, reference: Any, *, within: float) -> object:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=within)
        except exceptions.GetTimeoutError:
            raise NodeLost(
                f"it did not answer within {within:g} s"
                if self._is_there
                else f"it did not start the relay within {within:g} s; check that no other Ray job"
                " uses its CPUs"
            ) from None
        except exceptions.RayTaskError as error:
            why = printable(str(error).strip().rpartition("\n")[2], limit=300)
            raise ActorGone(f"its relay failed: {why}") from None
        except exceptions.RayError as error:
            if self._lost():
                raise NodeLost("Ray has lost it") from None
            raise ActorGone(
                f"its actor died ({type(error).__name__}), although the node is still up"
            ) from None
        except (ConnectionError, RuntimeError) as error:
            why = printable(str(error).strip().partition("\n")[0], limit=200)
            raise NodeLost(f"Ray no longer responds: {why}") from None

    def _lost(self) -> bool:
        until = time.monotonic() + self._told_within
        while True:
            with contextlib.suppress(Exception):
                if not any(
                    node["NodeID"] == self._place.id and node["Alive"] for node in self._ray.nodes()
                ):
                    return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.2)
