"""Measurements of the operations and of their installed peers: time, memory, accuracy."""
