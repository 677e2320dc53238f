"""The same answers once more: each order is set up once, numbered alike for every prompt, and cuts
a matrix once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engines.inference_inside import answers, torch_decoder
from harness.engines.inference_inside.engine import Request, SumOrder
from tests.engines.test_beside import Toy

ORDERS = [SumOrder("apart", nullcontext, chunked=True), SumOrder("doubled", nullcontext)]


def asked_again(prompt: int, *, number: int = 0, **asked: Any) -> list[tuple[int, str, int | None]]:
    """What a prompt of so many tokens is asked again."""
    found = answers.asked(
        Request(**asked), answers.AskedPrompt(number=number, ids=range(prompt)), ORDERS
    )
    return [(one.count, one.words, one.chunk) for one in found]


def test_variants_are_numbered_by_prompt() -> None:
    """Other chunks come first, then each order, whole and in chunks.

    A prompt of one token has no chunks.
    """
    assert asked_again(8, envelope="keep") == [
        (0, "prefill in chunks of 1", 1),
        (1, "prefill in chunks of 4", 4),
        (2, "apart", None),
        (3, "apart, prefill in chunks of 4", 4),
        (4, "doubled", None),
    ]
    assert asked_again(1, envelope="keep") == [(0, "apart", None), (1, "doubled", None)]
    assert asked_again(8, envelope="unchunked") == [(0, "apart", None), (1, "doubled", None)]
    some = [asked_again(8, envelope="some", number=number) for number in range(3)]
    assert [[count for count, *_ in one] for one in some] == [[0, 1], [2, 3], [0, 4]]


class Noting(Toy):
    """Notes when each of its orders begins and ends, and how many tokens it reads at a time
    meanwhile.
    """

    noted: list[str | int]

    def orders(self) -> Iterator[SumOrder]:
        """Two, which change nothing."""
        yield SumOrder("apart", lambda: self._inside("apart"), chunked=True)
        yield SumOrder("doubled", lambda: self._inside("doubled"))

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self.noted.append(f"begin {name}")
        yield
        self.noted.append(f"end {name}")

    def step(self, ids: Sequence[int]) -> Tensor:
        """Note it."""
        self.noted.append(len(ids))
        return super().step(ids)


class Kept:
    """What a rank would be given: takes what is kept and told."""

    def __init__(self) -> None:
        self.names, self.told = list[str](), list[Any]()

    def keep(self, name: str, _values: Any) -> None:
        """Note its name."""
        self.names.append(name)

    def emit(self, _event: str, **values: Any) -> None:
        """Note it."""
        self.told.append((values["prompt"], values["number"], values["order"]))


def test_an_order_is_set_up_once_for_all_prompts() -> None:
    """Some make copies of every matrix: each is entered once, and has ended before the next
    begins.
    """
    toy, kept = Noting("toy", rank=0, size=1), Kept()
    toy.load()
    toy.noted = []
    request = Request(envelope="keep", prefill_chunk=2)
    prompts = [
        answers.AskedPrompt(number=number, ids=ids, fed=[])
        for number, ids in enumerate(([1, 2, 3, 4], [5]))
    ]
    answers.PromptSession(kept, toy, request).envelope(prompts)
    apart = ["begin apart", 2, 2, 2, 2, 1, 1, "end apart"]  # as the ranks read it, and in halves
    assert toy.noted == [1, 1, 1, 1, 4, 1, *apart, "begin doubled", 2, 2, 1, "end doubled"]
    assert sorted((prompt, count) for prompt, count, _ in kept.told) == [
        (0, n) for n in range(5)
    ] + [(1, n) for n in range(4)]
    assert (0, 3, "apart, prefill in chunks of 2") in kept.told
    assert kept.names.count("envelope.3.prefill.logits.1") == 1


def test_transformers_cuts_a_matrix_once() -> None:
    """What lies in every so manieth column is copied in the first pass alone, and let go when the
    order ends.
    """
    layer, given = torch.nn.Linear(24, 12), torch.ones(1, 24)
    with (
        torch.no_grad(),
        torch_decoder.split(torch.nn.Sequential(layer), torch_decoder.Cut(3, strided=True)),
    ):
        first = layer(given)
        layer.weight.zero_()
        assert torch.equal(layer(given), first)
    assert torch.equal(layer(given), layer.bias[None])


def test_mlx_cuts_a_matrix_once() -> None:
    """The same of mlx-lm's modules."""
    mx: Any = pytest.importorskip("mlx.core")
    from mlx import nn

    from harness.engines.inference_inside.modules_mlx import split

    layer: Any = nn.Linear(24, 12)
    model, given = nn.Sequential(layer), mx.ones((1, 24))
    with split(model, 3, strided=True):
        first = layer(given)
        mx.eval(first)
        layer.weight = mx.zeros((12, 24))
        assert mx.array_equal(layer(given), first)
    assert mx.array_equal(layer(given), layer.bias[None])


@pytest.mark.parametrize(("reads", "many"), [(False, 1), (True, 0)])
def test_padding_is_an_order_only_where_it_changes_no_more_than_rounding(
    reads: bool, many: int
) -> None:
    """MiniMax M3 cuts keys into blocks by their place: beside its noise no position was left to
    judge.
    """
    from harness.engines.inference_inside.hf import Transformers

    class Padded(Transformers):
        """Whose logits are others in a batch, by a rounding or by what padding says."""

        def begin(self) -> None:
            """It keeps nothing."""

        def take(self, experts: Any) -> None:
            """It chooses nothing."""

        def step(self, ids: Any) -> Any:
            """A row for each token."""
            return torch.ones(len(ids), 4) + self._padding * (1e-2 if reads else 1e-7)

    engine = Padded(rank=0, size=1, sharding="single")
    engine.rows = 10
    assert [order.words for order in engine.orders()].count("in a batch of two, padded") == many
