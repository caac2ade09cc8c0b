"""`heedful train`, each step a little slower than it needs to be, so that a test can step in.

torchrun ... tests/helpers/paced_train.py train ...
"""

import sys
import time

import torch

from heedful.cli import main as cli
from heedful.runs import training

PAUSE = 0.04  # seconds


def main() -> int:
    told = training.told

    def paced(batches, world):
        read = told(batches, world)

        def late(step):
            time.sleep(PAUSE)
            return read(step)

        return late

    training.told = paced
    torch.set_num_threads(1)
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    cli.end(main())
