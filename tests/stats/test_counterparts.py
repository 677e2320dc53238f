"""What the repository has to hold of the code that ran: which files carry one of its import names,
and which of its own files each of them is held against.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.stats.counterparts import (
    BuiltCheckout,
    Counterparts,
    InstalledCopy,
    Source,
    is_below,
    is_data,
    longest_alike,
    spread,
)
from harness.stats.provenance import judge
from tests.stats.test_code_that_ran import (
    NONE,
    OTHER,
    OURS,
    THIRD,
    digest_of,
    listing,
)


def copy(**files: str) -> InstalledCopy:
    """An installed distribution with these files."""
    return InstalledCopy(name="engine", version="1.0", files=files)


ENGINE = copy(**{"engine/__init__.py": OURS, "engine/core.py": OURS})
REPOSITORY = {"src/engine/__init__.py": OURS, "src/engine/core.py": OURS}


def source(
    installed: InstalledCopy = ENGINE, *, hidden: tuple[str, ...] = (), **more: Any
) -> Source:
    roots = {"engine": [("", "src/")]}
    known = Counterparts(roots=roots, files=REPOSITORY, installed=[installed], hidden=hidden)
    return Source(**{"declared": (), "files": REPOSITORY, "counterparts": known, **more})


WHOLE = json.dumps({"installed": {"engine": "engine 1.0"}, "others": []}).encode()


def reasons(given: Source, content: bytes = WHOLE) -> str:
    return "; ".join(judge(content, given).unproven)


def test_an_installed_copy_that_is_the_repositorys_proves_the_code() -> None:
    """Nothing is declared: the import name alone decides, and its files are the commit's."""
    assert reasons(source()) == ""


def test_an_installed_copy_that_differs_does_not() -> None:
    """One file of the distribution is not as the commit has it, whether or not a rank loaded it."""
    other = copy(**{"engine/__init__.py": OURS, "engine/core.py": OTHER})
    assert "engine/core.py differs from src/engine/core.py" in reasons(source(other))


def test_installed_data_is_the_commits_too() -> None:
    """A table that was installed beside the packages is held against the repository's."""
    files = {**ENGINE.files, "../../../share/engine/table.json": OTHER}
    known = Counterparts(
        roots={"engine": [("", "src/")]},
        files={**REPOSITORY, "share/engine/table.json": OURS},
        installed=[copy(**files)],
    )
    found = reasons(Source(declared=(), files=REPOSITORY, counterparts=known))
    assert "table.json differs from share/engine/table.json" in found


def test_the_content_of_an_input_needs_no_counterpart() -> None:
    """A file that the run's inputs or plug-ins bring may lie in a package; any other may not."""
    other = copy(**{"engine/__init__.py": OURS, "engine/core.py": OTHER})
    assert reasons(source(other, inputs=(OTHER,))) == ""
    assert reasons(source(other, plugins=(OTHER,))) == ""
    assert reasons(source(other, inputs=(THIRD,), plugins=(THIRD,))) != ""


def test_a_package_that_hides_a_folder_of_the_arm_is_named() -> None:
    """A folder without `__init__.py` loses against an installed package of its name."""
    assert "of the arm's folder is hidden by the installed engine 1.0" in reasons(
        source(hidden=("engine",))
    )
    part = InstalledCopy(name="engine", version="1.0", files={"engine/sub/mod.py": OURS})
    assert "hidden" not in reasons(source(part, hidden=("engine",)))
    for name, is_hidden in (("engine.py", True), ("other.py", False)):
        whole = InstalledCopy(
            name="engine", version="1.0", files={"engine/sub/mod.py": OURS, name: OURS}
        )
        assert ("hidden" in reasons(source(whole, hidden=("engine",)))) is is_hidden


def test_what_changed_after_a_rank_had_loaded_it_is_named() -> None:
    """The distribution's file at the end of the run is not the one that the rank loaded."""
    other = {
        "package": "engine",
        "distribution": "engine",
        "version": "1.0",
        "record": "as",
        "files": {"engine/core.py": OTHER},
    }
    found = reasons(source(), listing(other))
    assert "engine/core.py of engine 1.0 has changed since a rank loaded it" in found
    same = {**other, "files": {"engine/core.py": OURS}}
    assert reasons(source(), listing(same)) == ""


