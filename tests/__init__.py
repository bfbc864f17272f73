"""The tests. Each says in its docstring which promise it guards.

They stand in the same rooms and wings as the code that they are about; what guards the whole stands in ``tests/whole``.
"""
