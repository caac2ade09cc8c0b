"""The one error people see: a sentence that names the thing, and what to do about it."""


class BadInput(ValueError):
    """Something given to heedful is wrong: a file, a setting, a name. The command line exits with 2."""


class NotFinite(ArithmeticError):
    """A number that must be finite is not: the loss, a gradient, a weight to be saved. Exit code 3."""


class DiskFull(OSError):
    """There is no room for what must be written. Exit code 5."""


class NoCheckpoint(BadInput):
    """A run has checkpoints and none of them is whole. Exit code 4."""