def test_a_package_of_somebody_else_is_not_asked_for() -> None:
    """A name that the repository neither holds nor declares is proved by its RECORD alone."""
    content = json.dumps({"installed": {"numpy": "numpy 1.0"}, "others": []}).encode()
    assert reasons(source(), content) == ""


def test_a_declared_name_without_a_place_proves_nothing() -> None:
    """The repository declares it, and nobody knows where its code lies there: no digest can be held
    against it.
    """
    content = json.dumps({"installed": {"motor": "motor 1.0"}, "others": []}).encode()
    motor = InstalledCopy(name="motor", version="1.0", files={"motor/__init__.py": OURS})
    found = reasons(source(motor, declared=("motor",)), content)
    assert "its place in the repository is unknown" in found


@pytest.mark.parametrize(
    ("others", "words"), [((OURS,), "core.py in the repository: set"), ((OTHER,), ", and 1 more")]
)
def test_of_files_that_differ_one_is_named_and_the_others_counted(
    others: tuple[str], words: str
) -> None:
    """None is left out of the count, and where there is one nothing is counted."""
    other = copy(**{"engine/__init__.py": others[0], "engine/core.py": OTHER})
    found = reasons(source(other))
    assert words in found
    assert "0 more" not in found


def came(
    files: dict[str, str], *, record: str = "as", distribution: str | None = "engine"
) -> bytes:
    """A list of files in question that were imported as `engine`."""
    version = distribution and "1.0"
    other = {
        "package": "engine",
        "distribution": distribution,
        "version": version,
        "record": record,
        "files": files,
    }
    return listing(other)


def test_what_the_repository_holds_is_not_beside_it() -> None:
    """Its file at the corresponding path needs no word.

    What only the build wrote is named with that.
    """
    built = copy(**ENGINE.files, **{"engine/_version.py": THIRD})
    held = judge(came({"engine/core.py": OURS}), source(built))
    assert (held.unproven, held.beside) == (frozenset(), frozenset())
    made = judge(came({"engine/_version.py": THIRD}), source(built))
    assert made.unproven == frozenset()
    assert made.beside == {f"engine/_version.py (sha256 {THIRD}, made by the build of engine)"}


def test_a_copy_elsewhere_in_the_repository_proves_nothing() -> None:
    """Where the name has a root only the path below it counts: neither does a snapshot prove, nor
    does it spoil.
    """
    old = {"tests/snapshots/v1/engine/core.py": OTHER, "tests/snapshots/v1/engine/gone.py": THIRD}
    known = Counterparts(roots={"engine": [("", "src/")]}, files=REPOSITORY, installed=[ENGINE])
    given = Source(declared=(), files={**REPOSITORY, **old}, counterparts=known)
    assert reasons(given, came({"engine/core.py": OURS})) == ""
    assert "engine/gone.py came from an editable install" in reasons(
        given, came({"engine/core.py": OURS, "engine/gone.py": THIRD})
    )


@pytest.mark.parametrize("installed", [[], [copy(**{"engine.pth": OTHER})]])
def test_of_an_editable_install_the_loaded_files_are_held(installed: list[InstalledCopy]) -> None:
    """It has no module among the packages: what a rank loaded of it is the repository's, file by
    file.
    """
    known = Counterparts(roots={"engine": [("", "src/")]}, files=REPOSITORY, installed=installed)
    given = Source(declared=("engine",), files=REPOSITORY, counterparts=known)
    assert reasons(given, came({"engine/core.py": OURS}, record="absent")) == ""
    assert "engine/core.py came from" in reasons(
        given, came({"engine/core.py": OTHER}, record="absent")
    )


def test_a_finder_among_the_packages_is_no_copy_of_them() -> None:
    """An editable install leaves a module that leads to the code: it is none of the name's own
    files.
    """
    finder = copy(**{"__editable___engine_1_0_finder.py": OTHER})
    assert reasons(source(finder, declared=("engine",)), came({"engine/core.py": OURS})) == ""


