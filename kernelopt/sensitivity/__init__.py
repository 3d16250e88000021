"""How an answer moves with the problem's parameters."""
