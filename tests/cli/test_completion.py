"""Shell completion: commands, options, choices and files."""

import subprocess
import sys

import pytest

from heedful.cli import completion
from heedful.cli.main import main
from heedful.cli.shared import arguments
from heedful.cli.shared.commands import COMMANDS
from heedful.models import presets


def test_bash_completes_commands_options_choices_and_files(tmp_path, monkeypatch, capsys):
    (tmp_path / "my run").mkdir()
    assert main(["--print-completion", "bash"]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    cases = {
        ("heedful", "tr"): ["train", "translate"],
        ("heedful", "--v"): ["--version"],
        ("heedful", "translate", "--be"): ["--beam", "--beam-groups"],
        ("heedful", "translate", "--device", ""): ["auto", "cpu", "cuda"],
        ("heedful", "translate", "--length-penalty", "g"): ["gnmt"],
        ("heedful", "translate", "--beam", ""): [],
        ("heedful", "translate", "my"): ["my run"],
        ("heedful", "generate", "--draft", "m"): ["my run"],
        ("heedful", "train", "cl"): ["classify"],
        ("heedful", "train", "m"): ["mlm"],  # and not "my run", for no file stands there
        ("heedful", "train", "lm", "cl"): [],
        ("heedful", "compare", "hi"): ["history"],
        ("heedful", "train", "--from", "m"): ["my run"],
        ("heedful", "info", "gpt2-"): ["gpt2-medium", "gpt2-large", "gpt2-xl"],
        ("heedful", "info", "mi"): ["mixture-8x124m"],
        ("heedful", "info", "gpt2", "gpt2-"): [],
        ("heedful", "plan", "gpt3-1"): ["gpt3-125m", "gpt3-1.3b", "gpt3-13b", "gpt3-175b"],
        ("heedful", "plan", "gpt2", "--gpu", ""): ["h200", "h100", "a100"],
        ("heedful", "embed", "runs", "--json", "--po"): ["--pooling"],
        ("heedful", "--print-completion", "z"): ["zsh"],
    }
    calls = "".join(
        f"COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _heedful; "
        'printf "%s;" "${COMPREPLY[@]}"; echo\n'
        for words in cases
    )
    done = subprocess.run(
        ["bash", "-c", f"source {script}; cd {tmp_path}\n{calls}"], capture_output=True, text=True, check=True
    )
    found = [[word for word in line.split(";") if word] for line in done.stdout.splitlines()]
    assert found == list(cases.values()) and done.stderr == ""


def test_the_presets_that_a_shell_completes_are_those_there_are():
    assert completion.first_words("info") == list(presets())
    code = """import sys, heedful.cli.completion as c
for shell in c.SHELLS:
    c.script(shell)
print("torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_can_be_completed(shell, capsys):
    assert main(["--print-completion", shell]) == 0
    out = capsys.readouterr().out
    assert shell in out.splitlines()[0] or shell in out.splitlines()[1]
    for command in COMMANDS:
        assert command in out
        for option in arguments.options(command):
            assert (f"-l {option[2:]}" if shell == "fish" else option) in out
    assert out.count("'") % 2 == 0


@pytest.mark.parametrize(
    "args", [["--print-completion"], ["--print-completion", "tcsh"], ["--print-completion=fsh"]]
)
def test_a_shell_that_is_not_known_is_refused(args, capsys):
    assert main(args) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --print-completion takes bash, zsh, fish") and said.count("\n") == 1


def test_completion_is_told_of_in_the_help(capsys):
    assert main(["--help"]) == 0
    assert "source <(heedful --print-completion bash)" in capsys.readouterr().out
