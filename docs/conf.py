"""The documentation site: `make docs` writes it into build/site, without a network."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext"), str(ROOT / "tests")]

from api import source_link
from sphinx.application import Sphinx

import heedful

project = author = "heedful"
version = release = heedful.__version__
project_copyright = "the heedful authors, Apache License 2.0"
extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "api",
    "stored_runs",
    "lessons",
    "descriptions",
    "reference",
    "repository",
]
exclude_patterns = ["_ext", "_static"]
smartquotes = False  # options begin with two hyphens
highlight_language = "text"  # of a fence without a word
suppress_warnings = ["config.cache"]  # settings of furo that are functions are not kept between builds

# Pages are Markdown. Links to headings use GitHub's anchors, so that they work there too.
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# Cells run where the stored runs lie in runs/ (_ext/stored_runs.py); a cell that fails stops the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

# The API reference comes from docstrings with Google's sections; a word in backticks is a name or code.
default_role = "py:obj"
add_module_names = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
linkcode_resolve = source_link

html_theme = "furo"
html_title = f"heedful {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["translator.html"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
templates_path: list[str] = []
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # figures of cells are those of one thread, on every machine


def setup(app: Sphinx) -> None:
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True  # it only copies files at the end
