"""Fixtures of the test kit, for every test. What they need is imported when one is used: the worker's tests run where
the laptop's packages are not installed."""

from __future__ import annotations

import gc
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.hosts.reached_host import Host
    from tests.support.hosts.sshd import HostUser, Sshd
    from tests.support.model.fake_model import FakeModel
    from tests.support.person.laptop import Here, Laptop

_OWN_DIRECTORY = pytest.StashKey[str]()
"""The directory for temporary files that this run has made for itself."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give every run a directory of its own, and let programs that the tests start die of signals.

    pytest closes its shared directory in /tmp to other users whenever a run begins, and the throwaway users of another
    run have their homes in it. Under nohup SIGHUP is ignored, in the background of a script SIGINT and SIGQUIT are, and
    new programs would inherit that; a signal with a handler is back to its default in them.
    """
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="ccb-tests-")
        config.stash[_OWN_DIRECTORY] = config.option.basetemp
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    _find_programs_without_shims()
    _choose_examples()


def _find_programs_without_shims() -> None:
    """Take the shims of pyenv off PATH, for this process and what it starts: each command there is a dozen shells."""
    kept = (each for each in os.environ["PATH"].split(os.pathsep) if Path(each).name != "shims")
    os.environ["PATH"] = os.pathsep.join(kept)


def _choose_examples() -> None:
    """Let Hypothesis try as many examples as the run has time for (CCB_EXAMPLES, many for `make thorough`), and fail
    for what an example shows, not for the seconds that it takes on a busy machine. To look through all modules for
    numbers and texts to try costs each process a second, which pays only where there are many examples."""
    from hypothesis import HealthCheck, settings
    from hypothesis.internal.conjecture import providers

    examples = int(os.environ.get("CCB_EXAMPLES", "30"))
    if examples < 100 and hasattr(providers, "_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants
    slow = [HealthCheck.too_slow]
    settings.register_profile("ccb", max_examples=examples, deadline=None, suppress_health_check=slow)
    settings.load_profile("ccb")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector of garbage out of what stays: the modules and the thousands of tests. To collect first would
    take a quarter of a second in each process, and frees next to nothing. And let it run a tenth as often: it took a
    seventh of the time of the tests of the screen."""
    gc.disable()
    gc.set_threshold(10_000, 10, 20)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_WHOLE_PROGRAMS = ("tests.support.hosts.sshd", "tests.support.person.laptop", "tests.remote.worker_process")
_WHOLE_SESSIONS = ("tests/e2e/", "tests/faults/", "tests/features/", "tests/deploy/", "tests/project/test_packaging")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start whole programs (an sshd, a worker, ccb itself), which `make check` leaves out, and the
    rows beyond a test's `quick_rows`, which `make test` leaves out."""
    rows: Counter[str] = Counter()
    for item in items:
        quick = item.get_closest_marker("quick_rows")
        if quick is not None:
            test = item.nodeid.partition("[")[0]
            rows[test] += 1
            if rows[test] > quick.args[0]:
                item.add_marker("thorough")
        module = getattr(item, "module", None)
        kit = {getattr(value, "__module__", "") for value in vars(module).values()} if module else set()
        if item.nodeid.startswith(_WHOLE_SESSIONS) or not kit.isdisjoint(_WHOLE_PROGRAMS):
            item.add_marker("programs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the end of a test fail if the key is in what it has printed or logged."""
    from tests.support.model.canaries import KEY

    report = yield
    if report.when == "teardown" and report.passed and any(KEY.decode() in text for _, text in report.sections):
        report.outcome = "failed"
        report.longrepr = "the key of the model is in what this test has printed or logged"
    return report


@pytest.fixture(autouse=True)
def _no_key_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Search whatever a test has written for the key, if it had it: logs, errors, journals, ledgers, homes of hosts."""
    if "fake_model" not in request.fixturenames and not hasattr(request.module, "API_KEY"):
        yield
        return
    from tests.support.model.canaries import keys_in

    directory: Path = request.getfixturevalue("tmp_path")
    yield
    assert keys_in(directory) == []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Search what the workers of a run have left in /tmp for the key, and keep the directory of a run only when a test
    has failed."""
    from tests.support.model.canaries import keys_left_by_workers

    if not hasattr(session.config, "workerinput"):
        for found in keys_left_by_workers(Path("/tmp"), os.getuid()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            sys.stderr.write(f"\nthe key of the model is in {found}\n")
    directory = session.config.stash.get(_OWN_DIRECTORY, "")
    if directory and session.exitstatus == 0:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def fake_model() -> AsyncIterator[FakeModel]:
    """A running FakeModel with an empty script; fill it with `add`."""
    from tests.support.model.fake_model import FakeModel

    async with FakeModel() as model:
        yield model


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    """A real OpenSSH server that the test's key logs in to."""
    from tests.support.hosts.sshd import sshd as serve

    async with serve(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def host_user(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HostUser]:
    """A throwaway Unix user with bash, on the machine of the `sshd` fixture. For tests with the marker `visited`, ccb
    has been there before; `visited(False)` takes the marker of a whole module back."""
    from tests.support.hosts.sshd import host_user as make
    from tests.support.hosts.visited_host import visit

    with make(tmp_path) as user:
        mark = request.node.get_closest_marker("visited")
        if mark is not None and mark.args != (False,):
            visit(user.home, pwd.getpwnam(user.name).pw_uid)
        yield user


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    """A laptop with the scripted model. A while after the test, none of its processes may run any more."""
    from tests.support.person.laptop import tidy_laptop

    with tidy_laptop(tmp_path, fake_model.url) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def here(laptop: Laptop, fake_model: FakeModel, project: Path) -> Here:
    from tests.support.person.laptop import Here

    return Here(laptop, fake_model, project)


@pytest.fixture
def host(laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser) -> Host:
    from tests.support.hosts.reached_host import Host

    return Host(laptop, fake_model, sshd, host_user)
