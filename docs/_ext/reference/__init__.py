"""Reference pages from the code: it says what stands at `<!-- generated: NAME -->` of a page.

Each NAME is a function of this package that returns Markdown. Nothing is written into the pages themselves.
"""

import re

from sphinx.application import Sphinx

from .commands import commands
from .configs import configs
from .endpoints import endpoints
from .exit_codes import exit_codes
from .lectures import gpt_table
from .models import models_page
from .papers import LinksToPapers, papers_page
from .public import index
from .settings import architectures, tasks
from .slides import PLACES as SLIDES
from .versions import bibtex, versions_table

GENERATED = {
    "bibtex": bibtex,
    "commands": commands,
    "configs": configs,
    "endpoints": endpoints,
    "exit codes": exit_codes,
    "gpt": gpt_table,
    "models": models_page,
    "papers": papers_page,
    "public names": index,
    "settings of tasks": tasks,
    "settings of architectures": architectures,
    "versions": versions_table,
    **SLIDES,
}
PLACE = re.compile(r"^<!-- generated: (.*) -->$", re.MULTILINE)


def fill(app: Sphinx, name: str, source: list[str]) -> None:
    """The source of a page with what is generated in it."""
    source[0] = PLACE.sub(lambda place: GENERATED[place[1]](), source[0])


def always_outdated(app: Sphinx, *_: object) -> list[str]:
    """Pages that follow from the code are read at every build."""
    pages = [(name, app.env.doc2path(name)) for name in app.env.all_docs]
    return [name for name, path in pages if path.is_file() and PLACE.search(path.read_text(encoding="utf-8"))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(LinksToPapers)
    app.connect("source-read", fill)
    app.connect("env-get-outdated", always_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
