"""locks/wheels.json, the .txt locks and pyproject.toml say the same for every system and
variant.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

LOCKS = Path(__file__).resolve().parent.parent / "locks"
SYSTEMS = {
    "x86_64-linux": ("linux", "x86_64", {"cpu", "cuda"}),
    "aarch64-linux": ("linux", "aarch64", {"cpu", "cuda"}),
    "aarch64-darwin": ("darwin", "arm64", {"metal"}),
}
TXT = ("cpu", "cuda", "metal", "dev")
# What nix/wheelhouse.nix takes apart: name, version, python, abi, platform; no build number.
SHAPE = re.compile(r"[^-/]+-[^-/]+-[^-/]+-[^-/]+-[^-/]+\.whl")
ADDRESS = re.compile(r"//|@|\b[\w-]+\.(?:org|com|io|net|dev)\b")

Table = dict[str, Any]
Texts = dict[str, str]


def texts() -> Texts:
    return {name: (LOCKS / f"{name}.txt").read_text() for name in TXT}


def table() -> Table:
    found: Table = json.loads((LOCKS / "wheels.json").read_text())
    return found


def pinned(text: str, *, system: str, python: str) -> dict[str, tuple[str, set[str]]]:
    """Version and accepted sha256 of every package that a lock asks for on a system."""
    platform, machine, _ = SYSTEMS[system]
    where = {
        "sys_platform": platform,
        "platform_machine": machine,
        "platform_system": platform.capitalize(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
    }
    found = {}
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if line.startswith("#"):
            continue
        asked = Requirement(line.partition(" --hash")[0])
        if asked.marker is None or asked.marker.evaluate(where):
            version = next(iter(asked.specifier)).version
            found[canonicalize_name(asked.name)] = (
                version,
                set(re.findall(r"sha256:([0-9a-f]{64})", line)),
            )
    return found


def fits(file: str, *, system: str, python: str) -> bool:
    """Whether a wheel is for this system and Python, from its name."""
    platform, machine, _ = SYSTEMS[system]
    minor = int(python.partition(".")[2])
    for tag in parse_wheel_filename(file)[3]:
        number = re.fullmatch(r"(?:cp|py)3(\d*)", tag.interpreter)
        exact = tag.interpreter == f"cp3{minor}" and tag.abi == f"cp3{minor}"
        stable = number is not None and tag.abi in {"abi3", "none"} and int(number[1] or 0) <= minor
        family, machines = (
            ("macosx", (machine, "universal2"))
            if platform == "darwin"
            else ("manylinux", (machine,))
        )
        here = tag.platform == "any" or (
            tag.platform.startswith(family) and tag.platform.endswith(machines)
        )
        if (exact or stable) and here:
            return True
    return False


def problems_of(found: Table, locks: Texts) -> list[str]:
    """All that is wrong with a table of wheels beside these locks."""
    python = found["python"]
    problems = [
        f"locks/wheels.json was made from another {name}.txt"
        for name in TXT
        if found["locks"].get(name) != hashlib.sha256(locks[name].encode()).hexdigest()
    ]
    if set(found["systems"]) != set(SYSTEMS):
        return [*problems, "systems differ"]
    known = {
        wheel["file"]: wheel
        for wheel in tomllib.loads((LOCKS / "torch-cpu.toml").read_text())["wheel"]
    }
    for system, (_, machine, variants) in SYSTEMS.items():
        if set(found["systems"][system]) != variants:
            problems.append(f"{system}: variants differ")
            continue
        for variant, files in found["systems"][system].items():
            place = f"{system} {variant}"
            asked = pinned(locks["dev"], system=system, python=python)
            asked |= pinned(locks[variant], system=system, python=python)
            given = {}
            for file, digest in files.items():
                if not SHAPE.fullmatch(file) or ADDRESS.search(file):
                    problems.append(f"{place}: not a wheel's name: {file}")
                    continue
                name, version, _, _ = parse_wheel_filename(file)
                given[str(name)] = str(version)
                accepted = asked.get(canonicalize_name(name), ("", set()))[1]
                if digest not in accepted:
                    problems.append(f"{place}: {file}: the lock does not accept its sha256")
                if not fits(file, system=system, python=python):
                    problems.append(f"{place}: {file} is for another system or Python")
                if "+" in file and (
                    known.get(file, {}).get("sha256"),
                    known.get(file, {}).get("machine"),
                ) != (
                    digest,
                    machine,
                ):
                    problems.append(f"{place}: {file} is not in torch-cpu.toml")
            problems += [f"{place}: no wheel of {name}" for name in sorted(set(asked) - set(given))]
            problems += [
                f"{place}: nothing asks for {name}" for name in sorted(set(given) - set(asked))
            ]
            problems += [
                f"{place}: {name} is {given[name]}, the lock has {version}"
                for name, (version, _) in asked.items()
                if name in given and given[name] != version
            ]
    return problems


def test_the_table_is_that_of_the_locks() -> None:
    """Each variant of each system has exactly one fitting wheel of every package its lock and the
    tools ask for.
    """
    assert problems_of(table(), texts()) == []


def test_every_direct_dependency_has_a_wheel() -> None:
    """What pyproject.toml declares, tools included, is among the wheels of every variant of every
    system.
    """
    declared = tomllib.loads((LOCKS.parent / "pyproject.toml").read_text())
    for system, (platform, _, _) in SYSTEMS.items():
        wanted = {
            canonicalize_name(item.name)
            for item in map(
                Requirement,
                declared["project"]["dependencies"] + declared["dependency-groups"]["dev"],
            )
            if item.marker is None or item.marker.evaluate({"sys_platform": platform})
        }
        for variant, files in table()["systems"][system].items():
            assert wanted <= {canonicalize_name(parse_wheel_filename(file)[0]) for file in files}, (
                system,
                variant,
            )


def test_a_cpu_machine_gets_nothing_of_cuda() -> None:
    """No wheel of the cpu and metal variants is NVIDIA's."""
    for variants in table()["systems"].values():
        for variant, files in variants.items():
            of_cuda = [file for file in files if re.match(r"nvidia|cuda|triton|mlx_cuda", file)]
            assert bool(of_cuda) == (variant == "cuda")


