"""What autograd keeps of a forward pass, with the kernels of a GPU imitated on the CPU."""

import torch

from heedful.parts import fused


class KernelRMSNorm(torch.autograd.Function):
    """A norm that keeps what the GPU's kernel keeps; on the CPU torch composes one from pieces that keep
    more."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = (x.float().square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, scale, weight)
        return x * scale * weight

    @staticmethod
    def backward(ctx, gradient):
        raise AssertionError("what is kept is counted before anything goes backwards")


def use_gpu_kernels(monkeypatch):
    """Let norms, dropout and attention keep on a CPU what they keep on a GPU."""
    functional = torch.nn.functional
    monkeypatch.setattr(functional, "rms_norm", lambda x, _, weight, eps: KernelRMSNorm.apply(x, weight, eps))
    # The CPU's own dropout keeps a number where the GPU's keeps a byte.
    monkeypatch.setattr(
        functional, "dropout", lambda x, p, train, _=False: torch.native_dropout(x, p, train)[0] if p else x
    )
    # On the CPU, sentences in half precision attend in fp32.
    monkeypatch.setattr(fused, "full_pays", lambda q, k: False)


def kept(model, inputs, precision="fp32", **given):
    """Bytes autograd holds after a forward pass: each storage once, the model's weights left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    held, storages = [], {}

    def pack(tensor):
        held.append(tensor)  # alive, so that no address is used twice
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    with autocast, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.train()(*inputs, **given)
    return sum(storages.values())
