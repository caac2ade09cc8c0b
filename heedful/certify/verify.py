"""A certificate taken again: the files by their hashes, and the model by another comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import BadInput, command
from ..files import present, read_json
from ..interop.formats import FORMATS, format_of, load
from .certificate import (
    DIFFERENT,
    PARITY,
    UNCHECKED,
    Certificate,
    Check,
    hashes,
    sha256,
    versions,
)
from .compare import compared
from .sides import Tell

LIMIT = 1 << 26  # bytes of a certificate
MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "*.gguf", "model.bin", "*.onnx", "*.onnx.data")
UNREAD = {"onnx": "ONNX graphs", "html": "pages"}  # formats that heedful writes only


def source_of(path: Path) -> dict[str, Any]:
    """What a certificate notes of the model that was exported: where it is, and the hashes of its weights."""
    return {"path": str(path), "files": weight_hashes(path)}


def weight_hashes(path: Path) -> dict[str, str]:
    """{file: its SHA-256} of a model's weights."""
    if path.is_file():
        return {path.name: sha256(path)}
    return {file.name: sha256(file) for end in MODEL_FILES for file in sorted(path.glob(end))}


def verified(path: Path, source: Path | None, tell: Tell) -> Certificate:
    """The certificate of an export, taken again.

    source: the model that it was exported from. Without one, it is the source that parity.json names, if its
    weights are still the same, else heedful's own reading of the export.
    """
    noted = noted_of(path)
    to = noted.get("format") or format_found(path)
    if to not in FORMATS:
        raise BadInput(f"{path} is no export: write one with `{command('export', path, 'OUT')}`")
    found = compared_again(path, to, noted, source or unchanged_source(noted), tell)
    if (files := check_files(path, noted)) is None:
        return found
    faults = (*files.faults, *found.faults) if files.faults or found.differs else found.faults
    verdict = DIFFERENT if files.faults else found.verdict
    return replace(found, verdict=verdict, faults=faults, checks=(files, *found.checks))


def noted_of(path: Path) -> dict[str, Any]:
    """The certificate beside an export; nothing if there is none, or if it is of other files."""
    if not path.exists():
        raise BadInput(f"{path} does not exist: give a folder or a file that heedful has exported")
    folder, own = path if path.is_dir() else path.parent, certificate_of_file(path)
    if present(own):
        return read_json(own, LIMIT)
    if not present(folder / PARITY):
        return {}
    noted = read_json(folder / PARITY, LIMIT)
    return noted if path.is_dir() or path.name in noted.get("files", {}) else {}


def certificate_of_file(path: Path) -> Path:
    """Where the certificate of an export of one file is: page.html.parity.json."""
    whole = path.absolute()  # "." has no name
    return whole.with_name(f"{whole.name}.{PARITY}")


def format_found(path: Path) -> str:
    """The format of an export that has no certificate."""
    if path.is_dir() and any(path.glob("*.onnx")):
        return "onnx"
    return "html" if path.is_file() and path.suffix == ".html" else format_of(path)


def unchanged_source(noted: dict[str, Any]) -> Path | None:
    """The source that a certificate names, if it is there and has the same weights."""
    said = noted.get("source") or {}
    if not isinstance(said, dict) or not said.get("files") or not Path(str(said.get("path"))).exists():
        return None
    path = Path(said["path"])
    return path if weight_hashes(path) == said["files"] else None


def compared_again(
    path: Path, to: str, noted: dict[str, Any], source: Path | None, tell: Tell
) -> Certificate:
    kind = str(noted.get("kind", "float32"))
    if source is not None:
        found = compared(load(source), path, to, kind, tell, str(source))
        return replace(found, more={"against": str(source)})
    more = {"against": "heedful's own reading"}
    if to in UNREAD:
        why = f"heedful does not read {UNREAD[to]}: give the model that it was exported from with --source"
        return Certificate(
            UNCHECKED, to, kind, str(noted.get("architecture", "")), versions(()), (why,), more=more
        )
    try:
        loaded = load(path)
    except BadInput as error:
        if not noted:
            raise  # it never was an export
        fault = (f"heedful cannot read it: {error}",)
        return Certificate(
            DIFFERENT, to, kind, str(noted.get("architecture", "")), versions(()), fault, more=more
        )
    return replace(compared(loaded, path, to, None, tell, str(path)), more=more)


def check_files(path: Path, noted: dict[str, Any]) -> Check | None:
    """Compare the hashes of all files with those of the certificate; None if it has none."""
    expected = noted.get("files")
    if not isinstance(expected, dict) or not expected:
        return None
    one = noted.get("format") in FORMATS and FORMATS[noted["format"]].single
    found = {path.name: sha256(path)} if one else hashes(path if path.is_dir() else path.parent)
    missing = sorted(expected.keys() - found.keys())
    changed = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    more = sorted(found.keys() - expected.keys())
    faults = [f"{name} is missing" for name in missing]
    faults += [f"{name} has changed since the certificate was written" for name in changed]
    same = len(expected) - len(missing) - len(changed)
    result = {"equal": same, "of": len(expected), "missing": missing, "changed": changed, "added": more}
    line = f"{same} of {len(expected)} files have the SHA-256 that {PARITY} notes"
    return Check("files", line, {}, result, tuple(faults))
