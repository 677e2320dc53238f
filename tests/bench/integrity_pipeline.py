"""What `hf-pipeline` spends in `harness.integrity`: CPU time inside the library over the whole, in one run.

GPT-2 small as transformers makes it (124 million parameters, drawn at random) in two stages. CPU time and not the
clock's, because a stage that waits for the other one spends none, and because other work on the machine takes none of
it. At `light` torch's own send and receive of what is sent anyway is not counted, and those of the seals are; at `full`
everything is, the transport's thread among it, by that thread's own clock. Torch's threads (gloo's, the event
channel's) cost as much at `off`, and are no part of the library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.subjects import READY
from harness.world.pool import ServerPool
from harness.world.preload import MODULES, OF_MODELS, Preload
from harness.world.world import Launch, World

TOKENS = 64
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
            # What is sent without the library as well is not the library's; the seals, of six words, are.
            for name in ("send", "recv"):
                timed(torch.distributed, name, -1, counts=lambda tensor, *_: tensor.numel() != 6)
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
        loaded = "harness.integrity" in sys.modules
    # The thread works now and then, which a median would not see: its mean is added.
    middle, beside = statistics.median, statistics.fmean(besides[8:])
    inside = middle(one - other for one, other in zip(insides[8:], besides[8:])) + beside
    context.emit("measured", inside=inside, beside=beside, whole=middle(wholes[8:]), loaded=loaded, last=ids[0],
                 seconds=middle(times[8:]))
"""


def model(folder: Path) -> Path:
    """GPT-2 small with weights drawn at random, written as transformers loads it."""
    import torch
    import transformers

    of_all: Any = transformers
    torch.manual_seed(7)
    of_all.GPT2LMHeadModel(of_all.GPT2Config()).save_pretrained(folder)
    return folder


def measure(pool: ServerPool, folder: Path, *, tokens: int = TOKENS) -> dict[str, Any]:
    """Decode so many tokens at each level, over two ranks of gloo with one thread each.

    Returns:
        By level: `share` of the CPU time of both ranks for a token that was spent inside the library, its thread
        included, each the median over the tokens, and that of its thread the mean; `token_microseconds` of it, and
        `thread_microseconds` of the thread; the median `token_seconds` by the clock.

    Raises:
        SystemExit: a rank did not come to its end, or the levels gave different tokens.
    """
    subject = READY["hf-pipeline"]
    for name, content in subject.files().items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    package = subject.entry.partition(".")[0]
    (folder / "code" / package / "measured.py").write_text(MEASURED)
    weights = model(folder / "model")
    found: dict[str, Any] = {}
    last = set[Any]()
    for level in ("off", "light", "full"):
        launch = Launch(
            about={},
            size=2,
            backend="gloo",
            warm=True,
            entry=f"{package}.measured:run",
            folder=folder / "code",
            arguments={"level": level, "tokens": tokens},
            inputs={"model": str(weights)},
            seeds=[1, 2],
            env={"OMP_NUM_THREADS": "1"},
            deadline=600.0,
            preload=Preload(MODULES + OF_MODELS),
        )
        capture = World(launch, pool).run()
        told: list[Any] = [event.values for event in capture.events if event.name == "measured"]
        if len(told) != 2:
            raise SystemExit(f"{level} was not measured: " + " ".join(log.decode() for log in capture.logs.values()))
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
    return found


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    print("harness.integrity under hf-pipeline, 2 ranks, 124 million parameters: CPU time inside the library")
    for level, figures in found.items():
        loaded = "" if figures["loaded"] else "; the library was not loaded"
        print(
            f"  {level:<6} {figures['token_microseconds']:7.0f} us for a token (of its thread "
            f"{figures['thread_microseconds']:.0f}), {figures['share']:.2%} of the CPU time of both ranks (a token "
            f"took {figures['token_seconds'] * 1e3:.0f} ms by the clock){loaded}"
        )
