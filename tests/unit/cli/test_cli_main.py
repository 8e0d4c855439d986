"""Finding a command, and what becomes of whatever it raises."""

import errno
import importlib
import io
import json
import os
import signal
import subprocess
import sys

import pytest
from fake_llm import TOO_LONG

from deepinfer_core.api.errors import CheckpointError, DeviceError, RequestError
from deepinfer_core.cli import main as program
from deepinfer_core.plugin.registry import Registry

HEAVY = ("torch", "numpy", "tokenizers", "deepseek_recipe", "pluggy", "tqdm", "matplotlib", "prometheus_client")


@pytest.fixture
def command(monkeypatch):
    """`deepinfer generate`, replaced by a command that does what it is told."""

    class Command:
        HELP = "told"
        does = staticmethod(lambda: 0)

        def configure(self, parser):
            parser.add_argument("--number", type=int)

        def run(self, args):
            self.args = args
            return self.does()

    made = Command()
    monkeypatch.setattr(program, "_command", lambda name: made)
    return made


def raising(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in program.COMMANDS)], ids=" ".join)
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys\n"
        "from deepinfer_core.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        f"heavy = sorted(set({HEAVY[:1] if words[0] in ('doctor', 'plugins') else HEAVY}) & set(sys.modules))\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: deepinfer")


@pytest.mark.parametrize("name", program.COMMANDS)
def test_every_command_is_there_and_says_what_help_says(name):
    module, text = program.COMMANDS[name]
    command = importlib.import_module(module)
    assert text == command.HELP
    assert callable(command.configure)
    assert callable(command.run)


def test_help_lists_the_commands_and_exit_codes(deepinfer):
    code, out, _ = deepinfer("--help")
    assert code == 0
    assert all(name in out for name in program.COMMANDS)
    assert "3    the engine or its device died" in out


def test_without_a_command_help_is_the_answer_and_a_mistake(deepinfer):
    code, out, err = deepinfer()
    assert (code, out) == (2, "")
    assert err.startswith("usage: deepinfer")


def test_version(deepinfer):
    code, out, _ = deepinfer("--version")
    assert code == 0
    assert out.startswith("deepinfer ")


def test_an_unknown_command_names_the_nearest(deepinfer):
    code, _, err = deepinfer("genrate")
    assert code == 2
    assert "did you mean 'generate'?" in err


def test_an_option_before_the_command(deepinfer):
    code, _, err = deepinfer("--backend", "cpu", "generate")
    assert code == 2
    assert "after the command" in err


def test_a_command_of_a_plugin(deepinfer, monkeypatch):
    class Hello:
        HELP = "say hello"

        def configure(self, parser):
            parser.add_argument("name")

        def run(self, args):
            print(f"hello {args.name}")
            return 0

    registry = Registry()
    registry.commands.registrar("greeting")("hello", Hello)
    monkeypatch.setattr("deepinfer_core.plugin.loader.load_plugins", lambda environment: Loaded(registry))
    assert deepinfer("hello", "you")[:2] == (0, "hello you\n")
    assert "did you mean 'hello'?" in deepinfer("helo")[2]


class Loaded:
    def __init__(self, registry):
        self.registry = registry


def test_the_commands_own_code_is_the_exit_code(deepinfer, command):
    command.does = lambda: 1
    assert deepinfer("generate", "--number", "3")[0] == 1
    assert command.args.number == 3


def test_wrong_usage_is_2(deepinfer, command):
    assert deepinfer("generate", "--number", "x")[0] == 2


@pytest.mark.parametrize(
    ("error", "code"), [(RequestError("r"), 1), (CheckpointError("c"), 2), (DeviceError("d"), 3)], ids=lambda e: str(e)
)
def test_an_error_is_a_message_and_its_code(deepinfer, command, error, code):
    command.does = raising(error)
    assert deepinfer("generate") == (code, "", f"deepinfer: {error}\n")


def test_an_interrupt(deepinfer, command):
    command.does = raising(KeyboardInterrupt())
    assert deepinfer("generate") == (130, "", "deepinfer: interrupted\n")


def test_a_second_interrupt_is_ignored_when_the_process_is_ours(command, monkeypatch):
    set_to = {}
    monkeypatch.setattr(program.signal, "signal", set_to.__setitem__)
    monkeypatch.setattr(sys, "argv", ["deepinfer", "generate"])
    command.does = raising(KeyboardInterrupt())
    assert program.main(["generate"]) == 130
    assert set_to == {}
    assert program.main() == 130
    assert set_to == {signal.SIGINT: signal.SIG_IGN}


