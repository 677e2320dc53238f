"""What `hf-pipeline` spends in `harness._integrity`: CPU time inside the library over the whole, in
one run.

Beside it pairs: the same tokens at each level in turn, in the same processes, as tokens a second
over those of `off`.

GPT-2 small as transformers makes it (124 million parameters, drawn at random) in two stages. CPU
time and not the clock's, because a stage that waits for the other one spends none, and because
other work on the machine takes none of it. At `light` torch's own send and receive of what is sent
anyway is not counted, and those of the seals are; at `full` everything is, the transport's thread
among it, by that thread's own clock. Torch's threads (gloo's, the event channel's) cost as much at
`off`, and are no part of the library.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from harness.stats.rates import binomial_at_most
from harness.subjects import READY
from harness.world.below.preload import MODULES, OF_MODELS, Preload
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from tests.kit.launches import launch_of

TOKENS, ROUNDS = 64, 30
LEVELS = ("off", "light", "full")
MEASURED = """
import statistics, sys, threading, time
import torch.distributed
from .handover import handover
from .hf import Transformers

INSIDE = [0]

def attendant():
    threads = [one for one in threading.enumerate() if one.name == "integrity-attendant"]
    return sum(time.clock_gettime_ns(time.pthread_getcpuclockid(one.ident)) for one in threads)

def timed(holder, name, sign, *, counts=lambda *given: True):
    call = getattr(holder, name)
    def measured(*given, **named):
        if not counts(*given):
            return call(*given, **named)
        begin = time.thread_time_ns()
        try:
            return call(*given, **named)
        finally:
            INSIDE[0] += sign * (time.thread_time_ns() - begin)
    setattr(holder, name, measured)

def run(context, *, level, tokens):
    rank, size = context.rank, context.size
    given = {"distributed": context.group.native, "rank": rank, "size": size, "folder": context.shared}
    with handover(level, **given) as between:
        if level != "off":
            for name in ("begin", "send", "receive", "agree"):
                timed(between, name, 1)
        if level == "light":
            # What is sent without the library as well is not the library's; the seals are.
            from harness._integrity.tensors import SEAL
            for name in ("send", "recv"):
                timed(torch.distributed, name, -1, counts=lambda tensor, *_: tensor.numel() != SEAL)
        engine = Transformers(rank=rank, size=size, sharding="pipeline", handover=between)
        engine.load(context.inputs["model"], dtype="float32")
        engine.begin()
        ids, wholes, insides, besides, times = [40, 41, 42, 43], [], [], [], []
        for number in range(tokens + 8):
            INSIDE[0] = 0
            begin, process, beside = time.perf_counter(), time.process_time_ns(), attendant()
            logits = engine.step(ids)
            ids = [engine.agree(int(logits[-1].argmax()) if engine.has_logits else None)]
            wholes.append(time.process_time_ns() - process), times.append(time.perf_counter() - begin)
            insides.append(INSIDE[0] + attendant() - beside), besides.append(attendant() - beside)
        loaded = "harness._integrity" in sys.modules
    # The thread works now and then, which a median would not see: its mean is added.
    middle, beside = statistics.median, statistics.fmean(besides[8:])
    inside = middle(one - other for one, other in zip(insides[8:], besides[8:])) + beside
    context.emit("measured", inside=inside, beside=beside, whole=middle(wholes[8:]), loaded=loaded, last=ids[0],
                 seconds=middle(times[8:]))
"""

PAIRED = """
import time
from .handover import Handover, handover
from .hf import Transformers

class Between(Handover):
    now = None
    def begin(self, *, vocabulary): self.now.begin(vocabulary=vocabulary)
    def send(self, state): self.now.send(state)
    def receive(self, state): self.now.receive(state)
    def agree(self, token): return self.now.agree(token)

def run(context, *, levels, rounds, tokens):
    rank, size, group = context.rank, context.size, context.group.native
    between = Between(group, rank=rank, size=size)
    engine = Transformers(rank=rank, size=size, sharding="pipeline", handover=between)
    engine.load(context.inputs["model"], dtype="float32")
    for number in range(-1, rounds):
        for place in range(len(levels)):
            level = levels[(place + number) % len(levels)]
            folder = f"{context.shared}/{number}-{place}"
            with handover(level, distributed=group, rank=rank, size=size, folder=folder) as between.now:
                engine.begin()
                ids = [40, 41, 42, 43]
                for token in range(tokens + 2):
                    if token == 2:  # behind the prompt, and behind whatever is connected and made ready once
                        begin, process = time.perf_counter(), time.process_time()
                    logits = engine.step(ids)
                    ids = [engine.agree(int(logits[-1].argmax()) if engine.has_logits else None)]
                seconds, processor = time.perf_counter() - begin, time.process_time() - process
            if number >= 0:  # the first round only warms
                context.emit("paired", round=number, level=level, seconds=seconds, processor=processor, last=ids[0])
