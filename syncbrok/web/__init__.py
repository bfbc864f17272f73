"""The page the broker serves: plain HTML, CSS and JavaScript modules, sent as they stand here."""
