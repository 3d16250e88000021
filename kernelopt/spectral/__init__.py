"""Kernel principal components: the one problem without convexity that eigenvalues solve exactly."""
