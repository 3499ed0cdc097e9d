"""Trainers of language models, unmodified: every group of answers, and the gradient of each.

``tiny`` is the model and its tokenizer, ``hub`` puts them where a program loads its own, ``settings``
makes a configuration fit, ``answers`` is what can be sampled, ``sampling`` leads ``generate`` through it,
``trl`` and ``run`` train once, ``record`` is what comes back; ``terms`` and ``verdict`` say what it means.
"""
