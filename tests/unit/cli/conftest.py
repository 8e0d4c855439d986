"""The command line with a stand-in for LLM, so that no model is loaded."""

import io
import logging
import sys
from types import SimpleNamespace

import pytest
from command_llm import CommandLLM

from deepinfer_core.cli.main import main


@pytest.fixture
def llms(monkeypatch):
    """Every LLM that a command makes."""
    made = []

    def make(model, **options):
        made.append(CommandLLM(model, **options))
        return made[-1]

    monkeypatch.setitem(sys.modules, "deepinfer_core.api.llm", SimpleNamespace(LLM=make))
    return made


@pytest.fixture
def deepinfer(capsys, monkeypatch):
    """Run a command line: (exit code, standard output, standard error)."""

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*words, stdin=None):
        if stdin is not None:
            data = stdin.encode() if isinstance(stdin, str) else stdin
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:  # argparse's way out
            code = end.code
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    yield run
    root.handlers[:] = handlers  # the program sets logging up anew
    root.setLevel(level)
    logging.captureWarnings(False)
