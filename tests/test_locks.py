"""The locks: complete, hashed, free of addresses, and in step with pyproject.toml and
torch-cpu.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = Path(__file__).resolve().parent.parent
LOCKS = PROJECT / "locks"
PLATFORM = {"cpu": ("linux", "x86_64"), "cuda": ("linux", "x86_64"), "metal": ("darwin", "arm64")}
CORE = "core"
GROUP = {"dev": "dev", "lock": "lock", "interop": "interop", "farm": "farm"}
MLX = {"cpu": "mlx-cpu", "cuda": "mlx-cuda-13", "metal": "mlx-metal"}
OPTION = re.compile(r"^\s*-{1,2}(?!hash=)\w", re.MULTILINE)
ADDRESS = re.compile(r"://| @ |file:|\b[\w-]+\.(?:org|com|io|net|dev)\b", re.IGNORECASE)
LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))?(?P<hashes>(?:"
    r" --hash=\S+)*)"
)
SHA256 = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pyproject() -> dict[str, Any]:
    """What the project declares."""
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


def torch_cpu() -> dict[str, Any]:
    """The CPU wheels we know."""
    return tomllib.loads((LOCKS / "torch-cpu.toml").read_text())


def locks() -> dict[str, str]:
    """Every lock's text by its name."""
    return {path.stem: path.read_text() for path in sorted(LOCKS.glob("*.txt"))}


