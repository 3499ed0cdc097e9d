"""How rows of logits are computed: the definition in torch, the C++ kernels, the Triton kernels."""
