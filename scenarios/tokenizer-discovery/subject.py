"""Processes that must have one tokenizer between them, and models that must have rows for every
id.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from gguf_file import written

ROLES = {0: "worker", 1: "worker-2", 2: "gateway", 3: "draft"}


def handshake(context, *, rule, odd):
    """Entry: every process tells what its tokenizer is, and starts only if all tell the same.

    First all have the same; then the one called `odd` has one in which two seldom tokens are
    exchanged.

    Args:
        context: the rank's context.
        rule: `fingerprint`, or `size`: what many servers compare, if anything.
        odd: the role whose tokenizer is another one.
    """
    import torch.distributed as dist

    from harness.tokenizer.child import read_form

    role, content = ROLES[context.rank], tokenizer_of(context)
    right, wrong = Path("right.json"), Path("wrong.json")
    right.write_text(json.dumps(content))
    wrong.write_text(json.dumps(exchanged(content)))
    # A draft model usually is a GGUF file, whose tokenizer is inside.
    if role == "draft":
        right = written(Path("right.gguf"), content, rows=rows_of(content))
        wrong = written(Path("wrong.gguf"), exchanged(content), rows=rows_of(content))
    for situation, path in (("same", right), ("odd", wrong if role == odd else right)):
        form = read_form(path)
        mine = {"role": role, "fingerprint": form.fingerprint, "size": form.size}
        told = [None] * context.size
        dist.all_gather_object(told, mine)
        common = Counter(one[rule] for one in told).most_common(1)[0][0]
        others = [one["role"] for one in told if one[rule] != common]
        context.emit(f"handshake.{situation}", accepted=not others, others=others, **mine)
        if others == [odd]:
            context.emit(f"handshake.{situation}.named", others=others)


def fits(context, *, rule, case):
    """Entry: a model is started with its tokenizer, which fits, and then with another model or
    tokenizer.

    Args:
        context: the rank's context.
        rule: `content`: what our resolver says; `size`: both numbers must be equal, as in
            BitNet.rs's `verify`; `name`: what lies beside the model is taken.
        case: `padded` (the model has rows beyond the last id), `short` (it has an id without a
            row), `draft` (as many ids, and another tokenizer).
    """
    content = tokenizer_of(context)
    ids = rows_of(content)
    rows = {"padded": ids + 64, "short": ids - 8}.get(case, ids)
    tried = {
        "exact": (ids, content, True),
        "case": (rows, exchanged(content) if case == "draft" else content, case == "padded"),
    }
    for situation, (wide, named, should) in tried.items():
        model = written(Path("model.gguf"), content, rows=wide)
        tokenizer = Path("tokenizer.json")
        tokenizer.write_text(json.dumps(named))
        accepted, why = judged(rule, model, tokenizer, rows=wide, ids=ids)
        right = accepted == should
        context.emit(
            f"fit.{situation}", accepted=accepted, right=right, why=why, rows=wide, ids=ids
        )


def judged(rule, model, tokenizer, *, rows, ids):
    """Whether the tokenizer is accepted for the model, and why."""
    if rule == "content":
        from harness.tokenizer.discovery import resolve

        found = resolve(model, tokenizer=tokenizer)
        return found.chosen is not None, list(found.candidates[0].reasons[:2])
    return rule == "name" or rows == ids, [f"{rows} rows, {ids} ids"]


def tokenizer_of(context):
    """The tokenizer.json that the hub of this scenario would serve."""
    return json.loads(
        Path(context.inputs["repositories"], "rankproof/gpt2/tokenizer.json").read_text()
    )


def rows_of(content):
    """How many ids it has."""
    return 1 + max(
        [*content["model"]["vocab"].values(), *(one["id"] for one in content["added_tokens"])]
    )


def exchanged(content):
    """The same with the ids of its two last tokens exchanged: as many ids, and other ids for a
    seldom text.
    """
    vocabulary = dict(content["model"]["vocab"])
    special = {one["content"] for one in content["added_tokens"]}
    first, second = [
        token for token in sorted(vocabulary, key=vocabulary.__getitem__) if token not in special
    ][-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    return {**content, "model": {**content["model"], "vocab": vocabulary}}
