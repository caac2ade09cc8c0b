"""Writing: from what was asked for (a beam, a temperature, words to leave out) to what a model writes.

`Writing` is every option with its default, checked where they contradict each other. `Writer` chooses the search of
`heedful/decode` that they ask for, and gives it texts of like length together. Nothing here imports torch until
something is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..errors import BadInput
from ..models import nearest
from ..tasks.recipe.settings import Range

if TYPE_CHECKING:
    import torch

    from ..decode.filters import Filter
    from ..decode.hypothesis import Hypothesis, Token
    from ..decode.step import Step
    from ..fast.decoding import FastModel
    from ..models.base.shells import Decoder, EncoderDecoder

MOST_TOKENS = 1 << 14  # of a batch: long texts go in smaller ones


class Options(TypedDict, total=False):
    """The same names as `Writing` has, for those who check types."""

    beam: int
    n_best: int
    length_penalty: Literal["gnmt", "power"]
    alpha: float
    stopping: Literal["heuristic", "first_B", "exact"]
    coverage: float
    groups: int
    diversity: float
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float
    no_repeat_ngram: int
    forbid: Sequence[str]
    prefix: str
    draft: Any
    ahead: int
    longest: int
    batch: int


@dataclass(frozen=True)
class Writing:
    """How to write. None leaves the choice to the search."""

    beam: int | None = None  # hypotheses kept side by side: 4 to translate, 1 (greedy) to generate
    n_best: int = 1  # answers to keep for each text, best first
    length_penalty: str | None = None  # "gnmt" or "power"
    alpha: float | None = None  # its exponent: 0.6; 0 for none
    stopping: str | None = None  # when a beam is done: "heuristic", "first_B" or "exact"
    coverage: float | None = None  # weight of the penalty on source words that nothing looked at
    groups: int | None = None  # of beams, each made to differ from those before it
    diversity: float | None = None  # what it costs to write what another group wrote
    sample: bool = False  # draw each token at random instead of searching
    temperature: float | None = None  # below 1: more of the greedy_choice
    top_k: int | None = None  # draw from the k greedy_choice
    top_p: float | None = None  # draw from the greedy_choice that hold this share of the probability
    min_p: float | None = None  # draw from those at least so likely, compared with the greedy_choice
    seed: int = 0  # another seed, other texts
    repetition_penalty: float | None = None  # above 1: less of what was written before
    no_repeat_ngram: int | None = None  # no so many tokens in a row twice
    forbid: Sequence[str] = ()  # words never to write
    prefix: str = ""  # what every translation begins with
    draft: Any = None  # a smaller model that guesses ahead; changes the speed and not the text
    ahead: int | None = None  # how many tokens it guesses: 4
    longest: int | None = None  # tokens: twice the source and 20 to translate, 100 to generate
    batch: int = 32  # texts at once: fewer if memory is short

    def __post_init__(self) -> None:
        for name in RANGES:
            if getattr(self, name, None) is not None:
                check_number(name, getattr(self, name))
        if type(self.seed) is not int:
            raise BadInput(f"`seed` must be a whole number, not {self.seed!r}")
        if isinstance(self.forbid, str):
            raise BadInput(f'`forbid` takes a list of words: ["{self.forbid}"]')
        for name in SAMPLING:
            if getattr(self, name) is not None and not self.sample:
                raise BadInput(f"`{name}` does nothing unless tokens are drawn: ask for `sample` too")
        if self.sample and (self.beam or 1) > 1:
            raise BadInput("`sample` draws one token at a time and `beam` searches: ask for one of them")
        if self.ahead is not None and self.draft is None:
            raise BadInput("`ahead` is how far a draft guesses: give `draft` too")

    def width(self, otherwise: int) -> int:
        """The beam, where nothing else was asked for; whatever only a beam has is refused without one."""
        width = self.beam or (1 if self.sample or self.draft is not None else otherwise)
        if width == 1 and not (self.groups or 1) > 1:
            for name in BEAM:
                if getattr(self, name) not in (None, type(self).__dataclass_fields__[name].default):
                    raise BadInput(f"`{name}` is for beam search: ask for a `beam` of 2 or more")
        elif self.draft is not None:
            raise BadInput("a draft guesses for one hypothesis: leave out `beam`, or leave out `draft`")
        return width


# What numbers may be. Whole ones have whole ends.
RANGES = {
    "beam": Range(1, 1000),
    "n_best": Range(1, 1000),
    "groups": Range(1, 100),
    "top_k": Range(1, 10**9),
    "no_repeat_ngram": Range(1, 10**6),
    "ahead": Range(1, 100),
    "longest": Range(1, 10**6),
    "batch": Range(1, 10**5),
    "top": Range(1, 10**6),
    "alpha": Range(-5.0, 5.0),
    "coverage": Range(0.0, 1000.0),
    "diversity": Range(0.0, 1000.0),
    "temperature": Range(0.001, 1000.0),
    "top_p": Range(0.0, 1.0),
    "min_p": Range(0.0, 1.0),
    "repetition_penalty": Range(0.001, 1000.0),
}


def check_number(name: str, value: Any) -> None:
    """Refuse a value that is no number, or one that makes no sense."""
    allowed = RANGES[name]
    kinds = (int,) if type(allowed.least) is int else (int, float)
    if type(value) not in kinds or value not in allowed:
        kind = "a whole number" if kinds == (int,) else "a number"
        raise BadInput(f"`{name}` must be {kind} {allowed}, not {value!r}")


SAMPLING = ("temperature", "top_k", "top_p", "min_p")
BEAM = ("n_best", "length_penalty", "alpha", "stopping", "coverage", "groups", "diversity")


def asked(options: Options | dict[str, Any]) -> Writing:
    """Options by name; one that is none is refused with the nearest."""
    known = [f.name for f in fields(Writing)]
    for name in options:
        if name not in known:
            raise BadInput(f'there is no option "{name}"{nearest(name, known)}')
    return Writing(**options)


def seed_of(seed: int, number: int, window: int = 0) -> int:
    """The seed of one text of many: whatever stands beside it, the same text is drawn."""
    said = f"{seed} {number}" + (f" {window}" if window else "")
    return int.from_bytes(hashlib.sha256(said.encode()).digest()[:8], "little") >> 1


@dataclass(frozen=True)
class Given:
    """One text as a model is to be given it."""

    prompt: list[int]  # what the decoder begins with
    longest: int  # tokens to write at most
    source: list[int] | None = None  # what the encoder reads, if there is one
    number: int = 0  # among all the texts of a call
    prefix: list[int] = field(default_factory=list)  # what must be written first
    text: str = ""  # the source itself, which may know its tree

    @property
    def length(self) -> int:
        return len(self.prompt) if self.source is None else len(self.source)


@dataclass(frozen=True)
class Writer:
    """A model, and how it is to write."""

    fast: FastModel
    how: Writing
    width: int
    ends: list[int]
    banned: list[list[int]]
    draft: Decoder | None = None
    reading: Callable[[Any, list[str]], Any] = lambda model, texts: (
        model
    )  # told of the texts it is about to read

    # Many texts.

    def write(self, given: Sequence[Given]) -> list[list[Hypothesis]]:
        """The answers to each, best first; texts of like length are done together."""
        from ..tasks.evaluation import by_length

        found: list[list[Hypothesis]] = [[] for _ in given]
        most = max(1, MOST_TOKENS // (self.width * (self.how.groups or 1)))
        for some in by_length([one.length for one in given], self.how.batch, most):
            for i, answers in zip(some, self.together([given[i] for i in some]), strict=True):
                found[i] = answers
        return found

    def together(self, given: list[Given]) -> list[list[Hypothesis]]:
        """The answers to one batch. Past the end of a position table, the text goes on from its later half."""
        if self.searches:
            return self.search(given)
        from ..decode.hypothesis import hypotheses

        found = hypotheses(self.streamed(given, soon=False), len(given))
        return [[one] for one in found]

    @property
    def searches(self) -> bool:
        return self.width > 1 or (self.how.groups or 1) > 1

    def search(self, given: list[Given]) -> list[list[Hypothesis]]:
        from ..decode.beam import beam_search
        from ..decode.beam_settings import BeamSettings
        from ..decode.prompts import pad

        how = self.how
        named = {"length_penalty", "alpha", "stopping", "coverage", "groups", "diversity"}
        chosen = {name: value for name in named if (value := getattr(how, name)) is not None}
        settings = BeamSettings(width=self.width, n_best=how.n_best, **chosen)
        given = [self.within(one) for one in given]
        prompts_BT, lengths_B = pad([one.prompt for one in given], self.device)
        return beam_search(
            self.step(given, watched=bool(settings.coverage)), prompts_BT, lengths_B,
            longest=[one.longest for one in given], eos=self.ends, settings=settings, filters=self.filters(given),
        )  # fmt: skip

    # Token by token.

    def streamed(self, given: list[Given], soon: bool = True) -> Iterator[list[Token]]:
        """The new tokens of every text that is still being written, as they come; soon: somebody waits for them."""
        rows: list[list[int]] = [list(one.prompt) for one in given]
        going, window = list(range(len(given))), 0
        while going:
            fed = [self.within(given[i], rows[i]) for i in going]
            over = list(going)
            for news in self.once(fed, window, soon):
                told = []
                for token in news:
                    i = going[token.row]
                    rows[i].append(token.token)
                    left = given[i].longest - (len(rows[i]) - len(given[i].prompt))
                    last = token.ended or left == 0
                    told.append(token._replace(row=i, last=last))
                    if last:
                        over.remove(i)
                yield told
            going, window = over, window + 1

    def within(self, one: Given, row: list[int] | None = None) -> Given:
        """What is fed of a text, and how many tokens may follow: of one too long, the later half of the table."""
        row = one.prompt if row is None else row
        left, table = one.longest - (len(row) - len(one.prompt)), self.table
        if table is None:
            return one
        if len(row) > table:
            row = row[-max(1, table // 2) :]
        # The newest token is not fed, so one more fits.
        return Given(row, min(left, table - len(row) + 1), one.source, one.number, one.prefix, one.text)

    def once(self, given: list[Given], window: int, soon: bool) -> Iterator[list[Token]]:
        """One pass over what is fed, with fresh steps."""
        from ..decode.prompts import pad
        from ..decode.sampling import Sampler
        from ..decode.streaming import greedy_choice, stream

        how = self.how
        seeds = [seed_of(how.seed, one.number, window) for one in given]
        prompts_BT, lengths_B = pad([one.prompt for one in given], self.device)
        longest, filters = [one.longest for one in given], self.filters(given)
        if self.draft is not None:
            yield from self.speculated(given, prompts_BT, lengths_B, longest, filters, seeds)
            return
        choose: Callable[..., Any] = Sampler(seeds, self.device) if how.sample else greedy_choice
        yield from stream(
            self.step(given), prompts_BT, lengths_B, choose=choose, longest=longest, eos=self.ends, filters=filters,
            soon=soon,
        )  # fmt: skip

    def speculated(
        self,
        given: list[Given],
        prompts_BT: torch.Tensor,
        lengths_B: torch.Tensor,
        longest: list[int],
        filters: list[Filter],
        seeds: list[int],
    ) -> Iterator[list[Token]]:
        """With a draft that guesses ahead: the same text if greedy, the same distribution if drawn."""
        from ..decode.speculative import FilteredDistribution, all_on_the_argmax, softmax, speculate
        from ..decode.step import step_of

        assert self.draft is not None
        distribution = FilteredDistribution(softmax if self.how.sample else all_on_the_argmax, filters)
        yield from speculate(
            self.step(given), step_of(self.draft), prompts_BT, lengths_B, distribution=distribution, longest=longest,
            eos=self.ends, ahead=self.how.ahead or 4, seed=seeds,
        )  # fmt: skip

    # What every search is given.

    def step(self, given: list[Given], watched: bool = False) -> Step:
        from ..decode.prompts import pad

        source = () if given[0].source is None else pad([one.source or [] for one in given], self.device)
        room = max(len(one.prompt) + one.longest for one in given)
        model = self.reading(self.model, [one.text for one in given])
        return self.fast.step(*source, watched=watched, room=room, model=model)

    def filters(self, given: list[Given]) -> list[Filter]:
        """First what must or must not be said, then how flat, then how far down."""
        from ..decode import filters as f

        how, made = self.how, []
        if any(one.prefix for one in given):
            made.append(f.forced_prefix([one.prefix for one in given]))
        if self.banned:
            made.append(f.forbidden(self.banned))
        for name, make in {
            "no_repeat_ngram": f.no_repeat_ngram, "repetition_penalty": f.repetition_penalty,
            "temperature": f.temperature, "top_k": f.top_k, "top_p": f.top_p, "min_p": f.min_p,
        }.items():  # fmt: skip
            if getattr(how, name) is not None:
                made.append(make(getattr(how, name)))
        return made

    @property
    def model(self) -> Decoder | EncoderDecoder:
        return self.fast.model

    @property
    def table(self) -> int | None:
        """The longest row that a table of positions has room for, the model's or the draft's; None: there is no end."""
        decoders: list[Any] = [getattr(self.model, "decoder", self.model), self.draft]
        known = [decoder.inputs.position.longest for decoder in decoders if decoder is not None]
        return min((longest for longest in known if longest is not None), default=None)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device
