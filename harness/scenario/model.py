"""A scenario as typed, closed, frozen models, and its JSON Schema, for editors."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import GenerateJsonSchema

from harness.checks import KINDS as CHECKS
from harness.checks import AnyCheck
from harness.faults import KINDS as FAULTS
from harness.faults import AnyFault
from harness.forms.model import (
    EVERY_RANK,
    AnyPath,
    Distinct,
    Event,
    EventValue,
    Hub,
    Id,
    Inside,
    Line,
    Listed,
    Model,
    Name,
    Paragraph,
    Plain,
    Ranks,
    SchemaVersion,
    SeedText,
    Sha256,
    Title,
    Variable,
    demand_one,
    form,
)
from harness.forms.problem import complaint
from harness.forms.units import Duration, Percent, Size
from harness.registry import Registry
from harness.scenario.defect import StatedDefect
from harness.scenario.matrix import MOST_HOSTS, Matrix, Placement, hosts_of
from harness.scenario.service import Service
from harness.scenario.subject import Deadline, Subject, control_of, faults_of


class Needs(Model):
    """What a machine must have. Where it has not, the scenario is SKIPPED with the reason, never
    PASS.
    """

    os: Distinct[Literal["linux", "darwin"]] | None = Field(
        None, description="Operating systems it can run on."
    )
    cores: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Minimum number of processor cores."
    )
    memory: Size | None = Field(None, description="Minimum main memory, with a unit: 2GiB.")
    gpus: Annotated[int, Field(ge=0)] | None = Field(None, description="Minimum number of GPUs.")
    nix: bool | None = Field(None, description="Whether Nix must be installed.")
    shared: Literal["world"] | None = Field(
        None,
        description=(
            "world: context.shared must be one folder for all ranks, so the ranks must be on one"
            " machine."
        ),
    )


class Input(Model):
    """A file or folder that the subject reads.

    Exactly one of path, hub, layouts and made says where it comes from.
    """

    path: AnyPath | None = Field(
        None, description="A file or folder, relative to the scenario's folder."
    )
    hub: Hub | None = Field(
        None, description="A model on the hub with its revision: organisation/model@revision."
    )
    layouts: Distinct[Line] | None = Field(
        None,
        description=(
            "Tokenizer repositories that Rankproof makes itself, by name; `rankproof lab hub"
            " layouts` lists them."
        ),
    )
    made: Line | None = Field(
        None,
        description=(
            "A model that Rankproof makes itself, by name; `rankproof models list` lists them."
        ),
    )
    sha256: Sha256 | None = Field(
        None, description="Digest of the content; the run stops if it differs."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        nothing = "has no source; set path, hub, layouts or made"
        return demand_one(self, "path", "hub", "layouts", "made", nothing=nothing)


class HubService(Model):
    """A model hub on this machine, started anew for every world.

    Its ranks find it by HF_ENDPOINT.
    """

    serve: Name = Field(
        description="The input that contains its repositories, as folders ORGANISATION/NAME."
    )


ModuleName = Annotated[
    str,
    form(
        r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$",
        "must be the name of a module, like torch.distributed.tensor",
        most=200,
    ),
]


def _home(text: str) -> str:
    if posixpath.normpath(text) == ".":
        raise complaint(
            "must be a folder inside the scenario's folder, or `shared`, to use the user's own home"
            " folder"
        )
    return text


HomeFolder = Annotated[Inside, AfterValidator(_home)]


class WorldSettings(Model):
    """How the rank processes of a trial are started and stopped."""

    start: Literal["warm", "fresh"] = Field(
        "warm",
        description=(
            "warm: forked from a server that has imported everything; fresh: a new interpreter per"
            " rank."
        ),
    )
    deadline: Deadline = Field(
        60.0,
        description=(
            "The longest time that a trial may take, with a unit, at most 1h. A trial that takes"
            " longer has failed, and the ranks' stacks are recorded."
        ),
        json_schema_extra={"default": "60s"},
    )
    after_failure: Duration = Field(
        2.0,
        description=(
            "Time that the other ranks have to exit by themselves after the first failure, with a"
            " unit."
        ),
        json_schema_extra={"default": "2s"},
    )
    collective_timeout: Duration | None = Field(
        None,
        description=(
            "The backend's own timeout for joining the group and for each collective, with a"
            " unit. Default: longer than any deadline. Only for backends with such a timeout:"
            " gloo."
        ),
    )
    env: dict[Variable, Plain] = Field(
        default_factory=dict, description="Environment variables of every rank, values in quotes."
    )
    preload: Listed[ModuleName] = Field(
        (),
        description=(
            "Modules that warm ranks find imported, such as torch.distributed.tensor, because"
            " their server imported them before the first trial. If a module cannot be imported,"
            " the ranks import it themselves."
        ),
    )
    home: HomeFolder | None = Field(
        None,
        description=(
            "Contents of the ranks' home folder: a copy of this folder of the scenario, or with"
            " shared, the user's own home folder. Default: an empty folder for each world."
        ),
    )
    artefacts: Size | None = Field(
        None,
        description=(
            "The most bytes of kept artefacts that go into the evidence of a run, with a unit; 0B"
            " for none. Beyond it, the evidence has only digests and the results of checks."
            " Default: 256MiB."
        ),
    )
    hosts: Annotated[int, Field(ge=1, le=MOST_HOSTS)] = Field(
        1,
        description=(
            f"Number of test hosts for the ranks, 1 to {MOST_HOSTS}; each has its own network,"
            " name, /tmp and monotonic clock. 1: no test hosts, only this machine."
        ),
    )
    placement: Placement = Field(
        "round-robin",
        description=(
            "Placement of the ranks on the hosts: round-robin, blocks, or a list with the host of"
            " each rank."
        ),
    )

    @model_validator(mode="after")
    def _hosts_exist(self) -> Self:
        if "placement" in self.model_fields_set and self.hosts == 1:
            raise complaint(
                "places ranks on test hosts, but the scenario has none; add hosts", at="placement"
            )
        if isinstance(self.placement, tuple):
            for host in self.placement:
                if host >= self.hosts:
                    last = self.hosts - 1
                    raise complaint(
                        f"contains host {host}, but the hosts are numbered 0 to {last}",
                        at="placement",
                    )
        return self

    def hosts_of(self, size: int) -> tuple[int, ...] | None:
        """Host of each rank of a world of this size; None where all are on this machine."""
        return hosts_of(self.placement, hosts=self.hosts, size=size) if self.hosts > 1 else None

    @model_validator(mode="after")
    def _preload_is_warm(self) -> Self:
        if self.preload and self.start == "fresh":
            raise complaint(
                "is only for start: warm, because a fresh rank imports everything itself",
                at="preload",
            )
        return self

    @model_validator(mode="after")
    def _one_home(self) -> Self:
        if self.home is not None and "HOME" in self.env:
            raise complaint("cannot be combined with env.HOME; keep one of them", at="home")
        return self

    @property
    def home_is(self) -> Literal["room", "copy", "shared"]:
        """Return whether ranks have an empty room, one with a copy of a folder, or the user's own
        home folder.
        """
        if self.home is None:
            return "room"
        return "shared" if self.home == "shared" else "copy"


class Accept(Model):
    """What the candidate's trials must show."""

    failure_rate_below: Percent = Field(
        0.05,
        description=(
            "The upper bound of the failure rate must be below this, in percent; equal to it is not"
            " enough."
        ),
        json_schema_extra={"default": "5%"},
    )
    confidence: Percent = Field(
        0.95,
        description="Confidence of the bound, in percent.",
        json_schema_extra={"default": "95%"},
    )


