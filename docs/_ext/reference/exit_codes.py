"""The exit codes of all commands."""

from heedful.cli.shared.exit_codes import MEANINGS

from .markdown import prose, table


def exit_codes() -> str:
    return table(("code", "meaning"), ((str(number), prose(text)) for number, text in MEANINGS.items()))
