"""The planner: how long a model trains on machines that are not here.

Everything is arithmetic on shapes and on tables of machines. docs/howto/planning.md has the formulas and
their sources.

machines.py       GPUs and networks, from machines.json
rates.py          seconds of matrix products, attention and passes over memory on one GPU
training_step.py  the operations of a training step, and the seconds that they take
"""
