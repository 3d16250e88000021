"""Inequalities at all points of a box: bounds on their bend, proofs by branch and bound, and the exchange of points."""
