"""The command line: quick help, one sentence for each mistake, numbers that a program can read."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import torch
from helpers.commands import start

import heedful
from heedful.cli import info as info_command
from heedful.cli import main as cli
from heedful.cli.demo import heat_map
from heedful.cli.main import main
from heedful.cli.shared.arguments import options, parse
from heedful.cli.shared.commands import COMMANDS, function_of, help_of, options_of
from heedful.errors import command, program
from heedful.interop.hf import read
from heedful.models import family, presets
from heedful.models.gpt2 import GPT2Config


@pytest.fixture
def stub(monkeypatch):
    """A command "info" that does only what the test says."""

    def replace(function):
        monkeypatch.setattr(info_command, "info", function)

    return replace


# Processes


@pytest.mark.parametrize(("world", "torn_down"), [("1", True), ("2", False)])
def test_one_of_several_processes_ends_without_tearing_the_interpreter_down(world, torn_down):
    """Threads of torch's network may outlive their group, and abort the interpreter at its end."""
    code = "import atexit; atexit.register(print, 'torn down'); from heedful.cli.main import entry; entry()"
    run = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(
        run, capture_output=True, text=True, env=os.environ | {"WORLD_SIZE": world}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"heedful {heedful.__version__}", *["torn down"] * torn_down]


# Help