def change(
    system: str, variant: str, what: Callable[[dict[str, str]], object]
) -> Callable[[Table], object]:
    return lambda found: what(found["systems"][system][variant])


def rename(start: str, before: str, after: str) -> Callable[[dict[str, str]], object]:
    """A fault: the wheel that begins so has another name."""

    def apply(files: dict[str, str]) -> None:
        file = next(name for name in files if name.startswith(start))
        files[file.replace(before, after)] = files.pop(file)

    return apply


def drop(start: str) -> Callable[[dict[str, str]], object]:
    return lambda files: files.pop(next(name for name in files if name.startswith(start)))


def spoil(start: str) -> Callable[[dict[str, str]], object]:
    return lambda files: files.update(
        {next(name for name in files if name.startswith(start)): "0" * 64}
    )


PYTHON_TAG = "cp" + table()["python"].replace(".", "")
X86, ARM, MAC = "x86_64-linux", "aarch64-linux", "aarch64-darwin"
FAULTS: dict[str, tuple[Callable[[Table], object], str]] = {
    "wheel-missing": (change(X86, "cpu", drop("numpy-")), f"{X86} cpu: no wheel of numpy"),
    "tool-missing": (change(MAC, "metal", drop("pytest-")), f"{MAC} metal: no wheel of pytest"),
    "version-differs": (
        change(ARM, "cuda", rename("rich-", "rich-", "rich-1")),
        "rich is 115.0.0, the lock has 15.0.0",
    ),
    "other-bytes": (change(ARM, "cpu", spoil("mlx-")), "the lock does not accept its sha256"),
    "other-python": (
        change(X86, "cuda", rename("numpy-", PYTHON_TAG, "cp310")),
        "another system or Python",
    ),
    "other-machine": (
        change(X86, "cpu", rename("numpy-", "x86_64", "aarch64")),
        "another system or Python",
    ),
    "too-much": (
        change(X86, "cpu", lambda files: files.update({"extra-1-py3-none-any.whl": "0" * 64})),
        "nothing asks",
    ),
    "build-number": (change(X86, "cpu", rename("rich-", "-py3", "-1-py3")), "not a wheel's name"),
    "address": (change(X86, "cpu", rename("rich-", "rich", "//rich")), "not a wheel's name"),
    "torch-of-nobody": (
        change(X86, "cpu", rename("torch-", "manylinux_2_28", "manylinux_2_27")),
        "torch-cpu.toml",
    ),
    "variant-missing": (lambda found: found["systems"][ARM].pop("cuda"), "variants differ"),
    "system-missing": (lambda found: found["systems"].pop(MAC), "systems differ"),
    "of-another-lock": (
        lambda found: found["locks"].update(cuda="0" * 64),
        "made from another cuda.txt",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    """Each fault put into the table is named, so the rules above could have failed."""
    inject, expected = FAULTS[fault]
    found = copy.deepcopy(table())
    inject(found)
    assert any(expected in problem for problem in problems_of(found, texts())), problems_of(
        found, texts()
    )


def test_a_lock_that_moved_on_is_found() -> None:
    """A version that differs between a lock and the table is named twice: by digest and by
    version.
    """
    moved = texts()
    moved["cpu"] = re.sub(r"^rich==\S+", "rich==14.0.0", moved["cpu"], flags=re.MULTILINE)
    found = problems_of(table(), moved)
    assert "locks/wheels.json was made from another cpu.txt" in found
    assert any("rich is 15.0.0, the lock has 14.0.0" in problem for problem in found)
