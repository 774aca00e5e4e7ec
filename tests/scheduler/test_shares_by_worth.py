"""What workers are worth to jobs, and how they are given out: curves, rungs, the heap, quotas."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_scheduler.plan.curves import Curve, Point
from edt_scheduler.plan.filling import Bidder, fill
from edt_scheduler.plan.queues import Claim, Demand, Queue, divide, entitlements
from edt_scheduler.plan.worth import Rungs, Weights, Work, envelope, offer, utility

SPEEDS = {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.0}


def offers(speeds: dict[int, float], held: int, work: Work, pause: float, weights: Weights) -> Rungs:
    """The rungs of a job with its weight."""
    made = offer(speeds, held, work, pause, weights)
    return tuple((size, worth * made.weight) for size, worth in made.rungs)


class TestCurves:
    def test_one_measured_size_is_enough_for_a_start(self) -> None:
        curve = Curve.fit([Point(1, 1, 2.0)], per_node=4)
        assert curve.speed(1) == 1
        assert 3 < curve.speed(4) < 4

    def test_what_was_measured_overrules_the_model(self) -> None:
        points = [Point(1, 1, 2.0), Point(2, 1, 1.2), Point(4, 1, 1.1)]
        curve = Curve.fit(points, per_node=4)
        assert [curve.seconds(point.workers) for point in points] == [2.0, 1.2, 1.1]

    def test_a_placement_on_more_nodes_than_needed_does_not_stand_for_the_size(self) -> None:
        curve = Curve.fit([Point(1, 1, 2.0), Point(4, 1, 0.6), Point(2, 2, 1.9)], per_node=4)
        assert curve.seconds(2) < 1.3

    def test_slow_workers_on_one_node_do_not_forbid_to_try_a_second_one(self) -> None:
        curve = Curve.fit([Point(1, 1, 29.5), Point(2, 1, 14.9), Point(4, 1, 8.0)], per_node=4)
        assert curve.seconds(8) < curve.seconds(4)

    def test_a_job_of_few_micro_batches_gains_only_where_a_worker_has_fewer_of_them(self) -> None:
        curve = Curve.fit([Point(1, 1, 8.0)], per_node=8, work=lambda workers: -(-8 // workers) / 8)
        assert curve.seconds(5) == curve.seconds(4)
        assert curve.seconds(8) < curve.seconds(4)

    def test_a_law_is_found_again_from_its_points(self) -> None:
        def seconds(workers: int, nodes: int) -> float:
            return 6 / workers + 0.2 + 0.1 * (nodes > 1) + 0.01 * (workers - 1)

        points = [Point(n, -(-n // 4), seconds(n, -(-n // 4))) for n in (1, 2, 4, 8, 16)]
        curve = Curve.fit(points, per_node=4)
        assert [curve.seconds(n) for n in (3, 12, 24)] == pytest.approx(
            [seconds(n, -(-n // 4)) for n in (3, 12, 24)], rel=0.02
        )


class TestWorth:
    @pytest.mark.parametrize("beta", [0.5, 1.0, 1.2, 2.0])
    def test_more_speed_is_worth_more_and_each_further_part_less(self, beta: float) -> None:
        values = [utility(speed, beta) for speed in (1.0, 2.0, 3.0, 4.0)]
        gains = [b - a for a, b in itertools.pairwise(values)]
        assert all(gain > 0 for gain in gains)
        assert gains == sorted(gains, reverse=True)

    def test_a_size_that_is_no_faster_than_a_smaller_one_is_not_offered(self) -> None:
        rungs = offers({1: 1.0, 2: 1.9, 3: 1.8, 4: 1.9}, 0, Work(1e4), 0.0, Weights())
        assert [size for size, _ in rungs] == [1, 2]

    def test_a_resize_that_costs_more_than_it_brings_is_not_offered(self) -> None:
        little = {**SPEEDS, 8: 4.0}
        costly = offers(little, 4, Work(1e5), 60.0, Weights())
        assert max(costly, key=lambda rung: rung[1])[0] == 4
        cheap = offers(little, 4, Work(1e5), 0.5, Weights())
        assert max(cheap, key=lambda rung: rung[1])[0] == 8

    def test_where_resizes_are_costly_each_holds_for_longer_so_that_a_large_gain_still_pays(self) -> None:
        for pause in (60.0, 120.0, 250.0):
            assert max(offers(SPEEDS, 4, Work(1e6), pause, Weights()), key=lambda rung: rung[1])[0] == 8

    def test_a_job_that_ends_sooner_than_its_growth_would_pay_stays_as_it_is(self) -> None:
        assert max(offers(SPEEDS, 4, Work(100.0), 5.0, Weights()), key=lambda rung: rung[1])[0] == 4
        assert max(offers(SPEEDS, 4, Work(1e5), 5.0, Weights()), key=lambda rung: rung[1])[0] == 8

    def test_less_work_left_weighs_more(self) -> None:
        short, long = (
            offers(SPEEDS, 0, Work(seconds), 0.0, Weights())[1][1]
            - offers(SPEEDS, 0, Work(seconds), 0.0, Weights())[0][1]
            for seconds in (600.0, 6000.0)
        )
        assert short > long

    def test_the_envelope_has_only_corners_that_bend_down(self) -> None:
        corners = envelope(((1, 0.0), (2, 1.0), (3, 3.0), (4, 3.5), (8, 4.0)))
        assert corners == [(1, 0.0), (3, 3.0), (4, 3.5), (8, 4.0)]
        assert envelope(((1, 0.0), (2, 1.0), (3, 3.0), (4, 3.5), (8, 4.0)), 2, 4) == [(2, 1.0), (3, 3.0), (4, 3.5)]


def bidder(number: int, speeds: dict[int, float], held: int = 0, pools: tuple[str, ...] = ("all",)) -> Bidder[int]:
    made = offer(speeds, held, Work(6000.0), 0.0, Weights())
    return Bidder(number, made, pools, (number,), (number,), held)


class TestFilling:
    def test_equal_jobs_get_equal_parts_and_ties_go_to_the_first(self) -> None:
        filled = fill([bidder(n, SPEEDS) for n in range(3)], {"all": 8})
        assert filled.sizes == {0: 4, 1: 2, 2: 2}

    def test_who_scales_better_gets_more(self) -> None:
        flat = {1: 1.0, 2: 1.2, 4: 1.3}
        assert fill([bidder(1, flat), bidder(2, SPEEDS)], {"all": 10}).sizes == {1: 2, 2: 8}

    def test_a_rung_that_does_not_fit_is_replaced_by_the_best_that_does(self) -> None:
        assert fill([bidder(1, {1: 1.0, 2: 1.1, 4: 1.2, 8: 7.0})], {"all": 5}).sizes == {1: 4}

    def test_each_pool_bounds_those_that_draw_on_it(self) -> None:
        jobs = [bidder(1, SPEEDS, pools=("all", "small")), bidder(2, SPEEDS)]
        filled = fill(jobs, {"all": 12, "small": 2})
        assert filled.sizes == {1: 2, 2: 8}
        assert filled.left == {"all": 2, "small": 0}

    def test_what_was_given_before_is_kept_and_built_upon(self) -> None:
        jobs = [bidder(1, SPEEDS), bidder(2, SPEEDS)]
        assert fill(jobs, {"all": 2}, {1: 4}).sizes == {1: 4, 2: 2}

    def test_the_price_is_what_the_last_worker_was_worth(self) -> None:
        filled = fill([bidder(n, SPEEDS) for n in range(3)], {"all": 8})
        assert filled.wanted
        assert all(0 < worth <= filled.price for worth in filled.wanted.values())

    @given(
        st.lists(
            st.tuples(st.sets(st.integers(1, 16), min_size=1), st.integers(0, 16), st.integers(1, 100)), max_size=8
        ),
        st.integers(0, 40),
    )
    @settings(max_examples=300, deadline=None)
    def test_nobody_gets_what_it_did_not_offer_and_nothing_is_given_twice(
        self, jobs: list[tuple[set[int], int, int]], capacity: int
    ) -> None:
        bidders = [
            bidder(number, {size: size**0.8 for size in sizes} | ({held: held**0.8} if held else {}), held)
            for number, (sizes, held, _) in enumerate(jobs)
        ]
        filled = fill(bidders, {"all": capacity})
        assert sum(filled.sizes.values()) + filled.left["all"] == capacity
        assert filled.left["all"] >= 0
        for each in bidders:
            if each.id in filled.sizes:
                assert filled.sizes[each.id] in {each.held, *(size for size, _ in each.offer.rungs)}
        assert fill(bidders[::-1], {"all": capacity}).sizes == filled.sizes


CLAIMS = st.builds(
    Claim,
    id=st.uuids().map(str),
    demand=st.integers(0, 50),
    quota=st.integers(0, 20),
    limit=st.none() | st.integers(0, 40),
    weight=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    usage=st.floats(0, 1e6),
    held=st.integers(0, 10),
)


class TestQueues:
    def test_a_hundred_jobs_of_one_user_weigh_no_more_than_one_of_another(self) -> None:
        shares = entitlements([], [Demand("/q", "many", 400, held=4), Demand("/q", "one", 4)], 4)
        assert shares == {("/q", "many"): 2, ("/q", "one"): 2}

    def test_a_quota_comes_before_weights_and_is_lent_while_it_is_not_used(self) -> None:
        research, sales = Queue("/research", quota=6), Queue("/sales", weight=3.0)
        both = [Demand("/research", "a", 9), Demand("/sales", "b", 9)]
        assert entitlements([research, sales], both, 10) == {("/research", "a"): 7, ("/sales", "b"): 3}
        assert entitlements([research, sales], both[1:], 8) == {("/sales", "b"): 8}

    def test_a_limit_holds_at_every_depth(self) -> None:
        tree = [Queue("/a", limit=4), Queue("/a/x", weight=3.0)]
        demands = [Demand("/a/x", "u", 9), Demand("/a/y", "u", 9), Demand("/b", "u", 9)]
        assert entitlements(tree, demands, 12) == {("/a/x", "u"): 3, ("/a/y", "u"): 1, ("/b", "u"): 8}

    def test_who_has_used_more_lately_gets_less(self) -> None:
        shares = divide([Claim("a", 10, usage=3e4), Claim("b", 10, usage=1e4)], 10)
        assert shares["a"] < shares["b"]

    @given(st.lists(CLAIMS, max_size=8, unique_by=lambda claim: claim.id), st.integers(0, 100))
    @settings(max_examples=300, deadline=None)
    def test_all_that_can_be_used_is_given_quotas_first(self, claims: list[Claim], capacity: int) -> None:
        shares = divide(claims, capacity)
        assert sum(shares.values()) == min(capacity, sum(claim.most for claim in claims))
        assert all(0 <= shares[claim.id] <= claim.most for claim in claims)
        if sum(min(claim.most, claim.quota) for claim in claims) <= capacity:
            assert all(shares[claim.id] >= min(claim.most, claim.quota) for claim in claims)
        assert divide(claims[::-1], capacity) == shares
