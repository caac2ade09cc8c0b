"""Tokenizers found in a model folder, read through Hugging Face `tokenizers`.

A tokenizer.json may carry regular expressions, and a hostile one can run for hours on a short text while
holding the interpreter. So only patterns that published models use are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .files import MEGABYTE, inside, read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LIMIT = 64 * MEGABYTE

# Split and Replace patterns of published tokenizers (GPT-2 and its heirs, LLaMA 3, T5).
KNOWN_PATTERNS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" {2,}",
    r"\s+",
    r"\s",
    r"\d",
    r"[0-9]",
    r"\p{N}",
    r"\n",
}


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer: tokenizer.json, or the vocabulary files of GPT-2 or BERT; None if there is none."""
    if (folder / "tokenizer.json").exists():
        path = inside(folder, "tokenizer.json")
        check_patterns(path, read_json(path, LIMIT))
        return guarded(path, lambda t: t.Tokenizer.from_file(str(path)))
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        vocab, merges = inside(folder, "vocab.json"), inside(folder, "merges.txt")
        return guarded(vocab, lambda t: byte_level_bpe(t, vocab, merges))
    if (folder / "vocab.txt").exists():
        path = inside(folder, "vocab.txt")
        return guarded(path, lambda t: word_piece(t, path))
    return None


def guarded(path: Path, make: Any) -> Tokenizer:
    """Run what reads a tokenizer; the library's panics are not Exceptions, so catch those too."""
    import tokenizers

    if path.stat().st_size > LIMIT:
        raise BadInput(f"{path} has {path.stat().st_size} bytes; at most {LIMIT} are read")
    try:
        return make(tokenizers)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001
        raise BadInput(f"{path} is not a tokenizer that can be read: {error}") from None


def check_patterns(path: Path, spec: dict[str, Any]) -> None:
    """Refuse regular expressions that no published tokenizer uses."""
    for pattern in patterns(spec):
        if pattern not in KNOWN_PATTERNS:
            raise BadInput(
                f"{path} splits text by the regular expression {pattern!r}, which no published tokenizer uses: "
                f"such patterns can hang on short texts, so it is not read"
            )


def patterns(node: Any) -> Iterator[str]:
    """Every {"Regex": ...} in a tokenizer.json, however deep."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if isinstance(node.get("Regex"), str):
                yield node["Regex"]
            pending.extend(node[key] for key in node if key not in ("vocab", "merges"))
        elif isinstance(node, list):
            pending.extend(node)


def byte_level_bpe(t: Any, vocab: Path, merges: Path) -> Tokenizer:
    """GPT-2's: bytes as letters, merged by rank."""
    tokenizer = t.Tokenizer(t.models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = t.decoders.ByteLevel()
    return tokenizer


def word_piece(t: Any, path: Path) -> Tokenizer:
    """BERT's: words cut into the longest known pieces; lower case unless tokenizer_config.json says otherwise."""
    settings = path.with_name("tokenizer_config.json")
    lower = read_json(settings).get("do_lower_case", True) if settings.exists() else True
    tokenizer = t.Tokenizer(t.models.WordPiece.from_file(str(path), unk_token="[UNK]"))
    tokenizer.normalizer = t.normalizers.BertNormalizer(lowercase=bool(lower))
    tokenizer.pre_tokenizer = t.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = t.decoders.WordPiece()
    special = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    if all(number is not None for _, number in special):
        tokenizer.post_processor = t.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
        )
    known = [
        s for s in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if tokenizer.token_to_id(s) is not None
    ]
    tokenizer.add_special_tokens(known)
    return tokenizer
