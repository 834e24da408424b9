"""python3 -m suites.faults.detour NAME NAME SECONDS: two TUN devices; what goes into one comes out of the other, later.

Prints a line when they exist, and ends when its input does. The devices may be moved to other namespaces meanwhile."""
import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
WAITING_MAX = 100_000  # packets; beyond that they are dropped
BATCH = 64  # packets of one end, before those that are due are sent


def device(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


def take(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # nothing more, or the device is down
        return None


def main(one, other, seconds):
    ends, delay = [device(one), device(other)], float(seconds)
    across, waiting = dict(zip(ends, reversed(ends))), collections.deque()
    print("ready", flush=True)
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([sys.stdin, *ends], [], [], wait)
        if sys.stdin in ready:
            return
        for fd in ready:
            for _ in range(BATCH):
                if not (packet := take(fd)):
                    break
                if len(waiting) < WAITING_MAX:
                    waiting.append((time.monotonic() + delay, across[fd], packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, fd, packet = waiting.popleft()
            try:
                os.write(fd, packet)
            except OSError:  # the other end's queue is full, or its device is down: lost
                pass


if __name__ == "__main__":
    main(*sys.argv[1:])
