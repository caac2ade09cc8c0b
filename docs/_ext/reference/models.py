"""Every architecture: its papers, what it loads, what it exports, the tasks that train it, and its sizes."""

import ast
from functools import cache
from pathlib import Path

import heedful.models
from heedful.cli.info import export_formats, units
from heedful.inside.costs import count_parameters
from heedful.interop.formats import FORMATS
from heedful.interop.gguf.config import ARCHITECTURES as GGUF
from heedful.models import FAMILIES, kind_of, listed, presets
from heedful.models.base.skeleton import skeleton
from heedful.tasks import find_task, task_files

from .markdown import code, prose
from .papers import pattern

FOLDER = Path(heedful.models.__file__).parent
HEADINGS = {  # by the class that an architecture builds
    "Decoder": "Decoders",
    "WithHeads": "Encoders",
    "EncoderDecoder": "Encoder-decoders",
    **dict.fromkeys(("SyntaxEncoder", "LanguageModels", "VectorReader"), "Words, trees and ELMo"),
}
OTHERS = "Pictures"


def models_page() -> str:
    """A section for each kind of model, with its architectures."""
    headings = dict.fromkeys([*HEADINGS.values(), OTHERS])
    grouped = {heading: [name for name in FAMILIES if heading_of(name) == heading] for heading in headings}
    return "\n".join(f"## {heading}\n\n" + "".join(map(section, some)) for heading, some in grouped.items())


def heading_of(name: str) -> str:
    return HEADINGS.get(kind_of(name), OTHERS)


def section(name: str) -> str:
    """An architecture: what it is, as its file says, and a list of facts."""
    facts = {
        "Code": f"`heedful/models/{name}.py`"
        + (f", [settings](architectures.md#{name})" if name in tried() else ""),
        "Loads": ", ".join(loads(name)),
        "Exports": ", ".join(map(code, exports(name))) or "none",
        "Tasks": ", ".join(f"[{task}](settings.md#{task})" for task in trained_by()[name]),
        "Presets": ", ".join(f"{code(preset)} ({size})" for preset, size in sizes(name).items()),
    }
    lines = "\n".join(f"- {title}: {fact}" for title, fact in facts.items() if fact)
    return f"### {name}\n\n{described(name)}\n\n{lines}\n\n"


def described(name: str) -> str:
    """The first paragraph of the file's own description, and those that cite more papers."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))) or ""
    first, *more = text.split("\n\n")
    return "\n\n".join(map(prose, [first, *filter(pattern().search, more)]))


def loads(name: str) -> list[str]:
    """What is read without a conversion."""
    found = [code(kind) for kind in listed(name).get("MODEL_TYPES", ())]
    hf = [f"Hugging Face {', '.join(found)}"] if found else []
    return [*hf, *(["GGUF"] if name in GGUF else [])]


def exports(name: str) -> list[str]:
    """The formats that take at least one of its presets."""
    able = [
        {form for form, why in export_formats(Path(preset), name, config).items() if why is None}
        for preset, (family, config) in presets().items()
        if family == name
    ]
    return [form for form in FORMATS if any(form in some for some in able)]


def sizes(name: str) -> dict[str, str]:
    """{preset: its parameters}."""
    found = {preset: config for preset, (family, config) in presets().items() if family == name}
    return {preset: units(count_parameters(skeleton(name, c)), "kMBT") for preset, c in found.items()}


@cache
def trained_by() -> dict[str, list[str]]:
    """{architecture: the tasks that train it}."""
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for task in sorted(task_files()):
        for name in find_task(task).all_architectures():
            found[name].append(task)
    return found


@cache
def tried() -> set[str]:
    """The architectures that have a table of settings."""
    return {name for task in task_files() for name in find_task(task).architectures}