def test_a_fault_of_ours_shows_where(deepinfer, command):
    command.does = raising(ZeroDivisionError("oh"))
    code, _, err = deepinfer("generate")
    assert code == 3
    assert "ZeroDivisionError: oh" in err
    assert "please report it" in err


def test_a_reader_that_goes_away_is_no_fault():
    code = "import sys\nfrom deepinfer_core.cli.main import main\nsys.stdout.flush()\nsys.exit(main(['--help']))"
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert child.wait() == 141
    assert errors == ""


@pytest.mark.parametrize(("options", "words"), [([], ["--help"]), (["-u"], ["--help"]), ([], ["chat", "--help"])])
def test_a_full_disk_is_said(options, words):
    code = f"import sys\nfrom deepinfer_core.cli.main import main\nsys.exit(main({words}))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, *options, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
    assert (done.returncode, done.stderr) == (
        2,
        "deepinfer: standard output cannot be written: No space left on device\n",
    )


def test_a_full_disk_under_a_named_file_is_not_blamed_on_the_output(deepinfer, command):
    command.does = raising(OSError(errno.ENOSPC, "No space left on device", "elsewhere"))
    code, _, err = deepinfer("generate")
    assert code == 3
    assert "elsewhere" in err


def test_characters_that_the_output_cannot_encode_are_escaped(command, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    command.does = lambda: print("h\u00e9") or 0
    assert program.main(["generate"]) == 0
    assert output.getvalue() == b"h\\xe9\n"


def test_streams_that_were_closed_before_the_start_are_empty(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    command.does = lambda: sys.stdout.write("lost") and len(sys.stdin.read())
    code = program.main(["generate"])
    sys.stdin.close()
    sys.stdout.close()
    assert code == 0


def test_messages_do_not_move_to_the_output_when_errors_are_closed(capsys, command, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    command.does = raising(RequestError("r"))
    code = program.main(["generate"])
    sys.stderr.close()
    assert (code, capsys.readouterr().out) == (1, "")


def test_a_wrong_log_level_is_named(deepinfer, monkeypatch):
    monkeypatch.setenv("DEEPINFER_LOG", "loud")
    code, _, err = deepinfer("plugins")
    assert code == 2
    assert "DEEPINFER_LOG = 'loud' is not allowed" in err


def said(err):
    """(level, message) of each line of standard error."""
    return [(line["level"], line["message"]) for line in map(json.loads, err.splitlines())]


@pytest.mark.parametrize(
    "words", [["--log-json", "generate", "--number", "3"], ["generate", "--number", "3", "--log-json"]]
)
def test_everything_said_is_json_lines_when_asked(deepinfer, command, words):
    command.does = raising(RequestError("half \ud800"))
    code, out, err = deepinfer(*words)
    assert (code, out) == (1, "")
    assert said(err) == [("error", "half \ufffd")]
    assert command.args.number == 3


def test_what_is_wrong_before_a_command_is_found_is_json_too(deepinfer, monkeypatch):
    monkeypatch.setenv("DEEPINFER_LOG", "loud")
    code, _, err = deepinfer("--log-json", "generate")
    assert code == 2
    ((level, message),) = said(err)
    assert level == "error"
    assert message.startswith("DEEPINFER_LOG = 'loud' is not allowed")


def test_wrong_options_are_said_in_json(deepinfer):
    code, out, err = deepinfer("bench", "schedule", "--steps", "none", "--log-json")
    assert (code, out) == (2, "")
    ((level, message),) = said(err)
    assert level == "error"
    assert message.startswith("argument --steps: 'none' is not allowed")
    assert message.endswith("see deepinfer bench schedule --help")


def test_a_fault_of_ours_is_one_json_line(deepinfer, command):
    command.does = raising(ZeroDivisionError("oh"))
    code, _, err = deepinfer("generate", "--log-json")
    assert code == 3
    (line,) = map(json.loads, err.splitlines())
    assert line["exception"]["type"] == "ZeroDivisionError"
    assert "please report it" in line["message"]


def test_after_two_dashes_it_is_a_word_like_any_other(deepinfer, llms):
    _, plain, err = deepinfer("generate", "--", "--log-json")
    assert plain.startswith("answer")
    assert err == "running on a stand-in\n"


def test_reports_failures_and_the_log_are_json_lines(deepinfer, llms):
    code, out, err = deepinfer("generate", "--log-json", "b", TOO_LONG)
    assert code == 1
    assert "--- prompt 1, answer 1\nanswer" in out
    assert said(err) == [("info", "running on a stand-in"), ("warning", "prompt 2: the prompt has too many tokens")]
