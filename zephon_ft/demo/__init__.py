"""What `zephon-ft demo` runs: a data set made by arithmetic, a tiny model, and a look at what comes out.

Nothing in the rest of the package imports this.
"""
