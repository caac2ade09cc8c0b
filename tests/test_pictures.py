"""Pictures of the pages: each can be heard, and each has the colors of light and of dark pages."""

import re
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
DRAWN = sorted([*(ROOT / "docs").rglob("*.svg"), *(ROOT / "benchmarks").glob("*.svg")])
SPACE = "{http://www.w3.org/2000/svg}"
WITHOUT_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def images() -> list[tuple[str, str, str]]:
    """(page, alternative text, file) of every image in a page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        plain = WITHOUT_CODE.sub("", text)
        found += [(name_of(page), alt, file) for alt, file in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", plain)]
        for tag in re.findall(r"<img [^>]*>", text):
            alt, file = (re.search(rf'\b{name}="([^"]*)"', tag) for name in ("alt", "src"))
            found.append((name_of(page), alt[1] if alt else "", file[1] if file else ""))
        for file, options in re.findall(
            r"^[`:]{3,}\{(?:image|figure)\} (\S+)\n((?::\w.*\n)*)", text, re.MULTILINE
        ):
            alt = re.search(r":alt: (.*)", options)
            found.append((name_of(page), alt[1] if alt else "", file))
    return found


@pytest.mark.parametrize("page, alt, file", images(), ids=lambda value: value[-40:])
def test_every_image_has_a_text_that_says_what_it_shows(page, alt, file):
    assert len(alt.split()) >= 4, f"{page}: {file}"
    assert Path(file).name not in alt
    assert file.startswith("http") or ((ROOT / page).parent / file).is_file()


@pytest.mark.parametrize("file", DRAWN, ids=name_of)
def test_every_drawing_has_a_title_and_the_colors_of_both_themes(file):
    root = ET.parse(file).getroot()
    title = root.find(f"{SPACE}title")
    assert root.attrib["role"] == "img" and len(title.text.split()) >= 3
    assert "color-scheme:light dark" in root.attrib["style"]
    for one in root.iter():
        for name in ("fill", "stroke"):
            if one.attrib.get(name, "none").startswith("#"):
                assert f"{name}:light-dark(" in one.attrib["style"]
        assert "fill" in one.attrib or not one.tag.endswith("}text")  # black would vanish on dark pages


def test_drawings_are_not_committed_as_pixels():
    """A PNG has one background: only screenshots, and pictures that consist of pixels, are PNG files."""
    pixels = {"painted-fashion.png", "shapes.png"}
    for file in (ROOT / "docs").rglob("*.png"):
        assert file.name in pixels or file.stem.startswith("studio-")
        assert struct.unpack(">II", file.read_bytes()[16:24])[0] <= 3000
