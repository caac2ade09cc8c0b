"""Write a caption for each image, with a model that was trained to.

Give the names of image files (PNG, JPEG, PPM), or one name per line of stdin. Each caption is a line of
stdout. --json has scores and tokens. A file that is not an image stops the command; on stdin it gives an
empty line.

Examples: heedful caption runs/caption photo.png other.jpg;
heedful caption runs/caption < names.txt > captions.txt;
heedful caption runs/caption --beam 8 --n-best 3 --json photo.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ..decode.options import BEAM, DecodingOptions
from ..errors import BadInput
from ..files import one_line
from ..use.results import Answer
from .shared.image_files import batches_of_names
from .shared.lines import utf8_out, write
from .shared.options import Positional, WriterOptions, arg, decoding_of, takes_decoding
from .shared.terminal import flat
from .shared.writing import as_object, check_decoding

if TYPE_CHECKING:
    from ..use.model import Model


@takes_decoding("caption")
@dataclass(frozen=True, kw_only=True)
class CaptionOptions(WriterOptions):
    """The options of `heedful caption`."""

    text: Annotated[tuple[str, ...], Positional, arg("[FILE ...]", "the lines of stdin")] = ()
    """Image files."""


CaptionOrFault = Answer | BadInput  # a caption, or why there is none


def caption(given: CaptionOptions) -> None:
    """Answer each file by its caption."""
    options = decoding_of(given, "caption")
    check_decoding("caption", options, given.run, given.json)
    utf8_out()
    from ..use.load import load

    model = load(given.run, given.device, weights=given.weights)
    model.check_can("caption")
    how = model.decoding("caption", options)
    done = 0
    for names in batches_of_names(given):
        found = answered(model, names, how, range(done, done + len(names)), given)
        write("".join(shown(name, one, given, how) for name, one in zip(names, found, strict=True)))
        done += len(names)


def answered(
    model: Model, names: list[str], how: DecodingOptions, numbers: Sequence[int], given: CaptionOptions
) -> Sequence[CaptionOrFault]:
    """A caption for each file; of one that cannot be read, why, unless that is to stop everything."""
    from ..use import caption

    rows = caption.encode(model, names)
    try:
        return caption.write(model, rows, how, numbers)
    except BadInput:
        if given.text or given.bad_lines == "refuse":
            raise
    found: list[CaptionOrFault] = []
    for row, number in zip(rows, numbers, strict=True):
        try:
            found += caption.write(model, [row], how, [number])
        except BadInput as error:
            print(one_line(f"{error}; answered by an empty line"), file=sys.stderr, flush=True)
            found.append(error)
    return found


def shown(name: str, found: CaptionOrFault, given: CaptionOptions, how: DecodingOptions) -> str:
    """A line of output, or the several that n-best has."""
    n_best = how.n_best
    if given.json:
        told: dict[str, object] = {"error": one_line(str(found))}
        if not isinstance(found, BadInput):
            told = {"answers": objects(found), "settings": how.in_use(BEAM)}
        return json.dumps({"file": name, **told}, ensure_ascii=False) + "\n"
    if isinstance(found, BadInput):
        return "\n" * n_best
    if n_best == 1:
        return f"{flat(found)}\n"
    best = [f"{one.score:.4f}\t{flat(one)}\n" for one in found.n_best]
    return "".join(best) + "\n" * (n_best - len(best))


def objects(found: Answer) -> list[dict[str, object]]:
    return [as_object(one) for one in found.n_best]
