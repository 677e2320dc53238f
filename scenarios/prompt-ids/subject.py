"""The token ids that a model is really fed, told at its embedding, against those that the chat
template defines.

The tokenizer is the made model's, with two things that chat models have together: a template that
writes the BOS token, and a post-processor that puts it before every text. Whoever renders the
template and encodes the text gets it twice.
"""

import hashlib
import json
import math
import shutil
from pathlib import Path

BOS = "<s>"
ANSWER, MARGIN = 6, 1e-3
"""Tokens that are generated after each prompt, and by how much the best has to be the best."""
TALKS = (
    [{"role": "user", "content": "hello world"}],
    [
        {"role": "system", "content": "tell the story of the fox"},
        {"role": "user", "content": "你好 🙂 naïve?"},
    ],
    [
        {"role": "user", "content": "what is the capital"},
        {"role": "assistant", "content": " the quick\n brown fox"},
        {"role": "user", "content": "  and   the key <b>?"},
    ],
)
MORE = "and who jumps over the lazy dog"
"""What is said after the answer."""
TEXTS = ("hello world", " a first space", "日本語 مرحبا 🙂", "tabs\tand\n\nlines", "e\u0301 é")


def defined(context, *, what):
    """Entry of the reference: the ids by jinja2 and the library tokenizers alone, and the whole
    model's answers.
    """
    import torch
    from transformers import AutoModelForCausalLM

    render, encode, decode = by_hand(chat_model(context))
    model = AutoModelForCausalLM.from_pretrained(
        context.inputs["model"], dtype=torch.float32, local_files_only=True
    )
    assert [decode(encode(text)) for text in TEXTS] == list(TEXTS)
    for number, talk in enumerate(TALKS):
        ids = encode(render(talk, add_generation_prompt=True))
        answer = continued(model, ids)
        tell(context, number, ids, answer)
        if what == "turn":
            again = encode(decode(answer))
            # What was generated is not what a tokenizer makes of its text: else encoding it again
            # would go unseen.
            assert again != answer, "take another prompt"
            longer = [*ids, *answer, *encode(turn_of(render, talk))]
            tell(context, number, longer, continued(model, longer))
    context.emit("round.trip", texts=list(TEXTS))


def continued(model, ids):
    """The next tokens by the whole model, without a cache."""
    import torch

    found = list(ids)
    for _ in range(ANSWER):
        with torch.no_grad():
            best = model(torch.tensor([found]), use_cache=False).logits[0, -1].double().topk(2)
        assert best.values[0] - best.values[1] > MARGIN, "a tie: take another prompt"
        found.append(int(best.indices[0]))
    return found[len(ids) :]


def by_hand(folder):
    """Render, encode and decode as the files define it, with nothing of transformers or mlx-lm."""
    import jinja2
    from tokenizers import Tokenizer

    bare = jinja2.Environment(autoescape=False)  # noqa: S701 - a prompt is not a page
    template = bare.from_string(Path(folder, "chat_template.jinja").read_text())
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    return (
        lambda talk, **given: template.render(messages=talk, bos_token=BOS, **given),
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        lambda ids: tokenizer.decode(ids, skip_special_tokens=False),
    )


def turn_of(render, talk):
    """What stands between an answer and the next one."""
    longer = [*talk, {"role": "assistant", "content": "@"}, {"role": "user", "content": MORE}]
    return render(longer, add_generation_prompt=True).rpartition("@")[2]


def feed(context, *, what, broken):
    """Entry: have the engine answer every conversation, and tell what came to the model's
    embedding.

    Args:
        context: of the rank.
        what: `bos`: the conversation is rendered, then encoded; `prompt`: the tokenizer does both;
            `turn`: a second turn follows, whose prompt is the ids so far and those of what is new.
        broken: it is encoded as any text · nothing asks for an answer · the answer is decoded and
            encoded again.
    """
    folder = chat_model(context)
    engine = ENGINES[context.backend](context, folder)
    held, whole = engine.held(), elements_of(folder)
    context.emit("engine.ready", engine=engine.name, elements=held, whole=held >= whole)
    for number, talk in enumerate(TALKS):
        ids = prompt_of(engine, talk, what if broken else "", rendered=what == "bos")
        fed, answer = engine.answer(ids, ANSWER)
        tell(context, number, fed, answer)
        if what == "turn":
            words = engine.tokenizer.encode(
                engine.tokenizer.decode(answer), add_special_tokens=False
            )
            new = engine.tokenizer.encode(turn_of(engine.render, talk), add_special_tokens=False)
            tell(
                context,
                number,
                *engine.answer([*ids, *(words if broken else answer), *new], ANSWER),
            )
    own = engine.tokenizer
    context.emit(
        "round.trip",
        texts=[own.decode(own.encode(text, add_special_tokens=False)) for text in TEXTS],
    )


def prompt_of(engine, talk, broken, *, rendered):
    """The ids of a conversation, or its text where the engine is to encode it."""
    if rendered:
        text = engine.render(talk, add_generation_prompt=True)
        return engine.tokenizer.encode(text) if broken == "bos" else engine.encoded(text)
    return engine.ids(talk, add_generation_prompt=broken != "prompt")


def tell(context, number, ids, answer):
    """Tell what a prompt was, and what was answered: who told another prompt than it fed would
    answer otherwise.
    """
    digest = hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()
    context.emit(
        "fed", conversation=number, ids=list(ids), begins=list(ids).count(0), digest=digest
    )
    context.emit("answered", conversation=number, ids=list(answer))


def chat_model(context):
    """The model, its template with the BOS token and its tokenizer with a post-processor that adds
    it.
    """
    folder = Path(context.shared, f"model-{context.rank}")
    shutil.copytree(context.inputs["model"], folder)
    template = folder / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    begin = {"SpecialToken": {"id": BOS, "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            begin,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {BOS: {"id": BOS, "ids": [0], "tokens": [BOS]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(folder)


def elements_of(folder):
    """How many numbers a checkpoint holds."""
    with Path(folder, "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")


def transformers(context, folder):
    from torch_embedding import Transformers

    return Transformers(context, folder)


def mlx(context, folder):
    from mlx_embedding import MlxLm

    return MlxLm(context, folder)


ENGINES = {"gloo": transformers, "mlx-ring": mlx}
