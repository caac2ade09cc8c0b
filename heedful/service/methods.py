"""What a worker does beside writing texts: each entry of METHODS is a generator for one kind of request.

A generator yields None where others may have their turn, and the end of the request last. Input that a model
cannot use is refused by the errors of the model's own methods.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ..data.images.files import image_in
from ..data.questions import MultipleChoice
from ..data.vocab import no_panic
from ..decode.turns import Turns
from ..errors import BadInput
from ..files import naming
from ..interop.loaded import ImageEncoder
from ..models.base.shells import shells_of
from ..tasks.choose import numbers
from ..use import answer, caption, choose, classify, embed, fill, parse, score, tag
from ..use.as_json import as_json
from ..use.languages import speaking
from ..use.model import Model
from ..use.texts import Tokenized, both, usable
from ..use.wording import judged, refuse_long, tokenize
from .paces import Pace, cut_in_turns
from .writing import answer_json

T = TypeVar("T")
Event = dict[str, Any]
Given = dict[str, Any]
Work = Generator[Event | None, None, None]
Method = Callable[[Model, Given, bytes], Work]

MOST = 1 << 17  # entries of an answer: tokens, or words for blanks
PACES: dict[str, Pace] = defaultdict(Pace)  # of each method: a worker has one model


def over(result: dict[str, Any], read: int, written: int = 0) -> Event:
    """The end of a request."""
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {"over": True, "usage": usage, "result": result}


def refuse_many(count: int, what: str = "tokens") -> None:
    """Refuse an answer that would be very long."""
    if count > MOST:
        raise BadInput(f"the answer would have {count:,} {what}, and {MOST:,} are the most: send fewer texts")


def tokens_in(rows: Sequence[Tokenized]) -> int:
    return sum(len(row.ids) for row in rows)


def each_row(
    name: str, rows: list[Tokenized], do: Callable[[list[Tokenized]], Sequence[T]]
) -> Turns[list[T]]:
    """What a function of some rows gives, for all of them."""
    usable(rows)
    lengths = [len(row.ids) for row in rows]
    return (yield from PACES[name].in_turns(lengths, lambda some: do([rows[i] for i in some])))


def judged_rows(name: str, rows: list[Tokenized], do: Callable[[list[Tokenized]], Sequence[Any]]) -> Work:
    """The same as the end of a request."""
    refuse_many(tokens_in(rows))
    found = yield from each_row(name, rows, do)
    yield over({"rows": [as_json(one) for one in found]}, tokens_in(rows))


# Texts.


def fill_blanks(model: Model, given: Given, blob: bytes) -> Work:
    """A word for every blank."""
    rows = yield from cut_in_turns(lambda some: fill.encode(model, some), given["texts"])
    top, mask = given["top"], model.wording.mask
    refuse_many(top * sum(row.ids.count(mask) for row in rows), "words")
    yield from judged_rows("fill", rows, lambda some: fill.filled(model, some, top, len(some)))


def classify_texts(model: Model, given: Given, blob: bytes) -> Work:
    """The labels of texts, of pairs, or of pictures."""
    if "sizes" in given:
        yield from classify_pictures(model, given, blob)
        return
    if model.kind is ImageEncoder:
        raise BadInput(f'{model.folder} reads pictures: give "pictures" instead of "texts"')
    pairs = paired(given["texts"], given.get("seconds"))
    rows = yield from cut_in_turns(lambda a, b: classify.encode(model, a, b), *pairs)
    yield from judged_rows("classify", rows, lambda some: classify.labeled(model, some, len(some)))


def paired(texts: list[str], others: list[str] | None) -> tuple[list[str], list[Any]]:
    """Texts and what belongs to each of them; None where nothing does."""
    if others is None:
        return texts, [None] * len(texts)
    return texts, both(texts, others, lambda a, b: b)


def score_texts(model: Model, given: Given, blob: bytes) -> Work:
    """How likely texts are, or targets as the answers to texts."""
    texts, targets = given["texts"], given.get("targets")
    model = speaking(model, given.get("source_lang"), given.get("target_lang"))
    score.check_targets(model, targets is not None)
    rows = yield from cut_in_turns(lambda some: score.encode(model, some), texts)
    if targets is None:
        yield from judged_rows("score", rows, lambda some: score.scored_texts(model, some, len(some)))
        return
    paired(texts, targets)
    usable(rows)
    refuse_long(targets)
    words = model.wording.target(targets)
    lengths = [len(row.ids) + len(ids) for row, ids in zip(rows, words, strict=True)]

    def do(some: list[int]) -> Sequence[Any]:
        return score.scored_pairs(model, [rows[i] for i in some], [targets[i] for i in some], len(some))

    refuse_many(sum(lengths))
    found = yield from PACES["score"].in_turns(lengths, do)
    yield over({"rows": [as_json(one) for one in found]}, sum(lengths))


def tag_texts(model: Model, given: Given, blob: bytes) -> Work:
    """The tags of words, or entities."""
    rows = yield from cut_in_turns(lambda some: tag.encode(model, some), given["texts"])
    yield from judged_rows("tag", rows, lambda some: tag.tagged(model, some, len(some)))


def parse_texts(model: Model, given: Given, blob: bytes) -> Work:
    """The trees of sentences."""
    rows = yield from cut_in_turns(lambda some: parse.encode(model, some), given["texts"])
    yield from judged_rows("parse", rows, lambda some: parse.parsed(model, some, len(some)))


def answer_questions(model: Model, given: Given, blob: bytes) -> Work:
    """The answers to questions, window by window of their contexts."""
    questions, contexts = given["questions"], given["contexts"]
    several = contexts * len(questions) if len(contexts) == 1 else contexts
    pairs = paired(questions, several)
    rows = yield from cut_in_turns(lambda a, b: answer.encode(model, a, b), *pairs)
    pace, longest = PACES["answer"], model.question_reader.rooms.longest
    batch = pace.rows(longest)
    found = yield from pace.watch(answer.answer_in_turns(model, rows, batch), batch * longest)
    yield over({"rows": [as_json(one) for one in found]}, tokens_in(rows))


def choose_ways(model: Model, given: Given, blob: bytes) -> Work:
    """The choice that goes best with each text."""
    contexts, choices = given["contexts"], given["choices"]
    if len(choices) != len(contexts):
        raise BadInput(
            f"there are {len(contexts)} texts and {len(choices)} lists of choices: give one for each"
        )
    refuse_long([text for some in (contexts, *choices) for text in some])
    rows = [MultipleChoice(text, tuple(some), 0) for text, some in zip(contexts, choices, strict=True)]
    read = numbers(model.choice_reader[0], rows)
    yield None
    lengths = [sum(len(text) + len(one) for one in some) for text, some, _ in read]

    def do(some: list[int]) -> Sequence[Any]:
        return choose.chosen(model, [contexts[i] for i in some], [choices[i] for i in some], len(some))

    found = yield from PACES["choose"].in_turns(lengths, do)
    yield over({"rows": [as_json(one) for one in found]}, sum(lengths))


# Pictures.


def pictures_in(model: Model, given: Given, blob: bytes) -> Turns[list[np.ndarray]]:
    """The pictures of a request as the model reads them, one in each turn."""
    found, start = [], 0
    for number, size in enumerate(given["sizes"], 1):
        with naming(Path(f"picture {number}")):
            pixels_HWC = image_in(BytesIO(blob[start : start + size]), model.preprocessing.on_white)
            found.append(model.fit_picture(pixels_HWC, f"picture {number}"))
        start += size
        yield
    return found


def classify_pictures(model: Model, given: Given, blob: bytes) -> Work:
    """The labels of pictures."""
    if model.kind is not ImageEncoder:
        raise BadInput(f'{model.folder} reads texts: give "texts" instead of "pictures"')
    pictures = yield from pictures_in(model, given, blob)
    lengths = [model.config.image_size] * len(pictures)

    def do(some: list[int]) -> Sequence[Any]:
        return classify.labeled_pixels(model, [pictures[i] for i in some])

    found = yield from PACES["pictures"].in_turns(lengths, do)
    yield over({"rows": [as_json(one) for one in found]}, 0)


def caption_pictures(model: Model, given: Given, blob: bytes) -> Work:
    """A sentence about each picture."""
    how = model.decoding("caption", given["options"])
    pictures = yield from pictures_in(model, given, blob)
    rows = caption.encode(model, [torch.from_numpy(pixels) for pixels in pictures])
    found = yield from caption.write_in_turns(model, rows, how, range(len(rows)))
    written = sum(len(one.tokens) for best in found for one in best.n_best)
    yield over({"rows": [answer_json(one) for one in found]}, 0, written)


# Vectors and tokens.


def embed_texts(model: Model, given: Given, blob: bytes) -> Work:
    """The vectors of texts, as float32 in base64, little-endian."""
    if "tokens" in given:
        rows = numbered(model, given["tokens"])
    else:
        rows = yield from cut_in_turns(lambda some: embed.encode(model, some), given["texts"])
    found = yield from each_row(
        "embed", rows, lambda some: list(embed.embedded(model, some, None, None, len(some)))
    )
    vectors = [
        kept(model, vector_D, given.get("dimensions")).numpy().astype("<f4").tobytes() for vector_D in found
    ]
    yield over({"vectors": [base64.b64encode(one).decode() for one in vectors]}, tokens_in(rows))


def kept(model: Model, vector_D: torch.Tensor, dimensions: int | None) -> torch.Tensor:
    """The first numbers of a vector, where a model was trained so that these are a vector of their own."""
    size = len(vector_D)
    if dimensions is None or dimensions == size:
        return vector_D
    if model.sentences is None or model.sentences.truncate_dim is None:
        raise BadInput(
            f"the vectors of {model.folder} have {size} numbers and are not made "
            "to be cut: leave out `dimensions`"
        )
    if dimensions > size:
        raise BadInput(
            f"the vectors of {model.folder} have {size} numbers, not {dimensions}: give fewer `dimensions`"
        )
    return vector_D[:dimensions]


def numbered(model: Model, rows: list[list[int]]) -> list[Tokenized]:
    """Texts that came as the numbers of their tokens: nothing is put around them."""
    if model.spelled is not None:
        raise BadInput(f"{model.folder} reads words letter by letter: send texts, and not tokens")
    known = next(iter(shells_of(model.model).values())).inputs.tokens.weight.shape[0]
    for ids in rows:
        check_numbers(model, ids, known)
    return judged([Tokenized("", ids) for ids in rows], model.model)


def check_numbers(model: Model, ids: list[int], known: int) -> None:
    """Refuse numbers that no token has."""
    if ids and max(ids) >= known:
        raise BadInput(f"there is no token {max(ids)}: {model.folder} has {known:,}, counted from 0")


def tokenize_texts(model: Model, given: Given, blob: bytes) -> Work:
    """The tokens of texts, and where each stands."""
    tokenizer = model.wording.writes if given["target"] else model.wording.reads
    rows = yield from cut_in_turns(
        lambda some: tokenize(tokenizer, some, around=given["special"], spans=True), given["texts"]
    )
    refuse_many(tokens_in(rows))
    found = []
    for row in rows:
        names = [tokenizer.id_to_token(number) for number in row.ids]
        places = zip(row.ids, names, row.spans, strict=True)
        found.append(
            {"tokens": [{"id": n, "text": name, "start": a, "end": b} for n, name, (a, b) in places]}
        )
        yield None
    yield over({"rows": found}, tokens_in(rows))


def detokenize_tokens(model: Model, given: Given, blob: bytes) -> Work:
    """The texts of tokens."""
    words = model.wording
    tokenizer = words.writes if given["target"] else words.reads
    known, found = tokenizer.get_vocab_size(), []
    for ids in given["tokens"]:
        check_numbers(model, ids, known)
        with no_panic("token numbers cannot be turned into text"):
            found.append({"text": tokenizer.decode(ids, skip_special_tokens=not given["special"])})
        yield None
    yield over({"rows": found}, 0)


METHODS: dict[str, Method] = {
    "fill": fill_blanks,
    "classify": classify_texts,
    "score": score_texts,
    "tag": tag_texts,
    "parse": parse_texts,
    "answer": answer_questions,
    "choose": choose_ways,
    "caption": caption_pictures,
    "embed": embed_texts,
    "tokenize": tokenize_texts,
    "detokenize": detokenize_tokens,
}
