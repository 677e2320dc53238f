"""A pipeline of three stages in processes of their own, and a client that streams from it.

    python three_stages.py KEY_FILE

Kill a stage while it generates: it is started again and given the past, and the stream goes on.
"""

import asyncio
import contextlib
import os
import signal
import sys

import numpy as np

from rankproof_integrity import AsyncTransport, PeerRestarted, TransferFailed, key_from_file

STAGES, TOKENS, WIDTH = 3, 40, 64


def transport(node):
    return AsyncTransport(node=node, key=key_from_file(sys.argv[1]))


async def stage(number, address):
    """A part of the model: its state is what it was given so far, as a cache is."""
    weights = np.random.default_rng(number).standard_normal((WIDTH, WIDTH)) / 8
    async with transport(f"stage {number}") as lines:
        lines.connect("hub", address)
        while True:
            message = await lines.receive(source="hub")
            if message.position == 0:
                past = np.zeros(WIDTH)
            past = np.sin(3 * message.array() @ weights + past)
            await lines.send_tensor(past, to="hub", position=message.position)


class Hub:
    """Starts the stages, hands hidden states through them, and starts one again that is gone."""

    def __init__(self, lines, address):
        self.lines, self.address, self.pids = lines, address, {}
        self.past = {number: [] for number in range(STAGES)}
        for number in range(STAGES):
            lines.expect(f"stage {number}")
            self.start(number)

    def start(self, number):
        command = [sys.executable, __file__, sys.argv[1], str(number), *map(str, self.address)]
        self.pids[number] = os.spawnv(os.P_NOWAIT, sys.executable, command)

    async def through(self, number, hidden):
        """Give a hidden state to a stage, and all before it to one that has begun again."""
        past = self.past[number]
        past.append(hidden)
        first = len(past) - 1
        while True:
            try:
                for at in range(first, len(past)):
                    await self.lines.send_tensor(past[at], to=f"stage {number}", position=at)
                    answer = await self.lines.receive(source=f"stage {number}")
                return answer.array()
            except PeerRestarted:
                self.lines.renew(f"stage {number}")
                first = 0

    async def watch(self):
        while True:
            for number, pid in self.pids.items():
                if os.waitpid(pid, os.WNOHANG) != (0, 0):
                    self.start(number)
            await asyncio.sleep(0.05)

    async def serve(self, client):
        token = int(bytes((await self.lines.receive(source=client)).data))
        for position in range(TOKENS):
            hidden = np.eye(WIDTH)[token]
            for number in range(STAGES):
                hidden = await self.through(number, hidden)
            token = int(hidden.argmax())
            await self.lines.send(b"%d" % token, to=client, stream="tokens", position=position)


async def client(address):
    async with transport("client") as lines:
        lines.connect("hub", address)
        await lines.send(b"1", to="hub")
        for _ in range(TOKENS):
            message = await lines.receive(source="hub", stream="tokens")
            print(message.position, int(bytes(message.data)), flush=True)


async def main():
    async with transport("hub") as lines:
        hub = Hub(lines, await lines.listen(("127.0.0.1", 0)))
        lines.expect("client")
        watching = asyncio.create_task(hub.watch())
        await asyncio.gather(hub.serve("client"), client(hub.address))
        watching.cancel()
        for pid in hub.pids.values():
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(TransferFailed):  # who was ended says no goodbye
            await lines.close(timeout=0.1)


if __name__ == "__main__":
    there = sys.argv[2:]
    asyncio.run(stage(int(there[0]), (there[1], int(there[2]))) if there else main())
