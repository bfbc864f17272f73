"""For a log that no broker needs to have open: verify it, salvage it, judge its order."""
