"""What holds for every test: how often a race is tried, what a run says of itself."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SECOND = 1.0

# A failed assertion in there says what it compared, as one in a test does.
pytest.register_assert_rewrite("tests.kit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak",
        action="store_true",
        help="repeat what must never flake as often as before a release",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try properties on fewer examples than Hypothesis would, and on many more with --soak."""
    with contextlib.suppress(ModuleNotFoundError):  # `nox -s interop` has none
        import hypothesis

        # A busy machine takes long over an example, and over making one; that is not a finding.
        calm = [hypothesis.HealthCheck.too_slow]
        many = 1000 if config.getoption("--soak") else 50
        hypothesis.settings.register_profile(
            "tests", max_examples=many, deadline=None, suppress_health_check=calm
        )
        hypothesis.settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `whole` and `long` tests as slow too, so that the inner loop leaves them out."""
    for item in items:
        if item.get_closest_marker("whole") or item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def often(pytestconfig: pytest.Config) -> Callable[..., range]:
    """Turns of something that must never flake: a few in every run, as many as `soak` says with
    --soak.
    """
    soaking = pytestconfig.getoption("--soak")
    return lambda few, *, soak: range(soak if soaking else few)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder to be somebody's TMPDIR, with a path short enough for servers to lie in it: pytest's
    own are longer.
    """
    folder = Path(tempfile.mkdtemp(prefix="rp-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that took over a second and are not marked `slow`, with a fixture that they
    were first to need.

    Said, never a failure: on a busy machine any test may take long.
    """
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and "slow" not in report.keywords:
                seconds[report.nodeid] += report.duration
    longest = [(name, took) for name, took in seconds.most_common(10) if took > SECOND]
    if longest:
        terminalreporter.section("over a second and not marked slow", sep="-")
        for name, took in longest:
            terminalreporter.line(f"{took:6.1f} s  {name}")