def test_what_was_told_file_by_file_is_held_as_a_whole_too() -> None:
    """Where a rank loaded one file of an installed copy the others have to be the commit's as
    well.
    """
    other = copy(**{"engine/__init__.py": OTHER, "engine/core.py": OURS})
    assert "engine/__init__.py differs from src/engine" in reasons(
        source(other), came({"engine/core.py": OURS})
    )


def test_what_the_scenario_names_is_no_copy_of_the_repository() -> None:
    """A package that the scenario names for an arm is the release that it names."""
    other = copy(**{"engine/__init__.py": OURS, "engine/core.py": OTHER})
    assert reasons(source(other, named=("engine",))) == ""
    assert reasons(source(other, named=("engine",)), came({"engine/core.py": OTHER})) == ""
    assert reasons(source(other, named=("motor",))) != ""


@pytest.mark.parametrize(
    ("sha256", "declared", "is_proved"),
    [(OURS, True, True), (OTHER, True, False), (OTHER, False, True)],
)
def test_the_rankproof_that_runs_is_held_where_it_is_the_subject(
    sha256: str, *, declared: bool, is_proved: bool
) -> None:
    """Its own runtime is exempt in any other repository."""
    runtime = InstalledCopy(name="rankproof", version="1.0", files={"harness/core.py": sha256})
    files = {"harness/core.py": OURS}
    known = Counterparts(roots={"harness": [("", "")]}, files=files, installed=[runtime])
    given = Source(declared=("rankproof",) if declared else (), files=files, counterparts=known)
    other = {
        "package": "harness",
        "distribution": "rankproof",
        "version": "1.0",
        "record": "tool",
        "files": {"harness/core.py": sha256},
    }
    assert (reasons(given, listing(other)) == "") is is_proved
    content = json.dumps({"installed": {"harness": "rankproof 1.0"}, "others": []}).encode()
    exempt = Source(declared=(), files=files, counterparts=known)
    assert reasons(exempt, content) == ""
    assert reasons(Source(declared=("rankproof",), files=files, counterparts=known), content) != ""


def test_a_copy_of_what_is_declared_and_unmapped_proves_nothing() -> None:
    """It may lie anywhere in the repository, and nobody knows which of its folders is the code."""
    files = {"old/motor/core.py": OURS}
    known = Counterparts(roots={}, files={}, installed=())
    other = {
        "package": "motor",
        "distribution": "motor",
        "version": "1.0",
        "record": "absent",
        "files": {"motor/core.py": OURS},
    }
    declared = Source(declared=("motor",), files=files, counterparts=known)
    assert "motor/core.py came from an installed copy (motor 1.0)" in reasons(
        declared, listing(other)
    )
    assert reasons(Source(declared=(), files=files, counterparts=known), listing(other)) == ""


@pytest.mark.parametrize(("record", "told"), [("as", 0), ("absent", 1)])
def test_an_editable_install_on_purpose_is_named(record: str, told: int) -> None:
    """Nothing proves its files, so that they stand in the report.

    Those of a wheel its RECORD proves.
    """
    found = judge(
        came({"engine/core.py": OTHER}, record=record),
        Source(declared=(), files={}, installed=True),
    )
    assert (found.unproven, len(found.beside)) == (frozenset(), told)
    assert all("of an editable install" in one for one in found.beside)


def test_of_files_that_are_not_proved_one_is_named_and_the_others_counted() -> None:
    """Each of them is one of those that are not the code."""
    found = reasons(
        NONE, came({"engine/a.py": OTHER, "engine/b.py": OTHER}, record="absent", distribution=None)
    )
    assert found.startswith("engine/a.py and 1 more came from outside")


