"""What tests of single stages look at inside of a solved problem."""


def reduction_of(problem):
    return problem._factored.reduction


def point_of(problem):
    return problem._point
