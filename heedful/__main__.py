"""`python -m heedful` is `heedful`."""

import sys

from .cli import main

sys.exit(main())
