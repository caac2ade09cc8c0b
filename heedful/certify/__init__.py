"""The certificate that an exported model is the same model: checks, comparison, verdict."""
