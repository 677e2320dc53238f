"""What the ledger costs: the time inside its hook, in the same run as the calls that it is held
against.

The hook finds its caller through as many frames as without a clock, and what the clock takes is
counted as the hook's: half a microsecond of a call, and more where caches are cold. Beside the
recorder in C, where there is a compiler, the ledger that Python writes alone is measured. Torch's
own way to Python and back, which no hook is spared, is told beside it: the time of calls in a group
of one, less that without a hook and less that in the hook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.world.control.pool import ServerPool
from harness.world.control.rank_environment import compiled_recorder
from harness.world.control.world import World
from tests.kit.launches import launch_of

ROUNDS, STEPS = 400, 40
SUBJECT = """
import functools, statistics, sys, time
from types import SimpleNamespace
import torch
import torch.distributed as dist
from harness.ledger.file import ARTEFACT
from harness.ledger.inside.book import Book
from harness.ledger.inside.hook_torch import TorchHook
from harness.ledger.inside.book import module_of

OURS, NOW = [], {"inner": 0.0, "inside": False}

def inner(function):
    def timed(*given):
        begin = time.perf_counter()
        try:
            return function(*given)
        finally:
            NOW["inner"] += time.perf_counter() - begin
    return timed

def ours(function, *, call):
    @functools.wraps(function)
    def timed(*given):
        if NOW["inside"]:
            return function(*given)
        NOW["inside"], before, begin = True, NOW["inner"], time.perf_counter()
        try:
            return function(*given)
        finally:
            NOW["inside"] = False
            took = time.perf_counter() - begin - (NOW["inner"] - before)
            OURS.append(took) if call else OURS.append(OURS.pop() + took)
    return timed

class Timed(TorchHook):
    # Neither this lambda nor the clock around the hook stands between a kernel and its caller.
    frames = staticmethod(lambda depth: sys._getframe(depth + 2))

    def _layered(self, operation, kernel):
        known = SimpleNamespace(redispatch=inner(kernel.redispatch), _schema=kernel._schema)
        return ours(super()._layered(operation, known), call=True)

def alone():
    groups = [dist.new_group([rank]) for rank in range(2)]
    # Rank 0 has the store that new_group writes to, and must not end before rank 1 has its group.
    dist.barrier()
    group, one, times = groups[dist.get_rank()], torch.ones(1), []
    for _ in range(1000):
        begin = time.perf_counter()
        dist.all_reduce(one, group=group)
        times.append(time.perf_counter() - begin)
    dist.destroy_process_group(group)  # where there are several groups, each call has to be asked for its own
    return statistics.median(times)

def observe(context, digests, recorder):
    NOW["unobserved"] = alone()
    spec = SimpleNamespace(rank=context.rank, size=2, scratch=str(context._kept.parent), folder=".", world="")
    spec.digests = digests
    dist.Work.wait = inner(dist.Work.wait)
    path = context._kept / f"{ARTEFACT}.bin"
    Timed(Book(path, spec, recorder=module_of(recorder)), torch).install()
    if digests:
        dist.Work.wait = ours(dist.Work.wait, call=False)

def measured(context, step, rounds):
    times = []
    for number in range(rounds + 20):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
        if number == 19:
            times.clear(), OURS.clear()
    calls, call, share = len(OURS) / rounds, statistics.median(OURS), sum(OURS) / sum(times)
    OURS.clear()
    way = alone() - NOW["unobserved"] - statistics.median(OURS)
    context.emit("measured", round=statistics.median(times), call=call, calls=calls, share=share, way=way)

def ping_pong(context, *, rounds, digests, recorder):
    observe(context, digests, recorder)
    tensor = torch.ones(1 << 18)

    def step():
        for sender in (0, 1):
            if sender == context.rank:
                dist.send(tensor, 1 - context.rank)
            else:
                dist.recv(tensor, 1 - context.rank)

    measured(context, step, rounds)

