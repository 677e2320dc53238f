"""Requests that share a cache, each of which has to get its own answer, by the schedulers of
transformers and mlx-lm.

The recall model knows 256 keys by heart: after BEGIN, some filler, OPEN, two tokens of a key and
CLOSE come the three tokens that belong to the key, by a wide margin. So an answer tells which
request's keys and values it was made from.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

BEGIN, OPEN, CLOSE, LEFT, RIGHT, FILLER = 0, 3, 4, 8, 24, 40
ANSWER = 3
"""Tokens of an answer."""


@dataclass(frozen=True)
class Request:
    """What a client asks: a key behind so many tokens of filler, and how many tokens it wants.

    Attributes:
        cancelled: its client leaves after the first token; nothing is told of it.
    """

    key: int
    filler: int
    tokens: int = ANSWER
    cancelled: bool = False

    @property
    def prompt(self):
        words = [FILLER + (37 * place) % 480 for place in range(self.filler)]
        return [BEGIN, *words, OPEN, LEFT + self.key % 16, RIGHT + self.key // 16, CLOSE]

    @property
    def answer(self):
        """What the model was trained to answer: no run has to be believed for it."""
        digits = hashlib.sha256(f"recall {self.key}".encode()).digest()
        return [
            LEFT + int.from_bytes(digits[place : place + 2], "big") % 520 for place in (0, 2, 4)
        ][: self.tokens]


SITUATIONS = {
    # Seven prompts of three lengths; some requests leave the batch after one token, and the rows of
    # the others move up.
    "leaving": (
        (
            Request(3, 2, tokens=1),
            Request(77, 2),
            Request(200, 2),
            Request(15, 0),
            Request(9, 4, tokens=1),
            Request(120, 4),
            Request(254, 4),
        ),
    ),
    # What stands before the key is in the cache already, or the first token of the key too, from
    # other requests.
    "hit": (
        (Request(5, 2),),
        (Request(21, 2), Request(37, 2), Request(245, 2)),
        (Request(21, 1), Request(6, 2), Request(5, 2)),
    ),
    # A client leaves after the first token; its memory goes to requests that come later.
    "cancel": (
        (Request(33, 4, tokens=40, cancelled=True), Request(90, 1)),
        (Request(181, 0), Request(66, 2)),
        (Request(140, 4, tokens=40, cancelled=True),),
        (Request(12, 4), Request(181, 3)),
    ),
}
"""Rounds of requests: those of a round come together, those of the next one when all of them have
their answers.
"""


def alone(context, *, situation):
    """Entry of the reference: each request by itself, with the whole model and an empty cache, by
    transformers.
    """
    engine = transformers(context)
    answers = []
    for request in kept(situation):
        answers.append(engine.alone(request))
        assert answers[-1] == request.answer, (
            f"{answers[-1]} is not the answer of key {request.key}: {request.answer}"
        )
        context.emit("answered", request=len(answers) - 1, ids=answers[-1], of=len(answers) - 1)
    # Two keys with one answer could be mixed up and nobody would see it.
    assert len({tuple(answer) for answer in answers}) == len(
        {request.key for request in kept(situation)}
    )


def serve(context, *, situation, broken):
    """Entry: all requests of a situation, by the engine's own scheduler; `broken` breaks what the
    situation needs.
    """
    engine = ENGINES[context.backend](context)
    held, whole = engine.held()
    context.emit("engine.ready", engine=engine.name, elements=held, whole=held >= whole)
    told = json.loads(Path(context.inputs["reference"], "values.json").read_text())["answered.ids"]
    answers = engine.serve(SITUATIONS[situation], situation if broken else "")
    for number, answer in enumerate(answers):
        context.emit(
            "answered",
            request=number,
            ids=answer,
            of=told.index(answer) if answer in told else None,
        )
    context.emit("happened", times=engine.seen[situation])


def kept(situation):
    """The requests that are answered."""
    return [
        request
        for requests in SITUATIONS[situation]
        for request in requests
        if not request.cancelled
    ]


def elements_of(folder):
    """How many numbers a checkpoint holds."""
    with Path(folder, "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")


def transformers(context):
    from paged import Paged

    return Paged(context, elements_of(context.inputs["model"]))


def mlx(context):
    from batched import Batched

    return Batched(context, elements_of(context.inputs["model"]))


ENGINES = {"gloo": transformers, "mlx-ring": mlx}
