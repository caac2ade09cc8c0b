"""The API reference: the names that a page lists in a {public} fence, with their documentation.

The fence becomes directives of Sphinx's autodoc. Names in docstrings become links, and every name has a link
to its line in the listing of its file (repository.py).
"""

import inspect
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from helpers.public_names import FENCE, PublicName, public_names
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).parents[2]
UP = "../../source"  # from a page of docs/reference/api to the listings


def fill(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the fences of a page."""
    source[0] = FENCE.sub(lambda found: section(found[1], found[2].split()), source[0])


def section(module: str, names: list[str]) -> str:
    """The directives for the names of a module; members follow their class."""
    files = sorted({file_of(PublicName("", module, name)) for name in names if "." not in name})
    lines = []
    for name in names:
        if "." in name:
            continue
        is_class = inspect.isclass(PublicName("", module, name).member)
        lines += [f".. {'autoclass' if is_class else 'autofunction'}:: {module}.{name}"]
        if members := [one.rpartition(".")[2] for one in names if one.startswith(f"{name}.")]:
            lines += [f"   :members: {', '.join(members)}", "   :member-order: bysource"]
        lines += [""]
    where = ", ".join(f"`{file}`" for file in files)
    imported = ", ".join(name for name in names if "." not in name)
    shown = f"from {module} import ..." if len(imported) > 60 else f"from {module} import {imported}"
    body = "\n".join(lines)
    return f"```python\n{shown}\n```\n\nSource: {where}.\n\n```{{eval-rst}}\n{body}\n```\n"


def file_of(name: PublicName) -> str:
    """The source file of a name, from the root of the repository."""
    return str(Path(inspect.getsourcefile(inspect.unwrap(name.member)) or "").relative_to(ROOT))


def source_link(domain: str, info: dict[str, str]) -> str | None:
    """The address of the line where a name is defined, for sphinx.ext.linkcode."""
    member: Any = PublicName("", info["module"], info["fullname"]).member
    member = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "func", None) or member)
    file = Path(inspect.getsourcefile(member) or "").relative_to(ROOT)
    return f"{UP}/{file}.html#line-{inspect.getsourcelines(member)[1]}"


@cache
def by_short_name() -> dict[str, str]:
    """{"Answer" or "Model.trace": the full name}, where one public name has it."""
    found: dict[str, list[str]] = {}
    for one in public_names():
        for short in {one.name, one.short, one.full}:
            found.setdefault(short, []).append(one.full)
    return {short: names[0] for short, names in found.items() if len(names) == 1}


def link_short_names(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """A name that docstrings say without its module."""
    full = by_short_name().get(node["reftarget"].removesuffix("()"))
    if node.get("refdomain") != "py" or full is None or full == node["reftarget"]:
        return None
    domain = env.domains["py"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, content)


def drop_unclear(app: Sphinx, tree: nodes.document) -> None:
    """Of `.text()`, which several classes have, no link is made: the sentence says whose method it is."""
    for node in list(tree.findall(pending_xref)):
        end = "." + node["reftarget"].removesuffix("()")
        if node.get("refspecific") and sum(one.full.endswith(end) for one in public_names()) > 1:
            node.replace_self(node.children)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", fill)
    app.connect("doctree-read", drop_unclear)
    app.connect("missing-reference", link_short_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
