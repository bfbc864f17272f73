"""The cluster as a node knows it, and giving way on purpose."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from aiohttp import web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import check_lease
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.resources import log_archived, log_segments
from syncbrok.frontends.over_http.shapes.answers import ClusterAnswer, YieldedAnswer
from syncbrok.frontends.over_http.shapes.bodies import YieldBody
from syncbrok.model.errors import BadSetting, Draining
from syncbrok.model.tokens import ADMIN

PATH = "/v1/cluster"
YIELD_PATH = "/v1/cluster/yield"


class ClusterNode(log_segments.SegmentHolder, Protocol):
    """The part of one node in its cluster."""

    def status(self) -> dict[str, Any]:
        """The fields of ``ClusterAnswer``."""
        ...

    def yields_to(self, node: str) -> None:
        """Let ``node`` lead next, once this node has ended in good order; whoever claims first if that is empty. Raises
        ``BadSetting`` where there is no such other node."""
        ...


def node_routes(node: ClusterNode) -> tuple[Route, ...]:
    """The routes that every node of a cluster has, whether it leads or follows: ``GET /v1/cluster``, and what it holds
    of the log."""

    async def show(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        return render.json(msgspec.convert(node.status(), ClusterAnswer))

    status = Route(
        "GET",
        PATH,
        show,
        "read",
        "cluster",
        "The nodes, who leads, and how far each has come",
        {200: Reply("As this node knows it.", ClusterAnswer)},
        of_node=True,
        operation="get_cluster",
    )
    return status, *log_segments.routes(node)


class LeadingNode(ClusterNode, log_archived.ArchiveLeader, Protocol):
    """One that leads."""


def routes(node: LeadingNode, stop: Callable[[], object]) -> tuple[Route, ...]:
    """The routes that only a node that leads has. ``stop`` ends the process as a signal does: in good order, and
    soon."""

    async def give_way(context: HttpContext, request: web.Request) -> web.StreamResponse:
        given = await read_object(request, context.options.body_timeout_s)
        try:
            to = msgspec.convert(given, YieldBody).to
        except msgspec.ValidationError as wrong:
            raise BadSetting(f'the body is {{}} or {{"to": "NODE"}}: {wrong}') from None
        if not context.view.ready:
            raise Draining("this node is stopping already", state=context.view.state)
        check_lease(context.lease)  # who led last would end for nothing, and the one that leads by now go on
        node.yields_to(to)
        stop()
        return render.json(YieldedAnswer(to or None), 202)

    give_way_route = Route(
        "POST",
        YIELD_PATH,
        give_way,
        ADMIN,
        "cluster",
        "Let another node lead: the leader's process drains and ends",
        {202: Reply("It drains, and gives way once its attempts have ended.", YieldedAnswer)},
        (503,),
        body=Body({JSON: YieldBody}, required=False),
        operation="yield_leadership",
    )
    return *node_routes(node), *log_archived.routes(node), give_way_route
