"""Writing a scenario folder for a user's own bug: it lints clean and runs as it is, and says where
to put what.
"""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.forms.git import git
from harness.scenario import parse_scenario, schema_text

ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
Kind = Literal["error", "hang", "program", "package"]
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
        kind: `error`: it raises; `hang`: a rank stands still; `program`: ranks are programs;
            `package`: it is in a release of a package that is installed.
        ranks: world sizes.
        error: type of the exception the bug ends with.
        source: the source line it ends at.
        failing: ranks the bug shows on: `every`, `nonzero`, or a list such as `[1]`.
        backend: what joins the ranks; with `none` they have no group, and the code that is written
            asks for none.
        package: name of the package, with `candidate` and `control`: its release with the fix, and
            the one without.
    """

    id: str
    title: str
    question: str
    kind: Kind = "error"
    ranks: tuple[int, ...] = (2, 4)
    error: str = "AssertionError"
    source: str = "assert tokenizer"
    failing: str = "nonzero"
    backend: str = "gloo"
    package: str = ""
    candidate: str = ""
    control: str = ""


SCENARIO = """\
# yaml-language-server: $schema=../scenario.schema.json
schema: 1
id: {id}
title: {title}
question: {question}

subject:
{subject}
  control:                              # the bug: if it does not {fail}, the run proves nothing
    {control}
    must_fail: {{{must_fail}}}

matrix: {{ranks: {ranks}{backend}}}
trials: {{candidate: 59, control: {trials}}}     # 59 clean trials put the failure rate below 5% at 95% confidence

checks:
  - {{id: works, kind: event, ranks: every, event: works}}
  - {{id: all-finished, kind: exit, ranks: every, code: 0}}
  - {{id: nobody-left, kind: no-survivors}}
"""

OF_CODE = """\
  entry: subject:check                  # the function `check` in subject.py, called in every rank process
  candidate: {with: {fixed: true}}      # your fix; instead of arguments, `file: other.py` uses another file"""
OF_A_PROGRAM = """\
  program: [sh, rank.sh, "{fixed}"]     # any command line; a word that is a file of this folder becomes its full path
  candidate: {with: {fixed: true}}      # your fix; its arguments replace the words in braces"""
OF_A_PACKAGE = """\
  entry: subject:check                  # the function `check` in subject.py, called in every rank process
  of: installed                         # tests the installed package, not the code of this repository
  candidate: {environment: {packages: {PACKAGE: CANDIDATE}}}"""

SUBJECT = '''\
"""The code under test for `{id}`, as every rank runs it.

For now it contains a made-up bug: something that only rank 0 has. Replace it with your own code: call the fixed code
if `fixed` is true and the broken code otherwise, and emit `works` when a rank succeeds.
"""


{error}def check(context, *, fixed):
    """Entry. `context` has rank, size, group (barrier, all_gather), inputs, seed and emit."""
    tokenizer = load() if fixed or {healthy} else None
{failure}
    context.emit("works", value=tokenizer)
{barrier}

def load():
    """Return something that your ranks need."""
    return "a tokenizer"
'''

HANG_SUBJECT = '''\
"""The code under test for `{id}`, as every rank runs it.

For now it contains a deadlock: a collective inside a branch that only rank 0 takes. Replace it with your own code: call
the fixed code if `fixed` is true and the broken code otherwise, emit `works` when a rank succeeds, and write into
scenario.yaml at which line the broken code hangs.
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

PACKAGE_SUBJECT = '''\
"""A test of PACKAGE, with the release in the arm's environment.

For now it only checks that the two releases differ. Replace that with a call that the broken release gets wrong, and
write into scenario.yaml how that call ends.
"""

from importlib.metadata import version


def check(context):
    """Entry. `context` has rank, size, inputs, seed and emit."""
    release = version("PACKAGE")
    assert release != CONTROL
    context.emit("works", release=release)
