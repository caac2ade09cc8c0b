"""Write heedful/studio/static/vendor/ from the tarballs of the npm registry.

    python tools/vendor.py                    # npm fetches them
    python tools/vendor.py --tarballs DIR     # read NAME-VERSION.tgz from a folder

The files are the published builds, with three changes: an import by name becomes an import by path, default
exports become named exports, and source maps are not mentioned. `vendor.json` records each package's version
and SHA-256, and the SHA-256 of every file written.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "heedful" / "studio" / "static" / "vendor"
PACKAGES = {  # name: version, license, files here: files there
    "preact": (
        "11.2.0",
        "MIT",
        {"preact.js": "dist/preact.mjs", "hooks.js": "hooks/dist/hooks.mjs"},
    ),
    "htm": ("3.1.1", "Apache-2.0", {"htm.js": "dist/htm.module.js"}),
}


def as_module(name: str, text: str) -> str:
    """A published file as a module with named exports and relative imports."""
    text = re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", text)
    text = text.replace('from"preact"', 'from"./preact.js"')
    if name == "htm.js":
        text, count = re.subn(r"export default function\s*\(", "export function htm(", text)
        assert count == 1, "htm exports one function"
    return text if text.endswith("\n") else f"{text}\n"


def tarball(name: str, version: str, folder: Path | None) -> bytes:
    if folder is not None:
        return (folder / f"{name}-{version}.tgz").read_bytes()
    with tempfile.TemporaryDirectory() as aside:
        subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=aside, check=True)
        return tarball(name, version, Path(aside))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def short(terms: str) -> str:
    """The terms of a package; the Apache License, which is heedful's own too, by its copyright lines only."""
    if "Apache License" not in terms:
        return terms
    owners = [line.strip() for line in terms.splitlines() if re.match(r"\s*Copyright \d", line)]
    return "\n".join([*owners, "Apache License, Version 2.0: its text is the file LICENSE of heedful."])


def write(folder: Path | None, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    records, licenses = [], []
    for name, (version, license_name, files) in PACKAGES.items():
        data = tarball(name, version, folder)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            content = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            texts = {here: content[f"package/{there}"].read().decode() for here, there in files.items()}
            terms = content["package/LICENSE"].read().decode().strip()
        hashes = {}
        for here, text in texts.items():
            (target / here).write_text(as_module(here, text), encoding="utf-8")
            hashes[here] = sha256((target / here).read_bytes())
        licenses.append(f"{name} {version} ({license_name}): {', '.join(files)}\n\n{short(terms)}\n")
        records.append(
            {
                "npm": name,
                "version": version,
                "license": license_name,
                "sha256": sha256(data),
                "files": hashes,
            }
        )
    (target / "LICENSES").write_text(f"\n{'-' * 72}\n\n".join(licenses), encoding="utf-8")
    (target / "vendor.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tarballs", type=Path, help="a folder with NAME-VERSION.tgz")
    parser.add_argument("--target", type=Path, default=FOLDER)
    options = parser.parse_args()
    write(options.tarballs, options.target)
