"""Search: from the options of decoding (a beam, a temperature, words to leave out) to what a model writes.

`Search` chooses the search of `heedful/decode` that the options ask for, and gives it texts of like length
together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from ..decode.beam import beam_steps
from ..decode.beam_fates import Listener
from ..decode.beam_settings import BeamSettings
from ..decode.filters import Filter, make_filters
from ..decode.kept import Keep
from ..decode.options import DecodingOptions, batch_for
from ..decode.prompts import pad
from ..decode.sampling import Sampler
from ..decode.speculative import FilteredDistribution, all_on_the_argmax, softmax, speculate
from ..decode.step import Step, step_of
from ..decode.streaming import Hypothesis, Stop, Token, greedy_choice, hypotheses, stream
from ..decode.turns import Turns, finish
from ..errors import BadInput
from ..fast.decoding import FastModel
from ..interop.loaded import IN_WORDS, Captioner
from ..models.base.shells import Decoder, EncoderDecoder, decoder_of
from ..parts.positions.base import UpTo
from ..tasks.evaluation import by_length
from .pieces import TextSoFar
from .results import Alternative, Answer
from .stops import StopStrings
from .texts import Tokenized

if TYPE_CHECKING:
    from .model import Model

MOST_TOKENS = 1 << 14  # of a batch: long texts go in smaller ones
OF_TEXTS = (  # options whose filters depend on the text
    "min_new_tokens",
    "encoder_no_repeat_ngram_size",
    "presence_penalty",
    "frequency_penalty",
    "begin_suppress_tokens",
    "forced_last",
)
Network = Decoder | EncoderDecoder
Reading = Callable[[Any, list[Tokenized]], Any]  # a network, made ready for the sources that it reads next


@dataclass(frozen=True)
class Request:
    """One text as a search is given it."""

    prompt: list[int]  # what the decoder begins with
    least: int  # tokens to write before an end
    longest: int  # tokens to write at most
    source: Tokenized | None = None  # what the encoder reads, if there is one
    number: int = 0  # among all the texts of a call
    prefix: list[int] = field(default_factory=list)  # what must be written first
    continues: bool = False  # the answer goes on in the text of the prompt
    earlier: tuple[int, ...] = ()  # tokens of the answer that are written already
    read: tuple[int, ...] = ()  # the whole prompt, where it is read in several parts
    most: int = 0  # tokens of the whole answer at most, where it is written in several parts

    @property
    def length(self) -> int:
        return len(self.prompt) if self.source is None else len(self.source.ids)

    @property
    def text(self) -> Sequence[int]:
        """The source, or the prompt."""
        return self.source.ids if self.source is not None else self.read or self.prompt

    @property
    def written(self) -> int:
        return len(self.earlier)

    @property
    def first(self) -> int:
        """The place of the first token that is not forced, from 0; -1 if it is written already."""
        return len(self.prefix) if self.prefix or not self.written else -1

    @property
    def last(self) -> int:
        """The last place of the answer, from 0."""
        return (self.most or self.longest) - 1 - self.written


def answers(model: Model, search: Search, requests: Sequence[Request | None]) -> Turns[list[Answer]]:
    """What a model writes for each request, in turns; nothing is the answer to None."""
    written = yield from search.write_in_turns([request for request in requests if request is not None])
    found = iter(written)
    return [
        Answer("") if one is None else answer_of(model, one, next(found), search.stops) for one in requests
    ]


def answer_of(model: Model, request: Request, found: list[Hypothesis], stops: StopStrings) -> Answer:
    """Hypotheses, best first, as text, which ends before a stop string."""
    words, before = model.wording, request.prompt if request.continues else []
    written = []
    for h in found:
        text, ended = words.text(h.words, before), h.ended
        cut = stops.cut(text)
        if cut is not None:
            text, ended = cut, True
        top = [[Alternative(words.names([t])[0], log_p) for t, log_p in some] for some in h.top]
        written.append(Answer(text, h.score, words.names(h.tokens), h.log_probabilities, ended, top))
    for one in written:
        one.n_best = written
    return written[0]


def pieces(model: Model, search: Search, request: Request | None) -> Iterator[str]:
    """The text of one request, piece by piece as it is written."""
    if request is None:
        return
    text = search.text_so_far(request)
    for new in search.streamed([request]):
        for token in new:
            piece, _ = text.add(token.token, token.token in search.ends)
            if piece:
                yield piece
    if rest := text.rest():
        yield rest


def search_of(model: Model, how: DecodingOptions, beam: int = 1, reading: Reading | None = None) -> Search:
    """The search that options ask for. beam: its width where they do not say."""
    if how.coverage_penalty and model.kind not in (EncoderDecoder, Captioner):
        raise BadInput(
            f"`coverage_penalty` needs cross-attention to a source, "
            f"and {model.folder} is {IN_WORDS[model.kind]}, which has none: leave it out"
        )
    words = model.wording
    banned = [*map(list, how.bad_tokens), *words.banned(how.bad_words)]
    check_packed(model, how, reading)
    draft = None if how.draft is None else draft_for(model, how.draft)
    stops = StopStrings(words, tuple(how.stop))
    ends = [*words.ends, *stops.tokens]
    return Search(model.writing, how, how.width(beam), ends, banned, stops, draft, reading)


def check_packed(model: Model, how: DecodingOptions, reading: Reading | None) -> None:
    """Refuse what takes the plain step, which would read the model's own weights on a GPU."""
    rounded = [one for one in (model, how.draft) if getattr(one, "weights", "fp32") != "fp32"]
    if not rounded or model.device.type == "cpu":
        return
    plain = {
        "`draft` needs steps of several tokens": how.draft is not None,
        "`coverage_penalty` needs attention weights": bool(how.coverage_penalty),
        "pictures and `trees` need an encoder of their own": reading is not None,
    }
    weights = f'weights="{rounded[0].weights}"'
    for why, given in plain.items():
        if given:
            raise BadInput(f"{why}, for which a GPU has no kernels with {weights}: leave out {weights}")


