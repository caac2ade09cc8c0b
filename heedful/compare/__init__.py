"""Comparing: several variants, trained with several seeds on the same data and budget, in one table.

comparison.py    what is compared: variants over a shared base, budgets, built-in comparisons
cost.py          what a variant costs: parameters, FLOPs and memory of a step
trials.py        every variant with every seed and learning rate, each in a run folder; nothing is done twice
significance.py  which differences are more than noise
studentized_range.py  the distribution behind that test
report.py        the table, as text, CSV and JSON
plot.py          the picture
results.py       the result of a folder, for Python and notebooks

The command is heedful/cli/compare.py.
"""
