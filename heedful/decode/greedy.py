"""Greedy: take the most likely token, every time, until the end of the sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.base.shells import Decoder, EncoderDecoder
from .filters import Filter
from .prompts import Ends
from .step import Step, step_of
from .streaming import Hypothesis, greedy_choice, join_chunks, stream_chunks


def greedy(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends = None,
    filters: Sequence[Filter] = (),
) -> list[Hypothesis]:
    """The most likely next token after each prompt, again and again.

    Args:
        step: The model, as `step_of` makes it ready.
        prompts_BT: Numbers of tokens.
        lengths_B: Number of real tokens of each prompt. None: all of them.
        longest: Tokens to write at most: one number, or one for each row.
        eos: The token that ends a text, or several. None: only the length ends it.
        filters: Change the scores before the choice, such as those of `heedful.decode.filters`.

    Returns:
        A `Hypothesis` for each prompt.

    Example:
        >>> from heedful.decode.step import step_of
        >>> model = heedful.load("runs/lm")
        >>> prompt = torch.tensor([model.tokenizer.encode("The old king").ids])
        >>> (found,) = greedy(step_of(model.model), prompt, longest=4)
        >>> model.tokenizer.decode(found.tokens)
        'is going to be'
    """
    chunks = stream_chunks(
        step, prompts_BT, lengths_B, choose=greedy_choice, longest=longest, eos=eos, filters=filters
    )
    return join_chunks(chunks, len(prompts_BT))


def greedy_translation(
    model: EncoderDecoder, source_BS: Tensor, source_lengths_B: Tensor, bos: int, eos: int, longest: int
) -> list[list[int]]:
    """The answer to each source, without bos and eos, at most `longest` tokens."""
    step = step_of(model, source_BS, source_lengths_B)
    bos_B1 = torch.full((len(source_BS), 1), bos, device=source_BS.device)
    return [hypothesis.words for hypothesis in greedy(step, bos_B1, longest=longest, eos=eos)]


def greedy_continuation(model: Decoder, prompt_T: Tensor, tokens: int, context: int) -> list[int]:
    """`tokens` more tokens after one prompt; past the context, the oldest are forgotten."""
    ids, start = prompt_T.tolist(), -context
    while (missing := tokens - (len(ids) - len(prompt_T))) > 0:
        fed_1T = torch.tensor([ids[start:]], device=prompt_T.device)
        room = context - fed_1T.shape[1] + 1  # the newest token is not fed, so one more fits
        ids += greedy(step_of(model), fed_1T, longest=min(missing, room))[0].tokens
        start = -context // 2  # start over with the later half
    return ids[len(prompt_T) :]
