"""Losses over the tokens of a language model: their exact expected gradient, and what it is."""
