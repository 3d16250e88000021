"""Model selection: cross-validation, leave-one-out predictions, paths along a parameter, and choice of kernels."""
