"""A group's offsets set as Kafka's own tool does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.spark_scene import Scene

__all__ = ["reset"]


def reset(scene: Scene, offsets: Mapping[int, int], topic: str = "") -> None:
    """Do what ``kafka-consumer-groups --reset-offsets --execute`` does.

    That is one request of the admin client, which the broker refuses while the group has members, with an offset and
    without metadata. (The command itself is in ``kafka-tools``, which the development broker does without.)
    """
    places = [TopicPartition(topic or scene.topic, partition, offset) for partition, offset in offsets.items()]
    said: list[object] = []

    def is_done() -> bool:
        request = [ConsumerGroupTopicPartitions(scene.group, places)]
        try:
            answer = scene.client.alter_consumer_group_offsets(request)[scene.group].result()
        except KafkaException as error:
            said[:] = [error]
            return False
        said[:] = [place.error for place in answer.topic_partitions if place.error]
        return not said

    eventually(is_done, timeout=60, every=0.2, why=lambda: f"the reset of {scene.group}: {said}")
