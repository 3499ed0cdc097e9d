"""How exact are the rules? Each against 200 digits, next to autograd through stock torch.

python -m benchmarks.exactness [--points N] [--output docs]
"""
