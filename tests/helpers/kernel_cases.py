"""What several tests share with tests/fast/test_decoding_kernels.py."""

import torch

from heedful.decode.prompts import pad
from heedful.decode.step import step_of
from heedful.fast.cuda_graph import GraphStep, RunnerPool
from heedful.fast.gpu_decoder import GPUDecoder
from heedful.models import gpt2, llama, transformer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def shaken(module):
    """No weight as it was made: gains are not 1, biases not 0."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return module.to(DEVICE).eval()


def tiny_gpt2():
    return gpt2.build(gpt2.GPT2Config(vocab=23, context=20, layers=2, width=12, heads=2, ffn_width=20))


def tiny_llama():
    config = llama.LlamaConfig(
        vocab=23, context=20, layers=2, width=16, heads=4, kv_heads=2, key_width=4, ffn_width=20
    )
    return llama.build(config)


def tiny_transformer(norm="post", positions="sinusoidal"):
    sizes = {"layers": 1, "decoder_layers": 1, "width": 12, "heads": 2, "decoder_heads": 3}
    config = transformer.TransformerConfig(
        vocab=23, target_vocab=23, ffn_width=20, decoder_ffn_width=28, norm=norm, positions=positions, **sizes
    )
    return transformer.build(config)


MODELS = {
    "gpt2": tiny_gpt2,
    "llama": tiny_llama,
    "transformer": tiny_transformer,
    "pre-norm": lambda: tiny_transformer("pre", "sinusoidal+rotary"),
}


class Eager(GraphStep):
    """Looks at its tokens late, as on a GPU."""

    chunk = 4


def fast(model, source=None, room=8, kind=Eager):
    decoder, encoder = (model, None) if source is None else (model.decoder, model.encoder)
    given = () if source is None else pad(source, DEVICE)
    return kind(RunnerPool(GPUDecoder(decoder), encoder), room, *given)


def plain(model, source=None):
    return step_of(model, *(() if source is None else pad(source, DEVICE)))
