"""Two ranks of a pipeline whose engine has its own send and recv, each in a process.

`python staged.py RANK KIND FAULT` prints what the rank computed, or the one error it had.

KIND is `modules` (torch's send and recv around modules), `pipelining`
(torch.distributed.pipelining), `exo` (MLX, in the shape of exo's layers), `mlx-lm` (a model of
mlx-lm's) or `ahead` (a stage that ends before the next one begins).

FAULT is `none`, `received` (a bit of what a rank received is flipped behind the engine's back),
`gathered` (of what all ranks gathered), `unwatched` (as `received`, without the hook) or `bare` (as
`none`, without the hook).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

STEPS = 4
STRUCK = 2
FAR = 40
CLEAN = ("none", "bare")
UNWATCHED = ("unwatched", "bare")


def lines_of_page(call: str) -> str:
    """The lines of docs/integrity.md that have this call."""
    page = Path(__file__).parents[1] / "docs" / "integrity.md"
    blocks = re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    found: str = next(block for block in blocks if call in block)
    return found


def torch_ranks(rank: int, kind: str, fault: str) -> Any:
    import torch
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{os.environ['MEET']}", rank=rank, world_size=2
    )
    torch.manual_seed(rank)
    stage = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    before, after = (None, 1) if rank == 0 else (0, None)
    calls = []

    def struck(came: Any) -> None:
        calls.append(0)
        if rank == 1 and fault not in CLEAN and len(calls) == STRUCK + 1:
            came.detach().view(torch.int32)[0, 0] ^= 1 << 9

    def watched(whole: Any) -> Any:
        if fault not in UNWATCHED:
            names = {"stage": whole, "before": before, "after": after}
            exec(lines_of_page("watch("), names)  # noqa: S102

    given = torch.arange(8 * STEPS, dtype=torch.float32).reshape(STEPS, 8) / 10
    work = pipelined if kind == "pipelining" else passed
    found = work(rank, stage, given, watched=watched, struck=struck)
    distributed.barrier()
    return found


def passed(rank: int, stage: Any, given: Any, *, watched: Any, struck: Any) -> Any:
    import torch
    from torch import distributed

    watched(stage)
    found = []
    with torch.no_grad():
        for step in range(STEPS):
            if rank == 0:
                distributed.send(stage(given[step : step + 1]), dst=1)
            else:
                came = torch.empty(1, 8)
                distributed.recv(came, src=0)
                struck(came)
                found.append(stage(came))
    return [one.tolist() for one in found]


def ahead(rank: int) -> Any:
    """The first stage is far ahead, and takes its hook away before the next one took a seal."""
    import gc

    import torch
    from torch import distributed

    from rankproof_integrity import watch

    distributed.init_process_group(
        "gloo", init_method=f"file://{os.environ['MEET']}", rank=rank, world_size=2
    )
    stage = torch.nn.Identity()
    hook = watch(stage, sends_to=1) if rank == 0 else watch(stage, receives_from=0)
    given = [torch.full((1, 8), float(step)) for step in range(FAR)]
    found = []
    if rank == 0:
        sent = [distributed.isend(stage(one), dst=1) for one in given]
        hook.remove()
        del hook, stage
        gc.collect()
    distributed.barrier()
    if rank == 0:
        for one in sent:
            one.wait()
    else:
        for one in given:
            distributed.recv(one, src=0)
            found.append(float(stage(one)[0, 0]))
    distributed.barrier()
    return found == [float(step) for step in range(FAR)] if rank == 1 else None


def pipelined(rank: int, stage: Any, given: Any, *, watched: Any, struck: Any) -> Any:
    import torch
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    one = PipelineStage(stage, rank, 2, torch.device("cpu"))
    watched(one)
    forward: Any = one.forward_maybe_with_nosync

    def behind_the_engine(*came: Any, **named: Any) -> Any:
        struck(came[0])
        return forward(*came, **named)

    one.forward_maybe_with_nosync = behind_the_engine  # type: ignore[method-assign]
    with torch.no_grad():
        found: Any = ScheduleGPipe(one, n_microbatches=STEPS).step(*([given] if rank == 0 else []))
    return None if found is None else found.tolist()


def flipped(array: Any) -> Any:
    import mlx.core as mx

    # The sign of the first number.
    bits = mx.zeros(array.size, dtype=mx.uint32)
    bits[0] = 1 << 31
    return (
        mx.bitwise_xor(array.reshape(-1).view(mx.uint32), bits)
        .view(mx.float32)
        .reshape(array.shape)
    )


def bent(rank: int, fault: str, *, taker: int) -> None:
    """Let the rank that takes get something else than was sent, in its third decode step."""
    import mlx.core as mx

    place: Any = mx.distributed
    name = "all_gather" if fault == "gathered" else "recv"
    if fault in CLEAN or (fault != "gathered" and rank != taker):
        return
    names = (name,) if fault == "gathered" else ("recv", "recv_like")
    calls = []
    for name in names:
        plain = getattr(place, name)

        def struck(*given: Any, plain: Any = plain, **how: Any) -> Any:
            came = plain(*given, **how)
            if came.dtype == mx.float32:  # a hidden state, not a seal
                calls.append(0)
                if len(calls) == STRUCK + 1:
                    return flipped(came)
            return came

        setattr(place, name, struck)


def exo_ranks(rank: int, fault: str) -> Any:
    import mlx.core as mx
    from mlx import nn

    class FirstLayer(nn.Module):
        """As exo's PipelineFirstLayer."""

        def __init__(self, layer: Any, r: int, group: Any) -> None:
            super().__init__()
            self.layer, self.r, self.group = layer, r, group

        def __call__(self, x: Any) -> Any:
            if self.r != 0:
                mx.eval(x)
                x = mx.distributed.recv_like(x, (self.r - 1), group=self.group)
                mx.eval(x)
            return self.layer(x)

    class LastLayer(nn.Module):
        """As exo's PipelineLastLayer."""

        def __init__(self, layer: Any, r: int, s: int, group: Any) -> None:
            super().__init__()
            self.layer, self.r, self.s, self.group = layer, r, s, group

        def __call__(self, x: Any) -> Any:
            output = self.layer(x)
            mx.eval(output)
            if self.r != self.s - 1:
                output = mx.distributed.send(output, (self.r + 1) % self.s, group=self.group)
                mx.eval(output)
            output = mx.distributed.all_gather(output, group=self.group)[-output.shape[0] :]
            mx.eval(output)
            return output

    bent(rank, fault, taker=1)
    group = mx.distributed.init(strict=True, backend="ring")
    if fault not in UNWATCHED:
        exec(lines_of_page("watch_mlx("), {"group": group})  # noqa: S102
    mx.random.seed(5)
    layers = [nn.Linear(8, 8) for _ in range(4)]
    mine = layers[2 * rank : 2 * rank + 2]
    mine[0] = FirstLayer(mine[0], rank, group)
    mine[-1] = LastLayer(mine[-1], rank, 2, group)
    found = []
    for step in range(STEPS):
        hidden = mx.arange(8).reshape(1, 8) / 10 + step
        for layer in mine:
            hidden = layer(hidden)
        found.append(hidden.tolist())
    return found


