"""A real build of the flake, with this machine's Python and programs in the place of nixpkgs: `nox
-s nix -- --build`.

Every wheel of the cpu lock is downloaded, held to its hash by Nix, installed by the flake's own
derivation into the store, entered with `nix develop`, and runs ranks there. Then its package table
is compared with that of plain nox.

What it does not show: nixpkgs' Python, C library and patched library paths. Run in the environment
that nox made.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.nix.check import need
from tests.nix.store import PROJECT, CheckFailed, NoNix, Store, scratch_store
from tests.nix.wheels import host_for

SCENARIO = PROJECT / "tests" / "nix" / "scenario"
VARIANT = "cpu"
BUILD_WITHIN = 1800.0
# Not from a wheel of the locks: what nox puts beside them into its own environment.
ONLY_PLAIN = {"pip", "rankproof"}
TABLE = (
    "import json; from harness.record.environment import packages; "
    "print(json.dumps([[p.name, p.version, p.record] for p in packages()]))"
)
HASH_REMEDY = (
    "A wheel is not what locks/wheels.json says. If its release was changed on the index, `nox -s"
    " lock` shows how; otherwise the file was damaged on its way: run `python -m pip cache purge`"
    " and try again."
)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is done and how long it took."""
    began = time.monotonic()
    yield
    print(f"  {what} ({time.monotonic() - began:.1f} s)", flush=True)


def run(command: list[str], *, what: str, remedy: str = "") -> str:
    """Run a command that must succeed.

    Raises:
        CheckFailed: it did not.
    """
    done = subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise CheckFailed(
            "\n".join(
                filter(None, [f"{what}:", (done.stdout + done.stderr).strip()[-3000:], remedy])
            )
        )
    return done.stdout


def download(store: Store) -> Path:
    """Every wheel of the locks, from where pip is configured to look, each held to the lock's
    hashes by pip already.
    """
    folder = store.folder / "wheels"
    folder.mkdir()
    # torch's CPU wheel has a place of its own to come from, as in the noxfile.
    torch = tomllib.loads((PROJECT / "locks" / "torch-cpu.toml").read_text())
    others, wheel = store.folder / "others.txt", store.folder / "torch.txt"
    text = (PROJECT / "locks" / f"{VARIANT}.txt").read_text()
    blocks = text.replace("\\\n", " ").splitlines()
    others.write_text("".join(f"{line}\n" for line in blocks if not line.startswith("torch==")))
    wheel.write_text("".join(f"{line}\n" for line in blocks if line.startswith("torch==")))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
    ]
    pip += ["--dest", str(folder), "--progress-bar", "off", "--disable-pip-version-check"]
    tools = str(PROJECT / "locks" / "dev.txt")
    run(
        [*pip, "-r", str(others), "-r", tools],
        what="the wheels could not be downloaded",
        remedy=HASH_REMEDY,
    )
    alone = [*pip, "--no-index", "-r", str(wheel)]
    if subprocess.run(
        alone, cwd=PROJECT, capture_output=True, stdin=subprocess.DEVNULL, check=False
    ).returncode:
        page = f"{torch['index'].rstrip('/')}/torch/"
        run(
            [*alone, "--retries", "0", "--timeout", "5", "--find-links", page],
            what="torch's wheel could not be downloaded",
            remedy="Put it into a folder and set PIP_FIND_LINKS to that folder: locks/README.md.",
        )
    return folder


def prepare(store: Store, *, lock_python: Path) -> None:
    """Give the flake the table of wheels for this Python, where it is not the one that Nix takes,
    and fetch them.
    """
    table = store.flake / "locks" / "wheels.json"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if json.loads(table.read_text())["python"] != version:
        command = [
            str(lock_python),
            str(PROJECT / "locks" / "lock.py"),
            "--python",
            version,
            "--wheels",
            str(table),
        ]
        run(command, what=f"no table of wheels for Python {version}")
    with step(f"downloaded the wheels for Python {version}"):
        folder = download(store)
    system = next(
        name
        for name in json.loads(table.read_text())["systems"]
        if name == f"{os.uname().machine}-linux"
    )
    wanted = set(json.loads(table.read_text())["systems"][system][VARIANT])
    found = {path.name for path in folder.iterdir()}
    if wanted != found:
        different = ", ".join(sorted(wanted ^ found))
        raise CheckFailed(
            f"pip and locks/wheels.json choose different wheels on this machine: {different}"
        )
    store.build_with(host_for(folder))


def build(store: Store) -> Path:
    """Build the environment; its store path."""
    with step(f"built the {VARIANT} environment in the store"):
        arguments = (
            "nix",
            "build",
            "--out-link",
            str(store.folder / "environment"),
            "--print-build-logs",
        )
        done = store.nix(
            *arguments, *store.with_stand_in(), store.reference(VARIANT), within=BUILD_WITHIN
        )
        remedy = f"\n{HASH_REMEDY}" if "hash mismatch" in done.err else ""
        need(done, f"`nix build .#{VARIANT}` fails:{remedy}")
    return (store.folder / "environment").resolve()


