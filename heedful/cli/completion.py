"""Shell completion: scripts for bash, zsh and fish, made from the dataclasses of the commands."""

from __future__ import annotations

import typing
from collections.abc import Callable

from ..errors import BadInput
from ..lab.contents import claim_files
from ..models import preset_families
from ..tasks import STAGED, task_files
from .shared import arguments
from .shared.commands import COMMANDS, options_of

# What help calls the value of an option that names a file or a folder.
FILES = ("FILE", "PATH", "FOLDER", "DIR", "RUN", "RUN|FOLDER", "NAME|FOLDER")


def script(shell: str = "") -> str:
    """The script of a shell, to be sourced by it."""
    if shell not in SHELLS:
        near = arguments.suggestion(shell, list(SHELLS))
        raise BadInput(f"--print-completion takes {', '.join(SHELLS)}, not {arguments.quoted(shell)}{near}")
    return SHELLS[shell]().rstrip("\n")


# What can be typed


def choices(hint: object) -> list[str]:
    """The values of an option, where there are only some; True and False for one that stands alone."""
    return [kind for kind in arguments.kinds_of(hint) if isinstance(kind, str)]


def stands_alone(hint: object) -> bool:
    return bool in arguments.kinds_of(hint)


def names_file(hint: object) -> bool:
    """Whether its value is a file or a folder, by what help calls it."""
    return arguments.metavar(hint) in FILES


def places(command: str) -> list[object]:
    """The types of what stands after a command without an option before it."""
    hints = typing.get_type_hints(options_of(command), include_extras=True)
    return [hint for hint in hints.values() if arguments.is_positional(hint)]


def first_words(command: str) -> list[str]:
    """The words that may stand first after a command, where they are known."""
    if command in ("info", "plan"):
        return list(preset_families())
    if command == "train":
        return sorted([*task_files(), STAGED])
    if command == "compare":
        return [*task_files(), "history"]
    if command == "lab":
        return ["list", "run", "all", *claim_files()]
    return choices(places(command)[0]) if places(command) else []


def takes_files(command: str) -> bool:
    """Whether a file or a folder may stand there without an option."""
    return any(map(names_file, places(command)))


# Three shells


def bash() -> str:
    cases = []
    for command in COMMANDS:
        options = arguments.options(command)
        cases.append(f"    {command})")
        cases.append('        case "$before" in')
        for option, hint in options.items():
            if some := choices(hint):
                cases.append(f'            {option}) words="{" ".join(some)}" ;;')
            elif names_file(hint):
                cases.append(f"            {option}) files=1 ;;")
            elif not stands_alone(hint):
                cases.append(f"            {option}) return ;;")
        files = "; files=1" if takes_files(command) else ""
        cases.append(f'            *) words="{" ".join([*options, "--help"])}"{files} ;;')
        cases.append("        esac")
        if some := first_words(command):
            cases.append(f'        [ "$COMP_CWORD" -eq 2 ] && words="{" ".join(some)} $words"')
        cases.append("        ;;")
    first = " ".join([*COMMANDS, "--help", "--version", "--print-completion"])
    return (
        BASH.replace("@FIRST@", first)
        .replace("@SHELLS@", " ".join(SHELLS))
        .replace("@CASES@", "\n".join(cases))
    )


BASH = """\
# bash completion for heedful: source <(heedful --print-completion bash)
_heedful() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words="" files=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@FIRST@" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]}" in
    --print-completion) words="@SHELLS@" ;;
@CASES@
    esac
    case "$word" in -*) files="" ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [ -n "$files" ]; then
        local IFS=$'\\n'
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _heedful heedful
"""


def zsh() -> str:
    listed = "\n".join(f"        {quoted(f'{name}:{summary}')}" for name, summary in COMMANDS.items())
    cases = []
    for command in COMMANDS:
        lines = []
        for option, hint in arguments.options(command).items():
            some = choices(hint)
            values = f"({' '.join(some)})" if some else "_files" if names_file(hint) else ""
            lines.append(quoted(option if stands_alone(hint) else f"{option}:value:{values}"))
        lines.append(quoted("--help"))
        if some := first_words(command):
            words = " ".join(some)
            lines.append(
                quoted(f"1:word:{{compadd {words}; _files}}" if takes_files(command) else f"1:word:({words})")
            )
        lines += [quoted("*:file:_files")] if takes_files(command) else []
        cases.append(f"        {command}) _arguments {' '.join(lines)} ;;")
    return (
        ZSH.replace("@LISTED@", listed)
        .replace("@SHELLS@", " ".join(SHELLS))
        .replace("@CASES@", "\n".join(cases))
    )


ZSH = """\
#compdef heedful
# zsh completion for heedful: source <(heedful --print-completion zsh), after compinit
_heedful() {
    local -a commands
    commands=(
@LISTED@
        '--help:this text' '--version:the version' '--print-completion:a script for a shell'
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command="$words[2]"
    shift words
    (( CURRENT-- ))
    case "$command" in
        --print-completion) _values shell @SHELLS@ ;;
@CASES@
    esac
}
compdef _heedful heedful
"""


def fish() -> str:
    lines = ["# fish completion for heedful: heedful --print-completion fish | source"]
    none = "__fish_use_subcommand"
    lines += [
        f"complete -c heedful -n {none} -f -a {name} -d {quoted(summary)}"
        for name, summary in COMMANDS.items()
    ]
    lines += [f"complete -c heedful -n {none} -f -l {name}" for name in ("help", "version")]
    lines += [f"complete -c heedful -n {none} -x -l print-completion -a {quoted(' '.join(SHELLS))}"]
    for command in COMMANDS:
        here = quoted(f"__fish_seen_subcommand_from {command}")
        for option, hint in arguments.options(command).items():
            some = choices(hint)
            values = f" -x -a {quoted(' '.join(some))}" if some else " -r -F" if names_file(hint) else " -x"
            lines.append(
                f"complete -c heedful -n {here} -l {option[2:]}{'' if stands_alone(hint) else values}"
            )
        if some := first_words(command):
            first = quoted(
                f"__fish_seen_subcommand_from {command}; and test (count (commandline -opc)) -eq 2"
            )
            lines.append(f"complete -c heedful -n {first} -a {quoted(' '.join(some))}")
        if not takes_files(command):
            lines.append(f"complete -c heedful -n {here} -f")
    return "\n".join(lines)


def quoted(text: str) -> str:
    """For any of the three; a quote itself is left out rather than escaped in three ways."""
    return "'" + text.replace("'", "") + "'"


SHELLS: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
