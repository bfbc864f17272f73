"""The job ``report``: what was accepted, delivered, failed and waited for, as tables and one page."""
