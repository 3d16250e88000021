"""Kernel principal components: the one nonconvex problem that eigenvalues solve exactly."""
