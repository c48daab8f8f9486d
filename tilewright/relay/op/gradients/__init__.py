"""Gradients of operators, a file for each family.

A rule takes a call and the gradient of its result, and returns the gradient of each argument. Both are expressions of
other operators, so that a gradient can be differentiated again:

    def exp(call, grad):
        return [multiply(grad, call)]

None is the gradient of an argument that the result does not depend on (an index, a shape) or depends on in steps. For
an argument that is a tuple, a rule returns a list of gradients. The declaration of the operator names its rule:
`Traits(gradient=rule)`. The call and its arguments have types; `parts.py` has what the rules share.
"""