def validate(store: Store, environment: Path) -> None:
    """Run ranks inside `nix develop`, and hold their report to saying where they ran.

    Raises:
        CheckFailed: no PASS, or the report does not name the environment.
    """
    command = ("nix", "develop", *store.with_stand_in(), store.reference(), "-c")
    session = ("nox", "-s", "validate", "--", str(SCENARIO))
    with step("ran ranks on gloo and MLX's ring inside `nix develop`"):
        done = store.nix(*command, *session, cwd=store.flake, within=BUILD_WITHIN)
        if done.code:
            said = (done.out + done.err)[-4000:]
            raise CheckFailed(f"`nix develop -c nox -s validate` fails:\n{said}")
    folder = (store.flake / "results" / "inside-nix" / "latest").resolve()
    record = json.loads((folder / "results.json").read_text())
    # As it reads: the name of a temporary folder may have an underscore, which Markdown escapes.
    report = (folder / "report.md").read_text().replace("\\_", "_")
    nix = record["run"]["environment"]["nix"]
    wrong = []
    if record["judgement"]["verdict"] != "PASS":
        wrong.append(f"the verdict is {record['judgement']['verdict']}")
    if not nix or nix["environment"] != str(environment):
        wrong.append(f"the record's environment is {nix and nix['environment']}, not {environment}")
    stated = (
        f"Nix shell, store path {environment}",
        "The run did not use the nixpkgs in flake.lock",
    )
    wrong += [f"the report does not say: {words}" for words in stated if words not in report]
    if not nix or not nix["shell"] or not nix["shell"].endswith("-rankproof-cpu.drv"):
        wrong.append("the record does not name the shell's derivation")
    if wrong:
        raise CheckFailed("the run inside `nix develop`: " + "; ".join(wrong))
    advised = re.search(r"verify: (rankproof verify \S+ --signer SHA256:\S+)", done.out)
    if advised is None:
        raise CheckFailed(
            f"the run does not say how to verify its report inside the shell:\n{done.out[-1000:]}"
        )
    again = store.nix(*command, *advised[1].split(), cwd=store.flake)
    need(again, f"`{advised[1]}` inside the shell refuses the run's report:")
    print(
        "\n".join(
            f"      {line}" for line in report.splitlines() if "Nix" in line or "nixpkgs" in line
        ),
        flush=True,
    )


def table(python: Path) -> dict[str, tuple[str, str | None]]:
    """Name to version and digest of every package of an environment."""
    command = [str(python), "-c", TABLE]
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": str(PROJECT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, cwd=PROJECT
    )
    if done.returncode:
        raise CheckFailed(f"{python} cannot list its packages:\n{done.stderr[-2000:]}")
    return {name.lower(): (version, record) for name, version, record in json.loads(done.stdout)}


def compare(environment: Path) -> None:
    """Both tables are the same: name, version and digest of every wheel.

    Raises:
        CheckFailed: with every difference.
    """
    plain = {
        name: row for name, row in table(Path(sys.executable)).items() if name not in ONLY_PLAIN
    }
    inside = table(environment / "bin" / "python")
    different = [
        f"{name}: plain {plain.get(name)}, Nix {inside.get(name)}"
        for name in sorted(plain | inside)
        if plain.get(name) != inside.get(name) or plain[name][1] is None
    ]
    if different:
        raise CheckFailed(
            "plain nox and Nix do not have the same packages:\n" + "\n".join(different)
        )
    print(
        f"  the same {len(inside)} packages as plain nox, to the digest of every wheel's files",
        flush=True,
    )


def check_in_the_store(store: Store) -> None:
    """`nix flake check`'s own run of ranks, in a builder."""
    with step(f"checks.{VARIANT} ran ranks in a builder"):
        name = f"checks.{os.uname().machine}-linux.{VARIANT}"
        arguments = (
            "nix",
            "build",
            "--no-link",
            "--print-build-logs",
            *store.with_stand_in(),
            store.reference(name),
        )
        need(store.nix(*arguments, within=BUILD_WITHIN), f"`nix build .#{name}` fails:")


def main() -> int:
    """Build, run, compare; say what holds."""
    parser = argparse.ArgumentParser(
        prog="nox -s nix -- --build", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--lock-python", type=Path, required=True, help="a Python with what locks/lock.py needs"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the run's results here")
    options = parser.parse_args()
    if os.environ.get("RANKPROOF_ENV"):
        print("nix: leave the Nix shell first: this compares it with plain nox", file=sys.stderr)
        return 1
    if sys.platform != "linux":
        print("nix: the stand-in builds on Linux only", file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        with scratch_store() as store:
            print(
                need(store.nix("nix", "--version"), "nix does not start:").out.strip(), flush=True
            )
            prepare(store, lock_python=options.lock_python)
            environment = build(store)
            compare(environment)
            validate(store, environment)
            check_in_the_store(store)
            if options.keep:
                shutil.copytree(store.flake / "results", options.keep, symlinks=True)
    except (CheckFailed, NoNix) as problem:
        print(f"nix: {problem}", file=sys.stderr)
        return 1
    print(f"  all in {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
