"""What splitting a model costs: tokens per second of teacher-forced prefill and of decoding, over
ranks and whole.

Whole and split are measured in turn, on the same cores and with one thread each; only their ratio
says something, and that on a quiet machine alone: beside other work four ranks get four shares of
the cores, and the whole model one. So the CPU time that each spends is told as well: no machine of
so many cores gives more than the ratio of that.

Of the small model each step is over before its sums have gone round, so that its ratio is one of
fixed costs: what the engine does in Python for each forward pass, and gloo for each sum, on every
rank. The larger one has the layers of SmolLM-135M, fewer of them, with as many heads as four ranks
can share.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engines.models import cached
from harness.engines.models.vocabulary import SIZE, tokenizer_files
from harness.history import History
from harness.subjects import READY
from tests.engines.worlds import Worlds

TOKENS, STEPS = 256, 16
CASES = (("hf-tensor", 4), ("hf-pipeline", 4))
WHOLE = "hf-single"
PHASES = {"prefill": TOKENS, "decode": 1}
SPENT = """

class Spent:
    def __init__(self, context):
        self._context, self._begin = context, 0

    def __getattr__(self, name):
        return getattr(self._context, name)

    def emit(self, name, **values):
        import time

        if name in ("prefill.end", "decode.end"):
            values["cpu"] = time.process_time_ns() - self._begin
        self._context.emit(name, **values)
        self._begin = time.process_time_ns()
"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model and what it is asked.

    Attributes:
        what: the model in words.
        config: of a Llama that is drawn at random; None for the one of the catalogue.
        prompts: of which the first one warms up.
    """

    what: str
    config: dict[str, Any] | None = None
    prompts: int = 6

    def model(self, below: Path) -> Path:
        """Its folder."""
        if self.config is None:
            return cached("llama")
        import torch
        import transformers

        of_all: Any = transformers
        of_all.logging.disable_progress_bar()
        torch.manual_seed(7)
        of_all.LlamaForCausalLM(of_all.LlamaConfig(**self.config)).save_pretrained(below)
        for name, data in tokenizer_files().items():
            (below / name).write_bytes(data)
        return below


SIZES = {
    "llama": Size(what="4 layers 96 wide"),
    "llama-576": Size(
        what="8 layers 576 wide, as SmolLM-135M has 30",
        config={
            "vocab_size": SIZE,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
        },
        prompts=4,
    ),
}


def measure(
    *, rounds: int = 3, sizes: tuple[str, ...] = tuple(SIZES)
) -> dict[str, dict[str, float]]:
    """Of each size and case: tokens per second of each phase, and what they are of the whole
    model's in the same turns.

    The bound of that ratio is the CPU time that the whole model takes over each core's share of
    what the ranks take.
    """
    figures = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as name, Worlds() as worlds:
            model = SIZES[size].model(Path(name))
            found: dict[str, dict[str, list[float]]] = {}
            for _ in range(rounds):
                for engine, ranks in ((WHOLE, 1), *CASES):
                    files = timed(READY[engine].files())
                    asks = asked(SIZES[size].prompts)
                    history = worlds.run(engine, size=ranks, model=model, files=files, **asks)
                    for phase, tokens in PHASES.items():
                        told = found.setdefault(f"{engine}-{ranks}", {})
                        told.setdefault(phase, []).extend(
                            tokens / seconds for seconds in times(history, phase)
                        )
                        told.setdefault(f"{phase}-cpu", []).extend(spent(history, phase))
        whole = found[f"{WHOLE}-1"]
        for name, one in found.items():
            middle = {what: statistics.median(values) for what, values in one.items()}
            own = figures[f"{size}, {name}"] = dict[str, float]()
            for phase in PHASES:
                cores = min(os.cpu_count() or 1, int(name.rpartition("-")[2]))
                own[f"{phase}_tokens_per_second"] = middle[phase]
                own[f"{phase}_ratio"] = middle[phase] / statistics.median(whole[phase])
                own[f"{phase}_bound"] = (
                    cores * statistics.median(whole[f"{phase}-cpu"]) / middle[f"{phase}-cpu"]
                )
    return figures


def timed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same code, which tells with the end of each phase the CPU time that the process spent in
    it, in ns.
    """
    name = next(name for name in files if Path(name).name == "session.py")
    load = b"    folder = _load(context, engine, request)\n"
    assert load in files[name]
    return files | {
        name: files[name].replace(load, b"    context = Spent(context)\n" + load) + SPENT.encode()
    }


def asked(prompts: int) -> dict[str, Any]:
    """Prompts of one length, and what is fed after each."""
    ids = [
        [20 + (7 * place + 31 * number) % 500 for place in range(TOKENS)]
        for number in range(prompts)
    ]
    return {"prompts": ids, "teacher": [one[:STEPS] for one in ids]}


def times(history: History, phase: str) -> list[float]:
    """Seconds from where the first rank began until the last one had ended.

    The first prompt warms up.
    """
    begins, ends = (
        [
            [seen.event.ns for seen in history.said(rank, f"{phase}.{end}")]
            for rank in range(history.size)
        ]
        for end in ("begin", "end")
    )
    together = zip(zip(*begins, strict=True), zip(*ends, strict=True), strict=True)
    return [(max(last) - min(first)) / 1e9 for first, last in together][1:]


def spent(history: History, phase: str) -> list[float]:
    """CPU seconds of all ranks together; the first prompt warms up."""
    each = [
        [int(str(seen.event.values["cpu"])) for seen in history.said(rank, f"{phase}.end")]
        for rank in range(history.size)
    ]
    return [sum(ranks) / 1e9 for ranks in zip(*each, strict=True)][1:]


def show(figures: dict[str, dict[str, float]]) -> None:
    """Print it for people."""
    print(
        f"prompts of {TOKENS} tokens, one thread each; tokens per second, of the whole model's, and"
        " by CPU time at most"
    )
    print(
        f"  on {os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}: above 4, others took part"
    )
    for size, one in SIZES.items():
        print(f"{size}, {one.what}")
        for name, own in figures.items():
            if name.startswith(f"{size}, "):
                told = (
                    f"{phase} {own[f'{phase}_tokens_per_second']:.0f} "
                    f"({own[f'{phase}_ratio']:.2f}, at most {own[f'{phase}_bound']:.2f})"
                    for phase in PHASES
                )
                print(f"  {name.removeprefix(f'{size}, '):<14} " + ", ".join(told))
