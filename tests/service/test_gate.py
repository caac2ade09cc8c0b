"""The gate lets in as many as there are places, keeps a queue, and refuses the rest."""

import asyncio
import random

import pytest

from heedful.service.fields import HttpError
from heedful.service.gate import Gate


def test_never_more_are_in_than_there_are_places_and_all_get_their_turn_in_order():
    async def main():
        gate, inside, order = Gate(4, 100, 5.0), 0, []
        dice = random.Random(2)

        async def one(number, places):
            nonlocal inside
            async with gate.enter(places):
                inside += places
                assert inside <= 4
                order.append(number)
                await asyncio.sleep(dice.random() / 500)
                inside -= places

        await asyncio.gather(*(one(number, dice.choice([1, 2, 4])) for number in range(40)))
        assert order == sorted(order) and gate.used == 0 and not gate.queue

    asyncio.run(main())


def test_a_full_queue_answers_429_with_when_to_come_back():
    async def main():
        gate = Gate(1, 1, 5.0)
        async with gate.enter(1):
            waiting = asyncio.ensure_future(gate.enter(1).__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(HttpError) as refused:
                async with gate.enter(1):
                    pass
            assert refused.value.status == 429 and int(refused.value.headers["retry-after"]) >= 1
        await waiting
        assert gate.used == 1

    asyncio.run(main())


def test_who_waits_too_long_gets_503_and_who_gives_up_leaves_the_queue():
    async def main():
        gate = Gate(1, 9, 0.02)
        async with gate.enter(1):
            with pytest.raises(HttpError) as refused:
                async with gate.enter(1):
                    pass
            assert refused.value.status == 503
            gate.queue_seconds = 5.0
            gone = asyncio.ensure_future(gate.enter(1).__aenter__())
            await asyncio.sleep(0)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert not gate.queue
        assert gate.used == 0

    asyncio.run(main())


def test_who_is_cancelled_in_the_moment_of_admission_gives_the_places_back():
    async def main():
        gate = Gate(2, 9, 5.0)
        async with gate.enter(2):
            early = asyncio.ensure_future(gate.enter(2).__aenter__())
            late = asyncio.ensure_future(gate.enter(1).__aenter__())
            await asyncio.sleep(0)
        assert gate.used == 2  # admitted, and not yet awake
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        await late
        assert gate.used == 1 and not gate.queue

    asyncio.run(main())


def test_who_is_cancelled_just_before_the_turn_is_passed_over():
    async def main():
        gate = Gate(2, 9, 5.0)
        async with gate.enter(2):
            gone = asyncio.ensure_future(gate.enter(2).__aenter__())
            next = asyncio.ensure_future(gate.enter(2).__aenter__())
            await asyncio.sleep(0)
            gone.cancel()  # cancelled, and not yet awake
        await next
        assert gate.used == 2 and gone.cancelled()

    asyncio.run(main())


def test_joining_and_giving_up_at_random_leaves_nothing_behind():
    async def main():
        gate, inside, dice = Gate(5, 60, 0.01), 0, random.Random(5)

        async def one():
            nonlocal inside
            places = dice.choice([1, 2, 5])
            async with gate.enter(places):
                inside += places
                assert inside <= 5
                try:
                    await asyncio.sleep(dice.random() / 500)
                finally:
                    inside -= places

        for _ in range(20):
            tasks = [asyncio.ensure_future(one()) for _ in range(30)]
            for task in dice.sample(tasks, 15):
                await asyncio.sleep(dice.choice([0, 0, 0.001]))
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(one) for one in found} <= {type(None), asyncio.CancelledError, HttpError}
            assert (gate.used, len(gate.queue), inside) == (0, 0, 0)

    asyncio.run(main())


def test_a_request_for_more_places_than_there_are_takes_all_of_them():
    async def main():
        gate = Gate(3, 9, 1.0)
        async with gate.enter(50):
            assert gate.used == 3

    asyncio.run(main())


def test_closing_refuses_those_who_wait_and_keeps_those_inside():
    async def main():
        gate = Gate(2, 9, 5.0)
        async with gate.enter(2):
            waiting = [asyncio.ensure_future(gate.enter(1).__aenter__()) for _ in range(3)]
            await asyncio.sleep(0)
            gate.close()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert [one.status for one in found] == [503] * 3 and gate.used == 2
        assert gate.used == 0

    asyncio.run(main())


def test_a_closed_gate_lets_nobody_in():
    async def main():
        gate = Gate(3, 9, 1.0, closed=True)
        with pytest.raises(HttpError, match="shutting down"):
            async with gate.enter(1):
                pass

    asyncio.run(main())
