"""A page: a model as one file, with its certificate beside it and in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BadInput
from ...files import flush, naming, present
from .exchange import free_name, report

if TYPE_CHECKING:
    from ...certify.certificate import Certificate
    from ...interop.loaded import Loaded

PAGE = "model.html"  # while it is written


def check_page(out: Path, over: bool) -> None:
    """Refuse to write over anything but a page that was exported before, and that only if asked."""
    with naming(out):
        if out.suffix.lower() not in (".html", ".htm") or not out.stem:
            raise BadInput(f"{out} is no name of a page: give one that ends in .html")
        if not present(out):
            return
        if out.is_dir():
            raise BadInput(f"{out} is a folder, and a page is a file: give a free name")
        if not over:
            raise BadInput(f"{out} exists: give another name, or --replace")
        if not present(beside(out)):
            raise BadInput(f"{out} has no {beside(out).name} beside it, so heedful did not export it: "
                           f"remove it yourself first")  # fmt: skip


def beside(page: Path) -> Path:
    """Where the certificate of a page is."""
    from ...certify.verify import certificate_of_file

    return certificate_of_file(page)


READ_OTHERWISE = ("summarize", "choose")  # tasks that prepare their texts in ways that a page does not


def check_task(source: Path) -> None:
    """Refuse a run whose task reads texts in another way than the page would."""
    from ...corpora.phrasebook.labels import PAIRED
    from ...interop.run_files import recipe
    from ...interop.run_folder import is_run

    if not source.is_dir() or not is_run(source):
        return
    settings = recipe(source)
    data = settings.get("data") or {}
    if settings.get("task") in READ_OTHERWISE:
        raise BadInput(f"a run of {settings['task']} has no page: export to onnx")
    if data.get("pair_column") or data.get("corpus") and data.get("label") in PAIRED:
        raise BadInput(f"{source} classifies pairs of texts, and a page reads one: export to onnx")


def check_size(aside: Path, large: bool) -> None:
    """Refuse a page that small machines cannot open, unless it is requested."""
    from ...interop.html.write import MOST

    size = (aside / PAGE).stat().st_size
    if size > MOST and not large:
        raise BadInput(
            f"the page has {size / 2**20:.0f} MB, and browsers open {MOST // 2**20} MB on most machines: "
            f"give --quantize int8, or --large"
        )


def finish_page(
    certificate: Certificate,
    aside: Path,
    out: Path,
    as_json: bool,
    tell: Callable[[str], None],
    source: Path,
    loaded: Loaded,
) -> int:
    """Put the certificate into the page, put both in their places, and print the result."""
    from ...certify.certificate import as_text
    from ...certify.probe import probe_of
    from ...interop.html.page import with_story
    from ...interop.html.story import story_of

    place = free_name(out, ".html") if certificate.differs else out
    probe = probe_of(loaded, aside, certificate.format, certificate.kind)
    story = story_of(source, loaded, certificate.as_json(), probe)
    page = with_story((aside / PAGE).read_text(encoding="utf-8"), story)
    (aside / PAGE).write_text(page, encoding="utf-8")
    (aside / PAGE).rename(aside / place.name)
    content, text = as_text(certificate, aside)
    (aside / beside(place).name).write_text(text, encoding="utf-8")
    for path in (place, beside(place)):
        flush(aside / path.name)
        os.replace(aside / path.name, path)
    flush(place.parent)
    return report(certificate, place, content, as_json, tell)
