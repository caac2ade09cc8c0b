"""Bench: this build beside the peers that are installed, on the same work, in one run.

`work.py` says what is done and how fast it can be done at best; `ours.py` does it with heedful, and each
file of `peers/` with another library. `worker.py` is a process in which one contender works; `measure.py`
starts them, lets them take turns and takes medians; `machine.py` measures what the machine can do at best.
`beside.py` puts a contest together; `scaling.py` and `prediction.py` ask two more questions of heedful
alone: how costs grow, and whether `heedful info` predicts them. `table.py`, `records.py` and `plot.py`
show it to people, to programs, and as a picture.

`heedful bench` and `python -m heedful.bench` are the same (`command.py`); the second needs only torch,
tokenizers and safetensors. The process that leads imports no torch, so it speaks at once and never computes
beside a contender.
"""
