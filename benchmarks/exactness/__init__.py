"""How exact are the rules? Each against a 50-digit reference, beside autograd through stock torch.

python -m benchmarks.exactness [--points N] [--output docs]
"""