def lm_ranks(rank: int, fault: str) -> Any:
    import mlx.core as mx
    from mlx_lm.models import deepseek_v3
    from mlx_lm.models.cache import make_prompt_cache

    from rankproof_integrity import watch_mlx

    bent(rank, fault, taker=0)  # its first layers are those of the last rank
    group = mx.distributed.init(strict=True, backend="ring")
    if fault not in UNWATCHED:
        watch_mlx()
    mx.random.seed(5)
    small: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": None,
        "n_shared_experts": None,
    }
    model = deepseek_v3.Model(deepseek_v3.ModelArgs(**small))
    model.model.pipeline(group)
    cache = make_prompt_cache(model)
    tokens = [5]
    for _ in range(STEPS):
        logits = model(mx.array([tokens[-1:]]), cache=cache)
        tokens.append(int(mx.argmax(logits[0, -1]).item()))
    return tokens


def main() -> None:
    from rankproof_integrity import IntegrityError

    rank, kind, fault = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    try:
        if kind == "ahead":
            found = ahead(rank)
        elif kind in ("modules", "pipelining"):
            found = torch_ranks(rank, kind, fault)
        else:
            found = exo_ranks(rank, fault) if kind == "exo" else lm_ranks(rank, fault)
    except (IntegrityError, RuntimeError) as error:
        # Pipelining raises an error of its own from it.
        told = error if isinstance(error, IntegrityError) else error.__cause__ or error
        print(type(told).__name__, told, flush=True)
        os._exit(0)  # threads of the engine wait for the other rank
    print("computed", found, flush=True)
    os._exit(0)


main()
