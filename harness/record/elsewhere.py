"""The machines of a run that was not made on one: those of a hostfile, or the nodes of a
cluster.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.forms.model import Model


class MachineFacts(Model):
    """A machine of a run over several.

    Attributes:
        called: a digest of its name, or with --name-hosts the name.
        slots: how many ranks it has room for.
        system: of its kernel, with release and architecture.
        python: the version of its interpreter.
        cores: that its processes may use.
        memory: bytes.
        offset: seconds that its wall clock was ahead of the one here.
        offset_within: seconds that this is right to within: half of the fastest round trip.
    """

    called: str
    slots: int
    system: str
    python: str
    cores: int
    memory: int
    offset: float
    offset_within: float


class MachinesFacts(Model):
    """The machines of a run.

    Attributes:
        machines: in the order of the hostfile.
        placement: spread, pack, or the machine of each rank by its place in the hostfile.
        lease: seconds without a heartbeat after which a machine ended its ranks.
        ready: seconds until the slowest was ready, connection and preload together.
        made_here: whether they were test machines, made of one.
        starter: what started our agent there; None for ssh.
    """

    machines: list[MachineFacts]
    placement: Literal["spread", "pack"] | list[int]
    lease: float
    ready: float
    made_here: bool = False
    starter: Literal["ray"] | None = None


class NodeFacts(Model):
    """A node of a cluster on which trials of a run were made.

    Attributes:
        number: by which its trials name it.
        name: of its host; None unless `--name-hosts` asked for it.
        host: digest of its boot id, as for `Environment`.
        harness_pid: of our process there.
        server_pids: of its fork servers; of a node that was lost, those it began with.
        lanes: worlds at the same time.
        memory: bytes.
        packages: one digest of what is installed there, but for Rankproof, which is brought:
            `record.farmed.digest_of`.
        lost: why it was not used any more before the run was over; None for one that stayed.
    """

    number: Annotated[int, Field(ge=0)]
    name: str | None
    host: str
    harness_pid: int
    server_pids: list[int]
    lanes: Annotated[int, Field(ge=1)]
    system: str
    release: str
    cpu: str
    cores: int
    affinity: int
    memory: int
    gpu: str | None
    packages: str
    lost: str | None = None


class FarmFacts(Model):
    """The cluster whose nodes made a run's trials, and the version of what started our process
    there.
    """

    starter: Literal["ray"]
    version: str
    nodes: list[NodeFacts]
