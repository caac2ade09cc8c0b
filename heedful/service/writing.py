"""Texts that a worker writes: from a request to rows of a batch or to a search, and back to events."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import torch

from ..decode.scores import precise, top_indices
from ..decode.slots import News, Row
from ..decode.step import step_of
from ..decode.streaming import Hypothesis
from ..errors import BadInput
from ..models.base.shells import Decoder
from ..use import generate, translate
from ..use.model import Model
from ..use.results import Answer
from ..use.search import Request, Search, answer_of
from ..use.texts import Tokenized, usable
from ..use.together import Piece, TextSoFar, Writing
from ..use.wording import table_of
from .searches import ABILITIES, KnownSearches
from .spelling import Speller

Event = dict[str, Any]
Scores = tuple[float | None, list[tuple[int, float]]]  # log p of a token, and the most likely tokens
KIND = ("beam", "source_lang", "target_lang")  # beside the options: what makes two searches differ
PACE = 0.02  # seconds between two pieces of an answer that is sent as it comes: one has several tokens then
CHUNK = 64  # tokens of a prompt that are scored between two turns


class ContextExceeded(BadInput):
    """A prompt that is longer than the context of the model."""

    code = "context_length_exceeded"


@dataclass(frozen=True)
class Plan:
    """What a request wants, in the model's own terms."""

    model: Model  # in the languages of the request
    kind: tuple[Any, ...]  # the ability, its options, and KIND
    search: Search
    rows: list[Tokenized]
    requests: list[Request | None]  # n of each row, one after the other; None: there is nothing to say
    streams: bool  # pieces are sent as they come
    scored: bool  # tokens are sent with their log-probabilities
    top: int  # most likely tokens to send with each token
    echoes: bool  # the prompt comes first
    aligns: bool
    bare: bool  # nobody asks for more than pieces: the end says nothing of the answers
    unwritten: bool  # no token is wanted: the prompt alone, perhaps with its scores

    @property
    def key(self) -> str:
        """Requests with one key can be searched for together."""
        return json.dumps(self.kind, sort_keys=True)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(row.ids) for row in self.rows)

    def row_of(self, index: int) -> Tokenized:
        return self.rows[index * len(self.rows) // len(self.requests)]


def plan(searches: KnownSearches, given: dict[str, Any]) -> Plan:
    """Read a request. given: ability, texts, tokens or messages, n, options, and how to answer.

    With `seeded`, a text is drawn alike alone and beside others; without, equal texts are drawn differently.
    """
    ability, n, (beam, *languages) = given["ability"], given.get("n", 1), map(given.get, KIND)
    model = searches.speaking(*languages)
    rows = rows_of(model, ability, given)
    options = given["options"] | room_left(model, rows, given)
    options |= {"top": given["top"]} if given.get("top") else {}
    search = searches.search(ability, options, beam, *languages)
    several = [row for row in rows for _ in range(n)]
    numbers = [*range(n)] * len(rows) if given.get("seeded") else [*range(len(several))]
    unwritten = given.get("unwritten", False)
    make_requests = ABILITIES[ability].requests
    return Plan(
        model,
        (ability, options, beam, *languages),
        search,
        rows,
        [None] * len(several) if unwritten else make_requests(model, several, search.how, numbers),
        streams=given.get("streams", False),
        scored=given.get("scored", False),
        top=given.get("top", 0),
        echoes=given.get("echoes", False),
        aligns=search.how.align,
        bare=given.get("bare", False),
        unwritten=unwritten,
    )


def rows_of(model: Model, ability: str, given: dict[str, Any]) -> list[Tokenized]:
    """The tokens of texts, of a conversation, or as they were sent."""
    if "messages" in given:
        texts = [generate.chat_prompt(model, for_template(model, given["messages"]))]
    elif "tokens" in given:
        shown = given.get("echoes", False) or given.get("scored", False)
        return within_context(model, [checked(model, ids, shown) for ids in given["tokens"]])
    else:
        texts = given["texts"]
    if ability != "generate":
        return list(usable(ABILITIES[ability].encode(model, texts)))
    return within_context(model, generate.encode(model, texts))


def context_of(model: Model) -> int | None:
    """The most tokens that a decoder reads: it has no more positions, or was trained with no more."""
    table = table_of(model.model)
    return getattr(model.config, "context", None) if table is None else table


def within_context(model: Model, rows: list[Tokenized]) -> list[Tokenized]:
    """The same rows; one that is longer than the context is refused."""
    most = context_of(model)
    for place, row in enumerate(rows, 1):
        if most is not None and len(row.ids) > most:
            told = f"text {place} has {len(row.ids):,} tokens, and the model reads at most {most:,}"
            raise ContextExceeded(f"{told}: shorten it")
    return rows


def for_template(model: Model, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with "developer" as "system", unless the template knows developers."""
    chat = model.loaded.chat
    if chat is None or "developer" in chat.template:
        return messages
    return [one | {"role": "system"} if one["role"] == "developer" else one for one in messages]


def checked(model: Model, ids: list[int], shown: bool) -> Tokenized:
    """Tokens that a client sent as numbers. shown: their text is needed."""
    network: Any = model.model
    known = network.inputs.tokens.weight.shape[0]
    if max(ids) >= known:
        raise BadInput(f"there is no token {max(ids)}: {model.folder} has {known:,}, counted from 0")
    return Tokenized(model.wording.decoded(ids) if shown else "", ids)


def room_left(model: Model, rows: Sequence[Tokenized], given: dict[str, Any]) -> dict[str, Any]:
    """The limit of tokens for a request that names none: what the context has room for, within a bound."""
    if "max_new_tokens" in given["options"] or "room" not in given:
        return {}
    context, longest = context_of(model), max((len(row.ids) for row in rows), default=0)
    room = given["room"] if context is None else min(given["room"], context - longest)
    return {"max_new_tokens": max(1, room)}


# Scores of a prompt.


@torch.no_grad()
def prompt_scores(model: Model, ids: list[int], top: int) -> Generator[None, None, list[Scores]]:
    """The log-probability of each token of a prompt, the first of which has none; a part in each turn."""
    network: Any = model.model
    assert isinstance(network, Decoder)
    found: list[Scores] = [(None, [])]
    step = step_of(network)
    for start in range(0, len(ids) - 1, CHUNK):
        fed = ids[start : min(start + CHUNK, len(ids) - 1)]
        log_p_TV = precise(step(torch.tensor([fed], device=model.device))[0]).log_softmax(-1)
        right = ids[start + 1 : start + 1 + len(fed)]
        own = log_p_TV[range(len(fed)), right].tolist()
        tokens_TK = top_indices(log_p_TV, min(top, log_p_TV.shape[1])) if top else log_p_TV[:, :0].long()
        values = log_p_TV.gather(1, tokens_TK).tolist()
        for log_p, names, some in zip(own, tokens_TK.tolist(), values, strict=True):
            found.append((log_p, list(zip(names, some, strict=True))))
        yield
    return found


# Answers.


@dataclass
class Written:
    """One answer so far."""

    tokens: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)  # what has not been sent: the prompt, and what is written
    entries: list[Event] = field(default_factory=list)  # tokens as they are sent
    answer: Answer | None = None
    speller: Speller | None = None
    spelled: int = 0  # tokens that have an entry

    def add(self, text: str) -> None:
        self.written.append(text)
        self.pieces.append(text)


class WriteTask:
    """A request for texts, and what has been written for it."""

    def __init__(self, number: str, planned: Plan) -> None:
        self.number, self.plan = number, planned
        self.answers = [Written() for _ in planned.requests]
        self.left = sum(request is not None for request in planned.requests)
        self.counted = 0  # tokens written
        self.rows: list[Writing] = []

    # As rows of a batch.

    def writings(self) -> list[Writing]:
        """The rows of this request."""
        plan, words = self.plan, self.plan.model.wording
        heard = plan.streams or plan.scored  # all scores of a long answer at its end would hold up the others
        for index, request in enumerate(plan.requests):
            if request is not None:
                before = request.prompt if request.continues else ()
                text, due = TextSoFar(words, before, plan.search.how.stop), 0.0 if heard else math.inf
                self.rows.append(Writing(request, plan.search, text, (), plan.top, (self, index), due))
        return self.rows

    def hear(self, index: int, piece: Piece, now: float) -> list[Event]:
        """The events of an answer that is over, or whose next piece is due. now: what the clock says."""
        one, writing = self.answers[index], piece.writing
        if self.plan.scored:
            self.spell(index, writing)
        one.add(writing.take(whole=bool(piece.finish)))
        if not piece.finish:
            events = self.event(index) if self.plan.streams else []
            writing.due = now + PACE if events or not self.plan.streams else now
            return events
        one.tokens, one.log_probabilities = writing.tokens, writing.log_probabilities
        self.counted += len(one.tokens)
        names = [] if self.plan.bare else self.plan.model.wording.names(one.tokens)
        score, ended = sum(one.log_probabilities), piece.finish == "stop"
        one.answer = Answer("".join(one.written), score, names, one.log_probabilities, ended)
        return self.finished(index)

    def spell(self, index: int, writing: Writing) -> None:
        """Make entries of tokens that have none; an end has none."""
        one, spells = self.answers[index], self.speller(index)
        words = len(writing.tokens) - writing.ended
        for n in range(one.spelled, words):
            top = writing.tops[n] if writing.top else ()
            one.entries.append(spells.entry(writing.tokens[n], writing.log_probabilities[n], top))
        one.spelled = words

    def speller(self, index: int) -> Speller:
        """What spells the tokens of an answer one by one."""
        one, row, request = self.answers[index], self.plan.row_of(index), self.plan.requests[index]
        if one.speller is None:
            continues = request is not None and request.continues
            one.speller = Speller(self.plan.model.wording, *((row.ids, len(row.text)) if continues else ()))
        return one.speller

    # Alone, where rows cannot join others.

    def stream_alone(self) -> Generator[Event | None, None, None]:
        """The events of answers that are written one after the other, token by token."""
        for writing in self.writings():
            (_, index), row = writing.tag, Row(writing.request.prompt, writing.request.longest)
            for (token,) in writing.search.streamed([writing.request]):
                news = News(row, token.token, token.log_probability, token.top, token.ended, token.last)
                stopped, now = writing.push(news), time.monotonic()
                finish = "stop" if stopped or token.ended else "length" if token.last else ""
                if finish or writing.due <= now:
                    yield from self.hear(index, Piece(writing, news, finish), now)
                yield None
                if finish:
                    break
        yield self.over()

    # As a search.

    def found(self, hypotheses: Sequence[list[Hypothesis]]) -> list[Event]:
        """The events of answers that are all there at once; hypotheses: of each request that is not None."""
        events: list[Event] = []
        rest = iter(hypotheses)
        for index, request in enumerate(self.plan.requests):
            if request is not None:
                some, one = next(rest), self.answers[index]
                one.answer = answer_of(self.plan.model, request, some, self.plan.search.stops)
                one.tokens, one.log_probabilities = some[0].tokens, some[0].log_probabilities
                one.pieces.append(str(one.answer))
                self.counted += sum(len(h.tokens) for h in some)
                if self.plan.scored:
                    spells = self.speller(index)
                    tops = some[0].top or repeat(())
                    scores = zip(some[0].words, one.log_probabilities, tops, strict=False)
                    one.entries += [spells.entry(*score) for score in scores]
                events += self.finished(index)
        return events

    # Events.

    def echo_entries(self, row: Tokenized, scores: Sequence[Scores]) -> Generator[None, None, list[Event]]:
        """The tokens of a prompt as they are sent, some in each turn."""
        spells, entries = Speller(self.plan.model.wording), list[Event]()
        for place, (token, (log_p, top)) in enumerate(zip(row.ids, scores, strict=False), 1):
            entries.append(spells.entry(token, log_p, top))
            if place % CHUNK == 0:
                yield
        return entries

    def echo(self, index: int, entries: Sequence[Event]) -> list[Event]:
        """Let an answer begin with its prompt. entries: of the prompt's tokens, if they are wanted."""
        one = self.answers[index]
        one.pieces.append(self.plan.row_of(index).text)
        one.entries += entries
        return self.event(index) if self.plan.streams else []

    def event(self, index: int, finish: str | None = None) -> list[Event]:
        """What can be sent of an answer now, which is then forgotten."""
        one = self.answers[index]
        piece, entries = "".join(one.pieces), one.entries
        one.pieces, one.entries = [], []
        if not piece and not entries and finish is None:
            return []
        return [{"index": index, "piece": piece, "tokens": entries, "finish": finish}]

    def finished(self, index: int) -> list[Event]:
        """The last event of an answer."""
        self.left -= 1
        answer = self.answers[index].answer
        return self.event(index, "stop" if answer is None or answer.ended else "length")

    def silent(self) -> list[Event]:
        """The events of answers that are empty: there was nothing to say."""
        finish = "length" if self.plan.unwritten else "stop"
        return [e for i, one in enumerate(self.plan.requests) if one is None for e in self.event(i, finish)]

    def over(self) -> Event:
        """The end: how many tokens were read and written, and the answers with all that is known of them."""
        read, written = self.plan.prompt_tokens, self.counted
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        if self.plan.bare:
            return {"over": True, "usage": usage}
        answers = [answer_json(Answer("") if one.answer is None else one.answer) for one in self.answers]
        return {"over": True, "usage": usage, "result": {"answers": answers}}

    def align(self) -> Generator[None, None, None]:
        """Link the words of every answer to those of its source, one answer a turn."""
        for index, one in enumerate(self.answers):
            if one.answer is not None:
                translate.align_answers(self.plan.model, [self.plan.row_of(index)], [one.answer], 1)
                yield


def answer_json(answer: Answer) -> dict[str, Any]:
    """An answer with all that is known of it."""
    found = {
        "text": str(answer), "score": answer.score, "ended": answer.ended,
        "tokens": answer.tokens, "log_probabilities": answer.log_probabilities,
    }  # fmt: skip
    if answer.alignment is not None:
        found["alignment"] = answer.alignment
    if len(answer.n_best) > 1:
        found["n_best"] = [answer_json(single(other)) for other in answer.n_best]
    return found


def single(answer: Answer) -> Answer:
    """One of several answers, without the others."""
    found = Answer(str(answer), answer.score, answer.tokens, answer.log_probabilities, answer.ended)
    found.alignment = answer.alignment
    return found
