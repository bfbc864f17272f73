"""The HTTP frontend (INTERFACES sections 2 and 3).

``server`` listens, ``app`` puts the routes together; each other file is one subject. A route is a row
(``routes.Route``) with a handler that gets the ``HttpContext`` and the request; extra ones are handed to
``HttpServer``.
"""