def test_data_that_nothing_records_is_named_unless_the_repository_has_it() -> None:
    """Written by whoever used the package.

    Where the repository has such a file it is another version of it.
    """
    given = Source(declared=(), files={"src/engine/table.json": OURS})
    table = {"engine/table.json": OTHER}
    found = judge(came(table, record="absent"), Source(declared=(), files={}))
    assert (found.unproven, len(found.beside)) == (frozenset(), 1)
    assert "data next to loaded files" in next(iter(found.beside))
    assert "table.json came from" in reasons(
        Source(declared=("engine",), files={}), came(table, record="absent")
    )
    assert "but the repository has a different file" in reasons(
        given, came(table, record="absent", distribution=None)
    )


@pytest.mark.parametrize(("version", "is_known"), [("1.0", True), ("2.0", False)])
def test_files_of_another_release_are_nobodys(version: str, *, is_known: bool) -> None:
    """A distribution is told by its name and its version."""
    content = json.dumps({"installed": {"engine": f"engine {version}"}, "others": []}).encode()
    assert ("whose files were not reported" in reasons(source(), content)) is not is_known


def test_a_subject_that_is_installed_on_purpose_is_not_held_against_the_repository() -> None:
    """`subject.of` says so, and then a declared name that is told like any package is no reason."""
    given = Source(declared=("engine",), files=REPOSITORY, installed=True)
    assert reasons(given) == ""
    assert reasons(Source(declared=("engine",), files=REPOSITORY)) != ""


@pytest.mark.parametrize(("ours", "others", "is_root"), [(1, 1, True), (1, 2, False), (2, 2, True)])
def test_half_of_the_modules_make_a_root(ours: int, others: int, *, is_root: bool) -> None:
    """Half is enough, less is a folder that is only named alike."""
    mine = {f"engine/m{number}.py": OURS for number in range(ours)}
    theirs = {f"engine/x{number}.py": OURS for number in range(others)}
    known = Counterparts(
        roots={"engine": [("", "src/")]},
        files={f"src/{file}": OURS for file in mine},
        installed=(),
    )
    assert bool(known.places("engine", {**mine, **theirs})) is is_root


def test_only_modules_below_a_name_make_a_root() -> None:
    """Other packages and data of the same distribution are not counted against it."""
    known = Counterparts(
        roots={"engine": [("", "src/")]}, files={"src/engine/a.py": OURS}, installed=()
    )
    others = [
        "other/a.py",
        "other/b.py",
        "engine/a.json",
        "engine/b.so",
        "engine-1.0.dist-info/RECORD",
    ]
    assert known.places("engine", ["engine/a.py", *others]) == [("", "src/")]
    assert known.places("engine", others) == []


def test_a_module_that_the_repository_lacks_is_not_its_own() -> None:
    """A build may leave a compiled file or its version there, and no other module."""
    places = [("", "src/")]
    known = Counterparts(roots={"engine": places}, files={"src/engine/a.py": OURS}, installed=())
    added = {
        "engine/a.py": OURS,
        "engine/more.py": OURS,
        "engine/_version.py": OURS,
        "engine/b.so": OURS,
    }
    assert list(known.differing(added, places, "engine")) == ["engine/more.py is not"]
    assert known.made(added, places, "engine").keys() == {"engine/_version.py", "engine/b.so"}


SHARE = "../../../share/engine"


def data(installed: dict[str, str], files: dict[str, str]) -> tuple[list[str], set[str]]:
    """What is said of installed data, and which of it nothing is like; paths below its folder."""
    found = copy(**{f"{SHARE}/{file}": sha256 for file, sha256 in installed.items()})
    known = Counterparts(roots={}, files=files, installed=[found])
    said = [one.removeprefix(f"{SHARE}/") for one in known.data(found)]
    return said, {file.removeprefix(f"{SHARE}/") for file in known.data_made(found)}


def test_a_folder_of_data_is_a_copy_of_the_one_that_holds_more_than_half() -> None:
    """A folder with half of the names is another one.

    What neither holds is looked for by its own name.
    """
    both = {"a.json": OURS, "b.json": OURS}
    files = {"tables/a.json": OURS, "tables/b.json": OURS, "old/a.json": OTHER}
    assert data(both, files) == ([], set())
    assert data({**both, "a.json": OTHER}, files) == (["a.json differs from tables/a.json"], set())
    more = {**both, "c.json": OURS}
    assert data(more, {**files, "far/c.json": OTHER}) == (["c.json differs from far/c.json"], set())
    assert data(more, files) == ([], {"c.json"})


