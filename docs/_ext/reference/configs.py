"""Every architecture from Python: what to import, what `build` returns, and the fields of its config."""

import typing
from dataclasses import MISSING, fields
from typing import Any

from heedful.cli.shared.train_help import explained, shown_value
from heedful.models import FAMILIES, config_class, kind_of, listed
from heedful.models.base.settings import settings_of

from .markdown import code, prose, table
from .models import HEADINGS, OTHERS, heading_of


def configs() -> str:
    """A section for each kind of model, with its architectures."""
    headings = dict.fromkeys([*HEADINGS.values(), OTHERS])
    grouped = {heading: [name for name in FAMILIES if heading_of(name) == heading] for heading in headings}
    return "\n".join(f"## {heading}\n\n" + "".join(map(section, some)) for heading, some in grouped.items())


def section(name: str) -> str:
    """An architecture: the line that imports it, and its fields in a fold."""
    config = config_class(name)
    presets = ", ".join(map(code, listed(name)["PRESETS"]))
    line = f"from heedful.models.{name} import {config.__name__}, build"
    papers = f"[Papers and formats](../models.md#{name})"
    said = f"`build(config)` returns `{kind_of(name)}`. Presets: {presets}. {papers}."
    rows = table(("field", "default", "meaning"), field_rows(config))
    fold = f"::::{{dropdown}} Fields of {config.__name__}\n{rows}::::"
    return f"### {name}\n\n```python\n{line}\n```\n\n{said}\n\n{fold}\n\n"


def field_rows(config: type[Any]) -> list[tuple[str, str, str]]:
    """(field, default, meaning) of every field of a config."""
    settings = settings_of(config)
    hints = typing.get_type_hints(config, include_extras=True)
    rows = []
    for field in fields(config):
        if field.name in settings:
            meaning = explained(settings[field.name], "")
        else:
            meaning = next((note for note in hints[field.name].__metadata__ if isinstance(note, str)), "")
        default = "" if field.default is MISSING else shown_value(field.default)
        rows.append((code(field.name), prose(default), prose(meaning)))
    return rows
