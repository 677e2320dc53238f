"""What holds for every test: how often a race is tried.

And two transports with a way between them that breaks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from crossing import QUICK, Crossing
from rankproof_integrity import ReliableMessageTransport, TransferFailed, TransportLimits

SOURCE = str(Path(__file__).parents[1] / "src")
# Processes that tests start import the library from here too, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak",
        action="store_true",
        help="repeat what must never flake as often as before a release",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try properties on fewer examples than Hypothesis would, and on many more with --soak."""
    # A busy machine takes long over an example, and over making one; that is not a finding.
    calm = [hypothesis.HealthCheck.too_slow]
    many = 1000 if config.getoption("--soak") else 50
    hypothesis.settings.register_profile(
        "tests", max_examples=many, deadline=None, suppress_health_check=calm
    )
    hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session")
def often(pytestconfig: pytest.Config) -> Callable[..., range]:
    """Turns of something that must never flake: a few in every run, as many as `soak` says with
    --soak.
    """
    soaking = pytestconfig.getoption("--soak")
    return lambda few, *, soak: range(soak if soaking else few)


@pytest.fixture
def pair() -> Iterator[
    Callable[..., tuple[ReliableMessageTransport, ReliableMessageTransport, Crossing]]
]:
    made: list[ReliableMessageTransport] = []
    ways: list[Crossing] = []

    def make(
        limits: TransportLimits = QUICK,
    ) -> tuple[ReliableMessageTransport, ReliableMessageTransport, Crossing]:
        a, b = (ReliableMessageTransport(node=name, limits=limits) for name in "ab")
        made.extend((a, b))
        address = a.listen(("127.0.0.1", 0))
        assert not isinstance(address, str)
        a.expect("b")
        ways.append(Crossing(address))
        b.connect("a", ways[-1].address)
        return a, b, ways[-1]

    yield make
    for way in ways:
        way.close()
    for transport in made:
        with contextlib.suppress(TransferFailed):
            transport.close(timeout=0.1)
