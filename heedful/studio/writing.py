"""Writing in the worker: tokens one by one with what else could have been written, from any beginning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..data.pieces import labels
from ..decode.streaming import Token
from ..errors import BadInput
from ..inside.beam_tree import BeamTree
from ..service.methods import Event, Given, Method, Work
from ..service.searches import KnownSearches
from ..service.writing import plan, rows_of
from ..use.beam_tree import reference_tokens
from ..use.fill import MASK
from ..use.model import Model
from ..use.pieces import TextSoFar
from ..use.search import Request, Search
from ..use.texts import Tokenized
from .pictures import reads_images
from .python_code import code_of, code_of_writing, lines_of_picture, quoted
from .tracing import Traces, labels_in

ABILITIES = ("translate", "summarize", "generate")
MOST = 10  # guesses
LONGEST = 4096  # tokens of a text that is read: attention takes memory for every two of them


def ability_of(model: Model) -> str:
    """How a model writes."""
    found = next((name for name in ABILITIES if name in model.can), None)
    if found is None:
        raise BadInput(f"{model.folder} writes no texts: it can {', '.join(model.can) or 'nothing'}")
    return found


def write_methods(traces: Traces) -> Mapping[str, Method]:
    """The methods of a worker that write, with the edits of a request, and that guess."""

    def edited(model: Model, given: Given, blob: bytes) -> Work:
        work = write(model, given, blob)
        while True:
            with traces.editing(model, given["edits"]):  # other requests have their turn outside of it
                try:
                    event = next(work)
                except StopIteration:
                    return
            yield event

    def guess(model: Model, given: Given, blob: bytes) -> Work:
        """What fits each blank of a text, or the most likely labels of a text or picture."""
        text = given["text"]
        if "fill" in model.can:
            lines = [f"model.fill({quoted(text)}, top={MOST}).blanks"]
            blanks = model.fill(text, top=MOST).blanks if MASK in text else []
            groups = [[[one.word, one.probability] for one in some] for some in blanks]
        elif reads_images(model):
            kept = traces.get(model, {"text": text, "target": None, "edits": []}, blob)
            lines = lines_of_picture(text)
            groups = [list(map(list, labels_in(model, kept.trace)))]
        else:
            lines = [f"model.classify({quoted(text)}).probabilities"]
            shares = getattr(model.classify(text), "probabilities", None)
            if not isinstance(shares, dict):
                raise BadInput("this model gives one score to a text, and no labels")
            groups = [sorted(map(list, shares.items()), key=lambda pair: -pair[1])[:MOST]]
        yield {"over": True, "result": {"guesses": groups, "code": code_of(model, [], *lines)}}

    return {"studio_write": edited, "guess": guess}


def row_of(model: Model, ability: str, text: str) -> Tokenized:
    """The tokens of a text, if they are no more than the model and the studio read."""
    (row,) = rows_of(model, ability, {"texts": [text]})
    if len(row.ids) > LONGEST:
        raise BadInput(f"the text has {len(row.ids):,} tokens, and at most {LONGEST:,} are read: shorten it")
    return row


def write(model: Model, given: Given, blob: bytes) -> Work:
    """Write a text token by token, after tokens that are given."""
    row_of(model, ability_of(model), given["text"])
    options = {"beam": 1, **given["options"]}
    told = {"ability": ability_of(model), "texts": [given["text"]], "options": options}
    planned = plan(KnownSearches(model), {**told, "top": given["top"]})
    yield None
    (request,), search, prefix = planned.requests, planned.search, list(given["prefix_tokens"])
    if search.width > 1 or search.how.beam_groups > 1:
        raise BadInput("a beam decides at the end: leave out `beam`, or ask for the search")
    if request is None:
        raise BadInput("there is nothing to write after this text: give another one")
    if given["target"] is not None:
        prefix += reference_tokens(model, search, request, given["target"])
    yield {"start": {"tokens": tokens_json(model, prefix), "prompt": tokens_json(model, request.prompt)}}
    before = request.prompt if request.continues else []
    begun = model.wording.text([token for token in prefix if token not in search.ends], before)
    left = max(1, request.longest - len(prefix)) if request.continues else None
    code = code_of_writing(model, ability_of(model), given, begun, left)
    yield from written(model, search, beginning_with(request, prefix), code)


def beginning_with(request: Request, prefix: list[int]) -> Request:
    """A request whose answer begins with some tokens."""
    if len(prefix) > request.longest:
        raise BadInput(
            f"{len(prefix)} tokens are given, and {request.longest} may be written: raise max_new_tokens"
        )
    return replace(request, prefix=[*prefix, *request.prefix[len(prefix) :]])


def written(model: Model, search: Search, request: Request, code: str) -> Work:
    """An event for each token, those that are given included, then the whole text. code: what writes it."""
    before = request.prompt if request.continues else []
    text, total, ids = TextSoFar(model.wording, before, search.stops.strings), 0.0, list[int]()
    for token in only(search.streamed([request])):
        piece, _ = text.add(token.token, token.token in search.ends)
        total += token.log_probability
        ids.append(token.token)
        yield {"token": token_event(model, token, piece)}
    ended = bool(ids) and ids[-1] in search.ends
    whole = model.wording.text(ids[:-1] if ended else ids, before)
    result = {"text": whole, "log_probability": total, "tokens": ids, "ended": ended}
    yield {"over": True, "result": result | {"rest": text.rest(), "code": code}}


def only(streamed: Iterator[list[Token]]) -> Iterator[Token]:
    for new in streamed:
        yield from new


def token_event(model: Model, token: Token, piece: str) -> Event:
    """A token, and the most likely ones in its place."""
    tokens = [token.token, *(number for number, _ in token.top)]
    name, *others = labels(model.wording.writes, tokens)
    top = [[number, text, log_p] for text, (number, log_p) in zip(others, token.top, strict=True)]
    return {
        "id": token.token,
        "text": name,
        "piece": piece,
        "log_probability": token.log_probability,
        "rank": next((n for n, (number, _) in enumerate(token.top, 1) if number == token.token), None),
        "top": top,
        "ended": token.ended,
    }


def tokens_json(model: Model, ids: list[int]) -> list[dict[str, Any]]:
    texts = labels(model.wording.writes, ids)
    return [{"id": number, "text": text} for number, text in zip(ids, texts, strict=True)]


def finished(tree: BeamTree) -> list[dict[str, Any]]:
    """The hypotheses of a beam search that have ended, short ones first."""
    ends = [node for node in tree.nodes if node.fate in ("ended", "beaten")]
    return [
        {"text": " ".join(one.text for one in tree.way(node.id)), "length": node.step}
        | {"total": node.total, "score": node.score}
        for node in sorted(ends, key=lambda node: (node.step, -node.score))
    ]


def parting(tree: BeamTree) -> dict[str, Any] | None:
    """The first step at which the best hypothesis leaves the most likely token; None: there is none."""
    for node in tree.way(tree.best[0]):
        rivals = [one for one in tree.nodes if one.before == node.before and one.fate != "forbidden"]
        greedy = max(rivals, key=lambda one: one.log_probability)
        if greedy.token != node.token:
            return {"step": node.step, "greedy": greedy.text, "beam": node.text}
    return None
