"""The files of the page: exactly those in heedful/studio/static, each with its type."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    "": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def listing() -> dict[str, Path]:
    """Every file by its path below the folder: what is not in here is not served."""
    found = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if path.suffix in TYPES and not path.is_symlink()}


def type_of(name: str) -> str:
    """The content type of a file."""
    return TYPES[Path(name).suffix]


@lru_cache(maxsize=256)
def packed(path: Path, changed: int) -> bytes:
    """A file for browsers that take gzip. changed: when it was written, so that a new one is packed again."""
    return gzip.compress(path.read_bytes(), mtime=0)
