"""A translator in every format that it leaves in, held to every held-out sentence: `python -m
benchmarks.exported RUN FOLDER`.

RUN is one on the built-in phrasebook, such as the demo's; FOLDER gets the exports. Counts the sentences of
`test` and `combinations` whose greedy and whose beam-4 translations are the same, token by token, as
heedful's own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heedful.certify.own import OwnModel
from heedful.cli.main import main as heedful
from heedful.corpora import phrasebook
from heedful.interop.foreign import ForeignModel
from heedful.interop.formats import FORMATS, load

BEAM, LONGEST = 4, 64


def outputs(model: ForeignModel, texts: list[list[int]]) -> dict[str, list[list[int] | None]]:
    """What a model writes for every text."""
    return {
        "greedy": [model.greedy(ids, LONGEST) for ids in texts],
        f"beam {BEAM}": [model.beam(ids, BEAM, LONGEST) for ids in texts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--to", nargs="+", default=["hf", "ctranslate2", "onnx"], choices=list(FORMATS))
    parser.add_argument("--sentences", type=int, default=500, help="of each split")
    given = parser.parse_args()
    loaded = load(given.run)
    sentences = [
        p.source for split in ("test", "combinations") for p in phrasebook.split(split)[: given.sentences]
    ]
    assert loaded.tokenizer is not None
    texts = [loaded.tokenizer.encode(text, add_special_tokens=False).ids for text in sentences]
    ours = outputs(OwnModel(loaded), texts)
    for to in given.to:
        folder = given.folder / to
        if not folder.exists() and heedful(["export", given.run, str(folder), "--to", to]) != 0:
            raise SystemExit(f"the model does not leave as {to}")
        theirs = outputs(FORMATS[to].reopen(folder), texts)
        same = {how: sum(a == b for a, b in zip(ours[how], theirs[how], strict=True)) for how in ours}
        print(
            f"{to}: {', '.join(f'{n} of {len(texts)} {how}' for how, n in same.items())} the same", flush=True
        )


if __name__ == "__main__":
    main()