class Trials(Model):
    """How often each arm is tried in each cell."""

    candidate: Annotated[int, Field(ge=1, le=100_000)] = Field(
        59,
        description=(
            "Trials of the candidate; 59 clean trials put the failure rate below 5% at 95%"
            " confidence."
        ),
    )
    control: Annotated[int, Field(ge=1, le=100_000)] = Field(
        5, description="Trials of the control."
    )
    accept: Accept = Field(
        default_factory=Accept, description="The bound that the trials of the candidate must meet."
    )
    max_voids: Annotated[int, Field(ge=0, le=1000)] = Field(
        2,
        description="How many void trials of a cell are replaced; the report counts them.",
    )


class Measure(Model):
    """A row of the report's impact table. Exactly one of event and probe says what is measured."""

    id: Id = Field(description="Name of the row, unique among the measurements.")
    event: Event | None = Field(None, description="Time that this event reports, in seconds.")
    probe: Literal["rss", "peak", "cpu", "read", "written", "requests", "received"] | None = Field(
        None,
        description=(
            "Private memory, peak memory, processor time, bytes read or written, measured from"
            " outside; or requests to the scenario's hub, or bytes received from it, from its"
            " log."
        ),
    )
    ranks: Ranks = Field(
        EVERY_RANK,
        description="The ranks that are measured: every, nonzero, or a list.",
        json_schema_extra={"default": "every"},
    )
    against: Literal["control"] | None = Field(
        None, description="Arm that the candidate is compared with."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        nothing = "does not state what to measure; set event or probe"
        return demand_one(self, "event", "probe", nothing=nothing)


# Lint refuses longer ones. A run still takes them, because evidence that is signed contains such.
LONGEST = {
    "title": (80, "the first line of a report"),
    "question": (200, "the head of a report"),
}


class Scenario(Model):
    """One question, what is run to answer it, and what the answer is judged by.

    Read one with ``load_scenario`` or ``parse_scenario``: rules that span several keys (a control
    for every claim, ranks that exist, …) are held there, by ``lint``, so that all problems of a
    file are named at once.
    """

    schema_: SchemaVersion = Field(alias="schema", description="Version of this format: 1.")
    id: Id = Field(description="Name of the scenario in results, reports and gates.")
    title: Title = Field(
        description=("One line that states what a PASS means; lint accepts at most 80 characters.")
    )
    question: Paragraph = Field(
        description=(
            "The question that the verdict answers, printed at the top of the report; lint accepts"
            " at most 200 characters."
        )
    )
    role: Literal["claim", "self-test", "upstream"] = Field(
        "claim",
        description=(
            "claim: counts; self-test: the tool on itself; upstream: a finding about third-party"
            " code."
        ),
    )
    expects: Literal["PASS", "FAIL", "INCONCLUSIVE"] | None = Field(
        None, description="The verdict that a self-test must end with."
    )
    tags: Listed[Id] = Field(
        (),
        description=(
            "Words to select scenarios by; a scenario with on-demand or sweep runs only if it is"
            " named."
        ),
    )
    needs: Needs = Field(default_factory=Needs, description="What a machine must have.")
    inputs: dict[Name, Input] = Field(
        default_factory=dict, description="Files that the subject reads, by name."
    )
    hub: HubService | None = Field(
        None, description="A model hub for the ranks, with a log of every request."
    )
    services: dict[Name, Service] = Field(
        default_factory=dict,
        description=(
            "Servers that the ranks connect to as clients, by name. These servers are not ranks."
        ),
    )
    finding: StatedDefect | None = Field(
        None,
        description="The defect of a released library that the control shows; only for upstream.",
    )
    subject: Subject = Field(description="The code under test.")
    matrix: Matrix = Field(
        description="The axes whose combinations are the cells; each has a verdict."
    )
    world: WorldSettings = Field(
        default_factory=WorldSettings, description="How the ranks are started and stopped."
    )
    seed: SeedText = Field(
        "0", description="Root of all seeds, a string of 1 to 64 characters, in quotes."
    )
    trials: Trials = Field(default_factory=Trials, description="How often each arm is tried.")
    faults: Listed[AnyFault] = Field((), description="Faults to inject into the world.")
    checks: Annotated[Listed[AnyCheck], Field(min_length=1)] = Field(
        description="What must be true of every rank."
    )
    observe: Distinct[Literal["collectives", "digests", "eager-digests"]] = Field(
        (),
        description=(
            "collectives: every rank writes a ledger of its collective and point-to-point calls."
            " digests: the ledger also has digests of the data that each call sends and receives."
            " eager-digests: also for MLX, which is evaluated for it."
        ),
    )
    show: Listed[EventValue] = Field(
        (), description="Values of events that the report tabulates rank by rank, without a check."
    )
    measure: Listed[Measure] = Field((), description="Rows of the report's impact table.")

    def services_of(self, arm: str) -> dict[str, Service]:
        """Services as they are in an arm, by name; the reference has those of the candidate."""
        stated = self.subject.arms.get(arm, self.subject.candidate)
        return {
            name: service.changed(stated.services.get(name))
            for name, service in self.services.items()
        }

    @property
    def digests(self) -> Literal["", "given", "eager"]:
        """Return whether payloads are digested, and whether MLX is evaluated for it."""
        if "eager-digests" in self.observe:
            return "eager"
        return "given" if "digests" in self.observe else ""

    def overlong(self) -> Iterator[tuple[str, str]]:
        """Yield title and question where one is too long for a report: the key, and what to do."""
        for key, (most, place) in LONGEST.items():
            length = len(getattr(self, key).strip())
            if length > most:
                yield key, f"has {length} characters, but at most {most} fit {place}; shorten it"

    @model_validator(mode="after")
    def _arms_of_a_comparison(self) -> Self:
        """Return what a comparison means to everybody else: a candidate, a control, and faults of
        it.
        """
        compare = self.subject.compare
        if compare is None:
            return self
        arms = {"candidate": compare.b, "control": control_of(compare, self.checks)}
        faults = (*self.faults, *faults_of(compare))
        return self.model_copy(
            update={"subject": self.subject.model_copy(update=arms), "faults": faults}
        )


DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "Rankproof scenario"
REGISTRIES: dict[str, Registry[Any]] = {"checks": CHECKS, "faults": FAULTS}


def json_schema(tree: object = None) -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a scenario file from the models.

    Args:
        tree: a scenario: of plug-ins, those are described whose kinds it names, or that were
            imported before. None describes every kind, and imports every plug-in.
    """
    for section, registry in REGISTRIES.items():
        items = tree.get(section) if isinstance(tree, dict) else None
        kinds = (
            [item.get("kind") for item in items if isinstance(item, dict)]
            if isinstance(items, list)
            else []
        )
        for kind in registry.names if tree is None else kinds:
            registry.reason(str(kind))
    return _schema_of(*(tuple(registry.described) for registry in REGISTRIES.values()))


@cache
def _schema_of(*_kinds: tuple[str, ...]) -> dict[str, Any]:
    """Schema with the kinds that are described, which the arguments name."""
    schema = Scenario.model_json_schema(by_alias=True, schema_generator=_UntitledSchema)
    claims = {"properties": {"role": {"const": "claim"}}}
    schema |= {
        "$schema": DIALECT,
        "title": TITLE,
        "allOf": [
            {
                "if": {"properties": {"role": {"const": "self-test"}}, "required": ["role"]},
                "then": {"required": ["expects"]},
            },
            {"if": claims, "then": {"properties": {"expects": {"type": "null"}}}},
        ],
    }
    definitions = schema["$defs"]
    definitions["Subject"]["oneOf"] = _exactly_one("entry", "program", "use")
    definitions["Input"]["oneOf"] = _exactly_one("path", "hub", "layouts", "made")
    definitions["Measure"]["oneOf"] = _exactly_one("event", "probe")
    return schema


def schema_text() -> str:
    """Return the JSON Schema as text: sorted keys, two spaces, one line feed at the end."""
    return json.dumps(json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _UntitledSchema(GenerateJsonSchema):
    """Leave out the titles that pydantic makes from names of attributes: they say nothing new."""

    # Pydantic's signature.
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _exactly_one(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
