"""Convex functions of one number or of a row of numbers: all that is known of a loss.

A new function is one class in one of these modules, and one row of `tests/pieces/test_table.py`.
"""
