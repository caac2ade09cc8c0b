"""Greedy: take the likeliest word, every time, until the end of the sentence."""

from __future__ import annotations

import torch
from torch import Tensor

from ..models.shells import Decoder, EncoderDecoder


@torch.no_grad()
def greedy_translation(
    model: EncoderDecoder, source_BS: Tensor, source_lengths_B: Tensor, bos: int, eos: int, longest: int
) -> list[list[int]]:
    """The answer to each source, without bos and eos, at most `longest` tokens."""
    memory_BSD = model.encoder(source_BS, source_lengths_B)
    cache = model.decoder.growing_cache()
    token_B1 = torch.full((len(source_BS), 1), bos, device=source_BS.device)
    done_B = torch.zeros(len(source_BS), dtype=torch.bool, device=source_BS.device)
    written = []
    for _ in range(longest):
        scores_BV = model.decode(memory_BSD, token_B1, source_lengths_B, cache=cache)[:, -1]
        token_B1 = scores_BV.argmax(-1, keepdim=True).masked_fill(done_B[:, None], eos)
        done_B = done_B | (token_B1[:, 0] == eos)
        written.append(token_B1)
        if bool(done_B.all()):
            break
    return [until(row, eos) for row in torch.cat(written, 1).tolist()]


@torch.no_grad()
def greedy_continuation(model: Decoder, prompt_T: Tensor, tokens: int, context: int) -> list[int]:
    """`tokens` more tokens after one prompt; past the context, the oldest are forgotten."""
    ids = prompt_T.tolist()
    cache, fed = model.growing_cache(), prompt_T[None, -context:]
    for _ in range(tokens):
        if cache.size + fed.shape[1] > context:  # start over with the later half
            cache, fed = model.growing_cache(), torch.tensor([ids[-context // 2 :]], device=prompt_T.device)
        scores_BTV = model(fed, cache=cache)
        fed = scores_BTV[:, -1:].argmax(-1)
        ids.append(int(fed))
    return ids[len(prompt_T) :]


def until(row: list[int], eos: int) -> list[int]:
    """A row up to its end-of-sentence."""
    return row[: row.index(eos)] if eos in row else row
