from types import SimpleNamespace

import confluent_kafka as ck

from balancer.moves.vitals import BrokerVitals, brokers_of
from balancer.splits import Brokers


def cluster(*partitions, brokers=3):
    rows = {
        i: SimpleNamespace(leader=leader, replicas=list(range(n)), isrs=list(range(m)))
        for i, (leader, n, m) in enumerate(partitions)
    }
    return SimpleNamespace(
        brokers=dict.fromkeys(range(brokers)), topics={"t": SimpleNamespace(error=None, partitions=rows)}
    )


def test_room_and_vital_signs_are_counted():
    assert brokers_of(cluster((1, 3, 3), (2, 3, 2), (-1, 3, 1)), per_broker=13) == Brokers(10, 1, 1)
    assert brokers_of(cluster((1, 3, 3), (1, 3, 3)), per_broker=2).partitions_left == 0
    assert brokers_of(cluster((1, 1, 1)), per_cluster=5).partitions_left == 4


def test_an_answer_serves_for_a_while_and_silence_vetoes_nothing():
    now, answers = [0.0], [cluster((1, 3, 3)), ck.KafkaException(ck.KafkaError(ck.KafkaError._TRANSPORT))]

    def list_topics(timeout):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    vitals = BrokerVitals("127.0.0.1:1", every_s=30.0, clock=lambda: now[0])
    vitals._admin = SimpleNamespace(list_topics=list_topics)
    first = vitals()
    assert first.veto() is None and vitals() is first
    now[0] = 31.0
    assert vitals() == Brokers()
