"""Writing a scenario folder for a user's own bug: it lints clean and runs as it is, and says where to put what."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from harness.scenario import parse_scenario

ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# Ids that YAML reads as something else than a text; what begins with a digit may be a number.
YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class InitError(Exception):
    """A folder that cannot be written; the message says what, where and what to do."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What is known of the bug.

    Attributes:
        id: name of the scenario, lower-case words joined by hyphens.
        title: one line that says what a PASS means.
        question: what the verdict answers.
        ranks: world sizes.
        error: type of the exception the bug ends with.
        source: the source line it ends at.
        failing: ranks the bug shows on: `every`, `nonzero`, or a list such as `[1]`.
        hang: whether the bug is a hang: then a deadlock is played, and no error.
        backend: what joins the ranks; with `none` they have no group, and the code that is written asks for none.
    """

    id: str
    title: str
    question: str
    ranks: tuple[int, ...] = (2, 4)
    error: str = "AssertionError"
    source: str = "assert tokenizer"
    failing: str = "nonzero"
    hang: bool = False
    backend: str = "gloo"


SCENARIO = """\
# yaml-language-server: $schema={schema}
schema: 1
id: {id}
title: {title}
question: {question}

subject:
  entry: subject:check                  # the function `check` in subject.py, called in every rank process
  candidate: {{with: {{fixed: true}}}}      # your fix; instead of arguments, `file: other.py` takes another file
  control:                              # the bug: if it does not {fail}, the run proves nothing
    with: {{fixed: false}}
    must_fail: {{{must_fail}}}

matrix: {{ranks: {ranks}, backend: [{backend}]}}
trials: {{candidate: 59, control: {control}}}     # 59 clean trials put the failure rate below 5% at 95% confidence

checks:
  - {{id: works, kind: event, ranks: every, event: works}}
  - {{id: all-finished, kind: exit, ranks: every, code: 0}}
  - {{id: nobody-left, kind: no-survivors}}
"""

SUBJECT = '''\
"""The code under test for `{id}`, as every rank runs it.

As it stands it plays the bug that Rankproof started from: something that only rank 0 has. Put your own code in its
place: call the fixed code where `fixed` is true and the broken code where it is not, and emit `works` when a rank got
through.
"""


{error}def check(context, *, fixed):
    """Entry. `context` has rank, size, group (barrier, all_gather), inputs, seed and emit."""
    tokenizer = load() if fixed or {healthy} else None
{failure}
    context.emit("works", value=tokenizer)
{barrier}

def load():
    """Stands for whatever your ranks need."""
    return "a tokenizer"
'''

HANG_SUBJECT = '''\
"""The code under test for `{id}`, as every rank runs it.

As it stands it plays a deadlock: a collective inside a branch that only rank 0 takes. Put your own code in its place:
call the fixed code where `fixed` is true and the broken code where it is not, emit `works` when a rank got through, and
say in scenario.yaml at which line the broken code hangs.
"""

import torch
import torch.distributed as dist


def check(context, *, fixed):
    """Entry. `context` has rank, size, group (barrier, all_gather), inputs, seed and emit."""
    total = torch.ones(1)
    if fixed or context.rank == 0:
        dist.all_reduce(total)
    context.group.barrier()
    context.emit("works", value=total.item())
'''

OTHER_FAILURE = """\
    if tokenizer is None:
        {line}"""
NO_TOKENIZER = "no tokenizer"
LATER = "  # your line: {source}; with your code in its place, put `source: ...` for `message` in must_fail"
OWN_ERROR = """\
class {error}(Exception):
    pass


