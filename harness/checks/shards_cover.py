"""`shards-cover`: the ranks hold each element of the checkpoint exactly once, with the bytes it has
there.

How an engine means to share a checkpoint, what its plan leaves whole, is told by a reference: a
process of its own and none of the ranks, so that no rank excuses itself. What a plan is held to is
exact: of what it leaves whole every rank holds all, and nothing else lies twice. One that is told
too wide is wrong of ranks that share, and one that shares nothing of any layer is wrong of all.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from harness.checks.accounted import AccountedCheck, Sources
from harness.checks.check import NO_VALUE, FailsAt
from harness.checks.finding import RankFinding, failed
from harness.forms.model import Line, Listed
from harness.forms.strict_json import JSON
from harness.forms.text import numbered, plural
from harness.history import History
from harness.numeric.array import NotAnArray, NotSafetensors, slice_of, tensors
from harness.reason import VerdictCode

CHECKPOINT = "checkpoint"
SHARD = "shard"
Bounds = tuple[tuple[int, int], ...]
IN_A_LAYER = re.compile(r"(^|\.)\d+\.")


class Shard(NamedTuple):
    """Slice that a rank says it loaded, and the line that says so."""

    tensor: str
    bounds: Bounds
    sha256: str
    line: int


class Checkpoint(NamedTuple):
    """Shapes of the tensors of a checkpoint, and digests of the slices that ranks say they hold."""

    shapes: Mapping[str, Sequence[int]]
    slices: Mapping[str, JSON]


class ShardsCoverCheck(AccountedCheck):
    """Each element of the checkpoint is on exactly one rank, with its bytes, or on several ranks if
    the check allows it.
    """

    properties: ClassVar = replace(
        NO_VALUE, reports_a_value=True, wrong=FailsAt.RANK_END, missing=FailsAt.RANK_END
    )
    example: ClassVar = (
        '{id: split, kind: shards-cover, ranks: every, against: reference, replicated: ["*norm*"]}'
    )

    kind: Literal["shards-cover"]
    against: Literal["reference"] = Field(
        description=(
            "The owner of the checkpoint: subject.reference keeps it as the artefact checkpoint,"
            " in safetensors."
        )
    )
    replicated: Listed[Annotated[Line, Field(max_length=200)]] = Field(
        (), description="Names of tensors that may be on several ranks, such as '*norm*'."
    )
    plan: Literal["reference"] | None = Field(
        None,
        description=(
            "Where the list of tensors that the engine's plan does not split comes from: the"
            " reference, by its events plan and plan.whole. If it reported them for the ranks'"
            " engine, every rank must have all of them, nothing else may be on two ranks, each"
            " rank must have its part of a layer, and replicated is ignored."
        ),
    )

    def wants(self, name: str) -> bool:
        return name == CHECKPOINT

    def is_answer(self, name: str) -> bool:
        del name
        return False  # ranks load their shares from it

    def account(self, sources: Sources) -> dict[str, JSON]:
        """Shapes of the checkpoint's tensors, and the digests of the slices that ranks say they
        hold.
        """
        if (file := sources.reference.get(CHECKPOINT)) is None:
            raise NotAnArray(
                "the reference kept no checkpoint; keep a safetensors file as an artefact named"
                ' "checkpoint"'
            )
        content = file.content
        try:
            whole = tensors(content)
        except NotSafetensors as error:
            raise NotAnArray(
                f"the reference's checkpoint is not a safetensors file: {error}"
            ) from None
        asked = {
            (one.tensor, one.bounds)
            for rank in range(sources.history.size)
            for one in shards_of(sources.history, rank) or ()
            if one.tensor in whole and _lies_in(one.bounds, whole[one.tensor].shape)
        }
        digests: dict[str, JSON] = {
            _key(name, bounds): hashlib.sha256(slice_of(content, whole[name], bounds)).hexdigest()
            for name, bounds in sorted(asked)
        }
        return {
            "shapes": {name: list(tensor.shape) for name, tensor in whole.items()},
            "slices": digests,
        }

    def judge_account(
        self, history: History, account: Mapping[str, JSON], line: int
    ) -> list[RankFinding]:
        shapes = account.get("shapes")
        slices = account.get("slices")
        if (
            not isinstance(shapes, dict)
            or not isinstance(slices, dict)
            or not all(map(_is_shape, shapes.values()))
        ):
            return self.uncompared(
                history, "it cannot be compared, because its account is not valid", line
            )
        shards = {rank: shards_of(history, rank) for rank in range(history.size)}
        try:
            plan = plan_of(history) if self.plan is not None else None
        except NotAPlan as error:
            return self.uncompared(history, str(error), line)
        find = self._faults if plan is None else partial(_faults_by, plan)
        faults = find(shapes, shards, history.size)
        by = f"; {plan.words(shapes)}" if plan is not None else ""
        checkpoint = Checkpoint(shapes, slices)
        return [
            self._judge(rank, shards[rank], checkpoint, faults, line, by=by)
            for rank in self.ranks.of(history.size)
        ]

    def doubts(self, history: History) -> Iterator[tuple[VerdictCode, str]]:
        """Yield a doubt where the reference reports two plans in two runs."""
        if self.plan is not None and history.reference is not None:
            first = plans_in(history.reference)
            second = plans_in(history)
            if first != second:
                yield (
                    VerdictCode.REFERENCE_DIFFERS,
                    f"reported two plans in its two runs, and check {self.id} depends on them",
                )

    def _judge(
        self,
        rank: int,
        shards: Sequence[Shard] | None,
        checkpoint: Checkpoint,
        faults: Mapping[str, tuple[frozenset[int], str]],
        line: int,
        *,
        by: str,
    ) -> RankFinding:
        if shards is None:
            return failed(rank, "its report of its shards is not valid", line, missing=True)
        if not shards:
            return failed(rank, "it reported no shards", line, missing=True)
        shapes = checkpoint.shapes
        for shard in shards:
            key = _key(shard.tensor, shard.bounds)
            if shard.tensor not in shapes:
                why = f"the checkpoint has no tensor {shard.tensor}"
            elif not _lies_in(shard.bounds, shapes[shard.tensor]):
                why = f"{key} is outside the tensor, whose shape is {shapes[shard.tensor]}"
            elif checkpoint.slices.get(key) != shard.sha256:
                why = f"the bytes of {key} differ from the checkpoint"
            else:
                continue
            return failed(rank, why, shard.line)
        # What is missing is a fault of every rank: it could lie on any.
        mine = [why for ranks, why in faults.values() if rank in ranks or not ranks]
        if mine:
            return failed(rank, mine[0], line)
        elements = sum(math.prod(end - begin for begin, end in shard.bounds) for shard in shards)
        total = sum(math.prod(shape) for shape in shapes.values())
        observed = (
            f"{plural(len(shards), 'slice')}, {elements} of {total} parameters"
            f" ({elements / total:.0%}){by}"
        )
        return RankFinding(rank=rank, passed=True, observed=observed, line=line)

    def _faults(
        self,
        shapes: Mapping[str, Sequence[int]],
        shards: Mapping[int, Sequence[Shard] | None],
        size: int,
    ) -> dict[str, tuple[frozenset[int], str]]:
        """Per tensor, why it is not covered once, and by whose slices.

        No rank where nobody has it.
        """
        alone: set[int] = set()
        faults = {}
        for name, shape, pieces in _held(shapes, shards):
            may_repeat = any(fnmatchcase(name, pattern) for pattern in self.replicated)
            distinct = pieces
            # Several ranks may hold the same slice, and one of them counts.
            if may_repeat:
                distinct = list(
                    {bounds: (rank, bounds) for rank, bounds in reversed(pieces)}.values()
                )
            if (fault := _not_once(name, shape, distinct)) is not None:
                faults[name] = fault
            alone |= {
                rank
                for rank, bounds in pieces
                if not any(other != rank and own == bounds for other, own in pieces)
            }
        for rank in range(size) if size > 1 else ():
            if rank not in alone and not faults:
                faults[f"rank {rank}"] = (
                    frozenset({rank}),
                    "everything that it has is also on another rank",
                )
        return faults


def shards_of(history: History, rank: int) -> list[Shard] | None:
    """Return the slices that a rank says it holds; None where an event does not name one."""
    found = []
    for seen in history.said(rank, SHARD):
        values = seen.event.values
        name = values.get("tensor")
        bounds = values.get("slices")
        digest = values.get("sha256")
        if not isinstance(name, str) or not isinstance(bounds, list) or not isinstance(digest, str):
            return None
        if not all(
            isinstance(bound, list) and len(bound) == 2 and all(type(end) is int for end in bound)
            for bound in bounds
        ):
            return None
        found.append(
            Shard(name, tuple((bound[0], bound[1]) for bound in bounds), digest, seen.line)
        )
    return found


def _faults_by(
    plan: SharingPlan,
    shapes: Mapping[str, Sequence[int]],
    shards: Mapping[int, Sequence[Shard] | None],
    size: int,
) -> dict[str, tuple[frozenset[int], str]]:
    """Find the tensors that are not held as a plan says, and the ranks without a part of a
    layer.
    """
    faults = {}
    in_layers = set(plan.shares_in_layers(shapes))
    sharing = set[int]()
    for name, shape, pieces in _held(shapes, shards):
        if name in plan.whole:
            for rank in range(size):
                if (
                    _not_once(name, shape, [piece for piece in pieces if piece[0] == rank])
                    is not None
                ):
                    why = (
                        f"it does not have all of {name} once, which the plan of {plan.engine}"
                        " does not split"
                    )
                    faults[f"{name} on rank {rank}"] = frozenset({rank}), why
        elif (fault := _not_once(name, shape, pieces)) is not None:
            faults[name] = fault
        if name in in_layers:
            sharing |= {rank for rank, _ in pieces}
    for rank in range(size) if size > 1 else ():
        if rank not in sharing:
            why = (
                f"it has no part of any matrix that the plan of {plan.engine} splits within a layer"
            )
            faults[f"rank {rank}"] = frozenset({rank}), why
    return faults


def _held(
    shapes: Mapping[str, Sequence[int]], shards: Mapping[int, Sequence[Shard] | None]
) -> Iterator[tuple[str, Sequence[int], list[tuple[int, Bounds]]]]:
    """Each tensor with its shape, and the slices that ranks hold of it."""
    held: defaultdict[str, list[tuple[int, Bounds]]] = defaultdict(list)
    for rank, listed in shards.items():
        for shard in listed or ():
            held[shard.tensor].append((rank, shard.bounds))
    for name, shape in shapes.items():
        yield (
            name,
            shape,
            [(rank, bounds) for rank, bounds in held[name] if _lies_in(bounds, shape)],
        )


def _not_once(
    name: str, shape: Sequence[int], pieces: Sequence[tuple[int, Bounds]]
) -> tuple[frozenset[int], str] | None:
    ranks = set[int]()
    slices = ""
    most = len({rank for rank, _ in pieces})
    for (rank, one), (other, two) in itertools.combinations(pieces, 2):
        if all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(one, two, strict=True)):
            ranks |= {rank, other}
            slices = slices or f"({_key('', one)} and {_key('', two)})"
            if len(ranks) == most:
                break
    if ranks:
        where = (
            f"on rank {min(ranks)} twice"
            if len(ranks) == 1
            else f"on {numbered('rank', sorted(ranks))}"
        )
        return frozenset(ranks), f"{name} is {where} {slices}"
    # Slices that do not overlap cover the tensor where they are as many elements.
    lacking = math.prod(shape) - sum(
        math.prod(end - begin for begin, end in bounds) for _, bounds in pieces
    )
    if lacking:
        return frozenset(), f"{lacking} of {math.prod(shape)} elements of {name} are on no rank"
    return None


def _lies_in(bounds: Bounds, shape: Sequence[int]) -> bool:
    return len(bounds) == len(shape) and all(
        0 <= begin < end <= size for (begin, end), size in zip(bounds, shape, strict=True)
    )


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _key(name: str, bounds: Bounds) -> str:
    return f"{name}[{', '.join(f'{begin}:{end}' for begin, end in bounds)}]"


PLAN = "plan"
WHOLE = "plan.whole"


class NotAPlan(Exception):
    """Raised where the events do not say how the ranks share."""


class SharingPlan(NamedTuple):
    """How an engine shares.

    Attributes:
        engine: which.
        whole: the tensors of which every rank holds all; each element of the others lies on one
            rank.
    """

    engine: str
    whole: frozenset[str]

    def shares_in_layers(self, shapes: Mapping[str, object]) -> Iterator[str]:
        """Yield the matrices of layers that are shared; an embedding or a head is in no layer."""
        for name, shape in shapes.items():
            if (
                isinstance(shape, list)
                and len(shape) > 1
                and IN_A_LAYER.search(name)
                and name not in self.whole
            ):
                yield name

    def words(self, shapes: Mapping[str, object]) -> str:
        """How much of a checkpoint it leaves whole, for a report."""
        return (
            f"{len(self.whole & shapes.keys())} of {len(shapes)} tensors not split by the plan of"
            f" {self.engine}"
        )


def plan_of(history: History) -> SharingPlan | None:
    """Return the plan of the engine that all ranks say they are; None if the reference has none.

    A rank that names an engine gains nothing: it is held to that engine's plan.

    Raises:
        NotAPlan: some ranks alone say that they are an engine of which a plan was told, or what was
            told is none.
    """
    said = {
        value if isinstance(value, str) else None
        for rank in range(history.size)
        for value in [one for one, _ in history.values(rank, "engine.ready", "engine")] or [None]
    }
    plans = plans_in(history.reference) if history.reference is not None else []
    if said.isdisjoint(engine for engine, _, _ in plans):
        return None
    if len(said) > 1:
        raise NotAPlan(f"ranks report different engines: {', '.join(sorted(map(str, said)))}")
    (engine,) = said
    tensors = [
        values.get("tensor") for name, event, values in plans if (name, event) == (engine, WHOLE)
    ]
    heads = [values for name, event, values in plans if (name, event) == (engine, PLAN)]
    whole = frozenset(tensor for tensor in tensors if isinstance(tensor, str))
    if len(heads) != 1 or not len(whole) == len(tensors) == heads[0].get("whole"):
        raise NotAPlan(
            f"the {engine} plan that the reference reported states a tensor count that does not"
            " match its list of tensors"
        )
    return SharingPlan(str(engine), whole)


def plans_in(reference: History) -> list[tuple[str, str, Mapping[str, JSON]]]:
    """Everything that a reference told of plans, in its order: engine, event and values."""
    return [
        (str(seen.event.values.get("engine")), name, seen.event.values)
        for name in (WHOLE, PLAN)
        for seen in reference.said(0, name)
    ]
