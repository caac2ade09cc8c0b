"""Write the decoding options into the docstrings of the methods that take them.

    python tools/option_docs.py           writes the files
    python tools/option_docs.py --check   names those that are out of date, with exit code 1

The options, their ranges and their texts stand in heedful/decode/options.py. An editor that shows a docstring
does not run the code, so they are written down: in the section "Keyword Args" of each method.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from pathlib import Path
from textwrap import fill
from typing import Any

from heedful.decode.options import COMMANDS, DecodingOption, decoding_options
from heedful.models.base.settings import Range
from heedful.use.model import Model

USE = Path(__file__).parents[1] / "heedful" / "use"
WIDTH = 110
SECTION = re.compile(r"^    Keyword Args:\n(?:        .*\n)*", re.MULTILINE)
METHODS = ("translate", "summarize", "caption", "generate", "stream", "beam_tree")  # and files of heedful/use
INDENTS: dict[str, Any] = {
    "initial_indent": " " * 8,
    "subsequent_indent": " " * 12,
    "break_on_hyphens": False,
}
# Sentences of the command's help.
NOT_HERE = re.compile(r" (?:On the|The) command line[^.]*\.| Plain output [^.]*\.")


def section(name: str) -> str:
    """The options that a method takes."""
    taken = inspect.signature(getattr(Model, name)).parameters
    rows = [row(one, name) for one in decoding_options().values() if one.name in taken]
    return "    Keyword Args:\n" + "".join(rows)


def row(option: DecodingOption, method: str) -> str:
    """An option as Google's docstrings have it: its type, its meaning, its range and its default."""
    kind = kind_of(option.hint)
    limits = "" if (found := range_of(option)) is None else f" {found}."
    only = () if method in COMMANDS or len(option.use.commands) > 3 else option.use.commands
    some = f" For models that can {' or '.join(only)}." if only else ""
    text = f"{option.name} ({kind}): {option.help}{limits} Default: {default_of(option)}.{some}"
    return fill(NOT_HERE.sub("", text), WIDTH, **INDENTS) + "\n"


def kind_of(hint: object) -> str:
    """A type in the words of Python."""
    if hint is type(None):
        return "None"
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(f'"{one}"' for one in typing.get_args(hint))
    if hint is typing.Any:
        return "str or Model"
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    parts = typing.get_args(hint) if "|" in str(hint) else (hint,)
    words = [kind_of(one) if one is not hint else str(one) for one in parts]
    clean = [re.sub(r"\w+\.(?=[A-Z])|, \.\.\.", "", word).replace("collections.abc.", "") for word in words]
    return " or ".join(word for word in clean if word != "None")


def range_of(option: DecodingOption) -> str | None:
    """The least and the greatest value."""
    limits = None if option.setting is None else option.setting.limits
    if not isinstance(limits, Range):
        return None
    return f"From {limits.least:g} to {limits.most:,g}" if limits.most < 1e6 else f"At least {limits.least:g}"


def default_of(option: DecodingOption) -> str:
    """What holds where the option is left out."""
    if option.use.default:
        return option.use.default
    return f'"{option.default}"' if isinstance(option.default, str) else str(option.default)


def written(name: str, text: str) -> str:
    """A file with its options as they are."""
    if len(SECTION.findall(text)) != 1:
        raise SystemExit(f'heedful/use/{name}.py must have one section "Keyword Args"')
    return SECTION.sub(lambda _: section(name), text)


def main(check: bool) -> int:
    stale = []
    for name in METHODS:
        file = USE / f"{name}.py"
        text = file.read_text(encoding="utf-8")
        if (new := written(name, text)) != text:
            stale.append(file.name)
            if not check:
                file.write_text(new, encoding="utf-8")
    if stale:
        print(f"{'out of date' if check else 'written'}: {', '.join(stale)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
