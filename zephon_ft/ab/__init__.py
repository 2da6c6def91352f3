"""A/B: runners, interpreters and other loaders side by side on one job, checked for equal results first.

`job` and `measure` are the contract of a side, `compare` the comparison, `run` the command.
"""
