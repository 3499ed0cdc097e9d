"""Measurements of the operations beside what else is installed: time, memory, accuracy."""
