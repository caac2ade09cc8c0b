"""`heedful caption`: a sentence about each image file. Each word is the name of one, or each line of stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..files import one_line
from ..use import Model, load
from ..use.model import BEAM
from ..use.results import Answer
from ..use.writing import Writing, asked, check_number
from .pictures import chunks
from .text import as_object, flat, options_of, utf8_out, write

if TYPE_CHECKING:
    from .options import Caption

Found = Answer | BadInput  # a caption, or why there is none


def caption(given: Caption) -> None:
    """Answer each file by its caption."""
    check_number("batch", given.batch)
    how = asked(options_of(given))
    how.width(BEAM)  # what can be seen to be wrong before anything is loaded
    utf8_out()
    model = load(given.run, given.device, weights=given.weights, quantize=given.quantize)
    model.check_can("caption")
    done = 0
    for names in chunks(given):
        found = answered(model, names, how, range(done, done + len(names)), given)
        write("".join(shown(name, one, given) for name, one in zip(names, found, strict=True)))
        done += len(names)


def answered(
    model: Model, names: list[str], how: Writing, numbers: Sequence[int], given: Caption
) -> Sequence[Found]:
    """A caption for each file; of one that cannot be read, why, unless that is to stop everything."""
    try:
        return model.answers(names, how, numbers)
    except BadInput:
        if given.text or given.bad_lines == "refuse":
            raise
    found: list[Found] = []
    for name, number in zip(names, numbers, strict=True):
        try:
            found += model.answers([name], how, [number])
        except BadInput as error:
            print(one_line(f"{error}; answered by an empty line"), file=sys.stderr, flush=True)
            found.append(error)
    return found


def shown(name: str, found: Found, given: Caption) -> str:
    """A line of output, or the several that n-best has."""
    if given.json:
        told = {"error": one_line(str(found))} if isinstance(found, BadInput) else {"answers": objects(found)}
        return json.dumps({"file": name, **told}, ensure_ascii=False) + "\n"
    if isinstance(found, BadInput):
        return "\n" * given.n_best
    if given.n_best == 1:
        return f"{flat(found)}\n"
    best = [f"{one.score:.4f}\t{flat(one)}\n" for one in found.n_best]
    return "".join(best) + "\n" * (given.n_best - len(best))


def objects(found: Answer) -> list[dict[str, object]]:
    return [as_object(one) for one in found.n_best]
