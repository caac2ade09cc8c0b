"""DeBERTa of transformers, imported without the warning that importing it calls torch.jit.script."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from transformers import DebertaModel, DebertaV2Model  # noqa: F401
