"""The job ``archive``: sealed segments as Parquet, exactly once, and reading them back."""
