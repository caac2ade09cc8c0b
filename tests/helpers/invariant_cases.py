"""What several tests share with tests/models/test_invariants.py."""

import torch

from heedful.models.base.shells import Decoder

B, S, T = 3, 9, 7


EXACT = 1e-12


def tokens(*shape: int, vocab: int = 17) -> torch.Tensor:
    return torch.randint(vocab, shape)


def close(found, expected, atol=EXACT):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def future_leaks(decoder: Decoder, run, ids: torch.Tensor) -> torch.Tensor:
    """[T, T]: whether scores at row t have any gradient from the embedding of token s."""
    embedded = []

    def keep(module, args, out):
        out = out.detach().requires_grad_()
        embedded.append(out)
        return out

    hook = decoder.inputs.register_forward_hook(keep)
    scores = run(ids)
    hook.remove()
    rows = []
    for t in range(ids.shape[1]):
        (grad,) = torch.autograd.grad(scores[0, t].square().sum(), embedded[-1], retain_graph=True)
        rows.append(grad[0].abs().sum(-1) > 0)
    return torch.stack(rows)