def requirements(text: str) -> list[str]:
    """One string per requirement, continuation lines joined, comments left out."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    return [
        line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")
    ]


def versions(text: str) -> dict[str, Version]:
    """The version of every package in a lock."""
    found = (LINE.fullmatch(line) for line in requirements(text))
    return {canonicalize_name(match["name"]): Version(match["version"]) for match in found if match}


def form(text: str) -> list[str]:
    """Every line is name==version with at least one sha256, and nothing says where files come
    from.
    """
    problems = []
    for line in requirements(text):
        match = LINE.fullmatch(line)
        if match is None:
            problems.append(f"not a pinned requirement: {line}")
        elif not match["hashes"]:
            problems.append(f"no hash: {line}")
        elif not all(SHA256.fullmatch(digest) for digest in match["hashes"].split()):
            problems.append(f"not a sha256: {line}")
    problems += [f"option: {found.group()}" for found in OPTION.finditer(text)]
    problems += [f"address: {found.group()}" for found in ADDRESS.finditer(text)]
    names = [line.partition("==")[0] for line in requirements(text)]
    return problems + [
        f"twice: {name}" for name in sorted({name for name in names if names.count(name) > 1})
    ]


def direct(name: str, text: str) -> list[str]:
    """Every direct dependency is there, unconditionally, at a version that satisfies its
    specifier.
    """
    project = pyproject()["project"]
    if name in PLATFORM:
        extras = project["optional-dependencies"]
        wanted = [
            *project["dependencies"],
            *(line for extra, lines in extras.items() if extra != "all" for line in lines),
        ]
        system, machine = PLATFORM[name]
        here = {"sys_platform": system, "platform_machine": machine}
    elif name == CORE:
        wanted, here = project["dependencies"], {}
    else:
        wanted, here = pyproject()["dependency-groups"][GROUP[name]], {}
    pinned = versions(text)
    conditional = {line.partition("==")[0] for line in requirements(text) if " ; " in line}
    problems = []
    for item in map(Requirement, wanted):
        if item.marker and not Marker(str(item.marker)).evaluate(here):
            continue
        key = canonicalize_name(item.name)
        if key not in pinned:
            problems.append(f"missing: {item}")
        elif not item.specifier.contains(pinned[key], prereleases=True):
            problems.append(f"{key} {pinned[key]} does not satisfy {item}")
        elif key in conditional:
            problems.append(f"conditional: {key}")
    return problems


def torch(name: str, text: str) -> list[str]:
    """torch is 2.13.0; on a CPU machine it is the CPU wheel by its known hashes, and nothing of
    CUDA comes along.
    """
    problems = []
    pinned = versions(text)
    if name in PLATFORM and pinned.get("torch", Version("0")).public != "2.13.0":
        problems.append(f"torch is {pinned.get('torch')}")
    if name in PLATFORM and MLX[name] not in pinned:
        problems.append(f"missing: {MLX[name]}")
    if name == "cuda":
        return problems
    problems += [f"CUDA: {key}" for key in pinned if re.match(r"nvidia|cuda|triton|mlx-cuda", key)]
    if name == "cpu":
        known = torch_cpu()
        hashes = {
            digest.removeprefix("--hash=sha256:")
            for line in requirements(text)
            if line.startswith("torch==")
            for digest in line.split()[1:]
        }
        if str(pinned.get("torch")) != known["version"]:
            problems.append(
                f"torch is {pinned.get('torch')}, torch-cpu.toml has {known['version']}"
            )
        if hashes != {wheel["sha256"] for wheel in known["wheel"]}:
            problems.append("torch's hashes are not those of torch-cpu.toml")
    return problems


def problems_of(name: str, text: str) -> list[str]:
    """All that is wrong with one lock."""
    return form(text) + direct(name, text) + torch(name, text)


def test_every_variant_has_a_lock() -> None:
    """A lock exists for the core, each variant, the development tools and the tool that writes
    locks.
    """
    assert set(locks()) == {CORE, *PLATFORM, *GROUP}


@pytest.mark.parametrize("name", [CORE, *PLATFORM, *GROUP])
def test_lock_is_sound(name: str) -> None:
    """A lock pins every direct dependency with sha256 hashes and names no place that files come
    from.
    """
    assert problems_of(name, locks()[name]) == []


def disagreements(texts: list[str]) -> dict[str, set[str]]:
    """Packages that have different versions in different locks.

    Torch's CPU build counts as the same version.
    """
    seen: dict[str, set[str]] = {}
    for text in texts:
        for package, version in versions(text).items():
            seen.setdefault(package, set()).add(version.public)
    return {package: found for package, found in seen.items() if len(found) > 1}


def test_locks_agree() -> None:
    """A package has the same version in every lock that has it, so all environments print the same
    table.
    """
    assert disagreements(list(locks().values())) == {}


def test_cpu_wheels_are_described_completely() -> None:
    """torch-cpu.toml names, for Python 3.11 and 3.13, wheel files that fit their own Python,
    machine and version.
    """
    known = torch_cpu()
    assert {"3.11", "3.13"} <= {
        wheel["python"] for wheel in known["wheel"] if wheel["machine"] == "x86_64"
    }
    for wheel in known["wheel"]:
        tag = "cp" + wheel["python"].replace(".", "")
        assert wheel["file"].startswith(f"torch-{known['version']}-{tag}-{tag}-")
        assert wheel["file"].endswith(f"_{wheel['machine']}.whl")
        assert re.fullmatch("[0-9a-f]{64}", wheel["sha256"])
        assert wheel["basis"]


def drop(pattern: str) -> Callable[[str], str]:
    """A fault: the requirement that begins with this is gone."""
    return lambda text: re.sub(
        rf"^{pattern}==(?:.*\\\n)*.*\n", "", text, count=1, flags=re.MULTILINE
    )


def put(pattern: str, instead: str) -> Callable[[str], str]:
    """A fault: the first match is replaced."""
    return lambda text: re.sub(pattern, instead, text, count=1, flags=re.MULTILINE)


def add(line: str) -> Callable[[str], str]:
    """A fault: a line more."""
    return lambda text: text + line + "\n"


HASH = "--hash=sha256:" + "a" * 64
FAULTS = {
    "dependency-missing": ("cpu", drop("transformers"), "missing: transformers"),
    "dependency-missing-on-mac": ("metal", drop("mlx"), "missing: mlx"),
    "tool-missing": ("dev", drop("hypothesis"), "missing: hypothesis"),
    "mlx-engine-missing": ("cuda", drop("mlx-cuda-13"), "missing: mlx-cuda-13"),
    "dependency-too-old": (
        "cpu",
        put(r"^pydantic==\S+", "pydantic==1.10.2"),
        "does not satisfy pydantic",
    ),
    "dependency-conditional": (
        "cpu",
        put(r"^(psutil==\S+)", r"\1 ; python_version < '3.12'"),
        "conditional: psutil",
    ),
    "no-hash": ("metal", add("idna2==1.0"), "no hash: idna2"),
    "hashes-cut-off": ("cpu", put(r"^(rich==\S+)(?: \\\n +--hash=\S+)+", r"\1"), "no hash: rich"),
    "weak-hash": ("cpu", put("--hash=sha256:[0-9a-f]+", "--hash=md5:" + "0" * 32), "not a sha256"),
    "cut-hash": ("cpu", put("(--hash=sha256:[0-9a-f]{10})[0-9a-f]+", r"\1"), "not a sha256"),
    "unpinned": ("cpu", put("^rich==", "rich>="), "not a pinned requirement: rich"),
    "twice": ("cpu", add(f"rich==1.0 {HASH}"), "twice: rich"),
    "index-option": ("cpu", add("--index-url wherever"), "option: --i"),
    "short-index-option": ("cuda", add("-i wherever"), "option: -i"),
    "find-links-option": ("dev", add("--find-links /wheels"), "option: --f"),
    "address": ("metal", add("# from https://wheels.invalid/simple"), "address: ://"),
    "host-in-comment": ("dev", add("# index: wheels.example.org"), "address: "),
    "direct-reference": ("cpu", add(f"x @ file:///x.whl {HASH}"), "address: "),
    "nvidia-on-cpu": ("cpu", add(f"nvidia-cublas==13.1 {HASH}"), "CUDA: nvidia-cublas"),
    "triton-on-cpu": ("cpu", add(f"triton==3.7.1 {HASH}"), "CUDA: triton"),
    "cuda-on-mac": ("metal", add(f"cuda-bindings==13.5 {HASH}"), "CUDA: cuda-bindings"),
    "cuda-in-tools": ("dev", add(f"nvidia-nccl-cu13==2.29 {HASH}"), "CUDA: nvidia-nccl-cu13"),
    "registry-torch-on-cpu": (
        "cpu",
        put(r"^torch==2\.13\.0\+cpu", "torch==2.13.0"),
        "torch-cpu.toml has 2.13.0+cpu",
    ),
    "torch-moved": ("cuda", put(r"^torch==2\.13\.0", "torch==2.13.1"), "torch is 2.13.1"),
    "torch-missing": ("metal", drop("torch"), "torch is None"),
    "torch-hash-too-many": (
        "cpu",
        put(r"^(torch==\S+)", rf"\1 {HASH}"),
        "not those of torch-cpu.toml",
    ),
    "torch-hash-changed": (
        "cpu",
        put(r"^(torch==\S+ \\\n.*sha256:)....", r"\1abcd"),
        "not those of torch-cpu.toml",
    ),
    "torch-hash-gone": (
        "cpu",
        put(r"^(torch==\S+ \\\n).*\n", r"\1"),
        "not those of torch-cpu.toml",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    """Each fault put into a lock is named, so the rules above could have failed."""
    name, injected, expected = FAULTS[fault]
    sound = locks()[name]
    faulty = injected(sound)
    assert faulty != sound
    found = problems_of(name, faulty)
    assert any(expected in problem for problem in found), found


def test_locks_that_disagree_are_found() -> None:
    """A version moved in one lock alone is named."""
    texts = locks() | {
        "dev": re.sub(r"^packaging==\S+", "packaging==1.0", locks()["dev"], flags=re.MULTILINE)
    }
    assert set(disagreements(list(texts.values()))) == {"packaging"}
