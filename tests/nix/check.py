"""Everything about the flake that can be checked without the network: `python -m tests.nix.check`,
`nox -s nix`.

A stand-in takes the place of nixpkgs (tests/nix/nixpkgs). What it cannot show, docs/nix.md says.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable

from tests.nix.store import CheckFailed, Done, NoNix, Store, scratch_store
from tests.nix.wheels import tiny_environment

Step = Callable[[Store], None]


def need(done: Done, what: str) -> Done:
    """The result of a command that must succeed.

    Raises:
        CheckFailed: it did not; the end of what it said follows.
    """
    if done.code:
        said = "\n".join(
            line for line in done.err.strip().splitlines() if not line.startswith("warning:")
        )
        raise CheckFailed(f"{what}\n{said[-4000:]}")
    return done


def parses(store: Store) -> None:
    """Every .nix file parses."""
    files = sorted(map(str, [store.flake / "flake.nix", *(store.flake / "nix").rglob("*.nix")]))
    need(
        store.nix("nix-instantiate", "--parse", *files),
        "a file of the flake is not Nix; its name and line:",
    )


def lock_answers(store: Store) -> None:
    """flake.lock answers flake.nix: the inputs of both are the same.

    A stale lock would ask the network.
    """
    done = store.nix(
        "nix", "flake", "metadata", "--no-update-lock-file", "--json", store.reference()
    )
    need(
        done,
        "flake.lock does not answer the inputs of flake.nix. Run `nix flake lock` with a network"
        " and commit it:",
    )
    locked = json.loads(done.out)["locks"]
    if locked != json.loads((store.flake / "flake.lock").read_text()):
        raise CheckFailed(
            "flake.lock is not what Nix reads out of it. Run `nix flake lock` and commit it."
        )
    for name, node in locked["nodes"].items():
        if missing := {"rev", "narHash"} - set(node.get("locked", {"rev": "", "narHash": ""})):
            raise CheckFailed(
                f"flake.lock: {name} has no {' and no '.join(sorted(missing))}. Run `nix flake"
                " lock`."
            )


def evaluates(store: Store) -> None:
    """Every output of every system evaluates, and there is one for each that is promised."""
    every = (
        ("--all-systems",)
        if "--all-systems" in store.nix("nix", "flake", "check", "--help").out
        else ()
    )
    command = (
        "nix",
        "flake",
        "check",
        "--no-build",
        *every,
        *store.with_stand_in(),
        store.reference(),
    )
    need(store.nix(*command), "an output of the flake does not evaluate:")
    done = need(
        store.nix(
            "nix", "flake", "show", *every, "--json", *store.with_stand_in(), store.reference()
        ),
        "show:",
    )
    found = json.loads(done.out)
    linux = {"cpu", "cuda"}
    for system, variants in {
        "x86_64-linux": linux,
        "aarch64-linux": linux,
        "aarch64-darwin": {"metal"},
    }.items():
        expected = {
            "packages": variants | {"default"},
            "devShells": variants | {"default"},
            "checks": variants,
            "apps": {"default", "validate"},
        }
        for output, names in expected.items():
            if (given := set(found.get(output, {}).get(system, {}))) != names:
                has, wanted = ", ".join(sorted(given)) or "nothing", ", ".join(sorted(names))
                raise CheckFailed(f"flake.nix: {output}.{system} has {has}, not {wanted}")
        if "formatter" not in found or system not in found["formatter"]:
            raise CheckFailed(f"flake.nix: formatter.{system} is missing")


def source_is_filtered(store: Store) -> None:
    """What runs write, and documentation, rebuild nothing.

    The harness' code does rebuild what it is in.
    """

    def derivation() -> str:
        output = "apps.x86_64-linux.validate.program"
        return need(
            store.nix("nix", "eval", "--raw", *store.with_stand_in(), store.reference(output)),
            "eval:",
        ).out

    before = derivation()
    for folder in ("results", "docs"):
        (store.flake / folder).mkdir(exist_ok=True)
        (store.flake / folder / "new.md").write_text("new")
    if derivation() != before:
        raise CheckFailed("nix/source.nix: a file in results/ or docs/ changes what is built")
    # Harness/_integrity links to the second.
    for folder in ("harness", "packages/integrity/src/rankproof_integrity"):
        new = store.flake / folder / "new.py"
        new.write_text("")
        if derivation() == before:
            raise CheckFailed(
                f"nix/source.nix: a new file in {folder}/ does not change what is built"
            )
        new.unlink()


def develops(store: Store) -> None:
    """`nix develop -c nox --list` builds the environment, enters it, and lists our sessions with
    the nox in it.
    """
    tiny_environment(store)
    script = (
        "set -e; echo env=$RANKPROOF_ENV variant=$RANKPROOF_VARIANT shell=$RANKPROOF_SHELL"
        " path=${PYTHONPATH-unset} libraries=${LD_LIBRARY_PATH-unset}; echo nox=$(command -v nox);"
        " $RANKPROOF_ENV/bin/nox --list"
    )
    command = (
        "nix",
        "develop",
        *store.with_stand_in(),
        store.reference(),
        "-c",
        "bash",
        "-c",
        script,
    )
    done = need(
        store.nix(*command, cwd=store.flake, env={"PYTHONPATH": "/nowhere"}),
        "`nix develop` does not enter its shell:",
    )
    said = dict(
        word.split("=", 1) for word in [*done.out.splitlines()[0].split(), done.out.splitlines()[1]]
    )
    wrong = []
    if said.get("variant") != "cpu" or not said.get("env", "").endswith("-rankproof-env-cpu"):
        wrong.append(f"it is not the cpu environment: {said}")
    if said.get("nox") != f"{said.get('env')}/bin/nox":
        wrong.append(f"nox is {said.get('nox')}, not the environment's own")
    if said.get("path") != "unset":
        wrong.append("PYTHONPATH is not unset")
    if said.get("libraries") != "unset":
        wrong.append("LD_LIBRARY_PATH is set")
    if not said.get("shell", "").endswith("-rankproof-cpu.drv"):
        wrong.append(f"RANKPROOF_SHELL is {said.get('shell')}, no derivation")
    listed = re.findall(r"^[*-] (\S+)", done.out, re.MULTILINE)
    wrong += [
        f"`nox --list` names no session {name}"
        for name in ("validate", "tests")
        if name not in listed
    ]
    if wrong:
        raise CheckFailed("nix/shell.nix: " + "; ".join(wrong))


def runs(store: Store) -> None:
    """`nix run .#validate -- --help` reaches `rankproof run`, and `nix run . -- --version` reaches
    `rankproof`.
    """
    for output, arguments, expected in (
        ("validate", ("--help",), "rankproof run"),
        ("", ("--version",), "rankproof 0"),
    ):
        command = ("nix", "run", *store.with_stand_in(), store.reference(output), "--", *arguments)
        done = need(store.nix(*command), f"`nix run .#{output} -- {arguments[0]}` fails:")
        if expected not in done.out:
            raise CheckFailed(
                f"nix/programs.nix: `nix run .#{output} -- {arguments[0]}`"
                f" said:\n{done.out[-1000:]}"
            )


STEPS: tuple[Step, ...] = (parses, lock_answers, evaluates, source_is_filtered, develops, runs)


def check(store: Store, *, tell: Callable[[str], None]) -> None:
    """Run every step.

    Raises:
        CheckFailed: at the first that does not hold.
    """
    for step in STEPS:
        began = time.monotonic()
        step(store)
        tell(
            f"{(step.__doc__ or '').partition(':')[0].strip().rstrip('.')}"
            f" ({time.monotonic() - began:.1f} s)"
        )


def main() -> int:
    """Check; say what holds and what does not."""
    try:
        with scratch_store() as store:
            version = need(store.nix("nix", "--version"), "nix does not start:")
            print(version.out.strip(), flush=True)
            check(store, tell=lambda line: print(f"  {line}", flush=True))
    except (CheckFailed, NoNix) as problem:
        print(f"nix: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
