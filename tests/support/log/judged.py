"""What the judge of the order says of a story, and the story most tests of it begin with."""

from syncbrok.log.offline.order import OrderChecker, WaitingDelivery, check
from syncbrok.model.message import ParentFailure, Scope
from tests.support.log.story import Story


def rules(story: Story) -> list[str]:
    return [violation.rule for violation in check(story.facts)]


def waiting(story: Story) -> list[WaitingDelivery]:
    checker = OrderChecker()
    for fact in story.facts:
        checker.apply(fact)
    assert checker.violations == []
    return checker.waiting()


class Pair:
    """A queue with two subscribers, a parent and its child."""

    def __init__(self, policy: ParentFailure = ParentFailure.FAIL, scope: Scope = Scope.ALL) -> None:
        self.story = Story()
        self.queue = self.story.queue()
        self.one, self.two = self.story.subscriber(self.queue), self.story.subscriber(self.queue)
        self.parent = self.story.publish(self.queue)
        self.child = self.story.publish(self.queue, self.parent, policy=policy, scope=scope)
