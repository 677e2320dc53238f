"""Checkpoints that are whole, and such as are not: what a rank loads of them, and whether it says
what it lacks.
"""

import json
import shutil
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError

from harness.engines.inference_inside import checkpoint, session

FILE = "model.safetensors"
LOST = "model.layers.1.mlp.up_proj.weight"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
HALVES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SPLIT = (
    "two-files",
    "file-missing",
    "file-cut-off",
    "index-truncated",
    "index-damaged",
    "tensor-twice",
)
ROWS = 12
NOTHING = "nothing was loaded"
# Of what must not be loaded, what the reason has to say; where mlx-lm says it itself, in its words.
REFUSED = {
    "tensor-missing": "lacks",
    "file-missing": "which is missing",
    "file-cut-off": "cut off",
    "index-truncated": "does not name",
    "index-damaged": "cannot be read",
    "tensor-twice": "and in",
    "tensor-unknown": "contains 1 tensor that the model does not have",
    "vocabulary-short": "but the model has only",
}
BY_MLX_LM = {
    "tensor-missing": "Missing 1 parameters",
    "tensor-unknown": "Received 1 parameters not in model",
}


def open_checkpoint(context, *, engine, case, loader="strict"):
    """Entry: load a checkpoint, read prompts with its tokenizer, and tell what came of it.

    Args:
        context: the rank's context.
        engine: hf-single or mlx-single.
        case: what the checkpoint is like; those of `REFUSED` must not be loaded.
        loader: `strict`, as the ready subjects load; `lenient`, as `from_pretrained` and
            `load_model(strict=False)` do where nobody looks at what they say.
    """
    folder = made(Path("checkpoint"), Path(context.inputs["model"]), case)
    subject = of_transformers(loader) if engine == "hf-single" else of_mlx_lm(loader)
    try:
        subject.load(str(folder), dtype="float32")
        tokenizer = session.load_tokenizer(str(folder))
        prompt = tokenizer.encode(
            "hello <|added|>" if case in ("vocabulary-short", "vocabulary-padded") else "hello"
        )
        if loader == "strict":
            session.demand_rows([prompt], subject.rows)
        pieces = list(subject.pieces())
    except (ValueError, OSError, RuntimeError, SafetensorError) as error:
        said = str(error).splitlines()[0]
        why = REFUSED.get(case, NOTHING)
        named = why in said or BY_MLX_LM.get(case, why) in said
        context.emit(
            "judged",
            outcome=f"refused: {why if named else said[:200]}",
            digest=NOTHING,
            unused=NOTHING,
        )
        return
    stored = tensors_of(folder)
    used = {one.tensor for one in pieces}
    context.emit(
        "judged",
        outcome="loaded",
        digest=digest({one.tensor: sha256(one.data).hexdigest() for one in pieces}),
        unused=", ".join(sorted(stored.keys() - used)) or "none",
    )


def files(context, *, engine, case):
    """Entry of the reference: what has to come of it, by the files alone. No engine reads them."""
    del engine
    if case in REFUSED:
        context.emit("judged", outcome=f"refused: {REFUSED[case]}", digest=NOTHING, unused=NOTHING)
        return
    stored = tensors_of(made(Path("checkpoint"), Path(context.inputs["model"]), case))
    unused = [HEAD] if case == "tied-with-head" else []
    held = {name: sha256(data).hexdigest() for name, data in stored.items() if name not in unused}
    context.emit(
        "judged", outcome="loaded", digest=digest(held), unused=", ".join(unused) or "none"
    )


