"""Code of a ready-made subject beside an entry of one's own: it is the version's own, and an adapter for
it is short.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.engines.inference_inside import session
from harness.engines.inference_inside.engine import Piece, Request, takes_a_request
from harness.engines.inference_inside.torch_decoder import TorchDecoder
from harness.gate.discrepancies import foreign
from harness.run.arms.staging import ArmError, previewed
from harness.run.arms.syntax import misfits
from harness.scenario import ScenarioError, parse_scenario
from harness.subjects import READY

SCENARIO = """\
schema: 1
id: mine
title: An engine of mine
question: Does it split?
subject:
  entry: subject:split
  beside: mlx-tensor
  candidate: {with: {hidden: keep}}
  control: {with: {hidden: none}, must_fail: {check: told, ranks: every}}
matrix: {ranks: [2]}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: told, kind: event, ranks: every, event: generated}
"""
SUBJECT = "from inference import session\n\n\ndef split(context, **asked):\n    session.run\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("beside: mlx-tensor", "beside: mlx-tensr", "is not a ready-made subject"),
        ("entry: subject:split", "use: mlx-tensor", "has no effect without an entry"),
        ("entry: subject:split", "program: [sh, rank.sh]", "has no effect without an entry"),
    ],
)
def test_a_mistake_is_named(old: str, new: str, message: str) -> None:
    """What lies beside an entry is a ready-made subject, and nothing but an entry can import it."""
    with pytest.raises(ScenarioError) as raised:
        parse_scenario(SCENARIO.replace(old, new).encode(), name="s.yaml")
    (problem,) = (one for one in raised.value.problems if message in one.message)
    assert problem.key == "subject.beside"


def test_its_files_lie_in_both_arms(tmp_path: Path) -> None:
    """Each arm holds every file of the ready-made subject, beside the entry's own."""
    (tmp_path / "subject.py").write_text(SUBJECT)
    code = READY["mlx-tensor"].files()
    with previewed(parse_scenario(SCENARIO.encode(), name="s.yaml"), folder=tmp_path) as arms:
        for arm in arms.values():
            found = {path: (arm.folder / path).read_bytes() for path in code}
            assert found == code
            assert (arm.folder / "subject.py").read_text() == SUBJECT


def test_code_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    """A file of the code under test that would lie in its place stops the run."""
    (tmp_path / "subject.py").write_text(SUBJECT)
    (tmp_path / "inference").mkdir()
    (tmp_path / "inference" / "session.py").write_text("run = None\n")
    with (
        pytest.raises(
            ArmError,
            match=r"inference/session\.py belongs both to the code under test and to the code of mlx-tensor",
        ),
        previewed(parse_scenario(SCENARIO.encode(), name="s.yaml"), folder=tmp_path),
    ):
        pass


def nothing(path: str) -> bytes:
    """No file of the evidence is asked for."""
    raise AssertionError(path)


@pytest.mark.parametrize("revision", [None, "a commit"])
def test_a_gate_demands_that_it_is_its_own(revision: str | None) -> None:
    """Of no commit, whatever the arm was laid out from: it has to be what the version that decides
    lays there.
    """
    digests = {path: sha256(data).hexdigest() for path, data in READY["mlx-tensor"].files().items()}
    scenario = parse_scenario(SCENARIO.encode(), name="s.yaml")
    known: Any = SimpleNamespace(sha256="same", scenario=scenario)
    basis: Any = SimpleNamespace(commit_files={}, commit="0" * 40)
    laid_out = None if revision is None else SimpleNamespace(folder="")

    def record(files: dict[str, str]) -> Any:
        return SimpleNamespace(
            run=SimpleNamespace(source=SimpleNamespace(scenario="mine"), overrides=()),
            scenario=SimpleNamespace(sha256="same"),
            arms={"candidate": SimpleNamespace(revision=laid_out, files=files)},
        )

    assert foreign(record(digests), known, basis, nothing) == ()
    changed = digests | {"inference/session.py": "0" * 64}
    (line,) = foreign(record(changed), known, basis, nothing)
    assert line.startswith("candidate: inference/session.py")
    (line,) = foreign(record({**digests, "inference/answers.py": ""}), known, basis, nothing)
    assert line.startswith("candidate: inference/answers.py")


