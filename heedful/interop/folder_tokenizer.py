"""The tokenizer of a folder, without its model: no weights are read, and torch is not imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..files import naming, one_line, present
from .hf.chat_files import read_kept
from .hf.token_settings import reads_special_tokens_as_text
from .hf.tokenizer import TARGET_TOKENIZER, TOKENIZER, read_alone, read_target, read_tokenizer
from .run_folder import is_run, refuse_stages, runs_inside

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def tokenizer_of(folder: Path, target: bool = False) -> Tokenizer:
    """What the model of a run or a Hugging Face folder reads texts by; target: what it writes them by."""
    with naming(folder):
        if not folder.is_dir():
            raise BadInput(one_line(f"{folder} is not a folder: give a run, or a Hugging Face folder"))
        refuse_stages(folder)
        own = is_run(folder)
        found = of_run(folder, target) if own else of_folder(folder, target)
        if found is None:
            more = runs_inside(folder)
            raise BadInput(one_line(f"{folder} has no tokenizer, so there is nothing to spell by{more}"))
        plain = read_kept(folder) is None if own else reads_special_tokens_as_text(folder)
        found.encode_special_tokens = plain  # a text that says [EOS] is only a text
    return found


def of_run(folder: Path, target: bool) -> Tokenizer | None:
    """That of a run: one for both languages, or one each."""
    name = TARGET_TOKENIZER if target and present(folder / TARGET_TOKENIZER) else TOKENIZER
    return read_alone(folder, name, None) if present(folder / name) else None


def of_folder(folder: Path, target: bool) -> Tokenizer | None:
    """That of a Hugging Face folder."""
    found = read_target(folder) if target else None
    return read_tokenizer(folder) if found is None else found
