"""The patient: a model to be examined, and random inputs to try it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...interop.loaded import Loaded
from ...models.base.shells import Decoder, Encoder, EncoderDecoder, needs_tree, shells_of
from ...models.elmo import ElmoConfig
from ...models.vit import PatchInputs
from ...parts.before.characters import LETTERS
from ...parts.embeddings import Inputs
from ...parts.places import IN_ORDER, At, Places
from ...parts.positions.base import Tree, index_of
from ...tasks.recipe.settings import Recipe
from ..look.layers import attending_shells

T, S, B = 9, 11, 3  # tokens to write and to read, and rows


class Patient:
    """A model to be examined, and things to try it with."""

    def __init__(
        self, loaded: Loaded, folder: Path | None = None, recipe: Recipe | None = None, seed: int = 0
    ) -> None:
        self.loaded, self.folder, self.recipe = loaded, folder, recipe
        self.model: nn.Module = chained(loaded.model.eval())
        self.shells = attending_shells(self.model)
        self.device = next(self.model.parameters()).device
        self.random = torch.Generator().manual_seed(seed)

    @property
    def reader(self) -> Encoder | Decoder:
        """What reads the text: the encoder, or a decoder alone."""
        return next(iter(self.shells.values()))

    @property
    def decoder(self) -> Decoder | None:
        shell = list(self.shells.values())[-1]
        return shell if isinstance(shell, Decoder) else None

    @property
    def is_pair(self) -> bool:
        return isinstance(self.model, EncoderDecoder)

    @property
    def reads_text(self) -> bool:
        return hasattr(self.loaded.config, "vocab") and not isinstance(self.reader.inputs, PatchInputs)

    def tokens(self, shell: Encoder | Decoder, rows: int, length: int) -> Tensor:
        """Random tokens, as many as its positions allow."""
        longest, c = shell.inputs.position.longest, self.loaded.config
        size = shell.inputs.tokens.weight.shape[0] if isinstance(shell.inputs, Inputs) else c.vocab
        shape = rows, length if longest is None else min(length, longest)
        tokens_BT = torch.randint(size, shape, generator=self.random).to(self.device)
        if not isinstance(c, ElmoConfig) or c.input != "characters":
            return tokens_BT
        letters_BTC = torch.randint(LETTERS, (*shape, c.max_characters), generator=self.random).to(
            self.device
        )
        return torch.cat([tokens_BT[..., None], letters_BTC], -1)

    def inputs(self, rows: int = B) -> Tensor:
        """Something to read: random tokens, or images."""
        if self.reads_text:
            return self.tokens(self.reader, rows, S if self.is_pair else T)
        c = self.loaded.config
        return torch.randn(rows, c.channels, c.image_size, c.image_size, generator=self.random).to(
            self.device
        )

    def targets(self, rows: int = B) -> Tensor:
        """Tokens that a decoder reads."""
        assert self.decoder is not None
        return self.tokens(self.decoder, rows, T)

    def outputs(
        self,
        read: Tensor,
        written: Tensor | None = None,
        read_places: Places = IN_ORDER,
        written_places: Places = IN_ORDER,
    ) -> Tensor:
        """Scores [B, T, V] of a decoder; vectors [B, T, D] of an encoder."""
        if isinstance(self.model, EncoderDecoder):
            assert written is not None
            return self.model(read, written, read_places, written_places)
        return self.reader(read, read_places)


def chained(model: nn.Module) -> nn.Module:
    """The model; if it reads sentences with their trees, a chain (each word on the one before) is the tree of
    any text."""
    for shell in shells_of(model).values():
        if isinstance(shell, Encoder) and needs_tree(shell):
            shell.register_forward_pre_hook(with_chains, with_kwargs=True)
    return model


def with_chains(encoder: Encoder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    tokens_BT, *given = args
    places = given[0] if given else IN_ORDER
    if isinstance(places, At):
        return None
    positions = places.positions(tokens_BT.shape[1])
    index_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand(tokens_BT.shape)
    tree = Tree(index_BT if positions is None else index_of(positions), index_BT - 1)
    return (tokens_BT, At(tree)), kwargs
