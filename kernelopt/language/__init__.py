"""The words of the language: θ, data matrices, norms, rows, a user's own loss, and how they are printed."""
