"""`python -m heedful` is `heedful`."""

from .cli.main import entry

entry()
