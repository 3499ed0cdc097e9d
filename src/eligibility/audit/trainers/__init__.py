"""Trainers of language models, unmodified: every group of answers, and the gradient of each.

``tiny`` is the model and its tokenizer, ``hub`` and ``rows`` stand in for what a program loads by
name, ``settings`` makes a configuration fit, ``answers`` lists what can be sampled, ``sampling``
leads ``generate`` through it, ``gradients`` reads what the optimizer meets. ``trl`` and ``worker``
train once; ``record`` is what comes back to ``child``, and ``observed`` makes arrays of it.

A loop that a program has written itself is led by ``own`` and ``loop``: ``rewriting`` reads its
modules, ``draws`` gives it answers, ``scores`` finds its rewards, ``branch`` goes on with it once
for every group of answers.
"""
