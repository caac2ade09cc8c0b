"""Pictures in notebooks: one fragment of HTML with the colors of light and dark pages.

Every color is written as `light-dark(one, other)`. Which of them holds follows from `color-scheme`: the
browser's own preference, unless the notebook marks its theme (JupyterLab, VS Code, Colab and others do).
Browsers without `light-dark` show the light colors, paper included. Nothing is fetched and no script runs.
"""

from __future__ import annotations

CLASS = "heedful-picture"
LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light", '[data-theme="light"]', '[theme="light"]')
DARK = ('[data-jp-theme-light="false"]', ".vscode-dark", '[data-theme="dark"]', '[theme="dark"]')
NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # a file needs it, a page does not


def under(marks: tuple[str, ...]) -> str:
    """A selector of the pictures below any of these marks."""
    return ",".join(f"{mark} .{CLASS}" for mark in marks)


RULES = (
    f".{CLASS}{{color-scheme:light dark;overflow-x:auto}}"
    f"{under(LIGHT)}{{color-scheme:light}}{under(DARK)}{{color-scheme:dark}}"
    f".{CLASS} svg{{color-scheme:inherit!important;display:block}}"
)


def framed(content: str) -> str:
    """A picture for a notebook: its HTML or SVG, with the rules that choose between its colors."""
    return f'<div class="{CLASS}"><style>{RULES}</style>{content.replace(NAMESPACE, "")}</div>'


def both(light: str, dark: str) -> str:
    """A color for light pages, and one for dark pages."""
    return f"light-dark({light},{dark})"