def draft_for(model: Model, draft: Any) -> Decoder:
    """The network of a model that may guess for this one."""
    if not isinstance(draft, type(model)):
        raise BadInput("a draft is a decoder that was loaded by heedful.load: give one, or leave it out")
    if draft.kind is not Decoder:
        raise BadInput(
            f"{draft.folder} is {IN_WORDS[draft.kind]}, and a draft is a decoder: "
            f"give another, or leave it out"
        )
    mine, its = model.wording.reads.get_vocab(), draft.wording.reads.get_vocab()
    if mine != its:
        raise BadInput(
            f"{draft.folder} knows {len(its):,} tokens and {model.folder} {len(mine):,}, "
            f"and they are not the same: a draft needs the same vocabulary"
        )
    if draft.device != model.device:
        raise BadInput(f"the draft is on {draft.device} and the model on {model.device}: load both alike")
    return draft.writing.model  # type: ignore[return-value]


def seed_of(seed: int, number: int, window: int = 0) -> int:
    """The seed of one text of many: whatever stands beside it, the same text is drawn."""
    said = f"{seed} {number}" + (f" {window}" if window else "")
    return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "little") >> 1


@dataclass(frozen=True)
class Search:
    """A model, and how it writes."""

    fast: FastModel
    how: DecodingOptions
    width: int
    ends: list[int]
    banned: list[list[int]]
    stops: StopStrings
    draft: Decoder | None = None
    reading: Reading | None = (
        None  # makes the network ready for the sources it reads next: their trees, or images
    )
    keep: Keep | None = None  # hands out a step that has read some of the text already
    heard: Listener | None = None  # is told of every step of a beam search

    def but(self, **changed: Any) -> Search:
        """This search with other options of these names, checked before: filters do not depend on them."""
        how, other = object.__new__(DecodingOptions), object.__new__(Search)  # without their checks
        vars(how).update(vars(self.how), **changed)
        vars(other).update(vars(self), how=how, common_filters=self.common_filters)
        return other

    # Many texts.

    def write(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """The answers to each, best first; texts of like length are done together."""
        return finish(self.write_in_turns(requests))

    def write_in_turns(
        self, requests: Sequence[Request], prefill: int | None = None
    ) -> Turns[list[list[Hypothesis]]]:
        """The same, whatever the search: after each step of it, others may have their turn.

        prefill: tokens of prompts that a beam search reads in a turn; None: all of them.
        """
        found: list[list[Hypothesis]] = [[] for _ in requests]
        most = max(1, MOST_TOKENS // (self.width * self.how.beam_groups))
        batch = batch_for(self.how.batch, self.device.type)
        for some in by_length([one.length for one in requests], batch, most):
            written = yield from self.together([requests[i] for i in some], prefill)
            for i, hypotheses_of_one in zip(some, written, strict=True):
                found[i] = hypotheses_of_one
        return found

    def together(self, requests: list[Request], prefill: int | None = None) -> Turns[list[list[Hypothesis]]]:
        """The answers to one batch. Past the end of a position table, its later half is read again."""
        if self.width > 1 or self.how.beam_groups > 1 or self.heard is not None:
            return (yield from self.beam(requests, prefill))
        written: list[list[Token]] = []
        for new in self.streamed(requests, soon=False):
            written.append(new)
            yield
        return [[one] for one in hypotheses(written, len(requests))]

    def beam(self, requests: list[Request], prefill: int | None = None) -> Turns[list[list[Hypothesis]]]:
        """The answers of a beam search."""
        settings = self.settings
        self.refuse_beyond(max(len(one.prompt) + one.longest - 1 for one in requests))
        fed = [self.within(one) for one in requests]
        step = self.step(fed, watched=bool(settings.coverage_penalty))
        yield
        how: dict[str, Any] = {"settings": settings, "prefill": prefill, "heard": self.heard}
        return (yield from beam_steps(step, **self.fed(fed), **how))

    @property
    def settings(self) -> BeamSettings:
        """The settings of a beam search, from the options."""
        same = [f.name for f in fields(BeamSettings) if f.name != "width"]
        return BeamSettings(width=self.width, **{name: getattr(self.how, name) for name in same})

    # Token by token.

    def streamed(self, requests: list[Request], soon: bool = True) -> Iterator[list[Token]]:
        """The new tokens of every text, as they come. soon: somebody waits for each of them."""
        rows: list[list[int]] = [list(one.prompt) for one in requests]
        going, window = list(range(len(requests))), 0
        stop, stopped = self.stop_watch(requests)
        while going:
            fed = [self.within(requests[i], rows[i]) for i in going]
            over = list(going)
            for news in self.once(fed, window, soon, None if stop is None else partial(stop, tuple(going))):
                new = []
                for token in news:
                    i = going[token.row]
                    rows[i].append(token.token)
                    left = requests[i].longest - (len(rows[i]) - len(requests[i].prompt))
                    last = token.ended or left == 0 or (i in stopped and token.last)
                    new.append(token._replace(row=i, last=last))
                    if last:
                        over.remove(i)
                yield new
            going, window = over, window + 1

    def within(self, one: Request, row: list[int] | None = None) -> Request:
        """The tokens that are read of a text, and how many may follow; a long text loses its beginning."""
        row = one.prompt if row is None else row
        earlier, table = tuple(row[len(one.prompt) :]), self.table
        if table is None or not earlier and len(row) + one.longest <= table + 1:
            return one
        if len(row) > table:
            self.refuse_beyond(len(row))
            row = row[-max(1, table // 2) :]
        most = min(one.longest - len(earlier), table - len(row) + 1)  # the newest token is not fed
        whole: dict[str, Any] = {"read": tuple(one.prompt), "most": one.longest, "earlier": earlier}
        return replace(one, prompt=row, longest=most, prefix=one.prefix[len(earlier) :], **whole)

    def refuse_beyond(self, tokens: int) -> None:
        """Refuse a text that a model would read in another way as a whole, beyond some length (LongRoPE)."""
        position = decoder_of(self.model).inputs.position
        if isinstance(position, UpTo) and tokens > position.longest:
            longest = f"{position.limit} of {position.longest} tokens"
            raise BadInput(f"a text of {tokens} tokens passes {longest}: shorten it, or lower max_new_tokens")

    def text_so_far(self, request: Request) -> TextSoFar:
        """The text of an answer as its tokens come."""
        before = request.prompt if request.continues else ()
        return TextSoFar(self.stops.words, before, self.stops.strings)

    def stop_watch(
        self, requests: list[Request]
    ) -> tuple[Callable[[Sequence[int], int, int], bool] | None, set[int]]:
        """What ends rows at stop strings, and the rows that it has ended."""
        stopped: set[int] = set()
        if not self.stops.strings:
            return None, stopped
        texts = [self.text_so_far(request) for request in requests]

        def stop(going: Sequence[int], row: int, token: int) -> bool:
            if texts[going[row]].add(token, token in self.ends)[1]:
                stopped.add(going[row])
            return going[row] in stopped

        return stop, stopped

    def once(
        self, requests: list[Request], window: int, soon: bool, stop: Stop | None = None
    ) -> Iterator[list[Token]]:
        """One pass with fresh steps. A draft changes how soon tokens come, and not their distribution."""
        seeds = [seed_of(self.how.seed, one.number, window) for one in requests]
        step, fed = self.step(requests), self.fed(requests)
        if self.draft is not None:
            drawn = FilteredDistribution(
                softmax if self.how.sample else all_on_the_argmax, fed.pop("filters")
            )
            draft = step_of(self.draft)
            how = {"ahead": self.how.draft_tokens, "seed": seeds, "stop": stop, "top": self.how.top}
            yield from speculate(step, draft, **fed, distribution=drawn, **how)  # type: ignore[arg-type]
        else:
            choose: Callable[..., Any] = Sampler(seeds, self.device) if self.how.sample else greedy_choice
            yield from stream(step, **fed, choose=choose, soon=soon, stop=stop, top=self.how.top)

    # What every search is given.

    def step(self, requests: list[Request], watched: bool = False) -> Step:
        """A step of the model for one batch, whose sources are read here."""
        rows = [one.source for one in requests if one.source is not None]
        source = pad([row.ids for row in rows], self.device) if rows else ()
        room = max(len(one.prompt) + one.longest for one in requests)
        model = self.reading(self.model, rows) if self.reading is not None else self.model
        fresh = self.fast.step(*source, watched=watched, room=room, model=model)
        return fresh if self.keep is None else self.keep(fresh)

    def fed(self, requests: list[Request]) -> dict[str, Any]:
        """Prompts, limits, ends and filters of one batch."""
        prompts_BT, lengths_B = pad([one.prompt for one in requests], self.device)
        return {
            "prompts_BT": prompts_BT,
            "lengths_B": lengths_B,
            "longest": [one.longest for one in requests],
            "eos": self.ends,
            "filters": self.filters(requests),
        }

    def filters(self, requests: list[Request]) -> list[Filter]:
        """The filters of the options, whose texts are given as tokens."""
        how = self.how
        if self.has_common_filters and not any(one.prefix or one.least > one.written for one in requests):
            return list(self.common_filters)
        prefixes = [one.prefix for one in requests] if any(one.prefix for one in requests) else []
        least = [max(0, one.least - one.written) for one in requests]
        ends = bool(self.ends) or how.min_new_tokens > 0  # without ends, the latter is refused
        tokens: dict[str, Any] = {"prefix": prefixes, "bad_words": self.banned}
        tokens["min_new_tokens"] = least if any(least) and ends else 0
        if n := how.encoder_no_repeat_ngram_size:
            tokens["encoder_no_repeat_ngram_size"] = n, [one.text for one in requests]
        for name in ("presence_penalty", "frequency_penalty"):
            if penalty := getattr(how, name):
                tokens[name] = penalty, [one.earlier for one in requests]
        if how.begin_suppress_tokens:
            tokens["begin_suppress_tokens"] = how.begin_suppress_tokens, [one.first for one in requests]
        if how.forced_last:
            tokens["forced_last"] = how.forced_last, [one.last for one in requests]
        return make_filters(how, tokens, self.ends)

    @cached_property
    def has_common_filters(self) -> bool:
        """Whether no option has a filter that depends on the text."""
        return not any(getattr(self.how, name) for name in OF_TEXTS)

    @cached_property
    def common_filters(self) -> list[Filter]:
        """The filters of every text that has neither a prefix nor a least length."""
        tokens: dict[str, Any] = {"prefix": [], "bad_words": self.banned, "min_new_tokens": 0}
        return make_filters(self.how, tokens, self.ends) if self.has_common_filters else []

    @property
    def model(self) -> Network:
        return self.fast.model

    @property
    def table(self) -> int | None:
        """The longest row that the position tables of model and draft have room for; None: any length."""
        decoders = [decoder_of(self.model), self.draft]
        known = [decoder.inputs.position.longest for decoder in decoders if decoder is not None]
        return min((longest for longest in known if longest is not None), default=None)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device
