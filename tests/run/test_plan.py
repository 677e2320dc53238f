"""What is said of an installation before it is made: sizes as servers tell them, and those that
nobody tells.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.run.environments import pip
from harness.run.environments.cache import planned, provide
from harness.run.environments.make import EnvironmentPlan
from harness.run.environments.pip import Interpreter, PipRequest, Resolved, Unavailable
from harness.run.environments.supply import NOTHING
from harness.scenario import Environment


@contextmanager
def served(folder: Path, *, heads: bool) -> Iterator[tuple[str, list[str]]]:
    """Serve a folder on this machine, as a page of links without digests.

    Yields its address and what was asked.
    """
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(folder))  # type: ignore[arg-type]

        def do_HEAD(self) -> None:
            asked.append(self.path)
            if heads:
                super().do_HEAD()
            else:
                self.send_error(405)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("heads", [True, False])
def test_a_server_is_asked_how_large_its_files_are(
    offered: dict[str, str], monkeypatch: pytest.MonkeyPatch, heads: bool
) -> None:
    """By HEAD, before anything is installed.

    A server that does not tell leaves the size unknown, and is used.
    """
    folder = Path(offered["PIP_FIND_LINKS"])
    size = next(folder.glob("word-*")).stat().st_size
    with served(folder, heads=heads) as (address, asked):
        monkeypatch.setenv("PIP_FIND_LINKS", address)
        plan = planned(Environment(packages={"word": "1.2"}), NOTHING, says=print)
        assert isinstance(plan, EnvironmentPlan)
        assert asked == ["/word-1.2-py3-none-any.whl"]
        told = f"{size / 1024:.1f} KiB" if heads else "size unknown"
        assert list(plan.packages()) == [f"word 1.2 ({told})"]
        assert str(plan) == f"1 package, {told if heads else 'of unknown size'}: word 1.2 ({told})"
        assert provide(Environment(packages={"word": "1.2"})).facts.versions == {"word": "1.2"}


def test_a_plan_is_one_line() -> None:
    """The largest packages by name and a count of the rest, with what is not known said as such."""
    chosen = [Resolved(f"p{number}", "1", "") for number in range(8)]
    sizes: dict[str, int | None] = {one.name: 2**20 * number for number, one in enumerate(chosen)}
    sizes["p7"] = None
    plan = EnvironmentPlan(request=PipRequest(requirements=[]), chosen=chosen, sizes=sizes)
    assert (
        str(plan)
        == "8 packages, at least 21.0 MiB, 1 of unknown size: p6 1 (6.0 MiB), p5 1 (5.0 MiB), p4 1"
        " (4.0 MiB), p3 1 (3.0 MiB), p2 1 (2.0 MiB) and 3 more"
    )


def test_the_first_pip_that_tells_before_it_downloads_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old one does where there is no other, and that is said before it is asked."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    base = Interpreter(tmp_path / "gone", "3.13.0", "cpython", "linux", tmp_path)
    bundled = tmp_path / "ensurepip" / "_bundled"
    bundled.mkdir(parents=True)

    def bundle(name: str, source: str) -> None:
        with zipfile.ZipFile(bundled / name, "w") as wheel:
            wheel.writestr("pip/_internal/commands/install.py", source)

    with pytest.raises(Unavailable, match="install it next to Rankproof"):
        pip.caution(base)
    bundle("pip-1-py3-none-any.whl", "requirement_set = resolver.resolve(reqs)\n")
    assert "has to download wheels to list them" in pip.caution(base)
    bundle("pip-2-py3-none-any.whl", "preparer.prepare_linked_requirements_more(requirement_set)\n")
    assert pip.caution(base) == ""
