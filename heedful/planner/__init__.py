"""The planner: memory, time and cost of training on machines that are not here.

Everything is arithmetic on shapes and on tables of machines. docs/howto/planning.md has the formulas and
their sources.

machines.py       GPUs and networks, from machines.json
rates.py          seconds of matrix products, attention and passes over memory on one GPU
training_step.py  the operations of a training step, and the seconds that they take
shardings.py      the ways to spread a model over GPUs: ddp, fsdp, hsdp, with tensor parallelism
memory.py         bytes of one GPU
communication.py  seconds of all-gather, reduce-scatter and all-reduce, by rings and trees
timeline.py       what is computed and what is sent meanwhile
search.py         all plans, and the best of them
subject.py        the model, and how much it reads
bill.py           steps, days, energy and cost
command.py        the command that trains as a plan says
remedies.py       what helps where nothing fits
published.py      GPT as it was published, from published.json
"""
