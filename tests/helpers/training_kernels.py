"""What the tests of the kernels of training share: where they run, how close they come, and twins."""

import torch

from heedful.fast import training
from heedful.fast.training import for_training
from heedful.parts.embeddings import Inputs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter multiplies no bfloat16
CLOSE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def with_twins(model):
    """The twins of a compiled training step, without compiling: Triton's interpreter could not be."""
    for module in for_training(model).modules():
        if isinstance(module, Inputs):
            module.__class__ = training.twin_class(training.TrainingInputs, type(module))
    return model


def gradients(out, inputs, slope):
    return torch.autograd.grad(out, inputs, slope)
