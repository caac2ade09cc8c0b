"""Step: the one thing a search knows of a model. Tokens go in, scores for the next ones come out.

A step remembers what it was fed, so each call brings the new tokens only. Its rows can be put in another
order, copied or dropped (`reorder`, which beam search needs) and cut short (`rewind`, which speculation
needs). A faster step (see `fast.decoding`) may also write several tokens at once, by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..models.base.shells import Decoder, Encoder, EncoderDecoder
from ..parts.cache import GrowingCache
from ..parts.places import IN_ORDER, At, Lengths, Source
from ..parts.positions.base import check_length
from ..parts.view import right_padded
from ..parts.watch import Watchable, watch
from .turns import Turns

if TYPE_CHECKING:
    from .beam import Rules, Searches
    from .prefix_tree import PrefixTree

CHUNK = 16  # tokens written on a GPU before the host looks
LEAD = 4  # tokens that a device is given to write before the host looks at those before


class Step(ABC):
    """What a search needs of a model: scores for the next token."""

    @abstractmethod
    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Scores [B, T, V] for the token after each, given these and all that was fed before.

        lengths: how many tokens of each row are real, the rest being padding at its end; 0 lets a row wait.
        """

    @abstractmethod
    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before.

        siblings: rows only trade places with rows of the same source and length, which may be cheaper.
        """

    @abstractmethod
    def rewind(self, lengths_B: Tensor) -> None:
        """Forget all but the first lengths[b] tokens of each row."""

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Scores after each row's last real token: a long prompt need not be scored throughout.

        Args:
            tokens_BT: New tokens of each row.
            lengths_B: How many of them are real, the rest being padding. None: all.

        Returns:
            Scores [B, V].
        """
        return at_last(self(tokens_BT, lengths_B), lengths_B)

    def greedy_tokens(self, tokens_B: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Feed these tokens, and `count` times take the most likely next token.

        They come back with their log-probabilities and their scores, [count, B] each. None if this step has
        no quicker way than `last`.
        """
        return None

    def extend_searches(
        self, searches: Searches, tree: PrefixTree, rules: Rules, n: int, run: int
    ) -> Searches | None:
        """`run` tokens more for each prefix of n tokens in a beam search; None if nothing is quicker."""
        return None

    @property
    def chunk(self) -> int:
        """How many tokens to write before looking at any: looking makes the host wait for the device."""
        return 1

    @property
    def tokens_left(self) -> int | None:
        """How many tokens more are sure to fit every row; perhaps more do. None if there is no end."""
        return None

    @property
    def reads_in_parts(self) -> bool:
        """Whether prompts may be fed a few tokens at a time, and no token sees those that follow."""
        return False

    def head_start(self, run: int, room: int, can_end: bool) -> int:
        """How many of the next tokens to write before looking which rows have ended: all if no row can."""
        if self.chunk == 1:
            return 0
        return max(0, self.fitting(min(run, room, LEAD if can_end else run)))

    def fitting(self, count: int) -> int:
        """So many tokens, or as many as are sure to fit."""
        return count if self.tokens_left is None else min(count, self.tokens_left)

    @property
    def attention(self) -> Tensor | None:
        """The newest token's attention to the source, [B, H, S], -1 in the padding; None if unknown."""
        return None


def read_prompts(
    step: Step, prompts_BT: Tensor, lengths_B: Tensor | None, prefill: int | None = None
) -> Turns[Tensor]:
    """Scores [B, V] after each prompt, fed to a fresh step. prefill: about as many tokens in each turn."""
    B, T = prompts_BT.shape
    size = T if prefill is None else max(1, prefill // B)
    if T <= size or not step.reads_in_parts:
        return step.last(prompts_BT, lengths_B)
    scores_BV = prompts_BT.new_zeros(B, 1)
    for start in range(0, T, size):
        if start:
            yield
        fed_B = None if lengths_B is None else (lengths_B - start).clamp(0, size)
        new_BV = step.last(prompts_BT[:, start : start + size], fed_B)
        scores_BV = new_BV if fed_B is None else torch.where(fed_B[:, None] > 0, new_BV, scores_BV)
    return scores_BV


def at_last(x: Tensor, lengths_B: Tensor | None) -> Tensor:
    """What stands at each row's last real place in x, which is [B, T, ...]."""
    if lengths_B is None:
        return x[:, -1]
    rows_B = torch.arange(len(x), device=x.device)
    return x[rows_B, (lengths_B - 1).clamp(min=0)]


class DecoderStep(Step):
    """A decoder with a cache, alone or with the source that an encoder has read for it. `step_of` makes one.

    Args:
        decoder: The decoder.
        source: What the encoder has read.
        watched: Keep `attention`, the cross-attention of the last block.

    Attributes:
        cache: Keys and values of the tokens that were fed.
        fed: Tokens in the longest row.

    Example:
        >>> step = DecoderStep(heedful.load("runs/lm").model)
        >>> step(torch.tensor([[5, 7, 9], [5, 8, 3]])).shape[:2]
        torch.Size([2, 3])
        >>> step.last(torch.tensor([[4], [6]])).shape[0]
        2
        >>> step.reorder(torch.tensor([1, 1]))
        >>> step.rewind(torch.tensor([2, 2]))
    """

    def __init__(
        self,
        decoder: Decoder,
        source: Source | None = None,
        *,
        watched: bool = False,
    ) -> None:
        """watched: keep `attention`, the cross-attention of the last block, head by head."""
        self.decoder, self.source = decoder, source
        self.cache = decoder.growing_cache()
        self.fed = 0  # tokens in the longest row, or more: exact only where it matters
        self.origins_B: Tensor | None = None  # which of the first rows each row's source is
        if source is not None:
            self.origins_B = torch.arange(len(source.vectors_BSD), device=source.vectors_BSD.device)
        self.watched = cross_attention(decoder) if watched else None
        self.seen_BHS: Tensor | None = None

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        return self.decoder.head(self.hidden(tokens_BT, lengths_B), self.decoder.inputs.tokens)

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        last_BD = at_last(self.hidden(tokens_BT, lengths_B), lengths_B)
        return self.decoder.head(last_BD[:, None], self.decoder.inputs.tokens)[:, 0]

    def hidden(self, tokens_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
        """The vectors [B, T, D] the scores are made of."""
        self.check_room(tokens_BT.shape[1], lengths_B)
        with nullcontext() if self.watched is None else watch(self.watched) as trace:
            places = IN_ORDER if lengths_B is None else Lengths(lengths_B)
            hidden_BTD = self.decoder.hidden(tokens_BT, places, cache=self.cache, source=self.source)
        if trace is not None:
            self.look(trace.weights()[""], lengths_B)
        return hidden_BTD

    def check_room(self, T: int, lengths_B: Tensor | None) -> None:
        """Refuse what a learned table of positions cannot hold, before anything is computed."""
        self.fed += T
        table = self.decoder.inputs.position
        if table.longest is not None and self.fed > table.longest:
            positions = self.cache.next_positions(T, lengths_B)
            self.fed = self.cache.size + T if positions is None else int(positions.max()) + 1
            self.check_size(self.fed)

    def check_size(self, size: int) -> None:
        check_length(size, self.decoder.inputs.position)

    def look(self, weights_BHTS: Tensor, lengths_B: Tensor | None) -> None:
        seen_BHS = at_last(weights_BHTS.transpose(1, 2), lengths_B)
        if self.source is not None and self.source.positions is not None:
            seen_BHS = seen_BHS.masked_fill(self.source.positions[:, None] < 0, -1)
        self.seen_BHS = seen_BHS

    @property
    def chunk(self) -> int:
        return chunk_of(self.decoder)

    @property
    def tokens_left(self) -> int | None:
        longest = self.decoder.inputs.position.longest
        return None if longest is None else longest - self.fed

    @property
    def attention(self) -> Tensor | None:
        return self.seen_BHS

    @property
    def reads_in_parts(self) -> bool:
        past_only = all(mask.past_only for mask in self.decoder.masks)
        return past_only and type(self.cache) is GrowingCache and self.watched is None

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before.

        Args:
            rows: Numbers of rows.
            siblings: Rows only trade places with rows of the same source and length.
        """
        self.seen_BHS = None if self.seen_BHS is None else self.seen_BHS[rows]
        if self.source is None or self.origins_B is None:
            self.cache.reorder(rows)
        elif torch.equal(self.origins_B[rows], self.origins_B):
            self.reorder_tokens(rows)
        else:
            self.cache.reorder(rows)
            self.source, self.origins_B = rows_of(self.source, rows), self.origins_B[rows]

    def reorder_tokens(self, rows: Tensor) -> None:
        """Hypotheses of one sentence share its source: only what they wrote themselves changes places."""
        kept = [layer.source_kv for layer in self.cache.layers]
        for layer in self.cache.layers:
            layer.source_kv = None
        self.cache.reorder(rows)
        for layer, source_kv in zip(self.cache.layers, kept, strict=True):
            layer.source_kv = source_kv

    def rewind(self, lengths_B: Tensor) -> None:
        """Forget all but the first tokens of each row.

        Args:
            lengths_B: Tokens to keep of each row.
        """
        self.cache.rewind(lengths_B)

    def adopt(self, cache: GrowingCache, rows: Tensor | None) -> None:
        """Go on with this cache; rows: which of the sources read here each of its rows has."""
        self.cache = cache
        if self.source is not None and rows is not None:
            self.source, self.origins_B = rows_of(self.source, rows), rows


def read_source(encoder: Encoder, tokens: Tensor, lengths_B: Tensor | None) -> Source:
    """What the encoder says, with positions that are computed once and not at every step."""
    if lengths_B is None:
        return Source(encoder(tokens))
    vectors_BSD = encoder(tokens, Lengths(lengths_B))
    return Source(vectors_BSD, At(right_padded(lengths_B, vectors_BSD.shape[1])))


def rows_of(source: Source, rows: Tensor) -> Source:
    """Row b becomes what row rows[b] was."""
    places = IN_ORDER if source.positions is None else At(source.positions[rows])
    return Source(source.vectors_BSD[rows], places)


def chunk_of(decoder: Decoder) -> int:
    """How many tokens to write before looking at any, on the device of the decoder."""
    return CHUNK if decoder.inputs.tokens.weight.is_cuda else 1


def cross_attention(decoder: Decoder) -> nn.Module:
    """The last attention to the source."""
    found = [m for path, m in decoder.named_modules() if ".cross." in path and isinstance(m, Watchable)]
    if not found:
        raise BadInput("a decoder without a source has no cross-attention to watch: use watched=False")
    return found[-1]


@torch.no_grad()
def step_of(
    model: Decoder | EncoderDecoder,
    source: Tensor | None = None,
    source_lengths_B: Tensor | None = None,
    *,
    watched: bool = False,
) -> DecoderStep:
    """One model ready for a search: it answers with scores for the next token, again and again.

    An encoder-decoder reads its source here, once. A step serves one search.

    Args:
        model: A `Decoder`, or an `EncoderDecoder` with a source.
        source: Numbers of the source's tokens, [B, S].
        source_lengths_B: Number of real tokens of each source. None: all of them.
        watched: Keep `attention`, which the coverage penalty needs; costs that layer its fast kernel.

    Returns:
        A `DecoderStep`, for `greedy`, `sample`, `beam_search` and others.

    Example:
        >>> from heedful.decode.greedy import greedy
        >>> model = heedful.load("runs/demo").model
        >>> step = step_of(model, torch.tensor([[5, 7, 9]]))
        >>> (found,) = greedy(step, torch.tensor([[1]]), longest=3)
        >>> len(found.tokens)
        3
    """
    check_source(model, source)
    if isinstance(model, Decoder):
        return DecoderStep(model, watched=watched)
    assert source is not None
    return DecoderStep(model.decoder, read_source(model.encoder, source, source_lengths_B), watched=watched)


def check_source(model: Decoder | EncoderDecoder, source: Tensor | None) -> None:
    """Refuse a source for a decoder alone, and an encoder-decoder without one."""
    if isinstance(model, Decoder) and source is not None:
        raise BadInput("a decoder alone reads no source: put the text into the prompt")
    if not isinstance(model, Decoder) and source is None:
        raise BadInput("an encoder-decoder needs a source to decode from: give it one")
