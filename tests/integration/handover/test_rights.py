"""A worker or planner without a right says which one; doctor finds it before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import admin as confluent_admin

from balancer.consumer.errors import BrokerRefused
from balancer.moves.inspection import inspect
from balancer.moves.kafka import FenceFailed, PlannedGroup
from balancer.moves.promises import doubts
from tests.integration.handover.pool import Pool, echo
from tests.peers.kafka import PASSWORD, USER, Kafka

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


class Rights:
    """Grants to the user of the login door, taken back at the end."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._made: list[object] = []

    def grant(self, kind: str, name: str, *operations: str, prefix: bool = False) -> None:
        pattern = "PREFIXED" if prefix else "LITERAL"
        made = [
            confluent_admin.AclBinding(
                confluent_admin.ResourceType[kind],
                name,
                confluent_admin.ResourcePatternType[pattern],
                f"User:{USER}",
                "*",
                confluent_admin.AclOperation[operation],
                confluent_admin.AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in self.pool.admin.create_acls(made).values():
            future.result(20)
        self._made += made

    def all_but(self, *left_out: str) -> None:
        pool = self.pool
        rights = {
            "ids": lambda: self.grant("TRANSACTIONAL_ID", f"headway.{pool.group}.", "WRITE", "DESCRIBE", prefix=True),
            "group": lambda: self.grant("GROUP", pool.group, "READ"),
            "input": lambda: self.grant("TOPIC", pool.topic, "READ"),
            "output": lambda: self.grant("TOPIC", pool.out, "WRITE"),
            "cluster": lambda: self.grant("BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS"),
            "internal": lambda: self.grant("TOPIC", "__", "DESCRIBE", "DESCRIBE_CONFIGS", prefix=True),
        }
        for name, give in rights.items():
            if name not in left_out:
                give()

    def close(self) -> None:
        filters = [
            confluent_admin.AclBindingFilter(
                a.restype, a.name, a.resource_pattern_type, a.principal, a.host, a.operation, a.permission_type
            )
            for a in self._made
        ]
        for future in self.pool.admin.delete_acls(filters).values() if filters else ():
            future.result(20)


@pytest.fixture
def rights(pool: Pool) -> Iterator[Rights]:
    made = Rights(pool)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("ids", "Write and Describe on the transactional id prefix"),
        ("output", "Write on the output and dead-letter topics"),
        ("group", "Read on the group"),
        ("input", "Read on the consumed topics"),
    ],
)
def test_a_worker_without_a_right_names_it(pool: Pool, kafka: Kafka, rights: Rights, left_out: str, says: str) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    rights.all_but(left_out)
    pool.plan()
    worker = pool.worker(echo, bootstrap_servers=kafka.login_bootstrap, properties=LOGIN)
    pool.write(["v"])
    worker.thread.join(120)
    assert isinstance(worker.error, BrokerRefused), worker.error
    assert says in str(worker.error)


def test_a_worker_with_every_right_works_through_the_login_door(pool: Pool, kafka: Kafka, rights: Rights) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    rights.all_but("cluster", "internal")  # only the planner needs those
    pool.plan()
    pool.worker(echo, bootstrap_servers=kafka.login_bootstrap, properties=LOGIN)
    pool.write(["v"])
    assert pool.read(1) == {0: ["v"]}


@pytest.mark.parametrize(
    ("left_out", "needs"),
    [
        ((), set()),
        (("ids",), {"Write and Describe on transactional ids headway.{group}.*"}),
        (("group",), {"Describe on group {group}"}),
        (("input",), {"Describe on topic {topic}"}),
        (("cluster",), {"DescribeConfigs on the cluster"}),
    ],
)
def test_doctor_finds_the_right_that_is_missing(
    pool: Pool, kafka: Kafka, rights: Rights, left_out: tuple[str, ...], needs: set[str]
) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    rights.all_but(*left_out)
    facts = inspect({"bootstrap.servers": kafka.login_bootstrap, **LOGIN}, pool.group, [pool.topic])
    wanted = {need.format(group=pool.group, topic=pool.topic) for need in needs}
    assert set(facts.missing_rights) == wanted, facts
    assert {d.what.split(":")[0] for d in doubts(facts) if d.closes} == wanted
    assert facts.brokers == 1


def test_ids_are_listed_with_the_workers_own_login_or_doctor_says_why_not(
    pool: Pool, kafka: Kafka, rights: Rights
) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    rights.all_but()
    known = {name: value for name, value in LOGIN.items() if name != "sasl.mechanism"} | {"sasl.mechanisms": "PLAIN"}
    properties = {"bootstrap.servers": kafka.login_bootstrap, **known}
    assert inspect(properties, pool.group, [pool.topic]).unlisted is None
    source = PlannedGroup(kafka.login_bootstrap, pool.group, [pool.topic], known)
    source.fence_id(f"headway.{pool.group}.7")
    assert source.transactional_ids() == {f"headway.{pool.group}.7": 7}
    source.close()

    unknown = {"sasl.kerberos.service.name": "kafka"}  # means nothing here, and kafka-python has no word
    (doubt,) = (d for d in doubts(inspect(properties | unknown, pool.group, [pool.topic])) if d.closes)
    assert "sasl.kerberos.service.name" in doubt.what
    with pytest.raises(FenceFailed, match=r"sasl\.kerberos\.service\.name"):
        PlannedGroup(kafka.login_bootstrap, pool.group, [pool.topic], known | unknown).transactional_ids()