"""


def write(folder: Path, answers: Answers) -> list[Path]:
    """Write `scenario.yaml` and `subject.py` into a new folder.

    Returns:
        The files.

    Raises:
        InitError: the folder holds files already, cannot be written, or an answer cannot stand in a scenario.
        ScenarioError: an answer that the scenario's schema refuses.
    """
    if not ID.fullmatch(answers.id):
        raise InitError(
            f"{answers.id!r} cannot name a scenario: lower-case letters, digits and hyphens, such as --id my-fix"
        )
    if answers.error == "SystemExit":
        raise InitError("SystemExit ends a rank without an error: name the exception that the bug raises")
    if not answers.error.isidentifier() or keyword.iskeyword(answers.error):
        raise InitError(f"{answers.error!r} is not the name of an exception: its last part alone, OutOfMemoryError")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InitError(f"{folder} is not an empty folder: name another one, nothing was written")
    except OSError as error:
        raise InitError(f"{folder} cannot be read: {error.strerror}") from None
    texts = {"scenario.yaml": _scenario(folder, answers), "subject.py": _subject(answers)}
    try:
        "".join(texts.values()).encode()
    except UnicodeEncodeError:
        raise InitError("an answer is no UTF-8: type it again") from None
    parse_scenario(texts["scenario.yaml"].encode(), name=str(folder / "scenario.yaml"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in texts.items():
            path = folder / name
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise InitError(f"{folder} cannot be written: {error.strerror}") from None
    return written


def _scenario(folder: Path, answers: Answers) -> str:
    schema = "../scenario.schema.json" if (folder.parent / "scenario.schema.json").exists() else "scenario.schema.json"
    if answers.hang:
        fail, must_fail = "hang here, on these ranks", "hang: {source: dist.all_reduce(total)}, ranks: [0], within: 10s"
    else:
        line = f"source: {_quoted(answers.source)}" if _plays(answers) else f"message: {NO_TOKENIZER}"
        fail, must_fail = "fail like this", f"check: works, ranks: {answers.failing}, error: {answers.error}, {line}"
    return SCENARIO.format(
        schema=schema,
        id=answers.id if answers.id[0].isalpha() and answers.id not in YAML_WORDS else _quoted(answers.id),
        title=_quoted(answers.title),
        question=_quoted(answers.question),
        fail=fail,
        must_fail=must_fail,
        ranks=json.dumps(list(answers.ranks)),
        backend=answers.backend,
        control=3 if answers.hang else 5,
    )


def _subject(answers: Answers) -> str:
    """The template, playing the user's own failing line where a line can be played without their code."""
    if answers.hang:
        return HANG_SUBJECT.replace("{id}", answers.id)
    own = not _raises(answers.error)
    if answers.source == "assert tokenizer" and _plays(answers):
        failure = f"    {answers.source}"
    elif _plays(answers):
        failure = OTHER_FAILURE.format(line=answers.source)
    else:
        later = "" if answers.source == "assert tokenizer" else LATER.format(source=answers.source)
        invented = f'raise {answers.error}("{NO_TOKENIZER}")' + later
        failure = OTHER_FAILURE.format(line=invented)
    healthy = {"nonzero": "context.rank == 0", "every": "False"}.get(
        answers.failing, f"context.rank not in {answers.failing}"
    )
    parts = {
        "{id}": answers.id,
        "{error}": OWN_ERROR.format(error=answers.error) if own else "",
        "{healthy}": healthy,
        "{failure}": failure,
        "{barrier}": "" if answers.backend == "none" else "    context.group.barrier()\n",
    }
    text = SUBJECT
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def _raises(error: str) -> bool:
    """Whether a built-in exception of this name can be raised with a message alone; UnicodeDecodeError cannot."""
    kind = getattr(builtins, error, None)
    try:
        return isinstance(kind, type) and type(kind("no tokenizer")) is kind and issubclass(kind, BaseException)
    except (TypeError, ValueError):
        return False


def _plays(answers: Answers) -> bool:
    """Whether the line fails by itself as stated: our own assert, or a `raise` of the error with plain arguments."""
    if answers.source == "assert tokenizer":
        return answers.error == "AssertionError"
    try:
        body = ast.parse(answers.source).body
    except (SyntaxError, ValueError):
        return False
    call = body[0].exc if len(body) == 1 and isinstance(body[0], ast.Raise) else None
    if isinstance(call, ast.Call):
        plain = all(isinstance(argument, ast.Constant) for argument in call.args) and not call.keywords
        return plain and isinstance(call.func, ast.Name) and call.func.id == answers.error
    return isinstance(call, ast.Name) and call.id == answers.error


def _quoted(text: str) -> str:
    """A YAML text in double quotes; JSON's quoting is a part of YAML's."""
    return json.dumps(text, ensure_ascii=False)
