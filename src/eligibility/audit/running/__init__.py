"""Runs of the program: one, all paths of an update, and the child process that they happen in."""
