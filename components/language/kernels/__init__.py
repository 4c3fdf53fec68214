"""What makes generation and training fast: attention and decoder kernels with equal numbers."""