def imported_by(*calls: list[str]) -> set[str]:
    """The modules that a process has imported once it has made these calls."""
    code = f"""
import sys, heedful.cli.main
done = [heedful.cli.main.main(args) for args in {calls!r}]
print(*sys.modules, file=sys.stderr)
sys.exit(any(done))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_help_imports_no_command_and_no_other_library(args):
    """torch takes longer to import than a person waits for help."""
    found = imported_by(args)
    assert not {"torch", "numpy", "tyro", "rich"} & found
    assert not {f"heedful.cli.{name}" for name in COMMANDS} & found


def test_help_of_a_command_leaves_torch_and_the_other_commands_alone():
    assert "torch" not in imported_by(*([name, "--help"] for name in COMMANDS))
    found = imported_by(["info", "--help"])
    assert {name for name in COMMANDS if f"heedful.cli.{name}" in found} == {"info"}


def test_help_names_every_command_in_a_line(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in COMMANDS:
        first_line = help_of(name).splitlines()[0]
        assert any(line.split() == [name, *first_line.split()] for line in out.splitlines())


TYRO = [name for name in COMMANDS if name != "train"]  # whose help is in test_train_help.py


@pytest.mark.parametrize("command", TYRO)
def test_help_explains_every_option_with_its_default(command, capsys):
    assert main([command, "--help"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for option in options(command):
        assert option in out
    told = out.count("(default: ") + out.count("(required)")
    assert told == len(options_of(command).__dataclass_fields__)


@pytest.mark.parametrize("command", TYRO)
def test_lines_of_help_are_full(command, capsys):
    assert main([command, "--help"]) == 0
    boxed = [line[2:-2] for line in capsys.readouterr().out.splitlines() if line.startswith("│ ")]
    for line, after in itertools.pairwise(boxed):
        if line[:12].isspace() and after[:12].isspace():  # one text, which goes on
            assert len(line.rstrip()) + 1 + len(after.split()[0]) > len(line)


@pytest.mark.parametrize("command", TYRO)
def test_help_has_each_example_on_a_line_of_its_own_and_every_one_can_be_typed(command, capsys):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "None" not in out  # nobody types that
    (examples,) = re.findall(r"\nExamples?:\n((?:  .+\n)+)\n", out)
    assert all(f"heedful {command} " in f"{line} " for line in examples.splitlines())
    for line in examples.splitlines():
        words = shlex.split(re.sub(r" [<>] \S+|^  paste .*\((.*)\)", r"\1", line))
        assert words[:2] == ["heedful", command] and parse(command, words[2:])


def test_every_command_has_its_function():
    for name in COMMANDS:
        assert callable(function_of(name)) and options_of(name).__name__ == f"{name.title()}Options"


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"heedful {heedful.__version__}\n"


def test_no_command_shows_the_help_and_is_an_error(capsys):
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_python_m_heedful_is_heedful():
    with start("--version") as process:
        out, _ = process.communicate()
    assert (out, process.returncode) == (f"heedful {heedful.__version__}\n", 0)


# What can be copied


@pytest.mark.parametrize(
    "called, on_path, typed",
    [
        ("bin/heedful", True, "heedful"),
        ("bin/heedful", False, "bin/heedful"),
        ("my bin/heedful", False, "'my bin/heedful'"),
        ("lib/heedful/__main__.py", True, "python -m heedful"),
        ("bin/pytest", True, "heedful"),
        ("bin/pytest", False, "heedful"),
    ],
)
def test_commands_are_told_as_this_one_was_called(called, on_path, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / called).parent.mkdir(parents=True)
    (tmp_path / called).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") if on_path else str(tmp_path))
    monkeypatch.setattr(sys, "argv", [called])
    assert command("train", "--resume", "a run") == f"{typed} train --resume 'a run'"


def test_another_heedful_on_the_path_is_not_this_one(tmp_path, monkeypatch):
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "heedful").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "theirs"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "ours" / "heedful")])
    assert program() == str(tmp_path / "ours" / "heedful")


# Mistakes


@pytest.mark.parametrize(
    "args, sentence",
    [
        (["inof"], 'there is no command "inof"; did you mean "info"?'),
        (
            ["zzz"],
            'there is no command "zzz"; there are answer, bench, caption, chat, choose, classify, ',
        ),
        (["--bath"], "there is no option --bath before a command; there are --help, --version"),
        (["--batch", "2"], 'there is no option --batch before a command; did you mean "tag --batch"?'),
        (["info", "gpt2", "--lenght", "3"], 'info has no option --lenght; did you mean "--length"?'),
        (["info", "gpt2", "--lenght=3"], 'info has no option --lenght; did you mean "--length"?'),
        (["info", "gpt2", "-b", "3"], "info has no option -b; there are --batch, --length, --source-length"),
        (["info", "gpt2", "--batch", "many"], "--batch takes a whole number, not 'many'"),
        (["info", "gpt2", "--length=1.5"], "--length takes a whole number, not '1.5'"),
        (["info", "gpt2", "--batch"], "--batch needs a value: a whole number"),
        (["info", "gpt2", "--batch", "--json"], "--batch needs a value: a whole number"),
        (["info", "gpt2", "--json=yes"], "--json stands alone, without a value"),
        (["info", "gpt2", "--precision", "bf61"], "takes fp32 or bf16, not 'bf61'; did you mean \"bf16\"?"),
        (
            ["train", "lm", "--valid-text", "x"],
            "train has no option --valid-text; it is a setting: --set data.valid_text=VALUE",
        ),
        (["train", "--every=3"], "--set evaluate.every=VALUE or --set checkpoint.every=VALUE"),
        (["info", "--valid-text", "x"], "info has no option --valid-text; there are --batch"),
        (["info", "gpt2", "bert-base"], 'info does not know what "bert-base" is for'),
        (["info", "gpt22"], 'there is no preset "gpt22"; did you mean "gpt2"?'),
        (["info", "nowhere/model"], "nowhere/model is not a folder"),
        (["info", "gpt2", "--batch", "0"], "batch must be at least 1, not 0"),
        (["info", "gpt2", "--batch", "-3"], "batch must be at least 1, not -3"),
        (
            ["info", "gpt2", "--length", "1025"],
            "a sequence of 1025 tokens does not fit the learned position table of 1024",
        ),
        (["info", "gpt2", "--source-length", "9"], "only an encoder-decoder has a source length"),
        (["info", "vit-b16", "--length", "9"], "224 x 224 pixels are always 197 tokens"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(args, sentence, capsys):
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert sentence in err


def test_debug_shows_where_an_error_came_from(capsys, monkeypatch):
    monkeypatch.setenv("HEEDFUL_DEBUG", "1")
    assert main(["info", "gpt22"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err and err.splitlines()[-1].startswith("error: there is no preset")


def test_a_value_error_of_anothers_code_is_not_the_users_mistake(capsys, stub):
    stub(lambda args: json.loads("{"))
    assert main(["info"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: JSONDecodeError") and "HEEDFUL_DEBUG=1 shows where" in err


@pytest.mark.parametrize(
    "error, code, words",
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (heedful.BadInput("line 3 is empty"), 2, "error: line 3 is empty"),
        (FileNotFoundError(2, "No such file", "data.txt"), 2, "error: data.txt: No such file"),
        (OSError(28, "No space left on device"), 5, "error: No space left on device"),
        (RuntimeError("odd"), 1, "error: RuntimeError: odd"),
    ],
)
def test_every_ending_has_its_exit_code(error, code, words, capsys, stub, monkeypatch):
    monkeypatch.setattr(cli, "give_up_stdout", lambda: None)

    def fail(args):
        raise error

    stub(fail)
    assert main(["info"]) == code
    assert capsys.readouterr().err.startswith(words)


def test_a_closed_pipe_ends_quietly():
    with start("info") as process:
        process.stdout.close()  # as `| head` does when it has seen enough
        err = process.stderr.read()
    assert (err, process.returncode) == ("", 141)


# heedful info


def info(capsys, *args):
    assert main(["info", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_info_as_json_has_what_programs_rely_on(capsys):
    found = info(capsys, "gpt2", "--batch", "3", "--length", "100")
    assert (found["name"], found["architecture"]) == ("gpt2", "gpt2")
    assert (found["batch"], found["length"]) == (3, 100)
    assert found["parameters"] == 124_439_808 == sum(part["parameters"] for part in found["parts"])
    assert found["config"]["width"] == 768
    assert found["flops_per_token"]["training"] == 3 * found["flops_per_token"]["forward"]
    assert found["memory"]["weights"] == 4 * found["parameters"]
    assert found["memory"]["cache"] == 3 * 100 * 12 * 2 * 768 * 4
    assert found["flops"]["forward"] == found["flops_per_token"]["forward"] * 3 * 100


def test_info_of_an_encoder_decoder_takes_a_source_length(capsys):
    short = info(capsys, "t5-small", "--length", "10", "--source-length", "20")
    long = info(capsys, "t5-small", "--length", "10", "--source-length", "40")
    assert long["flops"]["forward"] > short["flops"]["forward"]
    assert short["source_length"] == 20
    assert info(capsys, "t5-small", "--length", "10")["source_length"] == 10


def test_info_in_bf16_halves_the_cache_and_not_the_optimizer(capsys):
    full, half = info(capsys, "smollm2-135m"), info(capsys, "smollm2-135m", "--precision", "bf16")
    assert full["memory"]["cache"] == 2 * half["memory"]["cache"]
    assert full["memory"]["optimizer"] == half["memory"]["optimizer"]
    assert full["length"] == 8192


def test_info_of_a_folder_reads_no_weights(capsys, tmp_path, monkeypatch):
    config = GPT2Config(vocab=53, context=19, layers=2, width=12, heads=3, ffn_width=28)
    heedful.save(heedful.Loaded("gpt2", config, family("gpt2").build(config), None, {}), tmp_path)
    monkeypatch.setattr(read, "read_tensors", None)
    found = info(capsys, str(tmp_path))
    assert found["name"] == str(tmp_path) and found["length"] == 19
    assert found["parameters"] == sum(p.numel() for p in family("gpt2").build(config).parameters())


def test_info_of_a_folder_without_a_model_says_what_is_missing(capsys, tmp_path):
    assert main(["info", str(tmp_path)]) == 2
    assert "config.json is missing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpt2", "transformer-base", "bert-base", "vit-b16"])
def test_info_draws_a_tree_and_figures_that_fit_the_screen(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["info", name]) == 0
    out, err = capsys.readouterr()
    assert err == "" and max(map(len, out.splitlines())) <= 80
    for words in ("embeddings", "blocks", "feed-forward", "parameters", "FLOPs forward", "activations"):
        assert words in out
    assert f"{info(capsys, name)['parameters']:,}" in out


def test_info_without_a_name_lists_the_presets(capsys):
    assert main(["info"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert [row[0] for row in rows[1:-2]] == list(presets())
    assert ["gpt2", "gpt2", "124.4", "M"] in rows
    assert info(capsys)["presets"]["gpt3-175b"] == {"architecture": "gpt3", "parameters": 174_604_259_328}


@pytest.mark.parametrize(
    "number, words",
    [(0, "0"), (999, "999"), (1000, "1.0 k"), (999_960, "1.0 M"), (124_439_808, "124.4 M"), (1.5e9, "1.5 G")],
)
def test_counts_for_people(number, words):
    assert info_command.units(number) == words


@pytest.mark.parametrize(
    "size, words", [(7, "7 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (5 << 50, "5,120.0 TiB")]
)
def test_bytes_for_people(size, words):
    assert info_command.binary(size) == words


# Attention as shades


def test_heat_map_shades_by_weight():
    weights = torch.tensor([[0.8, 0.0, 0.2], [0.2, 0.4, 0.4]])
    assert heat_map(weights, ["a", "bc"], ["one", "two", "three"]).splitlines() == [
        "   one two three",
        " a ███     ░░░░░",
        "bc ░░░ ▒▒▒ ▒▒▒▒▒",
    ]
