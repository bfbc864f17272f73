"""The tests. Each says in its docstring which promise it guards."""