def test_a_name_in_another_folder_below_is_another_file() -> None:
    """Below the folder of the data the rest of the path has to be the same."""
    two = {"a.json": OURS, "sub/b.json": OURS}
    files = {"tables/a.json": OURS, "tables/sub/b.json": OURS, "tables/other/b.json": OTHER}
    assert data(two, files) == ([], set())


def test_of_several_counterparts_each_is_asked() -> None:
    """Where a file may be a copy of two, and is as one of them alone, that is said."""
    files = {"x/t.json": OURS, "y/t.json": OTHER}
    assert data({"t.json": OURS}, files) == (
        ["t.json differs from y/t.json, one of 2 files that it may be a copy of"],
        set(),
    )
    assert data({"t.json": OURS}, {"x/t.json": OTHER}) == (["t.json differs from x/t.json"], set())


def test_a_file_equals_its_counterpart_at_every_root() -> None:
    """One root has it as it is, another one has something else: it is not the repository's."""
    places = [("", "src/"), ("", "lib/")]
    known = Counterparts(
        roots={"engine": places},
        files={"src/engine/core.py": OURS, "lib/engine/core.py": OTHER},
        installed=(),
    )
    (odd,) = known.differing({"engine/core.py": OURS}, places, "engine")
    assert odd == "engine/core.py differs from lib/engine/core.py"
    built = {"engine/core.so": OURS}
    assert known.made(built, places, "engine") == built
    held = Counterparts(roots={"engine": places}, files={"src/engine/core.so": OURS}, installed=())
    assert held.made(built, places, "engine") == {}


@pytest.mark.parametrize(
    ("file", "is_its"),
    [
        ("engine/core.py", True),
        ("engine.py", True),
        ("engine.cpython-311.so", True),
        ("engine.pth", False),
        ("engines/core.py", False),
        ("other.py", False),
        ("other/engine.py", False),
        ("other/engine/core.py", False),
    ],
)
def test_what_a_name_imports(file: str, *, is_its: bool) -> None:
    """The module of the name, or whatever is below its package: nothing that only ends or begins
    alike.
    """
    assert is_below(file, "engine") is is_its


def test_commands_are_no_data() -> None:
    """What an install writes into `bin` names its interpreter, and is like no file of the
    repository.
    """
    places = {
        "../../../bin/engine": False,
        "../../../share/engine/table.json": True,
        "engine/table.json": False,
    }
    assert {file: is_data(file) for file in places} == places
    assert not is_data("../../../share/engine/__pycache__/a.pyc")


def test_a_place_may_have_another_name_in_the_repository() -> None:
    """`package_dir` maps the beginning of a path, and the rest stays."""
    place = ("engine/", "python/impl/")
    known = Counterparts(
        roots={"engine": [place]}, files={"python/impl/core.py": OURS}, installed=()
    )
    assert known.places("engine", ["engine/core.py"]) == [place]
    assert list(known.differing({"engine/core.py": OTHER}, [place], "engine")) == [
        "engine/core.py differs from python/impl/core.py"
    ]


def test_the_longest_ending_tells_which_data_it_is() -> None:
    """Of files with one name those count that share most of the path, and none that shares less."""
    paths = [
        "x/table.json",
        "share/engine/table.json",
        "old/engine/table.json",
        "share/engine/other.json",
    ]
    wanted = "../../share/engine/table.json"
    assert longest_alike(wanted, paths) == ["share/engine/table.json"]
    assert longest_alike("../../engine/table.json", paths) == [
        "old/engine/table.json",
        "share/engine/table.json",
    ]
    assert longest_alike("../../none.json", paths) == []


def test_a_folder_without_init_can_be_hidden() -> None:
    """A package and a module of its own name cannot; a folder without modules holds no code."""
    files = ["bare/a.py", "whole/__init__.py", "whole/a.py", "data/a.json", "x-y/a.py", "a.py"]
    assert spread(files) == {"bare"}


