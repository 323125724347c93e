"""FakeGroup: the members of a consumer group without a broker, and which partitions each has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway._kafka import Place
    from laneway.testing._consumer import FakeConsumer
    from laneway.testing._fake_topics import FakeTopics

__all__ = ["FakeGroup"]


class FakeGroup:
    """Gives each partition to one member, and to the next one only when the last has given it back.

    As with a cooperative assignor, members keep what they have as far as all get as many.

    Args:
        kafka: has the topics.
    """

    def __init__(self, kafka: FakeTopics) -> None:
        self._kafka = kafka
        self._members: list[FakeConsumer] = []
        self._wanted: dict[Place, FakeConsumer] = {}
        """Who is to have each partition."""
        self._counts: dict[str, int] | None = None

    def join(self, member: FakeConsumer) -> None:
        """A member is new, or comes back after it was expelled."""
        self._members.append(member)
        self._counts = None

    def forget(self, member: FakeConsumer) -> None:
        """A member has left, was killed or is expelled: its partitions go to others at once."""
        if member in self._members:
            self._members.remove(member)
            self._counts = None

    def expel(self, member: FakeConsumer) -> None:
        """Give the partitions of a member to others while it is at work on them; it hears of it when it reads again."""
        self.forget(member)
        member.is_member = False
        self._balance()

    def rotate(self) -> None:
        """Give each partition to the next member; to the same one again where there is no other."""
        self._balance()
        members = self._members
        for place, owner in list(self._wanted.items()):
            self._wanted[place] = members[(members.index(owner) + 1) % len(members)]
        if len(members) == 1 and not members[0].releasing:
            members[0].release(members[0].owned)

    def is_settled(self, member: FakeConsumer) -> bool:
        """Whether a member has what it is to have."""
        self._balance()
        return (
            member.is_member
            and not member.releasing
            and member.owned == {place for place, owner in self._wanted.items() if owner is member}
        )

    def attend(self, member: FakeConsumer) -> bool:
        """Let a member take and give back partitions, before it reads; False while it must not read."""
        if not member.is_member:
            if any(place not in owner.owned for place, owner in self._wanted.items() if place in member.owned):
                return False  # it hears of it when others are at work on what it had
            member.lose(member.owned)
            member.is_member = True
            self.join(member)
        self._balance()
        if not member.releasing:
            gone = [place for place in member.owned if self._wanted.get(place) is not member]
            if gone:
                member.release(sorted(gone))
        if member.releasing and not member.give_back():
            return False
        taken = {place for other in self._members if other is not member for place in other.owned}
        free = [place for place, owner in self._wanted.items() if owner is member and place not in taken]
        member.assign(place for place in free if place not in member.owned)
        return True

    def _balance(self) -> None:
        """Find out who is to have what, when members or partitions came or went."""
        counts = {topic: self._kafka.partitions(topic) for member in self._members for topic in member.topics}
        if counts == self._counts:
            return
        self._counts = counts
        before, self._wanted = self._wanted, {}
        for topic, count in counts.items():
            members = [member for member in self._members if topic in member.topics]
            share, more = divmod(count, len(members))
            had = {id(member): [place for place, owner in before.items() if owner is member and place[0] == topic]
                   for member in members}  # fmt: skip
            ordered = sorted(members, key=lambda member: -len(had[id(member)]))
            quotas = {id(member): share + (number < more) for number, member in enumerate(ordered)}
            for member in ordered:
                kept = had[id(member)][: quotas[id(member)]]
                self._wanted |= dict.fromkeys(kept, member)
                quotas[id(member)] -= len(kept)
            free = [(topic, number) for number in range(count) if (topic, number) not in self._wanted]
            for member in ordered:
                for _ in range(quotas[id(member)]):
                    self._wanted[free.pop(0)] = member
