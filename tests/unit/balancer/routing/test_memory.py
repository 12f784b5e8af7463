from balancer.routing.memory import MemoryTableLog
from tests.splitting.table_log import check_table_log


def test_the_twin_keeps_what_a_table_log_promises():
    first = MemoryTableLog()
    check_table_log(first, MemoryTableLog(first), topic="orders")
