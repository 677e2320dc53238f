"""Where an answer ends: at one of several EOS ids, at a stop string, or after as many tokens as
were asked for.

The reference writes on without end, and works out from what it wrote where each answer has to end:
it is the oracle. Ranks get the ids and strings that end an answer from it, and stop by what their
engine has for that.
"""

import json
import math
import random
import shutil
from pathlib import Path

PROMPTS, LONGEST, MARGIN = 4, 12, 1e-3
"""Prompts, tokens that the reference writes after each, and by how much its best token has to be
the best.
"""


def oracle(context, *, what):
    """Entry of the reference: what every answer is, and where it ends."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = context.inputs["model"]
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True
    ).eval()
    written = []
    for prompt in prompts():
        ids = list(prompt)
        for _ in range(LONGEST):
            with torch.no_grad():
                best = model(torch.tensor([ids]), use_cache=False).logits[0, -1].double().topk(2)
            assert best.values[0] - best.values[1] > MARGIN, "a tie: take other prompts"
            ids.append(int(best.indices[0]))
        written.append(ids[len(prompt) :])
    cases = CASES[what](written, tokenizer)
    own = tokenizer.eos_token_id
    for number, case in enumerate(cases):
        length, reason = end_of(
            written[number], tokenizer, {own, *case["eos"]}, case["stops"], case["limit"]
        )
        assert what == "length" or reason == "stop", (
            f"prompt {number} never ends: take other prompts"
        )
        context.emit("case", number=number, **case)
        ids = written[number][:length]
        context.emit("ended", number=number, ids=ids, text=tokenizer.decode(ids), reason=reason)


def end_of(ids, tokenizer, eos, stops, limit):
    """How many tokens an answer has, the one that ends it included, and why it ends."""
    for length in range(1, limit + 1):
        if ids[length - 1] in eos or any(stop in tokenizer.decode(ids[:length]) for stop in stops):
            return length, "stop"
    return limit, "length"


def answer(context, *, what, broken, knows="every", engine=""):
    """Entry: answer all prompts with the engine's own generation, and say how each answer ended.

    Args:
        context: of the rank.
        what: what ends answers: `eos`, `words`, `parts` or `length`.
        broken: look for it as broken servers did.
        knows: `rank-0`: it alone has generation_config.json, where some of the EOS ids stand.
        engine: which one answers; that of the backend, or, without a group, with the whole model on
            each rank.
    """
    cases = cases_of(context)
    folder = model_folder(context, cases[0]["eos"], whole=knows == "every" or context.rank == 0)
    model = ENGINES[engine or context.backend](context, folder)
    held, whole = model.held(), elements_of(folder)
    context.emit("engine.ready", engine=model.name, elements=held, whole=held >= whole)
    for case, prompt in zip(cases, prompts(), strict=True):
        ids, reason = answered(model, prompt, case, what if broken else "")
        context.emit(
            "ended", number=case["number"], ids=ids, text=model.tokenizer.decode(ids), reason=reason
        )
        if context.backend != "none":
            context.group.barrier()  # the next request comes to all ranks


def answered(engine, prompt, case, broken):
    """An answer; broken, what ends it is looked for in the wrong place."""
    return engine.answer(
        prompt,
        read_eos=broken != "eos",  # else what config.json says is all
        stops=case["stops"],
        limit=case["limit"] + (broken == "length"),
        by_token=broken in ("words", "parts"),  # a stop string in the text of one token
    )


def prompts():
    """Token ids of each prompt."""
    dice = random.Random(16)
    return [[dice.randrange(8, 528) for _ in range(5 + number)] for number in range(PROMPTS)]


def cases_of(context):
    """What the reference says of each prompt: EOS ids, stop strings and the limit."""
    told = json.loads(Path(context.inputs["reference"], "values.json").read_text())
    keys = ("number", "eos", "stops", "limit")
    return [
        dict(zip(keys, values, strict=True))
        for values in zip(*(told[f"case.{key}"] for key in keys), strict=True)
    ]


def model_folder(context, eos, *, whole):
    """The model, with EOS ids as publishers state them: one in config.json, all in
    generation_config.json.
    """
    folder = Path(context.shared, f"model-{context.rank}")
    shutil.copytree(context.inputs["model"], folder)
    config = json.loads((folder / "config.json").read_text())
    if eos:
        config["eos_token_id"] = eos[0]
    (folder / "config.json").write_text(json.dumps(config))
    if whole:
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": eos or config["eos_token_id"]})
        )
    return str(folder)


def elements_of(folder):
    """How many numbers a checkpoint holds."""
    with Path(folder, "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")


# -- what ends answers -------------------------------------------------------------------------


def by_eos(written, _tokenizer):
    """An id for each answer, all of which end any of them; config.json knows the last answer's
    alone.
    """
    ends = [fresh(ids) for ids in reversed(written)]
    return [{"eos": ends, "stops": [], "limit": LONGEST} for _ in written]


def fresh(ids):
    """A token that first comes in the middle of an answer."""
    return next(token for place, token in enumerate(ids) if place > 3 and token not in ids[:place])


def by_words(written, tokenizer):
    """A stop string of two whole tokens, as the tokenizer would cut it too."""
    return [case(stop_in(ids, tokenizer, whole=True)) for ids in written]


def by_parts(written, tokenizer):
    """A stop string of the end of a token and the beginning of the next one, which the tokenizer
    cuts otherwise.
    """
    return [case(stop_in(ids, tokenizer, whole=False)) for ids in written]


def case(stop):
    return {"eos": [], "stops": ["never in any answer", stop], "limit": LONGEST}


def stop_in(ids, tokenizer, *, whole):
    """A stop string over the boundary of two tokens, which does not stand further before."""
    for place in range(2, len(ids) - 1):
        left, right = (tokenizer.decode([token]) for token in ids[place : place + 2])
        if (
            not (left + right).isascii()
            or not (left and right)
            or {*ids[place : place + 2]} & set(range(8))
        ):
            continue
        stop = left + right if whole else left[-1] + right[0]
        alike = tokenizer.encode(stop, add_special_tokens=False) == ids[place : place + 2]
        if alike == whole and stop not in tokenizer.decode(ids[: place + 1]):
            return stop
    raise AssertionError("no such string: take other prompts")


def by_length(written, _tokenizer):
    return [
        {"eos": [], "stops": [], "limit": limit}
        for limit, _ in zip((1, 2, 7, LONGEST), written, strict=True)
    ]


CASES = {"eos": by_eos, "words": by_words, "parts": by_parts, "length": by_length}


def transformers(context, folder):
    from torch_generation import Transformers

    return Transformers(context, folder)


def mlx(context, folder):
    from mlx_generation import MlxLm

    return MlxLm(context, folder)


ENGINES = {"gloo": transformers, "mlx-ring": mlx, "transformers": transformers, "mlx-lm": mlx}