'''

PROGRAM = """\
# The program under test for `{id}`: one process for each rank, in any language; here in POSIX shell.
# Events go to descriptor 3, one JSON object a line; answers come on descriptor 4.
#
# For now it contains a bug that only some ranks have. Call your own program instead, or start it from scenario.yaml: it
# reports `ready`, reads a line from descriptor 4, works, and reports `works`.
set -eu
fixed=$1

printf '%s\\n' '{{"event": "ready"}}' >&3
read -r _ <&4 # comes when every rank is ready

tokenizer="a tokenizer"
if [ "$fixed" != true ]; then
    case "$RANKPROOF_RANK" in {failing}) tokenizer= ;; esac
fi
if [ -z "$tokenizer" ]; then
    echo "no tokenizer on rank $RANKPROOF_RANK" >&2
    exit {code} # how the broken program ends: `code` in scenario.yaml
fi
printf '%s\\n' '{{"event": "works"}}' >&3
"""
CODE = 3

OTHER_FAILURE = """\
    if tokenizer is None:
        {line}"""
NO_TOKENIZER = "no tokenizer"
LATER = (
    "  # your line: {source}; once your own code is here, replace `message` with `source: ...` in"
    " must_fail"
)
OWN_ERROR = """\
class {error}(Exception):
    pass


"""


def write(folder: Path, answers: Answers) -> list[Path]:
    """Write `scenario.yaml` and the subject into a new folder, and beside it the schema, where none
    is there.

    Returns:
        The files.

    Raises:
        InitError: the folder holds files already, cannot be written, or an answer cannot stand in a
            scenario.
        ScenarioError: an answer that the scenario's schema refuses.
    """
    if not ID.fullmatch(answers.id):
        raise InitError(
            f"{answers.id!r} is not a valid name for a scenario; use lower-case letters, digits"
            " and hyphens, such as --id my-fix"
        )
    if answers.error == "SystemExit":
        raise InitError(
            "SystemExit ends a rank without an error; name the exception that the bug raises"
        )
    if not answers.error.isidentifier() or keyword.iskeyword(answers.error):
        raise InitError(
            f"{answers.error!r} is not a valid exception name; give it without its module, such as"
            " OutOfMemoryError"
        )
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InitError(
                f"{folder} is not an empty folder, so nothing was written; choose another folder"
            )
    except OSError as error:
        raise InitError(f"{folder} cannot be read: {error.strerror}") from None
    subject = ("rank.sh", _program) if answers.kind == "program" else ("subject.py", _subject)
    texts = {folder / "scenario.yaml": _scenario(answers), folder / subject[0]: subject[1](answers)}
    try:
        "".join(texts.values()).encode()
    except UnicodeEncodeError:
        raise InitError("an answer is not UTF-8; type it again") from None
    file = folder / "scenario.yaml"
    for key, message in parse_scenario(texts[file].encode(), name=str(file)).overlong():
        raise InitError(f"--{key} {message}")
    try:
        if not (schema := folder.parent / "scenario.schema.json").exists():
            texts[schema] = schema_text()
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InitError(f"{folder} cannot be written: {error.strerror}") from None
    return list(texts)


def ignore_results(here: Path, results: str = "results") -> Path | None:
    """Let git ignore what runs from a folder will leave there, where nothing says so yet.

    Returns:
        The `.gitignore` that says it now; None where git ignores it already, or the folder is in no
        repository.

    Raises:
        InitError: it cannot be written.
    """
    if git("check-ignore", "--quiet", f"{results}/run/report.md", folder=here).returncode != 1:
        return None
    file = here / ".gitignore"
    try:
        before = file.read_bytes() if file.exists() else b""
        line = b"\n" if before and not before.endswith(b"\n") else b""
        file.write_bytes(
            before
            + line
            + f"# The results of `rankproof run`: one folder for each run\n/{results}/\n".encode()
        )
    except OSError as error:
        raise InitError(
            f"{file} cannot be written: {error.strerror}; add the line /{results}/ to it by hand"
        ) from None
    return file


def _scenario(answers: Answers) -> str:
    subject = OF_CODE
    control = "with: {fixed: false}"
    trials = 5
    fail = "fail like this"
    must_fail = f"check: works, ranks: {answers.failing}"
    backend = f", backend: [{answers.backend}]"
    match answers.kind:
        case "error":
            line = (
                f"source: {_quoted(answers.source)}"
                if _plays(answers)
                else f"message: {NO_TOKENIZER}"
            )
            must_fail = f"{must_fail}, error: {answers.error}, {line}"
        case "hang":
            fail = "hang here, on these ranks"
            must_fail = "hang: {source: dist.all_reduce(total)}, ranks: [0], within: 10s"
            trials = 3
        case "program":
            subject = OF_A_PROGRAM
            must_fail = f"{must_fail}, code: {CODE}"
            backend = ""
        case "package":
            subject = _of_package(OF_A_PACKAGE, answers)
            control = "environment: {packages: {PACKAGE: CONTROL}}"
            control = _of_package(control, answers)
            backend = ", backend: [none]"
            line = _quoted(f"assert release != {_quoted(answers.control)}")
            must_fail = f"check: works, ranks: every, error: AssertionError, source: {line}"
    return SCENARIO.format(
        id=(
            answers.id
            if answers.id[0].isalpha() and answers.id not in YAML_WORDS
            else _quoted(answers.id)
        ),
        title=_quoted(answers.title),
        question=_quoted(answers.question),
        subject=subject,
        fail=fail,
        control=control,
        must_fail=must_fail,
        ranks=json.dumps(list(answers.ranks)),
        backend=backend,
        trials=trials,
    )


def _of_package(text: str, answers: Answers) -> str:
    text = text.replace("PACKAGE", answers.package)
    return text.replace("CANDIDATE", _quoted(answers.candidate)).replace(
        "CONTROL", _quoted(answers.control)
    )


def _program(answers: Answers) -> str:
    """Return the shell program, in which the ranks fail that the scenario says."""
    failing = {"nonzero": "[!0]*", "every": "*"}.get(
        answers.failing, "|".join(re.findall("[0-9]+", answers.failing))
    )
    return PROGRAM.format(id=answers.id, failing=failing or "''", code=CODE)


def _subject(answers: Answers) -> str:
    """Return the template, playing the user's own failing line where a line can be played without
    their code.
    """
    if answers.kind == "package":
        return _of_package(PACKAGE_SUBJECT, answers)
    if answers.kind == "hang":
        return HANG_SUBJECT.replace("{id}", answers.id)
    defined = not _raises(answers.error)
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
        "{error}": OWN_ERROR.format(error=answers.error) if defined else "",
        "{healthy}": healthy,
        "{failure}": failure,
        "{barrier}": "" if answers.backend == "none" else "    context.group.barrier()\n",
    }
    text = SUBJECT
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def _raises(error: str) -> bool:
    """Return whether a built-in exception of this name can be raised with a message alone;
    UnicodeDecodeError cannot.
    """
    kind = getattr(builtins, error, None)
    try:
        return (
            isinstance(kind, type)
            and type(kind("no tokenizer")) is kind
            and issubclass(kind, BaseException)
        )
    except (TypeError, ValueError):
        return False


def _plays(answers: Answers) -> bool:
    """Return whether the line fails by itself as stated: our own assert, or a `raise` of the error
    with plain arguments.
    """
    if answers.source == "assert tokenizer":
        return answers.error == "AssertionError"
    try:
        body = ast.parse(answers.source).body
    except (SyntaxError, ValueError):
        return False
    call = body[0].exc if len(body) == 1 and isinstance(body[0], ast.Raise) else None
    if isinstance(call, ast.Call):
        plain = (
            all(isinstance(argument, ast.Constant) for argument in call.args) and not call.keywords
        )
        return plain and isinstance(call.func, ast.Name) and call.func.id == answers.error
    return isinstance(call, ast.Name) and call.id == answers.error


def _quoted(text: str) -> str:
    """Return a YAML text in double quotes; JSON's quoting is a part of YAML's."""
    return json.dumps(text, ensure_ascii=False)
