"""The one error people see: a sentence that names the thing, and what to do about it."""


class BadInput(ValueError):
    """Something given to heedful is wrong: a file, a setting, a name. The command line exits with 2."""
