"""Loaded by schemathesis (``SCHEMATHESIS_HOOKS``): a request that would wait for ten seconds waits for a moment."""

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: schemathesis.Case, **_more: Any) -> None:
    """Change the request."""
    if case.headers and "wait" in str(case.headers.get("Prefer", "")):
        case.headers["Prefer"] = "wait=0.01"
    if isinstance(case.body, dict) and "wait" in case.body and case.path.endswith("/pull"):
        case.body["wait"] = "10ms"
