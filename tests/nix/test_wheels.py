"""What stops when a wheel, its lock or its table is not what it must be.

Built for real, from wheels of a few bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nix.store import Done, Store
from tests.nix.wheels import sha256, tiny_environment, write_locks, write_wheel

Wheels = dict[str, list[Path]]


pytestmark = pytest.mark.whole


def build(store: Store) -> Done:
    """Build the cpu environment, as `nix develop` does."""
    return store.nix("nix", "build", "--no-link", *store.with_stand_in(), store.reference("cpu"))


def edit_table(store: Store, change: Callable[[dict[str, str]], None]) -> None:
    """Change what wheels.json says of the cpu environment of every Linux."""
    path = store.flake / "locks" / "wheels.json"
    table = json.loads(path.read_text())
    for system in ("x86_64-linux", "aarch64-linux"):
        change(table["systems"][system]["cpu"])
    path.write_text(json.dumps(table))


@pytest.mark.long
def test_an_environment_knows_its_locks(store: Store) -> None:
    """The built environment imports its packages and says which lock, with its sha256, it was made
    from.
    """
    tiny_environment(store)
    shown = build(store)
    assert shown.code == 0, shown.err
    made = next((store.folder / "store").glob("*-rankproof-env-cpu"))
    note = json.loads((made / "rankproof-environment.json").read_text())
    assert note == {
        "variant": "cpu",
        "lock": "cpu.txt",
        "lock_sha256": sha256(store.flake / "locks" / "cpu.txt"),
        "wheels_sha256": sha256(store.flake / "locks" / "wheels.json"),
    }
    ran = store.nix(str(made / "bin" / "python"), "-c", "import nox, torch; print(torch.VERSION)")
    assert ran.out == "tiny\n", ran.err


def change_a_byte(store: Store, wheels: Wheels) -> None:
    wheel = wheels["cpu"][0]
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    wheel.write_bytes(data)


def forget_a_wheel(store: Store, wheels: Wheels) -> None:
    edit_table(store, lambda table: table.__delitem__(wheels["cpu"][0].name))


def name_another_version(store: Store, wheels: Wheels) -> None:
    newer = write_wheel(store.folder / "wheels", "tinynox", "2.0", {})

    def change(table: dict[str, str]) -> None:
        del table[wheels["dev"][0].name]
        table[newer.name] = sha256(newer)

    edit_table(store, change)


def accept_other_bytes(store: Store, wheels: Wheels) -> None:
    edit_table(store, lambda table: table.update({wheels["cpu"][0].name: "0" * 64}))


def pin_another_version(store: Store, wheels: Wheels) -> None:
    path = store.flake / "locks" / "cpu.txt"
    path.write_text(path.read_text().replace("torch==2.13.0", "torch==2.13.1"))


def leave_out_a_dependency(store: Store, wheels: Wheels) -> None:
    needy = write_wheel(
        store.folder / "wheels", "needy", "1.0", {"needy.py": ""}, needs="absent-package>=1"
    )
    write_locks(store, wheels | {"cpu": [*wheels["cpu"], needy]})


def index_lacks_a_file(store: Store, wheels: Wheels) -> None:
    wheels["dev"][0].unlink()


FAULTS: dict[str, tuple[Callable[[Store, Wheels], None], list[str]]] = {
    "a changed byte": (change_a_byte, ["hash mismatch", "torch-2.13.0+cpu-py3-none-any.whl"]),
    "a sha256 that is another": (
        accept_other_bytes,
        ["hash mismatch", "torch-2.13.0+cpu-py3-none-any.whl"],
    ),
    "a wheel missing from the table": (
        forget_a_wheel,
        ["torch", "locks/wheels.json does not hold", "nox -s lock"],
    ),
    "another version in the table": (
        name_another_version,
        ["tinynox", "locks/wheels.json does not", "nox -s lock"],
    ),
    "another version in the lock": (
        pin_another_version,
        ["not made from this locks/cpu.txt", "nox -s lock"],
    ),
    "a dependency missing from the lock": (
        leave_out_a_dependency,
        ["absent-package", "locks/cpu.txt", "nox -s lock"],
    ),
    "a file that the index lacks": (
        index_lacks_a_file,
        ["tinynox-1.0-py3-none-any.whl", "nox -s lock"],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wheel_that_is_not_the_locks_stops_the_build(store: Store, fault: str) -> None:
    """Each stops the build of the environment with a message that names the file and the remedy."""
    inject, expected = FAULTS[fault]
    inject(store, tiny_environment(store))
    done = build(store)
    assert done.code != 0
    for words in expected:
        assert words in done.err, done.err


@pytest.mark.long
def test_an_unknown_missing_library_stops_the_build(store: Store) -> None:
    """A wheel with a library that nobody has stops the build and names the library.

    One on the list does not.
    """
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to make a library with")
    tmp = store.folder / "tmp"
    for name, needed in (
        ("libcuda.so.1", "libcuda.so.1"),
        ("libnobodyhas.so.7", "libnobodyhas.so.7"),
    ):
        (tmp / "empty.cc").write_text('extern "C" void empty() {}\n')
        (tmp / "user.cc").write_text(
            'extern "C" void empty(); extern "C" void user() { empty(); }\n'
        )
        for command in (
            (
                compiler,
                "-shared",
                "-fPIC",
                "-o",
                str(tmp / name),
                f"-Wl,-soname,{needed}",
                str(tmp / "empty.cc"),
            ),
            (
                compiler,
                "-shared",
                "-fPIC",
                "-o",
                str(tmp / f"user-{name}"),
                str(tmp / "user.cc"),
                str(tmp / name),
            ),
        ):
            assert store.nix(*command).code == 0
    wheels = tiny_environment(store)
    for variant, library, stops in (
        ("cuda", "libcuda.so.1", False),
        ("cuda", "libnobodyhas.so.7", True),
        ("cpu", "libcuda.so.1", True),
    ):
        with_library = write_wheel(
            store.folder / "wheels",
            "native",
            "1.0",
            {"native/user.so": (tmp / f"user-{library}").read_bytes()},
        )
        write_locks(store, wheels | {variant: [*wheels[variant], with_library]})
        done = store.nix(
            "nix", "build", "--no-link", *store.with_stand_in(), store.reference(variant)
        )
        assert (done.code != 0) == stops, done.err
        if stops:
            assert library in done.err
        with_library.unlink()
