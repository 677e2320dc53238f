"""Ready subjects: they are what the catalogue says, they really work, and every defect of theirs is
seen.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.engines.inference_inside.engine import Request
from harness.history import History
from harness.subjects import READY
from harness.subjects.subject import ReadySubject
from harness.world.below.preload import EVERYTHING
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from tests.kit.commands import ROOT
from tests.kit.launches import launch_of
from tests.kit.worlds import ENGINES

pytestmark = pytest.mark.slow  # each is short; together they take longer than the inner loop has

TOKENIZER = {"tokenizer": str(ROOT / "scenarios" / "tokenizer-on-every-rank" / "tokenizer")}
DONE = {
    "torch-pipeline": "decoded",
    "torch-allreduce": "collectives.done",
    "mlx-allreduce": "collectives.done",
}
SIZES = {
    "torch-pipeline": (1, 2, 3, 8),
    "torch-allreduce": (1, 2, 3, 8),
    "mlx-allreduce": (2, 3, 8),
}
# Where a defect shows: what a pipeline's last rank says goes to all, and a sum without one rank is
# wrong for all.
OF_OTHERS = {"own-value"}


@pytest.fixture(scope="module")
def pool() -> Iterator[ServerPool]:
    """One pool, so that the warm server is started once."""
    with ServerPool() as found:
        yield found


def run(pool: ServerPool, name: str, *, size: int, backend: str = "", **arguments: Any) -> History:
    """A world of a ready subject, from its file as it lies in the package."""
    subject = READY[name]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in subject.files().items():
            Path(folder, file).parent.mkdir(exist_ok=True)
            Path(folder, file).write_bytes(content)
        launch = launch_of(
            about={},
            size=size,
            backend=backend or subject.backends[0],
            warm=True,
            entry=subject.entry,
            folder=Path(folder),
            arguments=arguments,
            inputs=TOKENIZER,
            seeds=list(range(size)),
            deadline=60.0,
            preload=EVERYTHING if name == "tokenizer-load" else ENGINES,
        )
        capture = World(launch, pool).run()
    return History(capture.events, size=size)


def told(history: History, event: str, key: str) -> list[Any]:
    """The one value of each rank."""
    return [
        [value for value, _ in history.values(rank, event, key)] for rank in range(history.size)
    ]


def strings(node: ast.AST) -> set[str]:
    """Texts that stand in an expression."""
    return {
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


def reached(tree: ast.Module, function: str) -> ast.Module:
    """What of a module a function uses, directly or not: several subjects may have their functions
    in one file.
    """
    defined = {
        one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)
    }
    wanted, used = [function], dict[str, ast.stmt]()
    while wanted:
        if (name := wanted.pop()) in defined and name not in used:
            used[name] = defined[name]
            wanted += [one.id for one in ast.walk(defined[name]) if isinstance(one, ast.Name)]
    return ast.Module(body=list(used.values()), type_ignores=[])


def loaded(subject: ReadySubject) -> list[ast.Module]:
    """What a subject uses of its file, and those beside it that it imports, and they."""
    files = {name.rpartition("/")[2]: content for name, content in subject.files().items()}
    wanted, found = [f"{subject.module.rpartition('.')[2]}.py"], dict[str, ast.Module]()
    while wanted:
        if (name := wanted.pop()) in found or name not in files:
            continue
        found[name] = ast.parse(files[name])
        for node in ast.walk(found[name]):
            if isinstance(node, ast.ImportFrom) and node.level:
                wanted += [
                    f"{one}.py"
                    for one in ([node.module] if node.module else [a.name for a in node.names])
                ]
    own = f"{subject.module.rpartition('.')[2]}.py"
    return [reached(found.pop(own), subject.function), *found.values()]


@pytest.mark.parametrize("name", READY)
def test_the_catalogue_is_what_the_code_says(name: str) -> None:
    """Arguments with their defaults, and events with their keys, are those of its files, none more
    and none less.
    """
    subject = READY[name]
    trees = loaded(subject)
    body = ast.parse(subject.file.read_text()).body
    (entry,) = (
        node for node in body if isinstance(node, ast.FunctionDef) and node.name == subject.function
    )
    names = [argument.arg for argument in entry.args.kwonlyargs]
    defaults = [
        ast.literal_eval(default) for default in entry.args.kw_defaults if default is not None
    ]
    taken = dict(zip(names, defaults, strict=True))
    if entry.args.kwarg is not None:  # what subjects of one folder have in common is stated once
        taken |= {field.name: field.default for field in dataclasses.fields(Request)}
    assert taken == {key: argument.default for key, argument in subject.arguments.items()}
    emits: dict[str, set[str]] = {}
    for node in (one for tree in trees for one in ast.walk(tree)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "emit"
        ):
            first = node.args[0]
            events = (
                strings(first.body) | strings(first.orelse)
                if isinstance(first, ast.IfExp)
                else strings(first)
            )
            keys = {keyword.arg for keyword in node.keywords if keyword.arg}
            for keyword in node.keywords:
                if keyword.arg is None and isinstance(keyword.value, ast.Dict):
                    keys |= {
                        key.value for key in keyword.value.keys if isinstance(key, ast.Constant)
                    }
            for event in events:
                emits.setdefault(event, set()).update(keys)
    assert emits == {event: set(keys) for event, keys in subject.emits.items()}


def test_every_default_is_a_value_that_may_be_given() -> None:
    """What an argument is where nothing is given would pass if it were given."""
    for subject in READY.values():
        for argument in subject.arguments.values():
            assert not argument.complaint(argument.default)
            assert argument.complaint(None)
            assert argument.complaint([argument.default])


def test_every_file_of_code_is_a_ready_subject() -> None:
    """No file lies there that no name leads to."""
    alone = {subject.file for subject in READY.values() if not subject.package}
    (folder,) = {file.parent for file in alone}
    assert set(folder.glob("*_inside.py")) == alone
    packages = {subject.file.parent for subject in READY.values() if subject.package}
    assert set(folder.parent.glob("*/*_inside/")) == packages
    for package in packages:
        entries = {
            (file, name)
            for file in package.glob("*.py")
            for name in re.findall(
                r"\n(?:@takes_a_request\n|(?=def run))def (\w+)\(\s*context: Any,\s*\*",
                file.read_text(),
            )
        }
        subjects = [subject for subject in READY.values() if subject.file.parent == package]
        assert entries == {(subject.file, subject.function) for subject in subjects}


def test_the_code_stands_alone() -> None:
    """Copies of its files are all that a rank gets: of ours they import each other and two
    libraries.
    """
    for subject in READY.values():
        for name, content in subject.files().items():
            for node in ast.walk(ast.parse(content)):
                if isinstance(node, ast.ImportFrom):
                    assert node.level <= bool(subject.package), name
                    module = node.module or ""
                    ours = module.startswith("harness") and not module.startswith(
                        ("harness._integrity", "harness.tokenizer")
                    )
                    assert not ours, name


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=[pytest.mark.whole] if size == 8 else [])
        for name, sizes in SIZES.items()
        for size in sizes
    ],
)
def test_it_works_in_worlds_of_every_kind(pool: ServerPool, name: str, size: int) -> None:
    """Every rank returns, every result is right, what must be alike is, and every event of the
    catalogue was told.
    """
    if name == "mlx-allreduce":
        pytest.importorskip("mlx.core")
    modes = (
        ({"parallel": "pipeline"}, {"parallel": "tensor"}) if name == "torch-pipeline" else ({},)
    )
    for arguments in modes:
        history = run(pool, name, size=size, **arguments)
        assert told(history, DONE[name], "correct") == [[True]] * size
        alike = {
            "torch-pipeline": [("decoded", "tokens"), ("step", "logits")],
        }.get(name, [("collectives.done", "digest")])
        for event, key in alike:
            found = told(history, event, key)
            assert found[0]
            assert found == [found[0]] * size
        for event in READY[name].emits:
            assert all(history.said(rank, event) for rank in range(size)), event
        assert [history.exit(rank).event.values["code"] for rank in range(size)] == [0] * size  # type: ignore[union-attr]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (name, {"defect": defect, **({"parallel": mode} if mode else {})})
        for name in DONE
        for defect in READY[name].arguments["defect"].choices[1:]
        for mode in (("pipeline", "tensor") if name == "torch-pipeline" else ("",))
        if (defect, mode) != ("own-part", "pipeline")
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given.values()),
)
def test_every_defect_is_seen(pool: ServerPool, name: str, arguments: dict[str, str]) -> None:
    """A control with it fails, on the ranks that docs/scenarios.md names: there is something that
    could fail.
    """
    if name == "mlx-allreduce":
        pytest.importorskip("mlx.core")
    history = run(pool, name, size=3, **arguments)
    others = [[False]] * 2
    assert told(history, DONE[name], "correct") == [[arguments["defect"] in OF_OTHERS], *others]


def test_more_ranks_than_layers_is_refused_by_the_subject(pool: ServerPool) -> None:
    """What depends on the world size only the rank can see, and it says what to do."""
    history = run(pool, "torch-pipeline", size=2, layers=1)
    error = history.error(0)
    assert error is not None
    assert error.event.values["message"] == "1 layers cannot be split over 2 ranks; raise layers"


@pytest.mark.whole
@pytest.mark.parametrize("backend", ["gloo", "none"])
def test_a_tokenizer_is_the_same_on_every_rank(pool: ServerPool, backend: str) -> None:
    """Loaded, identified and used.

    Between ranks the identities are compared where there is a group.
    """
    history = run(pool, "tokenizer-load", size=2, backend=backend)
    full = told(history, "tokenizer", "full")
    assert full[0] == full[1]
    assert len(full[0]) == 1
    assert told(history, "tokenizer.ready", "returns") == [[True], [True]]
    assert told(history, "identities", "distinct") == (
        [[1], [1]] if backend == "gloo" else [[], []]
    )


def test_a_tokenizer_on_rank_0_only_fails_where_the_others_need_it(pool: ServerPool) -> None:
    """The broken variant dies of a bare assert on every rank but 0."""
    history = run(pool, "tokenizer-load", size=2, backend="none", loader="rank-0-only")
    error = history.error(1)
    assert error is not None
    assert (error.event.values["type"], error.event.values["source"]) == (
        "AssertionError",
        "assert loaded is not None",
    )
    assert history.error(0) is None


def test_code_is_the_file(tmp_path: Path) -> None:
    """What arms get is the file of the package, byte for byte, under the name by which the entry is
    called.
    """
    for subject in READY.values():
        place = subject.module.replace(".", "/") + ".py"
        assert subject.files()[place] == subject.file.read_bytes()
