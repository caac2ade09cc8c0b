"""The proof that a decoder sees no later token, by symbols: every part keeps tokens apart or looks back only.

A mask is a rule and says whether it is `past_only`. The proof follows the stack: all attentions have such a
rule, recurrences run forwards, convolutions pad in front, and every other part treats each token alone. It
holds for every length. A part whose type is not listed here proves nothing, even if it is harmless: the
finding then names it, and only the measurement counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.functional as F
from torch import nn

from ...models.base.shells import Decoder
from ...parts import attention, embeddings, experts, layers, lora, masks, picture_masks, sparse_masks
from ...parts.before import attentive_decoders, convolution, lookup, recurrent
from ...parts.blocks import Block, Stack
from ...parts.long import compressed, linear, segments, windowed_cache
from ...parts.multihead import MultiHeadAttention
from ...parts.positions import absolute, base, relative, rotary

# Parts that treat each token alone, or see of others what a mask allows.
BY_TOKEN: frozenset[type[nn.Module]] = frozenset(
    {
        nn.Linear,
        nn.Identity,
        nn.Dropout,
        nn.ModuleList,
        nn.Sequential,
        nn.LayerNorm,
        nn.Embedding,
        lora.LoraLinear,
        embeddings.TokenEmbedding,
        embeddings.Inputs,
        embeddings.Tied,
        embeddings.Untied,
        layers.FeedForward,
        layers.GatedFeedForward,
        layers.LayerNorm,
        layers.RMSNorm,
        layers.GainLayerNorm,
        layers.BareLayerNorm,
        layers.BareRMSNorm,
        layers.PreNorm,
        layers.PostNorm,
        experts.Experts,
        experts.NoisyTopK,
        experts.SwitchTopK,
        attention.Dot,
        attention.ScaledDot,
        attention.Bilinear,
        attention.Additive,
        attention.SoftCapped,
        linear.KernelScore,
        convolution.NormedLinear,
        lookup.Lookup,
        lookup.Cross,
        convolution.AttentionStep,
        base.NoPosition,
        absolute.Learned,
        absolute.LearnedAfter,
        absolute.Sinusoidal,
        absolute.Concatenated,
        absolute.CaptionAndGrid,
        relative.Shaw,
        relative.ALiBi,
        relative.T5Buckets,
        relative.TransformerXL,
        rotary.Rotary,
        rotary.StretchedRotary,
    }
)
# Attentions that see what the mask of their layer allows: compressed ones a slot when its last token is seen.
BY_MASK: frozenset[type[nn.Module]] = frozenset(
    {
        Decoder,
        Stack,
        Block,
        MultiHeadAttention,
        windowed_cache.RecentAttention,
        segments.RecurrentAttention,
        compressed.CompressedKeys,
        compressed.CompressedInput,
        linear.KernelAttention,
    }
)
# Parts that run forwards over the text, and convolutions over the words before.
FORWARDS: frozenset[type[nn.Module]] = frozenset(
    {
        nn.RNN,
        nn.GRU,
        nn.LSTM,
        recurrent.Elman,
        recurrent.GRU,
        recurrent.LSTM,
        recurrent.CandidateGRU,
        recurrent.RecurrentStack,
        attentive_decoders.Searching,
        attentive_decoders.Attentive,
        convolution.ConvolutionDecoder,
        convolution.ConvolutionBlock,
        convolution.GatedConvolution,
    }
)
RULES: frozenset[type[masks.Mask]] = frozenset(
    {
        masks.Full,
        masks.Causal,
        masks.Window,
        sparse_masks.EveryNth,
        sparse_masks.SameBlock,
        sparse_masks.BlockTail,
        masks.AllOf,
        masks.AnyOf,
        masks.PerHead,
        picture_masks.Opening,
        picture_masks.Neighborhood,
    }
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def unproven(decoder: Decoder) -> str | None:
    """The first thing that keeps the proof from holding, in a phrase; None if it holds."""
    return next(gaps(decoder), None)


def gaps(decoder: Decoder) -> Iterator[str]:
    """Everything that keeps the proof from holding."""
    for number, mask in enumerate(decoder.masks):
        strange = [rule for rule in rules_in(mask) if type(rule) not in RULES]
        if strange:
            yield f"the mask {type(strange[0]).__name__} of layer {number + 1} has no proof"
        elif not mask.past_only:
            yield f"the mask of layer {number + 1} is not past-only"
    for path, module in decoder.named_modules():
        where = f"{type(module).__name__} at {path}" if path else type(module).__name__
        if type(module) not in BY_TOKEN | BY_MASK | FORWARDS:
            yield f"{where} has no proof"
        elif getattr(module, "bidirectional", False):
            yield f"{where} runs in both directions"
        elif getattr(module, "activation", F.relu) not in layers.ACTIVATIONS.values():
            yield f"the activation of {where} has no proof"
        elif changed_by_hand(module):
            yield f"{where} was changed by a hook or a method of its own"


def rules_in(mask: masks.Mask) -> Iterator[masks.Mask]:
    """The rules that a mask is made of."""
    yield mask
    for member in mask.masks if isinstance(mask, masks.Combined) else ():
        yield from rules_in(member)


def changed_by_hand(module: nn.Module) -> bool:
    """Whether one object differs from its class: a hook, or a method that was replaced."""
    hooked = any(getattr(module, name, None) for name in HOOKS)
    own = (name for name, value in vars(module).items() if callable(value) and hasattr(type(module), name))
    return hooked or next(own, None) is not None
