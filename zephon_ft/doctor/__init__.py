"""`zephon-ft doctor`: what this environment is, what in it is broken or slow, and the command that fixes it."""