def tensors_of(folder):
    """Every tensor that any file of a folder holds, by name."""
    from safetensors import safe_open

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(str(path), framework="np") as file:
            # Not a mapping.
            found |= {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
    return found


def digest(held):
    """One digest of tensors, by name and digest."""
    return sha256(json.dumps(sorted(held.items())).encode()).hexdigest()


def made(folder, model, case):
    """A copy of a model, changed as a case says."""
    from safetensors.numpy import load_file

    shutil.copytree(model, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    tensors, config = load_file(folder / FILE), json.loads((folder / "config.json").read_text())
    (folder / FILE).unlink()
    change_tensors(case, tensors, config)
    if case in ("vocabulary-padded", "vocabulary-short"):
        add_token(folder / "tokenizer.json", len(load_file(Path(model, FILE))[EMBEDDING]))
    (folder / "config.json").write_text(json.dumps(config))
    write(case, folder, tensors)
    return folder


def change_tensors(case, tensors, config):
    """What a case has more, less or otherwise than the model."""
    if case == "tensor-missing":
        del tensors[LOST]
    elif case == "tensor-unknown":
        tensors["model.layers.1.mlp.other.weight"] = tensors[LOST]
    elif case == "tied":
        config["tie_word_embeddings"] = True
        del tensors[HEAD]
    elif case == "tied-with-head":
        config["tie_word_embeddings"] = True
        tensors[HEAD] = tensors[EMBEDDING].copy()
    elif case == "vocabulary-padded":
        config["vocab_size"] += ROWS
        tensors |= {name: padded(tensors[name]) for name in (EMBEDDING, HEAD)}


def write(case, folder, tensors):
    """The files of a case, with their index."""
    from safetensors.numpy import save_file

    names = sorted(tensors)
    parts = [dict.fromkeys(names, HALVES[0])]
    if case in SPLIT:
        parts = [dict.fromkeys(names[number::2], file) for number, file in enumerate(HALVES)]
    index = {name: file for part in parts for name, file in part.items()}
    for part in parts:
        held = [*part, *([names[1]] if case == "tensor-twice" and names[1] not in part else [])]
        save_file(
            {name: tensors[name] for name in held},
            folder / next(iter(part.values())),
            metadata={"format": "pt"},
        )
    if case == "index-truncated":
        index = {name: file for name, file in index.items() if file == HALVES[0]}
    text = json.dumps({"metadata": {}, "weight_map": index})
    (folder / checkpoint.INDEX).write_text(
        text[: len(text) // 2] if case == "index-damaged" else text
    )
    if case == "file-missing":
        (folder / HALVES[1]).unlink()
    elif case == "file-cut-off":
        content = (folder / HALVES[1]).read_bytes()
        (folder / HALVES[1]).write_bytes(content[:-64])


def padded(rows):
    """More rows, all zero, as engines pad a vocabulary that does not divide by the ranks."""
    import numpy as np

    return np.concatenate([rows, np.zeros((ROWS, rows.shape[1]), rows.dtype)])


def add_token(path, number):
    """A tokenizer with one token more, whose id is the first without a row in the model as it
    was.
    """
    content = json.loads(path.read_text())
    marks = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    content["added_tokens"].append({"id": number, "content": "<|added|>", **marks})
    path.write_text(json.dumps(content))


def of_transformers(loader):
    """The engine of the ready subjects, or what goes on with whatever was loaded."""
    from harness.engines.inference_inside import hf, stages

    subject = hf.Transformers(rank=0, size=1, sharding="single")
    if loader == "lenient":
        stages.demand_whole = lambda _told: None
        checkpoint.stored = all_of_them
    return subject


def of_mlx_lm(loader):
    """The same of mlx-lm, which tells nothing where it is not strict."""
    from harness.engines.inference_inside import mlx

    subject = mlx.MlxLm(rank=0, size=1, sharding="single")
    if loader == "lenient":
        from mlx_lm import utils

        whole = utils.load_model
        utils.load_model = lambda path, lazy=False: whole(path, lazy=lazy, strict=False)
        checkpoint.stored = all_of_them
        mlx.demand_known = lambda _names, _stored: None
    return subject


def all_of_them(folder):
    """Every tensor of every file that can be read, whatever an index says."""
    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        try:
            found |= checkpoint.header(path)
        except ValueError:
            continue
    return found