def test_arguments_of_a_request_are_parameters_of_its_entry() -> None:
    """An argument that no request has is a slip that is found before a trial.

    Of the others nobody doubts the use.
    """

    @takes_a_request
    def split(context: Any, *, sharding: str = "tensor", **asked: Any) -> None:
        raise AssertionError(context, sharding, asked)

    found = inspect.signature(split)
    assert {"sharding", *Request.__dataclass_fields__} == set(found.parameters) - {"context"}
    assert not list(misfits(found, ["hidden", "sharding"], called="split"))
    (slip,) = misfits(found, ["hiden"], called="split")
    assert slip.suggestion == "hidden"


class Toy(TorchDecoder):
    """Two layers of a decoder without attention, each cut over the ranks."""

    def load(self, *_asked: str, **_further: str) -> None:
        """Draw the whole model, and keep this rank's rows of the first matrix."""
        torch.manual_seed(7)
        layers = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 24, bias=False), nn.Linear(24, 12)) for _ in range(2)
        )
        self.take_in(layers.requires_grad_(False), layers=list(layers), rows=12)
        for layer in layers if self.size > 1 else ():
            up: Any = layer.get_submodule("0")
            up.weight = nn.Parameter(up.weight.chunk(self.size)[self.rank], requires_grad=False)

    def begin(self) -> None:
        """Nothing is seen."""

    def step(self, ids: Sequence[int]) -> Tensor:
        """Through both layers."""
        state = torch.eye(12)[list(ids)]
        for layer in self.layers:
            state = state + layer(state)
        return state


def loaded(rank: int = 0, size: int = 1) -> Toy:
    toy = Toy("toy", rank=rank, size=size)
    toy.load()
    return toy


def slices(pieces: Iterator[Piece], name: str) -> list[tuple[list[list[int]], bytes]]:
    return [(piece.slices, piece.data) for piece in pieces if piece.tensor == name]


def test_a_decoder_of_torch_tells_the_slices_that_it_holds() -> None:
    """What is cut is told by where it lies in the whole; what is not, as whole."""
    ((whole, all_of_it),) = slices(loaded().pieces(), "0.0.weight")
    assert whole == [[0, 24], [0, 12]]
    halves = [slices(loaded(rank, 2).pieces(), "0.0.weight") for rank in (0, 1)]
    assert [[place for place, _ in half] for half in halves] == [
        [[[0, 12], [0, 12]]],
        [[[12, 24], [0, 12]]],
    ]
    assert b"".join(data for half in halves for _, data in half) == all_of_it
    assert slices(loaded(1, 2).pieces(), "0.1.bias")[0][0] == [[0, 12]]


@pytest.mark.slow
def test_its_orders_add_up_the_same_sums_otherwise() -> None:
    """Each order gives other bits somewhere, none of them far off, and leaves the model as it
    was.
    """
    toy, ids = loaded(), list(range(12))
    first = toy.step(ids)
    others = 0
    for order in toy.orders():
        with order.inside():
            found = toy.step(ids)
        assert torch.allclose(found, first, atol=1e-5), order.words
        others += not torch.equal(found, first)
    assert others, "no order gives other bits: the envelope would be empty"
    assert torch.equal(toy.step(ids), first)


def test_its_layers_are_seen_and_made_louder() -> None:
    """What comes out of each layer is kept, and a layer is louder only for as long as it is
    asked.
    """
    toy = loaded()
    first = toy.step([1, 2])
    assert {name: tuple(state.shape) for name, state in toy.hidden().items()} == {
        "0": (2, 12),
        "1": (2, 12),
    }
    with toy.scaled(0, 1.5):
        assert (toy.step([1, 2]) - first).abs().max() > 0.01
    assert torch.equal(toy.step([1, 2]), first)
    toy.layers = [nn.LayerNorm(12)]
    with pytest.raises(ValueError, match="no matrix was found in layer 0"), toy.scaled(0, 1.5):
        pass


def test_a_quantized_checkpoint_says_so() -> None:
    """A tensor of a byte for each number is I8, whatever the others are."""
    pieces = [
        Piece(tensor="weight", slices=[[0, 2], [0, 3]], data=bytes(6)),
        Piece(tensor="scales", slices=[[0, 2]], data=bytes(8)),
    ]
    data = session.checkpoint(pieces, dtype="float32")
    assert b'"weight": {"dtype": "I8", "shape": [2, 3]' in data
    assert b'"scales": {"dtype": "F32", "shape": [2]' in data