def test_each_folder_below_is_looked_for_by_itself() -> None:
    """Where no folder holds more than half of all the data each part of it may come from
    elsewhere.
    """
    files = {
        "one/a.json": OURS,
        "one/b.json": OURS,
        "two/c.json": OURS,
        "two/d.json": OURS,
        "old/c.json": OTHER,
    }
    four = {"x/a.json": OURS, "x/b.json": OURS, "y/c.json": OURS, "y/d.json": OURS}
    assert data(four, files) == ([], set())
    assert data({**four, "y/c.json": OTHER}, files) == (["y/c.json differs from two/c.json"], set())
    assert data({"a.json": OURS, "y/q.json": OURS, "y/z/r.json": OURS}, files) == (
        [],
        {"y/q.json", "y/z/r.json"},
    )


@pytest.mark.parametrize(("record", "is_proved"), [("as", True), ("differs", False)])
def test_a_compiled_file_is_as_its_build_wrote_it(record: str, *, is_proved: bool) -> None:
    """The repository has none; the RECORD says what the build wrote, and one that differs from it
    nobody wrote.
    """
    built = InstalledCopy(
        name="motor", version="1.0", files={**ENGINE.files, "engine/_core.so": THIRD}
    )
    other = {
        "package": "engine",
        "distribution": "motor",
        "version": "1.0",
        "record": record,
        "files": {"engine/_core.so": THIRD},
    }
    found = judge(listing(other), source(built))
    assert (found.unproven == frozenset()) is is_proved
    assert found.beside == (
        {f"engine/_core.so (sha256 {THIRD}, made by the build of motor)"}
        if is_proved
        else frozenset()
    )


def test_what_no_distribution_brought_was_made_by_its_own_build() -> None:
    """In a package that the repository holds, the package is named."""
    found = judge(
        came(
            {"engine/core.py": OURS, "engine/_core.so": THIRD}, record="absent", distribution=None
        ),
        source(),
    )
    assert found.beside == {f"engine/_core.so (sha256 {THIRD}, made by the build of engine)"}


COMMIT = "c" * 40
CHECKOUT = BuiltCheckout(commit=COMMIT, files={"src/motor/core.py": OURS}, wheel={OURS, THIRD})
BUILT: dict[str, tuple[str, str, str, str]] = {
    "as the commit has it": ("motor/core.py", OURS, "", ""),
    "no content": ("motor/empty.py", digest_of(b""), "", ""),
    "in no file of the commit": (
        "motor/made.py",
        THIRD,
        "",
        "made by the build of motor, in no file of commit cccccccc",
    ),
    "not in the wheel": (
        "motor/core.py",
        OTHER,
        "is not in the wheel that was built from motor 1.0",
        "",
    ),
    "new, and not in the wheel": (
        "motor/new.py",
        OTHER,
        "is not in the wheel that was built from motor 1.0",
        "",
    ),
    "changed by the build": ("motor/core.py", THIRD, "differs from commit cccccccccccc", ""),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_package_from_a_checkout_is_as_its_wheel_and_its_commit(name: str) -> None:
    """Every file is of the wheel, and the commit's if that has such a one.

    What the build alone wrote is named.
    """
    file, sha256, words, beside = BUILT[name]
    other = {
        "package": "motor",
        "distribution": "motor",
        "version": "1.0",
        "record": "as",
        "files": {file: sha256},
    }
    found = judge(
        listing(other),
        Source(declared=(), files={}, named=("motor",), checkouts={"motor": CHECKOUT}),
    )
    assert [words in one for one in found.unproven] == ([True] if words else [])
    assert [beside in one for one in found.beside] == ([True] if beside else [])


def test_of_a_package_from_a_checkout_the_files_are_told() -> None:
    """To be told like any package is not enough."""
    given = Source(declared=(), files={}, named=("motor",), checkouts={"motor": CHECKOUT})
    content = json.dumps({"installed": {"motor": "motor 1.0"}, "others": []}).encode()
    assert "motor was built from a checkout (motor 1.0)" in reasons(given, content)
