"""A course in five measured steps: from a tensor expression to a schedule that a search found.

python -m practice.main        (in the folder `examples`)
"""
