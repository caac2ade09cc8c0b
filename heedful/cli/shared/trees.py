"""--tree: the tree of a beam search for each text, instead of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...decode.options import BEAM
from ...errors import BadInput
from ...use.texts import Tokenized
from .lines import LineCommand, Streamer
from .writing import TextWriter, check_decoding

if TYPE_CHECKING:
    from ...inside.beam_tree import BeamTree
    from ...use.model import Model


def writer_for(given: Any, what: str) -> LineCommand[Any]:
    """What answers texts by what the model writes; or, with --tree, by the tree of the search."""
    if given.reference is not None and not (given.tree and given.text):
        raise BadInput("`reference` belongs to one TEXT and its tree: give both, and `tree`")
    return TreeWriter(given, what) if given.tree else TextWriter(given, what)


class TreeWriter(TextWriter):
    """translate --tree and generate --tree."""

    def check(self) -> None:
        check_decoding(self.what, {"beam": BEAM} | self.options, self.given.run, self.given.json)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Any]:
        from ...decode.turns import finish
        from ...use.beam_tree import options_of, tree_in_turns

        rows, model = self.with_trees(model, rows, numbers), self.speaking(model)
        how = options_of(model, self.what, self.options)
        reference = getattr(self.given, "reference", None)
        return [finish(tree_in_turns(model, self.what, row, how, reference)) for row in rows]

    def plain(self, result: Any) -> str:
        return result.text()

    def is_text(self, result: Any) -> bool:
        return False

    def known(self, result: BeamTree | None) -> dict[str, Any]:  # type: ignore[override]
        return {"tree": None if result is None else result.as_json()}

    def streamer(self, model: Model) -> Streamer | None:
        return None
