"""The mathematics at speed: the same closed forms as autograd operations."""
