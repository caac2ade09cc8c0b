"""Comparing: several variants trained on the same data, tokenizer, order and budget, with several seeds, in one table.

asked.py    what is compared: variants over a shared base, budgets, built-in comparisons
cost_of.py    what a variant costs: parameters, FLOPs and memory of a step
trials.py   every variant with every seed, each in a run folder of its own; what is done is not done again
noise.py    which differences are more than noise
report.py   the table, CSV
plot.py     the picture
command.py  heedful compare
"""