"""


def model(folder: Path) -> Path:
    """GPT-2 small with weights drawn at random, written as transformers loads it."""
    import torch
    import transformers

    of_all: Any = transformers
    torch.manual_seed(7)
    of_all.GPT2LMHeadModel(of_all.GPT2Config()).save_pretrained(folder)
    return folder


def measure(
    pool: ServerPool, folder: Path, *, tokens: int = TOKENS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Decode so many tokens at each level, over two ranks of gloo with one thread each.

    And `rounds` pairs.

    Returns:
        By level: `share` of the CPU time of both ranks for a token that was spent inside the
        library, its thread included, each the median over the tokens, and that of its thread the
        mean; `token_microseconds` of it, and `thread_microseconds` of the thread; the median
        `token_seconds` by the clock. `paired`: see `pairs`.

    Raises:
        SystemExit: a rank did not come to its end, or the levels gave different tokens.
    """
    weights = _laid_out(folder)
    found: dict[str, Any] = {}
    last = set[Any]()
    for level in LEVELS:
        told = _told(
            pool,
            folder,
            weights,
            entry="measured",
            arguments={"level": level, "tokens": tokens},
            each=1,
        )
        last |= {one["last"] for one in told}
        inside = sum(one["inside"] for one in told)
        found[level] = {
            "share": inside / sum(one["whole"] for one in told),
            "token_microseconds": inside / 1000,
            "thread_microseconds": sum(one["beside"] for one in told) / 1000,
            "token_seconds": max(one["seconds"] for one in told),
            "loaded": any(one["loaded"] for one in told),
        }
    if len(last) != 1:
        raise SystemExit(f"the levels gave different tokens: {last}")
    return found | {"paired": pairs(pool, folder, weights, rounds=rounds)}


def pairs(
    pool: ServerPool, folder: Path, weights: Path, *, rounds: int, tokens: int = 8
) -> dict[str, Any]:
    """The same tokens at each level in turn, so many rounds (six or more) in the same two
    processes.

    Returns:
        By level but `off`: `speed`, its tokens a second over those of `off` in the same round, as
        the median of all rounds between the ends of its 95 % interval (order statistics: whatever
        the ratios are distributed like), and `processor`, the same of tokens for a second of both
        ranks' CPU time. `rounds`: how many.

    Raises:
        SystemExit: a rank did not come to its end, or the levels gave different tokens.
    """
    arguments = {"levels": list(LEVELS), "rounds": rounds, "tokens": tokens}
    told = _told(
        pool, folder, weights, entry="paired", arguments=arguments, each=len(LEVELS) * rounds
    )
    if len({one["last"] for one in told}) != 1:
        raise SystemExit("the levels gave different tokens in pairs")
    times: dict[tuple[str, str, int], float] = {}
    for one in told:
        level, number = one["level"], one["round"]
        times["speed", level, number] = max(
            times.get(("speed", level, number), 0.0), one["seconds"]
        )
        times["processor", level, number] = (
            times.get(("processor", level, number), 0.0) + one["processor"]
        )
    found: dict[str, Any] = {"rounds": rounds}
    for level in LEVELS[1:]:
        found[level] = {}
        for kind in ("speed", "processor"):
            ratios = [
                times[kind, "off", number] / times[kind, level, number] for number in range(rounds)
            ]
            found[level][kind] = _median(ratios)
    return found


def _median(figures: list[float]) -> list[float]:
    """The median between the ends of its 95 % interval: the two figures that it lies outside of in
    5 % at most.
    """
    ordered, count = sorted(figures), len(figures)
    outside = max(under for under in range(count) if binomial_at_most(under, count, 0.5) <= 0.025)
    return [ordered[outside], statistics.median(ordered), ordered[-1 - outside]]


def _laid_out(folder: Path) -> Path:
    """Lay the subject's code out with what measures it; gives the model's folder."""
    subject = READY["hf-pipeline"]
    for name, content in subject.files().items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    package = folder / "code" / subject.entry.partition(".")[0]
    (package / "measured.py").write_text(MEASURED)
    (package / "paired.py").write_text(PAIRED)
    return model(folder / "model")


def _told(
    pool: ServerPool,
    folder: Path,
    weights: Path,
    *,
    entry: str,
    arguments: dict[str, Any],
    each: int,
) -> list[Any]:
    """What both ranks emitted under the entry's name, each so often."""
    launch = launch_of(
        about={},
        size=2,
        backend="gloo",
        warm=True,
        entry=f"{READY['hf-pipeline'].entry.partition('.')[0]}.{entry}:run",
        folder=folder / "code",
        arguments=arguments,
        inputs={"model": str(weights)},
        seeds=[1, 2],
        env={"OMP_NUM_THREADS": "1"},
        deadline=900.0,
        preload=Preload(MODULES + OF_MODELS),
    )
    capture = World(launch, pool).run()
    told = [event for event in capture.events if event.name == entry]
    if [sum(event.rank == rank for event in told) for rank in (0, 1)] != [each, each]:
        raise SystemExit(
            f"{arguments} was not measured: "
            + " ".join(log.decode() for log in capture.logs.values())
        )
    return [event.values for event in told]


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    print(
        "harness._integrity under hf-pipeline, 2 ranks, 124 million parameters: CPU time inside the"
        " library"
    )
    for level in LEVELS:
        figures = found[level]
        loaded = "" if figures["loaded"] else "; the library was not loaded"
        print(
            f"  {level:<6} {figures['token_microseconds']:7.0f} us for a token (of its thread"
            f" {figures['thread_microseconds']:.0f}), {figures['share']:.2%} of the CPU time of"
            f" both ranks (a token took {figures['token_seconds'] * 1e3:.0f} ms by the"
            f" clock){loaded}"
        )
    paired = found["paired"]
    print(
        f"paired with off, {paired['rounds']} rounds in the same processes: the median and its 95 %"
        " interval"
    )
    for level in LEVELS[1:]:
        speed, processor = (
            f"{middle:.3f} ({low:.3f} to {high:.3f})"
            for low, middle, high in (paired[level]["speed"], paired[level]["processor"])
        )
        print(
            f"  {level:<6} {speed} of its tokens a second, {processor} of its tokens for a second"
            " of CPU time"
        )
