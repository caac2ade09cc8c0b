"""`python -m heedful` is `heedful`."""

import sys

from .cli.main import main

sys.exit(main())