def decode(context, *, rounds, digests, recorder, width=768, layers=12, words=32000, past=128):
    # 110 million parameters with its embedding, as wide and deep as GPT-2 small, each rank half of every layer.
    observe(context, digests, recorder)
    torch.manual_seed(7)
    half, heads = width // 2, 6
    block = lambda *shape: torch.randn(*shape) / shape[-1] ** 0.5
    stack = [[block(3 * half, width), block(width, half), block(2 * width, width), block(width, 2 * width),
              torch.randn(heads, past, 64), torch.randn(heads, past, 64)] for _ in range(layers)]
    embedding = block(words, width)
    word = [0]

    def step():
        with torch.inference_mode():
            x = embedding[word[0]].clone()
            for mix, out, up, down, keys, values in stack:
                q, k, v = (mix @ torch.nn.functional.layer_norm(x, (width,))).view(3, heads, 1, 64)
                keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
                part = out @ torch.nn.functional.scaled_dot_product_attention(q, keys, values).flatten()
                dist.all_reduce(part)
                x = x + part
                part = down @ torch.nn.functional.gelu(up @ torch.nn.functional.layer_norm(x, (width,)))
                dist.all_reduce(part)
                x = x + part
            word[0] = int((embedding @ x).argmax())

    measured(context, step, rounds)
"""
CASES = {
    "ping-pong": ("ping_pong", "", True),
    "ping-pong, Python alone": ("ping_pong", "", False),
    "ping-pong, with digests": ("ping_pong", "given", True),
    "decode step": ("decode", "", True),
    "decode step, with digests": ("decode", "given", True),
}
"""What is measured: the subject's function, whether payloads are digested, and whether the recorder
in C may write.
"""


def measure(
    pool: ServerPool,
    folder: Path,
    *,
    rounds: int = ROUNDS,
    steps: int = STEPS,
    cases: Iterable[str] = CASES,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Two ranks of gloo send 1 MiB to and fro, and decode with a model of 110 million parameters,
    half on each; or with one of other `sizes`.

    Returns:
        Of each case, of the slower rank: the median `round_seconds`, the median `call_seconds` in
        the hook, the `calls` of a round, the `share` of the whole time that was spent in the hook,
        and `way_seconds` of a call, that torch takes to Python and back.

    Raises:
        SystemExit: a rank did not come to its end.
    """
    (folder / "subject.py").write_text(SUBJECT)
    return {
        case: _of(
            pool,
            folder,
            entry,
            {
                "rounds": rounds if entry == "ping_pong" else steps,
                **((sizes or {}) if entry == "decode" else {}),
                "digests": digests,
                "recorder": compiled_recorder() if in_c else "",
            },
        )
        for case, (entry, digests, in_c) in CASES.items()
        if case in cases
    }


def _of(pool: ServerPool, folder: Path, entry: str, arguments: dict[str, Any]) -> dict[str, Any]:
    launch = launch_of(
        about={},
        size=2,
        backend="gloo",
        warm=True,
        entry=f"subject:{entry}",
        folder=folder,
        arguments=arguments,
        inputs={},
        seeds=[1, 2],
        env={"OMP_NUM_THREADS": "1"},
        deadline=600.0,
    )
    capture = World(launch, pool).run()
    told = [event.values for event in capture.events if event.name == "measured"]
    if len(told) != 2:
        raise SystemExit(
            "the ledger was not measured: "
            + " ".join(log.decode() for log in capture.logs.values())
        )
    worst: Any = max(told, key=lambda values: float(str(values["share"])))
    return {
        "round_seconds": worst["round"],
        "call_seconds": worst["call"],
        "calls": worst["calls"],
        "share": worst["share"],
        "way_seconds": worst["way"],
    }


def show(found: dict[str, Any]) -> None:
    """Print the same for people."""
    print("the ledger, 2 ranks of gloo: 1 MiB to and fro, and decoding with 110 million parameters")
    print(
        "  with the recorder in C"
        if compiled_recorder()
        else "  without the recorder in C, which cannot be compiled_recorder here"
    )
    for case, figures in found.items():
        print(
            f"  {case:<26} {figures['round_seconds'] * 1e6:8.0f} us, {figures['calls']:.0f} calls"
            f" of {figures['call_seconds'] * 1e6:.1f} us in the hook: {figures['share']:.2%} of the"
            f" time (and {figures['way_seconds'] * 1e6:.1f} us to Python and back)"
        )
