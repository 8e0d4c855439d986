"""The pytest plugin: its flags and its markers. Idle, and cheap to import, unless `--backend` names a backend."""

from __future__ import annotations

import pytest

from deepinfer_conformance.collection import is_standard
from deepinfer_conformance.options import FLAGS, read_options
from deepinfer_core.api.errors import ConfigError

USAGE = 2  # the exit code of a wrong option, file or marker


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deepinfer-conformance", "conformance of a DeepInfer backend")
    group.addoption("--backend", metavar="NAME", help="the registered backend to put under test")
    for flag, settings in FLAGS.items():
        group.addoption(flag, **settings)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "level(name): the lowest level that runs the test: smoke, core or full")
    config.addinivalue_line("markers", "capability(*names): runs where the backend claims all of these")
    if config.getoption("backend") is None:
        config.pluginmanager.register(_Idle(), "deepinfer-conformance-idle")
    else:
        _begin(config)


def _begin(config: pytest.Config) -> None:
    from deepinfer_conformance import fixtures
    from deepinfer_conformance.run import RUN, Run
    from deepinfer_conformance.waivers import read_waivers

    given = {name: config.getoption(name) for name in ("backend", "level", "waivers", "report", "seed", "dtype")}
    try:
        options = read_options(**given)
        run = Run(options, read_waivers(options.waivers))
    except ConfigError as error:
        pytest.exit(str(error), returncode=USAGE)
    config.stash[RUN] = run
    config.pluginmanager.register(fixtures, "deepinfer-conformance-fixtures")
    config.pluginmanager.register(run, "deepinfer-conformance-run")


class _Idle:
    """Without a backend there is nothing to test."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if any(map(is_standard, session.items)):
            pytest.exit("the conformance suite needs --backend NAME: `deepinfer plugins` lists them", returncode=USAGE)
