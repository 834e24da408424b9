"""How many requests a gateway must answer from its memory: a minimum per suite, which a gateway that forwards everything would miss."""
from pathlib import Path

FLOORS = Path(__file__).with_name("answered-from-memory.txt")


def floors():
    """{suite: requests}"""
    lines = (line.split() for line in FLOORS.read_text().splitlines() if line.strip() and not line.startswith("#"))
    return {suite: int(count) for suite, count in lines}


def judge(report, from_memory, asked):
    floor = floors()[report.suite]
    told = f"{from_memory} of {asked} requests were answered from memory, at least {floor} must be"
    report.check("requests are answered from memory", from_memory >= floor, told, told)
