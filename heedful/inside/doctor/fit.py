"""Checks of what must fit together: tokenizer and model, padding and end, context and positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...parts.embeddings import Inputs
from .finding import FAIL, OK, WARN, Finding, NotApplicable
from .patient import Patient

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What vocabularies call these tokens.
NAMES = {
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "eos": ("</s>", "<|endoftext|>", "[EOS]", "<eos>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>"),
    "bos": ("<s>", "[BOS]", "<bos>", "<|begin_of_text|>", "<|endoftext|>", "<|startoftext|>"),
}
SMOOTH, ROUGH = 0.5, 0.2  # cosine of neighboring positions: trained ones are alike, fresh ones are not
TAIL = 16  # positions at the end of a table that are looked at together
FADED = 0.05  # of the usual norm of a position


def tokenizer_fits(p: Patient) -> Finding:
    """Every token has a row, and special tokens are those that the model's settings name."""
    if p.loaded.tokenizer is None:
        raise NotApplicable("the folder has no tokenizer")
    found = [*faults_of(p)]
    remedy = "put the tokenizer of this model into the folder, or correct its special tokens"
    said = "; ".join(found) or "every token has a row; special tokens agree"
    return Finding(FAIL if found else OK, float(len(found)), said, "0 faults", remedy)


def faults_of(p: Patient) -> Iterator[str]:
    sides = [(p.loaded.tokenizer, p.reader)]
    if p.decoder is not None and p.loaded.target_tokenizer is not None:
        sides.append((p.loaded.target_tokenizer, p.decoder))
    for tokenizer, shell in sides:
        if tokenizer is None or not isinstance(shell.inputs, Inputs):
            continue
        rows = shell.inputs.tokens.weight.shape[0]
        highest = max(tokenizer.get_vocab().values(), default=-1)
        if highest >= rows:
            yield f"token {highest:,} has no row: the embedding has {rows:,}"
    writes: Any = p.loaded.target_tokenizer or p.loaded.tokenizer
    for name, number in p.loaded.special.items():
        if p.decoder is None and name != "pad":
            continue  # a model that writes nothing has no use for them
        if writes.id_to_token(number) is None:
            yield f"{name} is token {number:,}, which the tokenizer does not have"
        elif (other := named_otherwise(writes, name, number)) is not None:
            yield f"{name} is token {number:,}, {writes.id_to_token(number)!r}, and the tokenizer has {other}"


def named_otherwise(tokenizer: Tokenizer, name: str, number: int) -> str | None:
    """A special token that is called so, if the settings name an ordinary token instead."""
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    if number in special or name not in NAMES:
        return None
    called = [(token, tokenizer.token_to_id(token)) for token in NAMES[name]]
    return next((f"{token!r}, token {id:,}" for token, id in called if id in special), None)


def padding_and_end(p: Patient) -> Finding:
    """Padding is not the end token: what leaves padding out of the loss would leave out the end."""
    pad, end = (p.loaded.special.get(name) for name in ("pad", "eos"))
    if pad is None or end is None:
        raise NotApplicable(f"the folder names no {'padding' if pad is None else 'end'} token")
    remedy = "training that leaves out padding by its number never learns to end a text: train with heedful, "
    remedy += "which goes by places, or give the tokenizer a padding token of its own"
    if pad != end:
        return Finding(OK, 0.0, f"padding is token {pad:,}, the end is token {end:,}", "differ", remedy)
    summary = f"padding and end are both token {pad:,}"
    if p.recipe is not None:
        summary += "; heedful leaves padding out of the loss by its place, so the end is learned"
        return Finding(OK, 1.0, summary, "differ", remedy)
    return Finding(WARN, 1.0, summary, "differ", remedy)


def trained_context(p: Patient) -> Finding:
    """The context is no longer than what positions were trained for."""
    if not p.reads_text:
        raise NotApplicable("all images have the same size")
    table = table_of_positions(p)
    context = getattr(p.loaded.config, "context", None) or (None if table is None else len(table))
    if context is None:
        raise NotApplicable("the model states no context")
    trained, why = min(limits_of(p, table), default=(context, ""), key=lambda one: one[0])
    remedy = f"keep texts below {trained:,} tokens (data.max_length, --context), or train on longer ones"
    if trained >= context:
        return Finding(OK, 0.0, f"{context:,} positions", "all trained", remedy)
    summary = f"{context:,} positions, of which {trained:,} were trained ({why})"
    return Finding(WARN, float(context - trained), summary, "all trained", remedy)


def limits_of(p: Patient, table_TD: Tensor | None) -> Iterator[tuple[int, str]]:
    """(positions that were trained, how that is known)."""
    c = p.loaded.config
    if p.recipe is not None:
        longest = getattr(p.recipe.data, "max_length", None)
        if longest and p.recipe.task in ("lm", "mlm") and not p.recipe.train.from_:
            yield int(longest), "data.max_length of the run"
    if getattr(c, "rope_scaling", None) in ("llama3", "yarn"):
        reach = int(c.rope_original_context * c.rope_factor)
        yield max(reach, c.rope_original_context), "rotary positions are scaled to reach so far"
    if table_TD is not None and (rows := trained_rows(table_TD)) < len(table_TD):
        yield rows, "rows of the position table after these look untrained"


def table_of_positions(p: Patient) -> Tensor | None:
    """The learned table of positions [T, D], if there is one."""
    table = getattr(getattr(p.reader.inputs, "position", None), "table", None)
    return table.detach().float().cpu() if isinstance(table, Tensor) and table.ndim == 2 else None


def trained_rows(table_TD: Tensor) -> int:
    """Rows before an untrained tail: in a trained table neighbors are alike, in an untrained tail they are
    not, or have faded by weight decay. All rows of a table that is untrained altogether."""
    if len(table_TD) < 4 * TAIL:
        return len(table_TD)
    norms_T = table_TD.norm(dim=-1)
    cosines_T = torch.cosine_similarity(table_TD[:-1], table_TD[1:], dim=-1)
    head = len(table_TD) // 4
    faded_T = norms_T < FADED * norms_T[:head].median()
    if cosines_T[:head].mean() < SMOOTH and not faded_T[-TAIL:].all():
        return len(table_TD)
    rough_T = cosines_T.unfold(0, TAIL, 1).mean(-1) < ROUGH
    bad = [i for i in range(len(rough_T)) if rough_T[i] or faded_T[i : i + TAIL].all()]
    tail = len(rough_T)
    while bad and bad[-1] == tail - 1:
        tail = bad.pop()
    return (
        len(table_TD) if tail == len(rough_T) else tail + (0 if faded_T[tail : tail + TAIL].all() else TAIL)
    )
