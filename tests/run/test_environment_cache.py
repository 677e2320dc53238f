"""The cache of environments: made once, checked each time, whatever happens while they are made."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.forms.digest import sha256
from harness.forms.distribution import wheel_digest
from harness.run.environments import cache
from harness.run.environments.cache import (
    EnvironmentProblem,
    ReadyEnvironment,
    Unavailable,
    provide,
)
from harness.run.environments.pip import problem, scrubbed
from harness.scenario import Environment
from tests.kit import wheels
from tests.kit.commands import Ran, command, environment, needs_mount

Run = Callable[..., Ran]
ROOT = Path(__file__).resolve().parents[2]


def asked(**packages: str) -> Environment:
    return Environment(packages=packages)


def files(made: ReadyEnvironment) -> Path:
    (found,) = made.python.parent.parent.glob("lib/python*/site-packages")
    return found


@pytest.mark.slow
@pytest.mark.whole
def test_an_environment_is_made_once_and_holds_only_what_was_asked_for(
    offered: dict[str, str],
) -> None:
    """The second time it comes from the cache without a word, also where nothing can be installed
    any more.
    """
    told: list[str] = []
    made = provide(asked(greeting="2.0"), says=told.append)
    assert [text.partition(" ")[0] for text in told] == ["making", "installing"]
    sizes = [
        next(Path(offered["PIP_FIND_LINKS"]).glob(f"{name}*")).stat().st_size
        for name in ("greeting-2", "word")
    ]
    total, greeting, word = (f"{size / 1024:.1f} KiB" for size in (sum(sizes), *sizes))
    assert (
        told[1] == f"installing 2 packages, {total}: greeting 2.0 ({greeting}), word 1.2 ({word})"
    )
    assert made.facts.versions == {"greeting": "2.0", "word": "1.2"}
    assert sorted(
        path.name for path in files(made).iterdir() if not path.name.startswith("__pycache__")
    ) == [
        "greeting-2.0.dist-info",
        "greeting.py",
        "word-1.2.dist-info",
        "word.py",
    ]
    shutil.rmtree(offered["PIP_FIND_LINKS"])
    assert provide(asked(greeting="2.0"), says=told.append) == made
    assert len(told) == 2
    assert cache.is_unchanged(made)


@pytest.mark.slow
@pytest.mark.whole
def test_what_an_environment_reads_at_its_start_is_named(offered: dict[str, str]) -> None:
    """A wheel may bring a `.pth` file, which runs in every rank before the code under test, also
    out of the cache.
    """
    line = b"import sys; sys.evil = True\n"
    wheels.write(Path(offered["PIP_FIND_LINKS"]), "tool", "1.0", "", more={"evil.pth": line})
    for _ in range(2):
        read = {one.name: one.sha256 for one in provide(asked(tool="1.0")).facts.start_files}
        assert read["evil.pth"] == sha256(line)


@pytest.mark.slow
@pytest.mark.whole
def test_where_an_environment_lies_makes_no_difference(
    offered: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command's script names its interpreter, and pip notes where a wheel came from: neither
    tells two apart.
    """
    wheel = wheels.write(
        Path(offered["PIP_FIND_LINKS"]), "tool", "1.0", "def main(): pass\n", script="tool"
    )
    made = provide(asked(tool="1.0"))
    monkeypatch.setenv("RANKPROOF_ENVIRONMENTS", str(tmp_path / "another" / "place"))
    moved = tmp_path / "moved"
    moved.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(moved))
    wheel.rename(moved / wheel.name)
    other = provide(asked(tool="1.0"))
    records = [(files(one) / "tool-1.0.dist-info" / "RECORD").read_text() for one in (made, other)]
    assert records[0] != records[1]
    assert made.facts == other.facts
    question = (
        "from harness.rank.inventory import describe;"
        " print(describe(['tool'])['packages']['tool']['record'])"
    )
    for one in (made, other):
        told = subprocess.run(
            [str(one.python), "-c", f"import sys; sys.path.append({str(ROOT)!r}); {question}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == one.facts.packages[0].record
    (files(other) / "tool.py").write_text("def main(): raise SystemExit\n")
    record = files(other) / "tool-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("tool.py,sha256=", "tool.py,sha256=0"))
    assert wheel_digest(record.read_text()) != made.facts.packages[0].record


@pytest.mark.long
def test_a_changed_file_is_found_and_the_environment_made_again(offered: dict[str, str]) -> None:
    """One byte, also with its old time and size, a new file, a missing one: told by name, and made
    again.
    """
    made = provide(asked(word="1.2"))
    module = files(made) / "word.py"
    before, status = module.read_text(), module.stat()
    module.write_text(before.replace("hello", "hallo"))
    os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not cache.is_unchanged(made)
    told: list[str] = []
    made = provide(asked(word="1.2"), says=told.append)
    assert told[0].startswith(
        "an environment in the cache has changed since it was made (lib/python"
    )
    assert "word.py" in told[0]
    assert (files(made) / "word.py").read_text() == before
    (files(made) / "extra.pth").write_text("import sys\n")
    made = provide(asked(word="1.2"), says=told.append)
    assert "extra.pth" in told[3]
    (files(made) / "word.py").unlink()
    assert (files(provide(asked(word="1.2"), says=told.append)) / "word.py").read_text() == before
    assert len(told) == 9


@pytest.mark.slow
@pytest.mark.whole
def test_a_cache_that_was_copied_is_still_whole(offered: dict[str, str], tmp_path: Path) -> None:
    """Other times of the same files are no change: every file is read once, and nothing is made."""
    made = provide(asked(word="1.2"))
    place = made.python.parents[2]
    shutil.copytree(place, tmp_path / "copy", symlinks=True)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place, symlinks=True)
    told: list[str] = []
    assert provide(asked(word="1.2"), says=told.append) == made
    assert not told


def writer_of(pipe: Path, reader: subprocess.Popen[str]) -> io.FileIO:
    """The writing end of a named pipe, once it is read.

    Opened plainly, it would wait for a dead reader for ever.
    """
    while True:
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        else:
            os.set_blocking(descriptor, True)
            return io.FileIO(descriptor, "wb")
        with contextlib.suppress(subprocess.TimeoutExpired):
            reader.wait(0.02)
            raise AssertionError(reader.communicate())


def nobody_reads(writer: io.RawIOBase) -> None:
    """Return when the pipe's reader is gone.

    A write that it leaves is cut short, the next one fails.
    """
    with contextlib.suppress(BrokenPipeError):
        while True:
            writer.write(b"x" * 10_000_000)


def make_elsewhere(name: str, version: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """Another process that wants an environment; it prints its interpreter."""
    code = (
        "import sys; from harness.run.environments.cache import provide; from harness.scenario"
        f" import Environment; asked = Environment(packages={{{name!r}: {version!r}}});"
        " print(provide(asked, says=lambda text: print(text, file=sys.stderr, flush=True)).python)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.whole
def test_who_waits_says_so_and_makes_it_where_the_other_could_not(
    offered: dict[str, str], tmp_path: Path
) -> None:
    """While one process makes it, another says that it waits.

    When the first is killed, it goes on.
    """
    wheel = Path(offered["PIP_FIND_LINKS"]) / "stuck-1.0-py3-none-any.whl"
    os.mkfifo(wheel)
    env = {**environment(tmp_path / "home"), **offered}
    first = make_elsewhere("stuck", "1.0", env)
    with writer_of(wheel, first):  # opens when pip does
        second = make_elsewhere("stuck", "1.0", env)
        assert second.stderr is not None
        assert second.stderr.readline().startswith(
            "waiting for another process that is making the environment with Python 3."
        )
        wheel.unlink()
        wheels.write(wheel.parent, "stuck", "1.0", "")
        first.kill()
        first.communicate(timeout=60)
    out, err = second.communicate(timeout=60)
    assert (second.returncode, err.count("making an environment")) == (0, 1), err
    assert Path(out.strip()).exists()


@pytest.mark.slow
@pytest.mark.whole
def test_an_interrupted_run_ends_pip_and_leaves_nothing_half_made(
    scenario: Callable[..., Path], offered: dict[str, str], tmp_path: Path
) -> None:
    """Ctrl-C while an environment is made is an interrupted run: pip is gone, and so is what it had
    written.
    """
    wheel = Path(offered["PIP_FIND_LINKS"]) / "stuck-1.0-py3-none-any.whl"
    os.mkfifo(wheel)
    own = [
        "--set",
        "subject.control.environment.packages.stuck=1.0",
        "--set",
        "matrix.backend=[none]",
    ]
    running = subprocess.Popen(
        command("run", str(scenario()), "--results", str(tmp_path / "results"), *own),
        env=environment(tmp_path / "home", **offered),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with writer_of(wheel, running) as writer:
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
        nobody_reads(writer)
    assert (running.returncode, "is marked unfinished, and nothing was signed" in err) == (
        2,
        True,
    ), err
    assert not list((tmp_path / "cache").glob("*/*"))


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.whole
def test_processes_at_once_make_one_environment(offered: dict[str, str], tmp_path: Path) -> None:
    """Of three processes that want the same one, one makes it; all get it."""
    env = {**environment(tmp_path / "home"), **offered}
    started = [make_elsewhere("greeting", "2.0", env) for _ in range(3)]
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    assert len({out for out, _ in ended}) == 1
    said = "".join(err for _, err in ended)
    assert said.count("making an environment with") == 1
    assert len(list((tmp_path / "cache").glob("*/*/bin"))) == 1


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.whole
def test_who_is_killed_while_making_leaves_nothing_that_counts(
    offered: dict[str, str], tmp_path: Path
) -> None:
    """A SIGKILL while pip reads a wheel ends pip too, and the next one makes the environment from
    the beginning.
    """
    pipe = Path(offered["PIP_FIND_LINKS"]) / "stuck-1.0-py3-none-any.whl"
    os.mkfifo(pipe)
    making = make_elsewhere("stuck", "1.0", {**environment(tmp_path / "home"), **offered})
    with writer_of(pipe, making) as writer:  # opens when pip does
        making.kill()
        making.communicate(timeout=60)
        assert making.returncode == -signal.SIGKILL
        nobody_reads(writer)
    assert [one.description for one in cache.cached()] == [None]
    (half,) = (path for path in (tmp_path / "cache").glob("*/*") if path.is_dir())
    pipe.unlink()
    wheels.write(pipe.parent, "stuck", "1.0", "")
    told: list[str] = []
    made = provide(asked(stuck="1.0"), says=told.append)
    assert told[0] == "an environment in the cache was never finished; making it again"
    assert not half.exists()
    assert [one.description for one in cache.cached()] == [f"Python {made.facts.python}, stuck 1.0"]


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.whole
@needs_mount
def test_a_full_disk_is_said_and_leaves_nothing_half_made(
    small_disk: Path, offered: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without space there is an error that says so, and the space is given back."""
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "large", "1.0", f"DATA = {os.urandom(400_000).hex()!r}\n")
    monkeypatch.setenv("RANKPROOF_ENVIRONMENTS", str(small_disk))
    with pytest.raises(EnvironmentProblem, match=r"[Nn]o space left") as found:
        provide(asked(large="1.0"))
    assert not isinstance(found.value, Unavailable)
    assert not [path for path in small_disk.glob("*/*") if path.is_dir() or path.suffix == ".json"]
    assert shutil.disk_usage(small_disk).free > 400_000


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.whole
def test_what_cannot_be_installed_is_told_apart(offered: dict[str, str]) -> None:
    """A version that is not there and versions that exclude each other are errors.

    What nobody offers is a reason.
    """
    with pytest.raises(
        EnvironmentProblem, match=r"greeting==3\.0 does not exist, or has no wheel .* 1\.0, 2\.0"
    ) as no:
        provide(asked(greeting="3.0"))
    assert not isinstance(no.value, Unavailable)
    with pytest.raises(
        Unavailable, match=r"nowhere==1\.0 is not available, because .* pip cannot find it"
    ):
        provide(asked(nowhere="1.0"))
    folder = Path(offered["PIP_FIND_LINKS"])
    wheels.write(folder, "picky", "1.0", "", requires=["word<1"])
    with pytest.raises(
        EnvironmentProblem, match=r"cannot be installed together: .*picky 1\.0 depends on word<1"
    ):
        provide(asked(picky="1.0", word="1.2"))
    with pytest.raises(
        Unavailable, match=r"^Python 3\.98 was not found on this machine \(found: 3\."
    ):
        provide(Environment(python="3.98"))
    assert all(one.description is None for one in cache.cached())


def test_words_of_pip_are_told_without_addresses() -> None:
    """The last error of pip is the reason.

    Hosts, addresses and folders of this machine are not in it.
    """
    text = (
        "WARNING: Retrying\nERROR: Could not install packages due to an OSError:"
        " HTTPSConnectionPool(host='wheels.example.org', port=443): Max retries exceeded with url:"
        " https://user:secret@wheels.example.org/simple/six/ (Caused by NameResolutionError: Failed"
        " to resolve 'wheels.example.org' at /home/somebody/.cache/pip/six.whl)\n"
    )
    found = problem(text, requirements=["six==1.16.0"], python="3.13.0")
    assert isinstance(found, Unavailable)
    assert str(found).startswith("pip could not install six==1.16.0: Could not install packages")
    assert not [
        word for word in ("example", "secret", "443", "somebody", "/home") if word in str(found)
    ]
    assert scrubbed("see file:///opt/things/x.whl") == "see <address>"
    assert str(problem("", requirements=["six==1"], python="3.13.0")).endswith("it printed nothing")


@pytest.mark.slow
@pytest.mark.whole
def test_the_cache_is_listed_and_cleared(rankproof: Run, offered: dict[str, str]) -> None:
    """`environments` lists what there is with its size, and removes what is named; `doctor` tells
    it too.
    """
    provide(asked(word="1.2"))
    listed = rankproof("list", "environments", env=offered)
    assert (listed.code, listed.out.count("\n")) == (0, 1)
    assert "word 1.2" in listed.out
    assert "1 in the cache" in rankproof("doctor", "--quick", env=offered).out
    assert rankproof("list", "environments", "remove", env=offered).code == 64
    assert rankproof("list", "environments", "remove", "zz", env=offered).code == 64
    assert (
        rankproof("list", "environments", "remove", listed.out[:8], env=offered).out
        == "1 removed\n"
    )
    assert not cache.cached()
    assert (
        rankproof("list", "environments", env=offered).code,
        rankproof("list", "environments", env=offered).out,
    ) == (0, "")
